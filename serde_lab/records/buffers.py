"""Works on Arrow arrays as a whole: their offsets and bytes, their rows by value, a batch out of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DataError, LabError

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
    except (pa.ArrowException, OSError, KeyError) as exc:
        raise error(f"{where}: is not a readable Parquet file: {exc}") from exc


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
    """All rows of a table in one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
