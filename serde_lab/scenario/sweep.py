"""Expands a sweep into one scenario for each value of the swept key, and names the arms of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from serde_lab.errors import ScenarioError
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.scenario.overrides import apply_overrides
from serde_lab.scenario.problems import Problem

_NOT_SWEPT = ("name", "title", "question", "reference", "sweep", "gate")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One value of a sweep with its scenario; `value` is None if there is no sweep."""

    scenario: Scenario
    value: float | None = None

    def arm_name(self, arm: str) -> str:
        """The name of `arm` at this point, such as `arrow@0.3`."""
        return arm if self.value is None else f"{arm}@{self.value:g}"

    def arms(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """This point's versions of `arms`, with the names that they have here."""
        names = {arm.name for arm in arms}
        chosen = [arm for arm in self.scenario.arms if arm.name in names]
        return tuple(
            arm.model_copy(update={"name": self.arm_name(arm.name)})
            for arm in chosen
            if self.value is None or arm.up_to is None or self.value <= arm.up_to
        )


def points_of(
    scenario: Scenario, parse: Callable[[Mapping[str, Any], str], Scenario]
) -> tuple[SweepPoint, ...]:
    """The points in the order of their values; `parse` makes a scenario out of a document.

    Raises ScenarioError if the key does not exist or does not accept a value.
    """
    if scenario.sweep is None:
        return (SweepPoint(scenario),)
    content = {**scenario.to_json(), "sweep": None}
    key, also = scenario.sweep.key, scenario.sweep.also
    return tuple(
        SweepPoint(
            parse(
                apply_overrides(content, [(key, value), *((k, v[n]) for k, v in also.items())]),
                f"{key} = {value:g}",
            ),
            value,
        )
        for n, value in enumerate(scenario.sweep.values)
    )


def sweep_problems(
    scenario: Scenario, parse: Callable[[Mapping[str, Any], str], Scenario]
) -> Iterator[Problem]:
    """Problems of `[sweep]`: its key, its values, or a scenario that results from them."""
    if scenario.sweep is None:
        return
    key, values = scenario.sweep.key, scenario.sweep.values
    for where, swept in (("key", key), *(("also", one) for one in scenario.sweep.also)):
        if swept.split(".")[0] in _NOT_SWEPT or swept.startswith("measure.rounds"):
            yield Problem(f"sweep.{where}", f"{swept!r} changes nothing that is measured")
            return
    for other, given in scenario.sweep.also.items():
        if len(given) != len(values):
            yield Problem(
                "sweep.also",
                f"gives {other!r} {len(given)} values, but {key!r} has {len(values)}",
            )
            return
    if any(later <= earlier for earlier, later in pairwise(values)):
        yield Problem("sweep.values", "are not in rising order")
        return
    for value in values:
        if not SweepPoint(scenario, value).arms(scenario.arms):
            yield Problem("sweep.values", f"{value:g} is above `up_to` of every arm")
            return
    try:
        points_of(scenario, parse)
    except ScenarioError as exc:
        yield Problem("sweep", exc.message)
