"""Runs one Spark task per file slice, in Python workers: merged reads and compactions.

Workers import it by reference; the plan does the work of a task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from serde_lab.errors import LabError
from serde_lab.pipeline.commit.compaction import CompactionWork, Compactor
from serde_lab.pipeline.handles.handle import WriteStatus
from serde_lab.pipeline.spark.exchange import on_purpose
from serde_lab.pipeline.spark.worker import STATUS, carried
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.read_plan import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# rows of one batch given to Spark, which makes one vector of it
_BATCH_ROWS = 16 * 1024


class SliceReads:
    """Reads and merges the slices whose numbers arrive."""

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            for batch in self.plan.batches(self.plan.slices[number]):
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    yield batch.slice(start, _BATCH_ROWS)


class SliceCompactions:
    """Runs the compaction tasks whose numbers arrive; one status per task."""

    def __init__(self, work: CompactionWork) -> None:
        self.work = work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            statuses = [pickle.dumps(self.work.run(number)) for number in _numbers(batches)]
        except LabError as exc:
            raise RuntimeError(carried(exc)) from exc
        yield pa.RecordBatch.from_arrays([pa.array(statuses, pa.binary())], schema=STATUS)


def spark_schema(schema: pa.Schema) -> StructType:
    """`schema` in Spark's types; timestamps without zone stay so, and no session time zone shifts them."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def merged_slices(spark: SparkSession, plan: ReadPlan, slices: tuple[FileSlice, ...]) -> DataFrame:
    """The rows of `slices` of `plan`, each slice read and merged in a task of its own."""
    reads = SliceReads(replace(plan, slices=slices))
    count = len(slices)
    return spark.range(0, count, 1, count).mapInArrow(reads, spark_schema(plan.schema))


def compactor_on(spark: SparkSession) -> Compactor:
    """A compactor that runs on Spark."""

    def run(work: CompactionWork) -> tuple[WriteStatus, ...]:
        tasks = spark.range(0, len(work), 1, len(work))
        with on_purpose():
            rows = tasks.mapInArrow(SliceCompactions(work), "status binary").collect()
        return tuple(pickle.loads(row.status) for row in rows)

    return run


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
