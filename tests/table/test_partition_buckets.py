"""Bucket counts by partition: the first pattern decides, and Hudi's file keeps the rules."""

from __future__ import annotations

import json

import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.table.index.index_kind import (
    HashingConfig,
    PartitionBucketRule,
    load_hashing_config,
    save_hashing_config,
)
from serde_lab.table.storage.storage import Storage


def test_the_first_pattern_that_is_found_decides() -> None:
    rule = PartitionBucketRule.parse(r"\d{4}-(06-(01|17|18)|11-11), 256;^2024 , 16", 8)
    found = [rule.buckets_of(p) for p in ("dt=2024-06-17", "2024-11-11", "2024-11-12", "x2024", "")]
    assert found == [256, 256, 16, 8, 8]


@pytest.mark.parametrize("bad", ["", "a", "a,", "a,0", "a,-1", "a,x", "a,1,2", "a,1;", "(,1"])
def test_a_bad_rule_is_named(bad: str) -> None:
    with pytest.raises(OptionError, match=r"hoodie\.bucket\.index\.partition\.expressions has"):
        PartitionBucketRule.parse(bad, 8)


def test_the_rules_are_kept_where_hudi_keeps_them(storage: Storage) -> None:
    assert load_hashing_config(storage, ()) is None
    first = HashingConfig("^a,4", 8)
    save_hashing_config(storage, first)
    path = ".hoodie/.bucket_index/partition_bucket_index_meta/configs/00000000000000.hashing_config"
    assert json.loads(storage.get(path)) == {
        "expressions": "^a,4",
        "defaultBucketNumber": 8,
        "rule": "regex",
        "version": 1,
        "instant": "00000000000000",
    }
    assert load_hashing_config(storage, ()) == first
    save_hashing_config(storage, first)
    with pytest.raises(TableError, match="states other bucket counts"):
        save_hashing_config(storage, HashingConfig("^a,4", 9))
    later = HashingConfig("^a,32", 8, instant="20240101000000000")
    save_hashing_config(storage, later)
    assert load_hashing_config(storage, ["20240101000000000"]) == first
    assert load_hashing_config(storage, []) == later
    assert load_hashing_config(storage, [], as_of="20231231000000000") == first
    assert later.bucket_rule().buckets_of("ab") == 32


def test_what_is_no_config_is_named(local: Storage) -> None:
    config = HashingConfig("^a,4", 8)
    local.put_new(config.path, b"{}")
    with pytest.raises(TableError, match="hashing_config: is not a hashing config"):
        load_hashing_config(local, ())
    with pytest.raises(OptionError, match=r"rule\.type is hash; known is regex"):
        HashingConfig("a,1", 8, rule="hash").bucket_rule()
