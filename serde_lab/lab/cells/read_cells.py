"""Measures reads and compactions of an arm's table, as commits among those that write it.

A `TableOperator` is how an arm reads and compacts: in this process (`in_process_reads`) or on Spark
(`spark_reads`). Rows end in a sink that counts and hashes them where they arrive.

After the timed read come, outside its clock: the time to the first row of the same read, and a second read
whose rows are kept in files for the check against the oracle. Both reads must have the same digest.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from serde_lab.errors import LabError
from serde_lab.lab.cells.cell import (
    CellJob,
    CellResult,
    CommitResult,
    CommitsCell,
    Digest,
    ReadAnswer,
    heap_set_aside,
    schema_of,
    table_bytes,
)
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.lab.plan import set_up_options
from serde_lab.measure.commit import CommitMeasure
from serde_lab.measure.metrics import Sample
from serde_lab.measure.other_work import apart
from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.read import ReadOptions, open_table
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.records.operation import TABLE_OPERATIONS, TableOperation
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.storage.storage import Storage

_ROWS_WHILE_WRITING, _MOST_S = 3, 60.0
"""How many reads are made while another process writes, and for how long at most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A read of the table at `table`: its snapshot, or the changes that completed after `begin`."""

    table: Path
    begin: str = ""

    def options(self, records: StrategyRecords | None = None) -> ReadOptions:
        """The same as options of `serde_lab.read`."""
        if self.begin:
            return ReadOptions(query="incremental", begin=self.begin, records=records)
        return ReadOptions(records=records)


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a read or a compaction took, and what it measured.

    `rows` are those of a compaction that left no Hudi table.
    """

    wall_ns: int
    measure: CommitMeasure
    rows: int = 0


class TableOperator(ABC):
    """How an arm reads and compacts its table."""

    slots = 1

    def __init__(self, job: CellJob) -> None:
        self.job = job

    @property
    def table(self) -> Path | None:
        """The Hudi table that it reads; None if it reads none."""
        return self.job.table

    def start(self) -> Iterator[Sample]:
        """Prepare, before any clock starts; yields what this measured."""
        yield from ()

    def prepare(self, asked: Asked) -> None:
        """Prepare for one read, before its clock starts."""
        return

    @abstractmethod
    def first_row(self, asked: Asked) -> None:
        """Read until the first row is there."""

    @abstractmethod
    def read(self, group: str, asked: Asked) -> tuple[Digest, Timed]:
        """Read all rows under the clock, into the sink."""

    @abstractmethod
    def keep(self, asked: Asked, folder: Path) -> Digest:
        """Read all rows into Parquet files below `folder`; the digest is that of the files."""

    def compact(self, group: str) -> Timed:
        """Compact the table under the clock. Raises LabError if the arm cannot."""
        raise LabError(f"{self.job.arm.subject} does not compact tables")


def has_operations(job: CellJob) -> bool:
    """Whether some of the cell's commits read or compact the table."""
    return any(commit.operation in TABLE_OPERATIONS for commit in job.inputs.commits)


