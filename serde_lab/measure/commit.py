"""Turns everything measured about one timed commit into samples.

Inputs are the commit's interval, Spark's history and the workers' reports. In-process runs take the same step
without Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from serde_lab.measure.event_log import SparkHistory, TaskAttempt
from serde_lab.measure.identity import Identity, JoinedTask, join_reports, split_time
from serde_lab.measure.metrics import DETAIL_PREFIX, DRIVER_PREFIX, HOP_PREFIX, Sample
from serde_lab.measure.phases import is_index
from serde_lab.measure.process_tree import TreeUse
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import AttemptReport, TaskReport

_NS_PER_MS = 1_000_000
# counters of what a stage sends; those of index records have this prefix
_SENT = ("frames", "frame_bytes")
INDEX = "index_"


@dataclass(frozen=True, slots=True)
class CommitMeasure:
    """The split of a commit's slot time, its workers' counters, and Spark's own figures.

    `counters` are summed over the tasks of each stage label ("map", "reduce"). `tree` is None if some of the
    processes ran elsewhere.
    """

    identity: Identity
    counters: Mapping[str, Mapping[str, int]]
    peak_worker_rss_bytes: int | None
    spark: Mapping[str, float]
    driver: Mapping[str, float]
    tree: TreeUse | None
    kept: tuple[bytes, ...] = ()
    """The frames that its tasks kept."""

    def samples(self, commit: int) -> Iterator[Sample]:
        """The samples of this commit, except `seconds` and those that only the table can supply.

        `commit` is its number in the cell, from 1. `frames` and `frame_bytes` count the records that all
        sending stages sent; `rows` is the count of the first stage that counted rows. With several sending
        stages, the counts of each stage follow.
        """
        for phase, time in self.identity.phases.items():
            yield Sample("phase_wall_s", time.wall_s, commit, phase)
            yield Sample("phase_cpu_s", time.cpu_s, commit, phase)
        for name, value in self._figures():
            yield Sample(name, value, commit)

    def _figures(self) -> Iterator[tuple[str, float]]:
        yield "unattributed_share", self.identity.unattributed_share
        first = next((counted for counted in self.counters.values() if "rows" in counted), None)
        if first is not None:
            yield "rows", first["rows"]
        for name in _SENT:
            stages = [counted[name] for counted in self.counters.values() if name in counted]
            if stages:
                yield name, sum(stages)
        yield from self._by_hop()
        if self.peak_worker_rss_bytes is not None:
            yield "peak_worker_rss_bytes", self.peak_worker_rss_bytes
        if self.tree is not None:
            yield "tree_cpu_s", self.tree.cpu_s
            yield "tree_worker_cpu_s", self.tree.worker_cpu_s
            yield "tree_peak_bytes", self.tree.peak_bytes
        yield from {**self.spark, **self.driver}.items()

    def _by_hop(self) -> Iterator[tuple[str, float]]:
        """The counts of each sending stage if there are several, and those of index records."""
        names = (*_SENT, *(f"{INDEX}{name}" for name in _SENT))
        sent = {
            f"{HOP_PREFIX}{stage}.{name}": counted[name]
            for stage, counted in self.counters.items()
            for name in names
            if name in counted
        }
        if len(sent) > len(_SENT):
            yield from sent.items()
        of_index = [
            counted[f"{INDEX}rows"]
            for counted in self.counters.values()
            if f"{INDEX}frames" in counted
        ]
        if of_index:
            yield "index_records", sum(of_index)
            cpu = [t.cpu_s for name, t in self.identity.phases.items() if is_index(name)]
            yield "index_cpu_s", math.fsum(cpu)


def measure_commit(
    interval: Interval,
    slots: int,
    history: SparkHistory,
    reports: Iterable[AttemptReport],
    *,
    driver: TaskReport | None = None,
    labels: Mapping[int, str] | None = None,
    tree: TreeUse | None = None,
) -> CommitMeasure:
    """Measure a commit that ran on Spark in `interval` on `slots` task slots.

    `history` holds the commit's jobs; `driver` is the coordinator's own timeline, whose phases all lie inside
    `interval`; `tree` is what all processes used. Raises LabError if a successful worker has no report, or if
    the parts do not add up to the whole.
    """
    tasks = join_reports(history, reports)
    identity = split_time(
        interval,
        slots,
        tasks,
        history.stages,
        driver_cpu_ns=_driver_cpu_ns(driver),
        labels=labels,
    )
    counting = [task.attempt for task in tasks if task.counts]
    return CommitMeasure(
        identity=identity,
        counters=_counters(task.report for task in tasks if task.report),
        peak_worker_rss_bytes=max(
            (t.report.peak_rss_bytes for t in tasks if t.report), default=None
        ),
        spark=spark_figures(counting, [task.attempt for task in tasks]),
        driver=_driver_figures(driver),
        tree=tree,
        kept=tuple(frame for task in tasks if task.report for frame in task.report.kept),
    )


def measure_in_process(
    interval: Interval,
    reports: Sequence[TaskReport],
    *,
    driver: TaskReport | None = None,
    tree: TreeUse | None = None,
) -> CommitMeasure:
    """Measure a commit whose stages ran in this process one task at a time, which is one slot.

    Without Spark there are no shuffle figures. Peak worker memory is left out, since the process is more than
    a worker.
    """
    tasks = [
        JoinedTask(_own_attempt(number, report), report, counts=True)
        for number, report in enumerate(reports)
    ]
    # the driver's CPU time includes that of the tasks
    own_cpu_ns = max(0, _driver_cpu_ns(driver) - sum(report.cpu_ns for report in reports))
    return CommitMeasure(
        identity=split_time(interval, 1, tasks, driver_cpu_ns=own_cpu_ns),
        counters=_counters(reports),
        peak_worker_rss_bytes=None,
        spark={},
        driver=_driver_figures(driver),
        tree=tree,
        kept=tuple(frame for report in reports for frame in report.kept),
    )


def spark_figures(
    counting: Sequence[TaskAttempt], attempts: Sequence[TaskAttempt]
) -> dict[str, float]:
    """Shuffle metrics of the attempts that count, and `spark.` details over all `attempts`."""
    kept = [attempt.metrics for attempt in counting]
    spent = [attempt.metrics for attempt in attempts]
    details = {
        "executor_run_s": sum(m.executor_run_ms for m in spent) / 1e3,
        "executor_cpu_s": sum(m.executor_cpu_ns + m.deserialize_cpu_ns for m in spent) / 1e9,
        "gc_s": sum(m.gc_ms for m in spent) / 1e3,
        "deserialize_s": sum(m.deserialize_ms for m in spent) / 1e3,
        "result_serialize_s": sum(m.result_serialize_ms for m in spent) / 1e3,
        "shuffle_write_s": sum(m.shuffle_write_ns for m in spent) / 1e9,
        "fetch_wait_s": sum(m.fetch_wait_ms for m in spent) / 1e3,
        "disk_spilled_bytes": sum(m.disk_spilled_bytes for m in spent),
        "memory_spilled_bytes": sum(m.memory_spilled_bytes for m in spent),
        "remote_read_bytes": sum(m.shuffle_remote_read_bytes for m in kept),
        "execution_peak_bytes": max((m.execution_peak_bytes for m in spent), default=0),
        "tasks": len(counting),
        "lost_attempts": len(attempts) - len(counting),
    }
    return {
        "shuffle_bytes": sum(m.shuffle_write_bytes for m in kept),
        "shuffle_records": sum(m.shuffle_write_records for m in kept),
        "shuffle_read_bytes": sum(m.shuffle_read_bytes for m in kept),
        **{f"{DETAIL_PREFIX}{name}": value for name, value in details.items()},
    }


def _driver_cpu_ns(driver: TaskReport | None) -> int:
    """The CPU time of the driver's phases: its timeline may begin before the commit and end after it."""
    return 0 if driver is None else sum(phase.cpu_ns for phase in driver.phases.values())


def _driver_figures(driver: TaskReport | None) -> dict[str, float]:
    if driver is None:
        return {}
    return {
        f"{DRIVER_PREFIX}{name}_s": phase.wall_ns / 1e9 for name, phase in driver.phases.items()
    }


def _counters(reports: Iterable[TaskReport]) -> dict[str, dict[str, int]]:
    """Sums by stage label, in the order in which the stages began."""
    counters: dict[str, dict[str, int]] = {}
    for report in sorted(reports, key=lambda report: report.started_epoch_ns):
        of_stage = counters.setdefault(report.stage, {})
        for name, n in report.counters.items():
            of_stage[name] = of_stage.get(name, 0) + n
    return counters


def _own_attempt(number: int, report: TaskReport) -> TaskAttempt:
    """An attempt with its report's interval, shrunk to whole milliseconds."""
    begin_ms = -(-report.started_epoch_ns // _NS_PER_MS)
    end_ms = max(begin_ms, (report.started_epoch_ns + report.wall_ns) // _NS_PER_MS)
    return TaskAttempt(
        stage_id=0,
        stage_attempt=0,
        partition=number,
        task_id=number,
        attempt=0,
        launch_ms=begin_ms,
        finish_ms=end_ms,
        successful=True,
    )
