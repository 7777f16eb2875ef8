"""Operations beside upsert and delete, and instants of several batches, against DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import DataError, OptionError, SchemaError, StorageError, TableError
from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import WriteStat
from serde_lab.table.timeline.timeline import Timeline
from serde_lab.verify import oracle
from tests.pipeline.lab_table import (
    FIRST,
    GONE,
    MOR,
    PARTITIONED,
    SECOND,
    STRATEGIES,
    LabTable,
    Rows,
    commit_batches,
    table_of,
    write_parts,
)
from tests.pipeline.test_key_generators import KEYLESS
from tests.pipeline.test_topologies import NO_BUCKETS, options_of

SIMPLE = options_of("state", "SIMPLE")
BUCKETS: dict[str, str | None] = {}
NEW: Rows = [("new", n, n, 1.0) for n in range(25)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "partition", "kind"),
    [
        (SIMPLE, PARTITIONED, {}),
        (options_of("bloom", "BLOOM"), PARTITIONED, MOR),
        (BUCKETS, PARTITIONED, MOR),
        (BUCKETS, {}, {}),
    ],
)
@pytest.mark.parametrize("operation", ["insert_overwrite", "insert_overwrite_table"])
def test_what_is_overwritten_is_gone(
    operation: str,
    options: dict[str, str | None],
    partition: dict[str, str],
    kind: dict[str, str],
    tmp_path: Path,
) -> None:
    table = LabTable(tmp_path, {**options, **partition, **kind})
    table.upsert(FIRST)
    table.upsert(SECOND)
    # n is 1, 4, 7: one partition of three; a key of it comes twice
    few: Rows = [("a", 4, 1, 9.0), ("w", 1, 1, 9.0), ("w", 7, 2, 9.0), ("w", 7, 1, 8.0)]
    with pytest.raises(DataError, match=r"record key '.*w.*7' occurs more than once in the data"):
        table.write(operation, table_of(few))
    table.check()
    commit = table.write(operation, table_of(few), hoodie__combine__before__insert="true")
    assert commit.action == "replacecommit"
    table.check()
    # what was replaced is never written to again
    table.upsert([("a", 4, 2, 1.0), ("a", 5, 99, 1.0), ("v", 7, 0, 0.0)])
    table.delete(GONE)
    table.check()


@pytest.mark.parametrize("version", ["9", "6"])
@pytest.mark.parametrize("options", [SIMPLE, BUCKETS])
def test_partitions_are_deleted(
    options: dict[str, str | None], version: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**options, **PARTITIONED, "hoodie.write.table.version": version})
    table.upsert(FIRST)
    table.delete_partitions("p 1")
    table.check()
    table.upsert(SECOND)
    table.check()


def test_a_partition_to_delete_must_be_named(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**SIMPLE, **PARTITIONED})
    table.upsert(FIRST)
    with pytest.raises(OptionError, match=r"partitions\.to\.delete is missing"):
        table.delete_partitions()
    with pytest.raises(OptionError, match="matches no partition"):
        table.delete_partitions("q*")
    table.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "strategy"),
    [
        *(("state", strategy) for strategy in STRATEGIES),
        *(("bloom", "avro"), ("step3", "pickle"), ("append", "arrow")),
    ],
)
def test_inserts_look_nothing_up(topology: str, strategy: str, tmp_path: Path) -> None:
    options = options_of(topology, "BLOOM", **{"serde_lab.strategy": strategy})
    table = LabTable(tmp_path, {**options, **PARTITIONED})
    table.write("insert", table_of(FIRST))
    commit = table.write("insert", table_of(NEW))
    assert (commit.rows_inserted, commit.rows_updated) == (25, 0)
    table.check()


def test_a_table_in_milliseconds_is_read_and_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A write would make them microseconds, which changes keys and is misread in Hudi's delete blocks."""
    table = LabTable(tmp_path)
    table.upsert(FIRST)
    stored = table.table.data_schema()
    assert stored is not None
    millis = stored.append(pa.field("at", pa.timestamp("ms", "UTC")))
    monkeypatch.setattr(HoodieTable, "data_schema", lambda _: millis)
    for write in (table.upsert, table.delete):
        with pytest.raises(
            TableError, match=r"'at' of table .* is of type timestamp\[ms.* be read"
        ):
            write(SECOND)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        (
            "many",
            pa.list_(pa.struct([("a", pa.int32()), ("A", pa.int32())])),
            "differ in case only",
        ),
        (
            "by_name",
            pa.map_(pa.string(), pa.struct([("b", pa.int32()), ("B", pa.int32())])),
            "in case",
        ),
        ("_HOODIE_Commit_Time", pa.string(), "is reserved for record metadata"),
        ("_serde_lab_position", pa.int64(), "is reserved for record metadata"),
        ("_tmp_metadata_row_index", pa.int64(), "is reserved for record metadata"),
    ],
)
def test_names_that_spark_cannot_distinguish_are_refused(
    name: str, kind: pa.DataType, says: str, tmp_path: Path
) -> None:
    rows = table_of(FIRST)
    table = LabTable(tmp_path)
    with pytest.raises(SchemaError, match=says):
        table.upsert(rows.append_column(name, pa.nulls(len(rows), kind)))
    assert not (table.path / ".hoodie").exists()


