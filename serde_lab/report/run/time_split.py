"""Shows where the time goes: phases by stage, with idle and unattributed time; SerDe and merging per record.

Seconds are slot seconds divided by the number of slots, so that an arm's parts add up to its wall time in
each round. Parts of a whole are means over rounds: these add up, and medians do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from serde_lab.analysis.ratios import paired_ratio
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.measure import phases
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Cell,
    Column,
    Figure,
    Section,
    Sentence,
    Table,
    Tone,
    ratio_cell,
)
from serde_lab.report.plots import palette
from serde_lab.report.plots.drawings import Bar, Key, Panel, StackedBars, stacked

_GROUP_ROLE = {
    "serde": "other",
    "pipeline": "other",
    "wait": "input_wait",
    "worker": "jvm_before",
    "idle": "idle-driver",
    "lost": "lost_attempts",
    "unattributed": "unattributed",
    "jvm": "jvm",
}


def time_section(facts: RunValues) -> Section | None:
    """The section, or None if no arm has phases."""
    arms = [arm for arm in facts.timed if arm.phases]
    if not arms:
        return None
    spark = _spark_details(arms)
    blocks = (_split(arms), *_serde(arms), *([] if spark is None else [spark]))
    return Section("time", "Where the time goes", blocks)


def _split(arms: Sequence[ArmValues]) -> Figure:
    names = sorted({name for arm in arms for name in arm.phases}, key=phases.order)
    sides = list(dict.fromkeys(_side(name) for name in names))
    panels = tuple(
        Panel(
            side,
            tuple(_bar(arm, [name for name in names if _side(name) == side]) for arm in arms),
        )
        for side in sides
    )
    return Figure(
        name="phases",
        title="Wall time by phase",
        description=_described(arms, sides),
        drawing=StackedBars(
            axis="mean seconds of rounds: slot time over the number of slots",
            panels=panels,
            legend=_legend(names),
        ),
        table=_phase_table(arms, names),
    )


def _side(name: str) -> str:
    """The panel of a phase. All stages of a peer, which have names of their own, share one.

    Idle slots, unattributed time and lost attempts belong to no stage.
    """
    stage = phases.split(name)[0]
    if "/" in stage:
        return "stages of Apache Hudi"
    return f"{stage} side" if stage else "other time"


_FAMILIES = (
    ("SerDe", ("serde",)),
    ("table", ("pipeline",)),
    ("waiting", ("wait", "worker", "jvm", "lost")),
    ("no task", ("idle",)),
    ("unattributed", ("unattributed",)),
)


def _legend(names: Sequence[str]) -> tuple[Key, ...]:
    """Colours by family, each family in the order of its work."""
    keys = []
    for family, groups in _FAMILIES:
        members = [name for name in names if phases.group(name) in groups]
        members.sort(key=lambda name: phases.order(phases.split(name)[1]))
        items = dict.fromkeys((role(name), legend_label(name)) for name in members)
        if items:
            keys.append(Key(family, tuple(items)))
    return tuple(keys)


def role(name: str) -> str:
    """The palette role of a phase."""
    verb = phases.split(name)[1]
    for candidate in (verb.replace(".", "-"), verb):
        if candidate in palette.PALETTE:
            return candidate
    return _GROUP_ROLE[phases.group(name)]


def legend_label(name: str) -> str:
    """A phase's label in the colour key; verbs of the same name share a colour."""
    stage, verb = phases.split(name)
    known = verb.replace(".", "-") in palette.PALETTE
    short = verb.removeprefix("idle.")
    return short if known or not stage else f"other: {verb}"


def _bar(arm: ArmValues, names: Sequence[str]) -> Bar:
    parts = [(role(name), name, _seconds(arm, name)) for name in names]
    return stacked(arm.name, parts, notation.seconds)


def _seconds(arm: ArmValues, name: str) -> float:
    times = arm.phases.get(name)
    return 0.0 if times is None else max(0.0, times["wall_s"]) / arm.slots


