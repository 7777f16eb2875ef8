"""Rows made up for any schema: of every type that is supported, by the seed, and fit to be keyed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from serde_lab.lab.checks.stand_alone import made_up_rows
from serde_lab.records.schema import RecordSchema

TYPES = {
    "boolean": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(38, 10),
    "short decimal": pa.decimal128(3, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp with zone": pa.timestamp("us", "UTC"),
    "list": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "three levels": pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.decimal128(9, 2)))])),
}


def schema(t: pa.DataType) -> RecordSchema:
    data = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("value", t)])
    return RecordSchema(data, ("key",), (), ("ts",))


@pytest.mark.parametrize("kind", TYPES)
def test_every_type(kind: str) -> None:
    batch = made_up_rows(schema(TYPES[kind]), 300, seed=1)
    batch.validate(full=True)
    assert batch.schema == schema(TYPES[kind]).data
    value = batch.column("value")
    assert 0 < value.null_count < 150
    different = {str(one) for one in value.to_pylist()}
    assert len(different) > (2 if kind == "boolean" else 100)


def test_what_tells_and_orders_records_is_never_null() -> None:
    batch = made_up_rows(schema(pa.int32()), 500, seed=1)
    assert batch.column("key").null_count == batch.column("ts").null_count == 0
    assert len(set(batch.column("key").to_pylist())) == 500


def test_they_follow_the_seed() -> None:
    one, other = (made_up_rows(schema(pa.string()), 50, seed) for seed in (1, 2))
    assert one.equals(made_up_rows(schema(pa.string()), 50, 1))
    assert not set(one.column("key").to_pylist()) & set(other.column("key").to_pylist())
