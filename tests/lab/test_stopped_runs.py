"""A run that is killed or interrupted in the middle of a cell loses that cell and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from serde_lab.runs.directory import load_run
from tests.lab.plugin_folder import install
from tests.lab.small_scenario import NAME, content, source, toml
from tests.sabotage import cheats
from tests.short_lived import OWN_DAEMON

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
_PATIENCE_S = 900
"""No run takes so long but one that does not end."""


@dataclass
class Lab:
    """One folder with a scenario, its results, and a plug-in that stops runs."""

    tmp: Path
    scenario: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tmp: Path, arms: list[str], **measure: Any) -> Lab:
        site = install(
            tmp / "site", Path(__file__).with_name("stopped.py"), [("stopped", "Stopped")]
        )
        install(site, Path(cheats.__file__), [("raises", "Raises")])
        scenario = tmp / f"{NAME}.toml"
        scenario.write_text(toml(content(source(tmp / "own"), arms, **measure)))
        for name in ("temporary", "stopped"):
            (tmp / name).mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), str(REPOSITORY)]),
            "TMPDIR": str(tmp / "temporary"),
            "STOPPED_IN": str(tmp / "stopped"),
            "NO_COLOR": "1",
        }
        return cls(tmp, scenario, environment)

    @property
    def path(self) -> Path:
        (found,) = (self.tmp / "results" / NAME).iterdir()
        return found

    @property
    def samples(self) -> bytes:
        return (self.path / "samples.jsonl").read_bytes()

    def begun(self) -> Counter[str]:
        """How often each cell began."""
        events = [json.loads(line) for line in self.samples.splitlines()]
        return Counter(e["cell"] for e in events if e["event"] == "cell_begin")

    def run(self, *arguments: str, stop: tuple[int, int] | None = None) -> tuple[int, str]:
        """`serde_lab run …` with less calibration; `stop`: the signal, and the cell of "stopped" in which
        it is sent."""
        environment = self.environment
        if stop is not None:
            environment |= {"STOPPED_BY": str(int(stop[0])), "STOPPED_AT": str(stop[1])}
        command = [sys.executable, "-m", "tests.short_runs", "run", *arguments]
        command += ["--results", "results", "--reports", "reports", "--cache", "cache"]
        with subprocess.Popen(
            command,
            cwd=self.tmp,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a group of its own, which ctrl-C is sent to
        ) as process:
            if stop is not None:
                (self.tmp / "stopped" / "run.pid").write_text(str(process.pid))
            try:
                _, messages = process.communicate(timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, messages.decode()

    def children(self) -> list[tuple[int, float]]:
        """The processes that the run had started when it was stopped, and when they began."""
        return [(pid, at) for pid, at in json.loads((self.tmp / "stopped" / "alive").read_text())]

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in (self.tmp / "temporary").iterdir())


def gone(began: list[tuple[int, float]]) -> list[str]:
    """Those that never end, which is none."""
    processes = []
    for pid, at in began:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.create_time() == at:
                processes.append(process)
    _, alive = psutil.wait_procs(processes, timeout=_PATIENCE_S)
    return [process.name() for process in alive]


def test_a_run_killed_in_a_cell_redoes_that_cell_only(tmp_path: Path) -> None:
    lab = Lab.of(tmp_path, ["stopped", "arrow"], rounds=2)
    status, messages = lab.run(str(lab.scenario), stop=(signal.SIGKILL, 2))
    assert status == -signal.SIGKILL, messages
    before = lab.samples
    done = load_run(lab.path).complete_cells
    assert done
    assert load_run(lab.path).header.state == "interrupted"
    assert lab.left_behind() != []

    status, messages = lab.run("--resume", "latest")
    assert status == 0, messages
    assert f"{len(done)} of 4 cells were measured earlier" in messages
    run = load_run(lab.path)
    assert run.header.state == "complete"
    assert run.complete_cells == {f"r{n:02d}-{arm}" for n in (0, 1) for arm in ("stopped", "arrow")}
    assert lab.samples.startswith(before)
    begun = lab.begun()
    assert {cell for cell, times in begun.items() if times > 1} == {"r01-stopped"}
    assert begun["r01-stopped"] == 2
    assert lab.left_behind() == []

    whole = lab.samples
    status, messages = lab.run("--resume", "latest")
    assert status == 1
    assert "is complete: there is nothing to resume" in messages
    assert lab.samples == whole


def test_an_arm_that_failed_before_is_not_tried_again(tmp_path: Path) -> None:
    lab = Lab.of(tmp_path, ["stopped", "raises"], rounds=2)
    status, messages = lab.run(str(lab.scenario), stop=(signal.SIGKILL, 2))
    assert status == -signal.SIGKILL, messages
    assert load_run(lab.path).failed_cells == {"r00-raises"}
    status, messages = lab.run("--resume", "latest")
    assert status == 1
    assert "raised earlier: ValueError: this arm raises" in messages
    assert lab.begun() == {"r00-stopped": 1, "r00-raises": 1, "r01-stopped": 2}
    assert load_run(lab.path).header.state == "complete"


@pytest.mark.spark
def test_on_spark_a_kill_and_then_ctrl_c_lose_one_cell_each(tmp_path: Path) -> None:
    lab = Lab.of(tmp_path, ["stopped"], exchange="spark", rounds=3)
    lab.environment |= OWN_DAEMON
    status, messages = lab.run(str(lab.scenario), stop=(signal.SIGKILL, 2))
    assert status == -signal.SIGKILL, messages
    assert len(lab.children()) >= 3  # the JVM, the daemon, a worker
    assert gone(lab.children()) == []
    killed = lab.samples
    assert load_run(lab.path).complete_cells == {"r00-stopped"}

    status, messages = lab.run("--resume", "latest", stop=(signal.SIGINT, 4))
    assert status == 130, messages
    assert "Traceback" not in messages, messages
    assert "interrupted; what was measured is kept" in messages
    assert len(lab.children()) >= 3
    assert gone(lab.children()) == []
    assert lab.left_behind() == []
    interrupted = lab.samples
    assert interrupted.startswith(killed)
    run = load_run(lab.path)
    assert run.header.state == "interrupted"
    assert run.complete_cells == {"r00-stopped", "r01-stopped"}

    status, messages = lab.run("--resume", "latest")
    assert status == 0, messages
    assert lab.samples.startswith(interrupted)
    assert load_run(lab.path).header.state == "complete"
    assert lab.begun() == {"r00-stopped": 1, "r01-stopped": 2, "r02-stopped": 2}
    assert lab.left_behind() == []
