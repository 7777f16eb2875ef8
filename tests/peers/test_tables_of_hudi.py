"""Tables that Apache Hudi wrote: the oracle, hudi-rs and Apache Hudi itself agree on every row.

This is what gives the oracle its authority: its rules are tried here against the writer that made them.
Here are merging by commit time, deletes that come back, and columns of all types in one table;
`test_interop.py` has the cover of everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import serde_lab
from serde_lab.errors import TableError
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.contents import first_difference, rows_of
from serde_lab.verify.readers import HudiRs, TableFacts
from serde_lab.verify.table_checks import check_table
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot, read_as_of, read_incremental
from tests.peers.lab_writer import lab_options
from tests.peers.peer_tables import DELETE, FIRST, HISTORY, LAST, SECOND, PeerTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]


@dataclass(frozen=True)
class Kind:
    """One table kind and how Hudi writes it."""

    table: dict[str, Any]
    write: dict[str, Any]


COW, MOR = {"table_type": "COPY_ON_WRITE"}, {"table_type": "MERGE_ON_READ"}
FLAT: dict[str, Any] = {}
HIVE = {"partition": ("p",), "hive_style": True}
TWO = {"partition": ("p", "q"), "url_encode": True}
BY_COMMIT = {"merge_mode": "COMMIT_TIME_ORDERING"}
AVRO, SPARK = {"record_type": "AVRO"}, {"record_type": "SPARK"}
PARQUET_LOG = {"log_block": "parquet"}
MDT = {"metadata_table": True}

KINDS = {
    "cow, two fields, avro, by commit": Kind(COW | TWO | BY_COMMIT, AVRO),
    "mor avro log, hive, spark, by commit": Kind(MOR | HIVE | BY_COMMIT, SPARK),
    "mor parquet log, avro, by commit": Kind(MOR | FLAT | BY_COMMIT, AVRO | PARQUET_LOG),
    "mor avro log, two fields, avro, mdt": Kind(MOR | TWO, AVRO | MDT),
}


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_what_the_oracle_says(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind = KINDS[name]
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), **kind.table))
    for step in HISTORY:
        table.by_hudi(step, HudiWrite(**kind.write))
    assert table.problems() == []


def test_compaction_cleaning_and_archiving_change_no_row(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), **MOR, buckets=2))
    write = HudiWrite(record_type="SPARK", compact_after=2, retain_commits=1, archive_after=2)
    for number, step in enumerate((FIRST, SECOND, DELETE, LAST, SECOND)):
        table.by_hudi(step, write, compacted=number % 2 == 1)
    assert HudiRs(table.path).facts().archived
    assert table.problems() == []


def test_time_travel_and_changes_are_alike_in_both_readers(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), buckets=2))
    table.by_hudi(FIRST, HudiWrite())
    first = table.expected()
    table.by_hudi(SECOND, HudiWrite())
    instant = HudiRs(table.path).facts().instants[0]
    done = sorted((tmp_path / "table/.hoodie/timeline").glob("*_*.commit"))
    completion = done[0].name.split("_")[1].split(".")[0]
    key = table.rules.key_columns
    with read_as_of(hudi_session, table.path, instant) as travelled:
        assert first_difference(first.rows, travelled, key) is None
    assert first_difference(first.rows, HudiRs(table.path, as_of=instant), key) is None
    changes = HudiRs(table.path).changes(completion)
    assert 0 < changes.num_rows < first.fingerprint.rows
    with read_incremental(hudi_session, table.path, completion) as seen:
        assert first_difference(rows_of(changes), seen, key) is None


def test_a_table_that_hudi_cannot_read_is_an_error_with_its_cause(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), buckets=1))
    table.by_hudi(FIRST, HudiWrite())
    (base,) = (tmp_path / "table").glob("*.parquet")
    base.write_bytes(b"PAR1 and then nothing")
    (tmp_path / "table" / f".{base.name}.crc").unlink()
    with (
        pytest.raises(TableError, match=r"Apache Hudi cannot read .*is not a Parquet file"),
        HudiSnapshot(hudi_session, table.path) as snapshot,
    ):
        snapshot.table()
    with HudiSnapshot(hudi_session, table.path) as snapshot:
        verdict = check_table(snapshot, table.expected(), table.rules, TableFacts({}, ()))
    assert verdict.fingerprint is None
    assert all("is not a Parquet file" in result.detail for result in verdict.results)


@pytest.mark.parametrize("record_type", ["AVRO", "SPARK"])
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
def test_all_rows_of_a_key_that_is_there_more_than_once_are_reached_by_position(
    index: str, record_type: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """hudi-rs goes by keys, and leaves all rows of such a key but one as they were (readers.toml)."""
    path, spark = str(tmp_path / "table"), hudi_session
    table = HudiTable("t", ("k",), ("ts",), table_type="MERGE_ON_READ", index=index)

    def by_hudi(rows: list[tuple[str, int, int]], operation: str) -> None:
        frame = spark.createDataFrame(rows, "k string, ts long, v long").coalesce(1)
        options = write_options(table, HudiWrite(operation, record_type=record_type))
        frame.write.format("hudi").options(**options).mode("append").save(path)

    def rows_of_frame(frame: DataFrame) -> list[tuple[Any, ...]]:
        return sorted(tuple(one) for one in frame.select("k", "ts", "v").collect())

    def check(expected: list[tuple[str, int, int]]) -> None:
        assert rows_of_frame(spark.read.format("hudi").load(path)) == expected
        assert rows_of_frame(serde_lab.read(spark, path)) == expected

    stored = [("a", 1, 10), ("a", 2, 11), ("a", 9, 12), ("b", 1, 20), ("c", 1, 30), ("c", 1, 31)]
    by_hudi(stored, "bulk_insert")
    check(stored)
    by_hudi([("a", 2, 100), ("b", 2, 200)], "upsert")
    check([("a", 2, 100), ("a", 2, 100), ("a", 9, 12), ("b", 2, 200), *stored[-2:]])
    by_hudi([("c", 0, 0)], "delete")
    expected = [("a", 2, 100), ("a", 2, 100), ("a", 9, 12), ("b", 2, 200)]
    check(expected)
    theirs = HudiRs(path).table().select(["k", "ts", "v"]).to_pylist()
    assert sorted(tuple(one.values()) for one in theirs) == sorted(
        [("a", 2, 100), ("a", 2, 11), ("a", 9, 12), ("b", 2, 200), ("c", 1, 31)]
    )
    options = lab_options(table, "upsert", "arrow", "avro") | {"hoodie.index.type": index}
    newer = spark.createDataFrame([("b", 3, 300)], "k string, ts long, v long")
    with pytest.raises(TableError, match=r"has record key '.' more than once"):
        serde_lab.write(newer, path, options)
    check(expected)
    compact(HoodieTable.open(Storage.open(path)))
    check(expected)
    serde_lab.write(newer, path, options)
    check([*expected[:3], ("b", 3, 300)])
