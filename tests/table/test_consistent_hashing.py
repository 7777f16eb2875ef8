"""Consistent hashing: Hudi's hash and ring, and who belongs where after nodes were split and merged."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.errors import TableError
from serde_lab.table.index.bucket_index import hash_values, xxh32
from serde_lab.table.index.consistent_hashing import (
    HASH_VALUE_MASK,
    HashingMetadata,
    HashingNode,
    HashingRing,
    hash_texts,
    key_hashes,
)


def plain_xxh32(data: bytes, seed: int = 0) -> int:
    """The specification, one byte string at a time."""
    p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

    def rotl(value: int, by: int) -> int:
        value &= 0xFFFFFFFF
        return (value << by | value >> 32 - by) & 0xFFFFFFFF

    at = 0
    if len(data) >= 16:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while at + 16 <= len(data):
            for number in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[number] = rotl(lanes[number] + word * p2, 13) * p1
                at += 4
        h = sum(rotl(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        h = seed + p5
    h += len(data)
    while at + 4 <= len(data):
        h = rotl(h + int.from_bytes(data[at : at + 4], "little") * p3, 17) * p4
        at += 4
    for byte in data[at:]:
        h = rotl(h + byte * p5, 11) * p1
    h &= 0xFFFFFFFF
    h = (h ^ h >> 15) * p2 & 0xFFFFFFFF
    h = (h ^ h >> 13) * p3 & 0xFFFFFFFF
    return h ^ h >> 16


def test_xxhash_gives_the_published_values() -> None:
    texts = ["", "a", "abc", "Nobody inspects the spammish repetition"]
    assert xxh32(pa.array(texts)).tolist() == [0x02CC5D05, 0x550D7456, 0x32D153FF, 0xE2293B2F]
    assert xxh32(pa.array([], pa.string())).tolist() == []


@given(st.lists(st.text(max_size=50)), st.integers(0, 2**32 - 1))
def test_xxhash_of_any_strings(texts: list[str], seed: int) -> None:
    expected = [plain_xxh32(text.encode(), seed) for text in texts]
    assert xxh32(pa.array(texts, pa.string()), seed).tolist() == expected
    sliced = pa.array(["x", *texts], pa.large_string()).slice(1)
    assert xxh32(pa.chunked_array([sliced]), seed).tolist() == expected


VALUES = st.one_of(
    st.sampled_from(["", "__null__", "__empty__", "1", "é"]), st.text(":,ab1", max_size=4)
)


@given(st.lists(st.tuples(VALUES, VALUES)), st.sampled_from([("x",), ("y",), ("x", "y"), ()]))
def test_the_text_that_is_hashed(values: list[tuple[str, str]], fields: tuple[str, ...]) -> None:
    keys = [f"x:{a},y:{b}" for a, b in values] + [a for a, _ in values]
    expected = [
        "".join("null" if v is None else v for v in hash_values(key, fields)) for key in keys
    ]
    assert hash_texts(pa.array(keys, pa.string()), ("x", "y"), fields).to_pylist() == expected


def test_a_new_partition_has_equal_ranges_and_the_same_ids_everywhere() -> None:
    metadata = HashingMetadata.initial("dt=2024", 4)
    assert [node.value for node in metadata.nodes] == [
        536870912,
        1073741824,
        1610612736,
        HASH_VALUE_MASK,
    ]
    assert metadata == HashingMetadata.initial("dt=2024", 4)
    ids = {node.file_id for node in metadata.nodes}
    assert not ids & {node.file_id for node in HashingMetadata.initial("dt=2025", 4).nodes}
    for node in metadata.nodes:
        assert uuid.UUID(node.file_id_prefix).version == 3
        assert node.file_id == f"{node.file_id_prefix}-0"
    (alone,) = HashingMetadata.initial("", 1).nodes
    assert alone.value == HASH_VALUE_MASK


def test_metadata_is_hudis_json() -> None:
    metadata = HashingMetadata.initial("p", 2)
    record = json.loads(metadata.to_bytes())
    assert list(record) == ["version", "partitionPath", "instant", "numBuckets", "seqNo", "nodes"]
    assert record["instant"] == "00000000000000"
    assert list(record["nodes"][0]) == ["value", "fileIdPrefix", "tag"]
    assert record["nodes"][0]["tag"] == "NORMAL"
    assert HashingMetadata.from_bytes(metadata.to_bytes(), "f") == metadata
    for bad in (b"", b"[]", b'{"nodes": []}', b"\xff", metadata.to_bytes()[:-20]):
        with pytest.raises(TableError, match=r"^f: is not hashing metadata"):
            HashingMetadata.from_bytes(bad, "f")


def node(value: int, name: str | None = None) -> HashingNode:
    return HashingNode(value, name or f"n{value}")


def test_a_hash_belongs_to_the_first_node_that_is_not_below_it() -> None:
    ring = HashingRing([node(100), node(10), node(50)])
    hashes = np.array([0, 10, 11, 50, 100, 101, HASH_VALUE_MASK])
    assert ring.nodes_of_hashes(hashes).tolist() == [0, 0, 1, 1, 2, 0, 0]
    assert ring.file_ids == ("n10-0", "n50-0", "n100-0")
    assert [ring.number_of(i) for i in ("n50-0", "n50")] == [1, None]
    assert (ring.former(0), ring.latter(2), ring.latter(0)) == (2, 0, 1)


def test_splitting_cuts_a_range_in_the_middle() -> None:
    ring = HashingRing([node(10), node(50), node(51)])
    assert ring.split(1, ("a", "b")) == (
        HashingNode(30, "a", "REPLACE"),
        HashingNode(50, "b", "REPLACE"),
    )
    assert ring.split(2, ("a", "b")) is None
    # the first node's range goes around: from 51 to 10
    middle = ((51 + 10 + HASH_VALUE_MASK + 1) // 2) & HASH_VALUE_MASK
    assert ring.split(0, ("a", "b")) == (
        HashingNode(middle, "a", "REPLACE"),
        HashingNode(10, "b", "REPLACE"),
    )
    alone = HashingRing([node(HASH_VALUE_MASK)])
    split = alone.split(0, ("a", "b"))
    assert split is not None
    assert [n.value for n in split] == [HASH_VALUE_MASK // 2, HASH_VALUE_MASK]


def test_merging_removes_all_nodes_but_the_last() -> None:
    ring = HashingRing([node(10), node(50), node(90)])
    assert ring.merge([1, 2], "m") == (
        HashingNode(50, None, "DELETE"),
        HashingNode(90, "m", "REPLACE"),
    )
    assert [n.value for n in ring.merge([2, 0], "m")] == [90, 10]
    with pytest.raises(TableError, match="do not follow each other"):
        ring.merge([0, 2], "m")


def test_a_changed_ring_has_the_new_nodes_only() -> None:
    metadata = HashingMetadata("p", (node(10), node(50), node(90)), bucket_count=3)
    ring = metadata.ring()
    split = ring.split(0, ("a", "b"))
    assert split is not None
    changed = metadata.changed([*split, *ring.merge([1, 2], "m")], "20240101000000000")
    assert [(n.value, n.file_id_prefix, n.tag) for n in changed.nodes] == [
        (10, "b", "NORMAL"),
        (90, "m", "NORMAL"),
        (split[0].value, "a", "NORMAL"),
    ]
    assert (changed.instant, changed.sequence, changed.bucket_count) == ("20240101000000000", 1, 3)
    for bad in (HashingNode(11, None, "DELETE"), HashingNode(11, "x")):
        with pytest.raises(TableError, match="which cannot be done"):
            metadata.changed([bad], "20240101000000000")


@given(st.lists(st.text(max_size=8), min_size=1), st.integers(1, 9), st.integers(0, 8))
def test_only_keys_of_a_split_node_move(keys: list[str], buckets: int, which: int) -> None:
    metadata = HashingMetadata.initial("p", buckets)
    number = which % buckets
    split = metadata.ring().split(number, ("a", "b"))
    assert split is not None
    before, after = metadata.ring(), metadata.changed(split, "20240101000000000").ring()
    array = pa.array(keys, pa.string())
    for key, old, new in zip(
        keys,
        before.nodes_of(array, ("id",), ("id",)),
        after.nodes_of(array, ("id",), ("id",)),
        strict=True,
    ):
        if old == number:
            assert after.file_ids[new] in ("a-0", "b-0")
        else:
            assert after.file_ids[new] == before.file_ids[old]
        assert key_hashes(pa.array([key]), ("id",), ("id",))[0] <= HASH_VALUE_MASK
