"""Runs the Spark session of a run, or several sessions in separate processes, whose cells take turns.

A Python process holds one Spark session at a time, so arms with different sessions each need a process.
All the others wait while one measures a cell. Rounds are therefore interleaved as in a shared session,
and a slowdown of the machine affects all arms.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from serde_lab.errors import SetupError, outcome_of
from serde_lab.lab.cells.cell import CellResult, MeasurableCell
from serde_lab.lab.cells.dataset_cells import DatasetCells, SparkQueries
from serde_lab.lab.cells.peer_arms import SessionPlan, recorded_jars
from serde_lab.lab.cells.table_cells import TableCells, discard_cell
from serde_lab.lab.inputs.prepared import PreparedInputs, PreparedTable
from serde_lab.lab.run_settings import Progress, RunSettings
from serde_lab.lab.session.session import SessionSettings, spark_conf, start_session, stop_session
from serde_lab.lab.session.worker_environment import WORKER_PYTHON
from serde_lab.scenario.model import UPSERT_CONTROLS, Arm, Scenario

_GRACE_S = 30.0


class RunSession(AbstractContextManager["RunSession"]):
    """A Spark session and its bench; stopped on exit, whatever happens."""

    def __init__(
        self, scenario: Scenario, settings: RunSettings, work: Path, plan: SessionPlan
    ) -> None:
        from serde_lab.lab.cells.bench import Bench

        logs, local = work / "event-log", work / "spark"
        for folder in (logs, local):
            folder.mkdir(parents=True, exist_ok=True)
        wanted = start_settings(scenario, settings, plan, str(logs), str(local))
        began = time.perf_counter()
        self.spark = start_session(wanted)
        try:
            start_s = time.perf_counter() - began
            slots = self.spark.sparkContext.defaultParallelism
            self.bench = Bench(self.spark, logs, slots, start_s)
        except BaseException:
            stop_session(self.spark)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from serde_lab.pipeline.spark.exchange import on_purpose

        try:
            if isinstance(error, PySparkException | Py4JError):
                # the error's text is available only while the JVM lives
                with on_purpose():
                    raise error
        finally:
            self.bench.end_workers()
            stop_session(self.spark)

    def settle(self) -> None:
        """End the workers of the last cell, and have the JVM drop the shuffles of all cells so far."""
        self.bench.end_workers()
        self.bench.collect_garbage()


class SessionOfPoints(AbstractContextManager["SessionOfPoints"]):
    """The session of one point after another, for as long as the points want equal settings."""

    def __init__(self, settings: RunSettings, work: Path) -> None:
        self._settings, self._work = settings, work
        self._stack = ExitStack()
        self._number = 0
        self._wanted: SessionSettings | None = None
        self._open: RunSession | None = None

    def session(
        self, scenario: Scenario, plan: SessionPlan, progress: Progress
    ) -> tuple[RunSession, bool]:
        """The session for a point, and whether it is new."""
        wanted = start_settings(scenario, self._settings, plan, "", "")
        if self._open is not None and wanted == self._wanted:
            return self._open, False
        self._stack.close()
        progress.message("starting Spark")
        self._number += 1
        work = self._work / f"session-{self._number}"
        self._open = self._stack.enter_context(RunSession(scenario, self._settings, work, plan))
        self._wanted = wanted
        return self._open, True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def start_settings(
    scenario: Scenario, settings: RunSettings, plan: SessionPlan, logs: str, local: str
) -> SessionSettings:
    """The start settings of a run's session; `logs` and `local` are folders for event log and shuffles."""
    return SessionSettings(
        cores=scenario.measure.cores,
        master=settings.master,
        driver_memory=f"{scenario.measure.driver_memory_mb}m",
        event_log_folder=logs,
        local_folder=local,
        worker_python=settings.worker_python if settings.archive is None else WORKER_PYTHON,
        archive="" if settings.archive is None else str(settings.archive),
        conf={**plan.conf, **settings.conf},
        jars=plan.jars,
    )


