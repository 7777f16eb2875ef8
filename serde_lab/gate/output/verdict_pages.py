"""Builds what `compare`, `gate` and `ab` print: columns, order of rows, and the lines below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from serde_lab.analysis.rounding import shown_change, shown_p, shown_ratio, shown_value
from serde_lab.errors import UsageError
from serde_lab.gate.compare.rows import Comparison, Row
from serde_lab.gate.compare.verdict import MARKS, Verdict
from serde_lab.gate.decision import WORST_FIRST, GateFinding, GateResult
from serde_lab.gate.output.documents import comparison_document, gate_document
from serde_lab.report.formats import TextFormat, page_text
from serde_lab.report.page import (
    VERDICTS,
    Case,
    Page,
    Points,
    Section,
    Sentence,
    Suite,
    Table,
    text_table,
)

Sort = Literal["scenario", "name", "ratio", "verdict"]
GroupBy = Literal["", "arm", "metric", "phase", "commit"]

_FIGURES = frozenset({"before", "after", "ratio", "interval", "n", "p", "floor"})
COLUMNS = (
    "",
    "arm",
    "quantity",
    "before",
    "after",
    "ratio",
    "interval",
    "n",
    "p",
    "floor",
    "verdict",
)
LEGEND = (
    "- worse   + better   = same   ~ noise   ? undecided   x not comparable or missing   ! wrong or"
    " unchecked"
)

_FULL_COLUMNS = (
    *("arm", "metric", "phase", "commit", "unit", "before", "after", "ratio", "low", "high"),
    *("n_before", "n_after", "p", "adjusted_p", "noise_floor", "verdict", "because"),
)


_SORT_KEYS: dict[str, Callable[[Row], object]] = {
    "name": lambda row: (row.arm, row.quantity),
    "ratio": lambda row: (row.ratio is None, -(row.ratio or 0)),
    "verdict": lambda row: list(VERDICTS).index(row.verdict),
}

_GROUP_KEYS: dict[str, Callable[[Row], str]] = {
    "arm": lambda row: row.arm,
    "metric": lambda row: row.quantity.metric,
    "phase": lambda row: row.quantity.phase or "whole cell",
    "commit": lambda row: f"commit {row.quantity.commit}" if row.quantity.commit else "all commits",
}


def render_comparison(
    comparison: Comparison,
    format: TextFormat = "table",
    *,
    only_changed: bool = False,
    sort: Sort = "scenario",
    group_by: GroupBy = "",
) -> str:
    """The comparison for a terminal, or as Markdown, CSV or JSON; JSON always holds every row.

    Raises UsageError for an unknown order or grouping.
    """
    rows = arranged(comparison.rows, only_changed=only_changed, sort=sort)
    sections = [
        Section(name, name, (_short_table(members),)) for name, members in _groups(rows, group_by)
    ]
    page = Page(
        kind="comparison",
        title=f"{comparison.scenario}: {comparison.before} → {comparison.after}",
        sections=(*sections, Section("below", "", (Sentence(LEGEND), _below(comparison, rows)))),
        data=comparison_document(comparison),
        csv_table=text_table("all-cells", _FULL_COLUMNS, [_full_row(row) for row in rows]),
    )
    return page_text(page, format)


def arranged(
    rows: Sequence[Row], *, only_changed: bool = False, sort: Sort = "scenario"
) -> list[Row]:
    """The rows to show, in order; `only_changed` leaves out those that are the same or noise."""
    chosen = [
        row for row in rows if not only_changed or row.verdict not in (Verdict.SAME, Verdict.NOISE)
    ]
    if sort == "scenario":
        return chosen
    if sort not in _SORT_KEYS:
        raise UsageError(f"cannot sort by {sort!r}; known are scenario, {', '.join(_SORT_KEYS)}")
    return sorted(chosen, key=_SORT_KEYS[sort])  # type: ignore[arg-type]


def _short_table(rows: Sequence[Row], verdicts: Sequence[tuple[str, str]] = ()) -> Table:
    """The cells in short; `verdicts` holds a mark and a word for each row if a gate judged them."""
    said = verdicts or [(MARKS[row.verdict], str(row.verdict)) for row in rows]
    cells = [_short_row(row, *words) for row, words in zip(rows, said, strict=True)]
    return text_table("cells", COLUMNS, cells, _FIGURES)


def _short_row(row: Row, mark: str, verdict: str) -> tuple[str, ...]:
    found = row.evidence
    unit = row.scale or row.unit
    before, after = row.before, row.after
    interval = found and found.interval
    return (
        mark,
        row.arm,
        row.quantity.label,
        shown_value(before.median, unit) if before and before.values else "-",
        shown_value(after.median, unit) if after and after.values else "-",
        shown_ratio(row.ratio),
        f"{shown_ratio(interval.low)}..{shown_ratio(interval.high)}" if interval else "",
        f"{before.count}+{after.count}" if before and after else "",
        shown_p(found.adjusted_p) if found and interval else "",
        shown_change(row.floor.change) if found and row.floor.known else "",
        verdict,
    )


def _full_row(row: Row) -> tuple[str, ...]:
    found = row.evidence
    before, after = row.before, row.after
    interval = found and found.interval
    values = (
        before.median if before and before.values else None,
        after.median if after and after.values else None,
        row.ratio,
        interval.low if interval else None,
        interval.high if interval else None,
        before.count if before else None,
        after.count if after else None,
        found.p if found else None,
        found.adjusted_p if found else None,
        row.floor.change if found else None,
    )
    return (
        row.arm,
        row.quantity.metric,
        row.quantity.phase,
        str(row.quantity.commit or ""),
        row.scale or row.unit,
        *("" if value is None else f"{value:.15g}" for value in values),
        str(row.verdict),
        row.judgement.because,
    )


def _groups(rows: list[Row], group_by: str) -> list[tuple[str, list[Row]]]:
    if not group_by:
        return [("", rows)]
    if group_by not in _GROUP_KEYS:
        raise UsageError(f"cannot group by {group_by!r}; known are {', '.join(_GROUP_KEYS)}")
    key = _GROUP_KEYS[group_by]
    return [(name, list(members)) for name, members in groupby(sorted(rows, key=key), key=key)]


def _below(comparison: Comparison, rows: Sequence[Row]) -> Points:
    """What stands below the table: reasons for rows not the same, outliers, notes and summary figures."""
    found = [
        (f"{MARKS[row.verdict]} {row.arm} {row.quantity.label}", row.judgement.because)
        for row in rows
        if row.verdict is not Verdict.SAME
    ]
    found += [("", text) for text in (*_outliers(rows), *comparison.notes)]
    means = [f"{name} {shown_ratio(mean)}" for name, mean in comparison.geometric_means().items()]
    if means:
        found.append(("geometric mean of ratios", ", ".join(means)))
    found.append(
        (
            "",
            f"{comparison.worse} worse, {comparison.better} better, {comparison.undecided} undecided"
            f" of {comparison.judged} compared",
        )
    )
    return Points(tuple(found))


def _outliers(rows: Sequence[Row]) -> list[str]:
    """Names the outlying rounds; they stay in every figure."""
    lines = []
    for row in rows:
        for side, sample in (("before", row.before), ("after", row.after)):
            if row.evidence and sample and sample.outlying_rounds:
                values = sample.by_round
                named = ", ".join(
                    f"round {n} with {shown_value(values[n], row.scale or row.unit)}"
                    for n in sample.outlying_rounds
                )
                lines.append(f"outlier, kept: {row.arm} {row.quantity.label} {side}: {named}")
    return lines


_LEVEL_MARKS = dict(zip(WORST_FIRST, "x!-?=", strict=True))

_HEADLINES = {
    0: "passed",
    1: "failed: something could not be judged at all",
    3: "regression",
    4: "wrong answer",
    5: "undecided: nothing is wrong, but some cells could not be decided",
}


def render_gate(result: GateResult, format: TextFormat = "table", *, cells: bool = False) -> str:
    """The result for a terminal, or as Markdown for a job summary, JUnit, CSV or JSON.

    The words are the gate's own: failed, wrong answer, regression, undecided, passed. The worst findings come
    first; passed cells are only counted. With `cells` a table of all cells comes before the findings.
    """
    rows = result.comparison.rows
    levels = [result.level_of(row) for row in rows]
    table = _short_table(rows, [(_LEVEL_MARKS[level], level) for level in levels])
    shown = [found for level in WORST_FIRST[:-1] for found in result.of_level(level)]
    points = Points(
        (
            *((found.level, f"{_place(found)}{found.text}") for found in shown),
            ("", _counts(result)),
            *(("note", note) for note in _notes(result)),
        )
    )
    evidence = [
        replace(_findings_table(shown), folded="What each finding rests on"),
        replace(table, folded="All cells"),
    ]
    page = Page(
        kind="gate",
        title=_headline(result),
        sections=(
            *([Section("cells", "", (table,))] if cells else []),
            Section("findings", "", (points, *evidence)),
        ),
        data=gate_document(result),
        csv_table=_findings_table(result.findings),
        suite=_suite(result),
    )
    return page_text(page, format)


def _headline(result: GateResult) -> str:
    """One line: the gate's verdict, the two sides, and the exit status."""
    comparison = result.comparison
    undecided = result.exit_status == 0 and result.of_level("undecided")
    word = _HEADLINES[5 if undecided else result.exit_status]
    return (
        f"gate {comparison.scenario}: {word} (exit {result.exit_status}); {comparison.after}"
        f" against {comparison.before}"
    )