@pytest.mark.parametrize("operation", ["upsert", "delete", "insert_overwrite_table"])
def test_meta_columns_of_a_read_are_left_out(operation: str, tmp_path: Path) -> None:
    """A read by Apache Hudi returns them, and so does one by the lab that asks for them."""
    table = LabTable(tmp_path)
    table.upsert(FIRST)
    read = plan_snapshot(table.table).read()
    assert "_hoodie_record_key" in read.schema.names
    table.write(operation, read.slice(3))
    table.check()


@pytest.mark.parametrize("options", [SIMPLE, SIMPLE | MOR, BUCKETS])
def test_an_inserted_key_that_is_stored_already_is_there_twice(
    options: dict[str, str | None], tmp_path: Path
) -> None:
    table = LabTable(tmp_path, options)
    for _ in range(2):
        table.write("insert", table_of([("a", 1, 1, 1.0), ("a", 1, 1, 1.0)]))
    assert plan_snapshot(table.table).read().num_rows == 4


@pytest.mark.parametrize(
    ("topology", "index"), [("state", "SIMPLE"), ("step3", "SIMPLE"), ("bloom", "BLOOM")]
)
@pytest.mark.parametrize("operation", ["delete", "upsert"])
def test_a_key_in_two_file_groups_is_not_written_in_one_of_them(
    topology: str, index: str, operation: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**options_of(topology, index), **MOR})
    for _ in range(2):
        table.write("insert", table_of([("a", 1, 1, 1.0), ("b", 1, 1, 1.0)]))
    rows = table_of([("a", 1, 2, 1.0)])
    given = rows.select(["k", "n", "p"]) if operation == "delete" else rows
    with pytest.raises(DataError, match=r"record key .*a.* is stored in several file groups"):
        table.write(operation, given)
    # other keys are written
    table.upsert([("c", 1, 1, 1.0)])
    assert plan_snapshot(table.table).read().num_rows == 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_insert_into_the_log_of_a_bucket_is_merged_by_readers(
    strategy: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**MOR, "serde_lab.strategy": strategy})
    table.upsert(FIRST)
    newer: Rows = [("a", 3, 31, 1.0), ("a", 3, 32, 2.0), ("a", 3, 30, 3.0)]
    commit = table.write("insert", table_of([*newer, ("a", 4, 39, 4.0), *NEW]))
    # its bucket's log does not show what is new
    assert (commit.rows_inserted, commit.rows_updated) == (0, 29)
    # the same rows by upsert leave the same table
    table.commits[-1] = replace(table.commits[-1], operation="upsert")
    table.check()
    table.compact()
    table.check()


