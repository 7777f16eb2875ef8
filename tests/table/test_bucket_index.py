"""The bucket hash: values that Java gave, and the fast form against the readable one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.errors import TableError
from serde_lab.table.index.bucket_index import (
    bucket_file_id,
    bucket_ids,
    bucket_ids_of_integers,
    bucket_of_file_id,
    hash_values,
    list_hash,
    string_hash,
    task_of_bucket,
)
from serde_lab.table.table import HoodieTable
from tests.faults.small_table import KEPT, make, seen_by_us, upsert

KEYS = st.one_of(
    st.text("ab:,_é😀nul", max_size=14),
    st.tuples(st.text("xy,:é😀", max_size=4), st.text("12_", max_size=3)).map(
        lambda v: f"a:{v[0]},b:{v[1]}"
    ),
    st.sampled_from(["a:__null__,b:__empty__", "a:__empty__,b:1", "a:__null__,b:__null__", ""]),
)


@pytest.mark.parametrize(
    ("key", "fields", "buckets"),
    [
        # (4, 8, 256 buckets), as org.apache.hudi.index.bucket.BucketIdentifier answered
        ("id1", ["id"], (1, 5, 149)),
        ("id2", ["id"], (2, 6, 150)),
        ("l_orderkey:1,l_linenumber:1", ["l_orderkey", "l_linenumber"], (1, 1, 225)),
        ("a:1,b:2", ["a", "b"], (2, 2, 226)),
        ("a:1000000,b:7", ["a", "b"], (3, 7, 167)),
        ("a:abc,b:bcd", ["a", "b"], (2, 2, 226)),
    ],
)
def test_buckets_that_java_gave(key: str, fields: list[str], buckets: tuple[int, ...]) -> None:
    found = [int(bucket_ids(pa.array([key]), fields, fields, n)[0]) for n in (4, 8, 256)]
    assert tuple(found) == buckets


INT64 = st.integers(-(2**63), 2**63 - 1)
SOME_INT = st.one_of(INT64, st.integers(-12, 12), st.integers(90, 110), st.sampled_from([10**18]))


@given(st.lists(st.tuples(SOME_INT, SOME_INT), min_size=1, max_size=20))
def test_integers_hash_as_their_keys_do(rows: list[tuple[int, int]]) -> None:
    first, second = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    both = pa.array([f"a:{a},b:{b}" for a, b in rows])
    found = bucket_ids_of_integers([first, second], 1021)
    assert found.tolist() == bucket_ids(both, ["a", "b"], ["a", "b"], 1021).tolist()
    assert (
        bucket_ids_of_integers([second], 1021).tolist()
        == bucket_ids(both, ["a", "b"], ["b"], 1021).tolist()
    )
    bare = pa.array([str(a) for a in first])
    assert (
        bucket_ids_of_integers([first], 1021).tolist()
        == bucket_ids(bare, ["a"], ["a"], 1021).tolist()
    )


def test_hashes_that_java_gave() -> None:
    assert string_hash("") == 0
    assert string_hash("abc") == 96354
    assert string_hash("polygenelubricants") == 1 << 31
    assert list_hash([]) == 1
    assert list_hash(["a", None]) == (31 * (31 + 97)) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "fields", "values"),
    [
        ("bare", ["id"], ["bare"]),
        ("a:1", ["a"], ["a:1"]),
        ("x,y", ["a"], ["x,y"]),
        ("a:1,b:2", ["a", "b"], ["1", "2"]),
        ("a:1,b:2", ["b"], ["2"]),
        ("a:1,b:2", ["c"], ["a:1,b:2"]),
        ("a:x,y,b:2", ["a", "b"], ["x,y", "2"]),
        ("a:1,b:2014-10-22 13:50:42,c:3", ["a", "b", "c"], ["1", "2014-10-22 13:50:42", "3"]),
        ("a:__null__,b:__empty__", ["a", "b"], [None, ""]),
    ],
)
def test_values_that_are_hashed(key: str, fields: list[str], values: list[str | None]) -> None:
    assert hash_values(key, fields) == values


@given(
    st.lists(KEYS, max_size=40),
    st.sampled_from([(["a", "b"], ["a", "b"]), (["a", "b"], ["b"]), (["a"], ["a"])]),
)
def test_the_fast_hash_is_the_readable_one(
    keys: list[str], fields: tuple[list[str], list[str]]
) -> None:
    expected = [(list_hash(hash_values(key, fields[1])) & 0x7FFFFFFF) % 97 for key in keys]
    assert bucket_ids(pa.array(keys, pa.string()), *fields, 97).tolist() == expected
    chunked = pa.chunked_array([keys[:7], keys[7:]], pa.string())
    assert bucket_ids(chunked, *fields, 97).tolist() == expected
    sliced = pa.array(["x", *keys], pa.large_string()).slice(1)
    assert bucket_ids(sliced, *fields, 97).tolist() == expected


def test_values_of_a_very_long_key_are_found_in_one_pass() -> None:
    colons = ":" * 1_000_000
    assert hash_values(f"a:1,b:{colons}", ["b"]) == [colons]
    assert hash_values(f"a:{colons}", []) == [f"a:{colons}"]


def test_file_ids_name_their_bucket_and_come_from_the_seed() -> None:
    ids = {bucket_file_id(b, p, s) for b in (0, 7) for p in ("", "r=1") for s in (1, 2)}
    assert len(ids) == 8
    assert bucket_file_id(7, "r=1", 2) in ids
    assert {bucket_of_file_id(i) for i in ids} == {0, 7}
    assert all(len(i) == 38 and i.endswith("-0") and "_" not in i for i in ids)
    with pytest.raises(TableError, match="names no bucket"):
        bucket_of_file_id("ff32ab89-5ad0-4968-83b4-89a34c95d32f-0")


def test_buckets_of_a_partition_are_spread_over_tasks() -> None:
    assert [task_of_bucket("", b, 8, 4) for b in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    spread = {task_of_bucket(p, b, 2, 8) for p in ("day=1", "day=2", "day=3") for b in range(2)}
    assert len(spread) > 2


def test_a_file_group_that_only_looks_like_a_bucket(tmp_path: Path) -> None:
    """As one of those that Apache Hudi's clustering gives: a write would not find its rows."""
    storage = make(tmp_path)
    for file in HoodieTable.open(storage).view().files.base_files:
        random = file.path.replace(file.file_id, f"1234567{file.file_id[7:]}")
        storage.put_new(random, storage.get(file.path))
        storage.delete(file.path)
    assert seen_by_us(storage) == KEPT
    with pytest.raises(TableError, match="names none of its partition"):
        upsert(storage, [("p", k, 3, "third") for k in "abcd"])
    assert seen_by_us(storage) == KEPT
