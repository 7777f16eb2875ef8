"""Measures how cost grows along a sweep: a + b n^k fitted to an arm's seconds, the last step, and memory.

The fit is scipy's least squares with relative errors, so that small runs count as much as large ones. This
module also holds the limits up to which growth counts as linear. Input is a run's summary.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from serde_lab.analysis.ratios import Ratio, two_sided_t
from serde_lab.analysis.rounding import rounded, text

MOST_EXPONENT = 1.05
"""The greatest k that counts as linear growth."""
MOST_LAST_STEP = 1.05
"""In the last step, seconds may grow by this times the growth of the swept value: from 3 to 10, by 3.5."""
_FLAT = 1e-6
FEWEST_POINTS = 4
"""With three unknowns, a curve passes through any three points."""


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """One value of the sweep: seconds of every round and their median, rows, and peak memory of a worker, of
    which the last two are None if unknown."""

    value: float
    seconds: float
    by_round: tuple[float, ...]
    rows: float | None
    peak_worker_rss_bytes: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """seconds = a_s + b_s * value ** k, and the 95 % interval of k; infinite if the points leave it open."""

    a_s: float
    b_s: float
    k: float
    k_low: float
    k_high: float

    @property
    def exponent(self) -> Ratio:
        """k with its interval, if it has one."""
        known = math.isfinite(self.k_low)
        return Ratio(self.k, self.k_low if known else None, self.k_high if known else None, 0)


@dataclass(frozen=True, slots=True)
class Growth:
    """An arm along a sweep; `missing` holds the values at which it has no valid timing."""

    arm: str
    key: str
    points: tuple[GrowthPoint, ...]
    missing: tuple[float, ...]
    fit: Fit | None
    worker_memory_bytes: int

    @property
    def k(self) -> Ratio | None:
        """The exponent of the curve; None if there are too few points."""
        return None if self.fit is None else self.fit.exponent

    @property
    def last_step(self) -> Ratio | None:
        """Seconds at the last value over seconds at the value before it, by geometric means of rounds.

        Each value has rounds of its own, so none are paired: the interval comes from the spread between
        rounds of one value, pooled over all values.
        """
        if len(self.points) < 2:
            return None
        logs = [np.log(point.by_round) for point in self.points]
        before, last = logs[-2:]
        value = math.exp(last.mean() - before.mean())
        freedom = sum(one.size - 1 for one in logs)
        rounds = min(before.size, last.size)
        if not freedom:
            return Ratio(value, None, None, rounds)
        spread = math.sqrt(sum(float(np.square(one - one.mean()).sum()) for one in logs) / freedom)
        error = spread * math.sqrt(1 / before.size + 1 / last.size)
        reach = math.exp(error * two_sided_t(freedom))
        return Ratio(value, value / reach, value * reach, rounds)

    @property
    def most_last_step(self) -> float | None:
        if len(self.points) < 2:
            return None
        return MOST_LAST_STEP * self.points[-1].value / self.points[-2].value

    @property
    def is_straight(self) -> bool | None:
        """Whether k and the last step keep their limits, by their intervals as shown; None if not decided."""
        k, step, most = self.k, self.last_step, self.most_last_step
        if k is None or self.missing or step is None or most is None:
            return None
        limits = ((k.shown, MOST_EXPONENT), (step.shown, rounded("ratio", most)))
        known = [(ends, limit) for ends, limit in limits if ends is not None]
        if any(low > limit for (low, _), limit in known):
            return False
        within = len(known) == len(limits) and all(high <= limit for (_, high), limit in known)
        return within or None

    @property
    def fits_memory(self) -> bool | None:
        """Whether every worker stayed below `worker_memory_mb`; None if not known of them all."""
        peaks = [point.peak_worker_rss_bytes or 0.0 for point in self.points]
        if any(peak > self.worker_memory_bytes for peak in peaks):
            return False
        return True if peaks and all(peaks) and not self.missing else None

    @property
    def verdict(self) -> str:
        """In words: whether cost grows linearly and memory stays within its limit."""
        return self._of_cost + (", exceeds worker_memory_mb" if self.fits_memory is False else "")

    @property
    def _of_cost(self) -> str:
        if self.missing:
            return f"no timing at {', '.join(f'{value:g}' for value in self.missing)}"
        if self.fit is None:
            return f"{len(self.points)} points, too few for a curve ({FEWEST_POINTS})"
        if self.is_straight is None:
            return "not decided"
        return "linear" if self.is_straight else "more than linear"

    def to_json(self) -> dict[str, Any]:
        step = self.last_step
        return {
            **asdict(self),
            "last_step": step.value if step else None,
            "last_step_interval": [step.low, step.high] if step and step.low is not None else None,
            "most_last_step": self.most_last_step,
            "straight": self.is_straight,
            "fits_memory": self.fits_memory,
            "verdict": self.verdict,
        }


def growth(summary: Mapping[str, Any], content: Mapping[str, Any]) -> list[Growth]:
    """The growth of every arm of a sweep; empty for a run without one, and for a stream's."""
    sweep = content.get("sweep")
    if not sweep or content.get("stream"):
        return []
    arms: dict[str, list[Mapping[str, Any]]] = {}
    for arm in summary["arms"]:
        if arm.get("swept"):
            arms.setdefault(arm["swept"]["arm"], []).append(arm)
    memory = int(content.get("measure", {}).get("worker_memory_mb", 1024)) << 20
    found = []
    for name, entries in arms.items():
        timed = [one for one in entries if one["seconds"] is not None]
        points = tuple(
            GrowthPoint(
                float(one["swept"]["value"]),
                float(one["seconds"]["median"]),
                tuple(map(float, one["seconds"]["values"])),
                one["rows"],
                one["peak_worker_rss_bytes"],
            )
            for one in timed
        )
        missing = tuple(float(e["swept"]["value"]) for e in entries if e not in timed)
        found.append(Growth(name, str(sweep["key"]), points, missing, fit_power(points), memory))
    return found


