"""Buckets that differ by partition, and buckets that are split and merged, against DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.errors import OptionError
from serde_lab.pipeline.table_services import resize_buckets_now
from serde_lab.table.bucket_resizing import ResizeRules
from tests.pipeline.lab_table import (
    FIRST,
    GONE,
    MOR,
    PARTITIONED,
    SECOND,
    LabTable,
    Rows,
    table_of,
)

RULES = {"hoodie.bucket.index.partition.expressions": "p 0,7;p 1,2"}
RING = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
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
    assert resize_buckets_now(table.table, ResizeRules(split_above_bytes=1, merge_below_bytes=0))
    split = len(table.table.view().latest_file_slices())
    assert split == 2 * before
    # every key is found where it went
    table.upsert(FIRST)
    table.upsert(SECOND)
    table.check()
    assert len(table.table.view().latest_file_slices()) == split
    merge = ResizeRules(split_above_bytes=1 << 40, merge_below_bytes=1 << 30)
    assert resize_buckets_now(table.table, merge)
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
    with pytest.raises(OptionError, match="those of the ring for good"):
        table.write(operation, table_of(SECOND))
