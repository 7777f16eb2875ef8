"""Maps lineitem's orders onto a third of their key range, so that rows share keys.

Owns the function that makes RFC-84's workload out of TPC-H: its rows are three times as many as their
different keys (l_orderkey, l_linenumber), 60 million and 20 million at scale factor 10. An order of key
k becomes

    1 + 6 * (h(seed, k) mod floor(greatest / 18))

with h the 64-bit hash of `tpch.draws` and `greatest` the greatest key that there is: a third of the
range, of which every sixth number is used. TPC-H itself uses every fourth number, and an order has one
to seven lines, numbered from 1, so that orders on one number share only the lines that both have:
every sixth number gives 4.5 orders each, and 0.330 different keys a row. Line numbers stay. Must not
know files or scenarios.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tpch.draws import draw, stream

_SHARE_OF_RANGE = 3
_STRIDE = 6


def onto_a_third(keys: pa.Array, greatest: int, seed: int) -> pa.Array:
    """The keys that `keys` (int64, from 1 to `greatest`, no nulls) become, in the same order."""
    slots = max(1, greatest // (_SHARE_OF_RANGE * _STRIDE))
    chance = draw(stream(seed, "key_range"), keys.to_numpy().astype(np.uint64))
    return pa.array((1 + _STRIDE * (chance % np.uint64(slots))).astype(np.int64))
