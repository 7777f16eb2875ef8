"""Computes the statistics of two samples before any limit applies: ratio, interval and p values.

Chooses the test and interval for each pair of samples, and which p decides if the exact p cannot be small
enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from serde_lab.analysis.rounding import rounded_p, rounded_ratio, rounded_value
from serde_lab.gate.statistics import (
    SMALLEST_SAMPLE,
    RatioInterval,
    holm,
    outlier_positions,
    paired_test,
    ratio_interval,
    separated,
    smallest_paired_p,
    smallest_unpaired_p,
    student_p,
    unpaired_test,
)

Values = Mapping[int, float]
"""One value per round."""


@dataclass(frozen=True, slots=True)
class SideValues:
    """The values of one side: median, values with their rounds, and the outlying rounds."""

    values: tuple[float, ...]
    rounds: tuple[int, ...]
    median: float
    outlying_rounds: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def by_round(self) -> Values:
        return dict(zip(self.rounds, self.values, strict=True))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Ratio with interval, p values and separation of one cell of a comparison.

    The ratio is that of medians; if paired, the median of the rounds' ratios. `way` is 1 if the test finds
    `after` the higher, -1 if the lower, else 0. `p` is exact. `deciding_p` is the p that Holm's correction
    and the verdict use: `p`, or Student's t on logs if the exact test cannot reach the level and the
    samples are fully separated. `interval` is None if a value is not positive.
    """

    before: SideValues
    after: SideValues
    paired: bool
    interval: RatioInterval | None = None
    p: float = 1.0
    smallest_p: float = 1.0
    test: str = ""
    way: int = 0
    reachable: bool = False
    separated: bool = False
    deciding_p: float = 1.0
    adjusted_p: float = 1.0
    family: int = 1

    @property
    def ratio(self) -> float | None:
        """After over before; None if a value is not positive."""
        return None if self.interval is None else self.interval.ratio

    @property
    def count(self) -> int:
        """The rounds of the smaller side; the number of pairs if paired."""
        return min(self.before.count, self.after.count)

    @property
    def step(self) -> float:
        """How far the medians are apart; if paired, the median of the rounds' differences."""
        if not self.paired:
            return rounded_value(abs(self.after.median - self.before.median))
        rounds = zip(self.before.values, self.after.values, strict=True)
        return rounded_value(abs(float(np.median([after - before for before, after in rounds]))))

    @property
    def testable(self) -> bool:
        """Whether a test is possible: enough rounds, and only positive values (tests use logarithms)."""
        return self.count >= SMALLEST_SAMPLE and min(*self.before.values, *self.after.values) > 0


NO_FLOOR = "no noise floor known"


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """A relative change (0.03 is 3 %) that is no evidence of a difference, and its source."""

    change: float = 0.0
    source: str = NO_FLOOR

    @property
    def known(self) -> bool:
        """Whether there was data to estimate a floor."""
        return self != NoiseFloor()


def side_values(values: Values) -> SideValues:
    """The values of one side in the order of their rounds."""
    rounds = tuple(sorted(values))
    ordered = tuple(float(values[number]) for number in rounds)
    return SideValues(
        values=ordered,
        rounds=rounds,
        median=rounded_value(float(np.median(ordered))) if ordered else float("nan"),
        outlying_rounds=tuple(rounds[i] for i in outlier_positions(ordered)),
    )


def unjudged(before: Values, after: Values, *, paired: bool) -> Evidence:
    """The samples to be judged, and whether they are pairs.

    Paired samples hold only the rounds that both sides have; if these are too few, the sides are treated as
    independent samples.
    """
    common = before.keys() & after.keys()
    if paired and len(common) >= SMALLEST_SAMPLE:
        kept = [{number: values[number] for number in common} for values in (before, after)]
        return Evidence(side_values(kept[0]), side_values(kept[1]), paired=True)
    return Evidence(side_values(before), side_values(after), paired=False)


def gather(
    before: Values, after: Values, *, paired: bool, family: int, alpha: float = 0.05
) -> Evidence:
    """The evidence of one cell among `family` cells that are compared at level `alpha`."""
    found = replace(unjudged(before, after, paired=paired), family=family)
    first, second, paired = found.before, found.after, found.paired
    if found.count == 0 or min(*first.values, *second.values) <= 0:
        return found
    interval = ratio_interval(first.values, second.values, paired=paired)
    outcome = (
        paired_test(np.log(second.values) - np.log(first.values))
        if paired
        else unpaired_test(first.values, second.values)
    )
    apart = separated(first.values, second.values, paired=paired)
    reachable = outcome.smallest_p * family <= alpha
    deciding = outcome.p
    if not reachable and apart and found.count >= SMALLEST_SAMPLE:
        deciding = student_p(first.values, second.values, paired=paired)
    return replace(
        found,
        interval=replace(
            interval,
            ratio=rounded_ratio(interval.ratio),
            low=rounded_ratio(interval.low),
            high=rounded_ratio(interval.high),
        ),
        p=rounded_p(outcome.p),
        smallest_p=outcome.smallest_p,
        test=outcome.method,
        way=outcome.way,
        reachable=reachable,
        separated=apart,
        deciding_p=deciding,
        adjusted_p=rounded_p(min(1.0, deciding * family)),
    )


def adjust(evidence: list[Evidence]) -> list[Evidence]:
    """The evidence with Holm's correction over all of it."""
    adjusted = holm([found.deciding_p for found in evidence])
    return [
        replace(found, adjusted_p=rounded_p(p)) for found, p in zip(evidence, adjusted, strict=True)
    ]


def rounds_needed(family: int, alpha: float, *, paired: bool) -> int:
    """The fewest rounds per side with which an exact p can pass level `alpha` in this family."""
    rounds = SMALLEST_SAMPLE
    while True:
        smallest = smallest_paired_p(rounds) if paired else smallest_unpaired_p(rounds, rounds)
        if smallest * family <= alpha:
            return rounds
        rounds += 1
