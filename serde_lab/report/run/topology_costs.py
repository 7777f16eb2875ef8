"""Compares arms with different topologies: the cost of each, and what the typed row saves in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from serde_lab.analysis.ratios import Ratio, outward, paired_ratio, ratio_of, signed
from serde_lab.analysis.run_values import METADATA, ArmValues, RunValues
from serde_lab.measure.phases import SERDE_WORK
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Card,
    Cards,
    Cell,
    Column,
    Figure,
    Section,
    Sentence,
    Table,
    text_columns,
)
from serde_lab.report.plots.drawings import Step, Steps

_STEPS = ("legacy", "step1", "step2", "step3", "compatible")
_BEFORE, _AFTER = "avro", "internal_row"
_CLAIM = (
    "RFC-84 says that the typed row saves up to 25 % of a write on Flink. It does not name the"
    " topology."
)
_WHAT_HOPS_COST = (
    "After a lookup, the file group is written into the record before its next hop. A strategy that holds"
    " bytes, such as the typed row, writes the bytes for that hop in this step, and its encode only copies"
    " them. Comparisons of topologies therefore add this step to SerDe."
)


def topologies_section(facts: RunValues) -> Section | None:
    """The section; if all arms share a topology, it only draws that topology."""
    named = facts.by_topology
    drawn = _drawn(facts)
    if len({name for name, _ in named}) < 2:
        return Section("topologies", "The path of a record", (drawn,)) if drawn.cards else None
    of_one_hop = facts.of_one_hop
    ratios, gains = _ratios(named, of_one_hop), _gains(named)
    return Section.of(
        "topologies",
        "What each topology costs",
        _table(named, of_one_hop),
        ratios,
        ratios and Sentence(_WHAT_HOPS_COST, "muted"),
        gains,
        gains and Sentence(_CLAIM, "muted"),
        _steps(named),
        drawn if drawn.cards else None,
    )


def _drawn(facts: RunValues) -> Cards:
    """Stages and hops of each topology; empty for older runs, which did not record them."""
    found = facts.run.header.settings.get("topologies") or {}
    return Cards(
        tuple(
            Card(name, tuple((label or "hop", text) for label, text in one["steps"]), one["about"])
            for name, one in found.items()
        )
    )


def _table(
    named: Sequence[tuple[str, ArmValues]], of_one_hop: Mapping[str, Mapping[int, float]]
) -> Table:
    columns = (
        *text_columns("topology", "arm"),
        Column("hops", "hops"),
        Column("shuffle_bytes", "shuffle"),
        Column("serde_us", "SerDe CPU", unit="µs per record", about=SERDE_WORK),
        Column(
            "metadata_us",
            "metadata CPU",
            unit="µs per record",
            about="writing the file group into records",
        ),
        Column(
            "of_bucket",
            "of one hop",
            about="SerDe and metadata CPU, over that of the strategy's bucket index in the same round",
        ),
        Column("index_records", "index records"),
        Column("index_us", "index CPU", unit="µs per record"),
        Column("mini_batches", "mini-batches", about="of step3: each rewrites a base file"),
        Column("seconds", "seconds"),
    )
    return Table(
        "topologies",
        "Every arm with its topology: medians over measured rounds",
        columns,
        tuple(_row(name, arm, _over_rounds(of_one_hop.get(arm.name, {}))) for name, arm in named),
    )


def _ratios(
    named: Sequence[tuple[str, ArmValues]], of_one_hop: Mapping[str, Mapping[int, float]]
) -> Table | None:
    """The cost relative to one hop, for all strategies; None if none of them uses the bucket index."""
    strategies = list(dict.fromkeys(arm.strategy for name, arm in named if name == "bucket"))
    if not strategies:
        return None
    found = {(name, arm.strategy): of_one_hop.get(arm.name, {}) for name, arm in named}
    columns = (
        Column("topology", "topology", numeric=False),
        Column("hops", "hops"),
        *(Column(strategy, strategy) for strategy in strategies),
        Column("mean", "geometric mean"),
    )
    rows = []
    for topology, hops in {name: arm.figure("hops") for name, arm in named}.items():
        logs = [found.get((topology, strategy), {}) for strategy in strategies]
        rows.append(
            (
                Cell(topology, topology, header=True),
                Cell(notation.count(hops), hops),
                *(_times(_over_rounds(one)) for one in (*logs, _mean(logs))),
            )
        )
    caption = (
        "CPU per record for SerDe and metadata, as a multiple of the same strategy's CPU for one hop in the"
        " same round: geometric means with 95 % intervals"
    )
    return Table("topology-ratios", caption, columns, tuple(rows))


def _mean(logs: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean over strategies, for each round that all of them have."""
    common = set.intersection(*(set(one) for one in logs))
    return {number: fsum(one[number] for one in logs) / len(logs) for number in sorted(common)}


