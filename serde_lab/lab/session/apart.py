"""Runs Spark sessions in separate processes, whose cells take turns.

A Python process holds one Spark session at a time, so arms with different sessions each need a process.
All the others wait while one measures a cell. Rounds are therefore interleaved as in a shared session,
and a slowdown of the machine affects all arms.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from serde_lab.errors import LabError, SetupError
from serde_lab.lab.cells.peer_arms import SessionPlan
from serde_lab.lab.cells.result import CellResult
from serde_lab.lab.cells.strategy import CellRunner, discard_cell
from serde_lab.lab.inputs.prepared import PreparedInputs
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.session.run_session import RunSession, calibration
from serde_lab.scenario.model import Arm, Scenario

_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What every session measures, and how; each works in its own folder within `work`."""

    scenario: Scenario
    inputs: PreparedInputs
    settings: RunSettings
    work: Path
    tidy_heap: bool


class SessionsApart(AbstractContextManager["SessionsApart"]):
    """Runs each cell in the process of its arm's session; leaves no process behind, whatever happens."""

    def __init__(self, sessions: Sequence[SessionPlan], measured: Measured) -> None:
        self._stack = ExitStack()
        self._processes: list[_Process] = []
        try:
            for number, plan in enumerate(sessions, start=1):
                process = _Process(plan, measured, measured.work / f"session-{number}")
                self._stack.callback(process.end)
                process.call("open")
                self._processes.append(process)
        except BaseException:
            self._stack.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def set_up(self) -> None:
        """Write the set-up table of each session."""
        for process in self._processes:
            process.call("set_up")

    def run(self, cell: str, arm: Arm) -> CellResult:
        """Measure one cell. Raises LabError for whatever the arm raised."""
        (of_arm,) = (one for one in self._processes if arm.name in one.plan.arms)
        result: CellResult = of_arm.call("run", cell, arm)
        return result

    def discard(self, cell: str) -> None:
        """Remove what the cell left behind, even if its process has ended."""
        for process in self._processes:
            discard_cell(process.work, cell)

    def calibrate(self) -> Mapping[str, float]:
        """One calibration cell, in the first session."""
        found: Mapping[str, float] = self._processes[0].call("calibrate")
        return found


class _Process:
    """The process of one session. It ends when the other end of its pipe is closed."""

    def __init__(self, plan: SessionPlan, measured: Measured, work: Path) -> None:
        self.plan, self.work = plan, work
        work.mkdir(parents=True, exist_ok=True)
        # a fork would copy this process's threads and open tables
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, work, plan, measured))
        self._process.start()
        theirs.close()

    def call(self, verb: str, *arguments: Any) -> Any:
        """The answer of the process. Raises LabError for what it raised, or if it has ended."""
        with suppress(OSError):  # reading the answer reports a process that has ended
            self._pipe.send((verb, arguments))
        try:
            raised, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(_GRACE_S)
            raise SetupError(
                f"the process of {', '.join(sorted(self.plan.arms))} ended with status"
                f" {self._process.exitcode} in the middle of its work"
            ) from None
        if raised:
            raise answer
        return answer

    def end(self) -> None:
        """Let the process end by itself; interrupt it, then kill it, if it does not."""
        self._pipe.close()
        self._process.join(_GRACE_S)
        if self._process.is_alive() and self._process.pid is not None:  # still inside a cell
            os.kill(self._process.pid, signal.SIGINT)
            self._process.join(_GRACE_S)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, work: Path, plan: SessionPlan, measured: Measured) -> None:
    """The main function of a session's process: answers calls until the pipe is closed, or ctrl-C."""
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError), ExitStack() as stack:

        def open_session() -> None:
            scenario, settings = measured.scenario, measured.settings
            session = stack.enter_context(RunSession(scenario, settings, work, plan))
            runner = CellRunner(
                *(scenario, measured.inputs, work, session.bench), tidy_heap=measured.tidy_heap
            )
            verbs.update(
                set_up=runner.set_up, run=runner.run, calibrate=calibration(work, session.spark)
            )

        verbs: dict[str, Callable[..., Any]] = {"open": open_session}
        while True:
            verb, arguments = pipe.recv()
            pipe.send(_outcome(verbs[verb], *arguments))


def _outcome(call: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """Whether the call raised, and its result or error; errors become ours, which a pipe can carry."""
    try:
        return False, call(*arguments)
    except LabError as exc:
        return True, exc
    except Exception as exc:  # a plug-in or Spark may raise anything
        lines = str(exc).strip().splitlines() or [""]
        return True, LabError(f"{type(exc).__name__}: {lines[0]}")
