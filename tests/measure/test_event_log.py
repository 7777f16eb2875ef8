import json
from pathlib import Path

import pytest

from serde_lab.errors import LabError, RunError
from serde_lab.measure.commit import measure_commit
from serde_lab.measure.event_log import EventLogReader, SparkHistory, event_log_file
from serde_lab.measure.identity import join_reports
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import AttemptReport, PhaseTime, TaskReport

# captured from Spark 3.5.9 in local[2,4]: range, mapInArrow, repartition(3), mapInArrow, whose
# partition 1 fails at its first attempt; then a job without Python. Trimmed to the keys that are read
FOLDER = Path(__file__).parent / "spark_log"


@pytest.fixture(scope="module")
def history() -> SparkHistory:
    return EventLogReader(FOLDER / "events.jsonl").read()


@pytest.fixture(scope="module")
def captured() -> dict:
    return json.loads((FOLDER / "reports.json").read_text())


@pytest.fixture(scope="module")
def reports(captured: dict) -> list[AttemptReport]:
    found = []
    for text in captured["reports"]:
        ids = json.loads(text)
        report = ids.pop("report")
        phases = {name: PhaseTime(**phase) for name, phase in report.pop("phases").items()}
        ids["task_id"] = ids.pop("task_attempt_id")
        found.append(AttemptReport(**ids, report=TaskReport(**report, phases=phases)))
    return found


@pytest.fixture(scope="module")
def cell(history: SparkHistory) -> SparkHistory:
    return history.with_property("serde_lab.cell", "r01-arrow")


def test_jobs_carry_the_properties_of_who_submitted_them(history: SparkHistory) -> None:
    assert [job.properties["serde_lab.cell"] for job in history.jobs] == ["r01-arrow", "r01-native"]
    assert all(job.succeeded and job.completed_ms for job in history.jobs)
    assert len(history.of_group("r01-arrow").jobs) == 2
    first = history.jobs[0].submitted_ms
    assert history.between(first, first + 1).jobs == history.jobs[:1]


def test_a_cell_has_the_tasks_of_its_jobs_only(history: SparkHistory, cell: SparkHistory) -> None:
    assert {stage.stage_id for stage in cell.stages} == {2, 3}
    assert len(cell.attempts) == 8
    native = history.with_property("serde_lab.cell", "r01-native")
    assert {attempt.stage_id for attempt in native.attempts} == {4, 5, 6}


def test_stages_with_a_python_worker_are_told_from_others(history: SparkHistory) -> None:
    assert {stage.stage_id: stage.python for stage in history.stages} == {
        2: True,
        3: True,
        4: False,
        5: False,
        6: False,
    }


@pytest.mark.parametrize(("persisted", "python"), [(True, False), (False, True)])
def test_a_worker_behind_a_persisted_rdd_ran_before(
    tmp_path: Path, persisted: bool, python: bool
) -> None:
    """Frames that were made and cached before the clock started cross without their worker."""
    lines = (FOLDER / "events.jsonl").read_text().splitlines()
    event = next(e for e in map(json.loads, lines) if e["Event"] == "SparkListenerStageSubmitted")
    rdds = event["Stage Info"]["RDD Info"]
    top = next(rdd for rdd in rdds if "Exchange" in rdd["Scope"])
    cached = dict(top)
    cached["RDD ID"] = 999
    cached["Name"] = "PythonMapInArrow encode(l_orderkey#0)"
    cached["Storage Level"] = {"Use Disk": False, "Use Memory": persisted, "Use Off Heap": False}
    top["Parent IDs"] = [999]
    rdds.append(cached)
    log = tmp_path / "app"
    log.write_text(json.dumps(event, separators=(",", ":")) + "\n")
    (stage,) = EventLogReader(log).read().stages
    assert stage.python is python


def test_attempts_have_their_verdict_and_metrics(cell: SparkHistory) -> None:
    failed = [attempt for attempt in cell.attempts if not attempt.successful]
    assert [(a.partition, a.attempt, a.reason) for a in failed] == [(1, 0, "ExceptionFailure")]
    again = next(a for a in cell.attempts if a.stage_id == 3 and a.attempt == 1)
    assert (again.partition, again.successful) == (1, True)
    mapped = [a.metrics for a in cell.attempts if a.stage_id == 2]
    assert sum(m.shuffle_write_records for m in mapped) == 2000
    assert all(m.shuffle_write_bytes > 1000 and m.executor_cpu_ns > 0 for m in mapped)
    assert all(a.finish_ms is not None and a.finish_ms >= a.launch_ms for a in cell.attempts)
    reduced = [a.metrics for a in cell.attempts if a.stage_id == 3 and a.successful]
    assert sum(m.shuffle_read_records for m in reduced) == 2000


def test_reports_join_the_attempts_that_count(
    cell: SparkHistory, reports: list[AttemptReport]
) -> None:
    joined = join_reports(cell, reports)
    assert len(joined) == 8
    lost = [task for task in joined if not task.counts]
    assert [(task.attempt.task_id, task.report) for task in lost] == [(13, None)]
    assert {task.report.stage for task in joined if task.report} == {"map", "reduce"}


