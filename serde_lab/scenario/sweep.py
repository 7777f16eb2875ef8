"""A sweep: one scenario for each value of one of its numbers.

Owns how the scenario of a value is made, and what its arms are called. Must not know what is measured.
"""

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
    """One value of a sweep with its scenario; `value` is None where nothing is swept."""

    scenario: Scenario
    value: float | None = None

    def arm_name(self, arm: str) -> str:
        """What `arm` is called at this point: `arrow@0.3`."""
        return arm if self.value is None else f"{arm}@{self.value:g}"

    def arms(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """This point's own `arms`, by the names that they have here."""
        names = {arm.name for arm in arms}
        chosen = [arm for arm in self.scenario.arms if arm.name in names]
        return tuple(arm.model_copy(update={"name": self.arm_name(arm.name)}) for arm in chosen)


def points_of(
    scenario: Scenario, parse: Callable[[Mapping[str, Any], str], Scenario]
) -> tuple[SweepPoint, ...]:
    """The points in the order of their values; `parse` makes a scenario of a document.

    Raises ScenarioError where the key leads nowhere or does not take a value.
    """
    if scenario.sweep is None:
        return (SweepPoint(scenario),)
    content = {**scenario.to_json(), "sweep": None}
    key = scenario.sweep.key
    return tuple(
        SweepPoint(parse(apply_overrides(content, [(key, value)]), f"{key} = {value:g}"), value)
        for value in scenario.sweep.values
    )


def sweep_problems(
    scenario: Scenario, parse: Callable[[Mapping[str, Any], str], Scenario]
) -> Iterator[Problem]:
    """What is wrong with `[sweep]`: its key, its values, or a scenario that they make."""
    if scenario.sweep is None:
        return
    key, values = scenario.sweep.key, scenario.sweep.values
    if key.split(".")[0] in _NOT_SWEPT or key.startswith("measure.rounds"):
        yield Problem("sweep.key", f"{key!r} changes nothing that is measured")
        return
    if any(later <= earlier for earlier, later in pairwise(values)):
        yield Problem("sweep.values", "are not in rising order")
        return
    try:
        points_of(scenario, parse)
    except ScenarioError as exc:
        yield Problem("sweep", exc.message)
