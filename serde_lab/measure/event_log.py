"""Reads the event log of a Spark 3.5 application, one JSON object per line, also while it still grows.

Defines jobs, stages and task attempts as Spark's scheduler records them, in milliseconds since the epoch by
the JVM's clock. Event names and keys are those of `org.apache.spark.util.JsonProtocol` of Spark 3.5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from serde_lab.errors import RunError

# the event's name comes first in its line, so that plans of many kilobytes need no parsing
_EVENT = re.compile(rb'\{"Event":"(SparkListener\w+)"')

# operators whose tasks run a Python worker: PythonMapInArrow, ArrowEvalPython, MapInPandas...; RDDs
# only by class, since the name of a cached RDD contains the text of its plan
_PYTHON_OPERATOR = re.compile(r"Python|In(Arrow|Pandas)\b")
_PYTHON_RDD = re.compile(r"Python\w*RDD")


def event_log_file(folder: Path, application_id: str) -> Path:
    """The log of an application in `spark.eventLog.dir`, while it runs or after.

    Raises RunError if there is none.
    """
    for name in (application_id, f"{application_id}.inprogress"):
        if (folder / name).is_file():
            return folder / name
    raise RunError(f"{folder} has no event log of Spark application {application_id}")


class EventLogReader:
    """Reads what was added since the last call, and keeps what was read.

    Spark writes the log from a queue and flushes it at the end of a stage or job: call
    `SparkContext._jsc.sc().listenerBus().waitUntilEmpty()` before `read`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._line = 0
        self._jobs: dict[int, Job] = {}
        self._stages: dict[tuple[int, int], StageAttempt] = {}
        self._attempts: dict[int, TaskAttempt] = {}

    def read(self) -> SparkHistory:
        """Everything logged so far; an unfinished line is left for the next call.

        Raises RunError naming file and line if a line is not from Spark.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError as exc:
            raise RunError(f"the event log {self.path} cannot be read: {exc}") from exc
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        for line in data.splitlines():
            self._line += 1
            self._take(line)
        return SparkHistory(
            tuple(self._jobs.values()),
            tuple(self._stages.values()),
            tuple(self._attempts.values()),
        )

    def _take(self, line: bytes) -> None:
        named = _EVENT.match(line)
        handler = _HANDLERS.get(named[1].decode()) if named else None
        if handler is None:
            return
        try:
            handler(self, json.loads(line))
        except (ValueError, KeyError, TypeError) as exc:
            raise RunError(
                f"{self.path}, line {self._line} is no event of Spark 3.5:"
                f" {type(exc).__name__} {exc}"
            ) from exc

    def _job_start(self, event: dict[str, Any]) -> None:
        job_id = event["Job ID"]
        self._jobs[job_id] = Job(
            job_id=job_id,
            submitted_ms=event["Submission Time"],
            completed_ms=None,
            succeeded=False,
            stage_ids=frozenset(stage["Stage ID"] for stage in event["Stage Infos"]),
            properties=event.get("Properties") or {},
        )

    def _job_end(self, event: dict[str, Any]) -> None:
        job = self._jobs[event["Job ID"]]
        self._jobs[job.job_id] = replace(
            job,
            completed_ms=event["Completion Time"],
            succeeded=event["Job Result"]["Result"] == "JobSucceeded",
        )

    def _stage(self, event: dict[str, Any]) -> None:
        info = event["Stage Info"]
        stage = StageAttempt(
            stage_id=info["Stage ID"],
            attempt=info["Stage Attempt ID"],
            name=info["Stage Name"],
            tasks=info["Number of Tasks"],
            submitted_ms=info.get("Submission Time"),
            completed_ms=info.get("Completion Time"),
            python=_runs_python(info["RDD Info"]),
            failure=info.get("Failure Reason"),
        )
        self._stages[stage.stage_id, stage.attempt] = stage

    def _task(self, event: dict[str, Any]) -> None:
        info = event["Task Info"]
        reason = (event.get("Task End Reason") or {}).get("Reason", "")
        attempt = TaskAttempt(
            stage_id=event["Stage ID"],
            stage_attempt=event["Stage Attempt ID"],
            partition=info.get("Partition ID", info["Index"]),
            task_id=info["Task ID"],
            attempt=info["Attempt"],
            launch_ms=info["Launch Time"],
            finish_ms=info["Finish Time"] or None,
            # "Resubmitted" ends a task a second time: its output was lost with its executor
            successful=reason == "Success" and not info["Failed"] and not info["Killed"],
            speculative=info["Speculative"],
            executor=info["Executor ID"],
            reason=reason,
            metrics=_metrics(event.get("Task Metrics") or {}),
        )
        before = self._attempts.get(attempt.task_id)
        if before is not None and before.finish_ms is not None:
            attempt = replace(attempt, finish_ms=before.finish_ms, metrics=before.metrics)
        self._attempts[attempt.task_id] = attempt


_HANDLERS = {
    "SparkListenerJobStart": EventLogReader._job_start,
    "SparkListenerJobEnd": EventLogReader._job_end,
    "SparkListenerStageSubmitted": EventLogReader._stage,
    "SparkListenerStageCompleted": EventLogReader._stage,
    "SparkListenerTaskStart": EventLogReader._task,
    "SparkListenerTaskEnd": EventLogReader._task,
}


def _runs_python(rdds: list[dict[str, Any]]) -> bool:
    """Whether a stage's tasks run a Python worker, judged by the RDDs that the stage computes.

    RDDs behind a persisted one were computed earlier, unless it was evicted; in that case the worker's report
    is kept but not required.
    """
    by_id = {rdd["RDD ID"]: rdd for rdd in rdds}
    parents = {parent for rdd in rdds for parent in rdd["Parent IDs"]}
    left = [rdd_id for rdd_id in by_id if rdd_id not in parents]
    while left:
        rdd = by_id.get(left.pop())
        if rdd is None or _is_persisted(rdd.get("Storage Level") or {}):
            continue
        scope = json.loads(rdd["Scope"])["name"] if rdd.get("Scope") else ""
        if _PYTHON_OPERATOR.search(scope) or _PYTHON_RDD.fullmatch(rdd["Name"]):
            return True
        left += rdd["Parent IDs"]
    return False


def _is_persisted(level: dict[str, Any]) -> bool:
    return any(level.get(where) for where in ("Use Memory", "Use Disk", "Use Off Heap"))


def _metrics(value: dict[str, Any]) -> TaskMetrics:
    if not value:
        return TaskMetrics()
    write, read = value["Shuffle Write Metrics"], value["Shuffle Read Metrics"]
    return TaskMetrics(
        executor_run_ms=value["Executor Run Time"],
        executor_cpu_ns=value["Executor CPU Time"],
        deserialize_ms=value["Executor Deserialize Time"],
        deserialize_cpu_ns=value["Executor Deserialize CPU Time"],
        gc_ms=value["JVM GC Time"],
        result_serialize_ms=value["Result Serialization Time"],
        shuffle_write_bytes=write["Shuffle Bytes Written"],
        shuffle_write_records=write["Shuffle Records Written"],
        shuffle_write_ns=write["Shuffle Write Time"],
        shuffle_read_bytes=read["Remote Bytes Read"] + read["Local Bytes Read"],
        shuffle_remote_read_bytes=read["Remote Bytes Read"],
        shuffle_read_records=read["Total Records Read"],
        fetch_wait_ms=read["Fetch Wait Time"],
        memory_spilled_bytes=value["Memory Bytes Spilled"],
        disk_spilled_bytes=value["Disk Bytes Spilled"],
        execution_peak_bytes=value["Peak Execution Memory"],
    )


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """Spark's figures of one task attempt; zero if Spark gave none."""

    executor_run_ms: int = 0
    executor_cpu_ns: int = 0
    deserialize_ms: int = 0
    deserialize_cpu_ns: int = 0
    gc_ms: int = 0
    result_serialize_ms: int = 0
    shuffle_write_bytes: int = 0
    shuffle_write_records: int = 0
    shuffle_write_ns: int = 0
    shuffle_read_bytes: int = 0
    shuffle_remote_read_bytes: int = 0
    shuffle_read_records: int = 0
    fetch_wait_ms: int = 0
    memory_spilled_bytes: int = 0
    disk_spilled_bytes: int = 0
    execution_peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at one partition of one stage; `task_id` is unique in an application.

    `finish_ms` is None if the log does not hold the attempt's end. `successful` is the scheduler's final
    state: an attempt whose output was lost later is not successful.
    """

    stage_id: int
    stage_attempt: int
    partition: int
    task_id: int
    attempt: int
    launch_ms: int
    finish_ms: int | None
    successful: bool
    speculative: bool = False
    executor: str = ""
    reason: str = ""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """One attempt at a stage; `python` says whether its tasks run a Python worker."""

    stage_id: int
    attempt: int
    name: str
    tasks: int
    submitted_ms: int | None
    completed_ms: int | None
    python: bool
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job; `properties` are the local properties of the thread that submitted it."""

    job_id: int
    submitted_ms: int
    completed_ms: int | None
    succeeded: bool
    stage_ids: frozenset[int]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SparkHistory:
    """What ran so far: all of it, or the part that one cell submitted."""

    jobs: tuple[Job, ...]
    stages: tuple[StageAttempt, ...]
    attempts: tuple[TaskAttempt, ...]

    def with_property(self, key: str, value: str) -> SparkHistory:
        """The jobs submitted while local property `key` was `value`, with their tasks."""
        return self._of([job for job in self.jobs if job.properties.get(key) == value])

    def of_group(self, group: str) -> SparkHistory:
        """The jobs of a job group (`SparkContext.setJobGroup`), with their tasks."""
        return self.with_property("spark.jobGroup.id", group)

    def between(self, begin_ms: float, end_ms: float) -> SparkHistory:
        """The jobs submitted in [begin_ms, end_ms), with their tasks."""
        return self._of([job for job in self.jobs if begin_ms <= job.submitted_ms < end_ms])

    def _of(self, jobs: list[Job]) -> SparkHistory:
        ids = {stage_id for job in jobs for stage_id in job.stage_ids}
        return SparkHistory(
            tuple(jobs),
            tuple(stage for stage in self.stages if stage.stage_id in ids),
            tuple(attempt for attempt in self.attempts if attempt.stage_id in ids),
        )
