"""Converts Arrow columns to lists of Python values and back, for strategies whose records are Python objects.

Values are physical, as in a Java record of Hudi: a date is its days since 1970, a timestamp its
microseconds, a decimal its unscaled number. This keeps the round trip exact (a `datetime` ends in year
9999, a `timestamp` does not) and is the cheapest form in Python. Null is None.

| type                 | Python value                                              |
|----------------------|-----------------------------------------------------------|
| bool                 | bool                                                      |
| int8 to int64        | int                                                       |
| float, double        | float (a float widened, exactly)                          |
| decimal              | int; or bytes, big-endian two's complement, as Avro's fixed |
| string / binary      | str / bytes                                               |
| date / timestamp     | int                                                       |
| list                 | list                                                      |
| map                  | list of (key, value); or dict                             |
| struct               | tuple of its fields' values; or dict                      |

Conversion is column by column, and vectorised where Python objects allow it. Arrays are in plain form
(`records/plain_form.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.avro.schema import decimal_bytes
from serde_lab.records.plain_form import null_mask, reinterpret, validity_buffer

_LOW = (1 << 64) - 1
BLOCK_ROWS = 2048
"""Rows converted together, so few that their values are in the CPU's caches when they are read again."""


@dataclass(frozen=True, slots=True)
class PythonForm:
    """Which of two Python forms structs, maps and decimals take."""

    struct_as_dict: bool = False
    map_as_dict: bool = False
    decimal_as_bytes: bool = False

    def values(self, array: pa.Array) -> list[Any]:
        t = array.type
        if not len(array):
            return []
        if pat.is_decimal(t):
            return _with_nulls(self._decimals(array), array)
        if pat.is_date(t) or pat.is_timestamp(t):
            array = reinterpret(array, _physical(t))
        if pat.is_map(t):
            pairs: Any = list(zip(array.keys.to_pylist(), self.values(array.items), strict=True))
            maps = _slices(pairs, array)
            return _with_nulls([dict(m) for m in maps] if self.map_as_dict else maps, array)
        if pat.is_list(t):
            return _with_nulls(_slices(self.values(array.values), array), array)
        if pat.is_struct(t):
            rows: Any = zip(*self.columns(array.flatten()), strict=True)
            names = [f.name for f in t]
            if self.struct_as_dict:
                rows = [dict(zip(names, row, strict=True)) for row in rows]
            return _with_nulls(list(rows), array)
        values: list[Any] = array.to_pylist()
        return values

    def columns(self, arrays: Iterable[pa.Array]) -> list[list[Any]]:
        """The values of several plain arrays."""
        return [self.values(array) for array in arrays]

    def array(self, values: Sequence[Any], t: pa.DataType) -> pa.Array:
        """The array of plain type `t` with these values.

        Raises TypeError, ValueError, KeyError, OverflowError or pa.ArrowInvalid for values of another type.
        """
        if pat.is_decimal(t):
            return self._decimal_array(values, t)
        if pat.is_date(t) or pat.is_timestamp(t):
            return reinterpret(pa.array(values, _physical(t)), t)
        if pat.is_map(t):
            return self._map_array(values, t)
        if pat.is_list(t):
            nulls, lists, offsets = _lists(values)
            child = self.array(list(chain.from_iterable(lists)), t.value_type)
            buffers = [validity_buffer(nulls), pa.py_buffer(offsets)]
            return pa.Array.from_buffers(t, len(values), buffers, -1, 0, [child])
        if pat.is_struct(t):
            return self._struct_array(values, t)
        return pa.array(values, t)

    def _decimals(self, array: pa.Array) -> list[Any]:
        precision, rows = array.type.precision, len(array)
        halves = np.frombuffer(array.buffers()[1], np.int64, 2 * rows)
        if self.decimal_as_bytes:
            size = decimal_bytes(precision)
            swapped = np.empty((rows, 2), ">i8")
            swapped[:, 0], swapped[:, 1] = halves[1::2], halves[::2]
            # numpy's tolist makes bytes of elements of type void
            return np.ndarray((rows,), f"V{size}", swapped, 16 - size, (16,)).tolist()
        if precision <= 18:
            low: list[Any] = halves[::2].tolist()
            return low
        high, low = halves[1::2].tolist(), halves[::2].view(np.uint64).tolist()
        return [(h << 64) + w for h, w in zip(high, low, strict=True)]

    def _decimal_array(self, values: Sequence[Any], t: pa.DataType) -> pa.Array:
        nulls = _nulls(values)
        halves = np.zeros((len(values), 2), np.int64)
        filled: Sequence[Any]
        if self.decimal_as_bytes:
            size = decimal_bytes(t.precision)
            filled = values if nulls is None else [bytes(size) if v is None else v for v in values]
            joined = b"".join(filled)
            if set(map(len, filled)) - {size}:
                raise ValueError(f"a decimal does not have {size} bytes")
            digits = np.frombuffer(joined, np.uint8).reshape(len(values), size)
            wide = np.empty((len(values), 16), np.uint8)
            wide[:, 16 - size :] = digits
            # the sign fills the bytes above
            wide[:, : 16 - size] = np.where(digits[:, :1] > 0x7F, 0xFF, 0)
            halves[:, 0] = wide.view(">i8")[:, 1]
            halves[:, 1] = wide.view(">i8")[:, 0]
        else:
            filled = values if nulls is None else [0 if v is None else v for v in values]
            if t.precision <= 18:
                halves[:, 0] = filled
                halves[:, 1] = halves[:, 0] >> 63
            else:
                halves[:, 0] = np.array([v & _LOW for v in filled], np.uint64).view(np.int64)
                halves[:, 1] = [v >> 64 for v in filled]
        buffers = [validity_buffer(nulls), pa.py_buffer(halves)]
        found = pa.Array.from_buffers(t, len(values), buffers, -1)
        # refuse decimals with more digits than the type's precision
        found.validate(full=True)
        return found

    def _map_array(self, values: Sequence[Any], t: pa.DataType) -> pa.Array:
        if self.map_as_dict:
            values = [None if v is None else list(v.items()) for v in values]
        nulls, lists, offsets = _lists(values)
        pairs = list(chain.from_iterable(lists))
        keys = pa.array([key for key, _ in pairs], t.key_type)
        if keys.null_count:
            raise ValueError("a map has null as a key")
        items = self.array([value for _, value in pairs], t.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[t.key_field, t.item_field])
        buffers = [validity_buffer(nulls), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(t, len(values), buffers, -1, 0, [entries])

    def _struct_array(self, values: Sequence[Any], t: pa.DataType) -> pa.Array:
        nulls, width = _nulls(values), t.num_fields
        columns: Sequence[Sequence[Any]]
        if self.struct_as_dict:
            columns = [[None if v is None else v[f.name] for v in values] for f in t]
        else:
            none = (None,) * width
            rows = values if nulls is None else [none if v is None else v for v in values]
            columns = transposed(rows, width)
        children = [self.array(c, f.type) for c, f in zip(columns, t, strict=True)]
        return pa.Array.from_buffers(t, len(values), [validity_buffer(nulls)], -1, 0, children)


def transposed(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """The columns of `rows`. Raises ValueError for a row that has not `width` values."""
    if set(map(len, rows)) - {width}:
        raise ValueError(f"a row does not have {width} values")
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _physical(t: pa.DataType) -> pa.DataType:
    return pa.int32() if pat.is_date(t) else pa.int64()


def _slices(items: list[Any], array: pa.Array) -> list[list[Any]]:
    ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1).tolist()
    return [items[a:b] for a, b in pairwise(ends)]


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    mask = null_mask(array)
    if mask is None:
        return values
    return [None if null else v for null, v in zip(mask.tolist(), values, strict=True)]


def _nulls(values: Sequence[Any]) -> npt.NDArray[np.bool_] | None:
    """A mask of the values that are None; None if there are none."""
    if None not in values:
        return None
    return np.fromiter((v is None for v in values), np.bool_, len(values))


def _lists(
    values: Sequence[Any],
) -> tuple[npt.NDArray[np.bool_] | None, Sequence[Any], npt.NDArray[np.int32]]:
    nulls = _nulls(values)
    lists = values if nulls is None else [() if v is None else v for v in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=offsets[1:])
    return nulls, lists, offsets


def picked(rows: Sequence[Any], key: str | int) -> list[Any]:
    """One column of rows by position or name; None for the row of an index record, which is None."""
    if None in rows:
        return [None if row is None else row[key] for row in rows]
    return list(map(itemgetter(key), rows))
