"""Tables of Apache Hudi that the lab reads right and must not write: refused by name, and left alone."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import LabError, TableError
from serde_lab.lab.lab_reader import LabReader
from serde_lab.verify.readers import HudiRs
from tests.differential.writers import conf_set
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.lab_writer import LabWriter, lab_options, write_in_process
from tests.peers.peer_tables import ALL_READERS, DELETE, FIRST, SECOND, PeerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

MOR: dict[str, Any] = {"table_type": "MERGE_ON_READ"}
CDC = {"hoodie.table.cdc.enabled": "true"}
SLASHED = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
CUSTOM = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
    "hoodie.datasource.write.partitionpath.field": "p:SIMPLE",
}

# a file id is random, and one in forty begins with eight digits, as that of a bucket does
OTHER_INDEX = "under another index than the bucket index|is not one of 8 buckets"

KINDS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str], str]] = {
    "another index": (
        {"index": "SIMPLE"},
        {},
        {"index": "BUCKET", "buckets": "8"},
        OTHER_INDEX,
    ),
    "another index, by log": (
        {"index": "BLOOM", **MOR},
        {},
        {"index": "BUCKET", "buckets": "8"},
        OTHER_INDEX,
    ),
    "more buckets": ({"buckets": 8}, {}, {"buckets": "2"}, "is not one of 2 buckets"),
    "fewer buckets": ({"buckets": 2}, {}, {"buckets": "8"}, "of 8 buckets belongs to another"),
    "buckets of other fields": (
        {"buckets": 8, "bucket_fields": ("n",)},
        {},
        {"fields": "k"},
        "of 8 buckets belongs to another",
    ),
    "changes of each row": (
        {},
        CDC,
        {},
        "hoodie.table.cdc.enabled=true, which the lab cannot write",
    ),
    "days as folders of year, month and day": (
        {"partition": ("p",)},
        SLASHED,
        {},
        "which the lab writes only by the key generator TIMESTAMP",
    ),
    "partition fields whose kinds are not named": (
        {"partition": ("p",)},
        CUSTOM,
        {},
        "states partition kinds",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_refused_by_name_and_left_as_it_was(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind, extra, stated, says = KINDS[name]
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), **kind))
    table.by_hudi(FIRST, HudiWrite(extra=extra))
    # of the key generator CUSTOM hudi-rs takes "p:SIMPLE" for a column (readers.toml)
    judges = ("apache-hudi", "serde_lab") if extra == CUSTOM else ALL_READERS
    if extra == CUSTOM:
        with pytest.raises(TableError, match=r"hudi-rs cannot read .*is not present in the table"):
            HudiRs(table.path).facts()
    assert table.problems(judges) == []
    options = {}
    if "buckets" in stated:
        options["hoodie.bucket.index.num.buckets"] = stated["buckets"]
    if "index" in stated:
        options["hoodie.index.type"] = stated["index"]
    if "fields" in stated:
        options["hoodie.bucket.index.hash.field"] = stated["fields"]
    with pytest.raises(LabError, match=says):
        LabWriter(table).step(SECOND, **options)
    del table.commits[-1]  # nothing was written
    assert table.problems(judges) == []


EXTRACTOR = "hoodie.datasource.hive_sync.partition_extractor_class"
DAYS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "another extractor": ({}, {EXTRACTOR: "org.apache.hudi.hive.MultiPartKeysValueExtractor"}),
    "hive style": ({"hive_style": True}, {}),
    "merge on read": ({"hive_style": True, "index": "BUCKET", **MOR}, {}),
    "custom": ({"partition": ("q:SIMPLE",)}, {}),
    "custom, two fields": ({"partition": ("p:SIMPLE", "q:SIMPLE"), "hive_style": True}, {}),
}


@pytest.mark.parametrize("name", DAYS)
def test_days_as_folders_are_seen_where_no_property_tells_of_them(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind, extra = DAYS[name]
    table = HudiTable("t", ("k", "n"), ("o",), **({"index": "SIMPLE", "partition": ("q",)} | kind))
    peer = PeerTable(hudi_session, tmp_path, table)
    peer.by_hudi(FIRST, HudiWrite(extra=SLASHED | extra))
    for step in (SECOND, DELETE):
        with pytest.raises(TableError, match=r"2024/02/2[89].*', and a write would|2024/01/31"):
            LabWriter(peer).step(step)


def test_days_as_folders_of_a_table_that_sql_made(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """It states the option, and no extractor."""
    (option,) = SLASHED
    hudi_session.sql(
        "create table days (id bigint, v bigint, day string) using hudi partitioned by (day)"
        f" tblproperties(primaryKey = 'id', '{option}' = 'true') location '{tmp_path / 'table'}'"
    )
    hudi_session.conf.set("hoodie.metadata.enable", "false")
    try:
        hudi_session.sql("insert into days values (1, 1, '2024-01-31')")
    finally:
        hudi_session.conf.unset("hoodie.metadata.enable")
    rows = pa.table({"id": [1], "v": [2], "day": ["2024-01-31"]})
    (tmp_path / "rows").mkdir()
    pq.write_table(rows, tmp_path / "rows" / "part-0.parquet")
    options = {"hoodie.index.type": "SIMPLE"}
    with pytest.raises(TableError, match=rf"{re.escape(option)}=true: its days are folders"):
        write_in_process(str(tmp_path / "table"), tmp_path / "rows", options)


def test_columns_that_hudi_renamed_before_a_write_that_does_not_say_so(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """From that write on, Apache Hudi and hudi-rs take the values of each column from the other one."""
    path, on = str(tmp_path / "table"), "hoodie.schema.on.read.enable"
    conf = {
        on: "true",
        "hoodie.metadata.enable": "false",
        "hoodie.avro.schema.validate": "false",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
    }
    for key, value in conf.items():
        hudi_session.conf.set(key, value)
    try:
        hudi_session.sql(
            f"create table swapped (id bigint, v bigint, w bigint) using hudi location '{path}'"
            " tblproperties(primaryKey = 'id')"
        )
        hudi_session.sql("insert into swapped values (1, 10, 20)")
        for old, new in (("v", "u"), ("w", "v"), ("u", "w")):
            hudi_session.sql(f"alter table swapped rename column {old} to {new}")
        (row,) = hudi_session.sql("select v, w from swapped").collect()
        assert (row.v, row.w) == (20, 10)
        hudi_session.conf.set(on, "false")
        hudi_session.sql("insert into swapped (id, v, w) values (2, 3, 4)")
        hudi_session.conf.set(on, "true")
        (row,) = hudi_session.sql("select v, w from swapped where id = 1").collect()
        assert (row.v, row.w) == (10, 20)
    finally:
        for key in conf:
            hudi_session.conf.unset(key)
    with pytest.raises(TableError, match="so columns may have been renamed"):
        next(LabReader(path).batches())


BUCKETED = {
    "buckets": (HudiTable("t", ("k", "n"), ("o",), buckets=2, **MOR), {}, "under the bucket index"),
    "rings": (
        HudiTable("t", ("k", "n"), ("o",), buckets=2, **MOR),
        {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
        "under the bucket index with the engine CONSISTENT_HASHING",
    ),
}


@pytest.mark.parametrize("name", BUCKETED)
def test_new_keys_in_logs_are_not_missed_by_another_index(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Apache Hudi stores no index. SIMPLE looks into base files alone, and would add such keys twice."""
    facts, extra, says = BUCKETED[name]
    table = PeerTable(hudi_session, tmp_path, facts)
    for step in (FIRST, SECOND):
        table.by_hudi(step, HudiWrite(extra=extra))
    assert table.problems(("apache-hudi", "serde_lab")) == []
    options = lab_options(replace(facts, index="SIMPLE"), "upsert", "arrow", "avro")
    options |= {"hoodie.index.type": "SIMPLE"}
    again = SECOND.folder(tmp_path / "again")
    with pytest.raises(TableError, match=says):
        write_in_process(table.path, again, options)
    assert table.problems(("apache-hudi", "serde_lab")) == []