def values_of(found: Sequence[Growth]) -> tuple[float, ...]:
    """Every value of the sweep, with or without a timing."""
    measured = {point.value for one in found for point in one.points}
    return tuple(sorted(measured | {value for one in found for value in one.missing}))


def fit_power(points: Sequence[GrowthPoint]) -> Fit | None:
    """Fit a + b n^k by least squares of relative errors, a and b not negative; None if points are too few."""
    if len(points) < FEWEST_POINTS:
        return None
    from scipy.optimize import OptimizeWarning, curve_fit

    n = np.array([point.value for point in points], np.float64)
    seconds = np.array([point.seconds for point in points], np.float64)
    # Scale values by the last one: a and b then have the magnitude of the fitted seconds.
    scaled = n / n[-1]

    def curve(x: npt.NDArray[np.float64], a: float, b: float, k: float) -> npt.NDArray[np.float64]:
        return a + b * x**k

    with warnings.catch_warnings():
        # warns that the covariance cannot be estimated, if the points lie exactly on the curve
        warnings.simplefilter("ignore", OptimizeWarning)
        (a, b, k), covariance = curve_fit(
            curve,
            scaled,
            seconds,
            p0=(seconds[0] / 2, seconds[-1], 1.0),
            sigma=seconds,
            bounds=((0.0, 0.0, 0.1), (np.inf, np.inf, 4.0)),
            max_nfev=20_000,
        )
    # a flat curve has any exponent
    known = b > _FLAT * (a + b)
    reach = float(np.sqrt(covariance[2, 2])) * two_sided_t(len(points) - 3) if known else math.inf
    return Fit(float(a), float(b / n[-1] ** k), float(k), float(k - reach), float(k + reach))


def with_interval(ratio: Ratio | None) -> str:
    """The value and its interval, rounded; a dash for None."""
    if ratio is None:
        return text("ratio", None)
    return f"{ratio.text} ({ratio.range})" if ratio.range else ratio.text


def shown_step(one: Growth) -> str:
    """The last step with its interval, and its limit."""
    most = one.most_last_step
    limit = text("ratio", None) if most is None else f"{rounded('ratio', most):g}"
    return f"{with_interval(one.last_step)}, limit {limit}"
