"""Writes a page as Markdown, CSV or JSON, for reviews, spreadsheets and scripts.

All three read the same page as the HTML output, so that figures never differ.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from serde_lab.errors import UsageError
from serde_lab.report import notation
from serde_lab.report.page import (
    Block,
    Cards,
    Cell,
    Commands,
    Facts,
    Figure,
    Page,
    Points,
    Section,
    Sentence,
    Table,
)
from serde_lab.runs.plain_text import plain, plain_json, plain_line

_MARKS = {"good": "✓ ", "bad": "✕ ", "warn": "! "}
_FOLDED_AWAY = frozenset({"raw", "environment"})


def markdown(page: Page) -> str:
    """The page as GitHub Markdown: answer and tables, without plots, folded tables and raw values."""
    lines = [f"# {_md(page.title)}", ""]
    lines += [" · ".join(f"{key} {_md(value)}" for key, value in page.facts), ""]
    answer = page.answer
    lines += [f"## {_md(answer.question)}", ""]
    lines += [f"**{_md(answer.figure)}** {_md(answer.figure_about)}", ""]
    for sentence in answer.sentences:
        lines += [_sentence(sentence), ""]
    for section in page.sections:
        if section.name not in _FOLDED_AWAY:
            lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {_md(section.heading)}", ""]
    for block in section.blocks:
        lines += _block(block)
    return lines if len(lines) > 2 else []


def _block(block: Block) -> list[str]:
    if isinstance(block, Sentence):
        return [_sentence(block), ""]
    if isinstance(block, Points):
        return [*(f"- **{_md(head)}.** {_md(text)}" for head, text in block.items), ""]
    if isinstance(block, Table):
        return [] if block.folded else [*markdown_table(block), ""]
    if isinstance(block, Figure):
        return [f"**{_md(block.title)}.** {_md(block.description)}", ""]
    if isinstance(block, Cards):
        return [
            line
            for card in block.cards
            for line in (
                f"- **{_md(card.title)}**",
                *(f"  - {_md(term)}: {_md(text)}" for term, text in card.facts),
            )
        ] + [""]
    if isinstance(block, Facts):
        return [] if block.folded else [*(f"- {_md(k)}: {_md(v)}" for k, v in block.facts), ""]
    assert isinstance(block, Commands)
    return ["```sh", *(f"{line}  # {text}" for line, text in block.lines), "```", ""]


def _sentence(sentence: Sentence) -> str:
    return f"{_MARKS.get(sentence.tone, '')}{_md(sentence.text)}"


def markdown_table(table: Table) -> list[str]:
    """The lines of a table; a note is placed below the value that it explains."""
    heads = [f"{c.heading} ({c.unit})" if c.unit else c.heading for c in table.columns]
    lines = ["| " + " | ".join(_md(head) for head in heads) + " |"]
    lines.append("|" + "|".join(" ---: " if c.numeric else " --- " for c in table.columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_cell(cell) for cell in row) + " |")
    return lines


def _cell(cell: Cell) -> str:
    text = f"**{_md(cell.text)}**" if cell.header and cell.text else _md(cell.text)
    return f"{text}<br>{_md(cell.note)}" if cell.note else text


_ESCAPED = str.maketrans(
    {"|": "\\|", "<": "&lt;", ">": "&gt;", "*": "\\*", "[": "\\[", "\\": "\\\\"}
)


def _md(text: str) -> str:
    """Escape text so that it cannot end its line, cell or tag; backquotes stay, since they mark names."""
    return " ".join(plain(text).translate(_ESCAPED).split())


def csv_text(page: Page, table: str = "") -> str:
    """One table as CSV, by default the page's first: keys as header, raw values, no notes.

    Raises UsageError naming the available tables.
    """
    tables = {one.name: one for one in page.tables()}
    chosen = tables.get(table) if table else next(iter(tables.values()), None)
    if chosen is None:
        raise UsageError(f"the report has no table {table!r}; known are {', '.join(tables)}")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in chosen.columns])
    for row in chosen.rows:
        writer.writerow([_csv_cell(value) for value in map(raw_value, row)])
    return out.getvalue()


def _csv_cell(value: float | int | str | None) -> float | int | str:
    if isinstance(value, str):
        return plain_line(value)
    return "" if value is None else value


def raw_value(cell: Cell) -> float | int | str | None:
    """The value for scripts: unrounded if there is one."""
    if cell.value is not None:
        return cell.value
    return None if cell.text in ("", notation.NOTHING) else cell.text


def json_text(page: Page) -> str:
    """The page's data and every table by name; a row is an object by column key."""
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
