"""Does a table that does not state its buckets have those that a writer was told?

Owns the refusal of a table of another index, of another number of buckets or with keys of another form:
Hudi stores none of it, and a key that is looked for in the wrong bucket, or by another text, is written
twice without a word. Must not know options.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.table.base_file import BaseFileReader
from serde_lab.table.bucket_index import bucket_ids, bucket_of_file_id
from serde_lab.table.file_system_view import FileSlice
from serde_lab.table.meta_columns import RECORD_KEY
from serde_lab.table.table import HoodieTable

_FILES = 4


def check_buckets(table: HoodieTable, bucket_count: int, hash_fields: Sequence[str]) -> None:
    """Hold the latest file groups, and keys of some of them, to `bucket_count` buckets.

    Raises TableError naming the file group that does not fit.
    """
    config = table.config
    seen: set[tuple[str, int]] = set()
    slices = table.view().latest_file_slices()
    for found in slices:
        try:
            bucket = bucket_of_file_id(found.file_id)
        except TableError as exc:
            raise TableError(
                f"table {config.name} was written under another index than the bucket index, the only"
                f" one that is supported: {exc.message}"
            ) from exc
        if bucket >= bucket_count or (found.partition_path, bucket) in seen:
            raise TableError(
                f"table {config.name} has a file group {found.file_id!r} in {found.partition_path!r},"
                f" which is not one of {bucket_count} buckets",
                hint="hoodie.bucket.index.num.buckets must be what the table was written with",
            )
        seen.add((found.partition_path, bucket))
    # the largest: their keys tell soonest, since a wrong number of buckets moves half of them or more
    bases = sorted((s for s in slices if s.base_file is not None), key=_base_bytes)
    for found in bases[-_FILES:]:
        _check_keys(table, found, bucket_count, hash_fields)


def _base_bytes(found: FileSlice) -> int:
    return 0 if found.base_file is None else found.base_file.size_bytes


def _check_keys(
    table: HoodieTable, found: FileSlice, bucket_count: int, hash_fields: Sequence[str]
) -> None:
    """Of the first keys of a base file, each must hash to the file's own bucket."""
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
