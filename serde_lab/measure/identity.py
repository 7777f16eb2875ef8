"""Splits a commit's slot time, slots x wall, into phases without gaps or overlaps.

`join_reports` first joins the workers' reports with the task attempts of Spark's event log: at most one
attempt at a partition of a stage counts, and only its report is kept.

Task attempts from launch to finish plus empty slots make the whole. Inside a task the worker's own timeline
counts, with `task_setup` and `jvm_before` before it and `jvm_after` after it. The only remainder is
`unattributed`: time inside the worker's function that no phase covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from serde_lab.errors import LabError
from serde_lab.measure.event_log import SparkHistory, StageAttempt, TaskAttempt
from serde_lab.measure.phases import (
    IDLE_DRIVER,
    IDLE_SCHEDULER,
    IDLE_STAGE_TAIL,
    JVM,
    JVM_AFTER,
    JVM_BEFORE,
    LOST_ATTEMPTS,
    TASK_SETUP,
    UNATTRIBUTED,
    PhaseSeconds,
)
from serde_lab.measure.slots import Held, Interval, idle_time, without_overlap
from serde_lab.measure.timeline import AttemptReport, TaskReport

_NS_PER_MS = 1_000_000
_NS_PER_S = 1e9

# The first limits allow for workers that overlap by millisecond rounding, the second for attempts
# that overlap because a busy driver noted their finish late. Beyond them, `slots` is wrong.
_CLAMPED_SHARE, _CLAMPED_NS_PER_TASK = 0.02, 10 * _NS_PER_MS
_OVERLAP_SHARE, _OVERLAP_NS_PER_TASK = 0.25, 100 * _NS_PER_MS


@dataclass(frozen=True, slots=True)
class JoinedTask:
    """One task attempt, with its worker's report if the attempt counts and has one.

    `counts`: the partition's output is that of this attempt. Other attempts only took time.
    """

    attempt: TaskAttempt
    report: TaskReport | None
    counts: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """`phases` sum to `whole_s`, which is slots x wall.

    `clamped_s` is worker time that was cut because two tasks appeared to hold one slot at once; no phase
    contains it.
    """

    phases: Mapping[str, PhaseSeconds]
    whole_s: float
    clamped_s: float

    @property
    def unattributed_share(self) -> float:
        """The share of the whole that is inside workers but outside every timer."""
        return self.phases[UNATTRIBUTED].wall_s / self.whole_s if self.whole_s else 0.0


def split_time(
    cell: Interval,
    slots: int,
    tasks: Sequence[JoinedTask],
    stages: Sequence[StageAttempt] = (),
    *,
    driver_cpu_ns: int = 0,
    labels: Mapping[int, str] | None = None,
) -> Identity:
    """Split the time of `cell` on `slots` task slots.

    `driver_cpu_ns` is the coordinator's own CPU time, shown under `idle.driver`. `labels` names the stages
    whose tasks have no worker; by default a stage that writes a shuffle is "map", any other "reduce". Raises
    LabError if more tasks ran at once than there are slots.
    """
    labels = dict(labels or {})
    tasks = [task for task in tasks if _held(0, task, cell).whole.length_ns]
    shuffling = {t.attempt.stage_id for t in tasks if t.attempt.metrics.shuffle_write_records}
    wanted = [_held(i, task, cell) for i, task in enumerate(tasks)]
    laid = without_overlap(wanted, slots)
    ledger = _Ledger()
    for task, held in zip(tasks, laid, strict=True):
        stage_id = task.attempt.stage_id
        label = labels.get(stage_id, "map" if stage_id in shuffling else "reduce")
        ledger.add_task(task, held, label, cell)
    overlap_ns = sum(held.whole.length_ns for held in wanted)
    overlap_ns -= sum(held.whole.length_ns for held in laid)
    whole_ns = slots * cell.length_ns
    if ledger.clamped_ns > _CLAMPED_SHARE * whole_ns + _CLAMPED_NS_PER_TASK * len(
        tasks
    ) or overlap_ns > _OVERLAP_SHARE * whole_ns + _OVERLAP_NS_PER_TASK * len(tasks):
        raise LabError(
            f"tasks held {overlap_ns / _NS_PER_S:.3f} s more than {slots} slots have: the number of"
            " slots is wrong, or the clocks of driver and workers differ"
        )
    idle = idle_time(cell, slots, [held.whole for held in laid], _waiting(tasks, stages))
    ledger.add(IDLE_DRIVER, idle.driver_ns, driver_cpu_ns)
    ledger.add(IDLE_STAGE_TAIL, idle.stage_tail_ns, 0)
    ledger.add(IDLE_SCHEDULER, idle.scheduler_ns, 0)
    ledger.add(UNATTRIBUTED, 0, 0)
    return Identity(
        {
            name: PhaseSeconds(wall_ns / _NS_PER_S, cpu_ns / _NS_PER_S)
            for name, (wall_ns, cpu_ns) in ledger.times.items()
        },
        whole_s=slots * cell.length_ns / _NS_PER_S,
        clamped_s=ledger.clamped_ns / _NS_PER_S,
    )


class _Ledger:
    """Slot and CPU nanoseconds by phase."""

    def __init__(self) -> None:
        self.times: dict[str, tuple[int, int]] = {}
        self.clamped_ns = 0

    def add(self, phase: str, wall_ns: int, cpu_ns: int) -> None:
        before = self.times.get(phase, (0, 0))
        self.times[phase] = before[0] + wall_ns, before[1] + cpu_ns

    def add_task(self, task: JoinedTask, held: Held, label: str, cell: Interval) -> None:
        whole, core = held.whole, held.core
        if not task.counts:
            self.add(LOST_ATTEMPTS, whole.length_ns, task.attempt.metrics.executor_cpu_ns)
        elif task.report is None:
            metrics = task.attempt.metrics
            cpu_ns = metrics.executor_cpu_ns + metrics.deserialize_cpu_ns
            self.add(f"{label}.{JVM}", whole.length_ns, cpu_ns)
        else:
            self._add_spine(task.report, core.length_ns)
            self.clamped_ns += _spine(task.report).within(cell).length_ns - core.length_ns
            self._add_jvm(task.attempt, held, task.report.stage)

    def _add_jvm(self, attempt: TaskAttempt, held: Held, stage: str) -> None:
        """The JVM's work around the worker's function; Spark times only the deserialising by itself."""
        before_ns = held.core.begin_ns - held.whole.begin_ns
        deserialize_ns = attempt.metrics.deserialize_ms * _NS_PER_MS
        setup_ns = min(before_ns, deserialize_ns)
        cpu_ns = attempt.metrics.deserialize_cpu_ns
        setup_cpu_ns = _part(cpu_ns, setup_ns, deserialize_ns) if deserialize_ns else 0
        self.add(f"{stage}.{TASK_SETUP}", setup_ns, setup_cpu_ns)
        self.add(f"{stage}.{JVM_BEFORE}", before_ns - setup_ns, 0)
        self.add(f"{stage}.{JVM_AFTER}", held.whole.end_ns - held.core.end_ns, 0)

    def _add_spine(self, report: TaskReport, kept_ns: int) -> None:
        if report.unattributed_ns < 0:
            raise LabError(
                f"internal error: the phases of a task of stage {report.stage!r} take"
                f" {-report.unattributed_ns} ns more than the task"
            )
        left_ns, left_cpu_ns = kept_ns, _part(report.cpu_ns, kept_ns, report.wall_ns)
        for verb, time in report.phases.items():
            wall_ns = _part(time.wall_ns, kept_ns, report.wall_ns)
            cpu_ns = _part(time.cpu_ns, kept_ns, report.wall_ns)
            self.add(f"{report.stage}.{verb}", wall_ns, cpu_ns)
            left_ns -= wall_ns
            left_cpu_ns -= cpu_ns
        self.add(UNATTRIBUTED, left_ns, max(0, left_cpu_ns))


def _part(ns: int, kept_ns: int, spine_ns: int) -> int:
    """The share of `ns` that counts if a worker's timeline of `spine_ns` was cut to `kept_ns`."""
    return ns if kept_ns == spine_ns else ns * kept_ns // spine_ns


