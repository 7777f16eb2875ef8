"""What Spark adds to the pipeline, which is nothing: the same frames, the same table, the same errors."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import serde_lab
from serde_lab.errors import DataError, OptionError, SchemaError, SetupError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.in_process import parquet_partitions
from serde_lab.pipeline.exchange.routing import BY_BUCKET, Task, murmur3_int, salts
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import make_plan
from serde_lab.pipeline.stages import map_stage
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.pipeline.lab_table import FIRST, OPTIONS, SECOND, STRATEGIES
from tests.pipeline.test_in_process import check, folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_salts_hit_every_partition_for_every_number_of_partitions(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    largest = max(int(salts(n).max()) for n in range(1, 1001))
    rows = spark.range(largest + 1).select(F.hash(F.col("id").cast("int")).alias("h"))
    by_spark = np.array([row.h for row in rows.collect()], np.int32)
    assert (murmur3_int(np.arange(largest + 1, dtype=np.int32)) == by_spark).all()
    for n in range(1, 1001):
        assert (by_spark[salts(n)] % n).tolist() == list(range(n))
    assert salts(8).tolist() == [12, 6, 5, 1, 25, 15, 2, 0]


def source(spark: SparkSession, folder: Path) -> DataFrame:
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    first, *rest = [spark.read.parquet(path) for path in files]
    for one in rest:
        first = first.union(one)
    return first


def plan_of(tmp_path: Path, folder: Path, strategy: str) -> object:
    options = parse_options({**OPTIONS, "serde_lab.strategy": strategy})
    schema = pq.read_schema(sorted(folder.glob("*.parquet"))[0])
    prepared = PreparedWrite.of(Storage.open(tmp_path / "t"), schema, options)
    table = prepared.coordinator.table
    return make_plan(table, prepared.schema, options, table.timeline().new_instant("commit"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_frames_cross_both_exchanges(
    strategy: str, spark: SparkSession, tmp_path: Path
) -> None:
    from serde_lab.pipeline.spark.exchange import SparkExchange
    from serde_lab.pipeline.spark.worker import ReportsParam

    folder = folder_of(tmp_path / "1", FIRST)
    plan = plan_of(tmp_path, folder, strategy)
    files = sorted(folder.glob("*.parquet"))
    names = pq.read_schema(files[0]).names
    salt_of = salts(plan.targets)  # type: ignore[attr-defined]
    expected: Counter[tuple[int, int, bytes]] = Counter()
    for number, batches in enumerate(parquet_partitions(files, names)):
        task = Task(plan, number, TaskTimeline("map"), BY_BUCKET)  # type: ignore[arg-type]
        for routed in map_stage(task, batches):
            for row in routed.to_pylist():
                expected[int(salt_of[row["target"]]), row["position"], row["frame"]] += 1
    reports = spark.sparkContext.accumulator([], ReportsParam())
    frames = SparkExchange(source(spark, folder)).frames(plan, reports)  # type: ignore[arg-type]
    crossed = Counter((r.salt, r.position, bytes(r.frame)) for r in frames.collect())
    assert crossed == expected


@pytest.mark.parametrize("strategy", ["internal_row", "arrow"])
def test_upserts_over_spark_give_the_oracles_table(
    strategy: str, spark: SparkSession, tmp_path: Path
) -> None:
    first, second = folder_of(tmp_path / "1", FIRST), folder_of(tmp_path / "2", SECOND)
    options = {**OPTIONS, "serde_lab.strategy": strategy}
    serde_lab.write(source(spark, first), str(tmp_path / "t"), options)
    commit = serde_lab.write(source(spark, second), str(tmp_path / "t"), options)
    assert (commit.rows_updated, commit.rows_inserted) == (3, 2)
    check(tmp_path / "t", [("upsert", first), ("upsert", second)], tmp_path / "o")
    snapshot = serde_lab.read(spark, str(tmp_path / "t"))
    assert snapshot.columns == pq.read_schema(first / "part-00000.parquet").names
    assert snapshot.count() == 44


@pytest.mark.parametrize("partition", ["", "p"])
def test_bulk_insert_crosses_as_columns_and_lands_in_the_same_buckets(
    partition: str, spark: SparkSession, tmp_path: Path
) -> None:
    first, second = folder_of(tmp_path / "1", FIRST), folder_of(tmp_path / "2", SECOND)
    options = {**OPTIONS, "hoodie.datasource.write.partitionpath.field": partition}
    bulk = {**options, "hoodie.datasource.write.operation": "bulk_insert"}
    serde_lab.write(source(spark, first), str(tmp_path / "t"), bulk)
    # an upsert finds every key again: the JVM's bucket hash is the one that workers compute
    serde_lab.write(source(spark, second), str(tmp_path / "t"), options)
    check(tmp_path / "t", [("bulk_insert", first), ("upsert", second)], tmp_path / "o", partition)


@pytest.mark.parametrize(
    ("key", "partition"), [("k", ""), ("k,n", ""), ("k,n", "p"), ("k", "p,n"), ("n", "p,k")]
)
def test_bulk_insert_finds_the_buckets_of_awkward_keys(
    key: str, partition: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Keys that Hudi's bucket hash takes apart in places that are no field's, and one key field under
    several partition fields, whose name is hashed with it."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = [("a,b:c", 1, 1, "p"), ("n:1,k", 2, 1, "p"), ("x:", 3, 1, "q"), (",", 4, 1, "q")]
    rows += [(f"k{n},n:{n}" if n % 2 else f"k{n}", n, 1, "p") for n in range(5, 40)]
    df = spark.createDataFrame(rows, "k string, n long, ts long, p string")
    plain = df.where("not k rlike '[,:]'")
    options = {
        **OPTIONS,
        "hoodie.datasource.write.recordkey.field": key,
        "hoodie.datasource.write.partitionpath.field": partition,
        # two partition fields make folders of such values otherwise
        "hoodie.datasource.write.partitionpath.urlencode": str("k" in partition).lower(),
    }
    bulk = {**options, "hoodie.datasource.write.operation": "bulk_insert"}
    for name, source_rows in (("awkward", df), ("plain", plain)):
        path = str(tmp_path / name)
        serde_lab.write(source_rows, path, bulk)
        serde_lab.write(source_rows.withColumn("ts", F.lit(2)), path, options)
        found = serde_lab.read(spark, path)
        assert found.count() == source_rows.count()
        assert found.where("ts = 2").count() == source_rows.count()


def test_a_zone_that_the_program_does_not_share_with_the_jvm_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Hudi would name a later write by an earlier time, in a table whose zone is the machine's."""
    rows, path = (
        spark.createDataFrame([("a", 1, 1)], "k string, n int, ts int"),
        str(tmp_path / "t"),
    )
    serde_lab.write(rows, path, OPTIONS)
    file = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    file.write_text(file.read_text().replace("timezone=UTC", "timezone=LOCAL"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with pytest.raises(SetupError, match="UTC for this session's JVM and JST for this program"):
            serde_lab.write(rows, path, OPTIONS)
    finally:
        monkeypatch.undo()
        time.tzset()
    serde_lab.write(rows, path, OPTIONS)
    assert len(HoodieTable.open(Storage.open(path)).timeline().instants()) == 2


def test_narrow_integers_are_stored_as_int(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a", 1, 2, 3)], "k string, n byte, ts long, s short")
    options = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "k"}
    serde_lab.write(df, str(tmp_path / "t"), options)
    assert dict(serde_lab.read(spark, str(tmp_path / "t")).dtypes) == {
        "k": "string",
        "n": "int",
        "ts": "bigint",
        "s": "int",
    }


def test_what_a_task_raised_on_purpose_arrives_as_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = spark.createDataFrame([("a", 1, None)], "k string, n long, ts long")
    with pytest.raises(DataError, match="'ts' is null in 1 rows"):
        serde_lab.write(df, str(tmp_path / "t"), OPTIONS)
    assert not HoodieTable.exists(Storage.open(str(tmp_path / "t")))


def test_a_column_that_no_table_holds_is_refused_by_name_and_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = spark.sql("select 'a' k, 1L n, 1L ts, interval 1 day i")
    with pytest.raises(SchemaError, match="'i'"):
        serde_lab.write(df, str(tmp_path / "t"), OPTIONS)
    with pytest.raises(OptionError, match=r"hoodie\.table\.name is missing"):
        serde_lab.write(df, str(tmp_path / "u"), {})


def test_reading_an_empty_table_gives_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([], "k string, n long, ts long")
    serde_lab.write(df, str(tmp_path / "t"), OPTIONS)
    assert serde_lab.read(spark, str(tmp_path / "t")).columns == ["k", "n", "ts"]


@given(
    st.lists(
        st.none()
        | st.sampled_from(["", "__null__", "__empty__"])
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        min_size=1,
    ),
    st.sampled_from([("k", "n"), ("n", "k"), ("n",), ("k",)]),
)
@example(["__null__", "__empty__", "", None, "x"], ("n", "k"))
@settings(deadline=None, max_examples=6)
def test_the_jvms_bucket_is_the_workers_bucket(
    spark: SparkSession, texts: list[str | None], hashed: tuple[str, ...]
) -> None:
    from serde_lab.pipeline.exchange.routing import buckets_of
    from serde_lab.pipeline.spark.dataframe import java_bucket
    from serde_lab.records.keys import KeyGenerator
    from serde_lab.records.schema import RecordSchema
    from serde_lab.table.config import TableConfig

    # what a key holds besides field:value pairs is taken apart by rules of its own in both
    texts = [text for text in texts if not set(text or "") & {",", ":"}] or ["x"]
    data = pa.record_batch({"k": pa.array(texts, pa.string()), "n": pa.array(range(len(texts)))})
    schema = RecordSchema(data.schema, ("k", "n"))
    table = TableConfig("t", ("k", "n"), bucket_count=7, bucket_fields=hashed)
    expected = buckets_of(KeyGenerator(schema).record_keys(data), table)

    class Plan:
        schema, targets, buckets = RecordSchema(data.schema, ("k", "n")), 7, 7
        table = TableConfig("t", ("k", "n"), bucket_count=7, bucket_fields=hashed)

    df = spark.createDataFrame([(t, i) for i, t in enumerate(texts)], "k string, n long")
    found = df.select("n", java_bucket(df, Plan()).alias("b")).orderBy("n").collect()  # type: ignore[arg-type]
    assert [row.b for row in found] == expected.tolist()


@pytest.mark.parametrize("setting", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_a_read_misses_no_rows_whatever_files_the_session_skips(
    setting: str, spark: SparkSession, tmp_path: Path
) -> None:
    df = spark.range(20).selectExpr("cast(id as string) k", "id ts")
    options = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "k"}
    serde_lab.write(df, str(tmp_path / "t"), options)
    file = next((tmp_path / "t").glob("*.parquet"))
    spark.conf.set(f"spark.sql.files.{setting}", "true")
    try:
        rows = serde_lab.read(spark, str(tmp_path / "t"))
        assert rows.count() == 20
        if setting == "ignoreMissingFiles":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:50])
        with pytest.raises(Exception, match=file.name):
            rows.count()
    finally:
        spark.conf.unset(f"spark.sql.files.{setting}")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_frames_cross_whatever_offsets_the_session_has(
    strategy: str, spark: SparkSession, tmp_path: Path
) -> None:
    df = spark.range(20).selectExpr("cast(id as string) k", "id ts", "array(cast(id as binary)) l")
    options = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "k"}
    wide = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(wide, "true")
    try:
        for _ in range(2):
            serde_lab.write(df, str(tmp_path / "t"), {**options, "serde_lab.strategy": strategy})
        found = serde_lab.read(spark, str(tmp_path / "t"))
        assert sorted(found.collect()) == sorted(df.collect())
        assert spark.conf.get(wide) == "true"
    finally:
        spark.conf.unset(wide)


