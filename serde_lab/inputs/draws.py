"""Random choices that are the same on every machine and with every version of numpy.

The source of chance is a counter hashed by SplitMix64 (Steele, Lea, Flood: Fast
splittable pseudorandom number generators, 2014). numpy's own generators may change their streams
between versions, and the checksums of derived data are compared across machines.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SHARE_OF_RANGE = 3
_STRIDE = 6


def stream(seed: int, *purpose: int | str) -> int:
    """A 64-bit start value for one purpose; distinct purposes give unrelated streams."""
    text = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def draw(start: int, counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One uniform 64-bit value a counter; distinct counters of one stream give distinct values."""
    z = counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(start)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def shuffled(start: int, first: int, n: int) -> npt.NDArray[np.int64]:
    """The numbers 0 to n - 1 in random order; `first` tells apart the pieces of one long shuffle."""
    counters = np.arange(first, first + n, dtype=np.uint64)
    return np.argsort(draw(start, counters), kind="stable").astype(np.int64)


def spread(index: npt.NDArray[np.int64], picks: int, total: int) -> npt.NDArray[np.bool_]:
    """Which of the positions `index` in 0..total are picked, so that exactly `picks` of all are.

    Picks lie as evenly as whole numbers allow, and a pick does not depend on which other positions
    are asked for: pieces of one whole can be decided apart.
    """
    if not total:
        return np.zeros(len(index), bool)
    return (index + 1) * picks // total > index * picks // total


def share_of(total: int, piece: int, pieces: int) -> tuple[int, int]:
    """First and end of piece number `piece` when 0..total is cut into `pieces` of nearly equal size."""
    return total * piece // pieces, total * (piece + 1) // pieces


def onto_a_third(keys: pa.Array, greatest: int, seed: int) -> pa.Array:
    """`keys` (int64, from 1 to `greatest`, no nulls) mapped onto a third of their range, in the same order.

    Makes RFC-84's workload out of lineitem: its rows are three times as many as their different keys
    (l_orderkey, l_linenumber), 60 million and 20 million at scale factor 10. An order of key k becomes

        1 + 6 * (h(seed, k) mod floor(greatest / 18))

    with h the 64-bit hash of `draw`. TPC-H uses every fourth number, and an order has one to seven lines,
    numbered from 1, so that orders that share a number share only the lines that both have: every sixth
    number gives 4.5 orders each, and 0.330 different keys a row. Line numbers stay.
    """
    slots = max(1, greatest // (_SHARE_OF_RANGE * _STRIDE))
    chance = draw(stream(seed, "key_range"), keys.to_numpy().astype(np.uint64))
    return pa.array((1 + _STRIDE * (chance % np.uint64(slots))).astype(np.int64))
