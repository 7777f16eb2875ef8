"""Compares the points of `[shapes]` with the middle: what an arm's seconds become per row, value and byte.

The rows of two points differ, so rounds are not pairs: an interval is Welch's, on the logarithms of the
rounds. Arms at one point share its rounds, and are compared pair by pair. Input is a run's summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from serde_lab.analysis.cell_values import Rounds, by_round
from serde_lab.analysis.ratios import CONFIDENCE, Ratio, paired_ratio, unpaired_ratio

MOST_TIMES = 2.0
"""By value or by byte, whichever is kinder, a strategy should cost at most this many times the middle."""

Unit = Literal["value", "byte"]


@dataclass(frozen=True, slots=True)
class Place:
    """One point: `factor` is "" and `value` None in the middle. Sizes are those of the timed rows."""

    factor: str
    value: float | str | None
    rows: int
    values: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ShapeCost:
    """An arm at one point relative to the middle: seconds end to end per row, per value and per byte.

    `serde` is SerDe's CPU time by the kinder unit, and `cpu` that of all processes; None if nothing was
    measured.
    """

    arm: str
    factor: str
    value: float | str
    seconds: float
    per_row: Ratio
    per_value: Ratio
    per_byte: Ratio
    serde: Ratio | None
    cpu: Ratio | None

    @property
    def unit(self) -> Unit:
        """By value or by byte: the unit by which the cost grew less."""
        return "value" if self.per_value.value <= self.per_byte.value else "byte"

    @property
    def kinder(self) -> Ratio:
        """The cost in that unit."""
        return self.per_value if self.unit == "value" else self.per_byte

    @property
    def verdict(self) -> str:
        """Whether it costs more than twice the middle, by the interval as it is shown; "" if not."""
        if self.kinder.shown is None:
            return "one round decides nothing"
        low, high = self.kinder.shown
        if low > MOST_TIMES:
            return "more than twice"
        return "perhaps more than twice" if high > MOST_TIMES else ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kinder": self.unit, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two arms of which `first` is faster in the middle, and how they compare at a value of a factor.

    Both ratios are `first`'s seconds over `second`'s. The interval in the middle leaves out 1.
    """

    factor: str
    value: float | str
    first: str
    second: str
    in_the_middle: Ratio
    at_the_value: Ratio

    @property
    def changes_places(self) -> bool:
        """Whether `second` is faster at the value, with an interval that leaves out 1."""
        return self.at_the_value.decided and self.at_the_value.value > 1


@dataclass(frozen=True, slots=True)
class ShapeCosts:
    """All points of a run of `[shapes]`: `factors` has each factor's values in order, the middle's with them.

    `compared` is the number of pairs, over all points, of which one is faster in the middle. `missing` names
    the arms without a timing in the middle, to which nothing is relative.
    """

    factors: Mapping[str, tuple[float | str, ...]]
    middles: Mapping[str, float | str]
    arms: tuple[str, ...]
    costs: tuple[ShapeCost, ...]
    changed: tuple[Pair, ...]
    compared: int
    missing: tuple[str, ...]

    def of(self, arm: str, factor: str) -> dict[float | str, ShapeCost]:
        """An arm's costs along a factor, by value; the middle has none."""
        return {one.value: one for one in self.costs if (one.arm, one.factor) == (arm, factor)}

    @property
    def extremes(self) -> tuple[tuple[str, float | str], ...]:
        """The first and the last value of each factor, without the middle."""
        return tuple(
            (factor, value)
            for factor, values in self.factors.items()
            for value in (values[0], values[-1])
            if value != self.middles[factor]
        )

    @property
    def by_chance(self) -> float:
        """How many pairs would change places in `compared` if all were equally fast outside the middle."""
        return self.compared * (1 - CONFIDENCE) / 2

    @property
    def worst(self) -> ShapeCost | None:
        """The greatest cost relative to the middle, in the kinder unit."""
        return max(self.costs, key=lambda one: one.kinder.value, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "costs": [one.to_json() for one in self.costs],
            "changed_places": [asdict(one) for one in self.changed],
            "compared_pairs": self.compared,
            "missing": list(self.missing),
        }


