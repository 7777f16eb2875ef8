"""Applies a projection to Arrow columns, or to Python values one at a time.

`arrow`, the batch execution of `avro` and `record_verbs.py` use columns, in plain form
(`records/plain_form.py`). `pickle` and the row execution of `avro` use the values of `python_values.py`. A
column whose numbers are converted by their digits is converted as an Arrow column even there, since
nothing in Python writes numbers as Java does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.avro.schema import decimal_bytes
from serde_lab.errors import DataError
from serde_lab.records.conversion import fit
from serde_lab.records.plain_form import null_mask, reinterpret, to_plain, validity_buffer
from serde_lab.records.schema import is_decimal, is_list
from serde_lab.serde.projection.plan import Change, Projection, TargetColumn
from serde_lab.serde.python_values import PythonForm

Mask = npt.NDArray[np.bool_]


def projected(
    projection: Projection,
    column_of: Callable[[int, int], pa.Array],
    is_index: pa.BooleanArray,
) -> list[pa.Array]:
    """The target's data columns in plain form.

    `column_of` returns a plain data column by side and number. `is_index` says which records are index
    records: these have no row, even after a join.
    Raises DataError naming a column with a value that the new type cannot hold.
    """
    rows, present = len(is_index), None
    if pc.any(is_index).as_py():
        present = ~is_index.to_numpy(zero_copy_only=False)
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
    """A new column: its default in every record with a row, null without a default or a row."""
    if column.default is None:
        return to_plain(pa.nulls(rows, column.type))
    array = pa.repeat(column.default, rows)
    if present is not None:
        array = array.take(pa.array(np.arange(rows), mask=~present))
    return to_plain(array)


def changed(array: pa.Array, change: Change, name: str) -> pa.Array:
    """A plain array of type `change.before`, converted to `change.after`."""
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


ToValue = Callable[[Any], Any]


def new_value(column: TargetColumn, form: PythonForm, t: pa.DataType | None = None) -> Any:
    """The value of a new column in every row; `t` is its type if its fields have other names."""
    if column.default is None:
        return None
    value = to_plain(pa.repeat(column.default, 1))
    return form.values(value if t is None else reinterpret(value, t))[0]


def changed_values(values: Sequence[Any], column: TargetColumn, form: PythonForm) -> Sequence[Any]:
    """The values of a column that has a source, converted. Raises DataError naming the column."""
    if column.change is None:
        return values
    if column.change.by_digits:
        # Java's text of numbers is implemented for columns only
        before = form.array(values, column.change.before)
        return form.values(changed(before, column.change, column.name))
    change = value_change(column.change, form)
    if change is None:
        return values
    try:
        return [None if v is None else change(v) for v in values]
    except UnicodeDecodeError as exc:
        raise DataError(
            f"column {column.name!r} cannot become {column.type}: a value is not UTF-8: {exc}"
        ) from exc


def value_change(change: Change, form: PythonForm) -> ToValue | None:
    """A function that converts a value that is not None; None if the value stays the same."""
    if not change.is_nested:
        return _promotion(change.before, change.after, form)
    inner = [None if c is None else value_change(c, form) for _, c in change.children]
    if pat.is_struct(change.after):
        return _struct_change(change, inner, form)
    to_item = inner[-1]
    if to_item is None:
        return None
    item = _or_none(to_item)
    if is_list(change.after):
        return lambda value: [item(v) for v in value]
    if form.map_as_dict:
        return lambda value: {k: item(v) for k, v in value.items()}
    return lambda value: [(k, item(v)) for k, v in value]


def _or_none(change: ToValue) -> ToValue:
    return lambda value: None if value is None else change(value)


def _struct_change(
    change: Change, inner: Sequence[ToValue | None], form: PythonForm
) -> ToValue | None:
    changes = [None if c is None else _or_none(c) for c in inner]
    numbers = [number for number, _ in change.children]
    if not form.struct_as_dict:
        if numbers == list(range(change.before.num_fields)) and not any(changes):
            return None
        plan: list[Any] = list(zip(numbers, changes, strict=True))
        return lambda row: tuple(
            None if at is None else row[at] if to is None else to(row[at]) for at, to in plan
        )
    olds = [None if n is None else change.before.field(n).name for n in numbers]
    named = list(zip([f.name for f in change.after], olds, changes, strict=True))
    return lambda row: {
        name: None if old is None else row[old] if to is None else to(row[old])
        for name, old, to in named
    }


def _promotion(before: pa.DataType, after: pa.DataType, form: PythonForm) -> ToValue | None:
    if pat.is_integer(before) and pat.is_floating(after):
        if pat.is_float64(after):
            return float
        # converting to a double first would round twice
        return lambda value: float(np.int64(value).astype(np.float32))
    if pat.is_string(before) and pat.is_binary(after):
        return str.encode
    if pat.is_binary(before) and pat.is_string(after):
        return bytes.decode
    if is_decimal(before):
        factor = 10 ** (after.scale - before.scale)
        if not form.decimal_as_bytes:
            return None if factor == 1 else lambda value: value * factor
        size = decimal_bytes(after.precision)
        if factor == 1 and size == decimal_bytes(before.precision):
            return None
        return lambda value: (int.from_bytes(value, "big", signed=True) * factor).to_bytes(
            size, "big", signed=True
        )
    return None
