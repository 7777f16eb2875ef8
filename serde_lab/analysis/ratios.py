"""Estimates how many times longer one thing takes than another, and which share of a whole a part is.

Each estimate has an interval over rounds. Rounds in which both were measured are pairs; between rounds of
different runs or points the interval is Welch's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special  # not scipy.stats, whose import takes a second

Numbers = Sequence[float] | npt.NDArray[np.float64]

CONFIDENCE = 0.95
CHANCE = 0.80
"""With this chance the rounds that `Ratio.more_rounds` asks for decide a ratio."""
_MOST_ROUNDS = 1000
_MOST_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Ratio:
    """The geometric mean of a ratio over rounds, with its 95 % interval: Student's t on the logarithms.

    `low` and `high` are None for a single round, which says nothing about noise. `among`: how many
    ratios this one was chosen from after they were seen; its interval is widened for that (Bonferroni).
    """

    value: float
    low: float | None
    high: float | None
    rounds: int
    among: int = 1

    @property
    def inverse(self) -> Ratio:
        """The ratio the other way round."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Ratio(1 / self.value, low, high, self.rounds, self.among)

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out 1, as it is shown."""
        if self.shown is None:
            return False
        low, high = self.shown
        return not low <= 1 <= high

    @property
    def more_rounds(self) -> int | None:
        """How many rounds more would decide it: 0 if it is decided, None if that cannot be estimated.

        If the ratio and its spread stay as measured, the interval of that many rounds in all leaves out 1
        with a chance of 80 % (noncentral t). A single round has no spread, and a ratio that needs more than
        1,000 rounds is as good as 1.
        """
        if self.decided:
            return 0
        if self.low is None or self.high is None or not self.low < self.high:
            return None
        if _chance(self, _MOST_ROUNDS) < CHANCE:
            return None
        few, enough = self.rounds, _MOST_ROUNDS
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if _chance(self, middle) >= CHANCE else (middle, enough)
        return enough - self.rounds

    @property
    def doubt(self) -> str:
        """That it is undecided, and how many rounds more would decide it; "" if decided or exactly 1."""
        if self.decided or (self.low is not None and self.low == self.high):
            return ""
        if self.low is None:
            return "undecided: one round shows no spread"
        if self.more_rounds is None:
            return f"undecided: more than {_MOST_ROUNDS:,} rounds"
        return f"undecided: {self.more_rounds} more round{'' if self.more_rounds == 1 else 's'}"

    @property
    def finding(self) -> str:
        """The interval, with the doubt that it leaves; "" for a single round, or an arm against itself."""
        return self.range and ", ".join(part for part in (self.range, self.doubt) if part)

    @property
    def text(self) -> str:
        """The value with no more decimals than its interval supports."""
        return f"{self.value:.{self._decimals}f}"

    @property
    def range(self) -> str:
        """The interval, such as "1.9 to 2.4", its ends rounded away from each other; "" if there is none, as
        for an arm against itself."""
        if self.shown is None or self.low == self.high:
            return ""
        low, high = self.shown
        return f"{low:.{self._decimals}f} to {high:.{self._decimals}f}"

    @property
    def times(self) -> str:
        """In words, such as "2.1 times (95 % interval 1.9 to 2.4)"."""
        return f"{self.text} times" + (f" (95 % interval {self.range})" if self.range else "")

    @property
    def chosen(self) -> str:
        """What follows its interval if it was chosen from several; "" if not."""
        return f", for the largest of {self.among} ratios" if self.among > 1 else ""

    @property
    def at_least(self) -> str:
        """The interval's lower end, rounded down."""
        return "" if self.shown is None else f"{self.shown[0]:.{self._decimals}f}"

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval's ends with the decimals that it supports: never narrower than the interval."""
        if self.low is None or self.high is None:
            return None
        return outward(self.low, self.high, self._decimals)

    @property
    def _decimals(self) -> int:
        """So many that half the interval's width has one significant digit, or two if they are below 35: the
        rule of the Particle Data Group (Review of Particle Physics, 5.3)."""
        if self.low is None or self.high is None:
            return 1 if self.value >= 1 else 2
        half = (self.high - self.low) / 2
        if half <= 0:
            return _MOST_DECIMALS
        exponent = math.floor(math.log10(half))
        decimals = -exponent + (half / 10**exponent < 3.55)
        return min(_MOST_DECIMALS, max(0, decimals))


