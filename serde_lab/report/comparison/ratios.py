"""Builds the plots of a comparison: each cell's ratio with its interval, one plot per metric."""

from __future__ import annotations

from serde_lab.report import notation
from serde_lab.report.comparison.document import ComparedRow, ComparedSides
from serde_lab.report.page import Figure
from serde_lab.report.plots.drawings import PointRow, PointRows

_MOST_ROWS = 40
"""A plot with more rows is unreadable; the table has all of them."""


def ratio_figures(sides: ComparedSides) -> tuple[Figure, ...]:
    """One figure per metric that has intervals."""
    by_metric: dict[str, list[ComparedRow]] = {}
    for row in sides.rows:
        if row.ratio is not None and row.low is not None and row.high is not None:
            by_metric.setdefault(row.metric, []).append(row)
    return tuple(_figure(metric, rows[:_MOST_ROWS]) for metric, rows in by_metric.items())


def _figure(metric: str, rows: list[ComparedRow]) -> Figure:
    drawn = tuple(
        PointRow(
            label=row.arm if row.quantity == metric else f"{row.arm}, {row.quantity}",
            points=(),
            middle=row.ratio,
            low=row.low,
            high=row.high,
            note=f"{notation.decided('ratio', row.ratio)} {row.verdict}",
        )
        for row in rows
    )
    return Figure(
        name=f"ratio-{metric.replace('.', '-').replace('_', '-')}",
        title=f"{metric}: after over before",
        description="Intervals, one a row, against 1: "
        + "; ".join(
            f"{row.label} {row.note}, {notation.decided('ratio', row.low)} to"
            f" {notation.decided('ratio', row.high)}"
            for row in drawn
        )
        + ".",
        drawing=PointRows(
            axis="ratio, after over before; the dashed line is 1",
            rows=drawn,
            from_zero=False,
            line=1.0,
        ),
    )
