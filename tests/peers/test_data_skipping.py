"""Rows that Apache Hudi does not find once it goes by statistics of columns, whoever wrote the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("x", pa.float64()), ("t", pa.string())]
)
COLUMNS = "id long, p string, x double, t string"
Row = tuple[int, str, float, str]
ROWS: list[Row] = [
    (1, "p", float("nan"), "ab"),
    (2, "p", 1.0, "\uff41"),
    (3, "p", 2.0, "\U0001f600"),
    (4, "p", 3.0, "b"),
]
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.table.ordering.fields": "id",
    "hoodie.datasource.write.operation": "insert",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.index.type": "SIMPLE",
}
INDEX = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": "x,t",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.enable.data.skipping": "true",
}
# filter, the rows that fit it, and those that Apache Hudi finds by its statistics
FILTERS: tuple[tuple[str, list[int], list[int]], ...] = (
    ("x = double('NaN')", [1], []),
    ("x > 1.5", [1, 3, 4], [3, 4]),
    ("t like 'a%'", [1], []),
    ("t = '\U0001f600'", [3], []),
    ("t = 'ab'", [1], [1]),
    ("x < 2.5", [2, 3], [2, 3]),
)


@pytest.mark.parametrize("writer", ["lab", "hudi"])
def test_rows_that_hudi_skips(writer: str, hudi_session: SparkSession, tmp_path: Path) -> None:
    """Each row has a file of its own; without an index, all are found (readers.toml)."""
    path = tmp_path / "table"

    def by_hudi(row: Row, extra: dict[str, str]) -> None:
        frame = hudi_session.createDataFrame([row], COLUMNS)
        frame.write.format("hudi").options(**OPTIONS | extra).mode("append").save(str(path))

    for row in ROWS[:-1]:
        if writer == "lab":
            by_lab(path, row)
        else:
            by_hudi(row, {"hoodie.metadata.enable": "false"})
    by_hudi(ROWS[-1], INDEX)
    partitions = HoodieTable.open(Storage.open(path)).config.metadata_partitions
    assert {"column_stats", "partition_stats"} <= {*partitions}

    def found(options: dict[str, str], condition: str) -> list[int]:
        frame = hudi_session.read.format("hudi").options(**options).load(str(path))
        return sorted(row["id"] for row in frame.where(condition).collect())

    without = INDEX | {"hoodie.enable.data.skipping": "false"}
    for condition, right, skipping in FILTERS:
        assert (condition, found(without, condition)) == (condition, right)
        assert (condition, found(INDEX, condition)) == (condition, skipping)


def by_lab(path: Path, row: Row) -> None:
    storage = Storage.open(path)
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    rows = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True))], schema=SCHEMA)
    write = PreparedWrite.of(storage, SCHEMA, parse_options(OPTIONS, stored))
    write.commit(InProcessExchange([rows.to_batches()]))


def test_spark_does_not_find_a_negative_zero(spark: SparkSession, tmp_path: Path) -> None:
    """In a Parquet file of its own, if the pages have a dictionary (readers.toml)."""
    frame = spark.range(100).selectExpr("id", "cast('-0.0' as double) as x").coalesce(1)
    frame.write.parquet(str(tmp_path / "rows"))
    stored = spark.read.parquet(str(tmp_path / "rows"))
    assert (stored.where("x = 0").count(), stored.where("x <= 0").count()) == (0, 100)
