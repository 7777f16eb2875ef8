"""Runs a scenario: data, session, rounds of cells, checks, and the run directory they go into.

Owns the order of a whole run and what becomes of arms that fail. Must not print, compare or draw.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from serde_lab.errors import LabError, RunError, UsageError, worst
from serde_lab.lab.cells import CellRunner
from serde_lab.lab.checks import CellChecks
from serde_lab.lab.header import run_header
from serde_lab.lab.inputs import PreparedInputs, default_cache, prepare_inputs
from serde_lab.lab.peer_arms import PeerPlan, Sitting, plan_peers, recorded_jars
from serde_lab.lab.plan import (
    CellPlan,
    cells_of,
    check_scenario,
    serde_options,
    write_options,
)
from serde_lab.lab.progress import Progress, Silent
from serde_lab.lab.session import SessionSettings, spark_conf, start_session, stop_session
from serde_lab.lab.source_check import check_arms, check_data
from serde_lab.lab.stand_alone import STAND_ALONE, Proof, frames_stand_alone
from serde_lab.lab.work_folder import work_folder
from serde_lab.lab.worker_environment import WORKER_PYTHON, environment_archive
from serde_lab.measure.calibration import calibrate
from serde_lab.pipeline.write_schema import record_schema
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.runs.directory import RunWriter, load_header, load_run
from serde_lab.runs.model import Check
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.verify.checks import CheckResult, arms_agree
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
    hudi_jar: str = ""
    require_peers: bool = False
    """A peer that cannot run is an error, not an arm reported as missing."""
    isolate_peers: bool = False
    """Peers get a Spark session of their own, after that of the other arms: shows what sharing does."""
    ship_environment: bool = False
    """Nothing is installed on the workers of `master`: they get this environment, packed into the cache."""
    worker_python: str = ""
    """The workers' Python, "" for the path of the one here; what a shipped environment links to."""
    archive: Path | None = None
    """The environment that is shipped, once it is packed."""


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
    settings = _shipping(settings, progress)
    arms = chosen_arms(scenario, settings.arms)
    check_data(scenario, arms)
    isolated = settings.isolate_peers if resume is None else _was_isolated(resume)
    peers = plan_peers(
        scenario,
        arms,
        jar=settings.hudi_jar,
        required=settings.require_peers,
        isolated=isolated,
    )
    inputs = prepare_inputs(scenario, settings.cache, progress.message)
    schema = _stored_records(scenario, inputs)
    check_arms(arms, schema)
    with ExitStack() as stack:
        work = stack.enter_context(work_folder(settings.work))
        writer = stack.enter_context(
            _writer(scenario, arms, inputs, schema, settings, peers, resume)
        )
        for name, reason in peers.missing.items():
            progress.message(f"{name} is missing: {reason}")
        cells = cells_of(scenario, [arm for arm in arms if arm.name not in peers.missing])
        todo = [cell for cell in cells if cell.name not in writer.complete_cells]
        progress.plan(len(cells), len(cells) - len(todo))
        if todo:
            progress.message("working out the right answer (DuckDB)")
            checks = CellChecks(scenario, inputs, work, files_too=peers.with_peers)
            given_up = {} if resume is None else _given_up(resume)
            rows = pq.read_metadata(inputs.commits[0].files[0]).num_rows
            proven = tuple(arm for arm in arms if arm.name not in given_up)
            proof = _frames(scenario, proven, schema, rows, work / "stand-alone")
            for name, result in proof.results.items():
                writer.check(Check(result.name, result.passed, result.detail, arm=name))
                if not result.passed:
                    given_up[name] = _wrong(result.name, result.detail)
            rounds = _Rounds(
                arms,
                checks,
                writer,
                settings,
                progress,
                proof.raised,
                given_up,
                one_sitting=len(peers.sittings) == 1,
            )
            for sitting in peers.sittings:
                sat = [cell for cell in todo if cell.arm in sitting.arms]
                if sat:
                    _sit(sitting, sat, rounds, scenario, inputs, work, peers.with_peers)
            rounds.compare_arms()
        writer.finish("complete")
    return RunOutcome(writer.path, status_of(writer.path))


def _shipping(settings: RunSettings, progress: Progress) -> RunSettings:
    """With the archive of the workers' environment where one is shipped. Raises UsageError."""
    if not settings.ship_environment:
        return settings
    if not settings.master or settings.master.startswith("local"):
        raise UsageError("--ship-environment is for the workers of a cluster, which --master names")
    cache = default_cache() if settings.cache is None else settings.cache
    archive = environment_archive(cache, settings.worker_python, progress.message)
    return replace(settings, archive=archive)


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