def _described(arms: Sequence[ArmValues], sides: Sequence[str]) -> str:
    parts = []
    for arm in arms:
        seconds = [
            f"{side} {notation.seconds(fsum(_seconds(arm, n) for n in arm.phases if _side(n) == side))}"
            for side in sides
        ]
        parts.append(f"{arm.name}: {notation.listed(seconds)}")
    return f"Stacked bars, one for each arm and side. {'. '.join(parts)}."


def _phase_table(arms: Sequence[ArmValues], names: Sequence[str]) -> Table:
    columns = (
        Column("phase", "phase", numeric=False),
        *(Column(f"{arm.name}", arm.name, unit="s") for arm in arms),
    )
    rows = tuple(
        (
            Cell(name, name, header=True, tone="" if phases.is_serde(name) else "muted"),
            *(_times(arm, name) for arm in arms),
        )
        for name in names
    )
    return Table(
        "phase-seconds",
        "Slot seconds of each phase, wall time with CPU time below it; means over rounds, which add up",
        columns,
        rows,
        folded="Every phase in slot seconds, wall and CPU",
    )


def _times(arm: ArmValues, name: str) -> Cell:
    times = arm.phases.get(name)
    if times is None:
        return MISSING
    return Cell(
        notation.number(times["wall_s"]), times["wall_s"], f"CPU {notation.number(times['cpu_s'])}"
    )


def _spark_details(arms: Sequence[ArmValues]) -> Table | None:
    """Details of the waits from Spark's event log; they are part of the waits, never added to a sum."""
    names = sorted({name for arm in arms for name in arm.summary["spark"] or {}})
    if not names:
        return None
    columns = (
        Column("figure", "figure", numeric=False),
        *(Column(arm.name, arm.name) for arm in arms),
    )
    rows = tuple(
        (
            Cell(name, name, header=True),
            *(
                Cell(notation.of_metric(name, value), value)
                for value in ((arm.summary["spark"] or {}).get(name) for arm in arms)
            ),
        )
        for name in names
    )
    return Table(
        "spark",
        "Figures from Spark's event log, which explain the waits and are never added to phases",
        columns,
        rows,
        folded="Spark's event log on the waits",
    )


def _serde(arms: Sequence[ArmValues]) -> list[Figure | Sentence]:
    """SerDe CPU per record by verb, with the author's prediction if there is one."""
    shown = [arm for arm in arms if arm.rows and any(phases.is_serde(n) for n in arm.phases)]
    if not shown:
        return []
    verbs = [
        verb
        for verb in (phase.name for phase in phases.VERBS)
        if verb in phases.SERDE_VERBS and any(arm.mean_verb_us(verb) > 0 for arm in shown)
    ]
    bars = tuple(_serde_bar(arm, verbs) for arm in shown)
    predicted = any(bar.tick is not None for bar in bars)
    columns = (
        Column("arm", "arm", numeric=False),
        *(Column(verb, verb, unit="µs") for verb in verbs),
        Column("total", "all verbs", unit="µs"),
        *((Column("expected", "expected", unit="µs"),) if predicted else ()),
    )
    figure = Figure(
        name="serde",
        title="SerDe CPU per record, by verb",
        description="Stacked bars, one for each arm: "
        + "; ".join(f"{bar.label} {bar.total}" for bar in bars)
        + ". Only the sum is compared between strategies, since work can move from one verb to the next.",
        drawing=StackedBars(
            axis="mean µs of CPU per record of rounds, summed over all stages",
            panels=(Panel("", bars),),
            legend=(Key("", tuple((verb, verb) for verb in verbs)),),
            tick_label="predicted by the strategy's author" if predicted else "",
        ),
        table=Table(
            "serde-microseconds",
            "Microseconds of CPU per record for each SerDe verb: means over rounds, which add up",
            columns,
            tuple(_serde_row(arm, verbs, predicted) for arm in shown),
            folded="The same in figures",
        ),
    )
    return [
        figure,
        Sentence(
            "Headlines and gates use the sum. Do not compare single verbs between strategies, since a"
            " strategy can move its work from one verb to the next.",
            "muted",
        ),
    ]


def _serde_bar(arm: ArmValues, verbs: Sequence[str]) -> Bar:
    parts = [(verb, verb, arm.mean_verb_us(verb)) for verb in verbs]
    return stacked(arm.name, parts, lambda us: f"{notation.number(us)} µs", arm.expected_us)


