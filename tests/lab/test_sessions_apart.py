"""Spark sessions in processes of their own: their cells, what they raise, and their end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serde_lab.errors import LabError, SetupError
from serde_lab.lab.cells.peer_arms import SessionPlan
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.session.run_session import Measured, SessionsApart
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Scenario
from tests.lab.small_scenario import content, source

pytestmark = pytest.mark.spark
ARMS = ("internal_row", "arrow")


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return parse_scenario(content(source(tmp_path), ARMS, exchange="spark"))


@pytest.fixture
def apart(tmp_path: Path, scenario: Scenario) -> Iterator[SessionsApart]:
    plans = [SessionPlan(frozenset([arm])) for arm in ARMS]
    with SessionsApart(plans, measured(tmp_path, scenario)) as sessions:
        yield sessions
    assert not processes()


def measured(folder: Path, scenario: Scenario) -> Measured:
    inputs = prepare_inputs(scenario, folder / "cache", lambda text: None)
    return Measured(scenario, inputs, RunSettings(), folder, tidy_heap=False)


def processes() -> list[psutil.Process]:
    """Those that serve a session; one that has ended serves none, whoever waits for it."""
    return [
        one
        for one in psutil.Process().children()
        if one.status() != psutil.STATUS_ZOMBIE
        and any("spawn_main" in word for word in one.cmdline())
    ]


def test_each_arm_is_measured_in_its_own_process_until_that_one_dies(
    apart: SessionsApart, scenario: Scenario
) -> None:
    apart.set_up()
    assert {"numpy", "disk", "jvm"} <= apart.calibrate().keys()
    first, second = (scenario.arm(name) for name in ARMS)
    for arm in (first, second):
        result = apart.cell(arm.name, arm).measure()
        assert result.table is not None
        assert result.table.exists()
        assert result.foreign == 0 < result.sniffed
        apart.discard(arm.name)
        assert not result.table.exists()
    with pytest.raises(LabError, match="unknown strategy"):
        apart.cell("unknown", first.model_copy(update={"strategy": "unknown"})).measure()
    assert apart.cell("again", first).measure().table is not None
    dead, *_ = sorted(processes(), key=lambda one: one.pid)
    os.kill(dead.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(SetupError, match="internal_row ended with status -9"):
            apart.cell("dead", first).measure()
    # the other arms go on
    alive = apart.cell("alive", second).measure().table
    assert alive is not None
    apart.discard("dead")
    apart.discard("alive")
    assert not alive.exists()


def test_a_session_that_does_not_start_says_why_and_the_others_end(
    tmp_path: Path, scenario: Scenario
) -> None:
    huge = {"spark.driver.memory": "900t"}
    plans = [SessionPlan(frozenset(ARMS[:1])), SessionPlan(frozenset(ARMS[1:]), conf=huge)]
    with pytest.raises(SetupError, match="does not fit this machine's memory"):
        SessionsApart(plans, measured(tmp_path, scenario))
    assert not processes()
