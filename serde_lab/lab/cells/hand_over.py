"""The exchange of the control `work_floor`: stages hand records over in memory, without SerDe or shuffle.

A write has two phases. In the first, each process reads its share of the source, makes keys, sorts the
records by target, and keeps them. In the second, each writes its share of the targets. Records that stay
in their process pass by reference. Others are copied between the phases, while the clock stands still: what
is timed is the work on records, and no transfer.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError, OptionError, outcome_of
from serde_lab.measure.timeline import SYSTEM_CLOCK, AttemptReport, Clock, TaskReport, TaskTimeline
from serde_lab.pipeline.exchange.in_process import Exchange, summed
from serde_lab.pipeline.exchange.routing import Hop, Task
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.source.files import SourceFiles
from serde_lab.pipeline.stages import keep_stage, write_kept_stage
from serde_lab.pipeline.topologies import MAP, REDUCE, topology_of
from serde_lab.serde.interface import Records
from serde_lab.table.timeline.commit_metadata import WriteStat

T = TypeVar("T")

_ROWS_AT_ONCE = 1 << 20
_GRACE_S = 5.0


class StoppableClock:
    """The clocks of a write, which stand still while records change processes."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.stopped_ns = self._stopped_cpu_ns = 0

    @property
    def clocks(self) -> Clock:
        """For a timeline; nobody reads them while they stand still."""
        return Clock(
            lambda: self._clock.wall_ns() - self.stopped_ns,
            lambda: self._clock.cpu_ns() - self._stopped_cpu_ns,
            lambda: self._clock.epoch_ns() - self.stopped_ns,
        )

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the clocks stand still until the end of the block."""
        wall_ns, cpu_ns = self._clock.wall_ns(), self._clock.cpu_ns()
        try:
            yield
        finally:
            self.stopped_ns += self._clock.wall_ns() - wall_ns
            self._stopped_cpu_ns += self._clock.cpu_ns() - cpu_ns


def even_shares(sizes: Mapping[int, int], shares: int) -> list[list[int]]:
    """Task numbers in `shares` lists of about equal size in all, each in order.

    The largest task that is left goes to the smallest list. `sizes`: of each task, in any unit.
    """
    found: list[list[int]] = [[] for _ in range(shares)]
    filled = [0] * shares
    for number in sorted(sizes, key=lambda one: (-sizes[one], one)):
        least = filled.index(min(filled))
        found[least].append(number)
        filled[least] += sizes[number]
    return [sorted(share) for share in found]


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A task's own report, and its output: rows by target, or the stats of files."""

    task: int
    report: TaskReport
    rows: Mapping[int, int] = field(default_factory=dict)
    stats: tuple[WriteStat, ...] = ()


