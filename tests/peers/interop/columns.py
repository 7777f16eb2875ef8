"""Columns of each group of types, and rows of them; who a row is, is the same in every group."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

IDENTITY: dict[str, pa.DataType] = {
    "k": pa.string(),
    "n": pa.int64(),
    "o": pa.int64(),
    "p": pa.string(),
    "q": pa.date32(),
}

COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "numbers": {
        "flag": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "single": pa.float32(),
        "double": pa.float64(),
        "price": pa.decimal128(15, 2),
        "huge": pa.decimal128(38, 10),
    },
    "text, bytes, times": {
        "text": pa.string(),
        "blob": pa.binary(),
        "day": pa.date32(),
        "moment": pa.timestamp("us", "UTC"),
    },
    "nested": {
        "numbers": pa.list_(pa.int32()),
        "counts": pa.map_(pa.string(), pa.int64()),
        "nested": pa.struct([("a", pa.string()), ("b", pa.struct([("c", pa.decimal128(9, 3))]))]),
        # two fields: Apache Hudi cannot read back a list of structs of one (readers.toml)
        "deep": pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.float64())), ("x", pa.int32())])),
    },
    "narrow, large and view types": {
        "tiny": pa.int8(),
        "short": pa.int16(),
        "large_text": pa.large_string(),
        "large_blob": pa.large_binary(),
        "text_view": pa.string_view(),
        "blob_view": pa.binary_view(),
        "large_list": pa.large_list(pa.int64()),
    },
    "lists with nulls": {"holes": pa.list_(pa.int32())},
    "timestamps without zone": {"local": pa.timestamp("us")},
}


def schema_of(types: str) -> pa.Schema:
    """The columns of a table of that group."""
    return pa.schema([*IDENTITY.items(), *COLUMNS[types].items()])


def rows(types: str, numbers: Iterable[int], ordering: int, note: str) -> list[dict[str, Any]]:
    """Rows of one ordering value; every fourth is null wherever it may be."""
    return [_row(types, number, ordering, note) for number in numbers]


def _row(types: str, number: int, ordering: int, note: str) -> dict[str, Any]:
    identity = {
        "k": f"ü😀 {number % 7}",
        "n": number,
        "o": ordering,
        "p": f"part {number % 2}",
        "q": dt.date(2024, 2, 28 + number % 2),
    }
    if number % 4 == 3:
        return identity
    values = _values(number, ordering, note)
    return identity | {name: values[name] for name in COLUMNS[types]}


def _values(number: int, ordering: int, note: str) -> dict[str, Any]:
    text = f"{note} {number}\u0000ü😀"
    return {
        "flag": number % 2 == 0,
        "int": 2**31 - 1 - number,
        "long": -(2**63) + number,
        "single": number / 8,
        "double": -0.0 if number % 5 == 0 else number / 3,
        "price": Decimal(f"-{number}.{ordering % 100:02d}"),
        "huge": Decimal("1234567890123456789012345678.0123456789"),
        "text": text,
        "blob": bytes([number % 256, 0, 255]),
        "day": dt.date(1969, 12, 1 + number % 28),
        "moment": dt.datetime(1969, 12, 31, 23, 59, 59, number, tzinfo=dt.UTC),
        "numbers": list(range(number % 3)),
        "counts": [(f"n{n}", n + ordering if n else None) for n in range(number % 3)],
        "nested": {"a": text, "b": {"c": Decimal("-1.250")} if number % 2 else None},
        "deep": [{"m": [("x", float(number)), ("y", None)], "x": None}, {"m": [], "x": number}],
        "tiny": number % 256 - 128,
        "short": -number,
        "large_text": text,
        "large_blob": bytes([255, number % 256]),
        "text_view": f"{text}, and longer than what stands in a view itself",
        "blob_view": bytes(range(number % 40)),
        "large_list": list(range(number % 4)),
        "holes": [number, None, ordering],
        "local": dt.datetime(1969, 12, 31, 23, 59, 59, number),
    }
