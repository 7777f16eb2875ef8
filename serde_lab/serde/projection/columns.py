"""A projection applied to Arrow columns: what `arrow` and `avro` by columns do, and what all fall back to.

Takes and gives plain arrays (`records/plain_form.py`). Owns the change of a whole column; must not know
strategies or how they hold their columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DataError
from serde_lab.records.plain_form import (
    null_mask,
    reinterpret,
    to_plain,
    validity_buffer,
)
from serde_lab.records.schema_evolution import fit
from serde_lab.records.types import is_list
from serde_lab.serde.projection.plan import Change, Projection, TargetColumn

Mask = npt.NDArray[np.bool_]


def projected(
    projection: Projection,
    column_of: Callable[[int, int], pa.Array],
    rows: int,
    present: Mask | None,
) -> list[pa.Array]:
    """The target's data columns in plain form.

    `column_of` gives a plain data column by side and number; `present` says which records have a row
    (None: all), since an index record has none whatever is joined to it.
    Raises DataError naming a column with a value that the new type cannot hold.
    """
    found = []
    for column in projection.columns:
        if column.source is None:
            found.append(new_column(column, rows, present))
            continue
        side, number = column.source
        array = column_of(side, number)
        if column.change is not None:
            array = changed(array, column.change, column.name)
        if side and present is not None:
            array = to_plain(array.take(pa.array(np.arange(rows), mask=~present)))
        found.append(array)
    return found


def new_column(column: TargetColumn, rows: int, present: Mask | None) -> pa.Array:
    """A column of its default; null without one, and where there is no row."""
    if column.default is None:
        return to_plain(pa.nulls(rows, column.type))
    array = pa.repeat(column.default, rows)
    if present is not None:
        array = array.take(pa.array(np.arange(rows), mask=~present))
    return to_plain(array)


def changed(array: pa.Array, change: Change, name: str) -> pa.Array:
    """A plain array of type `change.before` as one of `change.after`."""
    t = change.after
    if not change.is_nested:
        if change.only_names:
            return reinterpret(array, t)
        try:
            return to_plain(fit(array, t))
        except DataError as exc:
            raise DataError(f"column {name!r} cannot become {t}: {exc.message}") from exc
    validity = validity_buffer(null_mask(array))
    if pat.is_struct(t):
        children = [
            to_plain(pa.nulls(len(array), field.type))
            if number is None
            else _inner(array.field(number), inner, name)
            for field, (number, inner) in zip(t, change.children, strict=True)
        ]
        return pa.Array.from_buffers(t, len(array), [validity], array.null_count, 0, children)
    buffers = [validity, array.buffers()[1]]
    if is_list(t):
        children = [_inner(array.values, change.children[0][1], name)]
    else:
        items = _inner(array.items, change.children[1][1], name)
        pairs = [array.keys, items]
        children = [pa.StructArray.from_arrays(pairs, fields=[t.key_field, t.item_field])]
    return pa.Array.from_buffers(t, len(array), buffers, array.null_count, 0, children)


def _inner(array: pa.Array, change: Change | None, name: str) -> pa.Array:
    return array if change is None else changed(array, change, name)
