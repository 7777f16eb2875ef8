"""Buckets that differ by partition, and buckets that are split and merged, against DuckDB and a dict."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.pipeline.commit.table_services import (
    archive_now,
    clean_now,
    compact,
    resize_buckets_now,
)
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.services.bucket_resizing import ResizeRules
from serde_lab.table.services.replacing import requested_content
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.validation import validate_table
from tests.pipeline.lab_table import FIRST, GONE, MOR, PARTITIONED, SECOND, LabTable, Rows, table_of
from tests.table.made_up_tables import Row, hudi_rs_rows, our_rows

RULES = {"hoodie.bucket.index.partition.expressions": "p 0,7;p 1,2"}
RING = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
SPLIT = ResizeRules(split_above_bytes=1, merge_below_bytes=0)
MERGE = ResizeRules(split_above_bytes=1 << 40, merge_below_bytes=1 << 30)
MANY: Rows = [("m", n, n, float(n)) for n in range(400)]


@pytest.mark.parametrize(("kind", "parallelism"), [({}, "3"), (MOR, "8")])
def test_partitions_may_have_bucket_counts_of_their_own(
    kind: dict[str, str], parallelism: str, tmp_path: Path
) -> None:
    given = {**PARTITIONED, **RULES, **kind, "hoodie.upsert.shuffle.parallelism": parallelism}
    table = LabTable(tmp_path, given)
    table.upsert(MANY)
    slices = table.table.view().latest_file_slices()
    found = [len([s for s in slices if s.partition_path == f"p {n}"]) for n in range(3)]
    assert found == [7, 2, 4]
    table.upsert(FIRST)
    assert table.upsert(FIRST).rows_updated == len(FIRST)
    table.upsert(SECOND)
    table.check()


def test_partitions_of_one_bucket_are_written_by_several_tasks(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**PARTITIONED, "hoodie.bucket.index.num.buckets": "1"})
    table.upsert(MANY, **{"hoodie.upsert.shuffle.parallelism": "8"})
    files = [file.base_file for file in table.table.view().latest_file_slices()]
    tokens = [file.write_token for file in files if file is not None]
    assert len(tokens) == 3
    assert len({token.split("-")[0] for token in tokens}) == 3
    table.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "partition", "kind"),
    [
        ("pickle", {}, {}),
        ("avro", PARTITIONED, MOR),
        ("internal_row", {}, MOR),
        ("arrow", PARTITIONED, {}),
    ],
)
def test_buckets_are_split_and_merged(
    kind: dict[str, str], partition: dict[str, str], strategy: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**RING, **partition, **kind, "serde_lab.strategy": strategy})
    table.upsert(MANY)
    table.upsert(SECOND)
    table.check()
    before = len(table.table.view().latest_file_slices())
    assert resize_buckets_now(table.table, SPLIT)
    split = len(table.table.view().latest_file_slices())
    assert split == 2 * before
    # every key is found where it went
    table.upsert(FIRST)
    table.upsert(SECOND)
    table.check()
    assert len(table.table.view().latest_file_slices()) == split
    assert resize_buckets_now(table.table, MERGE)
    assert len(table.table.view().latest_file_slices()) < split
    table.upsert([("m", n, 1000, 1.0) for n in range(9)])
    table.check()


def test_deletes_go_by_the_ring(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**RING, **PARTITIONED})
    table.upsert(FIRST)
    table.delete(GONE)
    table.check()


@pytest.mark.parametrize("operation", ["bulk_insert", "insert_overwrite"])
def test_what_a_ring_does_not_take_is_refused(operation: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, RING)
    table.upsert(FIRST)
    with pytest.raises(OptionError, match="consistent hashing fixes the file groups"):
        table.write(operation, table_of(SECOND))


Key = tuple[str, str]
"""Partition and id."""


class RingTable:
    """A table with consistent hashing and `rows`, what it must hold: id and ts by key."""

    def __init__(
        self, folder: Path, buckets: int, kind: dict[str, str], partitions: Collection[str]
    ) -> None:
        self.storage = Storage.open(folder)
        self.partitions = sorted(partitions)
        partitioned = {"hoodie.datasource.write.partitionpath.field": "p"}
        self.options = {
            **RING,
            **kind,
            **(partitioned if len(self.partitions) > 1 else {}),
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.bucket.index.num.buckets": str(buckets),
            "serde_lab.seed": "1",
        }
        self.rows: dict[Key, int] = {}
        self.writes = 0

    @property
    def table(self) -> HoodieTable:
        return HoodieTable.open(self.storage)

    def keys(self, partition: str, numbers: Collection[int]) -> list[Key]:
        return [(partition, f"{self.partitions.index(partition)}-{n}") for n in numbers]

    def write(self, operation: str, keys: Collection[Key]) -> None:
        """Upsert or delete these keys."""
        self.writes += 1
        schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string())])
        rows: list[Row] = [{"id": i, "ts": self.writes, "p": p} for p, i in keys]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        if operation == "delete":
            batch = batch.select(["id", "p"])
        stored = self.table.config if HoodieTable.exists(self.storage) else None
        given = {**self.options, "hoodie.datasource.write.operation": operation}
        prepared = PreparedWrite.of(self.storage, batch.schema, parse_options(given, stored))
        prepared.commit(InProcessExchange([[batch]]))
        for key in keys:
            if operation == "delete":
                self.rows.pop(key, None)
            else:
                self.rows[key] = self.writes

    def check(self, after: str = "") -> None:
        """Both readers see the rows, and nothing is wrong with the table."""
        expected = sorted((p, i, ts) for (p, i), ts in self.rows.items())
        for found in (hudi_rs_rows(self.storage), our_rows(self.table)):
            assert sorted((row["p"], row["id"], row["ts"]) for row in found) == expected, after
        assert validate_table(self.storage, deep=True).findings == (), after


def test_a_partition_that_hudi_dropped_is_not_written_by_its_old_ring(tmp_path: Path) -> None:
    """Apache Hudi leaves the ring there, and the file groups on it count as replaced."""
    table = RingTable(tmp_path, 2, {}, ("x", "y"))
    table.write("upsert", [*table.keys("x", range(8)), *table.keys("y", range(8))])
    timeline = table.table.timeline()
    ids = [s.file_id for s in table.table.view().latest_file_slices() if s.partition_path == "x"]
    metadata = CommitMetadata("DELETE_PARTITION", replaced_file_ids={"x": ids})
    requested = timeline.create_requested(
        timeline.new_instant("replacecommit"), requested_content("delete_partition")
    )
    timeline.create_completed(timeline.create_inflight(requested), metadata.to_bytes(2))
    with pytest.raises(TableError, match="of partition 'x' was replaced or is not on its ring"):
        table.write("upsert", table.keys("x", range(4)))
    table.rows = {key: ts for key, ts in table.rows.items() if key[0] == "y"}
    table.write("upsert", table.keys("y", range(4)))
    expected = sorted((i, ts) for (_, i), ts in table.rows.items())
    assert sorted((row["id"], row["ts"]) for row in our_rows(table.table)) == expected


@pytest.mark.parametrize("kind", [{}, MOR], ids=["copy on write", "merge on read"])
@pytest.mark.parametrize("engine", ["SIMPLE", "CONSISTENT_HASHING"])
def test_keys_that_another_writer_put_into_a_wrong_bucket(
    engine: str, kind: dict[str, str], tmp_path: Path
) -> None:
    """Apache Hudi does so if it is not told the index: a write would add each of them once more."""
    table = RingTable(tmp_path, 2, {**kind, "hoodie.index.bucket.engine": engine}, ("x",))
    keys = table.keys("x", range(20))
    table.write("upsert", keys)
    if kind == MOR:
        compact(table.table)
        table.write("upsert", keys)

    def by_another_writer(stage: int) -> Path:
        """The newest base file of the second bucket, now with a name that another writer would give it."""
        _, base = bases()
        file_id, _, instant = base.stem.split("_")
        return base.rename(base.with_name(f"{file_id}_0-{stage}-12_{instant}.parquet"))

    def bases() -> list[Path]:
        return [tmp_path / str(s.base_path) for s in table.table.view().latest_file_slices()]

    by_another_writer(7)
    table.write("upsert", keys)  # each key is of its file's bucket
    by_another_writer(8).write_bytes(bases()[0].read_bytes())
    for write in ("upsert", "delete"):
        with pytest.raises(TableError, match=r"_0-8-12_.*which belongs to another bucket"):
            table.write(write, keys)
    # nor may a service move such keys into a file of the lab's
    if kind == MOR:
        with pytest.raises(TableError, match="which belongs to another bucket"):
            compact(table.table)
    if engine == "CONSISTENT_HASHING":
        with pytest.raises(TableError, match="which belongs to another bucket"):
            resize_buckets_now(table.table, SPLIT)


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [1, 2, 4])
@pytest.mark.parametrize("rules", [SPLIT, MERGE], ids=["split", "merge"])
@pytest.mark.parametrize("partitions", [("",), ("x", "y")], ids=["whole", "partitioned"])
def test_an_emptied_partition_keeps_its_ring(
    partitions: tuple[str, ...], rules: ResizeRules, buckets: int, tmp_path: Path
) -> None:
    """Where no row is left, a resizing writes no file; the replaced file ids are still not used again."""
    for kind in ({}, MOR):
        table = RingTable(tmp_path / str(bool(kind)), buckets, kind, partitions)
        emptied, last = (
            table.keys(partitions[0], range(8)),
            table.keys(partitions[-1], range(8, 11)),
        )
        table.write("upsert", emptied)
        table.write("delete", emptied)
        if len(partitions) > 1:
            table.write("upsert", last)
        # of one bucket there is nothing to merge
        resized = resize_buckets_now(table.table, rules)
        assert (resized is None) == (rules is MERGE and buckets == 1)
        table.check()
        table.write("delete", emptied[:1])
        table.write("upsert", emptied[:2])
        table.check()
        resize_buckets_now(table.table, SPLIT)
        table.write("upsert", [*emptied, *last])
        table.check()


def steps(table: RingTable, drawn: random.Random) -> Iterator[str]:
    """An endless history on `table`: what was done, each time."""
    archives = table.options.get("hoodie.write.table.version") != "6"
    while True:
        partition = drawn.choice(table.partitions)
        keys = table.keys(partition, drawn.sample(range(12), drawn.choice((1, 3, 12))))
        done = drawn.choice(("upsert", "delete", "empty", "empty", "split", "merge", "serve"))
        if done == "upsert" or not table.writes:
            table.write("upsert", keys)
        elif done == "delete":
            table.write("delete", keys)
        elif done == "empty":
            table.write("delete", table.keys(partition, range(12)))
        elif done == "serve":
            if table.table.config.is_mor:
                compact(table.table)
            clean_now(table.table, 1)
            if archives:
                archive_now(table.table, 1, 2)
        else:
            resize_buckets_now(table.table, SPLIT if done == "split" else MERGE)
        yield f"{done} {partition!r}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_no_row_is_lost_to_any_history_of_resizings(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    partitions = drawn.choice([("",), ("x", " x", " "), ("50%", "é.x", "x")])
    kind = {**drawn.choice([{}, MOR]), "hoodie.write.table.version": drawn.choice(["9", "9", "6"])}
    table = RingTable(tmp_path, drawn.choice((1, 2, 4)), kind, partitions)
    for step in itertools.islice(steps(table, drawn), 9):
        table.check(step)
