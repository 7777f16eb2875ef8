"""Shows bytes per record: in frames, in the shuffle, and how much of a frame each column takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Figure, Section, Sentence, Table
from serde_lab.report.plots.drawings import Bar, Panel, Segment, StackedBars

_SHOWN = (
    ("frame_bytes", "in frames, as encoded", "bar"),
    ("shuffle_bytes", "in the shuffle, compressed by Spark", "bar-pale"),
)


def byte_section(facts: RunValues) -> Section | None:
    """The section, or None if no arm has byte counts."""
    shown = [
        (metric, heading, role)
        for metric, heading, role in _SHOWN
        if any(arm.per_record(metric) for arm in facts.arms)
    ]
    if not shown:
        return None
    arms = facts.arms_with(*(metric for metric, _, _ in shown))
    figure = Figure(
        name="bytes",
        title="As frames, and as the shuffle carries them",
        description="Bars, one for each arm: " + "; ".join(_described(arm) for arm in arms) + ".",
        drawing=StackedBars(
            axis="bytes per record",
            panels=tuple(
                Panel(heading, tuple(_arm_bar(arm, metric, role) for arm in arms))
                for metric, heading, role in shown
            ),
            tick_label="predicted by the strategy's author"
            if any(arm.expected_bytes is not None for arm in arms)
            else "",
        ),
        table=_table(arms),
    )
    if facts.exchange == "inprocess":
        where = (
            "This run exchanges frames inside one process, so no byte crosses a network or a disk."
        )
    elif facts.local:
        where = (
            "Spark ran in local mode, so these bytes crossed no network. On a cluster, bytes cost"
            " more than here."
        )
    else:
        where = "Bytes of the shuffle as Spark wrote them."
    title = "Bytes per record"
    return Section.of("bytes", title, figure, Sentence(where, "muted"), _column_figure(facts))


def _bar(label: str, value: float | None, role: str, said: str, tick: float | None = None) -> Bar:
    if value is None:
        return Bar(label, (), "", absent=notation.NOTHING)
    text, predicted = (f"{notation.number(one)} B" for one in (value, tick))
    # leaving a column out can make a compressed frame larger
    segment = Segment(role, max(value, 0.0), f"{said}: {text}")
    return Bar(label, (segment,), text, tick, "" if tick is None else predicted)


def _arm_bar(arm: ArmValues, metric: str, role: str) -> Bar:
    tick = arm.expected_bytes if metric == "frame_bytes" else None
    return _bar(arm.name, arm.per_record(metric), role, arm.name, tick)


def _described(arm: ArmValues) -> str:
    found = [
        f"{notation.number(value)} bytes {where}"
        for metric, where in (("frame_bytes", "as frames"), ("shuffle_bytes", "in the shuffle"))
        if (value := arm.per_record(metric)) is not None
    ]
    return f"{arm.name} {notation.listed(found)}"


def _table(arms: Sequence[ArmValues]) -> Table:
    counted = (
        ("frame_bytes", "frame bytes"),
        ("shuffle_bytes", "shuffle bytes"),
        ("shuffle_read_bytes", "shuffle bytes read"),
        ("frames", "frames"),
        ("shuffle_records", "shuffle records"),
        ("hops", "hops"),
        ("files", "files"),
        ("table_bytes", "table bytes"),
        ("rows", "rows"),
    )
    present = [
        (metric, heading)
        for metric, heading in counted
        if any(arm.figure(metric) is not None for arm in arms)
    ]
    columns = (
        Column("arm", "arm", numeric=False),
        *(Column(metric, heading) for metric, heading in present),
    )
    rows = tuple(
        (
            Cell(arm.name, arm.name, header=True),
            *(
                Cell(notation.count(arm.figure(metric)), arm.figure(metric))
                for metric, _ in present
            ),
        )
        for arm in arms
    )
    return Table(
        "byte-counts",
        "Bytes, frames and files of a cell, in full",
        columns,
        rows,
        folded="Bytes, frames and files in full",
    )


_MOST_PANELS = 4
_MOST_BARS = 24


def _column_figure(facts: RunValues) -> Figure | None:
    """What each column takes in frames; None if it was not measured."""
    arms = facts.column_bytes
    if not arms:
        return None
    names = list(next(iter(arms.values())))
    drawn = _different(arms)
    shown = _widest(drawn, names)
    panels = tuple(
        Panel(
            arm, tuple(_bar(name, drawn[arm].get(name), "bar", f"{arm}, {name}") for name in shown)
        )
        for arm in list(drawn)[:_MOST_PANELS]
    )
    rest = "" if len(drawn) <= _MOST_PANELS else f" The table has all {len(arms)} arms."
    if len(shown) < len(names):
        rest += f" The {len(shown)} widest of {len(names)} are drawn; the table has all of them."
    described = "; ".join(_columns_described(arm, taken) for arm, taken in drawn.items())
    return Figure(
        name="column-bytes",
        title="What each column takes in frames",
        description=f"Bars, one for each column of the data: {described}. Measured by leaving the column"
        f" out; the rest of a frame is envelope and framing.{rest}",
        drawing=StackedBars(axis="bytes per record", panels=panels),
        table=_column_table(arms, names),
    )


_ColumnBytes = Mapping[str, Mapping[str, float]]
"""Frame bytes per record of each column, by arm."""


def _different(arms: _ColumnBytes) -> _ColumnBytes:
    """The first of the arms with equal figures: executions of one strategy give the same bytes."""
    first: dict[tuple[float, ...], str] = {}
    for arm, taken in arms.items():
        first.setdefault(tuple(taken.values()), arm)
    return {arm: arms[arm] for arm in first.values()}


def _widest(arms: _ColumnBytes, names: list[str]) -> list[str]:
    """The widest columns, as many as fit, in the schema's order."""
    widths = {name: max(taken.get(name, 0.0) for taken in arms.values()) for name in names}
    kept = set(sorted(names, key=lambda name: -widths[name])[:_MOST_BARS])
    return [name for name in names if name in kept]


def _columns_described(arm: str, taken: Mapping[str, float]) -> str:
    most = max(taken, key=lambda name: taken[name])
    return f"{arm} spends most on {most}, {notation.number(taken[most])} bytes"


def _column_table(arms: _ColumnBytes, names: list[str]) -> Table:
    columns = (
        Column("column", "column", numeric=False),
        *(Column(arm, arm, unit="B") for arm in arms),
    )
    rows = tuple(
        (
            Cell(name, name, header=True),
            *(
                Cell(notation.number(value), value)
                for value in (taken.get(name) for taken in arms.values())
            ),
        )
        for name in names
    )
    caption = "Frame bytes per record, by column"
    return Table("column-byte-table", caption, columns, rows, folded="The same in figures")
