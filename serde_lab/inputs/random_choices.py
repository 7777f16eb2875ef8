"""Makes random choices that are the same on every machine and with every version of numpy.

Random numbers are counters hashed by SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
number generators, 2014). numpy's own generators may change their streams between versions, and the
checksums of derived data are compared across machines.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SHARE_OF_RANGE = 3
_STRIDE = 6


def stream(seed: int, *purpose: int | str) -> int:
    """A 64-bit start value for one purpose; different purposes give unrelated streams."""
    text = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def draw(start: int, counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One uniform 64-bit value per counter; different counters of one stream give different values."""
    z = counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(start)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def shuffled(start: int, first: int, n: int) -> npt.NDArray[np.int64]:
    """The numbers 0 to n - 1 in random order; each piece of one long shuffle has its own `first`."""
    counters = np.arange(first, first + n, dtype=np.uint64)
    return np.argsort(draw(start, counters), kind="stable").astype(np.int64)


def spread(index: npt.NDArray[np.int64], picks: int, total: int) -> npt.NDArray[np.bool_]:
    """Which of the positions `index` are picked, where exactly `picks` of all `total` positions are.

    Picks are spread as evenly as whole numbers allow. A pick does not depend on the other positions in
    `index`, so pieces of one whole can be decided separately.
    """
    if not total:
        return np.zeros(len(index), bool)
    return (index + 1) * picks // total > index * picks // total


def share_of(total: int, piece: int, pieces: int) -> tuple[int, int]:
    """Start and end of piece number `piece` when 0..total is cut into `pieces` of nearly equal size."""
    return total * piece // pieces, total * (piece + 1) // pieces


def onto_a_third(keys: pa.Array, greatest: int, seed: int) -> pa.Array:
    """`keys` (int64, from 1 to `greatest`, no nulls) mapped onto a third of their range, row by row.

    This makes RFC-84's workload out of lineitem, which then has three rows per different key
    (l_orderkey, l_linenumber): 60 million rows and 20 million keys at scale factor 10. Order key k becomes

        1 + 6 * (h(seed, k) mod floor(greatest / 18))

    where h is the 64-bit hash of `draw`. TPC-H uses every fourth number as an order key. An order has one
    to seven lines, numbered from 1, so orders with the same new number share only the line numbers that
    both have. Every sixth number gives 4.5 orders each, and 0.330 different keys per row. Line numbers
    do not change.
    """
    slots = max(1, greatest // (_SHARE_OF_RANGE * _STRIDE))
    chance = draw(stream(seed, "key_range"), keys.to_numpy().astype(np.uint64))
    return pa.array((1 + _STRIDE * (chance % np.uint64(slots))).astype(np.int64))
