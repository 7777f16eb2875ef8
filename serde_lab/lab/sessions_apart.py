"""Spark sessions in processes of their own, whose cells take turns.

Python holds one Spark session at a time, so arms whose sessions differ each get a process. All of them
stand by while one measures a cell: rounds are interleaved as where arms share a session, and a machine
that slows down slows all arms. Owns those processes and what is said between; must not know rounds,
checks or runs.
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
from typing import Any, Self

from serde_lab.errors import LabError, SetupError
from serde_lab.lab.cell_result import CellResult
from serde_lab.lab.cells import CellRunner
from serde_lab.lab.inputs import PreparedInputs
from serde_lab.lab.peer_arms import SessionPlan
from serde_lab.lab.run_session import RunSession, calibration
from serde_lab.lab.run_settings import RunSettings
from serde_lab.scenario.model import Arm, Scenario

_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What every session measures, and how; each works in a folder of its own within `work`."""

    scenario: Scenario
    inputs: PreparedInputs
    settings: RunSettings
    work: Path
    tidy_heap: bool


class SessionsApart(AbstractContextManager["SessionsApart"]):
    """Runs each cell in the process of its arm's session; whatever happens, no process is left behind."""

    def __init__(self, sessions: Sequence[SessionPlan], measured: Measured) -> None:
        self._stack = ExitStack()
        try:
            self._processes = [
                self._stack.enter_context(_Process(number, plan, measured))
                for number, plan in enumerate(sessions, start=1)
            ]
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
        """Remove what the cell left behind."""
        for process in self._processes:
            process.call("discard", cell)

    def calibrate(self) -> Mapping[str, float]:
        """One calibration cell, in the first session."""
        found: Mapping[str, float] = self._processes[0].call("calibrate")
        return found


class _Process(AbstractContextManager["_Process"]):
    """The process of one session. It ends when nobody is at the other end of its pipe any more."""

    def __init__(self, number: int, plan: SessionPlan, measured: Measured) -> None:
        self.plan = plan
        place = measured.work / f"session-{number}"
        place.mkdir(parents=True, exist_ok=True)
        # a fork would take this process's threads and open tables along
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, place, plan, measured))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        try:
            self._answer()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def call(self, verb: str, *arguments: Any) -> Any:
        """What the process answers. Raises LabError for what it raised, or where it has ended."""
        with suppress(OSError):  # of a process that has ended the answer tells
            self._pipe.send((verb, arguments))
        return self._answer()

    def _answer(self) -> Any:
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

    def _end(self) -> None:
        self._pipe.close()
        self._process.join(_GRACE_S)
        if self._process.is_alive() and self._process.pid is not None:  # in the middle of a cell
            os.kill(self._process.pid, signal.SIGINT)
            self._process.join(_GRACE_S)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, work: Path, plan: SessionPlan, measured: Measured) -> None:
    """What the process of a session does: answers calls until the pipe ends, or ctrl-C."""
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError), ExitStack() as stack:
        verbs: dict[str, Callable[..., Any]] = {}

        def open_session() -> None:
            scenario, settings = measured.scenario, measured.settings
            session = stack.enter_context(RunSession(scenario, settings, work, plan))
            runner = CellRunner(
                *(scenario, measured.inputs, work, session.bench), tidy_heap=measured.tidy_heap
            )
            verbs["set_up"], verbs["run"] = runner.set_up, runner.run
            verbs["discard"] = runner.discard
            verbs["calibrate"] = calibration(work, session.spark)

        pipe.send(_outcome(open_session))
        while True:
            verb, arguments = pipe.recv()
            pipe.send(_outcome(verbs[verb], *arguments))


def _outcome(call: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """Whether it raised, and what it returned or raised: an error of our own, which a pipe can carry."""
    try:
        return False, call(*arguments)
    except LabError as exc:
        return True, exc
    except Exception as exc:  # an arm may be a plug-in, or Spark itself
        lines = str(exc).strip().splitlines() or [""]
        return True, LabError(f"{type(exc).__name__}: {lines[0]}")
