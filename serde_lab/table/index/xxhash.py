"""xxHash, 32 bits, of many strings at once; consistent hashing places record keys by it.

Strings of one length are hashed together. Source: the xxHash specification of XXH32, which
org.apache.hudi.common.util.hash.HashID uses through lz4-java.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.table.index.string_bytes import StringBytes

_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(prime) for prime in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)
_STRIPE = 16


def xxh32(strings: pa.Array | pa.ChunkedArray, seed: int = 0) -> npt.NDArray[np.uint32]:
    """The hash of the UTF-8 bytes of each string, shape (n,)."""
    data = StringBytes.of(strings)
    hashes = np.zeros(len(data), np.uint32)
    lengths = data.lengths
    order = np.argsort(lengths, kind="stable")
    edges = [0, *(np.flatnonzero(np.diff(lengths[order])) + 1).tolist(), len(order)]
    for first, last in pairwise(edges):
        places = order[first:last]
        if not len(places):
            continue
        length = int(lengths[places[0]])
        starts = data.offsets[:-1][places]
        matrix = data.data[starts[:, None] + np.arange(length)]
        hashes[places] = _of_equal_length(matrix, seed)
    return hashes


def _of_equal_length(matrix: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint32]:
    """The hashes of strings of equal length, which are the rows of `matrix`."""
    count, length = matrix.shape
    whole = length // 4 * 4
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(matrix[:, :whole]).view(np.dtype("<u4"))
    done = 0
    start = np.uint32(seed)
    with np.errstate(over="ignore"):
        if length >= _STRIPE:
            done = length // _STRIPE * _STRIPE
            stripes = words[:, : done // 4].reshape(count, -1, 4) * _P2
            first = [start + _P1 + _P2, start + _P2, start, start - _P1]
            lanes = np.tile(np.array(first, np.uint32), (count, 1))
            for number in range(done // _STRIPE):
                lanes += stripes[:, number]
                lanes = _rotated(lanes, 13) * _P1
            hashes = np.zeros(count, np.uint32)
            for lane, by in enumerate((1, 7, 12, 18)):
                hashes += _rotated(lanes[:, lane], by)
        else:
            hashes = np.full(count, start + _P5, np.uint32)
        hashes += np.uint32(length)
        for word in range(done // 4, whole // 4):
            hashes = _rotated(hashes + words[:, word] * _P3, 17) * _P4
        for byte in range(whole, length):
            hashes = _rotated(hashes + matrix[:, byte].astype(np.uint32) * _P5, 11) * _P1
        hashes ^= hashes >> np.uint32(15)
        hashes *= _P2
        hashes ^= hashes >> np.uint32(13)
        hashes *= _P3
        hashes ^= hashes >> np.uint32(16)
    return hashes


def _rotated(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