def shape_costs(
    arms: Sequence[Mapping[str, Any]],
    content: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    timed: Mapping[str, Rounds],
) -> ShapeCosts | None:
    """The points of a run of `[shapes]`; None for any other run.

    `arms` are those of its summary, `points` those of its header's settings.
    """
    shapes = content.get("shapes")
    if not shapes:
        return None
    places = [_place(point) for point in points]
    known = {(place.factor, place.value): place for place in places}
    by_point: dict[tuple[str, float | str | None], dict[str, Rounds]] = {}
    names: dict[str, None] = {}
    for arm in arms:
        at = arm["swept"]
        names[at["arm"]] = None
        if timed[arm["arm"]]:
            by_point.setdefault((at["factor"], at["value"]), {})[at["arm"]] = timed[arm["arm"]]
    middle = by_point.get(("", None), {})
    costs = [
        _cost(name, known[at], known["", None], rounds, middle[name])
        for at, of_arms in by_point.items()
        if at[0]
        for name, rounds in of_arms.items()
        if name in middle
    ]
    order = {(place.factor, place.value): n for n, place in enumerate(places)}
    costs.sort(key=lambda one: (order[one.factor, one.value], list(names).index(one.arm)))
    factors = {one["name"]: tuple(one["values"]) for one in shapes["factor"]}
    pairs = [one for at in order if at[0] and at in by_point for one in _compared(at, by_point)]
    return ShapeCosts(
        factors=factors,
        middles={
            name: next(value for value in values if (name, value) not in known)
            for name, values in factors.items()
        },
        arms=tuple(names),
        costs=tuple(costs),
        changed=tuple(pair for pair in pairs if pair.changes_places),
        compared=len(pairs),
        missing=tuple(name for name in names if name not in middle),
    )


def _place(point: Mapping[str, Any]) -> Place:
    rows = sum(int(n) for n in point["rows"].values())
    return Place(point["factor"], point["value"], rows, int(point["values"]), int(point["bytes"]))


def _cost(arm: str, place: Place, middle: Place, here: Rounds, there: Rounds) -> ShapeCost:
    assert place.value is not None
    seconds = _both(here, there, "seconds")
    per_value, per_byte = place.values / middle.values, place.bytes / middle.bytes
    kinder = max(per_value, per_byte)
    return ShapeCost(
        arm=arm,
        factor=place.factor,
        value=place.value,
        seconds=float(np.median(seconds[0])),
        per_row=unpaired_ratio(*seconds, scale=place.rows / middle.rows),
        per_value=unpaired_ratio(*seconds, scale=per_value),
        per_byte=unpaired_ratio(*seconds, scale=per_byte),
        serde=_if_measured(_both(here, there, "serde_cpu_s"), kinder),
        cpu=_if_measured(_both(here, there, "tree_cpu_s"), kinder),
    )


def _if_measured(both: tuple[list[float], list[float]], scale: float) -> Ratio | None:
    measured = all(values and min(values) > 0 for values in both)
    return unpaired_ratio(*both, scale=scale) if measured else None


def _both(here: Rounds, there: Rounds, metric: str) -> tuple[list[float], list[float]]:
    """A metric in each round here, and in each round there."""
    return list(by_round(here, metric).values()), list(by_round(there, metric).values())


def _compared(
    at: tuple[str, float | str | None],
    by_point: Mapping[tuple[str, float | str | None], Mapping[str, Rounds]],
) -> Iterator[Pair]:
    """The pairs of arms at a point that the middle tells apart."""
    assert at[1] is not None
    here, there = by_point[at], by_point.get(("", None), {})
    for pair in combinations([name for name in there if name in here], 2):
        middle, now = (
            paired_ratio(*(by_round(rounds[name], "seconds") for name in pair))
            for rounds in (there, here)
        )
        if middle is None or now is None or not middle.decided:
            continue
        if middle.value < 1:
            yield Pair(at[0], at[1], *pair, middle, now)
        else:
            yield Pair(at[0], at[1], *pair[::-1], middle.inverse, now.inverse)
