"""The gate's statistics: exact tests, intervals of ratios and rates, and the levels of repeated looks.

Samples are arrays of positive numbers. Both tests are exact with and without ties; scipy is exact only
without ties and resamples otherwise (without ties its results are equal, which the tests check for every n
from 1 to 30). All random draws use a fixed seed, so that a verdict can be recomputed from the raw values.

An A/B measurement looks at its rounds repeatedly, and divides the significance level over its looks. The
looks are fixed in advance. The union bound keeps the error rate whatever the dependence between looks (the
idea of spending is from Lan and DeMets 1983, the quadratic spending function from Kim and DeMets 1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
import numpy.typing as npt
from scipy import stats

from serde_lab.analysis.ratios import Numbers, log_difference
from serde_lab.errors import UsageError

Floats = npt.NDArray[np.float64]

SMALLEST_SAMPLE = 3
"""A side with fewer values is never judged by statistics."""

# Modified z-score of Iglewicz and Hoaglin (1993): 0.6745 (x - median) / MAD beyond 3.5.
_OUTLIER_SCORE = 3.5
# A spread below this share of the median is the clock's resolution, not evidence of an outlier.
_SMALLEST_SPREAD = 0.005
# Above this size of one side, scipy's asymptotic distribution replaces the exact rank-sum
# distribution.
_EXACT_RANK_SUM_LIMIT = 60


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """A two-sided p, the smallest p that these sample sizes can give, and the test's name.

    `way` is 1 if the ranks of `after` are the higher ones, -1 if they are the lower ones, else 0.
    """

    __test__ = False  # the name looks like a test class to pytest

    p: float
    smallest_p: float
    method: str
    way: int


def smallest_paired_p(pairs: int) -> float:
    """The smallest two-sided p of a sign-flip test: both extremes of 2^n equally likely outcomes."""
    return min(1.0, 2.0 ** (1 - pairs)) if pairs else 1.0


def smallest_unpaired_p(before: int, after: int) -> float:
    """The smallest two-sided p of a two-sample permutation test: 2 / C(n + m, n)."""
    return min(1.0, 2.0 / comb(before + after, before)) if before and after else 1.0


def paired_test(log_ratios: Numbers) -> TestOutcome:
    """Wilcoxon's signed-rank test by its exact sign-flip distribution, zeros kept (Pratt).

    `log_ratios` holds log(after / before) of each round. Ties share mean ranks, and the distribution is that
    of these ranks, so that p is exact for the given values.
    """
    differences = np.asarray(log_ratios, dtype=np.float64)
    floor = smallest_paired_p(differences.size)
    if differences.size == 0 or not np.any(differences):
        return TestOutcome(1.0, floor, "exact Wilcoxon signed-rank", 0)
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
    way = int(np.sign(2 * positive - int(doubled.sum())))
    return TestOutcome(float(min(p, 1.0)), floor, "exact Wilcoxon signed-rank", way)


def unpaired_test(before: Numbers, after: Numbers) -> TestOutcome:
    """Mann-Whitney's rank-sum test by its exact permutation distribution, ties included."""
    first = np.asarray(before, dtype=np.float64)
    second = np.asarray(after, dtype=np.float64)
    floor = smallest_unpaired_p(first.size, second.size)
    if first.size == 0 or second.size == 0:
        return TestOutcome(1.0, floor, "exact Mann-Whitney", 0)
    # doubled mean ranks are whole numbers
    doubled = np.rint(2 * stats.rankdata(np.concatenate([first, second]))).astype(np.int64)
    observed = int(doubled[: first.size].sum())
    way = int(np.sign(first.size * (first.size + second.size + 1) - observed))
    if max(first.size, second.size) > _EXACT_RANK_SUM_LIMIT:
        p = float(stats.mannwhitneyu(first, second, method="asymptotic").pvalue)
        return TestOutcome(min(p, 1.0), floor, "asymptotic Mann-Whitney", way)
    density = _subset_sum_density(doubled, first.size)
    p = 2 * min(density[: observed + 1].sum(), density[observed:].sum())
    return TestOutcome(float(min(p, 1.0)), floor, "exact Mann-Whitney", way)


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