def _sit(
    sitting: Sitting,
    cells: list[CellPlan],
    rounds: _Rounds,
    scenario: Scenario,
    inputs: PreparedInputs,
    work: Path,
    with_peers: bool,
) -> None:
    """Measure the cells of one sitting, in a Spark session of their own where Spark is asked for."""
    with ExitStack() as stack:
        bench = None
        if scenario.measure.exchange == "spark":
            rounds.progress.message("starting Spark")
            session = _Session(scenario, rounds.settings, work, sitting)
            bench = stack.enter_context(session).bench
        runner = CellRunner(scenario, inputs, work, bench, tidy_heap=with_peers)
        if inputs.setups:
            rounds.progress.message("writing the set-up table")
        runner.set_up()
        rounds.run(cells, runner, _calibration(work, None if bench is None else bench.spark))


class _Session(AbstractContextManager["_Session"]):
    """A Spark session and its bench; stopped whatever happens."""

    def __init__(
        self, scenario: Scenario, settings: RunSettings, work: Path, sitting: Sitting
    ) -> None:
        from serde_lab.lab.bench import Bench

        logs, local = work / "event-log", work / "spark"
        for folder in (logs, local):
            folder.mkdir(parents=True, exist_ok=True)
        self.spark = start_session(
            session_settings(scenario, settings, sitting, str(logs), str(local))
        )
        try:
            self.bench = Bench(self.spark, logs, self.spark.sparkContext.defaultParallelism)
        except BaseException:
            stop_session(self.spark)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bench.end_workers()
        stop_session(self.spark)


def session_settings(
    scenario: Scenario, settings: RunSettings, sitting: Sitting, logs: str, local: str
) -> SessionSettings:
    """The Spark session of one sitting of a run; its event log and what is temporary in folders."""
    return SessionSettings(
        cores=scenario.measure.cores,
        master=settings.master,
        driver_memory=f"{scenario.measure.driver_memory_mb}m",
        event_log_folder=logs,
        local_folder=local,
        worker_python=settings.worker_python if settings.archive is None else WORKER_PYTHON,
        archive="" if settings.archive is None else str(settings.archive),
        conf={**sitting.conf, **settings.conf},
        jars=sitting.jars,
    )


@dataclass
class _Rounds:
    """The loop over cells, and what is known of each arm so far."""

    arms: tuple[Arm, ...]
    checks: CellChecks
    writer: RunWriter
    settings: RunSettings
    progress: Progress
    unproven: Mapping[str, str]
    given_up: dict[str, str] = field(default_factory=dict)
    prints: dict[int, dict[str, Fingerprint | None]] = field(default_factory=dict)
    calibrated: set[int] = field(default_factory=set)
    one_sitting: bool = True

    def run(
        self,
        cells: list[CellPlan],
        runner: CellRunner,
        calibration: Callable[[], Mapping[str, float]],
    ) -> None:
        by_name = {arm.name: arm for arm in self.arms}
        last = max(cell.round for cell in cells)
        for number in sorted({cell.round for cell in cells}):
            if number not in self.calibrated:
                self.calibrated.add(number)
                for part, seconds in calibration().items():
                    self.writer.calibration(number, part, seconds)
            for cell in (one for one in cells if one.round == number):
                if cell.arm in self.given_up:
                    self.progress.cell_ended(cell.arm, number, None, self.given_up[cell.arm])
                    continue
                self._cell(cell, by_name[cell.arm], runner, keep=number == last)
            if self.one_sitting:
                self.compare_arms()

    def _cell(self, cell: CellPlan, arm: Arm, runner: CellRunner, keep: bool) -> None:
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
            result = runner.run(cell.name, arm)
            verdict = self.checks.judge(arm, result)
        except LabError as exc:
            self._failed(cell, arm, runner, exc.message)
            return
        except (
            Exception
        ) as exc:  # an arm may be a plug-in, or Spark itself: it fails, the run goes on
            lines = str(exc).strip().splitlines() or [""]
            self._failed(cell, arm, runner, f"{type(exc).__name__}: {lines[0]}")
            return
        for sample in result.samples:
            self.writer.sample(
                cell.name, sample.metric, sample.value, commit=sample.commit, phase=sample.phase
            )
        found = list(verdict.results)
        if arm.name in self.unproven:  # it raised before, and does not now: nothing stands for it
            found.insert(0, CheckResult(STAND_ALONE, False, self.unproven[arm.name]))
        for check in found:
            self._check(check.name, check.passed, check.detail, arm.name, cell)
        if result.table is not None:
            self.prints.setdefault(cell.round, {})[arm.name] = verdict.fingerprint
            if keep and self.settings.keep_tables is not None:
                _keep(result.table, self.settings.keep_tables / arm.name)
        self.writer.cell_end(cell.name, "ok")
        runner.discard(cell.name)
        seconds = next(
            s.value for s in result.samples if s.metric == "seconds" and s.commit is None
        )
        note = next((f"{c.name}: {c.detail}" for c in found if not c.passed), "")
        if note:
            self.given_up[arm.name] = f"wrong answer, {note}"
        self.progress.cell_ended(arm.name, cell.round, None if note else seconds, note)

    def _failed(self, cell: CellPlan, arm: Arm, runner: CellRunner, reason: str) -> None:
        self.writer.cell_end(cell.name, "failed", reason)
        runner.discard(cell.name)
        self.given_up[arm.name] = f"raised before: {reason}"
        self.progress.cell_ended(arm.name, cell.round, None, reason)

    def compare_arms(self) -> None:
        """Hold the tables of each round against each other: after the round, where it is whole by then."""
        for number, prints in sorted(self.prints.items()):
            if len(prints) < 2:
                continue
            for name, result in arms_agree(prints).items():
                self.writer.check(
                    Check(result.name, result.passed, result.detail, arm=name, round=number)
                )
        self.prints = {}

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


