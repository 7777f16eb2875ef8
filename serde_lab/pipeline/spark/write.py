"""`serde_lab.write`: writes a Spark DataFrame to a Hudi table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ByteType, ShortType

from serde_lab.errors import SchemaError
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.options.write import WriteOptions, parse_options
from serde_lab.pipeline.plan import Operation
from serde_lab.pipeline.spark.columns import computes_keys, holds_separators
from serde_lab.pipeline.spark.exchange import ColumnsExchange, SparkExchange
from serde_lab.pipeline.spark.exchange import batches_of as batches_of
from serde_lab.pipeline.spark.interpreter import check_workers
from serde_lab.pipeline.spark.slices import compactor_on
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(df: DataFrame, path: str, options: Mapping[str, Any]) -> Commit:
    """Write `df` to the Hudi table at `path` (a folder or a URL); returns the commit.

    The table services that the options ask for run after the commit, which remains if one of them raises.
    `options` are Hudi's own names and `serde_lab.…` (`serde_lab.pipeline.options.write` lists them all).
    Raises OptionError for one that is unknown or invalid, SchemaError and DataError for data that the
    table cannot hold, ConcurrentWrite if another writer is active; nothing is committed then. Warns
    (PortabilityWarning) of anything that some version of Hudi cannot read or continue to write.
    """
    check_workers(df.sparkSession)
    storage = Storage.open(path)
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    parsed = parse_options(options, stored)
    prepared = PreparedWrite.of(storage, arrow_schema(df), parsed)
    with prepared.hold():
        with batches_of(df.sparkSession, parsed.max_records_per_batch):
            commit = prepared.commit(exchange_for(df, parsed))
        prepared.serve(compactor_on(df.sparkSession))
    return commit


def exchange_for(df: DataFrame, options: WriteOptions) -> SparkExchange:
    """The Spark exchange for `options.operation`."""
    bulk = options.operation is Operation.BULK_INSERT and options.topology == "bucket"
    table = options.table
    by_columns = bulk and computes_keys(df, table) and not holds_separators(df, table)
    kind = ColumnsExchange if by_columns else SparkExchange
    return kind(stored_columns(df), own_reader=options.source_reader == "auto")


def stored_columns(df: DataFrame) -> DataFrame:
    """`df` with byte and short columns, which Hudi tables do not have, widened to int."""
    narrow = {f.name for f in df.schema if isinstance(f.dataType, ByteType | ShortType)}
    for name in narrow:
        df = df.withColumn(name, df[name].cast("int"))
    return df


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The Arrow schema in which Spark sends `df`. Raises SchemaError naming column and type."""
    for field in df.schema:
        try:
            to_arrow_schema(df.select(field.name).schema)
        except Exception as exc:
            # the error types differ between pyspark releases
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