def student_p(before: Numbers, after: Numbers, *, paired: bool) -> float:
    """Student's t on the logs, which decides if no exact p can be small enough; Welch's if not paired."""
    shift, error, freedom = log_difference(before, after, paired=paired)
    if error <= 1e-12:
        return 0.0 if abs(shift) > 1e-12 else 1.0
    return float(2 * stats.t.sf(abs(shift) / error, freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (Holm 1979)."""
    count = len(p_values)
    adjusted = [1.0] * count
    running = 0.0
    for position, index in enumerate(sorted(range(count), key=lambda i: (p_values[i], i))):
        running = max(running, min(1.0, (count - position) * p_values[index]))
        adjusted[index] = running
    return adjusted


def separated(before: Numbers, after: Numbers, *, paired: bool) -> bool:
    """Whether one side's values all lie beyond the other's; if paired, all ratios on one side of 1."""
    first, second = np.asarray(before), np.asarray(after)
    if first.size == 0 or second.size == 0:
        return False
    if paired:
        return bool(np.all(second > first) or np.all(second < first))
    return bool(second.min() > first.max() or second.max() < first.min())


def outlier_positions(values: Numbers) -> tuple[int, ...]:
    """Positions of outliers among at least five values; they are reported, never removed."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 5:
        return ()
    distance = np.abs(sample - np.median(sample))
    spread = max(float(np.median(distance)), _SMALLEST_SPREAD * abs(float(np.median(sample))))
    if spread == 0:
        return ()
    return tuple(int(i) for i in np.flatnonzero(0.6745 * distance / spread > _OUTLIER_SCORE))


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


def resampled_log_ratios(before: Numbers, after: Numbers, *, paired: bool) -> Floats:
    """Logs of `log_ratio` over resamples; if paired, whole rounds are resampled."""
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    rows = _draws(first.size, 0)
    if paired:
        return _medians((np.log(second) - np.log(first))[rows])
    others = _draws(second.size, 1)
    log_ratios: Floats = np.log(_medians(second[others])) - np.log(_medians(first[rows]))
    return log_ratios


def log_ratio(before: Numbers, after: Numbers, *, paired: bool) -> float:
    """The log of the ratio of medians; if paired, the median of the rounds' log ratios.

    What slows both sides of a round alike has no part in the latter. The ratio of medians may even be below 1
    although `after` took longer in nearly every round.
    """
    if paired:
        return float(np.median(np.log(np.asarray(after)) - np.log(np.asarray(before))))
    return float(np.log(np.median(after)) - np.log(np.median(before)))


def _medians(drawn: Floats) -> Floats:
    """The median of each row: sorting short rows is several times faster than `np.median`."""
    drawn = np.sort(drawn, axis=1)
    size = drawn.shape[1]
    middle: Floats = (drawn[:, (size - 1) // 2] + drawn[:, size // 2]) / 2
    return middle


def ratio_interval(
    before: Numbers,
    after: Numbers,
    *,
    paired: bool,
    confidence: float = 0.95,
) -> RatioInterval:
    """`log_ratio` as a ratio, with its interval: Student's t below 6 values per side, from there on by ranks
    if paired, else by bootstrap.

    Values must be positive. With one value on a side the bounds are 0 and infinity.
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    ratio = float(np.exp(log_ratio(first, second, paired=paired)))
    tail = (1 - confidence) / 2
    if min(first.size, second.size) >= SMALLEST_BOOTSTRAP:
        if paired:
            low, high = _around_the_median(np.log(second) - np.log(first), tail)
            method = "ranks of rounds"
        else:
            resampled = resampled_log_ratios(first, second, paired=False)
            low, high = np.quantile(resampled, [tail, 1 - tail])
            method = "bootstrap"
        return RatioInterval(ratio, float(np.exp(low)), float(np.exp(high)), confidence, method)
    shift, error, freedom = log_difference(first, second, paired=paired)
    method = "Student's t on logs"
    if not np.isfinite(error):
        return RatioInterval(ratio, 0.0, float("inf"), confidence, method)
    reach = float(stats.t.isf(tail, freedom)) * error
    low_high = float(np.exp(shift - reach)), float(np.exp(shift + reach))
    # The mean of logs and their median differ: widen the interval to contain the ratio shown.
    return RatioInterval(
        ratio, min(low_high[0], ratio), max(low_high[1], ratio), confidence, method
    )


def _around_the_median(values: Floats, tail: float) -> tuple[float, float]:
    """The interval of a median from the ordered values, interpolated (Hettmansperger and Sheather 1986).

    Resampled medians would be values of a few ranks: with 7 rounds they cover 87 % in place of 95 %.
    """
    ordered, size = np.sort(values), values.size
    # by rank, from 0, the chance that the median lies beyond the value there
    beyond = stats.binom.cdf(np.arange(size), size, 0.5)
    rank = int((beyond <= tail).sum()) - 1
    if rank < 0:  # even the whole range misses it more often
        return float(ordered[0]), float(ordered[-1])
    part = (tail - beyond[rank]) / (beyond[rank + 1] - beyond[rank])
    below = rank + 1
    inwards = (size - below) * part / (below + (size - 2 * below) * part)
    low, high = (
        (1 - inwards) * side[rank] + inwards * side[rank + 1] for side in (ordered, ordered[::-1])
    )
    return float(low), float(high)


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


_POWER = 2.0


@dataclass(frozen=True, slots=True)
class AlphaSpending:
    """Looks after `first` rounds, then every `step`, the last after `maximum`.

    `family` is the number of compared cells, which the comparison counts. A look at which no exact p could
    pass its level spends nothing and leaves its share to the next look.
    """

    first: int
    step: int
    maximum: int
    alpha: float = 0.05
    family: int = 1

    def __post_init__(self) -> None:
        if not SMALLEST_SAMPLE <= self.first <= self.maximum or self.step < 1:
            raise UsageError(
                f"looks from {self.first} to {self.maximum} rounds in steps of {self.step}: expected"
                f" at least {SMALLEST_SAMPLE} rounds, a maximum no smaller, and a step of at least 1"
            )

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of rounds after which the A/B measurement looks."""
        return (*range(self.first, self.maximum, self.step), self.maximum)

    def levels(self) -> dict[int, float]:
        """The level spent at each look; they add up to at most `alpha`."""
        spent = 0.0
        levels = {}
        for rounds in self.looks:
            share = self.alpha * (rounds / self.maximum) ** _POWER - spent
            # The last look has no successor for its share, and Student's t may still decide there.
            usable = smallest_paired_p(rounds) * self.family <= share or rounds == self.maximum
            levels[rounds] = share if usable else 0.0
            spent += levels[rounds]
        return levels

    def level(self, rounds: int) -> float:
        """The level of a cell with this many rounds: that of the last look it has reached.

        0 before the first look. A cell has fewer rounds than a look if one of its rounds failed.
        """
        reached = [look for look in self.looks if look <= rounds]
        return self.levels()[reached[-1]] if reached else 0.0


DEFAULT_LOOKS = AlphaSpending(first=6, step=2, maximum=20)
"""Looks from 6 to 20 rounds.

Six rounds are the fewest with a paired p below 0.05; at twenty, a 10 % change is detectable through 5 % noise
per cell with heavy tails (tests/gate/test_gate_error_rates.py).
"""

AB_LOOKS = AlphaSpending(first=8, step=4, maximum=40)
"""Looks from 8 to 40 rounds, for cells well under a second (`ab`, the self-test).

In the same time, many short rounds show more than few long ones, since neighbouring rounds share the same
noise.
"""
