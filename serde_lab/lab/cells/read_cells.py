"""Measures reads and compactions of an arm's table, as commits among those that write it.

A `TableOperator` is how an arm reads and compacts. Strategies merge as their own records: here in this
process, in `spark_reads` on Spark. Two controls only read, both in this process: hudi-rs, and DuckDB over the
same rows as plain Parquet files. Rows end in a sink that counts and hashes them where they arrive.

Beside the timed read stand, outside its clock: the time to the first row of the same read, and a second read
whose rows are kept in files for the check against the oracle. Both reads must have the same digest.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.cells.cell import (
    CellJob,
    CellResult,
    CommitResult,
    CommitsCell,
    Digest,
    ReadAnswer,
    heap_set_aside,
    open_table,
    schema_of,
    table_bytes,
)
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.lab.plan import Write, serde_options, set_up_options, write_options
from serde_lab.measure.commit import CommitMeasure, measure_in_process
from serde_lab.measure.metrics import Sample
from serde_lab.measure.process_tree import tree_use
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import TaskReport, TaskTimeline
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.read import ReadOptions, plan_read
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.records.operation import TABLE_OPERATIONS, TableOperation
from serde_lab.scenario.model import Arm
from serde_lab.table.files.base_file import META_NAMES
from serde_lab.table.files.slice_rows import RecordForm
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.services.compaction import CompactionPlan, compact_slice
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import WriteStat
from serde_lab.verify.readers import HudiRs

_ROWS_WHILE_WRITING, _MOST_S = 3, 60.0
"""How many reads are made while another process writes, and for how long at most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A read of the table at `table`: its snapshot, or the changes that completed after `begin`."""

    table: Path
    begin: str = ""

    def options(self, records: RecordForm | None = None) -> ReadOptions:
        """The same as options of `serde_lab.read`."""
        if self.begin:
            return ReadOptions(query="incremental", begin=self.begin, records=records)
        return ReadOptions(records=records)


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a read or a compaction took, and what it measured."""

    wall_ns: int
    measure: CommitMeasure


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
        began_ns = time.perf_counter_ns()
        operator.first_row(asked)
        first_row_s = (time.perf_counter_ns() - began_ns) / 1e9
        digest, timed = operator.read(group, asked)
        folder = table.with_name(f"{table.name}-rows-{number}")
        self._answers.append(ReadAnswer(number, folder, digest, operator.keep(asked, folder)))
        samples = [
            *timed.measure.samples(number),
            Sample("rows", digest.rows, number),
            Sample("first_row_s", first_row_s, number),
        ]
        if batch.while_writing and operator.table is not None:
            samples += self._while_writing(group, number, digest)
        return CommitResult(timed.wall_ns, tuple(samples), rows=digest.rows)

    def _compacted(self, group: str, number: int) -> CommitResult:
        timed = self.operator.compact(group)
        samples = [*timed.measure.samples(number)]
        rows = 0
        if self.operator.table is not None:
            table = open_table(self.operator.table)
            done = table.timeline().completed()[-1]
            stats = table.commit_metadata(done).write_stats
            if done.action != "commit" or not stats:
                raise LabError(f"{self.job.arm.name} compacted nothing")
            rows = sum(stat.numWrites for stat in stats)
            samples += [
                Sample("rows", rows, number),
                Sample("files", len(stats), number),
                Sample("table_bytes", table_bytes(table), number),
            ]
        return CommitResult(timed.wall_ns, tuple(samples), rows=rows)

    def _while_writing(self, group: str, number: int, digest: Digest) -> Iterator[Sample]:
        """The seconds of a read while another process upserts the rows of the last write again.

        Those rows change nothing, so every read must answer as before. Raises LabError if one does not.
        """
        job, before = self.job, self._writes_before(number)
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

    def _writes_before(self, number: int) -> CommitInput:
        inputs = self.job.inputs
        earlier = (*inputs.setups, *inputs.commits[: number - 1])
        return next(one for one in reversed(earlier) if one.operation not in TABLE_OPERATIONS)


def completion_before(table: Path, writes: int) -> str:
    """When the write before the last `writes` ones completed; in table version 6, its instant time."""
    opened = open_table(table)
    compactions = ("commit",) if opened.config.is_mor else ()
    done = [i for i in opened.timeline().completed() if i.action not in compactions]
    before = done[-writes - 1]
    return before.completion_time or before.time


