"""Checks the rules that involve more than one key of a scenario, and gives the reason for each problem.

There is one module per part of the file. Two checks happen elsewhere: a strategy checks its own options
when it is bound, and data is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.scenario.consistency import arms, batches, data, gate, table, topologies
from serde_lab.scenario.model import Scenario
from serde_lab.scenario.problems import Problem

_PARTS = (data, batches, table, arms, topologies, gate)


def check(scenario: Scenario) -> Iterator[Problem]:
    """Every problem, in the order of the file."""
    for part in _PARTS:
        yield from part.check(scenario)
