"""Converts input rows of older or narrower schemas to the table's types, value by value, for the oracle.

The rule for widened columns is implemented here independently of `records.schema_evolution`, which the writer
and the reader use: two implementations find more errors than one. It is slow, and used only where types
differ.

Source: how Apache Hudi 1.2.0 reads tables whose columns were widened (`tests/peers/test_evolved_tables.py`
verifies it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.schema import storage_type

Change = Callable[[Any], Any]


def in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, by name; columns missing from the batch are null."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        values = batch.column(field.name)
        if storage_type(values.type) == storage_type(field.type):
            columns.append(values.cast(field.type))
            continue
        change = _change(values.type, field.type)
        columns.append(pa.array([change(value) for value in values.to_pylist()], field.type))
    return pa.record_batch(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _change(narrow: pa.DataType, wide: pa.DataType) -> Change:
    change = _change_of_there(narrow, wide)
    return lambda value: None if value is None else change(value)


def _change_of_there(narrow: pa.DataType, wide: pa.DataType) -> Change:
    if pat.is_struct(wide) and pat.is_struct(narrow):
        old = {field.name: field.type for field in narrow}
        fields = {f.name: _change(old[f.name], f.type) for f in wide if f.name in old}
        return lambda value: {
            f.name: fields[f.name](value[f.name]) if f.name in fields else None for f in wide
        }
    if pat.is_list(wide) and pat.is_list(narrow):
        item = _change(narrow.value_type, wide.value_type)
        return lambda value: [item(one) for one in value]
    if pat.is_map(wide) and pat.is_map(narrow):
        item = _change(narrow.item_type, wide.item_type)
        return lambda value: [(key, item(one)) for key, one in value]
    if pat.is_string(wide) and pat.is_binary(narrow):
        return bytes.decode
    if pat.is_binary(wide) and pat.is_string(narrow):
        return str.encode
    if pat.is_string(wide) and pat.is_floating(narrow):
        return lambda value: _java(value, narrow)
    if pat.is_string(wide) and pat.is_integer(narrow):
        return str
    if pat.is_float64(wide) and pat.is_float32(narrow):
        return lambda value: float(str(np.float32(value)))
    if pat.is_float32(wide) and pat.is_integer(narrow):
        return lambda value: float(np.float32(value))
    if pat.is_float64(wide) and pat.is_integer(narrow):
        return float
    return lambda value: value


def _java(value: float, kind: pa.DataType) -> str:
    """The text that Double.toString or Float.toString gives."""
    number = np.float32(value) if pat.is_float32(kind) else np.float64(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0")
    digits, _, power = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    return f"{digits}E{int(power)}"
