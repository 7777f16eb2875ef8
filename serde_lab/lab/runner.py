"""Runs a scenario: data, session, rounds of cells, checks, and the run directory they go into.

Owns the order of a whole run and what becomes of arms that fail. Must not print, compare or draw.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from serde_lab.errors import LabError, RunError
from serde_lab.lab.cells import CellRunner
from serde_lab.lab.checks import CellChecks
from serde_lab.lab.inputs import PreparedInputs, prepare_inputs
from serde_lab.lab.java import find_java
from serde_lab.lab.outcome import worst
from serde_lab.lab.plan import CellPlan, cells_of, check_scenario, fairness_of, serde_options
from serde_lab.lab.progress import Progress, Silent
from serde_lab.lab.session import SessionSettings, spark_conf, start_session, stop_session
from serde_lab.measure.calibration import calibrate
from serde_lab.measure.code_version import code_version
from serde_lab.measure.environment import capture_environment, machine_class
from serde_lab.runs.directory import RunWriter, load_run, new_run_id
from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.prediction import predict
from serde_lab.serde.registry import strategy
from serde_lab.verify.checks import arms_agree
from serde_lab.verify.contents import Fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where a run works and keeps things; nothing of it changes what is asked.

    `arms`: names of the arms to measure, () for all. `keep_tables`: a folder for each arm's final
    table. `master`: a Spark master, "" for local mode.
    """

    results: Path = Path("results")
    cache: Path | None = None
    work: Path | None = None
    keep_tables: Path | None = None
    arms: tuple[str, ...] = ()
    master: str = ""
    overrides: tuple[str, ...] = ()
    """The `key=value` changes that were made to the scenario, so that a report can say how to remake it."""
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Where the run is, and the exit status that it deserves."""

    path: Path
    exit_status: int


def run_scenario(
    scenario: Scenario,
    settings: RunSettings,
    progress: Progress | None = None,
    resume: Path | None = None,
) -> RunOutcome:
    """Measure every cell of `scenario`, or those that the run at `resume` still lacks.

    An arm that raises or whose contents are wrong is marked and not measured any further; the others
    go on. Raises LabError when nothing can be measured at all.
    """
    progress = progress or Silent()
    check_scenario(scenario)
    arms = chosen_arms(scenario, settings.arms)
    inputs = prepare_inputs(scenario, settings.cache, progress.message)
    with ExitStack() as stack:
        work = _work_folder(settings, stack)
        writer = stack.enter_context(_writer(scenario, arms, inputs, settings, resume))
        cells = cells_of(scenario, arms)
        todo = [cell for cell in cells if cell.name not in writer.complete_cells]
        progress.plan(len(cells), len(cells) - len(todo))
        if todo:
            progress.message("working out the right answer (DuckDB)")
            checks = CellChecks(scenario, inputs, work)
            bench = None
            if scenario.measure.exchange == "spark":
                progress.message("starting Spark")
                bench = stack.enter_context(_Session(scenario, settings, work)).bench
            runner = CellRunner(scenario, inputs, work, bench)
            if inputs.setups:
                progress.message("writing the set-up table")
            runner.set_up()
            calibration = _calibration(work, None if bench is None else bench.spark)
            rounds = _Rounds(
                scenario, arms, runner, checks, calibration, writer, settings, progress
            )
            rounds.run(todo)
        writer.finish("complete")
    return RunOutcome(writer.path, status_of(writer.path))


def resumed(path: Path) -> Scenario:
    """The scenario of an interrupted run, as it was asked for. Raises RunError when it is complete."""
    run = load_run(path)
    if run.header.state == "complete":
        raise RunError(f"{path} is complete: there is nothing to resume")
    return parse_scenario(run.header.scenario_content, str(path / "run.json"))


def status_of(path: Path) -> int:
    """The exit status that a finished run deserves, by what it holds."""
    run = load_run(path)
    statuses = [4 for check in run.checks if not check.passed]
    statuses += [1 for cell in run.cells if cell.status == "failed"]
    measured = [cell for cell in run.cells if cell.status == "ok" and not cell.warmup]
    return worst([*statuses, 0 if measured else 1])


def chosen_arms(scenario: Scenario, names: tuple[str, ...]) -> tuple[Arm, ...]:
    """The arms called `names`, all of them for (). Raises RunError for a name that there is not."""
    known = {arm.name: arm for arm in scenario.arms}
    for name in names:
        if name not in known:
            raise RunError(f"{scenario.name} has no arm {name!r}; it has {', '.join(known)}")
    return tuple(arm for arm in scenario.arms if not names or arm.name in names)


class _Session(AbstractContextManager["_Session"]):
    """A Spark session and its bench; stopped whatever happens."""

    def __init__(self, scenario: Scenario, settings: RunSettings, work: Path) -> None:
        from serde_lab.lab.bench import Bench

        logs = work / "event-log"
        logs.mkdir(parents=True, exist_ok=True)
        self.spark = start_session(session_settings(scenario, settings, str(logs)))
        slots = self.spark.sparkContext.defaultParallelism
        self.bench = Bench(self.spark, logs, slots)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bench.end_workers()
        stop_session(self.spark)


def session_settings(scenario: Scenario, settings: RunSettings, logs: str) -> SessionSettings:
    """The Spark session that a run of `scenario` gets."""
    return SessionSettings(
        cores=scenario.measure.cores,
        master=settings.master,
        driver_memory=f"{scenario.measure.driver_memory_mb}m",
        event_log_folder=logs,
        conf=settings.conf,
    )


@dataclass
class _Rounds:
    """The loop over cells, and what is known of each arm so far."""

    scenario: Scenario
    arms: tuple[Arm, ...]
    runner: CellRunner
    checks: CellChecks
    calibration: Callable[[], Mapping[str, float]]
    writer: RunWriter
    settings: RunSettings
    progress: Progress
    given_up: dict[str, str] = field(default_factory=dict)
    prints: dict[str, Fingerprint | None] = field(default_factory=dict)

    def run(self, cells: list[CellPlan]) -> None:
        by_name = {arm.name: arm for arm in self.arms}
        last = max(cell.round for cell in cells)
        for number in sorted({cell.round for cell in cells}):
            for part, seconds in self.calibration().items():
                self.writer.calibration(number, part, seconds)
            self.prints = {}
            for cell in (one for one in cells if one.round == number):
                if cell.arm in self.given_up:
                    self.progress.cell_ended(cell.arm, number, None, self.given_up[cell.arm])
                    continue
                self._cell(cell, by_name[cell.arm], keep=number == last)
            self._compare_arms(number)

    def _cell(self, cell: CellPlan, arm: Arm, keep: bool) -> None:
        self.progress.cell_started(arm.name, cell.round, cell.warmup)
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.writer.cell_begin(
            cell.name,
            arm=arm.name,
            round=cell.round,
            warmup=cell.warmup,
            order=cell.order,
            started_at=started,
        )
        try:
            result = self.runner.run(cell.name, arm)
            verdict = self.checks.judge(arm, result)
        except LabError as exc:
            self._failed(cell, arm, exc.message)
            return
        except (
            Exception
        ) as exc:  # an arm may be a plug-in, or Spark itself: it fails, the run goes on
            lines = str(exc).strip().splitlines() or [""]
            self._failed(cell, arm, f"{type(exc).__name__}: {lines[0]}")
            return
        for sample in result.samples:
            self.writer.sample(
                cell.name, sample.metric, sample.value, commit=sample.commit, phase=sample.phase
            )
        for check in verdict.results:
            self._check(check.name, check.passed, check.detail, arm.name, cell)
        if result.table is not None:
            self.prints[arm.name] = verdict.fingerprint
            if keep and self.settings.keep_tables is not None:
                _keep(result.table, self.settings.keep_tables / arm.name)
        self.writer.cell_end(cell.name, "ok")
        self.runner.discard(cell.name)
        seconds = next(
            s.value for s in result.samples if s.metric == "seconds" and s.commit is None
        )
        note = next((f"{c.name}: {c.detail}" for c in verdict.results if not c.passed), "")
        if note:
            self.given_up[arm.name] = f"wrong answer, {note}"
        self.progress.cell_ended(arm.name, cell.round, None if note else seconds, note)

    def _failed(self, cell: CellPlan, arm: Arm, reason: str) -> None:
        self.writer.cell_end(cell.name, "failed", reason)
        self.runner.discard(cell.name)
        self.given_up[arm.name] = f"raised before: {reason}"
        self.progress.cell_ended(arm.name, cell.round, None, reason)

    def _compare_arms(self, number: int) -> None:
        if len(self.prints) < 2:
            return
        for name, result in arms_agree(self.prints).items():
            self.writer.check(
                Check(result.name, result.passed, result.detail, arm=name, round=number)
            )

    def _check(self, name: str, passed: bool, detail: str, arm: str, cell: CellPlan) -> None:
        self.writer.check(Check(name, passed, detail, arm=arm, cell=cell.name, round=cell.round))


def _calibration(work: Path, spark: SparkSession | None) -> Callable[[], Mapping[str, float]]:
    """One calibration cell: numpy, disk, and a sum inside the JVM where there is one."""
    others: dict[str, Callable[[], object]] = {}
    if spark is not None:
        summed = spark.range(4_000_000).selectExpr("sum(hash(id)) AS s")
        others["jvm"] = lambda: summed.collect()
    return lambda: calibrate(work, others)


def _keep(table: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(table, target)


def _work_folder(settings: RunSettings, stack: ExitStack) -> Path:
    """A folder for tables and logs that is gone when the run ends."""
    parent = settings.work
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="serde_lab-", dir=parent, ignore_cleanup_errors=True)
    )
    return Path(folder)


def _writer(
    scenario: Scenario,
    arms: tuple[Arm, ...],
    inputs: PreparedInputs,
    settings: RunSettings,
    resume: Path | None,
) -> RunWriter:
    if resume is not None:
        run = load_run(resume)
        if dict(run.header.data_checksums) != dict(inputs.checksums):
            raise RunError(f"{resume}: its data differ from what the scenario gives now")
        return RunWriter.open_existing(resume)
    java = find_java()
    seen = capture_environment(settings.results, {"version": java.version, "origin": java.origin})
    header = RunHeader(
        run=new_run_id(settings.results / scenario.name),
        scenario=scenario.name,
        arms=tuple(arm_entry(arm, inputs.record_schema.data) for arm in arms),
        scenario_content=scenario.to_json(),
        environment=seen,
        machine_class=machine_class(seen),
        code_version=code_version(),
        data_checksums=dict(inputs.checksums),
        seed=scenario.measure.seed,
        spark_conf=spark_conf(session_settings(scenario, settings, "event-log")),
        settings={
            "rows": {str(n): c.rows for n, c in enumerate(inputs.commits, start=1)},
            "operations": {str(n): c.operation for n, c in enumerate(inputs.commits, start=1)},
            "local_mode": not settings.master,
            "overrides": dict(text.split("=", 1) for text in settings.overrides),
            "python": platform.python_version(),
        },
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return RunWriter.create(settings.results, header)


def arm_entry(arm: Arm, data: pa.Schema) -> ArmEntry:
    """The arm as the run keeps it: options with all defaults, its fairness card, what was expected."""
    options: dict[str, Any] = dict(arm.options.given)
    prediction = None
    if arm.strategy is not None:
        known, bound = strategy(arm.strategy), serde_options(arm)
        expected = predict(known, bound.execution or known.executions[0], data)
        prediction = None if expected is None else asdict(expected)
        options = {
            "execution": bound.execution,
            "rows_per_frame": bound.rows_per_frame,
            "max_frame_bytes": bound.max_frame_bytes,
            "integrity": bound.integrity,
            **bound.own,
        }
    return ArmEntry(
        arm=arm.name,
        kind=arm.kind,
        strategy=arm.strategy,
        options=options,
        fairness=fairness_of(arm),
        prediction=prediction,
    )
