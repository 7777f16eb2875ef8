"""Checks `[gate]`: names of arms, and limits that limit nothing."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.scenario.consistency.wording import unknown_arm
from serde_lab.scenario.model import Scenario
from serde_lab.scenario.problems import Problem


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[gate]`."""
    names = [arm.name for arm in scenario.arms]
    if scenario.gate.control is not None:
        yield from unknown_arm("gate.control", scenario.gate.control, names)
    for number, limit in enumerate(scenario.gate.limits, 1):
        if limit.arm is not None:
            yield from unknown_arm(f"gate.limit.{number}.arm", limit.arm, names)
        if limit.relative is None and limit.absolute is None:
            yield Problem(f"gate.limit.{number}", "sets neither relative nor absolute")
