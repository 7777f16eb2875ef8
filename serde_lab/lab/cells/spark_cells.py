"""Measures cells in a Spark session: strategies, controls, and peers.

The control `spark_native` writes a Hudi table; its columns cross Spark's shuffle without Python. Two controls
write none, and each isolates one cost. `exchange_only`: frames that were made before the clock
starts go through the same hop, and are counted and dropped. `parquet_floor`: Spark writes the same rows
as plain parquet. The controls of `instead` merge as a PySpark user would: without a table format, or by
`MERGE INTO` of Delta Lake or Iceberg. `work_floor` (`floor_cells`) does the work without Spark.
Where commits read or compact the table, `spark_reads` does that for strategies and peers.

A peer is Apache Hudi, which writes the commits to its own table. Its Spark stages become phases. The clock
covers the whole call of `save`. The time before the instant is requested, and after it is completed, is
stored too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.storagelevel import StorageLevel

from serde_lab.errors import LabError
from serde_lab.lab.cells.bench import Bench, Window, stage_labels
from serde_lab.lab.cells.cell import (
    CellJob,
    CommitResult,
    MeasurableCell,
    SparkCell,
    SparkWriteCell,
    measure_of,
    schema_of,
    table_bytes,
)
from serde_lab.lab.cells.floor_cells import FloorOnCores
from serde_lab.lab.cells.in_process_reads import read_control
from serde_lab.lab.cells.instead import MergeCell, PlainTableCell, parquet_writer
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.cells.read_cells import OperationsCell, has_operations
from serde_lab.lab.cells.slowdown import SlowedTask
from serde_lab.lab.cells.spark_reads import HudiOperator, StrategyOperator
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.lab.plan import Write, timed_options
from serde_lab.measure.environment import calibrate
from serde_lab.measure.metrics import Sample
from serde_lab.measure.slots import Interval
from serde_lab.peers.apache_hudi import java_errors
from serde_lab.pipeline.plan import WritePlan, make_plan
from serde_lab.pipeline.read import open_table
from serde_lab.pipeline.source.files import SourceFiles
from serde_lab.pipeline.spark.exchange import (
    ColumnsExchange,
    FilesExchange,
    SparkExchange,
    stored_columns,
)
from serde_lab.pipeline.spark.shuffle import RESULTS
from serde_lab.pipeline.spark.tables import exchange_for
from serde_lab.pipeline.spark.worker import FrameCounter, ReportsParam, SparkTask
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.scenario.model import FORMAT_CONTROLS, PLAIN_CONTROLS, READ_CONTROLS, WORK_FLOOR, Arm
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import Instant, epoch_ns


class OnSpark:
    """The engine that runs tasks in the Spark session of `bench`.

    `tidy_heap` collects the JVM's garbage before each cell, outside the clock. Peers work in that heap,
    and a cell would otherwise pay for the garbage of the one before it. Spark also removes the shuffle
    files of a large cell only when garbage collection finds them unused.
    """

    def __init__(self, bench: Bench, tidy_heap: bool = False) -> None:
        self.bench, self.tidy_heap = bench, tidy_heap
        summed = bench.spark.range(4_000_000).selectExpr("sum(hash(id)) AS s")
        self._jvm_work = {"jvm": lambda: summed.collect()}

    def cell(self, job: CellJob) -> MeasurableCell:
        kinds: dict[str, type[SparkCell | FloorOnCores]] = {
            "strategy": StrategyCell,
            "peer": HudiCell,
            "exchange_only": ExchangeOnlyCell,
            "parquet_floor": ParquetFloorCell,
            "spark_native": NativeCell,
            WORK_FLOOR: FloorOnCores,
            **dict.fromkeys(PLAIN_CONTROLS, PlainTableCell),
            **dict.fromkeys(FORMAT_CONTROLS, MergeCell),
        }
        if job.arm.control in READ_CONTROLS:
            return OperationsCell(job, read_control(job))
        cell = kinds[job.arm.control or job.arm.kind](self.bench, job)
        if not has_operations(job):
            return cell
        operator = HudiOperator if job.arm.kind == "peer" else StrategyOperator
        return OperationsCell(job, operator(self.bench, job), cell)

    def write_set_up(self, prepared: PreparedWrite, commit: CommitInput) -> None:
        df = self.bench.source(commit.files)
        with self.bench.batches_of(prepared.options.max_records_per_batch):
            prepared.commit(exchange_for(df, prepared.options))

    def tidy(self) -> None:
        if self.tidy_heap:
            self.bench.collect_garbage()

    def calibrate(self, work: Path) -> Mapping[str, float]:
        return calibrate(work, self._jvm_work)


class StrategyCell(SparkWriteCell):
    """A strategy: records cross the shuffle in its frames."""

    def exchange(self, commit: CommitInput) -> SparkExchange:
        arm = self.job.arm
        if arm.source_reader == "spark":
            return SparkExchange(stored_columns(self.bench.source(commit.files)), own_reader=False)
        return FilesExchange(self.bench.spark, commit.files, arm.shuffle)


class SlowedCell(StrategyCell):
    """A slowed strategy, for the gate's own test: its map tasks burn `work_s` seconds of CPU time in all."""

    def __init__(self, bench: Bench, job: CellJob, work_s: float) -> None:
        super().__init__(bench, job)
        self.work_s = work_s

    def exchange(self, commit: CommitInput) -> SparkExchange:
        tasks = sum(len(one.files) for one in self.job.inputs.commits)
        return _SlowedFiles(self.bench, commit, self.job.arm, self.work_s / tasks)


