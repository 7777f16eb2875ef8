"""Compares where keys and file groups are with where an index looks for them.

Hudi stores neither the index nor its number of buckets, and a key that is looked up in the wrong place is
silently duplicated. So what a write asks for is compared with the table's file groups, with some of their
keys, and with the rules and rings that Hudi stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import TableError
from serde_lab.records.schema import RECORD_KEY
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.files.file_system_view import FileSlice, FileSystemView
from serde_lab.table.index.bucket_index import bucket_ids, bucket_of_file_id
from serde_lab.table.index.consistent_hashing import (
    METADATA_FOLDER,
    HashingMetadata,
    HashingRing,
    load_hashing_metadata,
    metadata_path,
)
from serde_lab.table.index.index_kind import CONSISTENT_HASHING, IndexKind, load_hashing_config
from serde_lab.table.table import HoodieTable

_OF_BUCKETS = re.compile(r"000\d{5}-")
"""The beginning of the file ids of buckets below 100,000; one random id in 40,000 begins like this, too."""
_FILES = 4
"""So many of the largest base files show whether keys are in the right buckets."""


def check_buckets(
    table: HoodieTable, bucket_count: int, hash_fields: Sequence[str], expressions: str = ""
) -> None:
    """Check the latest file groups, and keys of some of them, against `bucket_count` or, in their partitions,
    `expressions`; check both against the rules that Hudi stores, if any.

    Raises TableError naming the file group that does not fit.
    """
    config = table.config
    check_stored_rules(table, bucket_count, expressions)
    index = IndexKind(bucket_count=bucket_count, bucket_expressions=expressions)
    seen: set[tuple[str, int]] = set()
    slices = table.view().latest_file_slices()
    for found in slices:
        try:
            bucket = bucket_of_file_id(found.file_id)
        except TableError as exc:
            raise TableError(
                f"table {config.name} was written under another index than the bucket index:"
                f" {exc.message}",
                hint="hoodie.index.type must be what the table was written with",
            ) from exc
        count = index.buckets_of(found.partition_path) or bucket_count
        if bucket >= count or (found.partition_path, bucket) in seen:
            raise TableError(
                f"table {config.name} has a file group {found.file_id!r} in {found.partition_path!r},"
                f" which is not one of {count} buckets",
                hint="hoodie.bucket.index.num.buckets must be what the table was written with",
            )
        seen.add((found.partition_path, bucket))
    # the largest files: a wrong number of buckets moves half of their keys or more, so many keys soon show it
    bases = sorted((s for s in slices if s.base_file is not None), key=lambda s: s.base_bytes)
    for found in bases[-_FILES:]:
        count = index.buckets_of(found.partition_path) or bucket_count
        _check_keys(table, found, count, hash_fields)


def check_stored_rules(table: HoodieTable, bucket_count: int, expressions: str) -> None:
    """Raise TableError if Hudi stored other rules, which it follows, whatever a write asks for."""

    def begun() -> Iterator[str]:
        # a generator, so that the timeline is listed only if there are rules
        yield from (instant.time for instant in table.timeline().pending())

    stored = load_hashing_config(table.storage, begun())
    if stored is None:
        if expressions:
            raise TableError(
                f"table {table.config.name} has the same number of buckets in each partition, and"
                f" hoodie.bucket.index.partition.expressions is {expressions!r}"
            )
    elif (stored.default_buckets, stored.expressions) != (bucket_count, expressions):
        raise TableError(
            f"table {table.config.name} has {stored.default_buckets} buckets, and in some partitions"
            f" what {stored.expressions!r} says",
            hint="hoodie.bucket.index.num.buckets and .partition.expressions must be the same",
        )


def _check_keys(
    table: HoodieTable, found: FileSlice, bucket_count: int, hash_fields: Sequence[str]
) -> None:
    """Each of the first keys of a base file must hash to the file's own bucket."""
    assert found.base_file is not None
    batch = next(BaseFileReader(table.storage, found.base_file.path).batches([RECORD_KEY]), None)
    if batch is None:
        return
    keys = batch.column(0)
    fields = table.config.record_key_fields
    place = table.storage.describe(found.base_file.path)
    wrong = bucket_ids(keys, fields, hash_fields, bucket_count) != bucket_of_file_id(found.file_id)
    if wrong.any():
        raise TableError(
            f"{place}: holds the record key {keys[int(wrong.argmax())].as_py()!r}, which of"
            f" {bucket_count} buckets belongs to another",
            hint="hoodie.bucket.index.num.buckets and .hash.field must be what the table was written with",
        )


def check_no_other_index(table: HoodieTable, index: str) -> None:
    """Raise TableError if Apache Hudi wrote the table under an index whose keys `index` would not find.

    It stores no index, but the bucket index shows in the names of file groups, consistent hashing in its
    rings. Both put new keys into logs, where other indexes do not look, and go by the hash alone.
    """
    name, hint = table.config.name, "hoodie.index.type must be what the table was written with"
    slices = table.view().latest_file_slices()
    if slices and all(_OF_BUCKETS.match(slice_.file_id) for slice_ in slices):
        raise TableError(
            f"table {name} was written under the bucket index, as file group {slices[0].file_id!r} shows, and"
            f" not under {index}",
            hint=hint,
        )
    if table.storage.list_files(METADATA_FOLDER):
        raise TableError(
            f"table {name} was written under the bucket index with the engine CONSISTENT_HASHING, as its"
            f" rings show, and not under {index}",
            hint=hint,
        )


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
