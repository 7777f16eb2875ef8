"""Which schemas follow one another, and rows of one in the form of the next."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.conversion import evolved, fit
from serde_lab.records.schema import storage_type
from serde_lab.serde.conformance.values import LISTS

INNER = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.int32())])))])
WIDER_INNER = pa.struct(
    [
        ("new", pa.string()),
        ("l", pa.list_(pa.struct([("y", pa.bool_()), ("x", pa.string())]))),
        ("a", pa.int64()),
    ]
)


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def test_the_tables_columns_come_first_each_in_the_wider_type() -> None:
    table = schema(a=pa.int32(), b=pa.float64(), s=pa.struct([("x", pa.int32())]))
    batch = schema(
        new=pa.bool_(),
        s=pa.struct([("y", pa.int32()), ("x", pa.int64())]),
        b=pa.int32(),
        a=pa.int64(),
    )
    assert evolved(table, batch, fill=False) == schema(
        a=pa.int64(),
        b=pa.float64(),
        s=pa.struct([("x", pa.int64()), ("y", pa.int32())]),
        new=pa.bool_(),
    )


def test_a_column_left_out_is_refused_by_name_unless_it_is_to_be_null() -> None:
    table, batch = schema(a=INNER, b=pa.int32()), schema(a=pa.struct([("a", pa.int32())]))
    with pytest.raises(SchemaError, match=r"'a\.l' of the table.*null\.for\.missing\.columns"):
        evolved(table, batch, fill=False)
    assert evolved(table, batch, fill=True) == table


@pytest.mark.parametrize(
    ("table", "batch", "column"),
    [
        (pa.int32(), pa.bool_(), "c"),
        (pa.date32(), pa.int32(), "c"),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), "c"),
        (pa.list_(pa.int32()), pa.list_(pa.date32()), r"c\.element"),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.binary())]), r"c\.x"),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.bool_()), r"c\.value"),
        (pa.list_(pa.int32()), pa.int32(), "c"),
    ],
)
def test_types_that_do_not_go_together_are_refused_by_name(
    table: pa.DataType, batch: pa.DataType, column: str
) -> None:
    with pytest.raises(SchemaError, match=f"column '{column}' is of type"):
        evolved(schema(c=table), schema(c=batch), fill=True)


@pytest.mark.parametrize(
    ("narrow", "wide", "values", "expected"),
    [
        (pa.int32(), pa.int64(), [1, None], [1, None]),
        (pa.int64(), pa.float64(), [2**53 + 1], [float(2**53)]),
        (pa.int32(), pa.float32(), [16777217], [16777216.0]),
        (pa.int64(), pa.string(), [-5, None], ["-5", None]),
        (pa.float32(), pa.float64(), [0.1, None], [0.1, None]),
        # Java writes two digits: 1.4E-45
        (pa.float32(), pa.float64(), [1e-45, float("-inf")], [1.4e-45, float("-inf")]),
        (pa.float32(), pa.string(), [1e10, 0.1], ["1.0E10", "0.1"]),
        (pa.float64(), pa.string(), [1.0, float("nan")], ["1.0", "NaN"]),
        (pa.decimal128(9, 2), pa.decimal128(38, 2), [Decimal("-1.25")], [Decimal("-1.25")]),
        (pa.string(), pa.binary(), ["é"], ["é".encode()]),
    ],
)
def test_values_become_what_hudi_makes_of_them(
    narrow: pa.DataType, wide: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    assert fit(pa.array(values, narrow), wide).to_pylist() == expected
    nested = fit(pa.array([values, None, []], pa.list_(narrow)), pa.list_(wide))
    assert nested.to_pylist() == [expected, None, []]


def test_nested_fields_are_told_by_name_in_slices_too() -> None:
    rows = [
        {"a": 1, "l": [{"x": 1}]},
        None,
        {"a": None, "l": None},
        {"a": 2, "l": [None, {"x": 3}]},
    ]
    found = fit(pa.array(rows, INNER), WIDER_INNER)
    found.validate(full=True)
    assert found.to_pylist() == [
        {"new": None, "l": [{"y": None, "x": "1"}], "a": 1},
        None,
        {"new": None, "l": None, "a": None},
        {"new": None, "l": [None, {"y": None, "x": "3"}], "a": 2},
    ]
    assert fit(pa.array(rows, INNER).slice(2), WIDER_INNER).equals(found.slice(2))
    kind = pa.map_(pa.string(), pa.int32())
    pairs = pa.array([[("k", 1)], None, [("l", None), ("m", 2)]], kind)
    wide = fit(pairs.slice(1), pa.map_(pa.string(), pa.int64()))
    wide.validate(full=True)
    assert wide.to_pylist() == [None, [("l", None), ("m", 2)]]


@pytest.mark.parametrize("layout", LISTS)
@pytest.mark.parametrize("inner", [pa.int16(), pa.string_view(), pa.list_view(pa.int64())])
def test_lists_of_every_layout_become_lists(layout: str, inner: pa.DataType) -> None:
    """Arrow's own cast of a view leaves out its last offset."""
    one: Any = {"int16": 1, "string_view": "a"}.get(str(inner), [1])
    rows = [[one], [], None, [one, None, one], [one]]
    lists = pa.array(rows, LISTS[layout](inner))
    struct = pa.StructArray.from_arrays([lists], ["l"])
    for values, expected in ((lists, rows), (struct, [{"l": row} for row in rows])):
        for first in range(len(rows)):
            found = fit(values.slice(first), storage_type(values.type))
            found.validate(full=True)
            assert found.to_pylist() == expected[first:]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(DataError, match="UTF-8"):
        fit(pa.array([b"\xff"]), pa.string())
