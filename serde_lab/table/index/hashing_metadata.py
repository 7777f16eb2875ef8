"""Reads and writes the rings of consistent hashing, and compares stored keys with rings and buckets.

A partition has `<instant>.hashing_meta` and `<instant>.commit` files in
`.hoodie/.bucket_index/consistent_hashing_metadata/<partition>`. Source:
org.apache.hudi.index.bucket.ConsistentBucketIndexUtils.

A clustering writes its ring before it completes; the ring is in force once it has completed. The instant on
the timeline shows that, or the `.commit` file, which stays when the instant is archived. A partition keeps
its ring when it has no rows any more: a write that began a new ring would use file ids that the clustering
has replaced, and readers ignore those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import TableError
from serde_lab.records.schema import RECORD_KEY
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.files.file_system_view import FileSlice, FileSystemView
from serde_lab.table.index.bucket_index import bucket_ids
from serde_lab.table.index.consistent_hashing import HashingMetadata, HashingRing
from serde_lab.table.index.index_kind import (
    CONFIG_FOLDER,
    CONFIG_SUFFIX,
    CONSISTENT_HASHING,
    INITIAL_INSTANT,
)
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

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


def check_rings(
    rings: Mapping[str, HashingMetadata], view: FileSystemView
) -> dict[str, HashingMetadata]:
    """The rings, marked as unfit where a partition's file groups are not those of its ring: rows would be
    invisible after Apache Hudi dropped the partition, or doubled after it restored the table to before a
    resizing. Other partitions can be written.
    """
    stored: dict[str, set[str]] = {}
    for one in view.latest_file_slices():
        stored.setdefault(one.partition_path, set()).add(one.file_id)
    replaced: dict[str, set[str]] = {}
    for path, file_id in view.replaced_file_groups:
        replaced.setdefault(path, set()).add(file_id)
    checked = dict(rings)
    for path, metadata in rings.items():
        on_ring = set(metadata.ring().file_ids)
        wrong = (replaced.get(path, set()) & on_ring) | (stored.get(path, set()) - on_ring)
        if wrong:
            unfit = (
                f"file group {min(wrong)!r} of partition {path!r} was replaced or is not on its ring of"
                f" buckets ({metadata_path(path, metadata.instant)}): a write would lose or double rows"
            )
            checked[path] = replace(metadata, unfit=unfit)
    return checked


def stray_keys(
    config: TableConfig, ring: HashingRing | None, found: FileSlice, keys: pa.Array
) -> npt.NDArray[np.bool_]:
    """Which of the `keys` in a file group belong to another one by the table's own bucket index, shape (n,).

    `ring`: that of the group's partition under consistent hashing.
    """
    key_fields, hash_fields = config.record_key_fields, config.bucket_fields
    count = config.buckets_of(found.partition_path)
    if count is not None and found.file_id[:8].isdigit():
        return bucket_ids(keys, key_fields, hash_fields, count) != int(found.file_id[:8])
    number = None if ring is None else ring.number_of(found.file_id)
    if ring is None or number is None:
        return np.zeros(len(keys), np.bool_)
    return ring.nodes_of(keys, key_fields, hash_fields) != number


_CHECKED: set[tuple[str, str]] = set()
"""Base files, which never change, in which all keys were right: table and path."""


def check_keys_of_others(table: HoodieTable, slices: Iterable[FileSlice]) -> None:
    """Raise TableError if a base file that another writer wrote to a table of the lab's has a key of another
    bucket, where no write of the lab would find it.

    Apache Hudi knows nothing of the index that the lab stores in a table. If a write of its does not name the
    index, it adds new keys to any small file. Source: UpsertPartitioner#assignInserts.
    """
    if table.config.bucket_count is None:
        return
    url = table.storage.url
    others = [
        (one, base.path)
        for one in slices
        if one.base_is_of_others
        and (base := one.base_file) is not None
        and (url, base.path) not in _CHECKED
    ]
    on_rings = others and table.config.bucket_engine == CONSISTENT_HASHING
    paths = {one.partition_path for one, _ in others}
    rings = load_hashing_metadata(table, paths) if on_rings else {}
    for one, path in others:
        metadata = rings.get(one.partition_path)
        ring = None if metadata is None else metadata.ring()
        for batch in BaseFileReader(table.storage, path).batches([RECORD_KEY]):
            stray = stray_keys(table.config, ring, one, batch.column(0))
            if stray.any():
                raise TableError(
                    f"{table.storage.describe(path)}: holds the record key"
                    f" {batch.column(0)[int(stray.argmax())].as_py()!r}, which belongs to another bucket, so"
                    " that a write would add it once more",
                    hint="Apache Hudi must be told the index at each write to this table"
                    " (hoodie.index.type=BUCKET, hoodie.bucket.index.num.buckets); write the table anew",
                )
        _CHECKED.add((url, path))


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
