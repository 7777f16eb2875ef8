"""Runs a scenario from end to end: data, sessions, rounds of cells, checks, and the run directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from serde_lab.errors import RunError, UsageError, worst
from serde_lab.lab.cells.codec_cells import CodecCells
from serde_lab.lab.cells.dataset_cells import DatasetCells
from serde_lab.lab.cells.table_cells import InProcess, TableCells
from serde_lab.lab.checks.cell_checks import CellChecks
from serde_lab.lab.checks.dataset_checks import DatasetChecks
from serde_lab.lab.checks.referee import Referee, UnseenRows, note_unread_frames
from serde_lab.lab.checks.stand_alone import Proof, frames_stand_alone
from serde_lab.lab.estimates import check_disk
from serde_lab.lab.header import check_resumed, run_header, swept_header
from serde_lab.lab.inputs.prepared import PreparedInputs, default_cache
from serde_lab.lab.plan import CellPlan, hops_of, serde_options, visits
from serde_lab.lab.rounds import Cells, Judge, Rounds, rows_kind, wrong_answer
from serde_lab.lab.run_points import PreparedPoint, planned, prepared
from serde_lab.lab.run_settings import Progress, Silent, check_work, kept_as, work_folder

# `lab/ab/variant.py` imports RunSettings from here, in code of any commit
from serde_lab.lab.run_settings import RunSettings as RunSettings
from serde_lab.lab.search import OpenCells, Search, planned_search
from serde_lab.lab.session.run_session import (
    Measured,
    RunSession,
    SessionOfPoints,
    SessionsApart,
    heap_of,
    start_settings,
)
from serde_lab.lab.session.session import SessionSettings, check_heaps
from serde_lab.lab.session.worker_environment import environment_archive
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.runs.directory import load_header, load_run
from serde_lab.runs.writer import RunWriter
from serde_lab.scenario.loading import parse_scenario, sweep_points
from serde_lab.scenario.model import FORMAT_CONTROLS, Arm, Scenario
from serde_lab.scenario.sweep import SweepPoint, tables_of, writes_several

_LARGE_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The path of the run, and the exit status for it."""

    path: Path
    exit_status: int


def run_scenario(
    scenario: Scenario,
    settings: RunSettings,
    progress: Progress | None = None,
    resume: Path | None = None,
) -> RunOutcome:
    """Measure every cell of `scenario`, or those that the run at `resume` still lacks.

    An arm that raises or whose contents are wrong is marked and not measured any further; the other
    arms continue. Raises LabError if nothing can be measured at all.
    """
    progress = progress or Silent()
    settings = _with_environment(settings, progress)
    check_work(settings.work)
    check_kept_tables([(scenario, settings.arms)], settings)
    isolated = settings.isolate_peers
    if resume is not None:
        isolated = bool(load_header(resume).settings.get("isolate_peers"))
    checked = [
        planned(point, arms, settings, isolated)
        for point, arms in chosen_points(scenario, settings.arms)
    ]
    check_disk([(one.scenario, one.arms) for one in checked], settings, progress.message)
    points = [prepared(one, settings, progress) for one in checked]
    with ExitStack() as stack:
        work = stack.enter_context(work_folder(settings.work))
        writer = stack.enter_context(_writer(scenario, points, settings, resume))
        stack.enter_context(_interruptible(writer.path))
        for name, reason in points[0].peers.missing.items():
            progress.message(f"{name} is missing: {reason}")
        if points[0].peers.note:
            progress.message(points[0].peers.note)
        shared = stack.enter_context(SessionOfPoints(settings, work))
        order = visits([(point.at, point.here) for point in points])
        searching = scenario.search is not None
        if searching:
            rungs = planned_search(scenario, chosen_arms(scenario, settings.arms), settings)
            progress.plan(sum(len(rung.cells) for rung in rungs), len(writer.complete_cells))
        else:
            names = {cell.name for _, plan in order for cell in plan}
            progress.plan(len(names), len(names & writer.complete_cells))
        given_up = {} if resume is None else _given_up(resume)
        not_kept: list[str] = []
        for number, plan in order:
            point = points[number]
            todo = [cell for cell in plan if cell.name not in writer.complete_cells]
            if todo or searching:
                place = work / f"point-{point.at.mark}" if point.at.mark else work
                place.mkdir(exist_ok=True)
                cells = partial(_table_cells, shared=shared if point.at.of_shapes else None)
                not_kept += _measure(
                    point, todo, place, writer, settings, progress, given_up, cells
                )
                if place != work:
                    shutil.rmtree(place, ignore_errors=True)
        if resume is not None:
            note_unread_frames(writer)
        writer.finish("complete")
    return RunOutcome(writer.path, worst([load_run(writer.path).exit_status, 1 if not_kept else 0]))


