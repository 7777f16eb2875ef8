"""Works on Arrow arrays as a whole: their offsets and bytes, their rows by value, and hashes of their values.

The 64-bit hash of strings finds duplicates, joins and shards. It is the same in every process and on every
machine, because one side of an exchange chooses shards by it and the other side looks them up. It only finds
candidates: compare the strings where equality matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import DataError, LabError
from serde_lab.records.schema import child_fields, is_nested, is_string

MOST_BYTES = 2**31 - 1
"""Arrow's offsets have 32 bits."""


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where each string, binary, list or map begins in its data, and where the last ends: shape (n + 1,)."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)


def lengths_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """The length of each string, binary, list or map: shape (n,)."""
    lengths: npt.NDArray[np.int32] = np.diff(offsets_of(array))
    return lengths


def data_of(array: pa.Array) -> pa.Buffer:
    """The bytes that the values of a string or binary array have together."""
    ends, data = offsets_of(array), array.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def spans_of(array: pa.Array) -> tuple[pa.Buffer, npt.NDArray[np.int64]]:
    """The bytes of a string or binary array, and its offsets in them, which begin at 0."""
    ends = offsets_of(array).astype(np.int64)
    return data_of(array), ends - ends[0]


def with_all_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that another Arrow library sent, with offsets in every list and map that it holds.

    Arrow for Java gives lists in lists no offsets if all lists are empty, and pyarrow reads the memory
    behind them: it crashes, or raises IndexError.
    """
    columns = [_with_all_offsets(column) for column in batch.columns]
    if all(new is old for new, old in zip(columns, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_all_offsets(array: pa.Array) -> pa.Array:
    t = array.type
    if not is_nested(t):
        return array
    if not len(array):
        return pa.array([], t)
    if pa.types.is_struct(t):
        children = [array.field(number) for number in range(t.num_fields)]
    else:
        children = [array.keys, array.items] if pa.types.is_map(t) else [array.values]
    sound = [_with_all_offsets(child) for child in children]
    if all(new is old for new, old in zip(sound, children, strict=True)):
        return array
    if pa.types.is_map(t):
        sound = [pa.StructArray.from_arrays(sound, fields=child_fields(t))]
    # of an array that was sent, the offset is 0
    buffers = array.buffers()[: 1 if pa.types.is_struct(t) else 2]
    return pa.Array.from_buffers(t, len(array), buffers, array.null_count, children=sound)


def binaries(values: Sequence[bytes]) -> pa.BinaryArray:
    """The values as one array. Raises DataError above 2 GiB."""
    found = pa.array(values, pa.binary())
    if isinstance(found, pa.ChunkedArray):
        size = sum(map(len, values))
        raise DataError(
            f"a batch has {size} bytes, expected at most {MOST_BYTES}", "send smaller batches"
        )
    return found


_HIGH_BITS = np.uint64(0x8080_8080_8080_8080)


def is_ascii(array: pa.Array) -> bool:
    """Whether all bytes of a string or binary array are ASCII; any slice of such text is valid UTF-8."""
    return _all_ascii(np.frombuffer(data_of(array), np.uint8))


def _all_ascii(found: npt.NDArray[np.uint8]) -> bool:
    # eight bytes at a time, where Arrow's own check of UTF-8 looks at characters
    whole = len(found) // 8 * 8
    words = np.bitwise_or.reduce(found[:whole].view(np.uint64)) if whole else np.uint64(0)
    return not words & _HIGH_BITS and bool((found[whole:] < 0x80).all())


def binary_array(ends: npt.NDArray[np.integer[Any]], data: object) -> pa.BinaryArray:
    """A binary array over `data`, not copied; `ends` has shape (n + 1,). Raises DataError above 2 GiB."""
    if int(ends[-1]) > MOST_BYTES:
        raise DataError(
            f"a batch has {ends[-1]} bytes, expected at most {MOST_BYTES}", "send smaller batches"
        )
    buffers = [None, pa.py_buffer(ends.astype(np.int32, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers, 0)


@contextmanager
def parquet_errors(where: str, error: type[LabError]) -> Iterator[None]:
    """Raise `error`, naming the file, for a file that Arrow cannot read as Parquet."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as exc:
        why = " ".join(str(exc).split())  # Arrow's words may have several lines
        raise error(f"{where}: is not a readable Parquet file: {why}") from exc


