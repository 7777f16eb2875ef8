"""Renders a comparison as text for a terminal, Markdown, CSV or JSON.

Sets the columns, the order and grouping of rows, and the lines below the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Literal

from serde_lab.errors import UsageError
from serde_lab.gate.compare.rows import Comparison, Row
from serde_lab.gate.compare.verdict import MARKS, Verdict
from serde_lab.gate.output.documents import as_json, comparison_document
from serde_lab.gate.output.tables import (
    Format,
    TextTable,
    aligned,
    comma_separated,
    markdown,
    markdown_text,
)
from serde_lab.gate.statistics.rounding import shown_change, shown_p, shown_ratio, shown_value
from serde_lab.runs.plain_text import plain_line

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

_WORST_FIRST = (
    Verdict.WRONG_ANSWER,
    Verdict.UNCHECKED,
    Verdict.MISSING,
    Verdict.SLOWER,
    Verdict.NOT_COMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.INSUFFICIENT,
    Verdict.NOISE,
    Verdict.FASTER,
    Verdict.SAME,
)

_SORT_KEYS: dict[str, Callable[[Row], object]] = {
    "name": lambda row: (row.arm, row.quantity),
    "ratio": lambda row: (row.ratio is None, -(row.ratio or 0)),
    "verdict": lambda row: _WORST_FIRST.index(row.verdict),
}

_GROUP_KEYS: dict[str, Callable[[Row], str]] = {
    "arm": lambda row: row.arm,
    "metric": lambda row: row.quantity.metric,
    "phase": lambda row: row.quantity.phase or "whole cell",
    "commit": lambda row: f"commit {row.quantity.commit}" if row.quantity.commit else "all commits",
}


def render_comparison(
    comparison: Comparison,
    format: Format = "table",
    *,
    only_changed: bool = False,
    sort: Sort = "scenario",
    group_by: GroupBy = "",
) -> str:
    """The comparison in one of four formats; JSON always holds every row.

    Raises UsageError for an unknown order or grouping.
    """
    if format == "json":
        return as_json(comparison_document(comparison))
    rows = arranged(comparison.rows, only_changed=only_changed, sort=sort)
    if format == "csv":
        return comma_separated(_full_table(rows))
    groups = _groups(rows, group_by)
    if format == "md":
        return _markdown(comparison, groups, rows)
    parts = [plain_line(f"{comparison.before} -> {comparison.after}")]
    for name, members in groups:
        parts += [*(["", plain_line(name)] if name else []), aligned(short_table(members))]
    parts += [LEGEND, *map(plain_line, _below(comparison, rows))]
    return "\n".join(parts) + "\n"


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


def short_table(rows: Sequence[Row], verdicts: Sequence[tuple[str, str]] = ()) -> TextTable:
    """The terminal's columns; `verdicts` holds a mark and a word for each row if a gate judged them."""
    said = verdicts or [(MARKS[row.verdict], str(row.verdict)) for row in rows]
    cells = [_short_row(row, *words) for row, words in zip(rows, said, strict=True)]
    return TextTable(COLUMNS, tuple(cells), _FIGURES)


def _short_row(row: Row, mark: str, verdict: str) -> tuple[str, ...]:
    found = row.evidence
    unit = row.scale or row.unit
    before, after = (row.before, row.after) if found is None else (found.before, found.after)
    known = found is not None and found.low is not None
    return (
        mark,
        row.arm,
        row.quantity.label,
        shown_value(before.median, unit) if before and before.values else "-",
        shown_value(after.median, unit) if after and after.values else "-",
        shown_ratio(row.ratio),
        f"{shown_ratio(found.low)}..{shown_ratio(found.high)}" if found and known else "",
        f"{before.count}+{after.count}" if before and after else "",
        shown_p(found.adjusted_p) if found and known else "",
        shown_change(row.floor.change) if found and row.floor.known else "",
        verdict,
    )


def _full_table(rows: Sequence[Row]) -> TextTable:
    return TextTable(_FULL_COLUMNS, tuple(_full_row(row) for row in rows))


def _full_row(row: Row) -> tuple[str, ...]:
    found = row.evidence
    before, after = (row.before, row.after) if found is None else (found.before, found.after)
    values = (
        before.median if before and before.values else None,
        after.median if after and after.values else None,
        row.ratio,
        found.low if found else None,
        found.high if found else None,
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


def _below(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """The lines below the table: reasons for rows not the same, outliers, notes and summary figures."""
    lines = []
    for row in rows:
        if row.verdict is not Verdict.SAME:
            where = f"{row.arm} {row.quantity.label}"
            lines.append(f"{MARKS[row.verdict]} {where}: {row.judgement.because}")
    lines += [*outliers(rows), *comparison.notes]
    means = [f"{name} {shown_ratio(mean)}" for name, mean in comparison.geometric_means().items()]
    if means:
        lines.append(f"geometric mean of ratios: {', '.join(means)}")
    lines.append(summary_line(comparison))
    return lines


def summary_line(comparison: Comparison) -> str:
    """The number of worse, better and undecided rows, and of all rows."""
    return (
        f"{comparison.worse} worse, {comparison.better} better, {comparison.undecided} undecided"
        f" of {comparison.judged} compared"
    )


def outliers(rows: Sequence[Row]) -> list[str]:
    """Names the outlying rounds; they stay in every figure."""
    lines = []
    for row in rows:
        found = row.evidence
        for side, sample in (("before", found and found.before), ("after", found and found.after)):
            if sample and sample.outlying_rounds:
                values = dict(zip(sample.rounds, sample.values, strict=True))
                named = ", ".join(
                    f"round {n} with {shown_value(values[n], row.scale or row.unit)}"
                    for n in sample.outlying_rounds
                )
                lines.append(f"outlying, and kept: {row.arm} {row.quantity.label} {side}: {named}")
    return lines


def _markdown(
    comparison: Comparison, groups: Sequence[tuple[str, list[Row]]], rows: Sequence[Row]
) -> str:
    title = f"{comparison.scenario}: {comparison.before} → {comparison.after}"
    parts = [f"### {markdown_text(title)}"]
    for name, members in groups:
        parts += [*([f"**{markdown_text(name)}**"] if name else []), markdown(short_table(members))]
    parts.append("\n".join(f"- {markdown_text(line)}" for line in _below(comparison, rows)))
    return "\n\n".join(parts) + "\n"
