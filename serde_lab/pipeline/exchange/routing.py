"""Computes the reduce partition of each record, and the salt that makes Spark send it there.

`repartition(n, col)` places a row at pmod(murmur3(col), n), not at col: eight targets would share five
partitions. The hop therefore sends a salt, the smallest int that Spark's hash maps to the wanted
partition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.records.schema import values_at
from serde_lab.table.config import TableConfig
from serde_lab.table.index.bucket_index import bucket_ids, bucket_ids_of_integers, task_of_bucket

_SEED = np.uint32(42)  # of Spark's Murmur3Hash
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3_int(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Spark's `hash` of an int column: Murmur3_x86_32.hashInt with seed 42; shape (n,)."""
    with np.errstate(over="ignore"):
        k = _rotate(values.astype(np.uint32) * _C1, 15) * _C2
        h = _rotate(_SEED ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h.view(np.int32)


def _rotate(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


@lru_cache(maxsize=64)
def salts(partitions: int) -> npt.NDArray[np.int32]:
    """The salt of each reduce partition, shape (partitions,): the smallest int from 0 that maps to it."""
    found = np.full(partitions, -1, np.int32)
    start = 0
    while (found < 0).any():
        # about n * ln(n) ints hit all of n partitions
        candidates = np.arange(start, start + 16 * partitions + 64, dtype=np.int32)
        partition, first = np.unique(murmur3_int(candidates) % partitions, return_index=True)
        new = found[partition] < 0
        found[partition[new]] = candidates[first[new]]
        start = int(candidates[-1]) + 1
    found.flags.writeable = False
    return found


def position_of(partition: int, rows_before: int) -> int:
    """The input position of a frame's first record, by which frames that arrive in any order are sorted.

    The input partition is in the upper bits, the row within it in the lower 40.
    """
    return (partition << 40) | rows_before


def buckets_of(
    keys: pa.Array, table: TableConfig, paths: pa.Array | None = None
) -> npt.NDArray[np.int32]:
    """The bucket of each record key, shape (n,); `paths`: partition paths, if the table is partitioned."""
    counts = _bucket_counts(table, paths)
    return bucket_ids(keys, table.record_key_fields, table.bucket_fields, counts)


def _bucket_counts(table: TableConfig, paths: pa.Array | None) -> int | npt.NDArray[np.int32]:
    """The bucket count of each record's partition; a single number if all partitions have the same."""
    if not table.bucket_expressions or paths is None:
        return table.bucket_count or 1
    encoded = paths.dictionary_encode()
    counts = [table.buckets_of(path) for path in encoded.dictionary.to_pylist()]
    return np.array(counts, np.int32)[encoded.indices.to_numpy()]


def buckets_of_batch(
    keys: pa.Array, data: pa.RecordBatch, table: TableConfig, paths: pa.Array | None = None
) -> npt.NDArray[np.int32]:
    """The bucket of each record, from its key fields in `data` if they are plain integers."""
    fields = table.record_key_fields
    columns = {name: values_at(data, name) for name in fields}
    bare = len(fields) == 1 and (len(table.partition_fields) < 2 or bool(table.partition_kinds))
    hashed = [columns[name] for name in fields if name in table.bucket_fields]
    plain = all(pa.types.is_integer(c.type) and not c.null_count for c in columns.values())
    if not hashed or not plain or not (bare or len(fields) > 1):
        return buckets_of(keys, table, paths)
    counts = _bucket_counts(table, paths)
    return bucket_ids_of_integers([c.to_numpy() for c in hashed], counts)


def targets_of(
    buckets: npt.NDArray[np.int32],
    paths: pa.Array | None,
    buckets_in: Callable[[str], int],
    targets: int,
) -> npt.NDArray[np.int32]:
    """The reduce partition of each record; `paths` are its partition paths, None if there are none.

    `buckets_in` gives the number of buckets of a partition.
    """
    if paths is None:
        return (buckets % targets).astype(np.int32)
    encoded = paths.dictionary_encode()
    firsts = [
        task_of_bucket(path, 0, buckets_in(path), targets)
        for path in encoded.dictionary.to_pylist()
    ]
    first = np.array(firsts, np.int64)[encoded.indices.to_numpy()]
    return ((first + buckets) % targets).astype(np.int32)