def heap_of(scenario: Scenario, settings: RunSettings, plan: SessionPlan) -> str:
    """The heap of a session, as Spark's text for it."""
    return spark_conf(start_settings(scenario, settings, plan, "", ""))["spark.driver.memory"]


def recorded_conf(
    scenario: Scenario, settings: RunSettings, plan: SessionPlan
) -> Mapping[str, str]:
    """The settings of a session as run.json stores them."""
    bare = replace(plan, jars=recorded_jars(plan))
    wanted = start_settings(scenario, settings, bare, "event-log", "spark")
    return spark_conf(replace(wanted, archive=Path(wanted.archive).name))


@dataclass(frozen=True, slots=True)
class Measured:
    """What every session measures, and how; each works in its own folder within `work`."""

    scenario: Scenario
    inputs: PreparedInputs
    settings: RunSettings
    work: Path
    tidy_heap: bool
    tables: tuple[PreparedTable, ...] = ()
    """All tables of a scenario that writes several, or is asked queries."""

    def cells(self, session: RunSession, work: Path) -> TableCells | DatasetCells:
        from serde_lab.lab.cells.spark_cells import OnSpark
        from serde_lab.lab.cells.stream_cells import StreamsOnSpark

        kind = OnSpark if self.scenario.stream is None else StreamsOnSpark
        engine = kind(session.bench, self.tidy_heap)
        if self.tables:
            queries = SparkQueries(session.bench, self.scenario.queries)
            return DatasetCells(self.tables, work, engine, queries)
        return TableCells(self.scenario, self.inputs, work, engine)


class SessionsApart(AbstractContextManager["SessionsApart"]):
    """Runs each cell in the process of its arm's session; leaves no process behind, whatever happens."""

    def __init__(self, sessions: Sequence[SessionPlan], measured: Measured) -> None:
        self._stack, self._scenario = ExitStack(), measured.scenario
        self._processes: list[_SessionProcess] = []
        try:
            for number, plan in enumerate(sessions, start=1):
                process = _SessionProcess(plan, measured, measured.work / f"session-{number}")
                self._stack.callback(process.end)
                process.call("open")
                self._processes.append(process)
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def set_up(self) -> None:
        """Write the set-up table of each session with arms that start from it."""
        of_others = {arm.name for arm in self._scenario.arms if arm.control in UPSERT_CONTROLS}
        for process in self._processes:
            if process.plan.arms - of_others:
                process.call("set_up")

    def cell(self, name: str, arm: Arm) -> MeasurableCell:
        """The cell of `arm`, to be measured in its session's process."""
        (of_arm,) = (one for one in self._processes if arm.name in one.plan.arms)
        return _CellApart(of_arm, name, arm)

    def discard(self, name: str) -> None:
        """Remove what the cell left behind, even if its process has ended."""
        for process in self._processes:
            discard_cell(process.work, name)

    def calibrate(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self._processes[0].call("calibrate")
        return found


@dataclass(frozen=True, slots=True)
class _CellApart(MeasurableCell):
    """A cell that another process measures."""

    process: _SessionProcess
    name: str
    arm: Arm

    def measure(self) -> CellResult:
        """The result. Raises LabError for whatever the arm raised."""
        result: CellResult = self.process.call("measure", self.name, self.arm)
        return result


class _SessionProcess:
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
                f" {self._process.exitcode} during a call"
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
            session = stack.enter_context(
                RunSession(measured.scenario, measured.settings, work, plan)
            )
            cells = measured.cells(session, work)
            verbs.update(
                set_up=cells.set_up,
                measure=lambda name, arm: cells.cell(name, arm).measure(),
                calibrate=cells.calibrate,
            )

        verbs: dict[str, Callable[..., Any]] = {"open": open_session}
        while True:
            verb, arguments = pipe.recv()
            pipe.send(outcome_of(verbs[verb], *arguments))
