"""Makes rows with random values for every column of a schema, reproducible by a seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import SchemaError
from serde_lab.records.schema import RecordSchema, columns_of

_NULLS = 1 / 8
_MOST_ITEMS = 3


def made_up_rows(schema: RecordSchema, rows: int, seed: int) -> pa.RecordBatch:
    """`rows` rows of `schema.data`; columns of key, partition and ordering fields have no nulls."""
    rng = np.random.default_rng([seed, rows])
    roles = set(columns_of([*schema.record_key, *schema.partition, *schema.ordering]))
    columns = []
    for field in schema.data:
        values = _values(field.type, rows, rng)
        if field.nullable and field.name not in roles:
            missing = rng.random(rows) < _NULLS
            # `take` gives null for a null index, for every type
            values = values.take(pa.array(np.arange(rows), mask=missing))
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, schema=schema.data)


def _values(t: pa.DataType, n: int, rng: np.random.Generator) -> pa.Array:
    if pat.is_boolean(t):
        return pa.array(rng.random(n) < 0.5)
    if pat.is_floating(t):
        return pa.array(rng.standard_normal(n) * 1e6).cast(t)
    if pat.is_integer(t):
        top = 2 ** (t.bit_width - 1)
        return pa.array(rng.integers(-top, top - 1, n, endpoint=True), pa.int64()).cast(t)
    if pat.is_date(t):
        return pa.array(rng.integers(-20_000, 40_000, n).astype(np.int32)).cast(t)
    if pat.is_timestamp(t):
        return pa.array(rng.integers(-(10**15), 4 * 10**15, n)).cast(t)
    if pat.is_decimal(t):
        return _decimals(t, n, rng)
    if pat.is_string(t):
        return pa.array([rng.bytes(8 + length).hex() for length in _lengths(n, rng)])
    if pat.is_binary(t):
        return pa.array([rng.bytes(8 + length) for length in _lengths(n, rng)])
    return _nested(t, n, rng)


def _nested(t: pa.DataType, n: int, rng: np.random.Generator) -> pa.Array:
    if pat.is_struct(t):
        members = [_values(t.field(i).type, n, rng) for i in range(t.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(t))
    ends = np.concatenate([[0], np.cumsum(_lengths(n, rng))]).astype(np.int32)
    items = int(ends[-1])
    if pat.is_map(t):
        keys, values = _values(t.key_type, items, rng), _values(t.item_type, items, rng)
        return pa.MapArray.from_arrays(pa.array(ends), keys, values).cast(t)
    if pat.is_list(t):
        return pa.ListArray.from_arrays(pa.array(ends), _values(t.value_type, items, rng)).cast(t)
    raise SchemaError(f"cannot make up values of type {t}")


def _lengths(n: int, rng: np.random.Generator) -> list[int]:
    lengths: list[int] = rng.integers(0, _MOST_ITEMS, n, endpoint=True).tolist()
    return lengths


def _decimals(t: pa.DataType, n: int, rng: np.random.Generator) -> pa.Array:
    """Decimals of at most 18 digits, so that the high half of their 16 bytes holds only the sign."""
    top = 10 ** min(t.precision, 18)
    low = rng.integers(-top + 1, top, n)
    halves = np.stack([low, low >> 63], axis=1).astype(np.int64)
    return pa.Array.from_buffers(t, n, [None, pa.py_buffer(halves.tobytes())])
