"""Consistent hashing: a ring of hash ranges for each partition, each range one file group.

A ring looks up the node, and so the file group, of a record key; nodes can be split and merged. A node's
value is the upper end of its range, inclusive; hashes above the last node belong to the first. The hash is
xxHash32 with seed 0, without its highest bit, of the index fields' values, concatenated. Source:
org.apache.hudi.common.model.HoodieConsistentHashingMetadata and ConsistentHashingNode,
org.apache.hudi.index.bucket.ConsistentBucketIdentifier.

Rings are stored as Hudi's JSON: a partition has `<instant>.hashing_meta` and `<instant>.commit` files in
`.hoodie/.bucket_index/consistent_hashing_metadata/<partition>`. A clustering writes its ring before it
completes; the ring is in force once it has completed. The instant on the timeline shows that, or the
`.commit` file, which stays when the instant is archived. A partition keeps its ring when it has no rows any
more: a write that began a new ring would use file ids that the clustering has replaced, and readers ignore
those. Source: org.apache.hudi.index.bucket.ConsistentBucketIndexUtils.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.records.keys import EMPTY_KEY, NULL_KEY
from serde_lab.table.index.bucket_index import hash_values, xxh32
from serde_lab.table.index.index_kind import CONFIG_FOLDER, CONFIG_SUFFIX, INITIAL_INSTANT
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

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


def _range_uuid(partition_path: str, start: int, end: int) -> str:
    """java.util.UUID#nameUUIDFromBytes of both ends of the range and the path."""
    digest = hashlib.md5(
        struct.pack(">qq", start, end) + partition_path.encode(), usedforsecurity=False
    ).digest()
    return str(uuid.UUID(bytes=digest, version=3))


def key_hashes(
    record_keys: pa.Array | pa.ChunkedArray, key_fields: Sequence[str], hash_fields: Sequence[str]
) -> npt.NDArray[np.uint32]:
    """The hash value of each record key on the ring, shape (n,)."""
    hashes = xxh32(hash_texts(record_keys, key_fields, hash_fields))
    return hashes & np.uint32(HASH_VALUE_MASK)


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


METADATA_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
SUFFIX, COMMIT_SUFFIX = ".hashing_meta", ".commit"


def load_hashing_metadata(
    table: HoodieTable, partitions: Iterable[str] | None = None
) -> dict[str, HashingMetadata]:
    """The ring in force of each of `partitions` that has one; by default of every partition, with or
    without rows. Raises TableError for a file that does not hold a ring."""
    instants = table.timeline().instants()
    done = {i.time for i in instants if i.is_completed and i.is_write}
    begun = {i.time for i in instants if not i.is_completed}
    if partitions is None:
        stored = _stored_names(table.storage)
    else:
        folders = {path: table.storage.list_folder(_folder(path))[1] for path in partitions}
        stored = {path: {file.name for file in files} for path, files in folders.items()}
    found = {}
    for partition, names in stored.items():
        metadata = _in_force(table, partition, names, done, begun)
        if metadata is not None:
            found[partition] = metadata
    return found


def create_initial(storage: Storage, partition_path: str, bucket_count: int) -> HashingMetadata:
    """Write the first ring of a partition if it has none; all writers would write the same ring. Raises
    TableError if there is one with another number of buckets."""
    metadata = HashingMetadata.initial(partition_path, bucket_count)
    path = metadata_path(partition_path, metadata.instant)
    if storage.put_new(path, metadata.to_bytes()):
        return metadata
    stored = HashingMetadata.from_bytes(storage.get(path), storage.describe(path))
    if len(stored.nodes) != bucket_count:
        raise TableError(
            f"{storage.describe(path)}: the partition began with {len(stored.nodes)} buckets, and this"
            f" write begins it with {bucket_count}"
        )
    return stored


def save_hashing_metadata(storage: Storage, metadata: HashingMetadata) -> None:
    """Write a ring of a pending clustering; a second attempt writes the same."""
    storage.replace(metadata_path(metadata.partition_path, metadata.instant), metadata.to_bytes())


def confirm_hashing_metadata(storage: Storage, instants: Collection[str]) -> None:
    """Record that the clusterings of these instants, of those that made rings, have completed."""
    for partition, names in _stored_names(storage).items():
        for instant in instants:
            if f"{instant}{SUFFIX}" in names and f"{instant}{COMMIT_SUFFIX}" not in names:
                storage.put_new(f"{_folder(partition)}/{instant}{COMMIT_SUFFIX}")


def delete_index_files(storage: Storage, instant: str) -> None:
    """Remove the rings and bucket rules of an instant that is rolled back."""
    for file in storage.list_files(METADATA_FOLDER):
        if file.name == f"{instant}{SUFFIX}":
            storage.delete(file.path)
    for file in storage.list_folder(CONFIG_FOLDER)[1]:
        if file.name == f"{instant}{CONFIG_SUFFIX}":
            storage.delete(file.path)


def metadata_path(partition_path: str, instant: str) -> str:
    """The path of a ring's file, relative to the table."""
    return f"{_folder(partition_path)}/{instant}{SUFFIX}"


def _folder(partition_path: str) -> str:
    return f"{METADATA_FOLDER}/{partition_path}" if partition_path else METADATA_FOLDER


def _stored_names(storage: Storage) -> dict[str, set[str]]:
    """Names of the ring files of each partition that has any."""
    found: dict[str, set[str]] = {}
    for file in storage.list_files(METADATA_FOLDER):
        partition = file.folder.removeprefix(METADATA_FOLDER).removeprefix("/")
        found.setdefault(partition, set()).add(file.name)
    return found


def _in_force(
    table: HoodieTable, partition: str, names: Collection[str], done: set[str], begun: set[str]
) -> HashingMetadata | None:
    storage = table.storage
    rings = sorted(n.removesuffix(SUFFIX) for n in names if _is(n, SUFFIX))
    confirmed = {n.removesuffix(COMMIT_SUFFIX) for n in names if _is(n, COMMIT_SUFFIX)}
    for number in reversed(range(len(rings))):
        if rings[number] in begun:
            continue
        metadata = _read(storage, partition, rings[number])
        if rings[number] == INITIAL_INSTANT or rings[number] in confirmed | done:
            return metadata
        # its instant was archived before its completion was recorded: data in its own file groups proves it
        former = _read(storage, partition, rings[number - 1]) if number else None
        if _has_data(table, metadata, former):
            return metadata
    return None


def _read(storage: Storage, partition: str, instant: str) -> HashingMetadata:
    path = metadata_path(partition, instant)
    return HashingMetadata.from_bytes(storage.get(path), storage.describe(path))


def _has_data(
    table: HoodieTable, metadata: HashingMetadata, former: HashingMetadata | None
) -> bool:
    own = {node.file_id for node in metadata.nodes}
    own -= {node.file_id for node in former.nodes} if former is not None else set()
    slices = table.view().latest_file_slices(metadata.partition_path)
    return any(slice_.file_id in own for slice_ in slices)


def _is(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and not name.startswith(".")