class ProcessWork:
    """What one process does of a write; it keeps records between the two phases."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, list[Records]]] = {}

    def read(
        self, plan: WritePlan, hop: Hop, source: SourceFiles, tasks: Collection[int]
    ) -> list[TaskDone]:
        """Run these map tasks, and keep their records."""
        self._kept = {}
        return [self._read(plan, hop, source, task) for task in tasks]

    def _read(self, plan: WritePlan, hop: Hop, source: SourceFiles, number: int) -> TaskDone:
        timeline = TaskTimeline(MAP.label)
        task = Task(plan, number, timeline, hop, timed=True)
        rows = Counter[int]()
        for target, records in keep_stage(task, source.batches(number, _ROWS_AT_ONCE, timeline)):
            self._kept.setdefault(target, {}).setdefault(number, []).append(records)
            rows[target] += len(records)
        return TaskDone(number, timeline.report(), rows)

    def give(self, folder: str, targets: Collection[int]) -> int:
        """Put the records of these targets into `folder`, and forget them; returns its CPU time in ns."""
        began_ns = time.process_time_ns()
        for target in targets:
            for task, parts in self._kept.pop(target, {}).items():
                batches = [part.to_arrow() for part in parts]
                place = f"{folder}/{target}-{task}.arrow"
                with pa.ipc.new_stream(place, batches[0].schema) as stream:
                    for batch in batches:
                        stream.write_batch(batch)
        return time.process_time_ns() - began_ns

    def take(self, folder: str, plan: WritePlan, targets: Collection[int]) -> int:
        """Take the records of these targets from `folder` into memory; returns its CPU time in ns."""
        began_ns, bound = time.process_time_ns(), plan.bind()
        for path in Path(folder).iterdir():
            target, task = map(int, path.stem.split("-"))
            if target in targets:
                with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                    parts = [bound.from_arrow(batch) for batch in stream]
                self._kept.setdefault(target, {})[task] = parts
        return time.process_time_ns() - began_ns

    def write(self, plan: WritePlan, targets: Collection[int]) -> list[TaskDone]:
        """Run the reduce tasks of these targets."""
        return [self._write(plan, target) for target in targets]

    def _write(self, plan: WritePlan, target: int) -> TaskDone:
        timeline = TaskTimeline(REDUCE.label)
        kept = self._kept.pop(target, {})
        # by map task, which is the order of the input
        parts = [records for task in sorted(kept) for records in kept[task]]
        stats = tuple(write_kept_stage(Task(plan, target, timeline), parts))
        return TaskDone(target, timeline.report(), stats=stats)


class Crew(Protocol):
    """The processes that do the work, `size` many."""

    size: int

    def each(self, call: Callable[..., T], shares: Sequence[tuple[Any, ...]]) -> list[T]:
        """Call a method of each process's work with its own arguments; returns when all have ended."""
        ...


class OneProcess:
    """This process alone."""

    size = 1

    def __init__(self) -> None:
        self._work = ProcessWork()

    def each(self, call: Callable[..., T], shares: Sequence[tuple[Any, ...]]) -> list[T]:
        (only,) = shares
        return [call(self._work, *only)]


class Processes(AbstractContextManager["Processes"]):
    """Processes of their own, one for each slot, which end with the block and with this process.

    They are fresh ones: a fork of a process with threads is not safe, and the lab's has those of a JVM.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._began_s = time.perf_counter()
        fresh = multiprocessing.get_context("spawn")
        self._processes, self._pipes = list[SpawnProcess](), list[Connection]()
        for _ in range(size):
            pipe, theirs = fresh.Pipe()
            process = fresh.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(pipe)

    def __exit__(self, *args: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.join(_GRACE_S)
            process.kill()
            process.join()

    def warm_up(self, rows: int, folder: Path) -> float:
        """Let each write made-up tables in `folder`; returns the seconds since they were started.

        `rows`: about how many a task will have.
        """
        self.each(_warmed_up, [(rows, str(folder))] * self.size)
        return time.perf_counter() - self._began_s

    def each(self, call: Callable[..., T], shares: Sequence[tuple[Any, ...]]) -> list[T]:
        for pipe, share in zip(self._pipes, shares, strict=True):
            with suppress(OSError):  # reading the answer reports a process that has ended
                pipe.send((call, share))
        # of all, also if one fails: none may write any more when the caller undoes the write
        outcomes = [_received(pipe) for pipe in self._pipes]
        for raised, answer in outcomes:
            if raised:
                raise answer
        return [answer for _, answer in outcomes]


def _received(pipe: Connection) -> tuple[bool, Any]:
    try:
        raised, answer = pipe.recv()
    except (EOFError, OSError):
        return True, LabError("a process of work_floor ended before its work was done")
    return raised, answer


def _serve(pipe: Connection) -> None:
    """The main function of a process: answers calls until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # one thread for a task, as in Spark's workers
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    work = ProcessWork()
    with suppress(EOFError, OSError):
        while True:
            call, arguments = pipe.recv()
            pipe.send(outcome_of(call, work, *arguments))
    # nothing is left to clean up, and objects that were set aside would be reported as lost
    os._exit(0)


