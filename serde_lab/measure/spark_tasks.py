"""Defines jobs, stages and task attempts as Spark's scheduler records them in the event log.

Units are Spark's own: milliseconds since the epoch, by the JVM's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """Spark's figures of one task attempt; zero if Spark gave none."""

    executor_run_ms: int = 0
    executor_cpu_ns: int = 0
    deserialize_ms: int = 0
    deserialize_cpu_ns: int = 0
    gc_ms: int = 0
    result_serialize_ms: int = 0
    result_bytes: int = 0
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
    input_bytes: int = 0
    input_records: int = 0
    output_bytes: int = 0
    output_records: int = 0


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
