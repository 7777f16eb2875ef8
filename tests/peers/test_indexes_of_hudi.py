"""What Apache Hudi and we store of consistent hashing, of bucket counts by partition and of replaced
file groups: each reads the other's, and writes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.peers.apache_hudi import MERGER_CLASSES
from serde_lab.pipeline.commit.table_services import resize_buckets_now
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.index.bucket_index import bucket_file_id, bucket_ids
from serde_lab.table.index.consistent_hashing import HashingMetadata, load_hashing_metadata
from serde_lab.table.services.bucket_resizing import (
    ResizeRules,
    carry_out,
    complete_resizing,
    schedule_resizing,
)
from serde_lab.table.storage.data_files import Writing
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.readers import HudiRs
from tests.pipeline.lab_table import MOR
from tests.pipeline.test_bucket_kinds import MERGE, SPLIT, RingTable
from tests.table.made_up_tables import SMALL, PlainWriter, Row, batch_of, hudi_rs_rows
from tests.table.replacing_writer import delete_partition, insert_overwrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

KEYS = ("id", "line")
SCHEMA = pa.schema(
    [("id", pa.string()), ("line", pa.int64()), ("ts", pa.int64()), ("p", pa.string())]
)
CONSISTENT = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.bucket.index.num.buckets": "3",
    "hoodie.bucket.index.hash.field": "line",
}


class ByHudi:
    """Upserts by Apache Hudi, and its snapshot."""

    def __init__(self, spark: SparkSession, path: Path, options: dict[str, str]) -> None:
        self.spark, self.path = spark, str(path)
        self.options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id,line",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.metadata.enable": "false",
            "hoodie.upsert.shuffle.parallelism": "2",
            "hoodie.bulkinsert.shuffle.parallelism": "2",
        } | options

    def upsert(self, rows: Iterable[Row]) -> None:
        schema = "id string, line long, ts long, p string"
        values = [(r["id"], r["line"], r["ts"], r["p"]) for r in rows]
        frame = self.spark.createDataFrame(values, schema)
        frame.write.format("hudi").options(**self.options).mode("append").save(self.path)

    def rows(self) -> list[dict[str, Any]]:
        frame = self.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        return [row.asDict() for row in frame.load(self.path).collect()]


def made(numbers: Iterable[int], ts: int) -> list[Row]:
    return [{"id": f"k{n}", "line": n * 7, "ts": ts, "p": f"p{n % 2}"} for n in numbers]


def data(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["line"], r["ts"], r["p"]) for r in rows)


def known(storage: Storage) -> HoodieTable:
    """The table of Hudi's, with the index that Hudi does not store."""
    config = HoodieTable.open(storage).config
    own = replace(
        config,
        index_type="BUCKET",
        bucket_count=3,
        bucket_engine="CONSISTENT_HASHING",
        bucket_fields=("line",),
    )
    return HoodieTable(storage, own)


