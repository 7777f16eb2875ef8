"""Joins the workers' reports with the task attempts in Spark's event log.

At most one attempt at a partition of a stage counts, and only its report is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from serde_lab.errors import LabError
from serde_lab.measure.spark_tasks import SparkHistory, TaskAttempt
from serde_lab.measure.timeline import TaskReport


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """The report of one task attempt; `task_id` is `TaskContext.taskAttemptId()`."""

    stage_id: int
    partition: int
    task_id: int
    attempt: int
    report: TaskReport

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, strings and ints, in the form that a worker adds to the accumulator."""
        return {
            "stage_id": self.stage_id,
            "partition": self.partition,
            "task_attempt_id": self.task_id,
            "attempt": self.attempt,
            "report": self.report.to_json(),
        }

    @classmethod
    def from_json(cls, value: str | Mapping[str, Any]) -> Self:
        """A report from the output of `to_json`, or from its JSON text."""
        fields: Mapping[str, Any] = json.loads(value) if isinstance(value, str) else value
        return cls(
            stage_id=fields["stage_id"],
            partition=fields["partition"],
            task_id=fields["task_attempt_id"],
            attempt=fields["attempt"],
            report=TaskReport.from_json(fields["report"]),
        )


@dataclass(frozen=True, slots=True)
class JoinedTask:
    """One task attempt, with its worker's report if the attempt counts and has one.

    `counts`: the partition's output is that of this attempt. Other attempts only took time.
    """

    attempt: TaskAttempt
    report: TaskReport | None
    counts: bool


def join_reports(history: SparkHistory, reports: Iterable[AttemptReport]) -> tuple[JoinedTask, ...]:
    """Every attempt of `history`, in launch order, with the reports of those that count.

    If several attempts at a partition succeeded (a retried stage), the last one counts. Raises LabError
    naming stage and partition if a successful task of a Python stage has no report, or if a report belongs to
    no attempt.
    """
    by_task = {report.task_id: report for report in reports}
    python = {stage.stage_id for stage in history.stages if stage.python}
    unknown = by_task.keys() - {attempt.task_id for attempt in history.attempts}
    if unknown:
        lost = by_task[min(unknown)]
        raise LabError(
            f"the worker of stage {lost.stage_id}, partition {lost.partition} reported task"
            f" {lost.task_id}, which Spark's event log does not hold"
        )
    counting = {attempt.task_id for attempt in _counting(history.attempts)}
    joined = []
    for attempt in sorted(history.attempts, key=lambda one: (one.launch_ms, one.task_id)):
        counts = attempt.task_id in counting
        found = by_task.get(attempt.task_id) if counts else None
        if counts and found is None and attempt.stage_id in python:
            raise LabError(
                f"stage {attempt.stage_id}, partition {attempt.partition}: task {attempt.task_id}"
                " succeeded and its Python worker reported nothing"
            )
        joined.append(JoinedTask(attempt, found.report if found else None, counts))
    return tuple(joined)


def _counting(attempts: Sequence[TaskAttempt]) -> Iterable[TaskAttempt]:
    last: dict[tuple[int, int], TaskAttempt] = {}
    for attempt in attempts:
        key = attempt.stage_id, attempt.partition
        if attempt.successful and (key not in last or _later(attempt) > _later(last[key])):
            last[key] = attempt
    return last.values()


def _later(attempt: TaskAttempt) -> tuple[int, int, int]:
    return attempt.stage_attempt, attempt.finish_ms or 0, attempt.task_id