def check_kept_tables(
    scenarios: Sequence[tuple[Scenario, tuple[str, ...]]], settings: RunSettings
) -> None:
    """Raise UsageError unless `settings` can keep the tables of all these arms."""
    if settings.kept_tables is not None:
        for scenario, _ in scenarios:
            if scenario.search is not None:
                raise UsageError(
                    f"--keep-tables: {scenario.name} is a search, which keeps no tables"
                )
        settings.kept_tables.check(
            [
                kept_as(arm.name, table if scenario.datasets else "")
                for scenario, names in scenarios
                for _, arms in chosen_points(scenario, names)
                for arm in arms
                for table in tables_of(scenario)
            ]
        )


@contextmanager
def _interruptible(run: Path) -> Iterator[None]:
    """On ctrl-C, say where the run is and how to resume it."""
    try:
        yield
    except KeyboardInterrupt as exc:
        exc.add_note(
            f"what was measured is kept; `serde-lab run --resume {run}` continues, with the same --master,"
            " --conf, --work and --keep-tables, if there were any"
        )
        raise


def _with_environment(settings: RunSettings, progress: Progress) -> RunSettings:
    """The settings with the archive for the workers, if `ship_environment` is set."""
    if not settings.ship_environment:
        return settings
    if not settings.master:
        raise UsageError("--ship-environment needs the --master of a cluster")
    cache = default_cache() if settings.cache is None else settings.cache
    archive = environment_archive(cache, settings.worker_python, progress.message)
    return replace(settings, archive=archive)


def _measure(
    point: PreparedPoint,
    todo: list[CellPlan],
    work: Path,
    writer: RunWriter,
    settings: RunSettings,
    progress: Progress,
    given_up: dict[str, str],
    table_cells: OpenCells,
) -> list[str]:
    """Measure the cells `todo` of one point; arms that fail are added to `given_up`.

    Returns the arms whose tables could not be kept.
    """
    if point.at.mark:
        progress.message(f"{', '.join(arm.name for arm in point.arms)}")
    session = _codec_session(point, settings, work) if point.peers.with_peers else None
    began_s = time.time()
    codec = CodecCells.of(point.scenario, point.inputs, point.schema, work, session)
    checks: Judge = codec or _table_checks(point, work, progress)
    # reads have no rows of their own
    batches = (point.inputs.commits[0], *point.inputs.setups)
    first = next((batch for batch in batches if batch.rows), batches[0])
    rows = pq.read_metadata(first.files[0]).num_rows
    proven = tuple(arm for arm in point.arms if arm.name not in given_up)
    keys = _keys(point)
    proof = _frames(point.scenario, proven, point.schema, keys, rows, work / "stand-alone")
    for name, result in proof.results.items():
        writer.check(replace(result, arm=name))
        if result.failed:
            given_up[name] = wrong_answer(result.name, result.detail)
    rounds = Rounds(
        point.arms,
        checks,
        writer,
        settings.kept_tables,
        progress,
        proof.raised,
        given_up,
        kinds={arm.name: rows_kind(point.scenario, arm) for arm in point.arms},
    )
    if isinstance(checks, CellChecks):  # before a strategy can change the schema
        # the cells of several tables do not say what each of them took
        commits = () if writes_several(point.scenario) else point.inputs.commits
        unseen, place = UnseenRows(commits, point.schema, keys), work / "referee"
        referee = Referee(point.inputs, point.schema, checks.rules, unseen, place, began_s)
    if point.scenario.search is not None:
        arms = Search(point, settings, writer, rounds, table_cells).run(work, progress)
        point = replace(point, arms=arms)
    else:
        here = closing(codec) if codec else table_cells(point, todo, settings, work, progress)
        with here as cells:
            rounds.run(todo, cells)
    # the session's workers have ended: none is left who could tell the referee what the frames lack
    if isinstance(checks, CellChecks):
        _call_referee(point, rounds, checks, writer, referee)
    return rounds.not_kept


