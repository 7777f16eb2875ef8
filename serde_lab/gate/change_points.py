"""Finds where a series of results moved to another level and stayed there.

Uses binary segmentation as in E-divisive (Matteson and James 2014), with a rank statistic instead of
distances, so that one outlier is no change point; each split is tested by permuting the order. (`ruptures`
and `otava` would serve too; neither is a locked dependency, and both bring more than this one use.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats

from serde_lab.analysis.rounding import rounded_p, rounded_ratio
from serde_lab.gate.statistics import Floats

SMALLEST_SEGMENT = 3
_ALPHA = 0.05
_PERMUTATIONS = 999
_SEED = 20_250_602


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`index` is the first position of the new level; both levels are medians of their segments."""

    index: int
    before: float
    after: float
    ratio: float
    p: float


def find_change_points(
    values: Sequence[float], *, smallest_change: float = 0.02
) -> tuple[ChangePoint, ...]:
    """The change points of positive values, in order; none in a series below about seven values.

    A change point is significant at 5 % and changes the median by more than `smallest_change`.
    """
    series = np.asarray(values, dtype=np.float64)
    cuts = sorted(_cuts(series, 0, series.size))
    # Levels are those of the final segments: drop cuts with the smallest level changes first.
    while True:
        found = _change_points(series, cuts)
        small = [s for s in found if abs(np.log(s.ratio)) <= np.log1p(smallest_change)]
        if not small:
            return found
        least = min(small, key=lambda s: abs(np.log(s.ratio)))
        cuts = [(at, p) for at, p in cuts if at != least.index]


def find_changes(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """The change points of an exact quantity: every change is one."""
    return tuple(
        ChangePoint(i, values[i - 1], values[i], _ratio(values[i - 1], values[i]), 0.0)
        for i in range(1, len(values))
        if values[i] != values[i - 1]
    )


def _cuts(series: Floats, start: int, end: int) -> list[tuple[int, float]]:
    part = series[start:end]
    if part.size < 2 * SMALLEST_SEGMENT:
        return []
    ranks = stats.rankdata(part)
    scores = _scores(ranks[None, :])[0]
    observed = scores.max()
    generator = np.random.default_rng([_SEED, start, end])
    shuffled = generator.permuted(np.tile(ranks, (_PERMUTATIONS, 1)), axis=1)
    exceeding = int((_scores(shuffled).max(axis=1) >= observed * (1 - 1e-12)).sum())
    p = rounded_p((exceeding + 1) / (_PERMUTATIONS + 1))
    if p > _ALPHA:
        return []
    at = start + SMALLEST_SEGMENT + int(scores.argmax())
    return [(at, p), *_cuts(series, start, at), *_cuts(series, at, end)]


def _scores(ranks: Floats) -> Floats:
    """The standardised rank-sum difference at each allowed split; `ranks` is (series, position)."""
    count = ranks.shape[1]
    left = np.arange(SMALLEST_SEGMENT, count - SMALLEST_SEGMENT + 1)
    sums = np.cumsum(ranks, axis=1)[:, left - 1]
    expected = left * (count + 1) / 2
    spread = np.sqrt(left * (count - left))
    scores: Floats = np.abs(sums - expected) / spread
    return scores


def _change_points(series: Floats, cuts: Sequence[tuple[int, float]]) -> tuple[ChangePoint, ...]:
    if not cuts:
        return ()
    bounds = [0, *(at for at, _ in cuts), series.size]
    levels = [float(np.median(series[a:b])) for a, b in pairwise(bounds)]
    return tuple(
        ChangePoint(at, levels[i], levels[i + 1], _ratio(levels[i], levels[i + 1]), p)
        for i, (at, p) in enumerate(cuts)
    )


def _ratio(before: float, after: float) -> float:
    return rounded_ratio(after / before) if before else float("inf")
