"""Shows the distribution of rounds: every point, with cold rounds and drifting rounds marked.

No outlier is removed.
"""

from __future__ import annotations

from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Figure, Section, Table
from serde_lab.report.plots.drawings import Point, PointRow, PointRows
from serde_lab.report.run.answer import typical_spread
from serde_lab.report.run.facts import ArmFacts, RunFacts


def rounds_section(facts: RunFacts) -> Section | None:
    """The section, or None if nothing was timed."""
    arms = [arm for arm in facts.timed if arm.seconds_by_round]
    if not arms:
        return None
    rows = tuple(_row(arm, facts) for arm in arms)
    figure = Figure(
        name="rounds",
        title="Every round of every arm",
        description="Points, one a round: "
        + "; ".join(f"{row.label} {row.note}" for row in rows)
        + ".",
        drawing=PointRows(axis="seconds end to end; the upright line is the median", rows=rows),
        table=_table(arms, facts),
    )
    return Section("rounds", "Distribution of rounds", (figure,))


def _row(arm: ArmFacts, facts: RunFacts) -> PointRow:
    points = [
        Point(
            value,
            "marked" if number in facts.drift else "measured",
            f"{arm.name}, round {number}: {notation.seconds(value)}",
        )
        for number, value in arm.seconds_by_round.items()
    ]
    points += [
        Point(value, "cold", f"{arm.name}, cold round {number}: {notation.seconds(value)}")
        for number, value in arm.cold_seconds.items()
    ]
    spread = typical_spread(arm)
    note = notation.seconds(arm.seconds)
    if spread is not None:
        note += f", spread {notation.percent(spread)}"
    return PointRow(arm.name, tuple(points), middle=arm.seconds, note=note)


def _table(arms: list[ArmFacts], facts: RunFacts) -> Table:
    cold = sorted({n for arm in arms for n in arm.cold_seconds})
    measured = sorted({n for arm in arms for n in arm.seconds_by_round})
    columns = [Column("arm", "arm", numeric=False)]
    columns += [Column(f"cold_{n}", f"cold {n}", unit="s") for n in cold]
    columns += [
        Column(f"round_{n}", f"round {n}{' (drifted)' if n in facts.drift else ''}", unit="s")
        for n in measured
    ]
    rows = []
    for arm in arms:
        cells = [Cell(arm.name, arm.name, header=True)]
        values = [arm.cold_seconds.get(n) for n in cold]
        cells += [Cell(notation.number(v), v, tone="muted") for v in values]
        values = [arm.seconds_by_round.get(n) for n in measured]
        cells += [Cell(notation.number(v), v) for v in values]
        rows.append(tuple(cells))
    return Table(
        "round-seconds",
        "Seconds of every round",
        tuple(columns),
        tuple(rows),
        folded="The same in figures",
    )
