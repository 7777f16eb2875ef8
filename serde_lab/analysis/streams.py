"""Analyses streams: latency of micro-batches, its parts, and the size from which on strategies differ.

Latency is a batch's seconds. Its median and percentiles have 95 % intervals by a circular block bootstrap
within each round's stream, because neighbouring batches are alike and services come at intervals: a block is
the cube root of the number of batches, and at least as long as a compaction's interval. Streams of fewer than
four such blocks are resampled batch by batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from serde_lab.analysis.cell_values import (
    FEWEST_VALUES,
    CellValues,
    Estimate,
    Rounds,
    compared,
    percentile_of,
    ratio_of_means,
    ratio_of_medians,
)
from serde_lab.analysis.ratios import outward
from serde_lab.measure.metrics import DRIVER_PREFIX

MATTERS = 1.1
"""Strategies differ at a size if the slowest takes this times as long as the fastest, or more."""
BATCHES_FOR_95, BATCHES_FOR_99 = 60, 300
"""The fewest batches for a percentile: three lie beyond it."""
_EARLY_FROM, _COMPARED = 10, 20
"""Late batches are compared with the 20 from the 10th on."""
_EMPTY_JOB, _SINK, _SERVICES = (
    f"{DRIVER_PREFIX}{part}_s" for part in ("empty_job", "add_batch", "serve")
)
_READS, _READ_BY = f"{DRIVER_PREFIX}reads_s", f"{DRIVER_PREFIX}read_by_"
_OWN_PHASES = ("prepare", "begin", "plan", "execute", "commit", "serve")
FIXED = ("spark", "prepare", "begin", "plan", "commit")
"""The parts of a batch that do not depend on its rows: Spark's bookkeeping and the driver's own work."""


@dataclass(frozen=True, slots=True)
class FixedCost:
    """A commit beside an empty job of its shape in the same session, early and late in its stream.

    `commit_s`: the median seconds of a batch inside the sink, without services; `empty_job_s`: those of
    the empty job; `over_empty_s`: the difference. `late`: the median of the last 20 batches, services
    included, over that of the 20 from the 10th on; None for a stream that is too short.
    """

    commit_s: Estimate
    empty_job_s: Estimate
    over_empty_s: Estimate
    late: Estimate | None


@dataclass(frozen=True, slots=True)
class BesideReaders:
    """Median seconds of the batches that had a reader beside them for half of their time or more, of those
    that had none, both from the 10th batch on, and the ratio. `reads`: median seconds of a read, by reader,
    as means of each batch.
    """

    beside: Estimate
    alone: Estimate
    ratio: Estimate
    reads: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class StreamOfArm:
    """An arm's streams at one size of its micro-batches.

    `name` is the arm without the size. `latencies`: the seconds of each batch, by round. `compacted`: the
    batches in which a compaction ran, from 0, in the first round. `parts`: mean seconds of what fills a
    batch, which is known of the lab's own writes only. `instants`: mean seconds before a batch's instant is
    requested, in it, and after it is completed; `services_s` is the time of services within the last.
    `growth`: the median of the last tenth of the batches without a compaction over that of as many from the
    10th on; None for a stream that is too short.
    `fixed`: what a commit costs whatever its rows; None for a peer, and for runs that had no empty jobs.
    `beside_readers`: batches with readers of the table beside them; None where nobody read.
    """

    arm: str
    name: str
    kind: str
    table_type: str
    rows: float
    batches: int
    median: Estimate
    p95: Estimate | None
    p99: Estimate | None
    rows_per_s: float
    serde_share: float | None
    parts: Mapping[str, float]
    instants: Mapping[str, float]
    growth: Estimate | None
    fixed: FixedCost | None
    beside_readers: BesideReaders | None
    latencies: tuple[tuple[float, ...], ...]
    compacted: tuple[int, ...]

    @property
    def fixed_share(self) -> float | None:
        """The share of `FIXED` in a batch's seconds; None for a peer."""
        if not self.parts:
            return None
        return math.fsum(self.parts[name] for name in FIXED) / math.fsum(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fixed_share": self.fixed_share}


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """The slowest strategy against the fastest, by medians of batches, at one size of a table type.

    The interval of `ratio` allows for the choice among all pairs.
    """

    table_type: str
    rows: float
    slowest: str
    fastest: str
    ratio: Estimate

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval's ends with two decimals, rounded away from each other; they decide."""
        low, high = self.ratio.low, self.ratio.high
        return None if low is None or high is None else outward(low, high, 2)

    @property
    def matters(self) -> bool:
        """Whether the whole interval is at `MATTERS` or above."""
        return self.shown is not None and self.shown[0] >= MATTERS

    @property
    def undecided(self) -> bool:
        """Whether the interval holds `MATTERS`, or is missing."""
        return not self.matters and (self.shown is None or self.shown[1] >= MATTERS)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "matters": self.matters, "undecided": self.undecided}