@pytest.mark.parametrize("kind", [{}, MOR], ids=["copy-on-write", "merge-on-read"])
def test_an_insert_deletes_nothing(kind: dict[str, str], tmp_path: Path) -> None:
    table = LabTable(tmp_path, kind)
    table.upsert(FIRST)
    marked = table_of(NEW).append_column(
        "_hoodie_is_deleted", pa.array([True] * len(NEW), pa.bool_())
    )
    with pytest.raises(DataError, match="marked as deletes, and insert deletes nothing"):
        table.write("insert", marked)
    table.check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{}, MOR], ids=["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("sort", ["NONE", "PARTITION_SORT", "GLOBAL_SORT"])
def test_bulk_inserts_make_files_where_rows_are(
    sort: str, kind: dict[str, str], tmp_path: Path
) -> None:
    given = {**NO_BUCKETS, **PARTITIONED, **kind, "hoodie.index.type": "BLOOM"}
    sizes = {"hoodie.copyonwrite.insert.auto.split": "false"}
    sizes |= {"hoodie.copyonwrite.insert.split.size": "6"}
    table = LabTable(tmp_path, {**given, **sizes})
    rows = table_of(FIRST[::-1])
    commit = table.write("bulk_insert", rows, hoodie__bulkinsert__sort__mode=sort)
    table.check()
    assert max(stat.numWrites for stat in commit.stats) <= 6
    keys = [
        pq.read_table(table.path / s.path, columns=["_hoodie_record_key"]).column(0).to_pylist()
        for s in commit.stats
    ]
    assert all(one == sorted(one) for one in keys) == (sort != "NONE")
    # upserts find them
    table.upsert(SECOND)
    table.check()


def test_bulk_inserts_into_buckets_send_frames_of_many_rows(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {"serde_lab.strategy": "pickle"})
    source = write_parts(tmp_path / "source", table_of(FIRST), files=1)
    options = parse_options(table.given({"hoodie__datasource__write__operation": "bulk_insert"}))
    exchange = InProcessExchange(
        parquet_partitions([*source.glob("*.parquet")], table.schema.names)
    )
    PreparedWrite.of(Storage.open(table.path), table.schema, options).commit(exchange)
    counters = exchange.counters()
    assert options.table.bucket_count is not None
    assert 0 < counters["frames"] <= options.table.bucket_count


def test_a_sort_mode_is_for_tables_without_buckets(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"})
    with pytest.raises(OptionError, match="without bucket index"):
        table.write("bulk_insert", table_of(FIRST))


@pytest.mark.parametrize(
    ("strategy", "options", "kind"),
    [
        ("pickle", SIMPLE, MOR),
        ("avro", BUCKETS, {}),
        ("internal_row", BUCKETS, MOR),
        ("arrow", SIMPLE, {}),
    ],
)
def test_records_whose_places_are_known_go_there(
    kind: dict[str, str], options: dict[str, str | None], strategy: str, tmp_path: Path
) -> None:
    given = {**options, **kind, **PARTITIONED, "serde_lab.strategy": strategy}
    table = LabTable(tmp_path, given)
    table.upsert(FIRST)
    read = plan_snapshot(table.table).read().slice(5, 9)
    changed = read.set_column(
        read.schema.get_field_index("ts"), "ts", pa.array([1000 + n for n in range(9)], pa.int64())
    )
    commit = table.write(
        "upsert_prepped", changed, serde_lab__topology=given.get("serde_lab.topology") or "bucket"
    )
    assert commit.rows_updated == 9
    table.check()


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    table = LabTable(tmp_path, SIMPLE)
    table.upsert(FIRST)
    read = plan_snapshot(table.table).read()
    at = read.schema.get_field_index("_hoodie_file_name")
    with pytest.raises(DataError, match="null or empty in 21 rows"):
        table.write(
            "upsert_prepped", read.set_column(at, read.schema.names[at], pa.nulls(42, pa.string()))
        )
    elsewhere = pa.array(["f-0_0-1-0_20200101000000000.parquet"] * 42)
    with pytest.raises(DataError, match="which the table t does not have"):
        table.write("upsert_prepped", read.set_column(at, read.schema.names[at], elsewhere))
    with pytest.raises(SchemaError, match="_hoodie_file_name"):
        table.write("upsert_prepped", table_of(FIRST))


def test_a_key_that_is_not_of_its_rows_bucket_is_refused(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**BUCKETS, **PARTITIONED})
    table.upsert(FIRST)
    read = plan_snapshot(table.table).read()
    at = read.schema.get_field_index("k")
    renamed = pa.array([f"new {n}" for n in range(len(read))], read.schema.field("k").type)
    with pytest.raises(DataError, match=r"record key 'k:new 0,n:0' is not of the bucket"):
        table.write("upsert_prepped", read.set_column(at, "k", renamed))
    table.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "kind", "strategy"),
    [
        (SIMPLE, {}, "pickle"),
        (SIMPLE, MOR, "avro"),
        (options_of("bloom", "BLOOM"), {}, "internal_row"),
        (options_of("step3", "SIMPLE"), MOR, "arrow"),
        (BUCKETS, {}, "internal_row"),
        (BUCKETS, MOR, "pickle"),
    ],
)
def test_an_instant_may_span_batches(
    options: dict[str, str | None], kind: dict[str, str], strategy: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**options, **kind, "serde_lab.strategy": strategy})
    table.upsert(FIRST[:20])
    parsed = parse_options(table.all_options, table.table.config)
    schema = table_of([]).schema
    prepared = PreparedWrite.of(Storage.open(table.path), schema, parsed)
    exchanges = []
    for number, rows in enumerate((FIRST[10:], SECOND, [("a", 3, 32, 1.5), ("a", 6, 1, 1.0)])):
        folder = write_parts(tmp_path / "batches" / str(number), table_of(rows))
        files = sorted(folder.glob("*.parquet"))
        exchanges.append(InProcessExchange(parquet_partitions(files, schema.names)))
        table.commits.append(oracle.HistoryCommit("upsert", folder))
    commit_batches(prepared, exchanges)
    assert len(table.table.timeline().completed()) == 2
    table.check()


