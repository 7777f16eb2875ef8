"""Measures one cell: an arm's timed commits on a clone of the set-up table, or a control's or peer's job.

A cell takes these steps: clone the table, start fresh workers, run the commits under the clock, collect
samples. `lab.checks` checks the result afterwards.
"""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.lab.cells.result import CellResult, CellSample, table_bytes
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.lab.inputs.stored_places import with_places
from serde_lab.lab.plan import Write, hops_of, serde_options, set_up_options, write_options
from serde_lab.measure.commit import CommitMeasure, measure_commit, measure_in_process
from serde_lab.measure.reports import AttemptReport
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import THREADS_LEFT, TaskTimeline
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.plan import Operation
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.scenario.model import Arm, Files, Merging, Scenario, Table
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

if TYPE_CHECKING:
    from serde_lab.lab.cells.bench import Bench


class CellRunner:
    """Runs the cells of one scenario; `bench` is None for the in-process exchange.

    `tidy_heap` collects the JVM's garbage before each cell, outside the clock. Peers work in that heap,
    and a cell would otherwise pay for the garbage of the one before it. Spark also removes the shuffle
    files of a large cell only when garbage collection finds them unused.
    """

    def __init__(
        self,
        scenario: Scenario,
        inputs: PreparedInputs,
        work: Path,
        bench: Bench | None,
        tidy_heap: bool = False,
    ) -> None:
        self.scenario, self.inputs, self.work, self.bench = scenario, inputs, work, bench
        self.tidy_heap = tidy_heap
        tables = [scenario.table_of(arm) for arm in (None, *scenario.arms)]
        # arms that differ in merging, files or index need a set-up table of their own
        self._setups = {
            kind: work / f"setup-{number}"
            for number, kind in enumerate(dict.fromkeys(_kind(table) for table in tables))
        }
        self._source_bytes = max(
            (sum(f.stat().st_size for f in c.files) for c in inputs.commits), default=0
        )
        self._row_bytes = _row_bytes(inputs)

    def set_up(self) -> None:
        """Write the set-up commits once, untimed, by columns where possible; cells clone the table."""
        for folder in self._setups.values():
            shutil.rmtree(folder, ignore_errors=True)
        self._set_up(None)

    def _set_up(self, arm: Arm | None) -> None:
        folder = self._setups[_kind(self.scenario.table_of(arm))]
        for commit in self.inputs.setups:
            options = set_up_options(self.scenario, arm, self._write(commit))
            storage = Storage.open(folder)
            prepared = PreparedWrite.of(storage, _schema(commit), options)
            if self.bench is None:
                prepared.commit(InProcessExchange(_partitions(commit)))
            else:
                from serde_lab.pipeline.spark.write import batches_of, exchange_for

                df = self.bench.source(commit.files)
                with batches_of(self.bench.spark, options.max_records_per_batch):
                    prepared.commit(exchange_for(df, options))

    def run(self, cell: str, arm: Arm) -> CellResult:
        """Measure one cell of `arm`. Raises whatever the arm raised."""
        if self.bench is not None and self.tidy_heap:
            self.bench.collect_garbage()
        if arm.kind == "peer":
            from serde_lab.lab.cells.peer import run_peer

            assert self.bench is not None  # guaranteed by the scenario's consistency check
            table = self._clone(cell, arm)
            return run_peer(self.bench, self.scenario, self.inputs, table, cell, arm)
        if arm.control in ("exchange_only", "parquet_floor"):
            from serde_lab.lab.cells.controls import run_control

            assert self.bench is not None  # guaranteed by the scenario's consistency check
            table = self._clone(cell, arm)
            return run_control(self.bench, self.scenario, self.inputs, table, cell, arm)
        if self.bench is None:
            with _heap_set_aside():
                return self._run_writes(cell, arm)
        return self._run_writes(cell, arm)

    def discard(self, cell: str) -> None:
        """Remove what the cell left behind."""
        discard_cell(self.work, cell)

    def _clone(self, cell: str, arm: Arm) -> Path:
        """Clone the set-up table for this cell: data files are linked, `.hoodie` is copied."""
        table = self.work / "cells" / cell
        shutil.rmtree(table, ignore_errors=True)
        if self.inputs.setups:
            setup = self._setups[_kind(self.scenario.table_of(arm))]
            if not setup.exists():
                # before the clock starts, and only for arms that are measured
                self._set_up(arm)
            shutil.copytree(setup, table, copy_function=_link_data)
        return table

    def _run_writes(self, cell: str, arm: Arm) -> CellResult:
        table = self._clone(cell, arm)
        samples: list[CellSample] = []
        if self.bench is not None:
            rows = max((c.rows // max(1, len(c.files)) for c in self.inputs.commits), default=0)
            start_s = self.bench.fresh_workers(
                cell, arm.strategy or "arrow", serde_options(arm), rows
            )
            samples.append(CellSample("worker_start_s", start_s))
        total_s, sniffed, foreign, threads_left = 0.0, 0, 0, 0
        for number, commit in enumerate(self.inputs.commits, start=1):
            written, wall_s, measure = self._commit(f"{cell}#{number}", arm, table, commit)
            samples += _of_commit(number, wall_s, measure, written)
            samples += _of_table(number, table)
            total_s += wall_s
            for counted in measure.counters.values():
                # sent frames are counted without index records, so received ones are too
                sniffed += counted.get("frames_sniffed", 0) - counted.get("index_frames_sniffed", 0)
                foreign += counted.get("frames_foreign", 0)
            threads_left += sum(c.get(THREADS_LEFT, 0) for c in measure.counters.values())
        samples.append(CellSample("seconds", total_s))
        slots = 1 if self.bench is None else self.bench.slots
        samples.append(CellSample("slots", slots))
        if arm.strategy is not None:
            samples.append(CellSample("hops", hops_of(self.scenario, arm), commit=1))
        return CellResult(tuple(samples), table, sniffed, foreign, threads_left=threads_left)

    def _write(self, commit: CommitInput) -> Write:
        return Write(commit.operation, commit.partitions, self._row_bytes, self._source_bytes)

    def _commit(
        self, group: str, arm: Arm, table: Path, commit: CommitInput
    ) -> tuple[Commit, float, CommitMeasure]:
        options = write_options(self.scenario, arm, self._write(commit))
        if options.operation is Operation.UPSERT_PREPPED:
            data = self.scenario.data
            key = tuple(dict.fromkeys([*data.record_key, *data.partition]))
            folder = table.parent / f"{table.name}-places-{commit.name}"
            commit = with_places(commit, table, key, folder)
        driver = TaskTimeline("driver")
        prepared = PreparedWrite.of(Storage.open(table), _schema(commit), options)
        if self.bench is None:
            exchange = InProcessExchange(_partitions(commit))
            with prepared.hold():
                begin_epoch_ns, begin_ns = time.time_ns(), time.perf_counter_ns()
                written = prepared.commit(exchange, timeline=driver)
                wall_ns = time.perf_counter_ns() - begin_ns
            interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
            measure = measure_in_process(interval, exchange.reports, driver=driver.report())
            return written, wall_ns / 1e9, measure
        from serde_lab.pipeline.spark.exchange import ColumnsExchange, SparkExchange
        from serde_lab.pipeline.spark.write import batches_of, stored_columns

        source = stored_columns(self.bench.source(commit.files))
        native = arm.control == "spark_native"
        over_spark = ColumnsExchange(source) if native else SparkExchange(source)
        with batches_of(self.bench.spark, options.max_records_per_batch), prepared.hold():
            written, window = self.bench.measured(
                group, lambda: prepared.commit(over_spark, timeline=driver)
            )
        reports = [AttemptReport.from_json(text) for text in over_spark.reports]
        measure = measure_commit(
            window.interval, self.bench.slots, window.history, reports, driver=driver.report()
        )
        return written, window.wall_ns / 1e9, measure


def _kind(table: Table) -> tuple[Merging, Files, str]:
    """Arms of equal kind can share a set-up table."""
    return table.merging, table.files, table.index


def discard_cell(work: Path, cell: str) -> None:
    """Remove what a cell left behind in `work`."""
    for folder in (work / "cells").glob(f"{cell}*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _heap_set_aside() -> Iterator[None]:
    """Exclude the objects that exist now from garbage collections during the cell.

    A cell of many small objects would otherwise pay, every other time, for a scan of the whole process:
    twice its own SerDe time. Workers on Spark start the same way.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _of_commit(
    number: int, wall_s: float, measure: CommitMeasure, written: Commit
) -> Iterator[CellSample]:
    yield CellSample("seconds", wall_s, number)
    for value in measure.values():
        yield CellSample(value.metric, value.value, number, value.phase)
    yield CellSample("files", len(written.stats), number)


def _of_table(number: int, table: Path) -> Iterator[CellSample]:
    yield CellSample("table_bytes", table_bytes(HoodieTable.open(Storage.open(table))), number)


def _schema(commit: CommitInput) -> pa.Schema:
    return pq.read_schema(commit.files[0]).remove_metadata()


def _partitions(commit: CommitInput) -> list[Iterator[pa.RecordBatch]]:
    return parquet_partitions(commit.files, _schema(commit).names)


def _row_bytes(inputs: PreparedInputs) -> int:
    """Uncompressed bytes per row, from the footers of the input; at least 1."""
    size = rows = 0
    for commit in (*inputs.setups, *inputs.commits):
        for file in commit.files:
            footer = pq.read_metadata(file)
            rows += footer.num_rows
            size += sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    return max(1, size // max(1, rows))


def _link_data(source: str, target: str) -> str:
    """Link a data file, which never changes, and copy any other file."""
    if f"{os.sep}.hoodie{os.sep}" in source or not source.endswith(".parquet"):
        return str(shutil.copy2(source, target))
    os.link(source, target)
    return target