@dataclass(frozen=True, slots=True)
class BesidePeer:
    """An arm beside a table type's fastest peers at the same size.

    `ratio` is that of median latencies, over the fastest `peer` by these, and `whole` that of means, in which
    every service counts, over the fastest by means, `peer_of_whole`.
    """

    arm: str
    peer: str
    ratio: Estimate
    peer_of_whole: str
    whole: Estimate


@dataclass(frozen=True, slots=True)
class Streams:
    """What a run of streams found: its arms at each size, how far strategies differ there, and each
    strategy beside the fastest peer.
    """

    arms: tuple[StreamOfArm, ...]
    differences: tuple[SizeDifference, ...]
    beside_peers: tuple[BesidePeer, ...] = ()

    def matters_from(self, table_type: str) -> float | None:
        """The smallest size from which on the strategy matters at every size; None if there is none."""
        found = None
        of_type = [one for one in self.differences if one.table_type == table_type]
        for one in sorted(of_type, key=lambda one: one.rows, reverse=True):
            if not one.matters:
                break
            found = one.rows
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "arms": [one.to_json() for one in self.arms],
            "differences": [one.to_json() for one in self.differences],
            "beside_peers": [asdict(one) for one in self.beside_peers],
        }


def streams(
    arms: Sequence[Mapping[str, Any]], content: Mapping[str, Any], timed: Mapping[str, Rounds]
) -> Streams | None:
    """The streams of a run; None if the scenario has none, or if nothing is timed."""
    section = content.get("stream")
    if not section:
        return None
    period = int(section.get("compact_after", 1)) if section.get("services", True) else 1
    whole = str((content.get("table") or {}).get("type", "COPY_ON_WRITE"))
    found = tuple(
        _of_arm(arm, str((arm.get("table") or {}).get("type", whole)), rounds, period)
        for arm in arms
        if (rounds := list(timed[arm["arm"]].values()))
    )
    if not found:
        return None
    return Streams(found, tuple(_differences(found, period)), tuple(_beside_peers(found, period)))


def _of_arm(
    arm: Mapping[str, Any], table_type: str, rounds: Sequence[CellValues], period: int
) -> StreamOfArm:
    latencies = tuple(tuple(one.metrics["seconds"] for one in r.commits) for r in rounds)
    batches = [commit for one in rounds for commit in one.commits]
    compactions = f"{DRIVER_PREFIX}compactions"
    compacted = tuple(
        place for place, one in enumerate(rounds[0].commits) if one.metrics.get(compactions)
    )
    seconds = math.fsum(value for one in latencies for value in one)
    p95, p99 = (
        percentile_of(latencies, period, q) if len(batches) >= fewest else None
        for q, fewest in ((95, BATCHES_FOR_95), (99, BATCHES_FOR_99))
    )
    plain = [
        [c.metrics["seconds"] for c in one.commits if not c.metrics.get(compactions)]
        for one in rounds
    ]
    return StreamOfArm(
        arm=arm["arm"],
        name=(arm.get("swept") or {}).get("arm", arm["arm"]),
        kind=arm["kind"],
        table_type=table_type,
        rows=float(median(one.metrics["rows"] for one in batches)),
        batches=len(rounds[0].commits),
        median=percentile_of(latencies, period, 50),
        p95=p95,
        p99=p99,
        rows_per_s=math.fsum(one.metrics["rows"] for one in batches) / seconds,
        serde_share=arm["serde_share"],
        parts=_parts(batches),
        instants=_instants(batches),
        growth=_growth(plain),
        fixed=_fixed_cost(rounds, latencies, period),
        beside_readers=_beside_readers(rounds, period),
        latencies=latencies,
        compacted=compacted,
    )


def _mean(batches: Sequence[Any], name: str) -> float:
    """The mean over all batches; one without the value has 0 s of it."""
    values = [one.metrics.get(f"{DRIVER_PREFIX}{name}_s", 0.0) for one in batches]
    return math.fsum(values) / len(values)


def _parts(batches: Sequence[Any]) -> dict[str, float]:
    """What fills a batch, in order; `other` is the sink's time outside of the phases."""
    own = {name: _mean(batches, name) for name in _OWN_PHASES}
    if not any(own.values()):
        return {}
    whole = math.fsum(one.metrics["seconds"] for one in batches) / len(batches)
    add_batch = _mean(batches, "add_batch")
    other = max(0.0, add_batch - math.fsum(own.values()))
    return {"spark": max(0.0, whole - add_batch), **own, "other": other}


def _instants(batches: Sequence[Any]) -> dict[str, float]:
    """Before, within and after a batch's instant, and services; empty for tables without completion times."""
    names = [f"{DRIVER_PREFIX}{part}_s" for part in ("before_requested", "after_completed")]
    known = [one for one in batches if all(name in one.metrics for name in names)]
    if not known:
        return {}
    before, after = (_mean(known, part) for part in ("before_requested", "after_completed"))
    whole = math.fsum(one.metrics["seconds"] for one in known) / len(known)
    return {
        "before_s": before,
        "within_s": max(0.0, whole - before - after),
        "after_s": after,
        "services_s": _mean(batches, "services"),
    }