def _call_referee(
    point: PreparedPoint,
    rounds: Rounds,
    checks: CellChecks,
    writer: RunWriter,
    referee: Referee,
) -> None:
    """Have a referee decode frames of every arm that was measured and found right."""
    arms = {
        arm.name: arm
        for arm in point.arms
        if arm.name in rounds.frames and arm.name not in rounds.given_up
    }
    sent = {name: (arm.strategy or "", serde_options(arm)) for name, arm in arms.items()}
    frames = {name: rounds.frames[name] for name in arms}
    tables = {name: checks.rows_of(arm) for name, arm in arms.items()}
    hops = {name: hops_of(point.scenario, arm) for name, arm in arms.items()}
    run = load_run(writer.path)
    for name, results in referee.judge(sent, frames, tables, hops, run).items():
        for result in results:
            writer.check(replace(result, arm=name))


def _codec_session(point: PreparedPoint, settings: RunSettings, work: Path) -> SessionSettings:
    """The settings of the session in which a codec run measures Apache Hudi's record classes."""
    local = work / "spark"
    local.mkdir(parents=True, exist_ok=True)
    return start_settings(point.scenario, settings, point.peers.sessions[0], "", str(local))


def _table_checks(point: PreparedPoint, work: Path, progress: Progress) -> CellChecks:
    progress.message("computing the expected rows (DuckDB)")
    if writes_several(point.scenario):
        return DatasetChecks(point.tables, work)
    return CellChecks(point.scenario, point.inputs, work)


def resumed(path: Path) -> Scenario:
    """The scenario of an interrupted run, with its changes. Raises RunError if the run is complete."""
    run = load_run(path)
    if run.header.state == "complete":
        raise RunError(f"{path} is complete: there is nothing to resume")
    return parse_scenario(run.header.scenario_content, str(path / "run.json"))


def chosen_arms(scenario: Scenario, names: tuple[str, ...]) -> tuple[Arm, ...]:
    """The arms called `names`, all of them for (). Raises RunError for an unknown name."""
    known = {arm.name: arm for arm in scenario.arms}
    for name in names:
        if name not in known:
            raise RunError(f"{scenario.name} has no arm {name!r}; it has {', '.join(known)}")
    return tuple(arm for arm in scenario.arms if not names or arm.name in names)


def chosen_points(
    scenario: Scenario, names: tuple[str, ...]
) -> list[tuple[SweepPoint, tuple[Arm, ...]]]:
    """The points of a run, each with its arms of these names, as `chosen_arms` takes them."""
    chosen = chosen_arms(scenario, names)
    return [(point, point.arms(chosen)) for point in sweep_points(scenario)]


