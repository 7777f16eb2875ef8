"""What a base file's footer says about its record keys: their range, and a Bloom filter over them.

The range is the least and the greatest key in Java's order of strings. Java compares UTF-16 code units, not
code points; the two orders differ beyond U+FFFF. Hudi's bloom index compares these keys with compareTo.

There are two forms of filters: SIMPLE (written here, sized to the rows) and DYNAMIC_V0 (read). The hash is
Hadoop's murmur2, 32 bits, chained: the hash of round k is the seed of round k + 1. Source:
org.apache.hudi.common.bloom, org.apache.hadoop.util.hash.MurmurHash.

Each key is mixed once; only the cheap outer half of murmur2 runs in every round, for many keys of equal
length at a time.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.records.buffers import StringBytes


class KeyRange:
    """The range of all keys seen so far."""

    def __init__(self) -> None:
        self.least: str | None = None
        self.greatest: str | None = None

    def add(self, keys: pa.Array) -> None:
        if not len(keys):
            return
        data = StringBytes.of(keys).data
        if len(data) and int(data.max()) >= 0xF0:
            # some character takes two UTF-16 units: UTF-8 bytes sort differently from Java
            ordered = keys.to_pylist()
            low, high = min(ordered, key=_java_order), max(ordered, key=_java_order)
        else:
            ends = pc.min_max(keys)
            low, high = ends["min"].as_py(), ends["max"].as_py()
        if self.least is None or _java_order(low) < _java_order(self.least):
            self.least = low
        if self.greatest is None or _java_order(high) > _java_order(self.greatest):
            self.greatest = high


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


SIMPLE = "SIMPLE"
DYNAMIC_V0 = "DYNAMIC_V0"

FALSE_POSITIVE_RATE = 1e-9
"""Hudi's default (hoodie.index.bloom.fpp), for which Hudi's filters have 30 rounds and 43 bits a key."""

# version -1, rounds, hash type 1 (murmur), bits
_HEADER = struct.Struct(">iibi")
_MURMUR = 1
_M = np.uint32(0x5BD1E995)
# few long keys are hashed one by one: a numpy call for each word would cost more
_FEW_KEYS, _LONG_BYTES = 32, 1024
# so few keys of several lengths are padded to one: each length would need calls of its own
_FEW_MIXED_KEYS, _SHORT_BYTES = 1024, 64
_KEYS_AT_ONCE = 8192  # 8 words each stay inside the second-level cache


def rounds_of(false_positive_rate: float = FALSE_POSITIVE_RATE) -> int:
    """Rounds per key: two thirds of those in BloomFilterUtils, which makes the smallest filter.

    At the same false-positive rate this is a third less work, and the filter has a few bits more. Every
    reader takes the number of rounds from the filter itself.
    """
    return max(1, round(-math.log2(false_positive_rate) * 2 / 3))


def bits_of(keys: int, false_positive_rate: float = FALSE_POSITIVE_RATE) -> int:
    """Bits that `keys` keys need for that false-positive rate, with `rounds_of` rounds."""
    rounds = rounds_of(false_positive_rate)
    return max(8, math.ceil(keys * rounds / -math.log1p(-(false_positive_rate ** (1 / rounds)))))


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """One filter or, in the dynamic form, several of one size: a key is in if any of them has it."""

    rounds: int
    bits: int
    rows: tuple[npt.NDArray[np.uint8], ...]
    """One byte array per filter; bit i is bit i & 7, from the lowest, of byte i >> 3."""

    def may_contain(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each key may have been added; False is always right."""
        found = np.zeros(len(keys), bool)
        for places, positions in _positions(keys, self.rounds, self.bits):
            for row in self.rows:
                hit = np.ones(len(places), bool)
                for position in positions:
                    hit &= (row[position >> 3] >> (position & 7).astype(np.uint8) & 1).astype(bool)
                found[places] |= hit
        return found

    @classmethod
    def from_footer(cls, text: str, type_code: str, where: str) -> BloomFilter:
        """Read the base64 value of `org.apache.hudi.bloomfilter`. Raises TableError naming `where`."""
        try:
            return _parse(base64.b64decode(text, validate=True), type_code)
        except (ValueError, struct.error) as exc:
            raise TableError(f"{where}: its bloom filter ({type_code}) is damaged: {exc}") from exc


