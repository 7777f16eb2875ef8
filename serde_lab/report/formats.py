"""Writes a page for a terminal, and as Markdown, CSV, JSON and JUnit.

All formats read the same page as the HTML output, so that figures never differ.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import asdict
from typing import Any, Literal
from xml.etree import ElementTree

import rich.table
from rich.console import Console

from serde_lab.errors import UsageError
from serde_lab.report import notation
from serde_lab.report.page import (
    Block,
    Cards,
    Cell,
    Column,
    Commands,
    Facts,
    Figure,
    Page,
    Points,
    Sentence,
    Suite,
    Table,
)
from serde_lab.runs.plain_text import plain, plain_json, plain_line

TextFormat = Literal["table", "md", "csv", "json", "junit"]

_GAP = 2  # blanks that rich puts between two columns
_WITHOUT_WRAPPING = 100_000
_MARKS = {"good": "✓ ", "bad": "✕ ", "warn": "! "}
_FOLDED_AWAY = frozenset({"raw", "environment"})


def page_text(page: Page, format: str) -> str:
    """The page in one of the formats of text. Raises UsageError for an unknown one."""
    writers = {"table": terminal, "md": markdown, "csv": csv_text, "json": json_text}
    if format in writers:
        return writers[format](page)
    if format == "junit" and page.suite is not None:
        return _junit(page, page.suite)
    raise UsageError(f"a {page.kind} page has no format {format!r}")


def terminal(page: Page) -> str:
    """The page for a terminal of any width: no line is wrapped, folded tables and plots are left out."""
    lines = [plain_line(page.title)] if page.title else []
    for section in page.sections:
        if section.heading:
            lines += [""] if lines else []
            lines.append(plain_line(section.heading))
        for block in section.blocks:
            if isinstance(block, Table) and not block.folded:
                lines.append(terminal_table(block))
            elif isinstance(block, Sentence):
                lines.append(plain_line(block.text))
            elif isinstance(block, Points):
                lines += [
                    plain_line(f"{head}: {text}" if head else text) for head, text in block.items
                ]
    return "\n".join(lines) + "\n"


def terminal_table(table: Table, width: int | None = None, styled: bool = False) -> str:
    """The table in columns; text wraps at `width`, figures only if there is no other way."""
    rows = [[_terminal_cell(cell) for cell in row] for row in table.rows]
    numeric = [column.numeric for column in table.columns]
    figures = sum(
        max([len(_heading(column)), *(len(line) for row in rows for line in row[i].split("\n"))])
        for i, column in enumerate(table.columns)
        if column.numeric
    )
    wide = width or _WITHOUT_WRAPPING
    room = wide - _GAP * len(numeric) - 8 * numeric.count(False) >= figures
    grid = rich.table.Table(
        header_style="bold", box=None, pad_edge=False, padding=(0, _GAP, 0, 0), expand=False
    )
    for column in table.columns:
        grid.add_column(
            plain_line(_heading(column)),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric and room,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*row)
    out = io.StringIO()
    Console(
        file=out,
        width=wide,
        force_terminal=styled,
        color_system="standard" if styled else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    ).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _heading(column: Column) -> str:
    return f"{column.heading} ({column.unit})" if column.unit else column.heading


def _terminal_cell(cell: Cell) -> str:
    return "\n".join(plain_line(line) for line in (cell.text, cell.note) if line)


def markdown(page: Page) -> str:
    """The page as GitHub Markdown.

    A report has its answer and tables, without plots, folded tables and raw values. A page without an answer
    is a part of a longer document: its title is a smaller heading, and its folded tables are kept.
    """
    if page.answer is None:
        parts = [f"### {_literal(page.title)}"] if page.title else []
        for section in page.sections:
            parts += [f"**{_literal(section.heading)}**"] if section.heading else []
            parts += ["\n".join(_block(block, folded=True)) for block in section.blocks]
        return "\n\n".join(part.rstrip() for part in parts if part) + "\n"
    lines = [f"# {_literal(page.title)}", ""]
    lines += [" · ".join(f"{key} {_literal(value)}" for key, value in page.facts), ""]
    answer = page.answer
    lines += [f"## {_literal(answer.question)}", ""]
    lines += [f"**{_literal(answer.figure)}** {_coded(answer.figure_about)}", ""]
    for sentence in answer.sentences:
        lines += [_sentence(sentence), ""]
    for section in page.sections:
        blocks = [line for block in section.blocks for line in _block(block)]
        if blocks and section.name not in _FOLDED_AWAY:
            lines += [f"## {_literal(section.heading)}", "", *blocks]
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block, folded: bool = False) -> list[str]:
    if isinstance(block, Sentence):
        return [_sentence(block), ""]
    if isinstance(block, Points):
        return [*(_point(head, text) for head, text in block.items), ""]
    if isinstance(block, Table):
        if not block.folded:
            return [*markdown_table(block), ""]
        summary = f"<details><summary>{_literal(block.folded)}</summary>"
        return [summary, "", *markdown_table(block), "", "</details>", ""] if folded else []
    if isinstance(block, Figure):
        return [f"**{_literal(block.title)}.** {_coded(block.description)}", ""]
    if isinstance(block, Cards):
        return [
            line
            for card in block.cards
            for line in (
                f"- **{_literal(card.title)}**",
                *(f"  - {_literal(term)}: {_literal(text)}" for term, text in card.facts),
            )
        ] + [""]
    if isinstance(block, Facts):
        facts = (f"- {_literal(key)}: {_literal(value)}" for key, value in block.facts)
        return [] if block.folded else [*facts, ""]
    assert isinstance(block, Commands)
    return ["```sh", *(f"{line}  # {text}" for line, text in block.lines), "```", ""]


def _sentence(sentence: Sentence) -> str:
    return f"{_MARKS.get(sentence.tone, '')}{_coded(sentence.text)}"


def _point(heading: str, text: str) -> str:
    return f"- **{_literal(heading)}.** {_coded(text)}" if heading else f"- {_coded(text)}"


def markdown_table(table: Table) -> list[str]:
    """The lines of a table; a note is placed below the value that it explains."""
    lines = ["| " + " | ".join(_literal(_heading(c)) for c in table.columns) + " |"]
    lines.append("|" + "|".join(" ---: " if c.numeric else " --- " for c in table.columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_markdown_cell(cell) for cell in row) + " |")
    return lines


def _markdown_cell(cell: Cell) -> str:
    text = f"**{_literal(cell.text)}**" if cell.header and cell.text else _literal(cell.text)
    return f"{text}<br>{_literal(cell.note)}" if cell.note else text


_ESCAPED = str.maketrans({"<": "&lt;", ">": "&gt;", **{sign: f"\\{sign}" for sign in "\\|*`[]"}})
# underscores inside a word, and colons that do not enclose one, have no meaning
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")
_NAME = re.compile(r"[\w .,:/@#=+-]+")
_EMOJI = re.compile(r":(?=[A-Za-z+][\w+\\-]*:)")


def _literal(text: str) -> str:
    """Text escaped so that Markdown shows it unchanged and on one line, in a table or a list."""
    escaped = " ".join(plain(text).translate(_ESCAPED).split())
    return _EMOJI.sub(r"\:", _UNDERSCORE.sub(r"\_", escaped))


def _coded(text: str) -> str:
    """A sentence, escaped, with the names in backquotes as code, unless a sign in them needs escaping."""
    parts = re.split(r"`([^`]*)`", " ".join(plain(text).split()))
    return "".join(
        f"`{part}`" if i % 2 and _NAME.fullmatch(part) else _piece(part)
        for i, part in enumerate(parts)
    ).strip()


def _piece(text: str) -> str:
    """A part of a sentence, escaped, with the blanks at its ends."""
    start, end = text[:1].isspace(), text[-1:].isspace()
    found = _literal(text)
    return f"{' ' if start else ''}{found}{' ' if end and found else ''}"


def csv_text(page: Page) -> str:
    """The page's table for CSV, or its first, as CSV. Raises UsageError for a page without tables."""
    chosen = page.csv_table or next(iter(page.tables()), None)
    if chosen is None:
        raise UsageError("the report has no table")
    return csv_table(chosen)