def rows_of(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a Parquet file. Raises ArrowInvalid as `batches_of` does."""
    table = file.read(None if columns is None else list(columns))
    _check_found(file, len(table))
    return table


def batches_of(
    file: pq.ParquetFile, columns: Sequence[str] | None, rows: int, use_threads: bool = True
) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, at most `rows` at a time.

    Raises ArrowInvalid if there are fewer than the footer states: Arrow passes over a page whose head is
    damaged, and ends without an error.
    """
    found = 0
    names = None if columns is None else list(columns)
    for batch in file.iter_batches(rows, columns=names, use_threads=use_threads):
        found += batch.num_rows
        yield batch
    _check_found(file, found)


def file_batches(file: Path, columns: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
    """`batches_of` a local file. Raises DataError, which names it, if it is not readable Parquet."""
    with parquet_errors(str(file), DataError), pq.ParquetFile(file) as source:
        yield from batches_of(source, columns, rows)


def _check_found(file: pq.ParquetFile, rows: int) -> None:
    if rows != file.metadata.num_rows:
        raise pa.ArrowInvalid(
            f"{rows} rows can be found, and its footer states {file.metadata.num_rows}"
        )


def first_invalid(array: pa.Array, check: Callable[[pa.Array], object]) -> int:
    """The number of the first value that makes `check` raise ArrowInvalid; there is one."""
    first, last = 0, len(array)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            check(array.slice(first, middle - first))
            first = middle
        except pa.ArrowInvalid:
            last = middle
    return first


def rows_by_value(values: pa.Array) -> Iterator[tuple[Any, npt.NDArray[np.int64]]]:
    """Each distinct value with the numbers of its rows, which rise."""
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, edges) if len(order) else ():
        yield encoded.dictionary[int(codes[rows[0]])].as_py(), rows


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """All rows of a table in one batch. Raises DataError if a column has more than a batch holds."""
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        # Arrow's offsets have 32 bits, so it leaves such a column in chunks
        raise DataError(
            f"a column of {rows.num_rows:,} rows has more than 2 GiB of values, which one batch cannot hold",
            hint="write fewer rows at once, or smaller blocks (hoodie.logfile.data.block.max.size)",
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


@dataclass(frozen=True, slots=True)
class StringBytes:
    """String i is data[offsets[i]:offsets[i + 1]]; data holds UTF-8. Nulls are empty strings."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Length of each string in bytes."""
        return np.diff(self.offsets)

    @property
    def is_ascii(self) -> bool:
        return _all_ascii(self.data)

    @classmethod
    def of(cls, strings: pa.Array | pa.ChunkedArray) -> StringBytes:
        """Read a string, large_string or string_view array; `data` starts at the first string's byte."""
        if isinstance(strings, pa.ChunkedArray):
            strings = strings.combine_chunks()
        if isinstance(strings, pa.ChunkedArray):  # combine_chunks returns this for zero chunks
            strings = pa.array([], strings.type)
        if not pa.types.is_string(strings.type):
            strings = strings.cast(pa.string())
        data, offsets = spans_of(strings)
        return cls(np.frombuffer(data, np.uint8), offsets)


# each word costs one pass over the array, so a few huge strings would dominate the time
_LONGEST_BY_WORDS_BYTES = 256

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Strings with their hashes, for consecutive steps on the same keys.

    `values` is a string array without nulls, `hashes` has shape (n,).
    """

    values: pa.Array
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, keys: pa.Array | HashedKeys) -> HashedKeys:
        """`keys` with their hashes, which are computed if missing."""
        return keys if isinstance(keys, HashedKeys) else cls(keys, hash64(keys))

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.values.take(pa.array(indices)), self.hashes[indices])


def equal_neighbours(
    hashes: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows with equal hashes, as pairs of row numbers that are neighbours in a stable sort by hash.

    Two rows with one hash make one pair, three make two pairs. The lower number comes first.
    """
    bits = max(1, (len(hashes) - 1).bit_length())
    # row numbers replace the low bits, so that numpy sorts plain numbers, by SIMD where the CPU has it
    low = np.uint64((1 << bits) - 1)
    packed = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    pair = np.flatnonzero((packed[1:] ^ packed[:-1]) <= low)
    left = (packed[pair] & low).astype(np.int64)
    right = (packed[pair + 1] & low).astype(np.int64)
    if not (hashes[left] == hashes[right]).all():
        # some rows differ only in the replaced bits, and may lie between two rows with equal hashes
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        pair = np.flatnonzero(ordered[1:] == ordered[:-1])
        left, right = order[pair], order[pair + 1]
    return left, right


def repeated(values: pa.Array) -> pa.Array:
    """Those of `values` that occur more than once, each once."""
    counts = pc.value_counts(values)
    return counts.filter(pc.greater(counts.field("counts"), 1)).field("values")


def rotate_left(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    """Each of `values` with its bits moved to the left by 1 to 31 places, in a circle; same shape."""
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def hash64(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Hashes of a string or binary array without nulls; shape (n,).

    Multiply-rotate over little-endian 8-byte words, the last one zero-padded. The length is part of the
    hash, so that a string and the same string with trailing NULs differ.
    """
    rows = len(values)
    if rows == 0:
        return np.zeros(0, np.uint64)
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        values = values.cast(pa.string() if is_string(values.type) else pa.binary())
    whole, offsets = spans_of(values)
    data = np.frombuffer(whole, np.uint8)
    lengths = np.diff(offsets)
    starts = offsets[:-1]
    hashes = lengths.astype(np.uint64) * _MULTIPLIER
    long = lengths > _LONGEST_BY_WORDS_BYTES
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    # the word at every byte position, as a view without a copy
    words = np.lib.stride_tricks.as_strided(
        padded[:8].view("<u8"), shape=(len(padded) - 7,), strides=(1,)
    )
    rows_left = np.flatnonzero(~long & (lengths > 0)) if long.any() else np.flatnonzero(lengths)
    all_rows = len(rows_left) == rows
    at_byte = 0
    while len(rows_left):
        left = (lengths if all_rows else lengths[rows_left]) - at_byte
        word = words[(starts if all_rows else starts[rows_left]) + at_byte]
        surplus = np.maximum(8 - left, 0)
        if surplus.any():
            shift = (surplus * 8).astype(np.uint64)
            word = (word << shift) >> shift
        before = hashes if all_rows else hashes[rows_left]
        mixed = (before ^ word) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
        if all_rows:
            hashes = mixed
        else:
            hashes[rows_left] = mixed
        at_byte += 8
        still = left > 8
        if not still.all():
            rows_left = rows_left[still]
            all_rows = False
    for row in np.flatnonzero(long):
        text = data[starts[row] : starts[row] + lengths[row]].tobytes()
        digest = hashlib.blake2b(text, digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    hashes *= _MIXER
    hashes ^= hashes >> np.uint64(32)
    return hashes
