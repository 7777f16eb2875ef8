"""Decimals as their unscaled integers: how they come from engines that hold them so.

Owns the way between an int64 and a 128-bit decimal column, without arithmetic. Must not know who hands
such columns over.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

LONGEST = 18
"""Digits that always fit an int64."""


def scaled(unscaled: pa.Int64Array, kind: pa.Decimal128Type) -> pa.Array:
    """Decimals of type `kind` (at most LONGEST digits) whose unscaled values are given."""
    low = np.frombuffer(unscaled.buffers()[1] or b"", np.int64, len(unscaled), unscaled.offset * 8)
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = low
    np.right_shift(low, 63, out=words[:, 1])  # the sign, repeated
    validity = None
    if unscaled.null_count:
        held = unscaled.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(held, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(unscaled), [validity, pa.py_buffer(words)], unscaled.null_count
    )
