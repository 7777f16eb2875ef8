"""Computes intervals of a ratio of medians (bootstrap), a mean log ratio (Student) and a rate (Wilson).

All random draws use a fixed seed, so that a verdict can be recomputed from the raw values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from serde_lab.gate.statistics.exact_tests import Floats, log_terms

BOOTSTRAP_SEED = 20_250_601
BOOTSTRAP_DRAWS = 2_000
# Below this size resampled medians take only a few values, and percentile intervals cover far less
# than they claim; Student's t on logs takes over.
SMALLEST_BOOTSTRAP = 6


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """`after / before` with bounds at `confidence`, and the method used."""

    ratio: float
    low: float
    high: float
    confidence: float
    method: str


@lru_cache(maxsize=256)
def _draws(size: int, stream: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    generator = np.random.default_rng([BOOTSTRAP_SEED, size, stream])
    return generator.integers(0, size, size=(BOOTSTRAP_DRAWS, size))


def resampled_log_ratios(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, *, paired: bool
) -> Floats:
    """Log ratios of medians over resamples; if paired, whole rounds are resampled."""
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    rows = _draws(first.size, 0)
    other = rows if paired else _draws(second.size, 1)
    log_ratios: Floats = np.log(_medians(second[other])) - np.log(_medians(first[rows]))
    return log_ratios


def _medians(drawn: Floats) -> Floats:
    """The median of each row: sorting short rows is several times faster than `np.median`."""
    drawn = np.sort(drawn, axis=1)
    size = drawn.shape[1]
    middle: Floats = (drawn[:, (size - 1) // 2] + drawn[:, size // 2]) / 2
    return middle


def ratio_interval(
    before: Sequence[float] | Floats,
    after: Sequence[float] | Floats,
    *,
    paired: bool,
    confidence: float = 0.95,
) -> RatioInterval:
    """The ratio of medians with its interval: bootstrap from 6 values per side, Student's t below.

    Values must be positive. With one value on a side the bounds are 0 and infinity.
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    ratio = float(np.median(second) / np.median(first))
    tail = (1 - confidence) / 2
    if min(first.size, second.size) >= SMALLEST_BOOTSTRAP:
        low, high = np.quantile(
            resampled_log_ratios(first, second, paired=paired), [tail, 1 - tail]
        )
        method = "bootstrap of rounds" if paired else "bootstrap"
        return RatioInterval(ratio, float(np.exp(low)), float(np.exp(high)), confidence, method)
    shift, error, freedom = log_terms(first, second, paired=paired)
    method = "Student's t on logs"
    if not np.isfinite(error):
        return RatioInterval(ratio, 0.0, float("inf"), confidence, method)
    reach = float(stats.t.isf(tail, freedom)) * error
    low_high = float(np.exp(shift - reach)), float(np.exp(shift + reach))
    # The mean of logs and the log of medians differ: widen the interval to contain the ratio shown.
    return RatioInterval(
        ratio, min(low_high[0], ratio), max(low_high[1], ratio), confidence, method
    )


@dataclass(frozen=True, slots=True)
class Rate:
    """`hits` of `trials` with Wilson's score interval (Wilson 1927)."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Hits over trials; 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0


def wilson(hits: int, trials: int) -> Rate:
    """Wilson's two-sided 95 % interval of a rate; 0 to 1 without trials."""
    if trials == 0:
        return Rate(0, 0, 0.0, 1.0)
    interval = stats.binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    return Rate(hits, trials, float(interval.low), float(interval.high))


def resampled_rate(sittings: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """The 95 % interval of a rate over sittings of (hits, trials): first sittings are drawn, then trials.

    Each sitting must have a trial.
    """
    hits, trials = np.array(sittings, np.int64).T
    generator = np.random.default_rng([BOOTSTRAP_SEED, len(sittings)])
    drawn = generator.integers(0, len(sittings), size=(BOOTSTRAP_DRAWS, len(sittings)))
    found = generator.binomial(trials[drawn], (hits / trials)[drawn]).sum(axis=1)
    low, high = np.quantile(found / trials[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)