def _given_up(path: Path) -> dict[str, str]:
    """Arms that failed, or answered wrongly, in the part of a run that was measured before."""
    run = load_run(path)
    reasons = {c.arm: f"raised before: {c.error}" for c in run.cells if c.status == "failed"}
    for check in run.checks:
        if not check.passed and check.arm is not None:
            reasons[check.arm] = _wrong(check.name, check.detail)
    return reasons


def _wrong(check: str, detail: str) -> str:
    return f"wrong answer, {check}: {detail}"


def _frames(
    scenario: Scenario, arms: tuple[Arm, ...], schema: RecordSchema, rows: int, work: Path
) -> Proof:
    """Have another process read the frames of each strategy among `arms`."""
    asked = {
        arm.name: (arm.strategy, serde_options(arm)) for arm in arms if arm.strategy is not None
    }
    table = scenario.table
    keys = KeyGenerator(schema, table.hive_style, table.url_encode)
    return frames_stand_alone(asked, schema, keys, work, rows, scenario.measure.seed)


def _stored_records(scenario: Scenario, inputs: PreparedInputs) -> RecordSchema:
    """The schema of the records that every arm sends."""
    first = inputs.commits[0]
    source = pq.read_schema(first.files[0]).remove_metadata()
    return record_schema(source, write_options(scenario, first.operation, None, 1, 0))


def _writer(
    scenario: Scenario,
    arms: tuple[Arm, ...],
    inputs: PreparedInputs,
    schema: RecordSchema,
    settings: RunSettings,
    peers: PeerPlan,
    resume: Path | None,
) -> RunWriter:
    if resume is not None:
        run = load_run(resume)
        if dict(run.header.data_checksums) != dict(inputs.checksums):
            raise RunError(f"{resume}: its data differ from what the scenario gives now")
        return RunWriter.open_existing(resume)
    header = run_header(
        scenario,
        arms,
        inputs,
        schema,
        results=settings.results,
        conf=_recorded_conf(scenario, settings, peers.sittings[0]),
        local_mode=not settings.master,
        overrides=settings.overrides,
        missing=peers.missing,
        peer_conf=_recorded_conf(scenario, settings, peers.sittings[-1])
        if len(peers.sittings) > 1
        else None,
        with_peers=peers.with_peers,
    )
    return RunWriter.create(settings.results, header)


def _recorded_conf(
    scenario: Scenario, settings: RunSettings, sitting: Sitting
) -> Mapping[str, str]:
    """The settings of a sitting's session as run.json has them."""
    bare = replace(sitting, jars=recorded_jars(sitting))
    asked = session_settings(scenario, settings, bare, "event-log", "spark")
    return spark_conf(replace(asked, archive=Path(asked.archive).name))


def _was_isolated(path: Path) -> bool:
    return bool(load_header(path).settings.get("isolate_peers"))
