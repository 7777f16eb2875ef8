"""Builds the page of a comparison: first how many cells are worse, then every verdict with its evidence.

A page is made from the document that `compare` or `gate` prints. The document of a gate has findings, and its
verdicts and counts are the gate's: passed, undecided, regression, wrong answer, failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from serde_lab.errors import RunError
from serde_lab.report import notation
from serde_lab.report.page import (
    VERDICTS,
    Answer,
    Block,
    Cell,
    Column,
    Commands,
    Figure,
    Page,
    Section,
    Sentence,
    Table,
    text_columns,
    verdict_tone,
    warnings_or,
)
from serde_lab.report.plots.drawings import PointRow, PointRows

Document = Mapping[str, Any]

_MOST_NAMED = 5
"""The answer names at most so many bad rows one by one."""

_UNMOVED = ("same", "passed")


def comparison_page(document: Document) -> Page:
    """The page of a document of `compare` or `gate`. Raises RunError if it is neither."""
    try:
        return _page(document, document.get("comparison", document))
    except (KeyError, TypeError, AttributeError) as exc:
        raise RunError(f"this is no document of a comparison: {exc!r}") from exc


def _page(document: Document, comparison: Document) -> Page:
    before, after, scenario = (str(comparison[key]) for key in ("before", "after", "scenario"))
    rows = list(comparison["rows"])
    gated = document.get("exit_status") is not None
    sections = (
        _findings(document.get("findings", ())),
        _verdicts(rows, gated),
        _ratios(rows),
        _reasons(rows),
        _doubts(comparison),
        _values(rows),
        _remake(before, after, scenario, gated),
    )
    return Page(
        kind="comparison",
        title=f"{scenario}: {'gate' if gated else 'comparison'}",
        facts=(("before", before), ("after", after), ("scenario", scenario)),
        answer=_answer(document, comparison, f"Is {after} worse than {before}?"),
        sections=tuple(section for section in sections if section is not None),
        data=document,
    )


def _answer(document: Document, comparison: Document, question: str) -> Answer:
    counts: Mapping[str, int] = document["counts"]
    exit_status: int | None = document.get("exit_status")
    sentences = tuple(_sentences(comparison, exit_status, counts))
    if exit_status is not None:
        found = [f"{notation.count(n)} {level}" for level, n in counts.items() if n] or ["nothing"]
        judged = f"of {notation.count(sum(counts.values()))} judged"
        return Answer(question, found[0], ", ".join([*found[1:], judged]), sentences)
    return Answer(
        question=question,
        figure=f"{notation.count(counts['worse'])} worse",
        figure_about=f"{notation.count(counts['better'])} better,"
        f" {notation.count(counts['undecided'])} undecided, of"
        f" {notation.count(counts['compared'])} compared",
        sentences=sentences,
    )


def _sentences(
    comparison: Document, exit_status: int | None, counts: Mapping[str, int]
) -> Iterator[Sentence]:
    if exit_status is not None:
        yield _gate_sentence(exit_status, bool(counts.get("undecided")))
    elif not comparison["counts"]["compared"]:
        yield Sentence("Nothing was compared, so this is no pass.", "bad")
    bad = [row for row in comparison["rows"] if verdict_tone(_verdict(row)) == "bad"]
    for row in bad[:_MOST_NAMED]:
        times = "" if row["ratio"] is None else f", {notation.decided('ratio', row['ratio'])} times"
        yield Sentence(
            f"{notation.named(row['arm'])}, {_quantity(row)}: {_verdict(row)}{times}"
            f" ({row['because']}).",
            "bad",
        )
    if len(bad) > _MOST_NAMED:
        yield Sentence(
            f"And {notation.count(len(bad) - _MOST_NAMED)} more, see the verdicts.", "bad"
        )
    means = [
        f"{name} {notation.decided('ratio', mean)}"
        for name, mean in comparison["geometric_means"].items()
    ]
    if means:
        yield Sentence(f"Geometric mean of the ratios: {notation.listed(means)}.")


def _gate_sentence(exit_status: int, undecided: bool) -> Sentence:
    if exit_status == 0 and undecided:
        return Sentence("Nothing is wrong, but some cells could not be decided.", "warn")
    words = {
        0: Sentence("The gate passed.", "good"),
        3: Sentence("The gate failed: a regression (exit status 3).", "bad"),
        4: Sentence("The gate failed: a wrong answer (exit status 4).", "bad"),
        5: Sentence("The gate cannot decide (exit status 5).", "warn"),
    }
    otherwise = Sentence(f"The gate could not judge (exit status {exit_status}).", "bad")
    return words.get(exit_status, otherwise)


def _quantity(row: Document) -> str:
    commit = f" commit {row['commit']}" if row["commit"] else ""
    phase = f" {row['phase']}" if row["phase"] else ""
    return f"{row['metric']}{phase}{commit}"


def _verdict(row: Document) -> str:
    return str(row.get("level") or row["verdict"])


def _sides(row: Document) -> list[tuple[str, Document]]:
    """The sides of a row that have values, by name."""
    return [(name, row[name]) for name in ("before", "after") if row[name] is not None]


def _findings(findings: Sequence[Document]) -> Section | None:
    if not findings:
        return None
    columns = (
        *text_columns("level", "arm", "quantity"),
        Column("text", "finding", numeric=False),
    )
    rows = tuple(
        (
            Cell(str(one["level"]), str(one["level"]), header=True),
            Cell(str(one["arm"] or notation.NOTHING)),
            Cell(str(one["quantity"] or notation.NOTHING)),
            Cell(str(one["text"])),
        )
        for one in findings
    )
    title = "What the gate found"
    return Section("findings", title, (Table("findings", title, columns, rows),))


_COLUMNS = (
    *text_columns("arm", "quantity", "verdict"),
    Column(
        "ratio",
        "ratio",
        about="after over before: of the medians or, if both were measured in turns, the median of the"
        " rounds' ratios",
    ),
    Column("before", "before"),
    Column("after", "after"),
    Column("rounds", "rounds"),
    Column("p", "p", about="after Holm's correction"),
    Column("floor", "noise floor"),
)


def _verdicts(rows: Sequence[Document], gated: bool) -> Section:
    ranked = _worst_first(rows)
    changed = tuple(_verdict_row(row) for row in ranked if _verdict(row) not in _UNMOVED)
    same = tuple(_verdict_row(row) for row in ranked if _verdict(row) in _UNMOVED)
    alike, moved = ("passed", "did not pass") if gated else ("are the same", "are not the same")
    blocks: list[Block] = []
    if changed:
        caption = f"Compared cells that {moved}, the worst first"
        blocks.append(Table("verdicts", caption, _COLUMNS, changed))
    if same:
        folded = f"{notation.plural(len(same), 'cell')} that {alike}"
        caption = f"Compared cells that {alike}"
        blocks.append(Table("same", caption, _COLUMNS, same, folded=folded))
    return Section("verdicts", "Verdicts", tuple(blocks))


def _worst_first(rows: Sequence[Document]) -> list[Document]:
    rank = {verdict: i for i, verdict in enumerate(VERDICTS)}
    return sorted(rows, key=lambda row: rank.get(_verdict(row), 0))


def _verdict_row(row: Document) -> tuple[Cell, ...]:
    interval, p = row["interval"] or {}, (row["test"] or {}).get("adjusted_p")
    low, high = interval.get("low"), interval.get("high")
    between = ""
    if low is not None and high is not None:
        between = f"{notation.decided('ratio', low)} to {notation.decided('ratio', high)}"
    mark = "" if "level" in row else row["mark"]
    verdict = _verdict(row)
    counts = [str(len(side["values"])) for _, side in _sides(row)]
    floor = (row["noise_floor"] or {}).get("change")
    return (
        Cell(row["arm"], row["arm"], header=True),
        Cell(_quantity(row), _quantity(row)),
        Cell(f"{mark} {verdict}".strip(), verdict, tone=verdict_tone(verdict)),
        Cell(notation.decided("ratio", row["ratio"]), row["ratio"], between),
        _median(row, "before"),
        _median(row, "after"),
        Cell("+".join(counts) or notation.NOTHING),
        Cell(notation.decided("p", p), p),
        Cell(notation.decided("share", floor), floor),
    )


def _median(row: Document, side: str) -> Cell:
    if row[side] is None:
        return Cell(notation.NOTHING)
    value, unit = row[side]["median"], row["scale"] or row["unit"] or ""
    return Cell(f"{notation.as_decided(value)} {unit}".rstrip(), value)


def _reasons(rows: Sequence[Document]) -> Section:
    columns = (*text_columns("arm", "quantity", "verdict", "because", "evaluated"),)
    cells = tuple(
        (
            Cell(row["arm"], row["arm"], header=True),
            Cell(_quantity(row)),
            Cell(_verdict(row), tone=verdict_tone(_verdict(row))),
            Cell(row["because"], row["because"], (row["test"] or {}).get("name") or ""),
            Cell("; ".join(one["text"] for one in row["inequalities"]) or notation.NOTHING),
        )
        for row in _worst_first(rows)
    )
    folded = f"The reasons of {notation.plural(len(rows), 'verdict')}"
    table = Table("reasons", "What each verdict rests on", columns, cells, folded=folded)
    return Section("reasons", "Why: the evaluated inequalities", (table,))


def _doubts(comparison: Document) -> Section:
    points = [("Note", str(note)) for note in comparison["notes"]]
    points += [("Raised", str(text)) for text in comparison["raised"]]
    for row in comparison["rows"]:
        for name, side in _sides(row):
            if side["outlying_rounds"]:
                rounds = notation.listed([str(number) for number in side["outlying_rounds"]])
                where = f"{notation.named(row['arm'])}, {_quantity(row)}, {name}"
                points.append(("Outlier, kept", f"{where}: round {rounds}."))
    block = warnings_or(points, "This comparison shows no reason for doubt.")
    return Section("doubts", "Reasons to doubt the comparison", (block,))


def _values(rows: Sequence[Document]) -> Section:
    columns = (
        *text_columns("arm", "quantity", "side"),
        Column("round", "round"),
        Column("value", "value"),
    )
    cells = tuple(
        (
            Cell(row["arm"], row["arm"], header=True),
            Cell(_quantity(row)),
            Cell(name),
            Cell(str(number), number),
            Cell(f"{value:.10g}", value),
        )
        for row in rows
        for name, side in _sides(row)
        for number, value in zip(side["rounds"], side["values"], strict=True)
    )
    folded = f"{notation.plural(len(cells), 'value')} by round"
    table = Table("raw-values", "Every value of both sides", columns, cells, folded=folded)
    return Section("raw", "Raw values", (table,))


def _remake(before: str, after: str, scenario: str, gated: bool) -> Section | None:
    """The line that makes the page again; None for an A/B measurement and for two arms of one run."""
    baseline = re.fullmatch(r"baseline (\S+) \(.*\)", before)
    if baseline and gated:
        line = f"python -m serde_lab gate {quote(after)} --baseline {quote(baseline[1])}"
    elif baseline:
        line = (
            f"python -m serde_lab compare baseline:{scenario}@{quote(baseline[1])} {quote(after)}"
        )
    elif gated or before == after:
        return None
    else:
        line = f"python -m serde_lab compare {quote(before)} {quote(after)}"
    return Section("remake", "Remake it", (Commands(((line, "this comparison"),)),))


_MOST_ROWS = 40
"""A plot with more rows is unreadable; the table has all of them."""


def _ratios(rows: Sequence[Document]) -> Section | None:
    """A figure for each metric that has intervals."""
    by_metric: dict[str, list[PointRow]] = {}
    for row in rows:
        interval = row["interval"] or {}
        low, high = interval.get("low"), interval.get("high")
        if row["ratio"] is not None and low is not None and high is not None:
            metric, quantity = row["metric"], _quantity(row)
            drawn = PointRow(
                label=row["arm"] if quantity == metric else f"{row['arm']}, {quantity}",
                points=(),
                middle=row["ratio"],
                low=low,
                high=high,
                note=f"{notation.decided('ratio', row['ratio'])} {_verdict(row)}",
            )
            by_metric.setdefault(metric, []).append(drawn)
    figures = tuple(_figure(metric, drawn[:_MOST_ROWS]) for metric, drawn in by_metric.items())
    return Section("ratios", "Ratios and their intervals", figures) if figures else None


def _figure(metric: str, rows: Sequence[PointRow]) -> Figure:
    described = "; ".join(
        f"{row.label} {row.note}, {notation.decided('ratio', row.low)} to"
        f" {notation.decided('ratio', row.high)}"
        for row in rows
    )
    return Figure(
        name=f"ratio-{metric.replace('.', '-').replace('_', '-')}",
        title=f"{metric}: after over before",
        description=f"Intervals, one for each row, compared with 1: {described}.",
        drawing=PointRows(
            axis="ratio, after over before; the dashed line is 1",
            rows=tuple(rows),
            from_zero=False,
            line=1.0,
        ),
    )
