"""`serde_lab.read`: reads a Hudi table as a Spark DataFrame.

Spark itself reads file slices that need no merging; Python workers read the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from serde_lab.pipeline.read import open_table, parse_read_options, plan_read
from serde_lab.pipeline.spark.interpreter import check_workers
from serde_lab.pipeline.spark.slices import merged_slices, spark_schema
from serde_lab.records.types import storage_type
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.files.meta_columns import COMMIT_TIME, with_meta_columns
from serde_lab.table.read_plan import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# read values as stored, whatever calendar the session assumes for files of unknown writers
_AS_STORED = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
_PATTERN = frozenset("*?[]{}\\")


def read(spark: SparkSession, path: str, options: Mapping[str, Any] | None = None) -> DataFrame:
    """The Hudi table at `path` (a folder or a URL) as a DataFrame of its data columns.

    `options` are Hudi's own names (`serde_lab.pipeline.read` lists them all); the default is a snapshot
    read. This call decides which files are read; the rows are read when an action runs. Raises TableError
    if there is no table or its kind is not supported, OptionError for an option that is unknown or
    invalid.
    """
    parsed = parse_read_options(options or {})
    plan = plan_read(open_table(path), parsed)
    alone = [slice_ for slice_ in plan.slices if _spark_reads(plan, slice_)]
    narrower = _narrower_instants(plan, alone)
    plain = tuple(slice_ for slice_ in alone if slice_.base_instant not in narrower)
    others = tuple(slice_ for slice_ in plan.slices if slice_ not in plain)
    if not plain and not others:
        return spark.createDataFrame([], spark_schema(plan.schema))
    frames = []
    if plain:
        frames.append(_base_files(spark, plan, plain))
    if others:
        check_workers(spark)
        frames.append(merged_slices(spark, plan, others))
    return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def _spark_reads(plan: ReadPlan, slice_: FileSlice) -> bool:
    """Whether the slice needs no merging, and Spark's own reader can open the file."""
    if slice_.base_file is None or (slice_.log_files and not plan.read_optimised):
        return False
    path = plan.storage.describe(slice_.base_file.path)
    # Spark expands patterns in paths, and a partition value may look like one
    return plan.storage.is_local and not _PATTERN.intersection(path)


def _narrower_instants(plan: ReadPlan, slices: Iterable[FileSlice]) -> set[str]:
    """Instants whose base files have narrower columns than the table, which Spark's reader refuses.

    One footer per instant is enough: all files of a write have one schema.
    """
    first = {s.base_instant: s.base_file.path for s in slices if s.base_file is not None}
    wanted = {field.name: storage_type(field.type) for field in plan.schema}
    return {
        instant
        for instant, path in first.items()
        if any(
            storage_type(field.type) != wanted[field.name]
            for field in BaseFileReader(plan.storage, path).schema
            if field.name in wanted
        )
    }


def _base_files(spark: SparkSession, plan: ReadPlan, slices: tuple[FileSlice, ...]) -> DataFrame:
    paths = [plan.storage.describe(s.base_file.path) for s in slices if s.base_file is not None]
    stored = spark_schema(with_meta_columns(plan.data_schema))
    rows = spark.read.options(**_AS_STORED).schema(stored).parquet(*paths)
    if plan.commit_times is not None:
        rows = rows.where(F.col(COMMIT_TIME).isin(*sorted(plan.commit_times)))
    return rows.select(*(f"`{name}`" for name in plan.schema.names))
