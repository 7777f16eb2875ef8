"""A projection applied to Python values: what `pickle` and `avro` by rows do, one value at a time.

Values are those of `python_values.py`. A column whose numbers change by way of their digits is changed as
an Arrow column (`projection/columns.py`), since nothing in Python writes numbers as Java does. Owns the
functions that change a value; a column that does not change costs no call. Must not know strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.avro.schema import decimal_bytes
from serde_lab.errors import DataError
from serde_lab.records.plain_form import reinterpret, to_plain
from serde_lab.records.types import is_decimal, is_list
from serde_lab.serde.projection.columns import changed
from serde_lab.serde.projection.plan import Change, TargetColumn
from serde_lab.serde.python_values import PythonForm

ToValue = Callable[[Any], Any]


def new_value(column: TargetColumn, form: PythonForm, t: pa.DataType | None = None) -> Any:
    """The value of a new column in every row; `t` is its type under other names of fields."""
    if column.default is None:
        return None
    value = to_plain(pa.repeat(column.default, 1))
    return form.values(value if t is None else reinterpret(value, t))[0]


def changed_values(values: Sequence[Any], column: TargetColumn, form: PythonForm) -> Sequence[Any]:
    """The values of a column that has a source. Raises DataError naming the column."""
    if column.change is None:
        return values
    if column.change.by_digits:
        # what Java makes of numbers is known for columns
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
    """A function from a value that is not None to the changed one; None where they are the same."""
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
        # by way of a double it would be rounded twice
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