def _warmed_up(_: ProcessWork, rows: int, folder: str) -> None:
    # with the driver's half of a write, which the phases do not need
    from serde_lab.pipeline.warm_up import DEFAULT_FRAMING, exercise

    def exchange(batches: list[pa.RecordBatch], place: Path) -> Exchange:
        pq.write_table(pa.Table.from_batches(batches), place / "rows.parquet")
        return HandOverExchange([place / "rows.parquet"], OneProcess())

    exercise("arrow", DEFAULT_FRAMING, rows, folder, exchange)
    gc.freeze()


class HandOverExchange(Exchange):
    """Runs the two stages of a write in `crew`; the source is Parquet files, one input partition each.

    `reports` has one report for each task of the last run, by the clock of `clock`. `moved_cpu_ns`: the CPU
    time of processes while the clock stood still. `folder`: where records that change processes go.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        crew: Crew,
        clock: StoppableClock | None = None,
        folder: Path | None = None,
    ) -> None:
        self.paths, self.crew, self.folder = paths, crew, folder
        self.clock = clock or StoppableClock()
        self.reports: list[AttemptReport] = []
        self.moved_cpu_ns = 0
        self._sizes = {number: path.stat().st_size for number, path in enumerate(paths)}
        self._columns = pq.read_schema(paths[0]).names

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        """Run both phases. Raises OptionError for a write that has other stages."""
        self.reports, self.moved_cpu_ns = [], 0
        hop, crew = only_hop(plan), self.crew
        source = SourceFiles(
            tuple((str(path),) for path in self.paths),
            tuple(name for name in plan.source_schema.names if name in self._columns),
        )
        shares = even_shares(self._sizes, crew.size)
        read = crew.each(ProcessWork.read, [(plan, hop, source, share) for share in shares])
        self._report(0, read)
        rows = Counter[int]()
        for done in (one for of_process in read for one in of_process):
            rows.update(done.rows)
        targets = even_shares(rows, crew.size)
        if crew.size > 1:
            self._hand_over(plan, rows.keys(), targets)
        written = crew.each(ProcessWork.write, [(plan, share) for share in targets])
        self._report(1, written)
        by_target = sorted((one.task, one.stats) for share in written for one in share)
        return tuple(stat for _, stats in by_target for stat in stats)

    def _hand_over(
        self, plan: WritePlan, targets: Collection[int], shares: Sequence[Sequence[int]]
    ) -> None:
        """Let each process have the records of its targets, while the clock stands still."""
        crew = self.crew
        with self.clock.stopped(), TemporaryDirectory(prefix="moved-", dir=self.folder) as folder:
            others = [sorted(set(targets) - set(share)) for share in shares]
            given = crew.each(ProcessWork.give, [(folder, share) for share in others])
            taken = crew.each(ProcessWork.take, [(folder, plan, share) for share in shares])
        self.moved_cpu_ns = sum(given) + sum(taken)

    def _report(self, stage: int, done: Sequence[Sequence[TaskDone]]) -> None:
        late_ns = self.clock.stopped_ns
        for one in sorted((one for share in done for one in share), key=lambda one: one.task):
            report = replace(
                one.report,
                started_epoch_ns=one.report.started_epoch_ns - late_ns,
                ended_epoch_ns=one.report.ended_epoch_ns - late_ns,
            )
            self.reports.append(AttemptReport(stage, one.task, len(self.reports), 0, report))

    def counters(self) -> Counter[str]:
        return summed(one.report.counters for one in self.reports)


def only_hop(plan: WritePlan) -> Hop:
    """The hop of a write that reads, then writes. Raises OptionError for any other topology."""
    topology = topology_of(plan)
    if [stage.work for stage in topology.stages] != [MAP.work, REDUCE.work]:
        raise OptionError(
            f"work_floor work records over once, from reading to writing, and topology {topology.name!r}"
            " has other stages"
        )
    return topology.hops[0]