def test_writes_that_overlap_leave_the_sessions_settings(spark: SparkSession) -> None:
    from serde_lab.pipeline.spark.exchange import BATCH_ROWS, setting

    before = spark.conf.get(BATCH_ROWS)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(setting(spark, BATCH_ROWS, 5))
        second.enter_context(setting(spark, BATCH_ROWS, 6))
        with setting(spark, BATCH_ROWS, 7):
            first.close()
            assert spark.conf.get(BATCH_ROWS) == "7"
        assert spark.conf.get(BATCH_ROWS) == "6"
    assert spark.conf.get(BATCH_ROWS) == before


def test_the_jvm_finds_no_bucket_where_its_text_may_have_no_exponent(spark: SparkSession) -> None:
    from serde_lab.pipeline.spark.dataframe import computes_keys
    from serde_lab.table.config import TableConfig

    for scale, finds in ((6, True), (7, False)):
        df = spark.createDataFrame([], f"k decimal(20, {scale})")
        assert computes_keys(df, TableConfig("t", ("k",), bucket_count=7)) is finds


def test_a_filter_keeps_rows_with_nan(spark: SparkSession, tmp_path: Path) -> None:
    """Spark skips row groups by their statistics. For Spark, NaN is the greatest value."""
    rows = [("a", 1, 1.0, 1.0), ("b", 1, float("nan"), float("nan"))]
    df = spark.createDataFrame(rows, "k string, ts long, x double, f float")
    nested = df.selectExpr("*", "named_struct('x', x) s")
    options = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "k"}
    serde_lab.write(nested, str(tmp_path / "t"), options)
    found = serde_lab.read(spark, str(tmp_path / "t"))
    for condition in ("x > 5", "f > 5", "s.x > 5", "x = double('NaN')", "x <> 1.0"):
        assert [row.k for row in found.where(condition).collect()] == ["b"], condition


