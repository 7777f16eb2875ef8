"""Shows bytes per column: what an arm's frames save if the column is left out."""

from __future__ import annotations

from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Figure, Table
from serde_lab.report.plots.drawings import Bar, Panel, Segment, StackedBars
from serde_lab.report.run.facts import ArmFacts, RunFacts

_MOST_PANELS = 4
_MOST_BARS = 24


def column_figure(facts: RunFacts) -> Figure | None:
    """The figure, or None if it was not measured."""
    arms = [arm for arm in facts.arms if arm.column_bytes and not arm.wrong]
    if not arms:
        return None
    names = list(arms[0].column_bytes or {})
    drawn = _different(arms)
    shown = _widest(drawn, names)
    panels = tuple(
        Panel(arm.name, tuple(_bar(arm, name) for name in shown)) for arm in drawn[:_MOST_PANELS]
    )
    rest = "" if len(drawn) <= _MOST_PANELS else f" The table has all {len(arms)} arms."
    if len(shown) < len(names):
        rest += f" The {len(shown)} widest of {len(names)} are drawn, all stand in the table."
    return Figure(
        name="column-bytes",
        title="What each column takes in frames",
        description="Bars, one a column of the data: " + "; ".join(map(_described, drawn)) + "."
        " Measured by leaving the column out; what is left over is envelope and framing." + rest,
        drawing=StackedBars(axis="bytes a record", panels=panels),
        table=_table(arms, names),
    )


def _different(arms: list[ArmFacts]) -> list[ArmFacts]:
    """The first of the arms with equal figures: executions of one strategy give the same bytes."""
    first: dict[tuple[float, ...], ArmFacts] = {}
    for arm in arms:
        first.setdefault(tuple((arm.column_bytes or {}).values()), arm)
    return list(first.values())


def _widest(arms: list[ArmFacts], names: list[str]) -> list[str]:
    """The widest columns, as many as fit, in the schema's order."""
    widths = {name: max((arm.column_bytes or {}).get(name, 0.0) for arm in arms) for name in names}
    kept = set(sorted(names, key=lambda name: -widths[name])[:_MOST_BARS])
    return [name for name in names if name in kept]


def _bar(arm: ArmFacts, name: str) -> Bar:
    value = (arm.column_bytes or {}).get(name)
    if value is None:
        return Bar(name, (), "", absent=notation.NOTHING)
    text = f"{notation.number(value)} B"
    # leaving a column out can make a compressed frame larger
    return Bar(name, (Segment("bar", max(value, 0.0), f"{arm.name}, {name}: {text}"),), text)


def _described(arm: ArmFacts) -> str:
    taken = arm.column_bytes or {}
    most = max(taken, key=lambda name: taken[name])
    return f"{arm.name} gives most, {notation.number(taken[most])} bytes, to {most}"


def _table(arms: list[ArmFacts], names: list[str]) -> Table:
    columns = (
        Column("column", "column", numeric=False),
        *(Column(arm.name, arm.name, unit="B") for arm in arms),
    )
    rows = tuple(
        (
            Cell(name, name, header=True),
            *(
                Cell(notation.number(value), value)
                for value in ((arm.column_bytes or {}).get(name) for arm in arms)
            ),
        )
        for name in names
    )
    caption = "Bytes of frames a record, by column"
    return Table("column-byte-table", caption, columns, rows, folded="The same in figures")