class OperationsCell(CommitsCell):
    """A cell of whose commits some read or compact the table; `writes` measures the others."""

    def __init__(
        self, job: CellJob, operator: TableOperator, writes: CommitsCell | None = None
    ) -> None:
        super().__init__(job)
        self.operator, self.writes, self.slots = operator, writes, operator.slots
        self._answers: list[ReadAnswer] = []

    @property
    def table(self) -> Path | None:
        return self.operator.table

    def start(self) -> Iterator[Sample]:
        yield from self.operator.start()

    def measure(self) -> CellResult:
        with heap_set_aside():
            result = super().measure()
        return replace(result, reads=tuple(self._answers))

    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        if commit.operation == TableOperation.COMPACT:
            return self._compacted(group, number)
        if commit.operation in TABLE_OPERATIONS:
            return self._read(group, number)
        if self.writes is None:
            raise LabError(f"{self.job.arm.subject} does not write tables")
        return self.writes.commit(group, number, commit)

    def _read(self, group: str, number: int) -> CommitResult:
        operator, batch, table = (
            self.operator,
            self.job.scenario.commits[number - 1],
            self.job.table,
        )
        begin = ""
        if batch.operation == TableOperation.INCREMENTAL:
            begin = completion_before(table, batch.since)
        asked = Asked(table, begin)
        operator.prepare(asked)
        digest, timed = operator.read(group, asked)
        samples = [*timed.measure.samples(number), Sample("rows", digest.rows, number)]
        # after the timed read, since Spark ends the worker whose rows nobody wants any more
        with apart():
            began_ns = time.perf_counter_ns()
            operator.first_row(asked)
            first_row_s = (time.perf_counter_ns() - began_ns) / 1e9
            samples.append(Sample("first_row_s", first_row_s, number))
            folder = table.with_name(f"{table.name}-rows-{number}")
            self._answers.append(ReadAnswer(number, folder, digest, operator.keep(asked, folder)))
            if batch.while_writing and operator.table is not None:
                samples += self._while_writing(group, number, digest)
        return CommitResult(timed.wall_ns, tuple(samples), rows=digest.rows)

    def _compacted(self, group: str, number: int) -> CommitResult:
        timed = self.operator.compact(group)
        samples = [*timed.measure.samples(number)]
        if self.operator.table is None:
            rows = timed.rows
        else:
            table = open_table(self.operator.table)
            done = table.timeline().completed()[-1]
            stats = table.commit_metadata(done).write_stats
            if done.action != "commit" or not stats:
                raise LabError(f"{self.job.arm.name} compacted nothing")
            rows = sum(stat.numWrites for stat in stats)
            samples += [
                Sample("files", len(stats), number),
                Sample("table_bytes", table_bytes(table), number),
            ]
        samples.append(Sample("rows", rows, number))
        return CommitResult(timed.wall_ns, tuple(samples), rows=rows)

    def _while_writing(self, group: str, number: int, digest: Digest) -> Iterator[Sample]:
        """The seconds of a read while another process upserts the rows of the last write again.

        Those rows change nothing, so every read must answer as before. Raises LabError if one does not.
        """
        job = self.job
        earlier = (*job.inputs.setups, *job.inputs.commits[: number - 1])
        before = next(one for one in reversed(earlier) if one.operation not in TABLE_OPERATIONS)
        busy = job.table.with_name(f"{job.table.name}-busy-{number}")
        shutil.copytree(job.table, busy)
        options = set_up_options(job.scenario, job.arm, job.sizes.write(before))
        taken: list[float] = []
        with _writing(busy, before, options) as commits:
            started = commits.value
            until = time.monotonic() + _MOST_S
            while len(taken) < _ROWS_WHILE_WRITING and time.monotonic() < until:
                found, timed = self.operator.read(f"{group}-busy-{len(taken)}", Asked(busy))
                taken.append(timed.wall_ns / 1e9)
                if found != digest:
                    raise LabError(
                        f"{job.arm.name} read {found.rows:,} rows while commits went on, and"
                        f" {digest.rows:,} before, with the digests {found.hash:x} and {digest.hash:x}"
                    )
            done = commits.value - started
        yield Sample("read_while_writing_s", median(taken), number)
        yield Sample("commits_meanwhile", done, number)


def completion_before(table: Path, writes: int) -> str:
    """When the instant before the last `writes` writes completed; in table version 6, its own time."""
    opened = open_table(table)
    done = opened.timeline().completed()
    compactions = ("commit",) if opened.config.is_mor else ()
    first = [n for n, instant in enumerate(done) if instant.action not in compactions][-writes]
    before = done[first - 1]
    return before.completion_time or before.time


@contextmanager
def _writing(table: Path, commit: CommitInput, options: Any) -> Iterator[Any]:
    """While open, another process writes `commit` to `table` again and again; yields how often it has."""
    # a fork would copy this process's threads
    spawn = multiprocessing.get_context("spawn")
    commits, stop = spawn.Value("q", 0), spawn.Event()
    writer = spawn.Process(target=_write_again, args=(table, commit, options, commits, stop))
    writer.start()
    try:
        while writer.is_alive() and not commits.value:
            time.sleep(0.01)
        yield commits
        if not writer.is_alive():
            raise LabError(f"the process that writes meanwhile ended: status {writer.exitcode}")
    finally:
        stop.set()
        writer.join(_MOST_S)
        writer.kill()
        writer.join()


def _write_again(table: Path, commit: CommitInput, options: Any, commits: Any, stop: Any) -> None:
    pa.set_cpu_count(1)
    while not stop.is_set():
        schema = schema_of(commit)
        prepared = PreparedWrite.of(Storage.open(table), schema, options)
        with prepared.hold():
            prepared.commit(InProcessExchange(parquet_partitions(commit.files, schema.names)))
        commits.value += 1