class StrategyHere(TableOperator):
    """A strategy whose reads and compactions run in this process, a slice after the other."""

    def __init__(self, job: CellJob) -> None:
        super().__init__(job)
        self.form = record_form(job.arm)

    def first_row(self, asked: Asked) -> None:
        plan = self._plan(asked)
        next((b for s in plan.slices for b in plan.batches(s)), None)

    def read(self, group: str, asked: Asked) -> tuple[Digest, Timed]:
        sink = HashSink()
        reports: list[TaskReport] = []

        def run() -> None:
            plan = self._plan(asked)
            for slice_ in plan.slices:
                timeline = TaskTimeline("read")
                for batch in plan.batches(slice_, timeline):
                    with timeline.phase("hash"):
                        sink.add(batch)
                reports.append(timeline.report())

        timed = _timed_here(run, reports)
        return sink.digest, timed

    def keep(self, asked: Asked, folder: Path) -> Digest:
        plan = self._plan(asked)
        return keep_rows((b for s in plan.slices for b in plan.batches(s)), plan.schema, folder)

    def compact(self, group: str) -> Timed:
        reports: list[TaskReport] = []

        def compactor(plan: CompactionPlan) -> tuple[WriteStat, ...]:
            done = []
            for task in range(len(plan.slices)):
                timeline = TaskTimeline("compact")
                done.append(compact_slice(plan, task, timeline))
                reports.append(timeline.report())
            return tuple(done)

        form = write_options(self.job.scenario, self.job.arm, Write("upsert")).file_format
        table = open_table(self.job.table)
        return _timed_here(lambda: compact(table, compactor, form, self.form), reports)

    def _plan(self, asked: Asked) -> ReadPlan:
        return plan_read(open_table(asked.table), asked.options(self.form))


def record_form(arm: Arm) -> RecordForm:
    """The records on which the arm merges."""
    return RecordForm(arm.strategy or "arrow", serde_options(arm))


