"""Compares two batches to the bit and says where they first differ; the conformance kit uses it.

Types and nulls must be equal, -0.0 differs from 0.0, and every NaN equals every NaN (Python, numpy and
Arrow do not keep the bits inside a NaN). The bytes under a null and the layout in memory are ignored.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.records.plain_form import null_mask, to_plain
from serde_lab.records.types import is_list


def first_difference(found: pa.RecordBatch, expected: pa.RecordBatch) -> str | None:
    """None if `found` equals `expected`, else a sentence that names column, row and values."""
    if not found.schema.equals(expected.schema):
        return f"the schema is {found.schema}, expected {expected.schema}"
    if len(found) != len(expected):
        return f"there are {len(found)} rows, expected {len(expected)}"
    for name, a, b in zip(expected.schema.names, found.columns, expected.columns, strict=True):
        rows = np.flatnonzero(_differs(to_plain(a), to_plain(b)))
        if len(rows):
            row = int(rows[0])
            return f"column {name!r}, row {row}: {_show(a, row)}, expected {_show(b, row)}"
    return None


def _show(array: pa.Array, row: int) -> str:
    return str(array.slice(row, 1)).replace("\n", "")[:200]


def _differs(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Where two plain arrays of one type and length differ, row by row."""
    differs = np.zeros(len(a), np.bool_)
    masks = [m if (m := null_mask(x)) is not None else np.zeros(len(a), np.bool_) for x in (a, b)]
    differs |= masks[0] != masks[1]
    t = a.type
    if not len(a):
        return differs
    if pat.is_struct(t):
        for i in range(t.num_fields):
            differs |= _differs(a.field(i), b.field(i))
    elif is_list(t) or pat.is_map(t):
        ends = [np.frombuffer(x.buffers()[1], np.int32, len(x) + 1) for x in (a, b)]
        differs |= np.diff(ends[0]) != np.diff(ends[1])
        if not differs.any():
            children = [(x.keys, x.items) if pat.is_map(t) else (x.values,) for x in (a, b)]
            of_item = np.repeat(np.arange(len(a)), np.diff(ends[0]))
            for left, right in zip(*children, strict=True):
                differs[of_item[_differs(left, right)]] = True
    elif pat.is_floating(t):
        bits = np.int32 if t == pa.float32() else np.int64
        values = [np.frombuffer(x.buffers()[1], f"f{t.bit_width // 8}", len(x)) for x in (a, b)]
        same = values[0].view(bits) == values[1].view(bits)
        differs |= ~(same | (np.isnan(values[0]) & np.isnan(values[1])))
    else:
        # null in both is equal; null in one is already in `differs`
        equal = pc.equal(a, b).fill_null(True)
        differs |= ~equal.to_numpy(zero_copy_only=False)
    return differs
