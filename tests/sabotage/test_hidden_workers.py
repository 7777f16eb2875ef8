"""Threads and processes that work for a strategy beside Spark's workers are caught by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from tests.lab.plugin_folder import install
from tests.lab.small_scenario import NAME, content, source, toml
from tests.sabotage.cheats import ALL
from tests.short_lived import OWN_DAEMON

pytestmark = pytest.mark.spark

CAUGHT_BY = {
    "keeps_a_thread": "work_is_inside_timers",
    "keeps_a_process": "processes_work_in_phases",
    "works_in_the_driver": "work_is_inside_timers",
}
HONEST = ("honest", "arrow")
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on Spark of the cheats and two honest arms, in a process of its own."""
    tmp = tmp_path_factory.mktemp("hidden")
    site = tmp / "site"
    install(
        site,
        Path(__file__).with_name("cheats.py"),
        [(name, found.__name__) for name, found in ALL.items()],
    )
    arms = [*CAUGHT_BY, *HONEST]
    (tmp / "small.toml").write_text(toml(content(source(tmp / "own"), arms, exchange="spark")))
    command = [sys.executable, "-m", "serde_lab", "run", "small.toml", "--cache", "cache"]
    paths = os.pathsep.join((str(site), str(REPOSITORY)))
    done = subprocess.run(
        command,
        cwd=tmp,
        env={**os.environ, **OWN_DAEMON, "PYTHONPATH": paths, "CHEAT_DOOR": str(tmp / "door")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    (path,) = (tmp / "results" / NAME).iterdir()
    return load_run(path)


def failed(run: Run, arm: str) -> dict[str, str]:
    return {check.name: check.detail for check in run.checks if check.arm == arm and check.failed}


@pytest.mark.parametrize(("cheat", "check"), CAUGHT_BY.items())
def test_a_hidden_worker_is_caught_by_name(cheat: str, check: str, run: Run) -> None:
    assert check in failed(run, cheat)


def test_work_in_the_driver_is_told_from_that_of_workers(run: Run) -> None:
    assert (
        "s of CPU are the driver's" in failed(run, "works_in_the_driver")["work_is_inside_timers"]
    )


@pytest.mark.parametrize("arm", HONEST)
def test_an_honest_arm_beside_them_passes(arm: str, run: Run) -> None:
    assert failed(run, arm) == {}
    passed = {check.name for check in run.checks if check.arm == arm and check.passed}
    assert set(CAUGHT_BY.values()) <= passed