@pytest.mark.parametrize("by", ["dictionary", "Bloom filter", "row"])
def test_a_filter_keeps_rows_with_minus_zero(spark: SparkSession, tmp_path: Path, by: str) -> None:
    """It equals zero, but not for Parquet's reader, to which Spark hands its filters.

    That filters by a column's dictionary, by its Bloom filter in files of Apache Hudi that have one, and row
    by row with the settings that Apache Hudi's reads leave in a session.
    """
    df = spark.range(20).selectExpr("cast(id as string) k", "id ts", "-0.0D x", "float('-0.0') f")
    one_file = {"hoodie.bucket.index.num.buckets": "1"}
    options = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "k", **one_file}
    serde_lab.write(df, str(tmp_path / "t"), options)
    (file,) = (tmp_path / "t").glob("*.parquet")
    if by == "Bloom filter":
        with_blooms(spark, file, "x", "f")
    left = {"enableVectorizedReader": "false", "recordLevelFilter.enabled": "true"}
    left = left if by == "row" else {}
    before = {
        f"spark.sql.parquet.{key}": spark.conf.get(f"spark.sql.parquet.{key}") for key in left
    }
    try:
        for key, value in left.items():
            spark.conf.set(f"spark.sql.parquet.{key}", value)
        found = serde_lab.read(spark, str(tmp_path / "t"))
        for condition in ("x = 0.0D", "x >= 0.0D", "x in (0.0D, 1.0D)", "f = float('0.0')"):
            assert found.where(condition).count() == 20, condition
        # as of every file that Spark itself writes
        assert spark.read.parquet(str(file)).where("x = 0.0D").count() == 0
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def with_blooms(spark: SparkSession, file: Path, *columns: str) -> None:
    """Writes a Parquet file again with Bloom filters, which need columns without a dictionary."""
    options = {f"parquet.bloom.filter.enabled#{name}": "true" for name in columns}
    made = file.parent.with_name("made")
    rows = spark.read.parquet(str(file)).coalesce(1)
    rows.write.options(**options, **{"parquet.enable.dictionary": "false"}).parquet(str(made))
    (part,) = made.glob("*.parquet")
    part.replace(file)


