"""Shows streams: latency by arm, size and batch, what fills a batch, and when the strategy matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from statistics import median

from serde_lab.analysis.cell_values import Estimate
from serde_lab.analysis.run_values import RunValues
from serde_lab.analysis.streams import (
    BATCHES_FOR_95,
    BATCHES_FOR_99,
    FIXED,
    MATTERS,
    SizeDifference,
    StreamOfArm,
    Streams,
)
from serde_lab.report import notation
from serde_lab.report.page import MISSING, Block, Cell, Column, Figure, Section, Sentence, Table
from serde_lab.report.plots.drawings import Line, Lines, lines_of
from serde_lab.report.plots.palette import line_role

_MOST_POINTS = 50
_TYPES = {"MERGE_ON_READ": "merge-on-read", "COPY_ON_WRITE": "copy-on-write"}
_WHO = (Column("arm", "arm", numeric=False), Column("rows", "rows a batch"))
_PARTS = {
    "spark": "Spark",
    "prepare": "prepare",
    "begin": "begin",
    "plan": "plan",
    "execute": "tasks",
    "commit": "commit",
    "serve": "services",
    "other": "other",
}


def stream_section(facts: RunValues) -> Section | None:
    """The section, or None for a run without a stream."""
    found = facts.derived.streams
    if found is None:
        return None
    services = (
        "Compaction, cleaning and archiving are on for all arms, inside the batch."
        if (facts.content.get("stream") or {}).get("services", True)
        else "Compaction, cleaning and archiving are off for all arms."
    )
    lead = Sentence(
        "Latency is the time of one micro-batch by Spark's own clock, the same for both sides: from looking"
        f" for new files until its offsets are committed. {services} Intervals are by a block bootstrap over"
        f" the batches; the 95th percentile is shown from {BATCHES_FOR_95} batches on, and the 99th from"
        f" {BATCHES_FOR_99}.",
        "muted",
    )
    blocks: list[Block | None] = [lead, _latency_table(found)]
    blocks += [_over_batches(table_type, rows, arms) for table_type, rows, arms in _groups(found)]
    blocks += [
        _fixed_table(found),
        _readers_table(found),
        *_over_sizes(found),
        _parts_table(found),
        _instants_table(found),
    ]
    blocks += [_lag(table_type, rows, arms) for table_type, rows, arms in _groups(found)]
    return Section.of("streams", "Streams", *blocks)


def stream_headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]] | None:
    """From which size of a micro-batch on the strategy matters; None for a run without a stream."""
    found = facts.derived.streams
    if found is None:
        return None
    types = list(dict.fromkeys(one.table_type for one in found.arms))
    sentences = tuple(
        Sentence(
            f"{_TYPES[one.table_type].capitalize()}, {notation.count(one.rows)} rows a batch:"
            f" {notation.named(one.slowest)} takes {_times(one)} as long as"
            f" {notation.named(one.fastest)}{_doubt(one)}."
        )
        for one in found.differences
    )
    first = found.matters_from(types[0])
    if not found.differences:
        return notation.NOTHING, "one strategy alone, or no valid timing", ()
    about = (
        "is the size of a micro-batch from which on the strategy matters: the slowest takes at least"
        f" {MATTERS:g} times as long as the fastest ({_TYPES[types[0]]}, batches of one session)"
    )
    if first is not None:
        return f"{notation.count(first)} rows", about, sentences
    of_type = [one for one in found.differences if one.table_type == types[0]]  # the largest last
    does = [notation.count(one.rows) for one in of_type if one.matters]
    figure = "undecided" if of_type and of_type[-1].undecided else "at no size"
    return figure, f"{about}; at {notation.listed(does)} rows it does" if does else about, sentences


def _doubt(one: SizeDifference) -> str:
    return "" if one.matters else ": undecided" if one.undecided else ", which does not matter"


def _groups(found: Streams) -> list[tuple[str, float, list[StreamOfArm]]]:
    """The arms of each table type and size, merge-on-read first if the scenario has it first."""
    groups: dict[tuple[str, float], list[StreamOfArm]] = {}
    for table_type in dict.fromkeys(one.table_type for one in found.arms):
        for one in sorted(found.arms, key=lambda one: one.rows):
            if one.table_type == table_type:
                groups.setdefault((table_type, one.rows), []).append(one)
    return [(table_type, rows, arms) for (table_type, rows), arms in groups.items()]


def _arms(found: Streams) -> list[StreamOfArm]:
    """All arms at all sizes, in that order."""
    return [one for _, _, arms in _groups(found) for one in arms]


def _times(one: SizeDifference) -> str:
    words = f"{notation.number(one.ratio.value)} times"
    if one.shown is None:
        return words
    low, high = one.shown
    return f"{words} ({low:.2f} to {high:.2f})"


def _latency_table(found: Streams) -> Table:
    columns = (
        Column("arm", "arm", numeric=False),
        Column("table", "table", numeric=False),
        Column("rows", "rows a batch"),
        Column("batches", "batches", about="of one round"),
        Column("median_s", "median", unit="s"),
        Column("p95_s", "95th percentile", unit="s"),
        Column("p99_s", "99th percentile", unit="s"),
        Column("rows_per_s", "rows a second", about="sustained over the whole stream"),
        Column("serde_share", "SerDe", about="share of slot time"),
        Column(
            "growth", "last tenth", about="without compactions, over a tenth from the 10th batch on"
        ),
    )
    rows = tuple(
        (
            Cell(one.name, one.name, header=True),
            Cell(_TYPES[one.table_type], one.table_type),
            Cell(notation.count(one.rows), one.rows),
            Cell(notation.count(one.batches), one.batches),
            _estimate(one.median),
            _estimate(one.p95),
            _estimate(one.p99),
            Cell(notation.short_number(one.rows_per_s), one.rows_per_s),
            Cell(notation.percent(one.serde_share), one.serde_share),
            _estimate(one.growth, notation.ratio),
        )
        for one in _arms(found)
    )
    return Table("stream-latency", "Latency of a micro-batch, by arm and size", columns, rows)


def _estimate(one: Estimate | None, text: Callable[[float], str] = notation.seconds) -> Cell:
    if one is None:
        return MISSING
    note = ""
    if one.low is not None and one.high is not None:
        # each end with its own unit: the value may be in milliseconds, and an end in seconds
        low, high = notation.rounded_apart(one.low, one.high)
        note = f"{text(low)} to {text(high)}"
    return Cell(text(one.value), one.value, note)


def _over_batches(table_type: str, rows: float, arms: Sequence[StreamOfArm]) -> Figure:
    """Latency over the number of the batch, in the first round: lines without compactions, points with."""
    lines: list[Line] = []
    for place, one in enumerate(arms):
        series = list(enumerate(one.latencies[0], start=1))
        compacted = {number + 1 for number in one.compacted}
        plain = _thinned([point for point in series if point[0] not in compacted])
        lines.append(Line(one.name, line_role(place), plain))
        with_service = _spread([point for point in series if point[0] in compacted])
        if with_service:
            lines.append(Line("", line_role(place), with_service, joined=False))
    shown = (
        f"{one.name} from {notation.seconds(one.latencies[0][0])} to {notation.seconds(one.latencies[0][-1])}"
        for one in arms
    )
    return Figure(
        name=f"stream-batches-{table_type.lower()}-{rows:g}",
        title=f"Latency batch by batch: {_TYPES[table_type]}, {notation.count(rows)} rows a batch",
        description="Lines: seconds of each batch without a compaction, medians of neighbouring batches where"
        " there are many. Diamonds: batches in which a compaction ran. " + "; ".join(shown),
        drawing=Lines(x_axis="batch", y_axis="seconds", lines=tuple(lines), logarithmic=True),
    )


def _thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most 50 points: medians of neighbours."""
    size = -(-len(points) // _MOST_POINTS) or 1
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return tuple((median(x for x, _ in one), median(y for _, y in one)) for one in groups)


def _spread(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most 50 of the points."""
    return tuple(points[:: -(-len(points) // _MOST_POINTS) or 1])


def _over_sizes(found: Streams) -> tuple[Figure | None, ...]:
    medians = "Latency by the size of a micro-batch", "median seconds"
    shares = "SerDe's share of slot time by the size of a micro-batch", "share of slot time, %"
    return (
        _by_size(found, "stream-sizes", *medians, lambda one: one.median.value, logarithmic=True),
        _by_size(
            found,
            "stream-serde",
            *shares,
            lambda one: None if one.serde_share is None else 100 * one.serde_share,
        ),
    )


def _by_size(
    found: Streams,
    name: str,
    title: str,
    axis: str,
    value: Callable[[StreamOfArm], float | None],
    logarithmic: bool = False,
) -> Figure | None:
    """One line for each arm over the sizes; None for a single size."""
    by_arm: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(found.arms, key=lambda one: one.rows):
        figure = value(one)
        if figure is not None:
            by_arm.setdefault(one.name, []).append((one.rows, figure))
    if len({one.rows for one in found.arms}) < 2 or not by_arm:
        return None
    described = "; ".join(
        f"{arm} from {notation.number(points[0][1])} to {notation.number(points[-1][1])}"
        for arm, points in by_arm.items()
    )
    return Figure(
        name=name,
        title=title,
        description=f"Lines over the rows of a micro-batch: {described}.",
        drawing=Lines(
            x_axis="rows a batch",
            y_axis=axis,
            lines=lines_of(by_arm),
            logarithmic=logarithmic,
            x_logarithmic=True,
        ),
    )


def _fixed_table(found: Streams) -> Table | None:
    known = [(one, one.fixed) for one in _arms(found) if one.fixed]
    if not known:
        return None
    columns = (
        *_WHO,
        Column("commit_s", "commit", about="inside the sink, without services", unit="s"),
        Column(
            "empty_job_s",
            "empty job",
            about="as many tasks and shuffles in the same session, and no work",
            unit="s",
        ),
        Column("over_empty_s", "commit minus empty job", unit="s"),
        Column(
            "late",
            "late / early",
            about="median of the last 20 batches over that of the 20 from the 10th on, with services",
        ),
        Column(
            "peer",
            "peer",
            numeric=False,
            about="the fastest, by medians / by means",
        ),
        Column("peer_ratio", "peer / arm", about="medians of whole batches"),
        Column("whole_ratio", "peer / arm by means", about="so with every service of the stream"),
    )
    peers = {one.arm: one for one in found.beside_peers}
    rows = tuple(
        (
            *_who(one),
            _estimate(fixed.commit_s),
            _estimate(fixed.empty_job_s),
            _estimate(fixed.over_empty_s),
            _estimate(fixed.late, notation.ratio),
            Cell(" / ".join(dict.fromkeys((peer.peer, peer.peer_of_whole)))) if peer else MISSING,
            _estimate(peer.ratio if peer else None, notation.ratio),
            _estimate(peer.whole if peer else None, notation.ratio),
        )
        for one, fixed in known
        for peer in (peers.get(one.arm),)
    )
    return Table(
        "stream-fixed", "What a commit costs beside an empty job of the same shape", columns, rows
    )


def _readers_table(found: Streams) -> Table | None:
    known = [(one, one.beside_readers) for one in _arms(found) if one.beside_readers]
    if not known:
        return None
    readers = sorted({name for _, read in known for name in read.reads})
    columns = (
        *_WHO,
        Column("alone_s", "alone", about="median without a reader, from batch 10 on", unit="s"),
        Column("beside_s", "beside readers", about="with one at least half the time", unit="s"),
        Column("ratio", "beside / alone"),
        *(Column(f"{name}_s", f"read by {name}", unit="s") for name in readers),
    )
    rows = tuple(
        (
            *_who(one),
            _estimate(read.alone),
            _estimate(read.beside),
            _estimate(read.ratio, notation.ratio),
            *(_estimate(read.reads.get(name)) for name in readers),
        )
        for one, read in known
    )
    return Table("stream-readers", "Batches with readers of the table beside them", columns, rows)


def _who(one: StreamOfArm) -> tuple[Cell, Cell]:
    return Cell(one.name, one.name, header=True), Cell(notation.count(one.rows), one.rows)


def _parts_table(found: Streams) -> Table | None:
    own = [one for one in _arms(found) if one.parts]
    if not own:
        return None
    columns = (
        *_WHO,
        *(Column(f"{part}_ms", words, unit="ms") for part, words in _PARTS.items()),
        Column("fixed_share", "outside tasks", about=f"share of a batch: {', '.join(FIXED)}"),
    )
    rows = tuple(
        (
            *_who(one),
            *(_ms(one.parts, part) for part in _PARTS),
            Cell(notation.percent(one.fixed_share), one.fixed_share),
        )
        for one in own
    )
    return Table(
        "stream-parts",
        "What fills a micro-batch of the lab's writer: means, in milliseconds",
        columns,
        rows,
    )


def _ms(seconds: Mapping[str, float], name: str) -> Cell:
    value = 1e3 * seconds[name]
    return Cell(notation.number(value), value)


def _instants_table(found: Streams) -> Table | None:
    known = [one for one in _arms(found) if one.instants]
    if not known:
        return None
    columns = (
        *_WHO,
        Column("before_ms", "before", about="until the instant is requested", unit="ms"),
        Column("within_ms", "within the instant", unit="ms"),
        Column("after_ms", "after", about="after the instant is completed", unit="ms"),
        Column("services_ms", "of it services", about="compactions and cleans", unit="ms"),
    )
    rows = tuple(
        (
            *_who(one),
            *(_ms(one.instants, f"{part}_s") for part in ("before", "within", "after", "services")),
        )
        for one in known
    )
    return Table(
        "stream-instants",
        "Where a micro-batch's time lies by its instant, on both sides: means, in milliseconds",
        columns,
        rows,
    )


def _lag(table_type: str, rows: float, arms: Sequence[StreamOfArm]) -> Figure:
    """The files that are still to be written over time: all are there when the query starts."""
    left = {}
    for one in arms:
        ends = [0.0, *accumulate(one.latencies[0])]
        waiting = [(end, float(len(ends) - 1 - done)) for done, end in enumerate(ends)]
        left[one.name] = (*_spread(waiting[:-1]), waiting[-1])
    done = "; ".join(f"{one.name} after {notation.seconds(sum(one.latencies[0]))}" for one in arms)
    return Figure(
        name=f"stream-lag-{table_type.lower()}-{rows:g}",
        title=f"Lag: {_TYPES[table_type]}, {notation.count(rows)} rows a batch",
        description=f"Lines: micro-batches not yet committed, over seconds. The last is done: {done}.",
        drawing=Lines(x_axis="seconds", y_axis="batches waiting", lines=lines_of(left)),
    )
