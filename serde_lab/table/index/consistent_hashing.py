"""Consistent hashing: a ring of hash ranges for each partition, each range one file group.

A ring looks up the node, and so the file group, of a record key; nodes can be split and merged. Rings are
stored as Hudi's JSON. Source: org.apache.hudi.common.model.HoodieConsistentHashingMetadata and
ConsistentHashingNode, org.apache.hudi.index.bucket.ConsistentBucketIdentifier.

A node's value is the upper end of its range, inclusive; hashes above the last node belong to the first. The
hash is xxHash32 with seed 0, without its highest bit, of the index fields' values, concatenated.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.records.buffers import StringBytes, rotate_left
from serde_lab.records.keys import EMPTY_KEY, NULL_KEY
from serde_lab.table.index.bucket_index import hash_values
from serde_lab.table.index.index_kind import INITIAL_INSTANT

HASH_VALUE_MASK = 0x7FFFFFFF

NodeTag = Literal["NORMAL", "REPLACE", "DELETE"]


@dataclass(frozen=True, slots=True)
class HashingNode:
    """One hash range. `tag`: in a plan, whether the node replaces another one or is deleted."""

    value: int
    file_id_prefix: str | None
    tag: NodeTag = "NORMAL"

    @property
    def file_id(self) -> str:
        """The file group of the range."""
        return f"{self.file_id_prefix}-0"

    def to_record(self) -> dict[str, Any]:
        return {"value": self.value, "fileIdPrefix": self.file_id_prefix, "tag": self.tag}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read a node of Hudi's JSON. Raises KeyError or ValueError if it is invalid."""
        return cls(int(record["value"]), record["fileIdPrefix"], record.get("tag") or "NORMAL")