def _serde_row(arm: ArmValues, verbs: Sequence[str], predicted: bool) -> tuple[Cell, ...]:
    values = [arm.mean_verb_us(verb) for verb in verbs]
    values.append(fsum(values))
    cells = [Cell(arm.name, arm.name, header=True)]
    cells += [Cell(notation.number(value), value) for value in values]
    if predicted:
        cells.append(Cell(notation.number(arm.expected_us), arm.expected_us))
    return tuple(cells)


_PHASES = ("precombine", "merge", "payload")


def merging_section(facts: RunValues) -> Section | None:
    """The section; None if no arm has its own way of merging."""
    arms = [arm for arm in facts.strategy_arms if arm.rows and arm.phases]
    if not any(arm.changes == "merging" for arm in arms):
        return None
    columns = (
        Column("arm", "arm", numeric=False),
        *(Column(name, name, unit="µs", about=_MEANING[name]) for name in _PHASES),
        Column("total", "together", unit="µs"),
    )
    table = Table(
        "merge-microseconds",
        "Microseconds of CPU per record of the batch, before the record is written",
        columns,
        tuple(_row(arm) for arm in arms),
    )
    lead = (
        "The time to read stored records is not included; it is the same for all arms. The phase payload is"
        " our bridge to Hudi's payload classes, in Python, row by row: not what they cost Apache Hudi."
    )
    return Section("merging", "What merging costs", (table, Sentence(lead, "muted")))


_MEANING = {phase.name: phase.meaning for phase in phases.VERBS if phase.name in _PHASES}


def _row(arm: ArmValues) -> tuple[Cell, ...]:
    values = [*(arm.verb_us(name) for name in _PHASES), arm.verb_us(*_PHASES)]
    return (
        Cell(arm.name, arm.name, note=arm.note, header=True),
        *(Cell(notation.number(value), value) for value in values),
    )


_FAR = 1.25
"""A prediction that is off by more than this factor, in either direction, counts as missed."""


def prediction_section(facts: RunValues) -> Section | None:
    """The section, or None without predictions."""
    arms = facts.predicted
    if not arms:
        return None
    columns = (
        Column("arm", "arm", numeric=False),
        Column("expected_us", "SerDe CPU predicted", unit="µs per record"),
        Column("measured_us", "measured", unit="µs per record"),
        Column(
            "us_ratio", "measured over predicted", about="geometric mean of rounds, 95 % interval"
        ),
        Column("expected_bytes", "frame bytes predicted", unit="B per record"),
        Column("measured_bytes", "measured", unit="B per record"),
        Column("bytes_ratio", "measured over predicted"),
    )
    table = Table(
        "prediction",
        "What each arm's author predicted before the measurement, and what was measured",
        columns,
        tuple(_prediction_row(arm) for arm in arms),
    )
    return Section("prediction", "Prediction and measurement", (table,))


def _prediction_row(arm: ArmValues) -> tuple[Cell, ...]:
    return (
        Cell(arm.name, arm.name, header=True),
        *_pair(arm, "serde_cpu_s", arm.expected_us, 1e6),
        *_pair(arm, "frame_bytes", arm.expected_bytes),
    )


def _pair(
    arm: ArmValues, metric: str, expected: float | None, scale: float = 1.0
) -> tuple[Cell, Cell, Cell]:
    """A metric per record, times `scale`: what was expected, what was measured, and their ratio."""
    measured, rows = arm.per_record(metric), arm.rows_of(metric)
    values = {n: scale * value / rows for n, value in arm.by_round(metric).items()} if rows else {}
    ratio = paired_ratio(values, dict.fromkeys(values, expected)) if expected else None
    tone: Tone = ""
    if ratio is not None:
        tone = "warn" if max(ratio.value, 1 / ratio.value) > _FAR else "good"
    return (
        Cell(notation.number(expected), expected),
        MISSING if measured is None else Cell(notation.number(scale * measured), scale * measured),
        replace(ratio_cell(ratio, with_doubt=False), tone=tone),
    )
