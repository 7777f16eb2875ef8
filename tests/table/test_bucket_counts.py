"""Bucket counts that differ by partition: hashed, checked and judged by each partition's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.index.bucket_index import bucket_ids, bucket_ids_of_integers
from serde_lab.table.index.index_kind import (
    CONFIG_FOLDER,
    HashingConfig,
    PartitionBucketRule,
    load_hashing_config,
    save_hashing_config,
)
from serde_lab.table.index.key_places import check_buckets, check_stored_rules
from serde_lab.table.storage.storage import Storage
from serde_lab.table.validation import validate_table
from tests.table.made_up_tables import SMALL, PlainWriter

CONFIG = TableConfig(
    "t",
    ("id",),
    partition_fields=("value",),
    ordering_fields=("ts",),
    bucket_count=1,
    bucket_expressions="^q,2",
)


def test_each_record_is_hashed_by_its_own_count() -> None:
    keys = pa.array([f"a:{n},b:x{n % 5}" for n in range(50)] + ["plain", "é"])
    counts = np.array([1 + n % 7 for n in range(52)])
    found = bucket_ids(keys, ("a", "b"), ("b",), counts)
    singly = [
        int(bucket_ids(keys.slice(n, 1), ("a", "b"), ("b",), int(count))[0])
        for n, count in enumerate(counts)
    ]
    assert found.tolist() == singly
    numbers = np.arange(-26, 26)
    by_number = bucket_ids_of_integers([numbers], counts)
    text = pa.array([str(n) for n in numbers])
    assert by_number.tolist() == bucket_ids(text, ("a",), ("a",), counts).tolist()


def made(storage: Storage, q_keys: tuple[str, ...]) -> PlainWriter:
    """A table whose file groups are all of bucket 0."""
    writer = PlainWriter(storage, CONFIG, SMALL)
    writer.upsert(
        [
            {"id": "id1", "ts": 1, "value": "p"},
            *({"id": key, "ts": 1, "value": "q"} for key in q_keys),
        ]
    )
    return writer


def key_of_bucket(bucket: int) -> str:
    keys = [f"k{n}" for n in range(9)]
    found = bucket_ids(pa.array(keys), ("id",), ("id",), 2).tolist()
    return keys[found.index(bucket)]


def test_the_doctor_goes_by_each_partitions_count(local: Storage) -> None:
    made(local, (key_of_bucket(0),))
    assert validate_table(local, deep=True).findings == ()


def test_the_doctor_finds_a_key_in_the_wrong_bucket(local: Storage) -> None:
    made(local, (key_of_bucket(0), key_of_bucket(1)))
    (finding,) = validate_table(local, deep=True).findings
    assert finding.name == "bucket-wrong"
    assert finding.where.startswith("q/")
    assert finding.detail.startswith("1 keys")


def test_a_table_keeps_its_rules_where_hudi_looks(local: Storage) -> None:
    writer = made(local, ())
    config = load_hashing_config(local, ())
    assert config is not None
    assert (config.expressions, config.default_buckets) == ("^q,2", 1)
    # a table that is there already is not given rules
    with pytest.raises(TableError, match="there already is a table"):
        writer.table.create(local, replace(CONFIG, bucket_expressions="^q,3"))
    assert len(local.list_folder(CONFIG_FOLDER)[1]) == 1


def test_a_write_must_ask_for_the_stored_rules(local: Storage) -> None:
    writer = made(local, (key_of_bucket(0),))
    check_buckets(writer.table, 1, ("id",), "^q,2")
    for count, expressions in [(1, ""), (2, "^q,2"), (1, "^q,4")]:
        with pytest.raises(TableError, match=r"has 1 buckets, and in some partitions what '\^q,2'"):
            check_buckets(writer.table, count, ("id",), expressions)


def test_rules_that_hudi_changed_are_refused(local: Storage) -> None:
    writer = made(local, (key_of_bucket(0),))
    commit = writer.table.timeline().completed()[0]
    check_stored_rules(writer.table, 1, "^q,2")
    save_hashing_config(local, HashingConfig("^q,4", 1, instant=commit.time))
    with pytest.raises(TableError, match=r"has 1 buckets, and in some partitions what '\^q,4'"):
        check_stored_rules(writer.table, 1, "^q,2")


def test_patterns_match_as_in_java() -> None:
    rule = PartitionBucketRule.parse(r"\d{4},16;\w\[,4", 8)
    counts = [rule.buckets_of(path) for path in ("2024", "٢٠٢٤", "a[", "é[")]
    assert counts == [16, 8, 4, 8]
    with pytest.raises(OptionError, match="is not a valid pattern"):
        PartitionBucketRule.parse("(?u)a,4", 8)
    for pattern in ("[a-z&&[^m]]", "[a[bc]]", r"a\Z"):
        with pytest.raises(OptionError, match="which Java reads differently"):
            PartitionBucketRule.parse(f"{pattern},4", 8)
    with pytest.raises(OptionError, match="a pattern, a comma and a number of buckets"):
        PartitionBucketRule.parse("p,²", 8)


def test_a_table_without_partitions_has_no_rules_for_them(local: Storage) -> None:
    plain = replace(CONFIG, partition_fields=(), key_generator="")
    with pytest.raises(OptionError, match="but the table has no partition fields"):
        PlainWriter(local, plain, SMALL)


def test_rules_of_a_table_without_any_are_refused(local: Storage) -> None:
    plain = replace(CONFIG, bucket_expressions="")
    writer = PlainWriter(local, plain, SMALL)
    writer.upsert([{"id": "a", "ts": 1, "value": "p"}])
    check_buckets(writer.table, 1, ("id",))
    with pytest.raises(TableError, match="has the same number of buckets in each partition"):
        check_buckets(writer.table, 1, ("id",), "^q,2")