def _spine(report: TaskReport) -> Interval:
    # the end by the monotonic clock: the epoch clock may be set in between
    return Interval(report.started_epoch_ns, report.started_epoch_ns + report.wall_ns)


def _held(number: int, task: JoinedTask, cell: Interval) -> Held:
    """The slot time of an attempt inside the cell, extended to contain its worker's timeline.

    Spark cuts its times to whole milliseconds, so that a worker may appear to start before its launch or to
    end after its finish.
    """
    attempt = task.attempt
    begin_ns = attempt.launch_ms * _NS_PER_MS
    end_ns = cell.end_ns if attempt.finish_ms is None else attempt.finish_ms * _NS_PER_MS
    if task.report is None:
        # only the launch is certain: the noted finish may lie in the slot's next task
        whole = Interval(begin_ns, end_ns).within(cell)
        return Held(number, whole, Interval(whole.begin_ns, whole.begin_ns))
    spine = _spine(task.report)
    whole = Interval(min(begin_ns, spine.begin_ns), max(end_ns, spine.end_ns)).within(cell)
    return Held(number, whole, spine.within(whole))


def _waiting(tasks: Sequence[JoinedTask], stages: Sequence[StageAttempt]) -> list[Interval]:
    """The intervals in which a task could have run but did not.

    Each begins with the submission of the task's stage, or the end of a failed attempt, and ends with the
    next launch. Speculative attempts do not count as waiting.
    """
    submitted = {(stage.stage_id, stage.attempt): stage.submitted_ms for stage in stages}
    ready_ms: dict[tuple[int, int, int], int | None] = {}
    waiting = []
    for attempt in sorted((t.attempt for t in tasks), key=lambda a: (a.launch_ms, a.task_id)):
        if attempt.speculative:
            continue
        key = attempt.stage_id, attempt.stage_attempt, attempt.partition
        since_ms = ready_ms.get(key, submitted.get(key[:2]))
        if since_ms is not None and since_ms < attempt.launch_ms:
            waiting.append(Interval(since_ms * _NS_PER_MS, attempt.launch_ms * _NS_PER_MS))
        ready_ms[key] = attempt.finish_ms
    return waiting


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
