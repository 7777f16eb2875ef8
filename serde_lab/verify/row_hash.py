"""Hashes the values of Arrow columns, one hash per row and vectorised, so that equal values hash alike.

Equal means:

- by value, not by layout: int8 and int64, string and string_view, list and large_list hash alike (types are
  compared separately, see `contents.py`);
- every NaN is the same value; -0.0 and 0.0 are different values;
- null, the empty string, the empty list and zero are all different, at every depth;
- lists are ordered; maps are not, since Hudi's AVRO record type carries them through Java hash maps;
- structs are compared by field name.

A value becomes one 64-bit word through the finaliser of splitmix64 (Steele, Lea and Flood 2014): two
different rows appear equal about once in 1.8e19 comparisons.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import SchemaError
from serde_lab.records.schema import is_list

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E6C63D0676A9A99)
_EMPTY = np.uint64(0xD1B54A32D192ED03)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_C1, _C2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LONG_VALUE_BYTES = 512
"""Longer strings are hashed by blake2b: the word loop makes one pass over the column per 8 bytes."""


def mix(words: Hashes) -> Hashes:
    """splitmix64's finaliser: a bijection of 64-bit words in which every bit depends on every bit."""
    out = words >> np.uint64(30)
    out ^= words
    out *= _C1
    out ^= out >> np.uint64(27)
    out *= _C2
    out ^= out >> np.uint64(31)
    return out


def seed(name: str) -> np.uint64:
    """A word derived from `name`."""
    return np.uint64(
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    )


def hash_column(name: str, values: pa.Array | pa.ChunkedArray) -> Hashes:
    """One word per row for a named column: the same values under another name hash differently."""
    return mix(hash_values(values) ^ seed(name))


