"""Combines the samples of a cell's commits into one value for each metric.

Also medians and percentiles of values that follow each other, as those of a stream's commits do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special  # not scipy.stats, whose import takes a second

from serde_lab.measure import phases
from serde_lab.measure.metrics import metric as metric_named
from serde_lab.measure.phases import PhaseSeconds
from serde_lab.runs.model import MeasuredCell, Run

PHASE_WALL, PHASE_CPU = "phase_wall_s", "phase_cpu_s"
FEWEST_VALUES = 6
"""Fewer values give no interval: even the range of five holds the median with a chance of only 94 %."""
_TAIL = 0.025
"""The chance of a miss on each side of an interval of 95 %."""
_RESAMPLES, _FEW_BEYOND = 2000, 5
_LEAST_BLOCKS = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CommitValues:
    """The values of one timed commit of a cell."""

    n: int
    metrics: Mapping[str, float]
    phases: Mapping[str, PhaseSeconds]


@dataclass(frozen=True, slots=True)
class CellValues:
    """One value for each metric over the whole cell, its phases, and its commits."""

    metrics: Mapping[str, float]
    phases: Mapping[str, PhaseSeconds]
    commits: tuple[CommitValues, ...]


Rounds: TypeAlias = Mapping[int, CellValues]
"""The values of an arm's measured cells, by the number of their round."""


def measured_rounds(run: Run, arm: str) -> dict[int, CellValues]:
    """The rounds of an arm that count as measurements, in their order: successful and not warm-up."""
    cells = (c for c in run.cells if c.arm == arm and c.status == "ok" and not c.warmup)
    return {cell.round: cell_values(cell) for cell in sorted(cells, key=lambda cell: cell.round)}


def median_together(
    cells: Iterable[CellValues | CommitValues],
    wanted: Callable[[str], bool],
    clock: Literal["wall_s", "cpu_s"],
) -> float:
    """The median over cells of the seconds that the wanted phases take together; 0 without a cell.

    The medians of single phases need not add up to it.
    """
    sums = [
        fsum(getattr(time, clock) for name, time in cell.phases.items() if wanted(name))
        for cell in cells
    ]
    return float(np.median(sums)) if sums else 0.0


def by_round(rounds: Rounds, metric: str) -> dict[int, float]:
    """A metric's value in each round that has it."""
    return {n: cell.metrics[metric] for n, cell in rounds.items() if metric in cell.metrics}


def cell_values(cell: MeasuredCell) -> CellValues:
    """Combine the commits by each metric's rule (sum, max, last, mean); keep whole-cell samples unchanged.

    If there are phases, `serde_cpu_s`, `serde_share` and `unattributed_share` are derived from them. SerDe is
    `phases.SERDE_WORK` over all stages; a share is a share of all slot seconds.
    """
    metrics: dict[int | None, dict[str, float]] = {}
    walls: dict[int | None, dict[str, float]] = {}
    cpus: dict[int | None, dict[str, float]] = {}
    for sample in cell.samples:
        if sample.phase is None:
            metrics.setdefault(sample.commit, {})[sample.metric] = sample.value
        else:
            by_commit = walls if sample.metric == PHASE_WALL else cpus
            by_phase = by_commit.setdefault(sample.commit, {})
            by_phase[sample.phase] = by_phase.get(sample.phase, 0.0) + sample.value
    numbers = sorted({n for n in (*metrics, *walls, *cpus) if n is not None})
    times = {n: _phases(walls.get(n, {}), cpus.get(n, {})) for n in numbers}
    commits = tuple(
        CommitValues(n, _with_shares(metrics.get(n, {}), times[n]), times[n]) for n in numbers
    )
    totals = _over_commits(commits)
    totals |= metrics.get(None, {})
    summed = _phases(
        _sum([walls.get(n, {}) for n in (*numbers, None)]),
        _sum([cpus.get(n, {}) for n in (*numbers, None)]),
    )
    return CellValues(_with_shares(totals, summed), summed, commits)


def _over_commits(commits: tuple[CommitValues, ...]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for commit in commits:
        for name, value in commit.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: _one(metric_named(name).over_commits, of) for name, of in values.items()}


def _one(rule: str, values: list[float]) -> float:
    if rule == "sum":
        return _total(values)
    if rule == "max":
        return max(values)
    return values[-1] if rule == "last" else fsum(values) / len(values)


def _total(values: Sequence[float]) -> float:
    """The sum, equal on every Python (built-in float sums differ by version); counts stay whole numbers."""
    return sum(values) if all(isinstance(value, int) for value in values) else fsum(values)


def _phases(wall: Mapping[str, float], cpu: Mapping[str, float]) -> dict[str, PhaseSeconds]:
    return {
        name: PhaseSeconds(wall.get(name, 0.0), cpu.get(name, 0.0))
        for name in sorted({*wall, *cpu}, key=phases.order)
    }


