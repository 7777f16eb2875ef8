"""Estimates how many times longer one arm takes than another, from rounds in which both were measured.

Also how many times faster an arm is than peers, and than controls that write the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from serde_lab.analysis.cell_values import Rounds

CONFIDENCE = 0.95
_MOST_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Ratio:
    """The geometric mean of a ratio over rounds, with its 95 % interval: Student's t on the logarithms.

    `low` and `high` are None for a single round, which says nothing about noise.
    """

    value: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def inverse(self) -> Ratio:
        """The ratio the other way round."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Ratio(1 / self.value, low, high, self.rounds)

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def text(self) -> str:
        """The value with no more decimals than its interval supports."""
        return f"{self.value:.{self._decimals}f}"

    @property
    def range(self) -> str:
        """The interval, such as "1.9 to 2.4"; "" if there is none, as for an arm against itself."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        return f"{self.low:.{self._decimals}f} to {self.high:.{self._decimals}f}"

    @property
    def at_least(self) -> str:
        """The interval's lower end, rounded down."""
        if self.low is None:
            return ""
        unit = 10**self._decimals
        return f"{math.floor(self.low * unit) / unit:.{self._decimals}f}"

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


def ratio_of(logs: Sequence[float]) -> Ratio:
    """The ratio whose logarithm in each round is in `logs`; there is at least one."""
    values = np.asarray(logs, np.float64)
    mean = float(values.mean())
    if values.size < 2:
        return Ratio(math.exp(mean), None, None, values.size)
    error = float(values.std(ddof=1) / math.sqrt(values.size))
    reach = error * float(stats.t.isf((1 - CONFIDENCE) / 2, values.size - 1))
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), values.size)


def paired_ratio(values: Mapping[int, float], others: Mapping[int, float]) -> Ratio | None:
    """`values` over `others`, both by round; None without a common round."""
    logs = paired_logs(values, others)
    return ratio_of(list(logs.values())) if logs else None


def paired_logs(values: Mapping[int, float], others: Mapping[int, float]) -> dict[int, float]:
    """The logarithm of `values` over `others` for each common round with positive values."""
    return {
        number: math.log(value / others[number])
        for number, value in values.items()
        if value > 0 and others.get(number, 0) > 0
    }


def stated_ratio(arm: Mapping[str, Any]) -> Ratio | None:
    """The ratio to the reference that a run's summary states of an arm; None without one."""
    if arm["ratio_to_reference"] is None:
        return None
    low, high = arm["ratio_interval"] or (None, None)
    return Ratio(arm["ratio_to_reference"], low, high, arm["rounds"])


@dataclass(frozen=True, slots=True)
class PeerRatio:
    """`against`'s seconds over `arm`'s, for each commit and over all: above 1 the arm is faster.

    A round's value over all commits is the geometric mean of its commits' ratios.
    """

    arm: str
    against: str
    commits: tuple[Ratio, ...]
    mean: Ratio

    def to_json(self) -> dict[str, Any]:
        """For `show --format json`."""
        return {
            "arm": self.arm,
            "against": self.against,
            "commits": [ratio.value for ratio in self.commits],
            "mean": self.mean.value,
            "low": self.mean.low,
            "high": self.mean.high,
            "rounds": self.mean.rounds,
        }


def peer_ratios(arms: Sequence[Mapping[str, Any]], timed: Mapping[str, Rounds]) -> list[PeerRatio]:
    """The ratio of every strategy to every control and peer, and of every control to every peer.

    `arms` are those of a run's summary, and `timed` has the rounds of each with a timing that can be shown.
    Only arms that write the same kind of table are compared, and only if they have a round in common. Empty
    for a run without peers.
    """
    if not any(arm["kind"] == "peer" for arm in arms):
        return []
    rank = {"strategy": 0, "control": 1, "peer": 2}
    pairs = (
        (one["arm"], other["arm"])
        for one in arms
        for other in arms
        if rank[one["kind"]] < rank[other["kind"]] and one.get("table") == other.get("table")
    )
    found = (times_faster(*pair, timed) for pair in pairs)
    return [one for one in found if one is not None]


def times_faster(arm: str, against: str, timed: Mapping[str, Rounds]) -> PeerRatio | None:
    """The ratio of two arms; None if they differ in their commits, or have no common round."""
    ours, theirs = _commit_seconds(timed[arm]), _commit_seconds(timed[against])
    if not ours or ours.keys() != theirs.keys():
        return None
    logs = [paired_logs(theirs[n], ours[n]) for n in sorted(ours)]
    common = sorted(set.intersection(*(set(one) for one in logs)))
    if not common:
        return None
    of_rounds = [math.fsum(one[number] for one in logs) / len(logs) for number in common]
    commits = tuple(ratio_of([one[number] for number in common]) for one in logs)
    return PeerRatio(arm, against, commits, ratio_of(of_rounds))


def _commit_seconds(rounds: Rounds) -> dict[int, dict[int, float]]:
    """The seconds of each commit, by round."""
    found: dict[int, dict[int, float]] = {}
    for number, values in rounds.items():
        for commit in values.commits:
            if "seconds" in commit.metrics:
                found.setdefault(commit.n, {})[number] = commit.metrics["seconds"]
    return found
