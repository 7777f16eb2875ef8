"""Reads and compacts tables in this process: strategies without Spark, and the controls that only read.

Strategies merge as their own records, a slice after the other. `hudi_rs` is the reader of hudi-rs, and
`duckdb_scan` is DuckDB over the same rows as plain Parquet. Rows end in a sink of DuckDB's, which counts
and hashes them where they arrive.
"""

from __future__ import annotations

import glob
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.cells.cell import CellJob, Digest
from serde_lab.lab.cells.read_cells import Asked, TableOperator, Timed
from serde_lab.lab.plan import Write, serde_options, timed_options
from serde_lab.measure.commit import measure_in_process
from serde_lab.measure.process_tree import tree_use
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import TaskReport, TaskTimeline
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.read import open_table, plan_read
from serde_lab.records.operation import Operation
from serde_lab.records.schema import META_NAMES
from serde_lab.scenario.model import Arm
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.services.compaction import CompactionPlan, compact_slice
from serde_lab.table.timeline.commit_metadata import WriteStat
from serde_lab.verify.readers import HudiRs


class StrategyInProcess(TableOperator):
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
            for task in range(len(plan.reads.slices)):
                timeline = TaskTimeline("compact")
                done.append(compact_slice(plan, task, timeline))
                reports.append(timeline.report())
            return tuple(done)

        form = timed_options(self.job.scenario, self.job.arm, Write(Operation.UPSERT)).file_format
        table = open_table(self.job.table)
        return _timed_here(lambda: compact(table, compactor, form, self.form), reports)

    def _plan(self, asked: Asked) -> ReadPlan:
        return plan_read(open_table(asked.table), asked.options(self.form))


def record_form(arm: Arm) -> StrategyRecords:
    """The records on which the arm merges."""
    return StrategyRecords(arm.strategy or "arrow", serde_options(arm))


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
        return replace(timed, rows=before.rows)

    @property
    def _files(self) -> str:
        return _files_of(self._folder)

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
        """Add the rows of `batch`."""
        self._sql.register("arrived", pa.Table.from_batches([batch]))
        rows, found = _counted(self._sql, "arrived")
        self.digest.rows += rows
        self.digest.hash ^= found


def _counted(sql: duckdb.DuckDBPyConnection, rows: str) -> tuple[int, int]:
    # all rows of the answer are fetched, so that the next query finds none unfinished
    ((count, found),) = sql.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {rows} t").fetchall()
    return int(count), int(found or 0)


def digest_of_files(sql: duckdb.DuckDBPyConnection, folder: Path) -> Digest:
    return Digest(*_counted(sql, _files_of(folder)))


def _files_of(folder: Path) -> str:
    # the folder's own name is no pattern
    return f"read_parquet('{glob.escape(_quoted(folder))}/*.parquet')"


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def keep_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path) -> Digest:
    """Write rows to a Parquet file in `folder`; the digest of what was written."""
    folder.mkdir(parents=True)
    sink = HashSink()
    with pq.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for batch in batches:
            sink.add(batch)
            writer.write_batch(batch)
    return sink.digest


def _timed_here(run: Callable[[], object], reports: list[TaskReport]) -> Timed:
    """Run under the clock in this process; `reports` are those of its tasks once it has run."""
    with tree_use() as tree:
        begin_epoch_ns, begin_ns = time.time_ns(), time.perf_counter_ns()
        run()
        wall_ns = time.perf_counter_ns() - begin_ns
    interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
    return Timed(wall_ns, measure_in_process(interval, reports, tree=tree.use))
