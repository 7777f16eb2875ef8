"""The control `work_floor`: the work of an arm without SerDe, shuffle and JVM, on as many cores.

The same tasks read the source, make keys, find targets, precombine, merge and write the same files, by the
pipeline's own stages. Between them records stay in memory (`hand_over`). Its clock stands
still while records change processes, so it times no transfer at all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from serde_lab.lab.cells.bench import Bench
from serde_lab.lab.cells.cell import CellJob, CellResult, WriteCell, Written, heap_set_aside
from serde_lab.lab.cells.hand_over import (
    Crew,
    HandOverExchange,
    OneProcess,
    Processes,
    StoppableClock,
)
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.measure.commit import CommitMeasure, measure_commit, measure_in_process
from serde_lab.measure.event_log import SparkHistory, TaskAttempt
from serde_lab.measure.metrics import Sample
from serde_lab.measure.process_tree import TreeUse, tree_use
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import AttemptReport, TaskReport, TaskTimeline
from serde_lab.pipeline.write import PreparedWrite

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class _FloorTimes:
    """What a floor measured of one commit."""

    interval: Interval
    reports: Sequence[AttemptReport]
    driver: TaskReport
    tree: TreeUse | None


class _FloorCell(WriteCell):
    """A floor. `jvm`: the process of a session's JVM, whose CPU time is not the floor's."""

    crew: Crew
    jvm: int | None = None

    def write(self, group: str, prepared: PreparedWrite, commit: CommitInput) -> Written:
        clock = StoppableClock()
        now, driver = clock.clocks, TaskTimeline("driver", clock.clocks)
        exchange = HandOverExchange(commit.files, self.crew, clock, self.job.table.parent)
        with prepared.hold(), tree_use(jvm=self.jvm) as tree:
            begin_epoch_ns, begin_ns, begin_cpu_ns = now.epoch_ns(), now.wall_ns(), now.cpu_ns()
            written = prepared.commit(exchange, timeline=driver)
            wall_ns, cpu_ns = now.wall_ns() - begin_ns, now.cpu_ns() - begin_cpu_ns
        interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
        used = None if tree.use is None else _own_use(tree.use, cpu_ns, exchange.moved_cpu_ns)
        times = _FloorTimes(interval, exchange.reports, driver.report(), used)
        return Written(written, wall_ns, self.measured(times))

    @abstractmethod
    def measured(self, times: _FloorTimes) -> CommitMeasure:
        """The split of the commit's slot time."""


class FloorInProcess(_FloorCell):
    """The floor where all tasks run in this process, one after another, as those of strategies do."""

    def __init__(self, job: CellJob) -> None:
        super().__init__(job)
        self.crew = OneProcess()

    def measure(self) -> CellResult:
        with heap_set_aside():
            return super().measure()

    def measured(self, times: _FloorTimes) -> CommitMeasure:
        tasks = [one.report for one in times.reports]
        return measure_in_process(times.interval, tasks, driver=times.driver, tree=times.tree)


class FloorOnCores(_FloorCell):
    """The floor beside a Spark session: one process for each of the session's slots."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(job)
        self.bench, self.slots, self.jvm = bench, bench.slots, bench.jvm

    def measure(self) -> CellResult:
        self.bench.end_workers()
        with Processes(self.slots) as self.crew:
            return super().measure()

    def start(self) -> Iterator[Sample]:
        inputs, folder = self.job.inputs, self.job.table.parent
        folder.mkdir(parents=True, exist_ok=True)
        rows = max((c.rows // max(1, len(c.files)) for c in inputs.commits), default=0)
        assert isinstance(self.crew, Processes)
        yield Sample("worker_start_s", self.crew.warm_up(rows, folder))
        if not self.job.follows:
            yield from self.bench.start_samples()

    def measured(self, times: _FloorTimes) -> CommitMeasure:
        history = SparkHistory((), (), tuple(map(_attempt, times.reports)))
        return measure_commit(
            times.interval, self.slots, history, times.reports, driver=times.driver, tree=times.tree
        )


def _own_use(tree: TreeUse, cpu_ns: int, moved_cpu_ns: int) -> TreeUse:
    """Without the CPU time of the JVM, and of moving records; `cpu_ns` is that of this process.

    The peak of memory is that of the whole tree, an idle JVM included.
    """
    workers_s = max(0.0, tree.worker_cpu_s - moved_cpu_ns / 1e9)
    return replace(tree, cpu_s=cpu_ns / 1e9 + workers_s, worker_cpu_s=workers_s)


def _attempt(one: AttemptReport) -> TaskAttempt:
    """A task as the log of Spark would have it: its own interval, shrunk to whole milliseconds."""
    report = one.report
    begin_ms = -(-report.started_epoch_ns // _NS_PER_MS)
    end_ms = max(begin_ms, (report.started_epoch_ns + report.wall_ns) // _NS_PER_MS)
    return TaskAttempt(
        stage_id=one.stage_id,
        stage_attempt=0,
        partition=one.partition,
        task_id=one.task_id,
        attempt=0,
        launch_ms=begin_ms,
        finish_ms=end_ms,
        successful=True,
    )
