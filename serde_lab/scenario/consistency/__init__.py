"""What a scenario may not combine, each with the reason.

Owns rules that need more than one key, a module for each part of the file. Must not know a strategy's
own options, which the strategy checks when it is bound, nor data, which is checked when it is read.
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
