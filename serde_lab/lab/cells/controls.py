"""Measures the two controls that write no Hudi table: each isolates one cost.

`exchange_only`: frames that were made before the clock starts go through the same hop, and are counted
and dropped. `parquet_floor`: Spark writes the same rows as plain parquet. (The third control,
`spark_native`, writes a table; `lab.cells.strategy` measures it.)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.storagelevel import StorageLevel

from serde_lab.errors import LabError
from serde_lab.lab.cells.result import CellResult, CellSample
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.lab.plan import Write, write_options
from serde_lab.measure.commit import CommitMeasure, measure_commit
from serde_lab.measure.reports import AttemptReport
from serde_lab.pipeline.planning import make_plan
from serde_lab.pipeline.spark.exchange import SparkExchange
from serde_lab.pipeline.spark.worker import FrameCounter, ReportsParam
from serde_lab.pipeline.spark.write import arrow_schema, batches_of, stored_columns
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.table.storage.storage import Storage

if TYPE_CHECKING:
    from serde_lab.lab.cells.bench import Bench, Window


def run_control(
    bench: Bench, scenario: Scenario, inputs: PreparedInputs, table: Path, cell: str, arm: Arm
) -> CellResult:
    """Measure `arm` on each timed commit. Raises LabError if rows are missing."""
    samples = [CellSample("worker_start_s", bench.fresh_workers(cell))]
    total_s, rows = 0.0, 0
    for number, commit in enumerate(inputs.commits, start=1):
        run = _exchange_only if arm.control == "exchange_only" else _parquet_floor
        window, measure, moved = run(bench, scenario, table, commit, f"{cell}#{number}", arm)
        if moved != commit.rows:
            raise LabError(f"{arm.name} moved {moved} rows of {commit.rows}")
        wall_s = window.wall_ns / 1e9
        samples.append(CellSample("seconds", wall_s, number))
        samples += [CellSample(v.metric, v.value, number, v.phase) for v in measure.values()]
        if arm.control == "parquet_floor":
            samples.append(CellSample("rows", moved, number))
        total_s += wall_s
        rows += moved
    samples += [CellSample("seconds", total_s), CellSample("slots", bench.slots)]
    return CellResult(tuple(samples), None, rows=rows)


def _exchange_only(
    bench: Bench, scenario: Scenario, table: Path, commit: CommitInput, group: str, arm: Arm
) -> tuple[Window, CommitMeasure, int]:
    sender = scenario.arm(arm.frames_of or scenario.reference)
    source = stored_columns(bench.source(commit.files))
    options = write_options(scenario, sender, Write(commit.operation, row_bytes=256))
    prepared = PreparedWrite.of(Storage.open(table), arrow_schema(source), options)
    # an instant that no storage has seen, since nothing is written under it
    instant = prepared.coordinator.table.timeline().new_instant("commit")
    plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
    context = bench.spark.sparkContext
    unused = context.accumulator([], ReportsParam())
    frames = SparkExchange(source).frames(plan, unused).persist(StorageLevel.MEMORY_ONLY)
    try:
        frames.count()
        reports = context.accumulator([], ReportsParam())
        hop = frames.repartition(plan.targets, "salt").select("position", "frame")
        counter = FrameCounter(plan, reports)
        with batches_of(bench.spark, options.max_records_per_batch):
            counted, window = bench.measured(
                group, lambda: hop.mapInArrow(counter, "status binary").collect()
            )
        found = [AttemptReport.from_json(text) for text in reports.value]
        rows = sum(json.loads(bytes(row.status))["frames"] for row in counted)
        if rows != frames.count():
            raise LabError(f"{arm.name}: {rows} frames arrived of {frames.count()}")
    finally:
        frames.unpersist(blocking=True)
    measure = measure_commit(window.interval, bench.slots, window.history, found)
    # the number of frames was checked above, so all rows of the commit arrived
    return window, measure, commit.rows


def _parquet_floor(
    bench: Bench, scenario: Scenario, table: Path, commit: CommitInput, group: str, arm: Arm
) -> tuple[Window, CommitMeasure, int]:
    source = stored_columns(bench.source(commit.files))
    target = str(table.with_name(table.name + "-parquet") / group.replace("#", "-"))
    files = scenario.table_of(arm)
    writer = source.write.mode("overwrite").option("compression", files.codec)
    if files.level is not None and files.codec == "zstd":
        writer = writer.option("parquet.compression.codec.zstd.level", str(files.level))
    _, window = bench.measured(group, lambda: writer.parquet(target))
    measure = measure_commit(window.interval, bench.slots, window.history, [])
    return window, measure, bench.spark.read.parquet(target).count()