class BloomBuilder:
    """Builds a SIMPLE filter for `expected_keys` keys, which are added batch by batch."""

    def __init__(
        self, expected_keys: int, false_positive_rate: float = FALSE_POSITIVE_RATE
    ) -> None:
        self._bits = bits_of(expected_keys, false_positive_rate)
        self._rounds = rounds_of(false_positive_rate)
        self._set = np.zeros(self._bits, np.uint8)  # one byte per bit; packed at the end

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add all of `keys`, which must not have nulls."""
        if len(keys) <= _KEYS_AT_ONCE:
            chunks = [keys]  # a call costs more than to put a few keys together
        else:
            chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
        for chunk in chunks:
            for _, positions in _positions(chunk, self._rounds, self._bits):
                self._set[positions.reshape(-1)] = 1

    def to_footer(self) -> str:
        """The base64 text of the filter, for type code SIMPLE."""
        packed = np.packbits(self._set, bitorder="little")
        header = _HEADER.pack(-1, self._rounds, _MURMUR, self._bits)
        return base64.b64encode(header + packed.tobytes()).decode("ascii")


def _parse(raw: bytes, type_code: str) -> BloomFilter:
    version, rounds, kind, bits = _HEADER.unpack_from(raw)
    if version != -1 or kind != _MURMUR or bits <= 0 or rounds <= 0:
        raise ValueError(f"its header says version {version}, hash {kind}, {bits} bits")
    size = (bits + 7) // 8
    starts = [_HEADER.size]
    if type_code == DYNAMIC_V0:
        # the outer filter has no bits of its own: keys per row, keys in the last row, rows
        _, _, row_count = struct.unpack_from(">iii", raw, _HEADER.size)
        first = 2 * _HEADER.size + 12
        starts = [first + i * (_HEADER.size + size) for i in range(row_count)]
    elif type_code != SIMPLE:
        raise ValueError(f"type code {type_code} is not known")
    if len(raw) < starts[-1] + size:
        raise ValueError(f"it has {len(raw)} bytes; {starts[-1] + size} were expected")
    rows = tuple(np.frombuffer(raw, np.uint8, size, start) for start in starts)
    return BloomFilter(rounds, bits, rows)


def _positions(
    keys: pa.Array | pa.ChunkedArray, rounds: int, bits: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Groups of keys: their indices, shape (n,), and bit positions, shape (rounds, n).

    The keys of a group are of equal length, except for a few short ones.
    """
    strings = StringBytes.of(keys)
    lengths = strings.lengths
    if not len(lengths):
        return
    order = np.arange(len(lengths))
    longest = int(lengths.max())
    if int(lengths.min()) != longest:
        if len(lengths) <= _FEW_MIXED_KEYS and longest <= _SHORT_BYTES:
            yield order, _bits(_padded(strings, longest), lengths, rounds, bits)
            return
        # sorted by length, keys of one length form a matrix of bytes as they are stored
        order = np.argsort(lengths, kind="stable")
        strings = StringBytes.of(keys.take(pa.array(order)))
        lengths = strings.lengths
    edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    for first, last in pairwise(edges):
        length = int(lengths[first])
        for start in range(first, last, _KEYS_AT_ONCE):
            stop = min(start + _KEYS_AT_ONCE, last)
            cut = strings.data[strings.offsets[start] : strings.offsets[stop]]
            matrix = cut.reshape(stop - start, length)
            yield order[start:stop], _bits(matrix, length, rounds, bits)


def _padded(strings: StringBytes, width: int) -> npt.NDArray[np.uint8]:
    """A row of `width` bytes for each string, with zeros after its own."""
    place = np.arange(width)
    at = strings.offsets[:-1, None] + place
    matrix = strings.data[np.minimum(at, len(strings.data) - 1)]
    matrix[place >= strings.lengths[:, None]] = 0
    return matrix


