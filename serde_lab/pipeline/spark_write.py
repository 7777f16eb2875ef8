"""`serde_lab.write` and `serde_lab.read`: the pipeline as Spark programs call it.

Owns the meeting of Spark's DataFrame with a write; must not know strategies or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ByteType, ShortType

from serde_lab.errors import SchemaError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.coordinator import Commit
from serde_lab.pipeline.options import WriteOptions, parse_options
from serde_lab.pipeline.plan import Operation
from serde_lab.pipeline.spark_exchange import ColumnsExchange, SparkExchange
from serde_lab.pipeline.write import run_write
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def write(df: DataFrame, path: str, options: Mapping[str, Any]) -> Commit:
    """Write `df` to the Hudi table at `path` (a folder or a URL); returns the commit.

    `options` are Hudi's own names and `serde_lab.…` (`serde_lab.pipeline.options` lists them all).
    Raises OptionError for one that is unknown or cannot be, SchemaError and DataError for what the
    table cannot hold, ConcurrentWrite when another writer is at work; nothing is committed then.
    """
    storage = Storage.open(path)
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    return write_frame(df, storage, parse_options(options, stored))


def write_frame(
    df: DataFrame,
    storage: Storage,
    options: WriteOptions,
    *,
    timeline: TaskTimeline | None = None,
    exchange: SparkExchange | None = None,
) -> Commit:
    """`write` with options that are read already, and the exchange to take."""
    source = arrow_schema(df)
    df = stored_columns(df)
    if exchange is None:
        kind = ColumnsExchange if options.operation is Operation.BULK_INSERT else SparkExchange
        exchange = kind(df)
    conf = df.sparkSession.conf
    before = conf.get(_BATCH_ROWS)
    conf.set(_BATCH_ROWS, str(options.max_records_per_batch))
    try:
        return run_write(storage, source, options, exchange, timeline=timeline)
    finally:
        conf.set(_BATCH_ROWS, before)


def stored_columns(df: DataFrame) -> DataFrame:
    """`df` with the integers that no Hudi table holds widened to int."""
    narrow = {f.name for f in df.schema if isinstance(f.dataType, ByteType | ShortType)}
    for name in narrow:
        df = df.withColumn(name, df[name].cast("int"))
    return df


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The Arrow schema in which Spark hands over `df`. Raises SchemaError naming column and type."""
    for field in df.schema:
        try:
            to_arrow_schema(df.select(field.name).schema)
        except Exception as exc:
            # pyspark raises its own kinds of error here, from release to release
            raise SchemaError(
                f"column {field.name!r} is of Spark type {field.dataType.simpleString()},"
                " which has no Arrow form"
            ) from exc
    schema = to_arrow_schema(df.schema)
    return pa.schema(
        [
            f.with_type(pa.timestamp("us", "UTC"))
            if pa.types.is_timestamp(f.type) and f.type.tz
            else f
            for f in schema
        ]
    )


def read(spark: SparkSession, path: str) -> DataFrame:
    """The snapshot of the Hudi table at `path`, data columns only, as a DataFrame.

    Raises TableError when there is no table, or one of a kind that is not supported.
    """
    table = HoodieTable.open(Storage.open(path))
    data = table.data_schema()
    files = [s.base_file.path for s in table.view().latest_file_slices() if s.base_file is not None]
    if data is None or not files:
        schema = pa.schema([]) if data is None else data
        return spark.createDataFrame([], from_arrow_schema(schema))
    locations = [table.storage.describe(path) for path in files]
    return spark.read.schema(from_arrow_schema(data)).parquet(*locations)