class RustReader(TableOperator):
    """The control `hudi_rs`: hudi-rs reads the table in this process, and its rows are hashed by DuckDB."""

    def first_row(self, asked: Asked) -> None:
        next(iter(self._batches(asked)), None)

    def read(self, group: str, asked: Asked) -> tuple[Digest, Timed]:
        sink = HashSink()

        def run() -> None:
            for batch in self._batches(asked):
                sink.add(batch)

        timed = _timed_here(run, [])
        return sink.digest, timed

    def keep(self, asked: Asked, folder: Path) -> Digest:
        batches = self._batches(asked)
        first = next(batches, None)
        if first is None:
            schema = HudiRs(str(asked.table)).schema
            names = [name for name in schema.names if name not in META_NAMES]
            return keep_rows([], pa.schema([schema.field(name) for name in names]), folder)
        return keep_rows((b for part in ([first], batches) for b in part), first.schema, folder)

    def _batches(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        reader = HudiRs(str(asked.table))
        found = reader.changes(asked.begin).to_batches() if asked.begin else reader.batches()
        for batch in found:
            yield batch.select([name for name in batch.schema.names if name not in META_NAMES])


class DuckScan(TableOperator):
    """The control `duckdb_scan`: DuckDB scans the right rows as plain Parquet; to compact, it copies them.

    The files have the codec of the table and one file for each file slice, made before the clock starts.
    """

    def __init__(self, job: CellJob) -> None:
        super().__init__(job)
        self._folder = job.table.with_name(f"{job.table.name}-plain")
        self._sql = duckdb.connect(config={"threads": job.scenario.measure.cores})

    @property
    def table(self) -> None:
        return

    def prepare(self, asked: Asked) -> None:
        plan = plan_read(open_table(asked.table), asked.options())
        files = self.job.scenario.table_of(self.job.arm)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        codec = "none" if files.codec == "uncompressed" else files.codec
        level = files.level if codec in ("zstd", "gzip") else None
        for number, slice_ in enumerate(plan.slices):
            rows = pa.Table.from_batches(plan.batches(slice_), plan.schema)
            file = self._folder / f"slice-{number:04}.parquet"
            pq.write_table(rows, file, compression=codec, compression_level=level)

    def first_row(self, asked: Asked) -> None:
        self._sql.execute(f"FROM {self._files} LIMIT 1").fetchall()

    def read(self, group: str, asked: Asked) -> tuple[Digest, Timed]:
        found: list[Digest] = []
        timed = _timed_here(lambda: found.append(self._digest()), [])
        return found[0], timed

    def keep(self, asked: Asked, folder: Path) -> Digest:
        shutil.copytree(self._folder, folder)
        return self._digest()

    def compact(self, group: str) -> Timed:
        self.prepare(Asked(self.job.table))
        files = self.job.scenario.table_of(self.job.arm)
        options = f"FORMAT parquet, COMPRESSION {files.codec}, PER_THREAD_OUTPUT true"
        if files.codec == "zstd" and files.level is not None:
            options += f", COMPRESSION_LEVEL {files.level}"
        target = self._folder.with_name(f"{self._folder.name}-copy")
        statement = f"COPY (FROM {self._files}) TO '{_quoted(target)}' ({options})"
        before = self._digest()
        timed = _timed_here(lambda: self._sql.execute(statement), [])
        if digest_of_files(self._sql, target) != before:
            raise LabError("DuckDB copied other rows than it read")
        return timed

    @property
    def _files(self) -> str:
        return f"read_parquet('{_quoted(self._folder)}/*.parquet')"

    def _digest(self) -> Digest:
        return digest_of_files(self._sql, self._folder)


def read_control(job: CellJob) -> TableOperator:
    """The reader of a control that only reads."""
    kinds = {"hudi_rs": RustReader, "duckdb_scan": DuckScan}
    return kinds[job.arm.control or ""](job)


class HashSink:
    """Counts and hashes rows where they arrive, whatever their order: the exclusive or of their hashes.

    DuckDB hashes, which costs little beside a read and copies no column.
    """

    def __init__(self) -> None:
        self._sql = duckdb.connect(config={"threads": 1})
        self.digest = Digest()

    def add(self, batch: pa.RecordBatch) -> None:
        """The rows of `batch`, too."""
        self._sql.register("arrived", pa.Table.from_batches([batch]))
        rows, found = _counted(self._sql, "arrived")
        self.digest.rows += rows
        self.digest.hash ^= found


def _counted(sql: duckdb.DuckDBPyConnection, rows: str) -> tuple[int, int]:
    # all rows of the answer are fetched, so that the next query finds none unfinished
    ((count, found),) = sql.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {rows} t").fetchall()
    return int(count), int(found or 0)


def digest_of_files(sql: duckdb.DuckDBPyConnection, folder: Path) -> Digest:
    """The digest of the rows of a folder's Parquet files."""
    return Digest(*_counted(sql, f"read_parquet('{_quoted(folder)}/*.parquet')"))


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def keep_rows(
    batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch], schema: pa.Schema, folder: Path
) -> Digest:
    """Write rows to a Parquet file in `folder`; the digest of what was written."""
    folder.mkdir(parents=True)
    sink = HashSink()
    with pq.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for batch in batches:
            sink.add(batch)
            writer.write_batch(batch)
    return sink.digest


def _timed_here(run: Any, reports: list[TaskReport]) -> Timed:
    """Run under the clock in this process; `reports` are those of its tasks once it has run."""
    with tree_use() as tree:
        begin_epoch_ns, begin_ns = time.time_ns(), time.perf_counter_ns()
        run()
        wall_ns = time.perf_counter_ns() - begin_ns
    interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
    return Timed(wall_ns, measure_in_process(interval, reports, tree=tree.use))


@contextmanager
def _writing(table: Path, commit: CommitInput, options: Any) -> Iterator[Any]:
    """While open, another process writes `commit` to `table` again and again; yields how often it has."""
    # a fork would copy this process's threads
    spawn = multiprocessing.get_context("spawn")
    commits, stop = spawn.Value("q", 0), spawn.Event()
    writer = spawn.Process(target=_write_again, args=(table, commit, options, commits, stop))
    writer.start()
    try:
        while not commits.value:
            if not writer.is_alive():
                raise LabError(f"the process that writes meanwhile ended: status {writer.exitcode}")
            time.sleep(0.01)
        yield commits
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