def test_rings_of_hudi_are_ours_and_ours_are_hudis(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    hudi = ByHudi(hudi_session, path, CONSISTENT)
    first = made(range(60), 1)
    hudi.upsert(first)
    storage = Storage.open(path)
    table = known(storage)
    rings = load_hashing_metadata(table, ["p0", "p1"])
    assert rings == {p: HashingMetadata.initial(p, 3) for p in ("p0", "p1")}
    stored = hudi.rows()
    for partition, metadata in rings.items():
        ring = metadata.ring()
        mine = [row for row in stored if row["_hoodie_partition_path"] == partition]
        keys = pa.array([row["_hoodie_record_key"] for row in mine])
        found = [ring.file_ids[n] for n in ring.nodes_of(keys, KEYS, ("line",))]
        assert found == [row["_hoodie_file_name"].split("_")[0] for row in mine]
        assert len(set(found)) == 3
    # we split every bucket, and Hudi goes by the new rings
    plan = schedule_resizing(table, ResizeRules(split_above_bytes=1))
    assert plan is not None
    stats = [s for n, r in enumerate(plan.resizes) for s in carry_out(plan, r, f"{n}-9-0")]
    schema = table.commit_metadata(table.timeline().completed()[-1]).extra_metadata["schema"]
    complete_resizing(table, plan, stats, schema)
    assert data(hudi.rows()) == data(hudi_rs_rows(storage)) == data(first)
    second = made(range(0, 80, 3), 2)
    hudi.upsert(second)
    expected = {r["id"]: r for r in first} | {r["id"]: r for r in second}
    assert data(hudi.rows()) == data(hudi_rs_rows(storage)) == data(expected.values())
    assert all(len(m.nodes) == 6 for m in load_hashing_metadata(table, ["p0", "p1"]).values())


def test_hudi_reads_and_writes_what_was_resized_after_it_was_emptied(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = RingTable(tmp_path / "table", 2, MOR, ("x", " x"))
    options = {
        **table.options,
        "hoodie.index.type": "BUCKET",
        "hoodie.metadata.enable": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
    }
    del options["serde_lab.seed"]
    path = str(tmp_path / "table")

    def check() -> None:
        table.check()
        found = hudi_session.read.format("hudi").load(path).collect()
        expected = sorted((p, i, ts) for (p, i), ts in table.rows.items())
        assert sorted((row["p"], row["id"], row["ts"]) for row in found) == expected

    def upsert_by_hudi(keys: list[tuple[str, str]], ts: int) -> None:
        rows = [(i, ts, p) for p, i in keys]
        frame = hudi_session.createDataFrame(rows, "id string, ts long, p string")
        frame.write.format("hudi").options(**options).mode("append").save(path)
        table.rows.update(dict.fromkeys(keys, ts))

    keys = table.keys("x", range(8))
    table.write("upsert", [*keys, *table.keys(" x", range(3))])
    table.write("delete", keys)
    for rules in (SPLIT, MERGE):
        assert resize_buckets_now(table.table, rules) is not None
        table.write("upsert", keys[:2])
        check()
        upsert_by_hudi(keys[1:5], table.writes + 10)
        table.writes += 10
        check()
        table.write("delete", keys)
        check()


def test_hudi_goes_by_our_bucket_counts(hudi_session: SparkSession, tmp_path: Path) -> None:
    """Its writer takes the rules that the table stores; of its own it stores none through Spark."""
    config = TableConfig(
        "t",
        KEYS,
        partition_fields=("p",),
        ordering_fields=("ts",),
        bucket_count=2,
        bucket_fields=("line",),
        bucket_expressions="1$,5",
    )
    path = tmp_path / "table"
    storage = Storage.open(path)
    first = made(range(100), 1)
    by_bucket(PlainWriter(storage, config, SCHEMA), first)
    options = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.bucket.index.hash.field": "line",
        "hoodie.bucket.index.partition.expressions": "1$,5",
    }
    hudi = ByHudi(hudi_session, path, options)
    assert data(hudi.rows()) == data(first)
    second = made(range(0, 140, 3), 2)
    hudi.upsert(second)
    expected = {r["id"]: r for r in first} | {r["id"]: r for r in second}
    stored = hudi.rows()
    assert data(stored) == data(hudi_rs_rows(storage)) == data(expected.values())
    keys = pa.array([row["_hoodie_record_key"] for row in stored])
    counts = np.array([config.buckets_of(row["_hoodie_partition_path"]) for row in stored])
    found = bucket_ids(keys, KEYS, ("line",), counts).tolist()
    assert found == [int(row["_hoodie_file_name"][:8]) for row in stored]
    assert {b for b, n in zip(found, counts.tolist(), strict=True) if n == 5} == set(range(5))


def by_bucket(writer: PlainWriter, rows: list[Row]) -> None:
    """A first commit, each row in the file group of its bucket."""
    config = writer.config
    instant = writer.begin("commit")
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        key = pa.array([f"id:{row['id']},line:{row['line']}"])
        count = config.buckets_of(row["p"]) or 0
        bucket = int(bucket_ids(key, KEYS, config.bucket_fields, count)[0])
        groups.setdefault((row["p"], bucket), []).append(row)
    stats = []
    for (partition, bucket), mine in groups.items():
        base = BaseFileWriter(
            writer.storage,
            Writing(instant.time, "0-1-0"),
            data_schema=writer.schema,
            partition_path=partition,
            file_id=bucket_file_id(bucket, partition, 1),
        )
        keys = pa.array([f"id:{row['id']},line:{row['line']}" for row in mine])
        base.append(keys, batch_of(mine, writer.schema))
        stats.append(base.close())
    writer.complete(instant, stats)


@pytest.mark.parametrize("version", [9, 6])
def test_hudi_sees_what_we_replaced(
    hudi_session: SparkSession, tmp_path: Path, version: int
) -> None:
    """And writes on, with the index that looks at every file."""
    config = TableConfig(
        "t", ("id",), version=version, partition_fields=("value",), ordering_fields=("ts",)
    )
    storage = Storage.open(tmp_path / "table")
    writer = PlainWriter(storage, config, SMALL)
    writer.upsert([{"id": k, "ts": 1, "value": p} for k, p in ("ap", "bp", "cq", "dr")])
    insert_overwrite(writer, {"id": "a", "ts": 0, "value": "p"})
    delete_partition(writer, "r")
    spark = hudi_session

    def rows() -> list[tuple[str, int, str]]:
        frame = spark.read.format("hudi").load(str(tmp_path / "table"))
        return sorted((r["id"], r["ts"], r["value"]) for r in frame.collect())

    def of_hudi_rs() -> list[tuple[str, int, str]]:
        return sorted((r["id"], r["ts"], r["value"]) for r in hudi_rs_rows(storage))

    assert rows() == of_hudi_rs() == [("a", 0, "p"), ("c", 1, "q")]
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "value",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.metadata.enable": "false",
        "hoodie.index.type": "BLOOM",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.upsert.shuffle.parallelism": "2",
    }
    more = [("a", 5, "p"), ("b", 5, "p"), ("d", 5, "r")]
    frame = spark.createDataFrame(more, "id string, ts long, value string")
    frame.write.format("hudi").options(**options).mode("append").save(str(tmp_path / "table"))
    assert rows() == of_hudi_rs() == sorted([*more, ("c", 1, "q")])


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_key_ranges_that_hudi_states_by_another_order(
    operation: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Where it writes Spark's rows, footers order keys by bytes, and its own index by units of UTF-16. It
    finds no key beyond U+FFFF then, and adds it once more (readers.toml); the lab finds them."""
    keys = ["\uff41", "\U0001f600"]
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.index.type": "BLOOM",
    }
    theirs = options | {
        "hoodie.write.record.merge.custom.implementation.classes": MERGER_CLASSES["SPARK"],
        "hoodie.metadata.enable": "false",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.bulkinsert.shuffle.parallelism": "1",
    }
    first = theirs | {"hoodie.datasource.write.operation": operation}
    for writer, found in (("lab", [2, 2]), ("hudi", [1, 1, 2, 2])):
        path = tmp_path / writer
        frame = hudi_session.createDataFrame([(key, 1) for key in keys], "id string, ts long")
        frame.coalesce(1).write.format("hudi").options(**first).mode("append").save(str(path))
        rows = pa.table({"id": keys, "ts": [2, 2]})
        if writer == "lab":
            stored = HoodieTable.open(Storage.open(path)).config
            prepared = PreparedWrite.of(
                Storage.open(path), rows.schema, parse_options(options, stored)
            )
            prepared.commit(InProcessExchange([rows.to_batches()]))
        else:
            frame = hudi_session.createDataFrame([(key, 2) for key in keys], "id string, ts long")
            frame.write.format("hudi").options(**theirs).mode("append").save(str(path))
        assert sorted(HudiRs(str(path)).table()["ts"].to_pylist()) == found
