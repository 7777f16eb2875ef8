"""Shows bytes per record: how many a strategy makes of a row, and how many reach the shuffle."""

from __future__ import annotations

from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Figure, Section, Sentence, Table
from serde_lab.report.plots.drawings import Bar, Panel, Segment, StackedBars
from serde_lab.report.run.column_bytes import column_figure
from serde_lab.report.run.facts import ArmFacts, RunFacts

_SHOWN = (
    ("frame_bytes", "in frames, as encoded", "bar"),
    ("shuffle_bytes", "in the shuffle, compressed by Spark", "bar-pale"),
)


def byte_section(facts: RunFacts) -> Section | None:
    """The section, or None if no arm has byte counts."""
    shown = [
        (metric, heading, role)
        for metric, heading, role in _SHOWN
        if any(arm.per_record(metric) for arm in facts.arms)
    ]
    if not shown:
        return None
    arms = [arm for arm in facts.arms if any(arm.per_record(metric) for metric, _, _ in shown)]
    figure = Figure(
        name="bytes",
        title="As frames, and as the shuffle carries them",
        description="Bars, one an arm: " + "; ".join(_described(arm) for arm in arms) + ".",
        drawing=StackedBars(
            axis="bytes a record",
            panels=tuple(
                Panel(heading, tuple(_bar(arm, metric, role) for arm in arms))
                for metric, heading, role in shown
            ),
            tick_label="what the strategy's author expected"
            if any(expected_bytes(arm) is not None for arm in arms)
            else "",
        ),
        table=_table(arms),
    )
    if facts.exchange == "inprocess":
        where = "This run exchanges frames inside one process: no byte crosses a network or a disk."
    elif facts.local:
        where = (
            "Spark ran in local mode: these bytes crossed no network. On a cluster, bytes cost more"
            " than they do here."
        )
    else:
        where = "Bytes of the shuffle as Spark wrote them."
    parts: list[Figure | Sentence] = [figure, Sentence(where, "muted")]
    columns = column_figure(facts)
    if columns is not None:
        parts.append(columns)
    return Section("bytes", "Bytes per record", tuple(parts))


def _bar(arm: ArmFacts, metric: str, role: str) -> Bar:
    value = arm.per_record(metric)
    if value is None:
        return Bar(arm.name, (), "", absent=notation.NOTHING)
    text = f"{notation.number(value)} B"
    tick = expected_bytes(arm) if metric == "frame_bytes" else None
    return Bar(arm.name, (Segment(role, value, f"{arm.name}: {text}"),), text, tick)


def expected_bytes(arm: ArmFacts) -> float | None:
    """Frame bytes per record, as predicted before the measurement."""
    value = (arm.prediction or {}).get("frame_bytes_per_record")
    return float(value) if isinstance(value, int | float) else None


def _described(arm: ArmFacts) -> str:
    found = [
        f"{notation.number(value)} bytes {where}"
        for metric, where in (("frame_bytes", "as frames"), ("shuffle_bytes", "in the shuffle"))
        if (value := arm.per_record(metric)) is not None
    ]
    return f"{arm.name} {notation.listed(found)}"


def _table(arms: list[ArmFacts]) -> Table:
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
