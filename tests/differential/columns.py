"""The columns that histories draw from, with values at the edges of each type, as JSON writes them.

A history holds values in this form throughout (dates and decimals as text, bytes as hexadecimal), so
that a row on paper is the row that was tried; `to_arrow` and `plain` lead to Arrow and back.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

NAN, INFINITY = float("nan"), float("inf")


@dataclass(frozen=True)
class Column:
    """A type and the values that are drawn of it; of an ordering column they stand in order."""

    type: pa.DataType
    values: tuple[Any, ...]


CATALOGUE: Mapping[str, Column] = {
    "flag": Column(pa.bool_(), (False, True)),
    "tiny": Column(pa.int8(), (-128, -1, 0, 1, 127)),
    "short": Column(pa.int16(), (-(2**15), 0, 2**15 - 1)),
    "int": Column(pa.int32(), (-(2**31), -1, 0, 1, 2, 2**31 - 1)),
    "long": Column(pa.int64(), (-(2**63), -1, 0, 1, 2, 2**63 - 1)),
    "single": Column(pa.float32(), (-INFINITY, -1.5, -0.0, 0.0, 0.1, INFINITY, NAN)),
    "double": Column(pa.float64(), (-INFINITY, -1.5, -0.0, 0.0, 5e-324, 0.1, INFINITY, NAN)),
    "price": Column(
        pa.decimal128(15, 2), ("-9999999999999.99", "-0.01", "0.00", "0.10", "9999999999999.99")
    ),
    "huge": Column(
        pa.decimal128(38, 10), (f"-{'9' * 28}.{'9' * 10}", "0E-10", f"{'9' * 28}.{'9' * 10}")
    ),
    # U+FF41 stands below the emoji by bytes of UTF-8, above it by units of UTF-16
    "text": Column(pa.string(), ("", "\0", "a", "b", "ü", "\uff41", "\U0001f600")),
    "blob": Column(pa.binary(), ("", "00", "ff00", "c3a9")),
    "day": Column(
        pa.date32(),
        # between the two days of 1582 the calendars differ
        ("0001-01-01", "1582-10-04", "1582-10-15", "1899-12-31", "1970-01-01", "9999-12-31"),
    ),
    "moment": Column(
        pa.timestamp("us", "UTC"),
        (
            "0001-01-01T00:00:00+00:00",
            "1582-10-04T23:59:59.999999+00:00",
            "1899-12-31T23:59:59.999999+00:00",
            "1969-12-31T23:59:59.999999+00:00",
            "1970-01-01T00:00:00+00:00",
            "2024-02-29T12:00:00.000001+00:00",
            "9999-12-31T23:59:59.999999+00:00",
        ),
    ),
    "local": Column(
        pa.timestamp("us"),
        (
            "0001-01-01T00:00:00",
            "1582-10-15T00:00:00",
            "1900-01-01T00:00:00",
            "9999-12-31T23:59:59.999999",
        ),
    ),
    "_hoodie_is_deleted": Column(pa.bool_(), (False, False, True)),
    "mark": Column(pa.string(), ("", "D", "d", "I")),
    "Op": Column(pa.string(), ("", "D", "d", "I")),
    "_change_operation_type": Column(pa.string(), ("", "D", "d", "u", "c")),
    "numbers": Column(pa.list_(pa.int32()), ([], [0], [1, -1])),
    "counts": Column(pa.map_(pa.string(), pa.int64()), ([], [["a", None]], [["a", 1], ["ü", 2]])),
    "nested": Column(
        pa.struct([("a", pa.string()), ("b", pa.struct([("c", pa.int64())]))]),
        ({"a": None, "b": None}, {"a": "", "b": {"c": None}}, {"a": "ü", "b": {"c": 1}}),
    ),
    # what `nested` becomes where its members change
    "grown": Column(
        pa.struct(
            [
                ("a", pa.string()),
                ("b", pa.struct([("c", pa.float64()), ("d", pa.list_(pa.int32()))])),
            ]
        ),
        (
            {"a": None, "b": None},
            {"a": "", "b": {"c": -0.0, "d": None}},
            {"a": "ü", "b": {"c": None, "d": [1]}},
        ),
    ),
}
"""Columns by name; each name is also the name of its type where a role (key, ordering) has one."""

MARKS = ("_hoodie_is_deleted", "mark", "Op", "_change_operation_type")
"""Columns that say that their row deletes its key."""

PLAIN = tuple(sorted(CATALOGUE.keys() - set(MARKS)))
"""Columns that say nothing of what becomes of their row."""

KEYS: Mapping[str, tuple[Any, ...]] = {
    # the last two alone make a range of keys that is empty in the order of UTF-16 units
    "text": ("a", "b", "", "x,y:z", "é\U0001f600", "\uff41", "\U0001f600"),
    "int": (0, -1, 2**31 - 1, 7),
    "long": (0, -1, 2**63 - 1, 7),
    "price": ("0.00", "-0.10", "100.00", "0.01"),
    "day": ("1970-01-01", "1969-12-31", "2024-02-29"),
    "flag": (False, True),
}
"""Key values by type, a few: histories are about what happens to one key."""

PARTITIONS: Mapping[str, tuple[Any, ...]] = {
    "text": ("x", "y", "z"),
    "blanks": ("x", " x", "x ", " ", "x y"),
    "signs": ("a.b", ".a", "a..b", "100%", "a%20b", "a+b", "a&b", "(a)", "a'b"),
    "letters": ("ü", "中文", "Ωx", "\U0001f600", "u\u0308"),
    "escaped": ("x", "a/b ü=1%", "a:b", "a=b", "%2F", "/", "a?b", "a#b", "[x]", "{x}", "*"),
    "int": (0, -1, 7),
    "day": ("1970-01-01", "1969-12-31", "0001-01-01"),
    "flag": (False, True),
}
"""Partition values by the name of their group; those of `TEXTS` are texts."""

TEXTS = ("text", "blanks", "signs", "letters", "escaped")


def to_arrow(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as they are written; what a row does not name is null."""
    columns = [
        pa.array([_value(row.get(field.name), field.type) for row in rows], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of Arrow in the form of this module; nulls are left out."""
    columns = {
        name: [_plain(value, table.schema.field(name).type) for value in table[name].to_pylist()]
        for name in table.column_names
    }
    return [
        {name: values[at] for name, values in columns.items() if values[at] is not None}
        for at in range(len(table))
    ]


def line(row: Mapping[str, Any]) -> str:
    """A row as one line: equal lines are equal rows, NaN and the sign of zero included."""
    return json.dumps({k: v for k, v in row.items() if v is not None}, ensure_ascii=False)


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pat.is_decimal(kind):
        return Decimal(value)
    if pat.is_binary(kind):
        return bytes.fromhex(value)
    if pat.is_date(kind):
        return dt.date.fromisoformat(value)
    if pat.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    if pat.is_map(kind):
        return [tuple(entry) for entry in value]
    return value


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pat.is_decimal(kind):
        return str(value)
    if pat.is_binary(kind):
        return value.hex()
    if pat.is_date(kind) or pat.is_timestamp(kind):
        return value.isoformat()
    if pat.is_map(kind):
        return [list(entry) for entry in sorted(value)]
    return value
