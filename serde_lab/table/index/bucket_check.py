"""Checks whether a table that does not state its buckets has those that a write asks for.

Hudi stores neither the index nor the number of buckets nor the form of keys, and a key that is looked up in
the wrong bucket, or in another form, is silently duplicated. So a table with another index, number of buckets
or form of keys is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.files.meta_columns import RECORD_KEY
from serde_lab.table.index.bucket_index import bucket_ids, bucket_of_file_id
from serde_lab.table.index.index_kind import BUCKET, IndexKind
from serde_lab.table.index.partition_buckets import load_hashing_config
from serde_lab.table.table import HoodieTable

_FILES = 4


def check_buckets(
    table: HoodieTable, bucket_count: int, hash_fields: Sequence[str], expressions: str = ""
) -> None:
    """Check the latest file groups, and keys of some of them, against `bucket_count` or, in their partitions,
    `expressions`; check both against the rules that Hudi stores, if any.

    Raises TableError naming the file group that does not fit.
    """
    config = table.config
    _check_stored_rules(table, bucket_count, expressions)
    index = IndexKind(BUCKET, bucket_count=bucket_count, bucket_expressions=expressions)
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
    bases = sorted((s for s in slices if s.base_file is not None), key=_base_bytes)
    for found in bases[-_FILES:]:
        count = index.buckets_of(found.partition_path) or bucket_count
        _check_keys(table, found, count, hash_fields)


def _check_stored_rules(table: HoodieTable, bucket_count: int, expressions: str) -> None:
    """Hudi follows the rules that it stored, whatever a write asks for."""
    begun = [instant.time for instant in table.timeline().pending()]
    stored = load_hashing_config(table.storage, begun)
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


def _base_bytes(found: FileSlice) -> int:
    return 0 if found.base_file is None else found.base_file.size_bytes


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
    several = len(table.config.partition_fields) > 1 and table.config.key_generator != "CUSTOM"
    bare = keys.filter(pc.invert(pc.starts_with(keys, f"{fields[0]}:")))
    if len(fields) == 1 and several and len(bare):
        # HUDI-7001
        raise TableError(
            f"{place}: holds the record key {bare[0].as_py()!r} without the name of its field"
            f" {fields[0]!r}, as Apache Hudi 0.14.1 to 1.0.2 wrote it under several partition fields: its"
            " row would not be found again"
        )
    wrong = bucket_ids(keys, fields, hash_fields, bucket_count) != bucket_of_file_id(found.file_id)
    if wrong.any():
        raise TableError(
            f"{place}: holds the record key {keys[int(wrong.argmax())].as_py()!r}, which of"
            f" {bucket_count} buckets belongs to another",
            hint="hoodie.bucket.index.num.buckets and .hash.field must be what the table was written with",
        )
