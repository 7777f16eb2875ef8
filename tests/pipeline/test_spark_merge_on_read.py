"""Merge on read over Spark: writes, deletes, services and every kind of read, against DuckDB and us."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import serde_lab
from serde_lab.errors import OptionError, StorageError, TableError
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.table.services.compaction import CompactionPlan
from serde_lab.verify.oracle import HistoryCommit
from serde_lab.verify.table_checks import Expected, check_contents
from tests.pipeline.lab_table import (
    BACK,
    FIRST,
    GONE,
    MOR,
    PARTITIONED,
    SECOND,
    LabTable,
    table_of,
    write_parts,
)
from tests.pipeline.test_merge_modes import CUSTOM, snapshot
from tests.pipeline.test_record_mergers import MERGERS, OfRows, Sums, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

INCREMENTAL = {"hoodie.datasource.query.type": "incremental"}
BEGIN = "hoodie.datasource.read.begin.instanttime"


class SparkTable(LabTable):
    """The same table, written over Spark."""

    spark: SparkSession

    def write(self, operation: str, data: pa.Table, files: int = 2, **options: object) -> Any:
        folder = write_parts(self.folder / "inputs" / f"{len(self.commits):03}", data, files)
        given = {
            **self.all_options,
            "hoodie.datasource.write.operation": operation,
            **{key.replace("__", "."): value for key, value in options.items()},
        }
        frames = [self.spark.read.parquet(str(f)) for f in sorted(folder.glob("*.parquet"))]
        source = frames[0].unionAll(frames[1])
        before = len(self.table.timeline().completed()) if self.commits else 0
        commit = serde_lab.write(source, str(self.path), given)
        self.commits.append(HistoryCommit(operation, folder))
        if len(self.table.timeline().completed()) > before + 1:
            self.commits.append(HistoryCommit("compact"))
        return commit

    def read(self, **options: str) -> pa.Table:
        """The rows of a read, as Spark's workers hand them over."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        frame = serde_lab.read(self.spark, str(self.path), given)
        return collected(frame, plan_read(self.table, parse_read_options(given)).schema)

    def same(self, **options: str) -> int:
        """Spark and our own reader give the same rows; how many."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        ours = plan_read(self.table, parse_read_options(given)).read()
        verdict = check_contents(self.read(**options), Expected.of(ours), self.rules).results[0]
        assert verdict.passed, verdict.detail
        return ours.num_rows


def collected(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    """The rows of `frame`, through the same Arrow types that the table has."""
    batches = frame._collect_as_arrow()  # type: ignore[operator]
    return (
        pa.Table.from_batches(batches, batches[0].schema).cast(schema)
        if batches
        else (schema.empty_table())
    )


def spark_table(spark: SparkSession, folder: Path, options: dict[str, str]) -> SparkTable:
    table = SparkTable(folder, options)
    table.spark = spark
    return table


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_a_history_over_spark_reads_as_duckdb_says(
    blocks: str, spark: SparkSession, tmp_path: Path
) -> None:
    options = {
        **MOR,
        **PARTITIONED,
        "serde_lab.strategy": "internal_row" if blocks == "avro" else "arrow",
        "hoodie.logfile.data.block.format": blocks,
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "3",
    }
    table = spark_table(spark, tmp_path, options)
    first = table.upsert(FIRST)
    second = table.upsert(SECOND)
    assert second.action == "deltacommit"
    table.check()
    snapshot = table.read()
    assert check_contents(snapshot, table.expected(), table.rules).results[0].passed
    # the third deltacommit is compacted on Spark right after it
    deleted = table.delete(GONE)
    assert [commit.operation for commit in table.commits][-1] == "compact"
    assert deleted.rows_deleted == 7
    assert table.logs() == []
    table.check()
    table.upsert(BACK)
    table.check()
    assert table.same() == table.expected().fingerprint.rows
    assert table.same(as__of__instant=first.instant) == len(FIRST)
    assert table.same(hoodie__datasource__query__type="read_optimized") == 38
    changes = {"hoodie__datasource__query__type": "incremental"}
    assert table.same(**changes, **{BEGIN.replace(".", "__"): deleted.completion}) == 4
    assert table.same(**changes, **{BEGIN.replace(".", "__"): first.completion}) > 4
    whole = table.read(serde_lab__meta_columns="true")
    assert set(whole["_hoodie_partition_path"].to_pylist()) == {"p 0", "p 1", "p 2"}


def test_paths_that_a_glob_or_a_filter_would_take_for_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = table_of([("a", n, n, 0.0) for n in range(5)])
    names = pa.array(["{x,y}", "*", "_hidden", None, "[a]=1"])
    data = data.set_column(data.schema.get_field_index("p"), "p", names)
    for name, kind in (("cow", {}), ("mor", MOR)):
        table = spark_table(spark, tmp_path / name, {**kind, **PARTITIONED})
        table.upsert(data)
        assert table.same() == 5
        table.upsert(data.slice(0, 4))
        table.check()
        assert table.same() == 5


def test_a_compaction_on_spark_raises_what_its_task_raised_and_leaves_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    from serde_lab.pipeline.spark.tables import compactor_on

    table = spark_table(spark, tmp_path, MOR)
    LabTable.write(table, "upsert", table_of(FIRST))
    LabTable.write(table, "upsert", table_of(SECOND))
    log = next(path for path in table.path.glob(".*.log.*"))
    whole = log.read_bytes()
    log.write_bytes(whole[:-9])
    with pytest.raises(TableError, match="is damaged at byte 0"):
        compact(table.table, compactor_on(spark))
    assert table.table.timeline().pending() == ()
    log.write_bytes(whole)
    seen: list[int] = []

    def counted(plan: CompactionPlan) -> Any:
        seen.append(len(plan.reads.slices))
        return compactor_on(spark)(plan)

    done = compact(table.table, counted)
    table.commits.append(HistoryCommit("compact"))
    assert done is not None
    assert seen == [len(done.stats)]
    table.check()


def test_an_empty_table_has_no_rows_and_its_options_are_read_all_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = spark_table(spark, tmp_path, MOR)
    table.upsert([])
    frame = serde_lab.read(spark, str(table.path))
    assert (frame.columns, frame.count()) == (table.schema.names, 0)
    with pytest.raises(OptionError, match="did you mean"):
        serde_lab.read(spark, str(table.path), {"as.of.instan": "2024-01-01"})
    with pytest.raises((TableError, StorageError)):
        serde_lab.read(spark, str(tmp_path / "nowhere"))


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")  # null list elements
def test_every_type_comes_back_from_a_merge_in_python_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    types = pq.read_table(write_parts(tmp_path / "in", table_of(FIRST), 1) / "part-00000.parquet")
    nested = pa.array([{"a": "x", "b": [1, None]}] * len(types))
    maps = pa.array([[("k", 1)], None] * (len(types) // 2), pa.map_(pa.string(), pa.int64()))
    data = types.append_column("s", nested).append_column("h", maps)
    data = data.append_column("b", pa.array([b"\0\xff"] * len(types)))
    table = SparkTable(tmp_path, MOR, data.schema)
    table.spark = spark
    LabTable.write(table, "upsert", data)
    LabTable.write(table, "upsert", data.slice(0, 10))
    assert table.same() == len(types)


def test_a_merger_of_the_users_compacts_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = spark_table(spark, tmp_path, CUSTOM | MOR)
    table.upsert([("a", n, 5, 1.0) for n in range(3)])
    inline = {"compact__inline": "true", "compact__inline__max__delta__commits": "1"}
    table.upsert(
        [("a", 0, 1, 2.0), ("a", 9, 1, 4.0)], **{f"hoodie__{k}": v for k, v in inline.items()}
    )
    assert table.logs() == []
    assert snapshot(table, "") == {0: 3.0, 1: 1.0, 2: 1.0, 9: 4.0}


@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
def test_a_merger_of_typed_rows_merges_in_python_workers(
    kind: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    both = {MERGERS: f"{named(OfRows)},{named(Sums)}", "serde_lab__strategy": "internal_row"}
    table = spark_table(spark, tmp_path, CUSTOM | kind)
    table.upsert([("a", n, 5, 1.0) for n in range(3)], **both)
    table.upsert([("a", 0, 1, 2.0), ("a", 0, 1, 4.0), ("a", 9, 1, 8.0)], **both)
    assert snapshot(table) == {0: 7.0, 1: 1.0, 2: 1.0, 9: 8.0}


def test_what_a_batch_leaves_out_stays_over_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = spark_table(spark, tmp_path, MOR)
    table.upsert(FIRST)
    given = table_of([("a", 3, 31, 1.0), ("new", 1, 1, 2.0)]).select(["k", "n", "ts", "x"])
    commit = table.upsert(given, serde_lab__partial_updates="true")
    assert (commit.rows_updated, commit.rows_inserted) == (1, 1)
    first = {row["n"]: row for row in table_of(FIRST).to_pylist() if row["k"] == "a"}
    found = {(row["k"], row["n"]): row for row in table.read().to_pylist()}
    assert found["a", 3] == {**first[3], "ts": 31, "x": 1.0}
    assert found["new", 1] == {**dict.fromkeys(first[3]), "k": "new", "n": 1, "ts": 1, "x": 2.0}