def _counts(result: GateResult) -> str:
    """The number of findings of each level that occurs, the worst first."""
    counts = [f"{len(result.of_level(one))} {one}" for one in WORST_FIRST if result.of_level(one)]
    return f"{', '.join(counts) or 'nothing'} of {len(result.findings)} judged"


def _notes(result: GateResult) -> list[str]:
    comparison = result.comparison
    others = [note for note in comparison.notes if note not in comparison.raised]
    notes = [*others, *_outliers(comparison.rows)]
    if result.confirmed:
        notes.insert(0, "regressions in time were measured a second time")
    return notes


def _findings_table(findings: Sequence[GateFinding]) -> Table:
    return text_table(
        "findings",
        ("level", "arm", "quantity", "why", "evaluated"),
        [
            (
                found.level,
                found.row.arm if found.row else "",
                found.row.quantity.label if found.row else "",
                found.text,
                "; ".join(one.text for one in found.inequalities),
            )
            for found in findings
        ],
    )


def _place(finding: GateFinding) -> str:
    row = finding.row
    return "" if row is None else f"{row.arm} {row.quantity.label}: "


def _suite(result: GateResult) -> Suite:
    """One case per finding: regressions and wrong answers fail, undecided cells are skipped."""
    scenario = result.comparison.scenario
    return Suite(
        f"serde_lab gate {scenario}",
        tuple(
            Case(
                group=f"{scenario}.{found.row.arm if found.row else 'gate'}",
                name=found.row.quantity.label if found.row else "gate",
                outcome=_outcome(found, result.strict),
                kind=found.level,
                message=found.text,
                detail="\n".join(one.text for one in found.inequalities),
            )
            for found in result.findings
        ),
    )


def _outcome(
    found: GateFinding, undecided_fails: bool
) -> Literal["passed", "failure", "error", "skipped"]:
    if found.level == "undecided":
        return "failure" if undecided_fails else "skipped"
    if found.level == "passed":
        return "passed"
    return "error" if found.level == "failed" else "failure"
