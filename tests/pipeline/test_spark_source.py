"""What tasks may read themselves: plain scans of parquet files, of which Arrow gives Spark's own rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import serde_lab
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import make_plan
from serde_lab.pipeline.source.files import READ_SOURCE, SourceFiles
from serde_lab.pipeline.spark.dataframe import plain_files
from serde_lab.pipeline.spark.exchange import FilesExchange, SparkExchange, scan_of_files
from serde_lab.pipeline.spark.tables import arrow_schema, exchange_for
from serde_lab.pipeline.spark.worker import ReportsParam
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import Instant
from tests.pipeline.lab_table import FIRST, OPTIONS
from tests.pipeline.test_in_process import folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def every_flat_type() -> pa.Table:
    day, moment = dt.date(1999, 12, 31), dt.datetime(2001, 2, 3, 4, 5, 6, 789012)
    return pa.table(
        {
            "k": pa.array(["a", "", "ä€𝄞", "d"]),
            "b": pa.array([True, None, False, True]),
            "i": pa.array([1, None, -(2**31), 2**31 - 1], pa.int32()),
            "ts": pa.array([1, 2, -(2**63), 2**63 - 1], pa.int64()),
            "f": pa.array([1.5, None, np.nan, -0.0], pa.float32()),
            "d": pa.array([1e300, None, np.inf, -0.0], pa.float64()),
            "m": pa.array([Decimal("1.23"), None, Decimal("-9.99"), Decimal("0.00")]),
            "wide": pa.array([Decimal(10) ** 37, None, Decimal(-1), Decimal(0)]),
            "s": pa.array(["x", None, "", "\x00"]),
            "raw": pa.array([b"\xff\x00", None, b"", b"x"], pa.binary()),
            "day": pa.array([day, None, dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
            "at": pa.array([moment, None, moment, moment], pa.timestamp("us", "UTC")),
            "local": pa.array([moment, None, moment, moment], pa.timestamp("us")),
        }
    )


def flat_folder(folder: Path) -> Path:
    """The first rows without their list column, in two files."""
    flat = pq.read_table(folder_of(folder / "all", FIRST)).drop_columns(["l"])
    written(folder / "p0", flat.slice(0, 17))
    written(folder / "p1", flat.slice(17))
    return folder


def files_of(df: DataFrame) -> SourceFiles | None:
    return plain_files(df, arrow_schema(df))


def written(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, path, **options)
    return str(path)


@pytest.mark.parametrize("dictionary", [True, False])
def test_arrow_reads_what_spark_reads(
    dictionary: bool, spark: SparkSession, tmp_path: Path
) -> None:
    table = every_flat_type()
    df = spark.read.parquet(written(tmp_path / "f", table, use_dictionary=dictionary))
    files = files_of(df)
    assert files is not None
    assert files.columns == tuple(table.column_names)
    timeline = TaskTimeline("map")
    own = pa.Table.from_batches(files.batches(0, 3, timeline))
    spark_s = pa.Table.from_batches(df._collect_as_arrow())
    assert own.schema.types == spark_s.schema.types == arrow_schema(df).types
    # by their text: NaN is NaN, and -0.0 is not 0.0
    assert repr(own.to_pylist()) == repr(spark_s.to_pylist())
    assert set(timeline.report().phases) == {"read_source"}


def test_the_option_says_who_reads_and_the_frames_are_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = flat_folder(tmp_path / "1")
    one, two = (spark.read.parquet(str(folder / name)) for name in ("p0", "p1"))
    crossed, stored = [], []
    for reader in ("auto", "spark"):
        options = parse_options(OPTIONS | {"serde_lab.source_reader": reader})
        df = one.union(two)
        exchange = exchange_for(df, options)
        storage = Storage.open(tmp_path / reader)
        prepared = PreparedWrite.of(storage, arrow_schema(df), options)
        instant = Instant("20260101000000000", "commit", "INFLIGHT")
        plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
        unused = spark.sparkContext.accumulator([], ReportsParam())
        frames = exchange.frames(plan, unused).collect()
        crossed.append(sorted((row.salt, row.position, bytes(row.frame)) for row in frames))
        prepared.commit(exchange)
        reports = [one.report for one in exchange.reports]
        read = [READ_SOURCE in report.phases for report in reports if report.stage == "map"]
        assert read == [reader == "auto"] * 2
        stored.append(serde_lab.read(spark, str(tmp_path / reader)).count())
    assert crossed[0] == crossed[1]
    assert stored == [len(FIRST)] * 2


@pytest.mark.parametrize("nested", [False, True])
def test_known_files_give_the_frames_of_sparks_scan(
    nested: bool, spark: SparkSession, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "1", FIRST) if nested else flat_folder(tmp_path / "1")
    files = sorted(path for path in folder.iterdir() if path.name.startswith("p"))
    options = parse_options(OPTIONS)
    crossed, read = [], []
    for exchange in (
        FilesExchange(spark, files),
        SparkExchange(scan_of_files(spark, files), own_reader=False),
    ):
        storage = Storage.open(tmp_path / str(len(read)))
        schema = pq.read_schema(files[0]).remove_metadata()
        prepared = PreparedWrite.of(storage, schema, options)
        instant = Instant("20260101000000000", "commit", "INFLIGHT")
        plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
        reports = spark.sparkContext.accumulator([], ReportsParam())
        frames = exchange.frames(plan, reports).collect()
        crossed.append(sorted((row.salt, row.position, bytes(row.frame)) for row in frames))
        phases = [one.report.phases for one in reports.value]
        read.append([READ_SOURCE in found for found in phases])
    assert crossed[0] == crossed[1]
    # Spark reads lists, of which it has more encodings
    assert read == [[not nested] * len(files), [False] * len(files)]


def test_files_stand_in_the_order_of_sparks_partitions(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"], "n": [1], "ts": [1]})
    folder = tmp_path / "folder with ä % space"
    folder.mkdir()
    for number, count in enumerate([1, 900, 30]):
        written(folder / f"p{number}", pa.concat_tables([rows] * count), compression="none")
    one, two = (spark.read.parquet(str(folder / name)) for name in ("p0", "p1"))
    for df in (spark.read.parquet(str(folder)), one.union(two), two.union(one).union(two)):
        expected = [
            [row[0].rpartition("/")[2] for row in partition]
            for partition in df.selectExpr("input_file_name()")
            .rdd.glom()
            .map(lambda part: sorted(set(part), key=part.index))
            .collect()
        ]
        files = files_of(df)
        assert files is not None
        assert [[Path(p).name for p in part] for part in files.partitions] == expected


def test_whatever_is_more_than_a_scan_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = flat_folder(tmp_path / "1")
    names = [str(folder / name) for name in ("p0", "p1")]
    df = spark.read.parquet(*names)
    assert files_of(df) is not None
    by_key = tmp_path / "by-key"
    df.write.partitionBy("p").parquet(str(by_key))
    for other in (
        df.filter("n > 1"),
        df.limit(1),
        df.distinct(),
        df.withColumn("n", df["n"] + 1),
        df.withColumnRenamed("n", "z"),
        df.join(df.select("k"), "k"),
        df.select("k", "n", "ts").union(df.select("k", "ts", "n")),
        spark.read.option("mergeSchema", "true").parquet(*names),
        spark.read.parquet(str(by_key)),
        spark.read.json(df.toJSON()),
    ):
        assert files_of(other) is None
    cached = df.cache()
    try:
        assert files_of(spark.read.parquet(*names)) is None
    finally:
        cached.unpersist()
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        assert files_of(df) is None
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "100")
    try:
        # Spark splits the files
        assert files_of(spark.read.parquet(*names)) is None
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_files_that_spark_would_convert_are_left_to_it(spark: SparkSession, tmp_path: Path) -> None:
    moment = dt.datetime(2001, 2, 3)
    utc = pa.timestamp("us", "UTC")
    old_day, old_time = dt.date(1500, 1, 1), dt.datetime(1700, 1, 1)
    for number, (column, options) in enumerate(
        (
            (pa.array([moment], pa.timestamp("ns")), {"use_deprecated_int96_timestamps": True}),
            (pa.array([moment], pa.timestamp("ms", "UTC")), {}),
            (pa.array([old_day]), {}),
            (pa.array([old_time], utc), {}),
            (pa.array([dt.date(2001, 1, 1)]), {"write_statistics": False}),
            (pa.array([[1]]), {}),
            (pa.array([{"a": 1}]), {}),
            (pa.array([1], pa.uint32()), {}),
            (pa.array([b"0123456789abcdef"], pa.binary(16)), {}),
        )
    ):
        path = written(tmp_path / str(number), pa.table({"k": ["a"], "x": column}), **options)
        assert files_of(spark.read.parquet(path)) is None, column.type
    legacy = pa.table({"k": ["a"], "x": [dt.date(2001, 1, 1)]})
    marked = legacy.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    assert files_of(spark.read.parquet(written(tmp_path / "plain", legacy))) is not None
    assert files_of(spark.read.parquet(written(tmp_path / "marked", marked))) is None


def test_files_with_other_columns_than_asked_for_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = written(tmp_path / "f", pa.table({"k": ["a"], "N": pa.array([1], pa.int32())}))
    assert files_of(spark.read.schema("k string, n int").parquet(path)) is None
    assert files_of(spark.read.schema("k string, N int, m int").parquet(path)) is None
    assert files_of(spark.read.schema("k string").parquet(path)) is not None
    (tmp_path / "g").write_bytes(b"PAR1 this is none PAR1")
    assert files_of(spark.read.schema("k string").parquet(str(tmp_path / "g"))) is None


def test_files_of_one_task_that_differ_in_layout_give_sparks_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark reads text in any layout, columns in any order, and columns that allow no nulls."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, kind in enumerate([pa.string(), pa.large_string(), pa.string_view()] * 4):
        fields = [pa.field("k", kind), pa.field("n", pa.int64(), nullable=number % 2 == 0)]
        columns = [pa.array([f"k{number}"], kind), pa.array([number])]
        turned = slice(None, None, -1 if number % 5 == 0 else 1)
        rows = pa.table(columns[turned], schema=pa.schema(fields[turned]))
        written(folder / f"p{number:02}", rows)
    cost = spark.conf.get("spark.sql.files.openCostInBytes")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    try:
        df = spark.read.parquet(str(folder))
        files = files_of(df)
        assert files is not None
        assert max(map(len, files.partitions)) > 1
        for operation in ("upsert", "bulk_insert"):
            options = {
                "hoodie.table.name": "t",
                "hoodie.datasource.write.recordkey.field": "k",
                "hoodie.datasource.write.operation": operation,
                "hoodie.bucket.index.num.buckets": "2",
            }
            serde_lab.write(df, str(tmp_path / operation), options)
            found = serde_lab.read(spark, str(tmp_path / operation)).select("k", "n")
            assert sorted(map(tuple, found.collect())) == sorted((f"k{n}", n) for n in range(12))
    finally:
        spark.conf.set("spark.sql.files.openCostInBytes", cost)