def _bits(
    matrix: npt.NDArray[np.uint8],
    lengths: int | npt.NDArray[np.int64],
    rounds: int,
    bits: int,
) -> npt.NDArray[np.int64]:
    """The bit position of each key (a row of `matrix`) in every round; shape (rounds, n).

    `lengths` is the length of all keys, or of each, if rows end with padding. All rounds are computed before
    any bit is set: setting bits between rounds drives the shared words out of the second-level cache.
    Positions are int64, numpy's own index type: it would first convert and write out any other.
    """
    count, width = matrix.shape
    if count <= _FEW_KEYS and width >= _LONG_BYTES * count:
        return np.array([_bits_of_one(key, rounds, bits) for key in matrix], np.int64).T
    if isinstance(lengths, int):
        words, tail = _mixed(matrix)
        seed: _Words = np.uint32(lengths)
    else:
        words, tail = _mixed_of_padded(matrix, lengths)
        seed = lengths.astype(np.uint32)
    modulus = np.uint32(bits)
    h = np.zeros(count, np.uint32)
    spare = np.empty_like(h)
    hashes = np.empty((rounds, count), np.uint32)
    for row in hashes:
        h ^= seed
        _finish(h, words, tail, spare)
        row[:] = h
    # |h|; 2³¹ stays itself
    np.abs(hashes.view(np.int32), out=hashes.view(np.int32))
    return (hashes - hashes // modulus * modulus).astype(np.int64)


def _bits_of_one(key: npt.NDArray[np.uint8], rounds: int, bits: int) -> list[int]:
    """The bit positions of one long key."""
    whole = len(key) - len(key) % 4
    words = key[:whole].view("<u4") * _M
    words ^= words >> np.uint32(24)
    words *= _M
    _, tail = _mixed(key[None, whole:])
    found, h, spare = [], np.zeros(1, np.uint32), np.empty(1, np.uint32)
    for _ in range(rounds):
        h[0] = _over_words(int(h[0]) ^ len(key), words)
        _finish(h, [], tail, spare)
        found.append(abs(int(h.view(np.int32)[0])) % bits)
    return found


def _over_words(seed: int, words: npt.NDArray[np.uint32]) -> int:
    """The value of `h` after h = h * M ^ word for every word, from `seed` on.

    Computed bit by bit, over all words at once. M is odd, so bit n of the product is bit n of `h`, XOR bit n
    of what the lower bits of `h` give. Each bit is thus a running XOR, over the words, of values that are
    known once the lower bits are.
    """
    h = np.zeros(len(words) + 1, np.uint32)  # before each word, and after the last
    steps = np.empty_like(h)
    for n in range(32):
        steps[0] = seed
        np.multiply(h[:-1], _M, out=steps[1:])
        steps[1:] ^= words
        steps &= np.uint32(1 << n)
        h |= np.bitwise_xor.accumulate(steps)
    return int(h[-1])


_Words: TypeAlias = np.uint32 | npt.NDArray[np.uint32]
_Step: TypeAlias = tuple[_Words, _Words]
"""A factor and a word: M and a mixed word, for each key or for all; 1 and 0 where a key has ended."""


def _mixed(matrix: npt.NDArray[np.uint8]) -> tuple[list[_Step], _Step | None]:
    """The half of murmur2 that does not depend on the seed: each 4-byte word mixed, the tail as one int."""
    whole, left = divmod(matrix.shape[1], 4)
    words: list[_Step] = [(_M, word) for word in _mixed_words(matrix, whole)]
    if not left:
        return words, None
    # Hadoop's tail: signed bytes, the last one lowest
    signed = matrix[:, 4 * whole :].view(np.int8).astype(np.int32)
    tail = signed[:, left - 1].copy()
    if left >= 2:
        tail ^= signed[:, left - 2] << 8
    if left >= 3:
        tail ^= signed[:, left - 3] << 16
    return words, (_M, tail.view(np.uint32))


def _mixed_of_padded(
    matrix: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]
) -> tuple[list[_Step], _Step]:
    """The same for keys of these lengths in rows that zeros pad."""
    whole, left = lengths // 4, lengths % 4
    words: list[_Step] = []
    for number, word in enumerate(_mixed_words(matrix, matrix.shape[1] // 4)):
        has = number < whole
        words.append((np.where(has, _M, np.uint32(1)), word * has))
    signed = matrix.view(np.int8).astype(np.int32)
    tail = np.zeros(len(lengths), np.int32)
    for back in (1, 2, 3):
        last = np.take_along_axis(signed, np.maximum(lengths - back, 0)[:, None], axis=1)[:, 0]
        tail ^= np.where(left >= back, last << 8 * (back - 1), 0)
    return words, (np.where(left > 0, _M, np.uint32(1)), tail.view(np.uint32))


def _mixed_words(matrix: npt.NDArray[np.uint8], count: int) -> Iterator[npt.NDArray[np.uint32]]:
    """The first `count` words of each row, mixed."""
    block = np.ascontiguousarray(matrix[:, : 4 * count]).view("<u4")
    for column in range(count):
        k = block[:, column] * _M
        k ^= k >> np.uint32(24)
        k *= _M
        yield k


def _finish(
    h: npt.NDArray[np.uint32],
    words: list[_Step],
    tail: _Step | None,
    spare: npt.NDArray[np.uint32],
) -> None:
    """The half of murmur2 that depends on the seed; `h` holds the seeds and receives the hashes."""
    for factor, word in words:
        h *= factor
        h ^= word
    if tail is not None:
        factor, word = tail
        h ^= word
        h *= factor
    h ^= np.right_shift(h, np.uint32(13), out=spare)
    h *= _M
    h ^= np.right_shift(h, np.uint32(15), out=spare)