def _growth(plain: Sequence[Sequence[float]]) -> Estimate | None:
    """The last tenth over the tenth from the 10th on, each of six batches at least."""
    shortest = min(map(len, plain))
    tenth = max(FEWEST_VALUES, shortest // 10)
    if shortest < _EARLY_FROM - 1 + 2 * tenth:
        return None
    early = [one[_EARLY_FROM - 1 :][:tenth] for one in plain]
    return ratio_of_medians([one[-tenth:] for one in plain], early, 1)


def _fixed_cost(
    rounds: Sequence[CellValues], latencies: Sequence[Sequence[float]], period: int
) -> FixedCost | None:
    empty = _of_rounds(rounds, lambda metrics: metrics.get(_EMPTY_JOB))
    commits = _of_rounds(
        rounds, lambda metrics: metrics.get(_SINK, 0.0) - metrics.get(_SERVICES, 0.0)
    )
    if not all(empty):
        return None
    late = None
    if min(map(len, latencies)) >= _EARLY_FROM + 2 * _COMPARED:
        early = [one[_EARLY_FROM - 1 :][:_COMPARED] for one in latencies]
        late = ratio_of_medians([one[-_COMPARED:] for one in latencies], early, period)
    return FixedCost(
        commit_s=percentile_of(commits, period, 50),
        # nothing repeats itself among empty jobs
        empty_job_s=percentile_of(empty, 1, 50),
        over_empty_s=compared(commits, empty, (period, 1), np.subtract),
        late=late,
    )


def _beside_readers(rounds: Sequence[CellValues], period: int) -> BesideReaders | None:
    def seconds(metrics: Mapping[str, float], beside: bool) -> float | None:
        whole, reads = metrics["seconds"], metrics.get(_READS, 0.0)
        return whole if (reads >= whole / 2 if beside else not reads) else None

    beside = _of_rounds(rounds, lambda metrics: seconds(metrics, beside=True), _EARLY_FROM)
    alone = _of_rounds(rounds, lambda metrics: seconds(metrics, beside=False), _EARLY_FROM)
    names = {n for r in rounds for one in r.commits for n in one.metrics if n.startswith(_READ_BY)}
    if not all((*beside, *alone)) or not names:
        return None
    return BesideReaders(
        beside=percentile_of(beside, period, 50),
        alone=percentile_of(alone, period, 50),
        ratio=ratio_of_medians(beside, alone, period),
        reads={
            name.removeprefix(_READ_BY).removesuffix("_s"): _median_of(rounds, name)
            for name in sorted(names)
        },
    )


def _median_of(rounds: Sequence[CellValues], name: str) -> Estimate:
    found = _of_rounds(rounds, lambda metrics: metrics.get(name))
    return percentile_of([one for one in found if one], 1, 50)


def _of_rounds(
    rounds: Sequence[CellValues],
    value: Callable[[Mapping[str, float]], float | None],
    first: int = 1,
) -> list[list[float]]:
    """A value of each batch from the `first` on that has it, by round."""
    return [
        [found for one in r.commits[first - 1 :] if (found := value(one.metrics)) is not None]
        for r in rounds
    ]


def _beside_peers(found: Sequence[StreamOfArm], period: int) -> Iterator[BesidePeer]:
    for one in found:
        peers = [
            other
            for other in found
            if other.kind == "peer" and (other.table_type, other.rows) == (one.table_type, one.rows)
        ]
        if one.kind == "strategy" and peers:
            fastest = min(peers, key=lambda peer: peer.median.value)
            of_whole = max(peers, key=lambda peer: peer.rows_per_s)
            yield BesidePeer(
                one.arm,
                fastest.name,
                ratio_of_medians(fastest.latencies, one.latencies, period),
                of_whole.name,
                ratio_of_means(of_whole.latencies, one.latencies, period),
            )


def _differences(found: Sequence[StreamOfArm], period: int) -> list[SizeDifference]:
    groups: dict[tuple[str, float], list[StreamOfArm]] = {}
    for one in found:
        if one.kind == "strategy":
            groups.setdefault((one.table_type, one.rows), []).append(one)
    differences = []
    for (table_type, rows), arms in sorted(groups.items()):
        if len(arms) < 2:
            continue
        by_median = sorted(arms, key=lambda one: one.median.value)
        fastest, slowest = by_median[0], by_median[-1]
        pairs = math.comb(len(arms), 2)
        ratio = ratio_of_medians(slowest.latencies, fastest.latencies, period, pairs)
        differences.append(SizeDifference(table_type, rows, slowest.name, fastest.name, ratio))
    return differences
