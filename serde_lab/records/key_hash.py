"""A 64-bit hash of strings, vectorised: what duplicates, joins and shards are found by.

The hash is the same in every process and on every machine, since shards are chosen by it on one side
of an exchange and looked up on the other. It finds candidates only: whoever needs equality compares
the strings. Must not know what the strings mean.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# word by word costs one pass over the array a word, so that a few huge strings would cost the most
_LONGEST_BY_WORDS_BYTES = 256

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xD6E8FEB86659FD93)


def hash64(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Hashes of a string or binary array without nulls; shape (n,).

    Multiply-rotate over little-endian 8-byte words, the last one zero-padded, then the length, so that
    a string and the same string with trailing NULs differ.
    """
    rows = len(values)
    if rows == 0:
        return np.zeros(0, np.uint64)
    offsets, data = _buffers(values)
    lengths = np.diff(offsets)
    starts = offsets[:-1]
    hashes = lengths.astype(np.uint64) * _MULTIPLIER
    long = lengths > _LONGEST_BY_WORDS_BYTES
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    # words at every byte position; a view, nothing is copied
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


def _buffers(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Byte offsets (n + 1,) and the bytes that they point into."""
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    if not wide and not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        values = values.cast(pa.string() if pa.types.is_string_view(values.type) else pa.binary())
    _, offset_buffer, data_buffer = values.buffers()
    kind = np.dtype(np.int64) if wide else np.dtype(np.int32)
    offsets = np.frombuffer(
        offset_buffer, kind, count=len(values) + 1, offset=values.offset * kind.itemsize
    ).astype(np.int64)
    if data_buffer is None:
        return offsets, np.zeros(0, np.uint8)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, np.frombuffer(data_buffer, np.uint8)[first:last]