def test_a_successful_worker_without_a_report_is_an_error(
    cell: SparkHistory, reports: list[AttemptReport]
) -> None:
    without = [report for report in reports if report.task_id != 15]
    with pytest.raises(LabError, match="stage 3, partition 1: task 15 succeeded"):
        join_reports(cell, without)


def test_a_report_of_a_task_that_spark_does_not_know_is_an_error(
    history: SparkHistory, reports: list[AttemptReport]
) -> None:
    native = history.with_property("serde_lab.cell", "r01-native")
    with pytest.raises(LabError, match=r"stage 2, partition \d reported task"):
        join_reports(native, reports)


def test_a_real_commit_is_split_without_a_gap(
    cell: SparkHistory, reports: list[AttemptReport], captured: dict
) -> None:
    interval = Interval(captured["started_epoch_ns"], captured["ended_epoch_ns"])
    measured = measure_commit(interval, 2, cell, reports)
    phases = measured.identity.phases
    assert sum(p.wall_s for p in phases.values()) == pytest.approx(
        2 * interval.length_ns / 1e9, abs=1e-9
    )
    assert measured.identity.clamped_s == 0
    # the workers' spines are small here: tasks start slowly
    assert phases["map.input_wait"].wall_s == pytest.approx(0.001, abs=0.001)
    assert phases["map.task_setup"].wall_s > 0.01
    assert phases["map.task_setup"].wall_s + phases["map.jvm_before"].wall_s > 0.5
    assert phases["lost_attempts"].wall_s == pytest.approx(0.192, abs=0.01)
    assert phases["idle.driver"].wall_s > 0.2
    assert measured.counters == {"map": {"rows": 2000}, "reduce": {"rows": 2000}}
    values = {value.metric: value.value for value in measured.samples(1) if not value.phase}
    assert values["rows"] == 2000
    assert values["shuffle_records"] == 2000
    assert values["spark.lost_attempts"] == 1
    assert values["peak_worker_rss_bytes"] > 50e6


def test_tasks_without_a_worker_are_the_jvms(history: SparkHistory) -> None:
    native = history.with_property("serde_lab.cell", "r01-native")
    job = native.jobs[0]
    interval = Interval(job.submitted_ms * 10**6, (job.completed_ms or 0) * 10**6)
    phases = measure_commit(interval, 2, native, []).identity.phases
    assert {name for name in phases if name.endswith(".jvm")} == {"map.jvm", "reduce.jvm"}
    assert phases["map.jvm"].cpu_s > 0
    assert phases["unattributed"].wall_s == 0
    named = measure_commit(interval, 2, native, [], labels={6: "count"}).identity.phases
    assert "count.jvm" in named


def test_a_log_is_read_while_it_grows(tmp_path: Path) -> None:
    whole = (FOLDER / "events.jsonl").read_bytes()
    log = tmp_path / "app"
    log.touch()
    reader = EventLogReader(log)
    assert reader.read().jobs == ()
    with log.open("ab", buffering=0) as file:
        for at in range(0, len(whole), 3001):
            file.write(whole[at : at + 3001])
            history = reader.read()
    assert history == EventLogReader(FOLDER / "events.jsonl").read()


def test_events_that_are_not_needed_are_not_even_parsed(tmp_path: Path) -> None:
    log = tmp_path / "app"
    log.write_text(
        '{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart", broken\n'
        '{"Event":"SparkListenerBlockManagerAdded", broken\n'
    )
    assert EventLogReader(log).read().attempts == ()


def test_a_damaged_event_is_named(tmp_path: Path) -> None:
    log = tmp_path / "app"
    log.write_text('{"Event":"SparkListenerLogStart"}\n{"Event":"SparkListenerTaskEnd"}\n')
    with pytest.raises(RunError, match=r"app, line 2 is no event of Spark 3\.5: KeyError"):
        EventLogReader(log).read()


def test_a_task_whose_output_was_lost_is_not_successful(tmp_path: Path) -> None:
    """Spark ends such a task a second time, as "Resubmitted", and runs its partition again."""
    lines = (FOLDER / "events.jsonl").read_text().splitlines()
    at, line = next(
        (i, line)
        for i, line in enumerate(lines)
        if '"ShuffleMapTask"' in line and '"Task ID":9,' in line
    )
    again = json.loads(line)
    again["Task End Reason"] = {"Reason": "Resubmitted"}
    again["Task Metrics"] = None
    lines.insert(at + 1, json.dumps(again, separators=(",", ":")))
    log = tmp_path / "app"
    log.write_text("\n".join(lines) + "\n")
    attempt = next(a for a in EventLogReader(log).read().attempts if a.task_id == 9)
    assert (attempt.successful, attempt.reason) == (False, "Resubmitted")
    assert attempt.metrics.shuffle_write_records == 500


def test_the_log_of_an_application_is_found_while_it_runs_and_after(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no event log of Spark application local-1"):
        event_log_file(tmp_path, "local-1")
    running = tmp_path / "local-1.inprogress"
    running.touch()
    assert event_log_file(tmp_path, "local-1") == running
    running.rename(tmp_path / "local-1")
    assert event_log_file(tmp_path, "local-1") == tmp_path / "local-1"