OLD = [
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 5),
    date(1582, 10, 14),
    date(1582, 10, 15),
    date(1899, 12, 31),
    date(1900, 1, 1),
    date(9999, 12, 31),
]
REBASE = [
    f"spark.sql.{mode}"
    for mode in (
        "parquet.datetimeRebaseModeInRead",
        "parquet.int96RebaseModeInRead",
        "avro.datetimeRebaseModeInRead",
    )
]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_old_dates_come_back_whatever_the_session_says(
    table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    noon = [datetime(day.year, day.month, day.day, 12, microsecond=1) for day in OLD]
    rows = pa.table(
        {
            "k": pa.array([str(n) for n in range(len(OLD))]),
            "day": pa.array(OLD, pa.date32()),
            "at": pa.array(noon, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "wall": pa.array(noon, pa.timestamp("us")),
        }
    )
    path = str(tmp_path / "table")
    options = {
        "hoodie.table.name": "old",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.bucket.index.num.buckets": "1",
    }

    def write(rows: pa.Table, name: str) -> None:
        pq.write_table(rows, tmp_path / name)
        reader = spark.read.option("datetimeRebaseMode", "CORRECTED")
        serde_lab.write(reader.parquet(str(tmp_path / name)), path, options)

    def stored(frame: DataFrame) -> list[tuple[object, ...]]:
        day, at = "day", "unix_micros(at) AS at"
        found = frame.selectExpr("k", day, at, "CAST(wall AS string) AS wall").collect()
        return sorted(tuple(row) for row in found)

    write(rows, "first.parquet")
    if table_type == "MERGE_ON_READ":
        write(rows.slice(0, 5), "again.parquet")
    instants = rows["at"].cast(pa.int64()).to_pylist()
    walls = [f"{moment.isoformat(' ')}" for moment in noon]
    expected = sorted(zip(rows["k"].to_pylist(), OLD, instants, walls, strict=True))
    before = {key: spark.conf.get(key) for key in (*REBASE, "spark.sql.session.timeZone")}
    try:
        for mode, zone in (
            ("EXCEPTION", "UTC"),
            ("LEGACY", "America/New_York"),
            ("CORRECTED", "Asia/Kolkata"),
        ):
            for key in REBASE:
                spark.conf.set(key, mode)
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert stored(serde_lab.read(spark, path)) == expected
            # base files say by themselves which calendar they have
            files = sorted(str(file) for file in (tmp_path / "table").glob("*.parquet"))
            assert stored(spark.read.parquet(*files)) == expected
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