def csv_table(table: Table) -> str:
    """CSV with a header and plain line feeds; control characters are shown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow(
            plain_line(value) if isinstance(value, str) else value for value in map(raw_value, row)
        )
    return out.getvalue()


def raw_value(cell: Cell) -> float | int | str | None:
    """The value for scripts: unrounded if there is one."""
    if cell.value is not None:
        return cell.value
    return None if cell.text in ("", notation.NOTHING) else cell.text


def json_text(page: Page) -> str:
    """The page's data, and for a report every table by name; a row is an object by column key."""
    if page.answer is None:
        return plain_json(page.data) + "\n"
    value: dict[str, Any] = {
        "kind": page.kind,
        "title": page.title,
        "facts": dict(page.facts),
        "answer": asdict(page.answer),
        "doubts": [
            {"heading": heading, "text": text}
            for section in page.sections
            for block in section.blocks
            if isinstance(block, Points)
            for heading, text in block.items
        ],
        "tables": {table.name: _objects(table) for table in page.tables()},
        "data": page.data,
    }
    return plain_json(value) + "\n"


def _objects(table: Table) -> list[dict[str, object]]:
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, map(raw_value, row), strict=True)) for row in table.rows]


def _junit(page: Page, suite: Suite) -> str:
    """The page's cases as a test suite, with the page for a terminal as its output."""
    counts = {
        outcome: sum(case.outcome == outcome for case in suite.cases)
        for outcome in ("failure", "error", "skipped")
    }
    root = ElementTree.Element(
        "testsuite",
        name=plain(suite.name),
        tests=str(len(suite.cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    for case in suite.cases:
        element = ElementTree.SubElement(
            root, "testcase", classname=plain(case.group), name=plain(case.name)
        )
        if case.outcome != "passed":
            problem = ElementTree.SubElement(
                element, case.outcome, message=plain(case.message), type=case.kind
            )
            problem.text = plain(case.detail)
    output = ElementTree.SubElement(root, "system-out")
    output.text = plain(terminal(page))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