def test_keys_that_hudi_adds_to_any_bucket(hudi_session: SparkSession, tmp_path: Path) -> None:
    """It knows nothing of the index of a table of the lab's. Its default adds new keys to small files."""
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), buckets=2))
    LabWriter(table).step(FIRST)
    untold = {"hoodie.index.type": "SIMPLE", "hoodie.parquet.small.file.limit": "104857600"}
    table.by_hudi(SECOND, HudiWrite(extra=untold))
    assert table.problems(("apache-hudi", "hudi-rs")) == []
    with pytest.raises(TableError, match="which belongs to another bucket"):
        LabWriter(table).step(SECOND)


@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
def test_dates_that_spark_wrote_by_its_legacy_calendar(
    mode: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Only Spark converts them; hudi-rs gives other days without a word."""
    table = HudiTable("t", ("id",), ("o",), index="SIMPLE")
    folder, path = tmp_path / "input", str(tmp_path / "table")
    folder.mkdir()
    old = dt.date(1500, 1, 10)
    schema = pa.schema([("id", pa.int64()), ("o", pa.int64()), ("day", pa.date32())])
    rows = pa.table({"id": [0, 1], "o": [1, 1], "day": [old, None]}, schema)
    pq.write_table(rows, folder / "part-0.parquet")
    calendars = {
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": mode,
    }
    with conf_set(hudi_session, calendars):
        frame = hudi_session.read.parquet(str(folder))
        options = write_options(table, HudiWrite("bulk_insert"))
        frame.write.format("hudi").options(**options).mode("append").save(path)
    stored = HudiRs(path).table().sort_by("id")["day"].to_pylist()
    ours = {**lab_options(table, "upsert", "arrow", "avro"), "hoodie.index.type": "SIMPLE"}
    if mode == "LEGACY":
        assert stored == [old + dt.timedelta(9), None]
        with pytest.raises(TableError, match="column 'day' may hold dates or times before 1900"):
            write_in_process(path, folder, ours)
        return
    assert stored == [old, None]
    write_in_process(path, folder, ours)
    assert HudiRs(path).table().sort_by("id")["day"].to_pylist() == [old, None]