@contextmanager
def _table_cells(
    point: PreparedPoint,
    todo: Sequence[CellPlan],
    settings: RunSettings,
    work: Path,
    progress: Progress,
    shared: SessionOfPoints | None = None,
) -> Iterator[Cells]:
    """The cells of a point that writes tables, its set-up table written.

    They run in this process without Spark, in a Spark session, which may be `shared` with other points, or in
    several sessions that take turns. A new session is first warmed up for each arm without a warm-up round in
    `todo`: an earlier session measured those rounds.
    """
    scenario, sessions = point.scenario, point.peers.sessions
    all_in_the_jvm = any(arm.kind == "peer" or arm.control in FORMAT_CONTROLS for arm in point.here)
    tidy_heap = all_in_the_jvm or any(is_large(table.inputs) for table in point.tables)
    several = point.tables if writes_several(scenario) else ()
    new = True
    with ExitStack() as stack:
        cells: Cells
        if scenario.measure.exchange != "spark":
            engine = InProcess()
            if several:
                cells = DatasetCells(several, work, engine)
            else:
                cells = TableCells(scenario, point.inputs, work, engine)
        else:
            measured = Measured(scenario, point.inputs, settings, work, tidy_heap, several)
            if len(sessions) > 1:
                progress.message("starting Spark")
                check_heaps([heap_of(scenario, settings, plan) for plan in sessions])
                cells = stack.enter_context(SessionsApart(sessions, measured))
            elif shared is not None:
                session, new = shared.session(scenario, sessions[0], progress)
                stack.callback(session.settle)
                cells = measured.cells(session, work)
            else:
                progress.message("starting Spark")
                session = stack.enter_context(RunSession(scenario, settings, work, sessions[0]))
                cells = measured.cells(session, work)
        if any(table.inputs.setups for table in point.tables):
            progress.message("writing the set-up table")
        cells.set_up()
        if new:
            _warm_up(point, {cell.arm for cell in todo if cell.warmup}, cells, progress)
        yield cells


def _warm_up(point: PreparedPoint, warmed: set[str], cells: Cells, progress: Progress) -> None:
    """Measure the warm-up rounds of all arms but those `warmed`, and keep nothing."""
    arms = [arm for arm in point.here if arm.name not in warmed]
    for number in range(point.scenario.measure.warmup if arms else 0):
        progress.message("warming up")
        for arm in arms:
            name = f"warm-up-{number}-{arm.name}"
            with suppress(Exception):  # whatever an arm raises, it raises again when it counts
                cells.cell(name, arm).measure()
            cells.discard(name)


def is_large(inputs: PreparedInputs) -> bool:
    """Whether cells leave large shuffle files, which Spark deletes only after garbage collection."""
    return max(commit.rows for commit in inputs.commits) >= _LARGE_ROWS


def _given_up(path: Path) -> dict[str, str]:
    """Arms that failed or gave wrong answers in the part of a run that was measured before."""
    run = load_run(path)
    reasons = {c.arm: f"raised earlier: {c.error}" for c in run.cells if c.status == "failed"}
    for check in run.checks:
        if check.failed and check.arm is not None:
            reasons[check.arm] = wrong_answer(check.name, check.detail)
    return reasons


def _keys(point: PreparedPoint) -> KeyGenerator:
    """Keys of made-up rows, whose values are no times: folders are named by the values themselves."""
    table = point.scenario.table
    return KeyGenerator(point.schema, table.hive_style, table.url_encode)


def _frames(
    scenario: Scenario,
    arms: tuple[Arm, ...],
    schema: RecordSchema,
    keys: KeyGenerator,
    rows: int,
    work: Path,
) -> Proof:
    """Have another process decode the frames of each strategy among `arms`."""
    strategies = {
        arm.name: (arm.strategy, serde_options(arm)) for arm in arms if arm.strategy is not None
    }
    return frames_stand_alone(strategies, schema, keys, work, rows, scenario.measure.seed)


def _writer(
    scenario: Scenario, points: Sequence[PreparedPoint], settings: RunSettings, resume: Path | None
) -> RunWriter:
    headers = [run_header(point, settings) for point in points]
    header = headers[0]
    if points[0].at.mark:
        header = swept_header(scenario, settings.arms, list(zip(points, headers, strict=True)))
    if resume is not None:
        check_resumed(resume, load_header(resume), header)
        return RunWriter.open_existing(resume)
    return RunWriter.create(settings.results, header)