def _sum(parts: list[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _with_shares(
    metrics: Mapping[str, float], times: Mapping[str, PhaseSeconds]
) -> dict[str, float]:
    derived = dict(metrics)
    whole_s = fsum(time.wall_s for time in times.values())
    if whole_s > 0:
        serde = [time for name, time in times.items() if phases.is_serde(name)]
        derived["serde_cpu_s"] = _total([time.cpu_s for time in serde])
        derived["serde_share"] = fsum(time.wall_s for time in serde) / whole_s
        left = times.get(phases.UNATTRIBUTED)
        derived["unattributed_share"] = (left.wall_s if left else 0.0) / whole_s
    if metrics.get("seconds") and "rows" in metrics:
        derived["rows_per_s"] = metrics["rows"] / metrics["seconds"]
    return derived


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; `low` and `high` are None where it is of fewer than six values."""

    value: float
    low: float | None = None
    high: float | None = None


def resampled(
    series: Sequence[Sequence[float]],
    period: int,
    statistic: Callable[[Floats], Floats],
    seed: int = 1,
) -> Floats:
    """A statistic of each of 2,000 resamples, which `statistic` gets as rows: a circular block bootstrap.

    Series are drawn first, since each is a round with conditions of its own, and then values within each.
    Neighbours in it are alike, and something comes at intervals of `period`: a block is the cube root of the
    length, and `period` at least. Series of fewer than four such blocks are resampled value by value.
    """
    draw = np.random.default_rng(seed)
    wanted = max(1, sum(map(len, series)) // len(series))
    parts = []
    for one in series:
        values = np.array(one, np.float64)
        length = _block(len(values), period)
        starts = draw.integers(0, len(values), (_RESAMPLES, -(-wanted // length), 1))
        taken = (starts + np.arange(length)) % len(values)
        parts.append(values[taken.reshape(_RESAMPLES, -1)[:, :wanted]])
    drawn = draw.integers(0, len(parts), (_RESAMPLES, len(parts)))
    return statistic(np.stack(parts)[drawn, np.arange(_RESAMPLES)[:, None]].reshape(_RESAMPLES, -1))


def _block(batches: int, period: int) -> int:
    length = max(period, math.ceil(batches ** (1 / 3)))
    return length if batches >= _LEAST_BLOCKS * length else 1


def _pieces(series: Sequence[Sequence[float]], period: int) -> int:
    """How many blocks the series have in all."""
    return sum(-(-len(one) // _block(len(one), period)) for one in series)


def _percentile(q: float) -> Callable[[Floats], Floats]:
    return lambda rows: np.asarray(np.percentile(rows, q, axis=1))


_MEDIAN = _percentile(50)


def percentile_of(series: Sequence[Sequence[float]], period: int, q: float) -> Estimate:
    """The percentile `q` of all values; `period` as in `resampled`.

    The interval is no narrower than the one from ranks, which is exact for independent values: near an end
    of few values, resamples know too little of what lies beyond.
    """
    pooled = sorted(value for one in series for value in one)
    value = float(np.percentile(pooled, q))
    if len(pooled) < FEWEST_VALUES:
        return Estimate(value)
    low, high = _bounds(resampled(series, period, _percentile(q)), _pieces(series, period))
    first, last = _ranks(len(pooled), q / 100)
    return Estimate(value, min(low, pooled[first]), max(high, pooled[last]))


def _ranks(count: int, share: float) -> tuple[int, int]:
    """The places, from 0, of the ordered values between which a percentile of 50 or more lies with a chance
    of 95 %.

    Where all values lie below it too often, the other side gets what is left of the 5 %.
    """
    above = max(_TAIL, share**count)
    # by place, the chance that the percentile lies below the value there
    chances = special.bdtr(np.arange(count), count, share)
    first = int((chances <= 2 * _TAIL - above).sum()) - 1
    last = int((1 - chances > above).sum())
    return max(0, first), min(last, count - 1)


def _bounds(values: Floats, pieces: int, among: int = 1) -> tuple[float, float]:
    """The interval of resamples of so many pieces, expanded for their number (Hesterberg 2015): few pieces
    resample with too small a spread, and know it badly."""
    tail = 100 * float(special.ndtr(-_reach(pieces, among)))
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _reach(pieces: int, among: int) -> float:
    """How many standard deviations of the normal distribution the expanded interval reaches to each side."""
    t = float(special.stdtrit(pieces - 1, 1 - _TAIL / among))
    return math.sqrt(pieces / (pieces - 1)) * t


def ratio_of_medians(
    above: Sequence[Sequence[float]], below: Sequence[Sequence[float]], period: int, among: int = 1
) -> Estimate:
    """The ratio of the medians of two samples; `period` as in `resampled`, `among` as in `compared`."""
    return compared(above, below, (period, period), np.divide, among=among)


def ratio_of_means(
    above: Sequence[Sequence[float]], below: Sequence[Sequence[float]], period: int
) -> Estimate:
    """The ratio of the means of two samples; `period` as in `resampled`."""
    return compared(above, below, (period, period), np.divide, lambda rows: rows.mean(axis=1))


def compared(
    one: Sequence[Sequence[float]],
    other: Sequence[Sequence[float]],
    periods: tuple[int, int],
    how: Callable[[Floats, Floats], Floats],
    statistic: Callable[[Floats], Floats] = _MEDIAN,
    among: int = 1,
) -> Estimate:
    """What `how` makes of a statistic of two samples, by default their medians; `periods` and `statistic` as
    in `resampled`. `among`: of so many pairs this one was chosen after they were seen, and the interval is
    that of all together (Bonferroni).
    """
    sides = (one, other)
    value = float(how(*(statistic(np.concatenate(side)[np.newaxis]) for side in sides))[0])
    if min(sum(map(len, side)) for side in sides) < FEWEST_VALUES:
        return Estimate(value)
    drawn = [
        resampled(side, period, statistic, seed)
        for seed, (side, period) in enumerate(zip(sides, periods, strict=True))
    ]
    pieces = min(_pieces(side, period) for side, period in zip(sides, periods, strict=True))
    values = how(*drawn)
    low, high = _bounds(values, pieces, among)
    reach = _reach(pieces, among)
    if special.ndtr(-reach) * len(values) < _FEW_BEYOND:
        # hardly a resample lies so far out
        middle, spread = float(values.mean()), reach * float(values.std())
        low, high = min(low, middle - spread), max(high, middle + spread)
    return Estimate(value, low, high)
