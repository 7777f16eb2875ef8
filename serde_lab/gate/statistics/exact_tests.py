"""Computes exact tests, their smallest reachable p, Holm's correction, separation and outliers.

Samples are arrays of positive numbers. Both tests are exact with and without ties; scipy is exact only
without ties and resamples otherwise (without ties its results are equal, which the tests check for every n
from 1 to 30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

# Modified z-score of Iglewicz and Hoaglin (1993): 0.6745 (x - median) / MAD beyond 3.5.
_OUTLIER_SCORE = 3.5
# A spread below this share of the median is the clock's resolution, not evidence of an outlier.
_SMALLEST_SPREAD = 0.005
# Above this size of one side, scipy's asymptotic distribution replaces the exact rank-sum
# distribution.
_EXACT_RANK_SUM_LIMIT = 60


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """A two-sided p, the smallest p that these sample sizes can give, and the test's name."""

    __test__ = False  # the name looks like a test class to pytest

    p: float
    smallest_p: float
    method: str


def smallest_paired_p(pairs: int) -> float:
    """The smallest two-sided p of a sign-flip test: both extremes of 2^n equally likely outcomes."""
    return min(1.0, 2.0 ** (1 - pairs)) if pairs else 1.0


def smallest_unpaired_p(before: int, after: int) -> float:
    """The smallest two-sided p of a two-sample permutation test: 2 / C(n + m, n)."""
    return min(1.0, 2.0 / comb(before + after, before)) if before and after else 1.0


def paired_test(log_ratios: Sequence[float] | Floats) -> TestOutcome:
    """Wilcoxon's signed-rank test by its exact sign-flip distribution, zeros kept (Pratt).

    `log_ratios` holds log(after / before) of each round. Ties share mean ranks, and the distribution is that
    of these ranks, so that p is exact for the given values.
    """
    differences = np.asarray(log_ratios, dtype=np.float64)
    floor = smallest_paired_p(differences.size)
    if differences.size == 0 or not np.any(differences):
        return TestOutcome(1.0, floor, "exact Wilcoxon signed-rank")
    ranks = stats.rankdata(np.abs(differences))
    # Doubled mean ranks are whole numbers: the distribution is a product of (1 + x^(2 rank)) / 2.
    doubled = np.rint(2 * ranks[differences != 0]).astype(np.int64)
    density = np.zeros(int(doubled.sum()) + 1)
    density[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(density)
        shifted[rank:] = density[: density.size - rank]
        density = 0.5 * (density + shifted)
    positive = int(np.rint(2 * ranks[differences > 0].sum()))
    p = 2 * min(density[: positive + 1].sum(), density[positive:].sum())
    return TestOutcome(float(min(p, 1.0)), floor, "exact Wilcoxon signed-rank")


def unpaired_test(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> TestOutcome:
    """Mann-Whitney's rank-sum test by its exact permutation distribution, ties included."""
    first = np.asarray(before, dtype=np.float64)
    second = np.asarray(after, dtype=np.float64)
    floor = smallest_unpaired_p(first.size, second.size)
    if first.size == 0 or second.size == 0:
        return TestOutcome(1.0, floor, "exact Mann-Whitney")
    if max(first.size, second.size) > _EXACT_RANK_SUM_LIMIT:
        p = float(stats.mannwhitneyu(first, second, method="asymptotic").pvalue)
        return TestOutcome(min(p, 1.0), floor, "asymptotic Mann-Whitney")
    doubled = np.rint(2 * stats.rankdata(np.concatenate([first, second]))).astype(np.int64)
    density = _subset_sum_density(doubled, first.size)
    observed = int(doubled[: first.size].sum())
    p = 2 * min(density[: observed + 1].sum(), density[observed:].sum())
    return TestOutcome(float(min(p, 1.0)), floor, "exact Mann-Whitney")


def _subset_sum_density(values: npt.NDArray[np.int64], size: int) -> Floats:
    """Probability of each sum over all subsets of `size` of `values`, by dynamic programming."""
    total = int(np.sort(values)[-size:].sum())
    ways = np.zeros((size + 1, total + 1))
    ways[0, 0] = 1.0
    for value in values:
        # Copied before the addition, so that each value is drawn at most once.
        ways[1:, value:] += ways[:-1, : total + 1 - value].copy()
    density: Floats = ways[size] / ways[size].sum()
    return density


def student_p(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, *, paired: bool
) -> float:
    """Student's t on the logs, which decides if no exact p can be small enough; Welch's if not paired."""
    shift, error, freedom = log_terms(before, after, paired=paired)
    if error <= 1e-12:
        return 0.0 if abs(shift) > 1e-12 else 1.0
    return float(2 * stats.t.sf(abs(shift) / error, freedom))


def log_terms(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, *, paired: bool
) -> tuple[float, float, float]:
    """Difference of mean logs, its standard error, and its degrees of freedom (Welch-Satterthwaite's).

    The error is infinite if a side has a single value.
    """
    first, second = np.log(np.asarray(before)), np.log(np.asarray(after))
    shift = float(second.mean() - first.mean())
    if min(first.size, second.size) < 2:
        return shift, float("inf"), 1.0
    if paired:
        return shift, float(stats.sem(second - first)), float(first.size - 1)
    parts = stats.sem(first) ** 2, stats.sem(second) ** 2
    variance = float(parts[0] + parts[1])
    if variance <= 1e-24:
        return shift, 0.0, float(first.size + second.size - 2)
    freedom = variance**2 / (parts[0] ** 2 / (first.size - 1) + parts[1] ** 2 / (second.size - 1))
    return shift, float(np.sqrt(variance)), float(freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (Holm 1979)."""
    count = len(p_values)
    adjusted = [1.0] * count
    running = 0.0
    for position, index in enumerate(sorted(range(count), key=lambda i: (p_values[i], i))):
        running = max(running, min(1.0, (count - position) * p_values[index]))
        adjusted[index] = running
    return adjusted


def separated(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, *, paired: bool
) -> bool:
    """Whether one side's values all lie beyond the other's; if paired, all ratios on one side of 1."""
    first, second = np.asarray(before), np.asarray(after)
    if first.size == 0 or second.size == 0:
        return False
    if paired:
        return bool(np.all(second > first) or np.all(second < first))
    return bool(second.min() > first.max() or second.max() < first.min())


def outlier_positions(values: Sequence[float] | Floats) -> tuple[int, ...]:
    """Positions of outliers among at least five values; they are reported, never removed."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 5:
        return ()
    distance = np.abs(sample - np.median(sample))
    spread = max(float(np.median(distance)), _SMALLEST_SPREAD * abs(float(np.median(sample))))
    if spread == 0:
        return ()
    return tuple(int(i) for i in np.flatnonzero(0.6745 * distance / spread > _OUTLIER_SCORE))
