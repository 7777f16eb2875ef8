"""The index of a table: stored under names of our own, refused where its facts do not fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.index.index_kind import BUCKETS, INDEX_TYPE, INDEX_TYPES
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

PLAIN = TableConfig("t", ("id",))
BUCKETED = TableConfig("t", ("id",), bucket_count=8)


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize(
    "config",
    [
        *(replace(PLAIN, index_type=kind) for kind in INDEX_TYPES if kind != "BUCKET"),
        replace(PLAIN, index_type="FLINK_STATE", index_global=False),
        replace(BUCKETED, bucket_engine="CONSISTENT_HASHING"),
        TableConfig(
            "t",
            ("id",),
            partition_fields=("day",),
            bucket_count=8,
            bucket_expressions="^2024,4;^2025,16",
        ),
    ],
    ids=lambda config: f"{config.index_type}-{config.bucket_engine}-{config.bucket_expressions}",
)
def test_a_table_keeps_its_index(local: Storage, version: int, config: TableConfig) -> None:
    made = replace(config, version=version)
    HoodieTable.create(local, made)
    assert replace(HoodieTable.open(local).config, extra={}) == made


def test_a_bucket_count_means_the_bucket_index() -> None:
    assert BUCKETED.index_type == "BUCKET"
    assert PLAIN.index_type == ""
    assert BUCKETED.buckets_of("p") == 8
    assert PLAIN.buckets_of("p") is None
    assert replace(BUCKETED, bucket_engine="CONSISTENT_HASHING").buckets_of("p") is None
    own = replace(BUCKETED, bucket_expressions="^2024,4;5$,16")
    assert [own.buckets_of(p) for p in ("2024-05", "1995", "x2024", "")] == [4, 16, 8, 8]


def test_some_indexes_are_global() -> None:
    found = {kind: replace(PLAIN, index_type=kind).index_is_global for kind in INDEX_TYPES}
    assert {kind for kind, is_global in found.items() if is_global} == {
        "GLOBAL_BLOOM",
        "GLOBAL_SIMPLE",
        "INMEMORY",
        "FLINK_STATE",
    }
    assert not replace(PLAIN, index_type="INMEMORY", index_global=False).index_is_global


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (replace(PLAIN, index_type="HBASE"), "hoodie.index.type is HBASE; known are BUCKET, BLOOM"),
        (replace(PLAIN, index_type="BUCKET"), "BUCKET need each other.*BUCKET with no buckets"),
        (replace(BUCKETED, index_type="BLOOM"), "need each other.*BLOOM with 8 buckets"),
        (replace(BUCKETED, index_global=False), "only for INMEMORY and FLINK_STATE"),
        (replace(BUCKETED, bucket_engine="OTHER"), "engine is OTHER; known are SIMPLE"),
        (
            replace(PLAIN, index_type="BLOOM", bucket_engine="CONSISTENT_HASHING"),
            "only BUCKET has engines",
        ),
        (
            replace(BUCKETED, bucket_engine="CONSISTENT_HASHING", bucket_expressions="a,2"),
            "needs the bucket index with the SIMPLE engine",
        ),
        (replace(BUCKETED, bucket_expressions="a"), "each rule is a pattern, a comma"),
        (TableConfig("t", (), index_type="BLOOM"), "but the table has no record key"),
    ],
)
def test_what_does_not_fit_is_refused(local: Storage, config: TableConfig, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        HoodieTable.create(local, config)
    assert not HoodieTable.exists(local)


def test_a_damaged_property_is_named(local: Storage) -> None:
    HoodieTable.create(local, BUCKETED)
    path = ".hoodie/hoodie.properties"
    text = local.get(path).decode()
    local.replace(path, text.replace(f"{BUCKETS}=8", f"{BUCKETS}=x").encode())
    with pytest.raises(TableError, match=rf"properties: {BUCKETS} is 'x'"):
        HoodieTable.open(local)
    local.replace(path, text.replace(f"{INDEX_TYPE}=BUCKET", f"{INDEX_TYPE}=BLOOM").encode())
    with pytest.raises(TableError, match=r"properties: .*BLOOM with 8 buckets"):
        HoodieTable.open(local)


def test_stored_buckets_without_an_index_type_mean_the_bucket_index(local: Storage) -> None:
    HoodieTable.create(local, BUCKETED)
    path = ".hoodie/hoodie.properties"
    text = local.get(path).decode()
    assert f"{INDEX_TYPE}=BUCKET\n" in text
    local.replace(path, text.replace(f"{INDEX_TYPE}=BUCKET\n", "").encode())
    assert HoodieTable.open(local).config.index_type == "BUCKET"
