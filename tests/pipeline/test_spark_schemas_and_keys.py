"""Evolved columns, folders named by time and rows without keys, written and read on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import serde_lab
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.verify import oracle
from tests.pipeline.lab_table import LabTable, table_of, write_parts
from tests.pipeline.test_key_generators import (
    BY_TIME,
    CUSTOM,
    DEEP,
    IN_STRUCTS,
    KEYLESS,
    NO_TIMES,
    PARTITION,
    TIMES,
    deep,
    times,
)
from tests.pipeline.test_schema_evolution import FILL, FIRST, LAST, MANY, SECOND, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write(spark: SparkSession, table: LabTable, operation: str, data: pa.Table) -> None:
    """The next write of `table`, through Spark."""
    folder = write_parts(table.folder / "inputs" / f"spark-{len(table.commits)}", data)
    options: dict[str, Any] = {
        **table.all_options,
        "hoodie.datasource.write.operation": operation,
        "serde_lab.strategy": "internal_row",
    }
    serde_lab.write(spark.read.parquet(str(folder)), str(table.path), options)
    table.commits.append(oracle.HistoryCommit(operation, folder))


def test_evolved_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**MANY, **FILL}, LAST)
    table.upsert(rows(FIRST, range(30), 1))
    write(spark, table, "upsert", rows(SECOND, range(25, 35), 2))
    write(spark, table, "upsert", rows(LAST, range(3), 3))
    table.check()
    # some files are as narrow as the first write made them, which Spark's own reader would refuse
    seen = serde_lab.read(spark, str(table.path)).orderBy("n").collect()
    ours = plan_snapshot(table.table, columns=LAST.names).read().sort_by("n")
    assert len(seen) == len(ours) == 35
    for name in ("n", "whole", "part", "word", "price", "late"):
        assert [row[name] for row in seen] == ours[name].to_pylist()
    assert [row["s"] and row["s"].asDict(recursive=True) for row in seen] == ours["s"].to_pylist()


def test_a_first_load_named_by_time(spark: SparkSession, tmp_path: Path) -> None:
    table = LabTable(tmp_path, BY_TIME, TIMES)
    write(spark, table, "bulk_insert", times(range(20), 1))
    write(spark, table, "upsert", times(range(10, 30), 2))
    table.check()


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_fields_in_structs(spark: SparkSession, tmp_path: Path) -> None:
    partition = {"hoodie.datasource.write.partitionpath.field": "s.p"}
    table = LabTable(tmp_path, IN_STRUCTS | partition, DEEP)
    write(spark, table, "bulk_insert", deep(range(20), 2))
    write(spark, table, "upsert", deep(range(10, 30), 1))
    write(spark, table, "delete", deep(range(5), 0).select(["s", "id"]))
    assert table.check(by_rust=False).fingerprint.rows == 25


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize("partition", ["n:SIMPLE,at:TIMESTAMP", "n:SIMPLE"])
def test_a_first_load_by_the_custom_generator(
    partition: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Of plain fields the JVM makes keys and folders, of times Python."""
    options = CUSTOM | (NO_TIMES if partition == "n:SIMPLE" else {}) | {PARTITION: partition}
    rows = times(range(20), 1).append_column("n", pa.array([n % 3 for n in range(20)], pa.int32()))
    table = LabTable(tmp_path, options, rows.schema)
    write(spark, table, "bulk_insert", rows)
    write(spark, table, "upsert", rows.slice(5, 10))
    table.check(by_rust=False)


def test_columns_may_have_any_name_in_a_first_load(spark: SparkSession, tmp_path: Path) -> None:
    """Beside them, rows cross Spark's shuffle with their positions and salts."""
    table = LabTable(tmp_path, {})
    more = {"position": [3, 1, 2], "Salt": ["x", None, "y"]}
    rows = table_of([("a", n, n, 1.0) for n in range(3)])
    for name, values in more.items():
        rows = rows.append_column(name, pa.array(values))
    write(spark, table, "bulk_insert", rows)
    found = plan_snapshot(table.table).read().sort_by("n")
    assert {name: found[name].to_pylist() for name in more} == more


def test_lists_that_hold_no_list(spark: SparkSession, tmp_path: Path) -> None:
    """Spark sends the lists in them without offsets, at which pyarrow crashes or raises IndexError."""
    kinds = {
        "lists": ("array()", "array<array<int>>"),
        "maps": ("array()", "array<map<string,string>>"),
        "in_map": ("map()", "map<string,array<string>>"),
        "in_structs": ("array()", "array<struct<a:int,b:array<string>>>"),
        "in_struct": ("named_struct('l', array(), 'n', 1)", "struct<l:array<array<int>>,n:int>"),
    }
    empty = [f"cast({value} as {kind}) {name}" for name, (value, kind) in kinds.items()]
    nulls = [f"cast(null as {kind}) {name}" for name, (_, kind) in kinds.items()]
    table = LabTable(tmp_path, {})
    key = ["'a' k", "id n", "id ts", "0D v"]
    data = spark.range(0, 1, 1, 1).selectExpr(*key, *empty)
    data = data.union(spark.range(1, 2, 1, 1).selectExpr(*key, *nulls)).coalesce(1)
    options = {**table.all_options, "hoodie.datasource.write.operation": "upsert"}
    serde_lab.write(data, str(table.path), options)
    found = plan_snapshot(table.table, columns=[*kinds]).read().to_pylist()
    assert found == [
        {name: [] for name in kinds} | {"in_struct": {"l": [], "n": 1}},
        dict.fromkeys(kinds),
    ]


def test_rows_without_keys(spark: SparkSession, tmp_path: Path) -> None:
    table = LabTable(tmp_path, KEYLESS, TIMES)
    write(spark, table, "insert", times(range(20), 1))
    write(spark, table, "bulk_insert", times(range(20), 2))
    assert table.check().fingerprint.rows == 40
