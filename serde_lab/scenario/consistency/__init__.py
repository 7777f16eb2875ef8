"""Checks the rules that involve more than one key of a scenario, and gives the reason for each problem.

Two checks happen elsewhere: a strategy checks its own options when it is bound, and data is checked when it
is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.errors import RunError
from serde_lab.measure import phases
from serde_lab.measure.metrics import metric
from serde_lab.scenario.consistency.arms import check_arms
from serde_lab.scenario.consistency.batches import check_batches
from serde_lab.scenario.consistency.data_and_table import check_data, check_table
from serde_lab.scenario.consistency.kinds_of_run import (
    check_datasets,
    check_search,
    check_stream,
    within,
)
from serde_lab.scenario.model import Scenario
from serde_lab.scenario.problems import Problem, unknown_arm
from serde_lab.scenario.sweep import tables_of

_PARTS = (check_data, check_batches, check_table, check_arms)
_OF_PHASES = ("phase_cpu_s", "phase_wall_s")


def check(scenario: Scenario) -> Iterator[Problem]:
    """Every problem, in the order of the file."""
    # the micro-batches of a stream are alike: the first stands for all
    once = scenario.model_copy(update={"stream": None})
    found = [problem for part in _PARTS for problem in part(once)]
    yield from found
    for name, alone in list(tables_of(once).items())[1:]:
        of_it = (problem for part in _PARTS for problem in part(alone))
        # a problem of the arms alone was found with the first table already
        yield from (within(name, problem) for problem in of_it if problem not in found)
    yield from check_datasets(scenario)
    yield from check_stream(scenario)
    yield from check_search(scenario)
    yield from _gate(scenario)


def _gate(scenario: Scenario) -> Iterator[Problem]:
    names = [arm.name for arm in scenario.arms]
    if scenario.gate.control is not None:
        yield from unknown_arm("gate.control", scenario.gate.control, names)
    for name in scenario.gate.metrics or ():
        yield from _unknown_metric("gate.metrics", name)
    for number, limit in enumerate(scenario.gate.limits, 1):
        key = f"gate.limit.{number}"
        if limit.arm is not None:
            yield from unknown_arm(f"{key}.arm", limit.arm, names)
        if limit.metric is not None:
            yield from _without_limit(f"{key}.metric", limit.metric, limit.phase)
        if limit.phase is not None:
            yield from _unknown_phase(f"{key}.phase", limit.phase)
        if limit.relative is None and limit.absolute is None:
            yield Problem(key, "sets neither relative nor absolute")


def _unknown_metric(key: str, name: str) -> Iterator[Problem]:
    try:
        metric(name)
    except RunError as exc:
        yield Problem(key, exc.message)


def _without_limit(key: str, name: str, phase: str | None) -> Iterator[Problem]:
    """Problems of a limit's metric: it would never be applied."""
    problems = list(_unknown_metric(key, name))
    yield from problems
    if problems:
        return
    if (name in _OF_PHASES) != (phase is not None):
        expected = (
            f"a phase's limit is one of {' or '.join(_OF_PHASES)}, and theirs names its phase"
        )
        yield Problem(key, f"is {name!r}; {expected}")
    elif metric(name).kind == "exact":
        yield Problem(key, f"is {name!r}, which has no limit: any change counts")
    elif metric(name).kind == "compressed":
        yield Problem(key, f"is {name!r}, whose limit is gate.bytes")


def _unknown_phase(key: str, name: str) -> Iterator[Problem]:
    stage, verb = phases.split(name)
    known = phases.WHOLE_CELL if not stage else (*phases.VERBS, *phases.ASSIGNING)
    if (stage and stage not in phases.STAGES) or verb not in {one.name for one in known}:
        yield Problem(key, f"is {name!r}, which is no phase; expected one such as 'map.encode'")