def outward(low: float, high: float, decimals: int) -> tuple[float, float]:
    """An interval with so many decimals, each end rounded away from the other: it never claims more."""
    unit = 10**decimals
    # what stands on a decimal stays there, whatever its last bit says
    small, large = low * unit, high * unit
    ends = (
        round(small) if math.isclose(small, round(small)) else math.floor(small),
        round(large) if math.isclose(large, round(large)) else math.ceil(large),
    )
    return ends[0] / unit, ends[1] / unit


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole; `low` and `high` are its 95 % interval, None for a single round.

    The interval is that of a ratio of two means over rounds (the delta method, Student's t).
    """

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, part: Sequence[float], whole: Sequence[float]) -> Share:
        """`part` and `whole`: their values by round, which may be logarithms of ratios."""
        some, all_ = np.asarray(part), np.asarray(whole)
        mean = float(all_.mean())
        if mean == 0:
            return cls(0.0)
        value = float(some.mean()) / mean
        if len(some) < 2:
            return cls(value)
        away = (some - value * all_) / mean
        reach = _standard_error(away) * two_sided_t(len(some) - 1)
        return cls(value, value - reach, value + reach)

    @property
    def percent(self) -> str:
        """In whole per cent."""
        return f"{signed(100 * self.value, 'z.0f')} %"

    @property
    def range(self) -> str:
        """The interval in whole per cent, its ends rounded away from each other; "" if there is none."""
        if self.low is None or self.high is None:
            return ""
        low, high = outward(100 * self.low, 100 * self.high, 0)
        return f"{signed(low, 'z.0f')} to {signed(high, 'z.0f')} %"


def signed(value: float, form: Literal["z.0f", "+z.1f"]) -> str:
    """`value` in Python's format `form`, with a minus sign for the hyphen; what rounds to 0 has none (z)."""
    return format(value, form).replace("-", "\N{MINUS SIGN}")


def _chance(ratio: Ratio, rounds: int) -> float:
    """The chance that the interval of `rounds` rounds leaves out 1, with the ratio's own value and spread."""
    assert ratio.low is not None
    assert ratio.high is not None
    reach = math.log(ratio.high / ratio.low) / 2
    spread = reach * math.sqrt(ratio.rounds) / two_sided_t(ratio.rounds - 1, ratio.among)
    away = abs(math.log(ratio.value)) * math.sqrt(rounds) / spread
    return 1 - float(special.nctdtr(rounds - 1, away, two_sided_t(rounds - 1, ratio.among)))


def two_sided_t(freedom: float, among: int = 1) -> float:
    """How many standard errors a 95 % interval reaches to each side: Student's t; `among` as of `Ratio`."""
    return float(special.stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2 / among))


def ratio_of(logs: Sequence[float], among: int = 1) -> Ratio:
    """The ratio whose logarithm in each round is in `logs`; there is at least one. `among` as of `Ratio`."""
    values = np.asarray(logs, np.float64)
    mean = float(values.mean())
    if values.size < 2:
        return Ratio(math.exp(mean), None, None, values.size, among)
    reach = _standard_error(values) * two_sided_t(values.size - 1, among)
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    return Ratio(math.exp(mean), low, high, values.size, among)


def paired_ratio(
    values: Mapping[int, float], others: Mapping[int, float], *, among: int = 1
) -> Ratio | None:
    """`values` over `others`, both by round; None without a common round. `among` as of `Ratio`."""
    logs = paired_logs(values, others)
    return ratio_of(list(logs.values()), among) if logs else None


def paired_logs(values: Mapping[int, float], others: Mapping[int, float]) -> dict[int, float]:
    """The logarithm of `values` over `others` for each common round with positive values."""
    return {
        number: math.log(value / others[number])
        for number, value in values.items()
        if value > 0 and others.get(number, 0) > 0
    }


def stated_ratio(arm: Mapping[str, Any], of: str = "") -> Ratio | None:
    """The ratio to the reference that a run's summary states of an arm; None without one.

    `of` is "" for seconds, "cpu_" for the CPU time of all processes.
    """
    if arm[f"{of}ratio_to_reference"] is None:
        return None
    low, high = arm[f"{of}ratio_interval"] or (None, None)
    return Ratio(arm[f"{of}ratio_to_reference"], low, high, arm[f"{of}ratio_rounds"])


def unpaired_ratio(values: Numbers, others: Numbers, scale: float = 1.0) -> Ratio:
    """The geometric mean of `values` over that of `others` and over `scale`, with Welch's 95 % interval.

    There is no interval if either has a single value. All values are positive.
    """
    shift, error, freedom = log_difference(others, values, paired=False)
    mean = shift - math.log(scale)
    rounds = min(len(values), len(others))
    if rounds < 2:
        return Ratio(math.exp(mean), None, None, rounds)
    reach = error * two_sided_t(freedom)
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), rounds)


def log_difference(before: Numbers, after: Numbers, *, paired: bool) -> tuple[float, float, float]:
    """Difference of mean logs, its standard error, and its degrees of freedom; Welch's if not paired.

    The error is infinite if a side has a single value.
    """
    first, second = np.log(np.asarray(before)), np.log(np.asarray(after))
    shift = float(second.mean() - first.mean())
    if min(first.size, second.size) < 2:
        return shift, math.inf, 1.0
    if paired:
        return shift, _standard_error(second - first), float(first.size - 1)
    parts = [_standard_error(side) ** 2 for side in (first, second)]
    variance = sum(parts)
    if variance <= 1e-24:
        return shift, 0.0, float(first.size + second.size - 2)
    freedom = variance**2 / (parts[0] ** 2 / (first.size - 1) + parts[1] ** 2 / (second.size - 1))
    return shift, math.sqrt(variance), freedom


def _standard_error(values: npt.NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / math.sqrt(values.size))