@pytest.mark.parametrize("kind", ["append", "keyless"])
@pytest.mark.parametrize("seed", ["1", None])
def test_batches_of_an_instant_share_no_file_group_and_no_made_key(
    kind: str, seed: str | None, tmp_path: Path
) -> None:
    options = KEYLESS if kind == "keyless" else options_of("append", "SIMPLE")
    inserts = {"hoodie.datasource.write.operation": "insert", "serde_lab.seed": seed}
    table = LabTable(tmp_path, {**options, **inserts})
    batches = [table_of([(name, n, 1, 1.0) for n in range(3)]) for name in "ab"]
    parsed = parse_options(table.given({}))
    prepared = PreparedWrite.of(Storage.open(table.path), batches[0].schema, parsed)
    commit_batches(prepared, [InProcessExchange([batch.to_batches()]) for batch in batches])
    rows = plan_snapshot(table.table).read()
    assert sorted(rows["k"].to_pylist()) == ["a", "a", "a", "b", "b", "b"]
    assert len(set(rows["_hoodie_record_key"].to_pylist())) == 6


class Retried(InProcessExchange):
    """The first attempt dies after its first file; the second has the same rows, in the order `again`."""

    def __init__(self, rows: pa.RecordBatch, again: list[int]) -> None:
        super().__init__([])
        self.rows, self.again = rows, again

    def run(self, plan: WritePlan) -> Iterator[WriteStat]:
        def lost() -> Iterator[pa.RecordBatch]:
            yield self.rows.slice(0, 6)
            raise RuntimeError("the executor is lost")

        with pytest.raises(RuntimeError, match="is lost"):
            list(InProcessExchange([lost()]).run(plan))
        return iter(InProcessExchange([iter([self.rows.take(pa.array(self.again))])]).run(plan))


@pytest.mark.parametrize("in_order", [True, False])
def test_a_retried_task_whose_rows_change_their_order_is_refused(
    in_order: bool, tmp_path: Path
) -> None:
    """Its files take rows as they come, so that rows of the first attempt's file would be lost or doubled."""
    sizes = {
        "hoodie.copyonwrite.insert.auto.split": "false",
        "hoodie.copyonwrite.insert.split.size": "5",
        "hoodie.datasource.write.operation": "bulk_insert",
    }
    table = LabTable(tmp_path, options_of("bulk", "SIMPLE", **sizes))
    rows = table_of([("a", n, 1, 0.0) for n in range(12)]).combine_chunks().to_batches()[0]
    parsed = parse_options(table.given({}))
    prepared = PreparedWrite.of(Storage.open(table.path), rows.schema, parsed)
    if in_order:
        prepared.commit(Retried(rows, list(range(12))))
        assert sorted(plan_snapshot(table.table).read()["n"].to_pylist()) == list(range(12))
    else:
        with pytest.raises(StorageError, match="had their rows in different orders"):
            prepared.commit(Retried(rows, list(range(11, -1, -1))))


def test_batches_that_replace_cannot_follow_one_another(tmp_path: Path) -> None:
    table = LabTable(tmp_path, SIMPLE)
    table.upsert(FIRST)
    given = {**table.all_options, "hoodie.datasource.write.operation": "insert_overwrite"}
    parsed = parse_options(given, table.table.config)
    prepared = PreparedWrite.of(Storage.open(table.path), table_of([]).schema, parsed)
    with pytest.raises(OptionError, match="an instant of several batches takes upsert"):
        prepared.store_batch(InProcessExchange([]))
    table.check()


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_commit_is_tried_several_times(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LabTable(tmp_path, SIMPLE)
    table.upsert(FIRST)
    real, left = Timeline.create_completed, [failures]

    def fails(self: Timeline, *given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise StorageError("the storage is away")
        return real(self, *given)

    monkeypatch.setattr(Timeline, "create_completed", fails)
    if failures < 3:
        table.upsert(SECOND)
    else:
        with pytest.raises(StorageError, match="is away"):
            table.upsert(SECOND)
        monkeypatch.undo()
        # rolled back as soon as the tries are used up
        assert not table.table.timeline().pending()
    table.check()


@pytest.mark.parametrize("left", ["backup", "files"])
def test_no_table_is_made_over_one_that_has_lost_its_properties(left: str, tmp_path: Path) -> None:
    """Its rows would count in the new table: with other buckets, a key would be there twice."""
    table = LabTable(tmp_path, MOR)
    if left == "backup":
        # as Apache Hudi leaves it between two steps of a change
        table.upsert([])
    else:
        table.upsert(FIRST)
    stated = table.path / ".hoodie/hoodie.properties"
    backup = stated.with_name("hoodie.properties.backup")
    stated.rename(backup if left == "backup" else tmp_path / "elsewhere")
    table.options = {**MOR, "hoodie.bucket.index.num.buckets": "8"}
    with pytest.raises(TableError, match=r"hoodie\.properties is missing, and .* is there"):
        table.upsert(SECOND)
    assert not stated.exists()