def hash_values(values: pa.Array | pa.ChunkedArray) -> Hashes:
    """One word per value, shape (len(values),). Raises SchemaError for an unsupported type."""
    if isinstance(values, pa.ChunkedArray):
        parts = [hash_values(chunk) for chunk in values.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    hashes = _hash_present(values)
    if values.null_count:
        hashes[_is_null(values)] = _NULL
    return hashes


def _is_null(values: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _hash_present(values: pa.Array) -> Hashes:
    """Hashes at non-null positions; arbitrary at null positions."""
    t = values.type
    if pat.is_null(t):
        return np.full(len(values), _NULL)
    if pat.is_dictionary(t):
        return hash_values(values.dictionary_decode())
    if isinstance(values, pa.ExtensionArray):
        return hash_values(values.storage)
    if pat.is_boolean(t):
        return mix(_fixed_width(values.cast(pa.uint8()), np.uint8).astype(np.uint64))
    if pat.is_floating(t):
        return mix(_float_bits(values))
    if pat.is_decimal(t):
        return _hash_decimals(values)
    if pat.is_string_view(t) or pat.is_binary_view(t):
        return _hash_bytes(
            values.cast(pa.large_string() if pat.is_string_view(t) else pa.large_binary())
        )
    if pat.is_string(t) or pat.is_binary(t) or pat.is_large_string(t) or pat.is_large_binary(t):
        return _hash_bytes(values)
    if pat.is_fixed_size_binary(t):
        return _hash_bytes(values.cast(pa.binary()))
    if pat.is_struct(t):
        return _hash_structs(values)
    if pat.is_map(t):
        return _hash_maps(values)
    if is_list(t) or pat.is_fixed_size_list(t):
        return _hash_lists(values)
    if t.num_fields == 0 and t.bit_width in (8, 16, 32, 64):  # integers, dates, times, timestamps
        signed = not pat.is_unsigned_integer(t)
        words = _fixed_width(values, np.dtype(f"{'i' if signed else 'u'}{t.bit_width // 8}"))
        return mix(words.astype(np.int64 if signed else np.uint64, copy=False).view(np.uint64))
    raise SchemaError(f"values of type {t} cannot be compared")


def _fixed_width(values: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values' own memory; entries at null positions are arbitrary."""
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(data, dtype)[values.offset : values.offset + len(values)]


def _float_bits(values: pa.Array) -> Hashes:
    width = values.type.bit_width // 8
    floats = _fixed_width(values, np.dtype(f"f{width}"))
    bits = floats.view(np.dtype(f"u{width}")).astype(np.uint64)
    bits[np.isnan(floats)] = np.uint64(0x7FF8000000000000)
    return bits


def _hash_decimals(values: pa.Array) -> Hashes:
    if values.type.bit_width < 128:
        values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    words = values.type.bit_width // 64
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), np.uint64)
    grid = np.frombuffer(data, np.uint64).reshape(-1, words)[
        values.offset : values.offset + len(values)
    ]
    hashes = mix(grid[:, 0])
    for word in range(1, words):
        hashes = mix(hashes + grid[:, word] + _STEP)
    return hashes


def _hash_bytes(values: pa.Array) -> Hashes:
    """Text and bytes: hash eight bytes at a time over the whole column, dropping values that have ended."""
    _, offset_buffer, data = values.buffers()
    wide = pat.is_large_string(values.type) or pat.is_large_binary(values.type)
    if offset_buffer is None or len(values) == 0:
        return np.full(len(values), _EMPTY)
    offsets = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64, copy=False)
    starts, lengths = offsets[:-1], np.diff(offsets)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    padded = np.zeros(int(offsets[-1] - offsets[0]) + 8, np.uint8)
    padded[:-8] = raw[offsets[0] : offsets[-1]]
    # a word may begin at any byte: a view of the same memory with a stride of one byte
    words = np.lib.stride_tricks.as_strided(
        padded[:8].view(np.uint64), shape=(len(padded) - 7,), strides=(1,)
    )
    hashes = mix(lengths.astype(np.uint64) + _EMPTY)
    at = starts - offsets[0]
    long = np.flatnonzero(lengths > _LONG_VALUE_BYTES)
    rows = np.flatnonzero((lengths > 0) & (lengths <= _LONG_VALUE_BYTES))
    done = 0
    while len(rows):
        left = lengths[rows] - done
        word = words[at[rows] + done]
        short = left < 8
        if short.any():  # little-endian: the first bytes are the low ones
            keep = np.uint64(8) * left[short].astype(np.uint64)
            word[short] &= (np.uint64(1) << keep) - np.uint64(1)
        hashes[rows] = mix(hashes[rows] + word + _STEP)
        done += 8
        rows = rows[left > 8]
    for row in long.tolist():
        value = padded[at[row] : at[row] + lengths[row]].tobytes()
        digest = hashlib.blake2b(value, digest_size=8).digest()
        hashes[row] = np.uint64(int.from_bytes(digest, "little"))
    return hashes


def _segment_sums(hashes: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    """Sums, modulo 2**64, of the hashes between neighbouring offsets; 0 for an empty segment."""
    total = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes, out=total[1:])
    return total[offsets[1:]] - total[offsets[:-1]]


def _hash_lists(values: pa.Array) -> Hashes:
    # flatten() gives the items of non-null lists only, in order, for every layout of lists
    lengths = pc.list_value_length(values).fill_null(0).to_numpy().astype(np.int64, copy=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    items = hash_values(values.flatten())
    position = np.arange(len(items), dtype=np.int64) - np.repeat(offsets[:-1], lengths)
    items = mix(items + mix(position.astype(np.uint64) + _STEP))
    return mix(_segment_sums(items, offsets) + mix(lengths.astype(np.uint64) + _EMPTY))


def _hash_maps(values: pa.Array) -> Hashes:
    if len(values) == 0:
        return np.empty(0, np.uint64)
    offsets = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    first, last = int(offsets[0]), int(offsets[-1])
    keys = hash_values(values.keys.slice(first, last - first))
    items = hash_values(values.items.slice(first, last - first))
    entries = mix(mix(keys + _STEP) + items)
    lengths = np.diff(offsets).astype(np.uint64)
    return mix(_segment_sums(entries, offsets - first) + mix(lengths + _EMPTY))


def _hash_structs(values: pa.StructArray) -> Hashes:
    hashes = np.full(len(values), _EMPTY)
    for index, field in enumerate(values.type):
        hashes += hash_column(field.name, values.field(index))
    return mix(hashes)
