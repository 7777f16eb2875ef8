"""Encodes and decodes varints: arrays of Avro's zig-zag ones, and single ones as Thrift has them, too.

An Avro int or long is zig-zagged (0, -1, 1, -2 become 0, 1, 2, 3), then written with seven bits per byte,
the lowest first. All bytes but the last have the top bit set. A varint has 1 to 10 bytes (Avro
specification, "Binary encoding").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

MAX_VARINT_BYTES = 10

_ONE = np.uint64(1)
_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Each step closes the gaps between pairs of groups: of 7, 14 and 28 bits.
_CLOSE = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)


def zigzag(values: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Signed numbers of 8 to 64 bits as unsigned ones of the same width; numbers near 0 become small."""
    bits = values.dtype.itemsize * 8
    folded = values << 1
    folded ^= values >> (bits - 1)
    unsigned: npt.NDArray[np.unsignedinteger[Any]] = folded.view(f"u{bits // 8}")
    return unsigned


def unzigzag(folded: Words) -> npt.NDArray[np.int64]:
    low = (folded & _ONE).view(np.int64)
    np.negative(low, out=low)
    low ^= (folded >> _ONE).view(np.int64)
    return low


def varint_bytes(
    folded: npt.NDArray[np.unsignedinteger[Any]],
) -> Iterator[tuple[Bytes, Mask | None]]:
    """The bytes of varints by position: pair k holds byte k of each, and a mask of those that have it.

    A mask of None means all.
    """
    if not len(folded):
        return
    largest, least = int(folded.max()), int(folded.min())
    if folded.dtype == np.uint64 and largest < 1 << 32:
        # halves the memory to read
        folded = folded.astype(np.uint32)
    places = max(1, -(-largest.bit_length() // 7))
    has: Mask | None = None
    for place in range(places):
        byte = (folded >> folded.dtype.type(7 * place)).astype(np.uint8)
        if place == places - 1:
            # no number has higher bits than these
            yield byte, has
            return
        limit = 1 << 7 * (place + 1)
        byte &= 0x7F
        if least >= limit:
            byte |= 0x80
            yield byte, has
            has = None
        else:
            more = folded >= folded.dtype.type(limit)
            byte |= more.view(np.uint8) << 7
            yield byte, has
            has = more


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """The varint at an offset, still folded, and the offset after it. Raises IndexError beyond the end."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at


def varints_at(
    data: Bytes, words: Words, at: Positions
) -> tuple[Words, npt.NDArray[np.integer[Any]] | int, Mask | None]:
    """The varints at the positions `at`: folded numbers, their sizes in bytes, and which are too long.

    `data` has at least 10 bytes behind each position; `words[p]` is the little-endian word of the 8
    bytes from p. Too long means more than 64 bits; None means that none is.
    """
    word = words[at]
    if not (word & np.uint64(0x80)).any():
        return word & np.uint64(0x7F), 1, None
    ends = ~word
    ends &= _TOP_BITS
    ends &= ~ends + _ONE  # only the top bit of the last byte; 0 if that is not among these 8
    unended = ends == 0
    ends -= _ONE
    sizes = (np.bitwise_count(ends) + np.uint8(1)) >> np.uint8(3)
    word &= ends
    word &= _LOW_BITS
    longest = int(sizes.max())
    for (low, high, gap), step in zip(_CLOSE, (1, 2, 4), strict=True):
        if step < longest:
            upper = word & high
            upper >>= gap
            word &= low
            word |= upper
    if longest < 8 or not unended.any():
        return word, sizes, None
    return _long_varints(data, at, word, sizes, np.flatnonzero(unended))


def _long_varints(
    data: Bytes, at: Positions, word: Words, sizes: npt.NDArray[np.uint8], rows: Positions
) -> tuple[Words, npt.NDArray[np.uint8], Mask | None]:
    """Finish the varints of `rows`, which have a ninth byte and perhaps a tenth."""
    ninth = data[at[rows] + 8].astype(np.uint64)
    tenth = data[at[rows] + 9].astype(np.uint64)
    has_tenth = ninth > 0x7F
    tenth[~has_tenth] = 0
    word[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
    word[rows] |= tenth << np.uint64(63)
    sizes[rows] = 9 + has_tenth
    if not (tenth > 1).any():
        return word, sizes, None
    too_long = np.zeros(len(at), np.bool_)
    too_long[rows[tenth > 1]] = True
    return word, sizes, too_long
