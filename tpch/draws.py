"""Random choices that are the same on every machine and with every version of numpy.

Owns the one source of chance of `tpch`: a counter hashed by SplitMix64 (Steele, Lea, Flood: Fast
splittable pseudorandom number generators, 2014). numpy's own generators may change their streams
between versions, and the checksums of derived data are compared across machines.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt


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