@dataclass(frozen=True, slots=True)
class HashingMetadata:
    """The ring of one partition, from `instant` on. `sequence` counts its changes."""

    partition_path: str
    nodes: tuple[HashingNode, ...]
    instant: str = INITIAL_INSTANT
    bucket_count: int = 0
    """The number of nodes that the partition began with."""
    sequence: int = 0
    unfit: str = ""
    """Why no record may be placed by it, as `check_rings` found; no property of a stored ring."""

    @classmethod
    def initial(cls, partition_path: str, bucket_count: int) -> Self:
        """A ring of equal ranges; every writer makes the same ids for the same partition."""
        step = (HASH_VALUE_MASK + bucket_count - 1) // bucket_count
        ends = [min(step * number, HASH_VALUE_MASK) for number in range(1, bucket_count + 1)]
        starts = [0, *ends[:-1]]
        nodes = tuple(
            HashingNode(end, _range_uuid(partition_path, start, end))
            for start, end in zip(starts, ends, strict=True)
        )
        return cls(partition_path, nodes, bucket_count=bucket_count)

    def ring(self) -> HashingRing:
        """The ring, for looking up records. Raises TableError if it is unfit."""
        if self.unfit:
            raise TableError(self.unfit)
        return HashingRing(self.nodes)

    def changed(self, children: Sequence[HashingNode], instant: str) -> Self:
        """The ring after `children` replaced, added and deleted nodes.

        Raises TableError for a child with another tag, or one that deletes a missing node.
        """
        ring = {node.value: node for node in self.nodes}
        for child in children:
            if child.tag == "REPLACE":
                ring[child.value] = replace(child, tag="NORMAL")
            elif child.tag == "DELETE" and child.value in ring:
                del ring[child.value]
            else:
                raise TableError(
                    f"partition {self.partition_path!r}: a hashing node at {child.value} is to be"
                    f" {child.tag}, which cannot be done"
                )
        nodes = tuple(ring[value] for value in sorted(ring))
        return replace(self, nodes=nodes, instant=instant, sequence=self.sequence + 1)

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "version": 0,
                "partitionPath": self.partition_path,
                "instant": self.instant,
                "numBuckets": self.bucket_count,
                "seqNo": self.sequence,
                "nodes": [node.to_record() for node in self.nodes],
            },
            indent=2,
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """Read Hudi's JSON. Raises TableError naming `where` if it is not hashing metadata."""
        try:
            record = json.loads(content)
            nodes = tuple(HashingNode.from_record(node) for node in record["nodes"])
            found = cls(
                record["partitionPath"],
                tuple(sorted(nodes, key=lambda node: node.value)),
                record["instant"],
                int(record["numBuckets"]),
                int(record["seqNo"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise TableError(f"{where}: is not hashing metadata: {exc!r}") from exc
        if not found.nodes:
            raise TableError(f"{where}: has no nodes")
        return found


class HashingRing:
    """The nodes of a partition in order of their values."""

    def __init__(self, nodes: Sequence[HashingNode]) -> None:
        self.nodes = tuple(sorted(nodes, key=lambda node: node.value))
        self.file_ids = tuple(node.file_id for node in self.nodes)
        self._values = np.array([node.value for node in self.nodes], np.int64)
        self._numbers = {file_id: number for number, file_id in enumerate(self.file_ids)}

    def nodes_of_hashes(self, hashes: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """The index of each hash value's node, shape (n,)."""
        found = np.searchsorted(self._values, hashes.astype(np.int64), side="left")
        return (found % len(self._values)).astype(np.int32)

    def nodes_of(
        self,
        record_keys: pa.Array | pa.ChunkedArray,
        key_fields: Sequence[str],
        hash_fields: Sequence[str],
    ) -> npt.NDArray[np.int32]:
        """The index of each record key's node in `nodes` and `file_ids`, shape (n,)."""
        return self.nodes_of_hashes(key_hashes(record_keys, key_fields, hash_fields))

    def number_of(self, file_id: str) -> int | None:
        """The index of the node with this file group; None if there is none."""
        return self._numbers.get(file_id)

    def former(self, number: int) -> int:
        """The index of the previous node on the ring."""
        return (number - 1) % len(self.nodes)

    def latter(self, number: int) -> int:
        """The index of the next node on the ring."""
        return (number + 1) % len(self.nodes)

    def split(self, number: int, prefixes: tuple[str, str]) -> tuple[HashingNode, ...] | None:
        """Two nodes in place of one, split in the middle of its range; None if it cannot be split."""
        before, end = self.nodes[self.former(number)].value, self.nodes[number].value
        around = 0 if before < end else HASH_VALUE_MASK + 1
        middle = (before + end + around >> 1) & HASH_VALUE_MASK
        if middle in (before, end):
            return None
        return (
            HashingNode(middle, prefixes[0], "REPLACE"),
            HashingNode(end, prefixes[1], "REPLACE"),
        )

    def merge(self, numbers: Sequence[int], prefix: str) -> tuple[HashingNode, ...]:
        """One node in place of consecutive ones: the last one's range grows, the others are deleted."""
        for first, second in pairwise(numbers):
            if self.latter(first) != second:
                raise TableError("hashing nodes that do not follow each other cannot be merged")
        gone = tuple(HashingNode(self.nodes[n].value, None, "DELETE") for n in numbers[:-1])
        return (*gone, HashingNode(self.nodes[numbers[-1]].value, prefix, "REPLACE"))


def key_hashes(
    record_keys: pa.Array | pa.ChunkedArray, key_fields: Sequence[str], hash_fields: Sequence[str]
) -> npt.NDArray[np.uint32]:
    """The hash value of each record key on the ring, shape (n,)."""
    hashes = xxh32(hash_texts(record_keys, key_fields, hash_fields))
    return hashes & np.uint32(HASH_VALUE_MASK)


def _range_uuid(partition_path: str, start: int, end: int) -> str:
    """java.util.UUID#nameUUIDFromBytes of both ends of the range and the path."""
    digest = hashlib.md5(
        struct.pack(">qq", start, end) + partition_path.encode(), usedforsecurity=False
    ).digest()
    return str(uuid.UUID(bytes=digest, version=3))


def hash_texts(
    record_keys: pa.Array | pa.ChunkedArray, key_fields: Sequence[str], hash_fields: Sequence[str]
) -> pa.Array:
    """The text of each record key. `hash_fields` are those of `key_fields` to use, all if empty.

    Keys whose values hold `,` or `:` themselves are split one by one.
    """
    keys = record_keys
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    keys = keys.cast(pa.string())
    pairs = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    if not pc.any(pairs).as_py():
        return keys
    names = [name for name in key_fields if name in (hash_fields or key_fields)]
    parts = [
        f"{re.escape(name)}:(?P<v{names.index(name)}>[^:,]*)"
        if name in names
        else f"{re.escape(name)}:[^:,]*"
        for name in key_fields
    ]
    taken = pc.extract_regex(keys, f"^{','.join(parts)}$")
    values = [_plain(pc.struct_field(taken, [f"v{number}"])) for number in range(len(names))]
    texts = pc.binary_join_element_wise(*values, "") if values else keys
    texts = pc.if_else(pairs, texts, keys)
    missed = np.flatnonzero(
        pc.and_(pairs, pc.invert(taken.is_valid())).to_numpy(zero_copy_only=False)
    )
    if not len(missed):
        return texts
    one_by_one = [
        "".join("null" if v is None else v for v in hash_values(keys[row].as_py(), hash_fields))
        for row in missed.tolist()
    ]
    mask = np.zeros(len(keys), bool)
    mask[missed] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(one_by_one, pa.string()))


def _plain(values: pa.Array) -> pa.Array:
    """Replace placeholders by what they stand for."""
    values = pc.if_else(pc.equal(values, NULL_KEY), "null", values)
    return pc.if_else(pc.equal(values, EMPTY_KEY), "", values)


_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(prime) for prime in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)
_STRIPE = 16


def xxh32(strings: pa.Array | pa.ChunkedArray, seed: int = 0) -> npt.NDArray[np.uint32]:
    """The hash of the UTF-8 bytes of each string, shape (n,)."""
    data = StringBytes.of(strings)
    hashes = np.zeros(len(data), np.uint32)
    lengths = data.lengths
    order = np.argsort(lengths, kind="stable")
    edges = [0, *(np.flatnonzero(np.diff(lengths[order])) + 1).tolist(), len(order)]
    for first, last in pairwise(edges):
        places = order[first:last]
        if not len(places):
            continue
        length = int(lengths[places[0]])
        starts = data.offsets[:-1][places]
        matrix = data.data[starts[:, None] + np.arange(length)]
        hashes[places] = _of_equal_length(matrix, seed)
    return hashes


def _of_equal_length(matrix: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint32]:
    """The hashes of strings of equal length, which are the rows of `matrix`."""
    count, length = matrix.shape
    whole = length // 4 * 4
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(matrix[:, :whole]).view(np.dtype("<u4"))
    done = 0
    start = np.uint32(seed)
    with np.errstate(over="ignore"):
        if length >= _STRIPE:
            done = length // _STRIPE * _STRIPE
            stripes = words[:, : done // 4].reshape(count, -1, 4) * _P2
            first = [start + _P1 + _P2, start + _P2, start, start - _P1]
            lanes = np.tile(np.array(first, np.uint32), (count, 1))
            for number in range(done // _STRIPE):
                lanes += stripes[:, number]
                lanes = rotate_left(lanes, 13) * _P1
            hashes = np.zeros(count, np.uint32)
            for lane, by in enumerate((1, 7, 12, 18)):
                hashes += rotate_left(lanes[:, lane], by)
        else:
            hashes = np.full(count, start + _P5, np.uint32)
        hashes += np.uint32(length)
        for word in range(done // 4, whole // 4):
            hashes = rotate_left(hashes + words[:, word] * _P3, 17) * _P4
        for byte in range(whole, length):
            hashes = rotate_left(hashes + matrix[:, byte].astype(np.uint32) * _P5, 11) * _P1
        hashes ^= hashes >> np.uint32(15)
        hashes *= _P2
        hashes ^= hashes >> np.uint32(13)
        hashes *= _P3
        hashes ^= hashes >> np.uint32(16)
    return hashes