class _SlowedFiles(FilesExchange):
    """An exchange whose first stage is slowed by `cpu_s` seconds a task."""

    def __init__(self, bench: Bench, commit: CommitInput, arm: Arm, cpu_s: float) -> None:
        super().__init__(bench.spark, commit.files, arm.shuffle)
        self.cpu_s = cpu_s

    def first_task(self, plan: WritePlan, reports: Any, files: SourceFiles | None) -> SparkTask:
        return SlowedTask.of(super().first_task(plan, reports, files), self.cpu_s)


class NativeCell(StrategyCell):
    """The control `spark_native`: columns cross the shuffle in Spark's own rows."""

    def exchange(self, commit: CommitInput) -> SparkExchange:
        return ColumnsExchange(stored_columns(self.bench.source(commit.files)))


class _Control(SparkCell):
    """A control that writes no Hudi table."""

    @property
    def table(self) -> None:
        return

    def start(self) -> Iterator[Sample]:
        yield from self.bench.fresh_workers(self.job.name)


class ExchangeOnlyCell(_Control):
    """The control `exchange_only`: finished frames cross the hop."""

    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        bench, job = self.bench, self.job
        sender = job.scenario.arm(job.arm.frames_of or job.scenario.reference)
        options = timed_options(job.scenario, sender, Write(commit.operation, row_bytes=256))
        prepared = PreparedWrite.of(Storage.open(job.table), schema_of(commit), options)
        # an instant that no storage has seen, since nothing is written under it
        instant = prepared.coordinator.table.timeline().new_instant("commit")
        plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
        context = bench.spark.sparkContext
        unused = context.accumulator([], ReportsParam())
        frames = (
            FilesExchange(bench.spark, commit.files)
            .frames(plan, unused)
            .persist(StorageLevel.MEMORY_ONLY)
        )
        try:
            sent, made = frames.count(), len(unused.value)
            reports = context.accumulator([], ReportsParam())
            hop = frames.repartition(plan.targets, "salt").select("position", "frame")
            counter = FrameCounter(plan, reports)
            with bench.batches_of(options.max_records_per_batch):
                counted, window = bench.measured(
                    group, lambda: hop.mapInArrow(counter, RESULTS).collect()
                )
            found = list(reports.value)
            arrived = sum(json.loads(bytes(row.result))["frames"] for row in counted)
            if arrived != sent:
                raise LabError(f"{job.arm.name}: {arrived} of {sent} frames arrived")
            if len(unused.value) != made:
                raise LabError(
                    f"{job.arm.name}: frames that left memory were made again under the clock",
                    hint="raise measure.driver_memory_mb",
                )
        finally:
            frames.unpersist(blocking=True)
        measure = measure_of(window, bench.slots, found)
        # all frames arrived, and so all rows of the commit did
        return CommitResult(window.wall_ns, tuple(measure.samples(number)), rows=commit.rows)


class ParquetFloorCell(_Control):
    """The control `parquet_floor`: Spark writes plain parquet."""

    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        bench, job = self.bench, self.job
        source = stored_columns(bench.source(commit.files))
        target = str(job.table.with_name(job.table.name + "-parquet") / group.replace("#", "-"))
        files = job.scenario.table_of(job.arm)
        writer = parquet_writer(source, files).mode("overwrite")
        _, window = bench.measured(group, lambda: writer.parquet(target))
        measure = measure_of(window, bench.slots)
        rows = bench.spark.read.parquet(target).count()
        if rows != commit.rows:
            raise LabError(f"{job.arm.name} wrote {rows} rows, expected {commit.rows}")
        samples = [*measure.samples(number), Sample("rows", rows, number)]
        return CommitResult(window.wall_ns, tuple(samples), rows=rows)


class HudiCell(SparkCell):
    """A peer: Apache Hudi writes every commit."""

    def start(self) -> Iterator[Sample]:
        self.bench.end_workers()
        yield from self.bench.start_samples()

    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        job = self.job
        options = options_of_peer(job.scenario, job.arm, number)
        window = self._write(group, commit, options)
        measure = measure_of(window, self.slots, labels=stage_labels(window.history))
        written = open_table(job.table)
        instant = written.timeline().completed()[-1]
        stats = written.commit_metadata(instant).write_stats
        outside = outside_instants(instant, window.interval).items()
        samples = [
            Sample("rows", commit.rows, number),
            *measure.samples(number),
            *(Sample(f"driver.{name}", seconds, number) for name, seconds in outside),
            Sample("files", len(stats), number),
            Sample("table_bytes", table_bytes(written), number),
        ]
        return CommitResult(window.wall_ns, tuple(samples))

    def _write(self, group: str, commit: CommitInput, options: Mapping[str, str]) -> Window:
        """Let Apache Hudi write one commit. Raises LabError with the innermost cause from Java."""
        source = self.bench.source(commit.files)
        writer = source.write.format("hudi").options(**options).mode("append")
        table = str(self.job.table)
        with java_errors("Apache Hudi cannot write"):
            # Hudi's jobs leave the job group, so every job that ran meanwhile belongs to the cell
            _, window = self.bench.measured(group, lambda: writer.save(table), own_jobs_only=False)
        return window


def outside_instants(instant: Instant, clock: Interval) -> dict[str, float]:
    """Seconds of `clock` before `instant` was requested, and after it was completed.

    Instants are named by the JVM's time of day, in milliseconds; the lab's sessions use UTC.
    """
    begun_ns = epoch_ns(instant.time)
    found = {"before_requested_s": max(0, begun_ns - clock.begin_ns) / 1e9}
    # table version 6 stores no completion times
    if instant.completion_time not in (None, instant.time):
        ended_ns = epoch_ns(instant.completion_time or "")
        found["after_completed_s"] = max(0, clock.end_ns - ended_ns) / 1e9
    return found