def _over_rounds(logs: Mapping[int, float]) -> Ratio | None:
    return ratio_of(list(logs.values())) if logs else None


def _times(ratio: Ratio | None) -> Cell:
    if ratio is None:
        return MISSING
    return Cell(f"{ratio.text}×", ratio.value, ratio.range)


def _row(topology: str, arm: ArmValues, ratio: Ratio | None) -> tuple[Cell, ...]:
    serde, hops, shuffled = (
        arm.per_record("serde_cpu_s"),
        arm.figure("hops"),
        arm.figure("shuffle_bytes"),
    )
    sent, index_cpu = arm.figure("index_records"), arm.figure("index_cpu_s")
    batches = arm.figure("mini_batches")
    each = 1e6 * index_cpu / sent if sent and index_cpu is not None else None
    micro = None if serde is None else 1e6 * serde
    metadata = arm.verb_us(METADATA) or None
    return (
        Cell(topology, topology),
        Cell(arm.name, arm.name, header=True),
        Cell(notation.count(hops), hops),
        Cell(notation.size(shuffled), shuffled),
        Cell(notation.number(micro), micro),
        Cell(notation.number(metadata), metadata),
        _times(ratio),
        Cell(notation.count(sent or None), sent),
        Cell(notation.number(each), each),
        Cell(notation.count(batches), batches),
        Cell(
            arm.absence if arm.seconds is None else notation.seconds(arm.seconds),
            arm.seconds,
        ),
    )


def _gains(named: Sequence[tuple[str, ArmValues]]) -> Table | None:
    """What the second strategy saves, for each topology that both strategies have."""
    arms = {(name, arm.strategy): arm for name, arm in named}
    rows = []
    for topology in dict.fromkeys(name for name, _ in named):
        before, after = arms.get((topology, _BEFORE)), arms.get((topology, _AFTER))
        if before is None or after is None:
            continue
        ratio = paired_ratio(after.seconds_by_round, before.seconds_by_round)
        if ratio is not None:
            rows.append(
                (
                    Cell(topology, topology, header=True),
                    Cell(notation.seconds(before.seconds), before.seconds),
                    Cell(notation.seconds(after.seconds), after.seconds),
                    _saved(ratio),
                )
            )
    if not rows:
        return None
    columns = (
        Column("topology", "topology", numeric=False),
        Column("before", _BEFORE, unit="s"),
        Column("after", _AFTER, unit="s"),
        Column("saved", "saved", about="with 95 % interval"),
    )
    return Table(
        "topology-gains", "Share of the write time that the typed row saves", columns, tuple(rows)
    )


def _saved(ratio: Ratio) -> Cell:
    """What an arm saves that takes `ratio` times as long; a tone only where the interval decides."""
    saved = 1 - ratio.value
    shown = f"{_hundredths(saved)} %"
    if ratio.low is None or ratio.high is None:
        return Cell(shown, saved, ratio.doubt)
    least, most = outward(1 - ratio.high, 1 - ratio.low, 2)
    interval = f"{_hundredths(least)} to {_hundredths(most)} %"
    if not ratio.decided:
        return Cell(shown, saved, ", ".join(part for part in (interval, ratio.doubt) if part))
    return Cell(shown, saved, interval, tone="good" if saved > 0 else "warn")


def _hundredths(share: float) -> str:
    return signed(100 * share, "z.0f")


def _steps(named: Sequence[tuple[str, ArmValues]]) -> Figure | None:
    """RFC-24's steps in order: the typed row's arm of each topology, or else the topology's first arm."""
    chosen: dict[str, ArmValues] = {}
    for name, arm in named:
        if name not in chosen or (chosen[name].strategy != _AFTER and arm.strategy == _AFTER):
            chosen[name] = arm
    there = [(name, chosen[name]) for name in _STEPS if name in chosen]
    if len(there) < 2:
        return None
    steps = []
    earlier: ArmValues | None = None
    for name, arm in there:
        ratio = earlier and paired_ratio(arm.seconds_by_round, earlier.seconds_by_round)
        change = f"{ratio.text} times the time before" if ratio else ""
        if ratio and ratio.range:
            change += f" ({ratio.range})"
        shown = arm.absence if arm.seconds is None else notation.seconds(arm.seconds)
        steps.append(Step(f"{name} · {arm.name}", arm.seconds, shown, change, sound=True))
        earlier = arm if arm.seconds is not None else earlier
    return Figure(
        name="rfc24",
        title="RFC-24, step by step",
        description="Bars in the order of the RFC's steps: "
        + "; ".join(f"{step.label} {step.value_text}" for step in steps)
        + ".",
        drawing=Steps(axis="seconds end to end, median of rounds", steps=tuple(steps)),
    )
