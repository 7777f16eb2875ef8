"""Streams of files: TPC-H's refresh functions, a lag of files, and a schema that grows while a query runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest

import serde_lab
from serde_lab.streams.query import files_taken
from serde_lab.table.storage.storage import Storage
from tests.faults.small_table import MOR, check_readers, read_by_hudi_rs, read_by_us
from tests.streams.file_stream import COLUMNS, FileStream
from tests.streams.small_stream import stated_batches
from tpch.generator import TABLES
from tpch.workload import REFRESHED, prepare_refreshes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table", REFRESHED)
def test_the_refresh_functions_of_tpch_as_a_stream(
    table: str, spark: SparkSession, tmp_path: Path
) -> None:
    made = prepare_refreshes(table, 0.001, 3, tmp_path)
    key = TABLES[table].primary_key
    options = {
        "hoodie.table.name": table,
        "hoodie.datasource.write.table.type": MOR,
        "hoodie.datasource.write.recordkey.field": ",".join(key),
        "hoodie.datasource.write.precombine.field": "event_ts",
        "hoodie.bucket.index.num.buckets": "2",
    }
    storage = Storage.open(tmp_path / "table")
    serde_lab.write(spark.read.parquet(str(made.initial)), storage.url, options)
    reader = spark.readStream.schema(spark.read.parquet(str(made.initial)).schema)
    changes = reader.option("maxFilesPerTrigger", 1).parquet(str(made.refreshes))
    serde_lab.write_stream(
        changes, storage.url, options, str(tmp_path / "checkpoint"), available_now=True
    ).awaitTermination()
    assert len([one for one in stated_batches(storage) if one]) == 3

    columns = ", ".join(TABLES[table].columns)
    keys = ", ".join(key)
    gone = f"SELECT {keys} FROM batches WHERE _hoodie_is_deleted"
    files = [f"{folder}/*.parquet" for folder in (made.initial, made.refreshes)]
    with duckdb.connect() as oracle:
        oracle.execute("CREATE TABLE batches AS SELECT * FROM read_parquet(?)", [files])
        right = oracle.sql(
            f"SELECT {columns} FROM batches WHERE ({keys}) NOT IN ({gone}) ORDER BY {keys}"
        ).to_arrow_table()
    for read in (read_by_us, read_by_hudi_rs):
        found = read(storage).select(right.column_names).cast(right.schema)
        assert found.sort_by([(name, "ascending") for name in key]).equals(right)


def test_a_lag_of_files_is_shown_and_falls(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    waiting = []

    def note(df: DataFrame, number: int) -> None:
        write(df, number)
        taken = files_taken(spark, str(stream.checkpoint))
        waiting.append({file.name for file in stream.source.iterdir()} - set(map(_name, taken)))

    write = serde_lab.batch_writer(stream.storage.url, stream.options())
    rows = [[("p", f"{number}", number, "x")] for number in range(6)]
    stream.add(*rows[:5])
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2)
    query = reader.parquet(str(stream.source)).writeStream.foreachBatch(note)
    query = query.option("checkpointLocation", str(stream.checkpoint))
    started = query.start()
    started.processAllAvailable()
    # the load has fallen, and the query has caught up: a new file is a batch at once
    stream.add(rows[5])
    started.processAllAvailable()
    started.stop()
    assert waiting == [{"002.parquet", "003.parquet", "004.parquet"}, {"004.parquet"}, set(), set()]
    assert [one["numInputRows"] for one in started.recentProgress if one["numInputRows"]] == [
        *(2, 2, 1, 1)
    ]
    check_readers(stream.storage, {(p, k): (ts, v) for ((p, k, ts, v),) in rows})


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def test_a_batch_has_a_new_column_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import lit

    stream = FileStream(tmp_path)
    stream.add([("p", "a", 1, "x"), ("p", "b", 1, "x")], [("p", "b", 2, "y")])
    writer = serde_lab.batch_writer(stream.storage.url, stream.options())

    def write(df: DataFrame, number: int) -> None:
        writer(df.withColumn("more", lit(number)) if number else df, number)

    query = stream.frame(spark).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()
    rows = read_by_us(stream.storage).select(["k", "v", "more"]).sort_by("k").to_pylist()
    assert rows == [{"k": "a", "v": "x", "more": None}, {"k": "b", "v": "y", "more": 1}]
    newest = max(
        (tmp_path / "table" / "p").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns
    )
    assert "more" in pq.read_schema(newest).names
