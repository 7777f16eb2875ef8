"""Fingerprints and differences: equal contents are equal, and every kind of difference is seen."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import SchemaError
from serde_lab.verify.contents import fingerprint, first_difference, in_words
from serde_lab.verify.row_hash import hash_values

LIST = pa.list_(pa.int64())
MAP = pa.map_(pa.string(), pa.int64())
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])

DISTINCT: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integers": (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    "booleans": (pa.bool_(), [None, False, True]),
    "doubles": (pa.float64(), [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.0]),
    "floats": (pa.float32(), [None, 0.0, -0.0, math.nan, 1.5]),
    "decimals": (
        pa.decimal128(38, 2),
        [None, *(Decimal(v) for v in ("0", "0.01", "-0.01", "184467440737095516.16", "1e30"))],
    ),
    "dates": (pa.date32(), [None, dt.date(1970, 1, 1), dt.date(1969, 12, 31)]),
    "text": (
        pa.string(),
        [
            *(None, "", "\0", "\0\0", "a", "a\0", "12345678", "12345678\0", "123456789"),
            *("\u00e9", "e\u0301", "x" * 600, "x" * 599 + "y", "NULL", "None"),
        ],
    ),
    "bytes": (pa.binary(), [None, b"", b"\0", b"\xff", b"\xff" * 8, b"\xff" * 9]),
    "lists": (LIST, [None, [], [None], [None, None], [0], [1, 2], [2, 1], [1, 2, None]]),
    "lists of lists": (
        pa.list_(LIST),
        [None, [], [None], [[]], [[], []], [[1], [2]], [[1, 2]], [[1], [2], []]],
    ),
    "maps": (
        MAP,
        [
            None,
            [],
            [("a", None)],
            [("a", 1)],
            [("a", 1), ("b", 2)],
            [("a", 2), ("b", 1)],
            [("", 1)],
        ],
    ),
    "structs": (
        STRUCT,
        [
            None,
            {"a": None, "b": None},
            {"a": 1, "b": None},
            {"a": None, "b": ""},
            {"a": 1, "b": "1"},
        ],
    ),
    "deep": (
        pa.list_(pa.struct([("m", MAP)])),
        [None, [], [None], [{"m": None}], [{"m": []}], [{"m": [("a", None)]}], [{"m": []}, None]],
    ),
}


@pytest.mark.parametrize("name", DISTINCT)
def test_different_values_hash_differently(name: str) -> None:
    kind, values = DISTINCT[name]
    assert len(set(hash_values(pa.array(values, kind)).tolist())) == len(values)


@pytest.mark.parametrize("name", DISTINCT)
def test_the_hash_does_not_see_slices_or_chunks(name: str) -> None:
    kind, values = DISTINCT[name]
    whole = pa.array(values, kind)
    hashes = hash_values(whole)
    for start in range(len(values)):
        assert (hash_values(whole.slice(start)) == hashes[start:]).all()
        assert (hash_values(whole.slice(0, start)) == hashes[:start]).all()
    chunked = pa.chunked_array([whole.slice(0, 1), whole.slice(1, 0), whole.slice(1)])
    assert (hash_values(chunked) == hashes).all()


LIKE: dict[str, tuple[list[Any], list[pa.DataType]]] = {
    "integers": ([1, -2, None], [pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
    "text": (["a", "", None, "long" * 5], [pa.string(), pa.large_string(), pa.string_view()]),
    "bytes": ([b"a", b"", None, b"x" * 20], [pa.binary(), pa.large_binary(), pa.binary_view()]),
    "decimals": (
        [Decimal("1.25"), Decimal("-0.01"), None],
        [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2)],
    ),
    "lists": ([[1, 2], [3, None]], [LIST, pa.large_list(pa.int8()), pa.list_(pa.int32(), 2)]),
}


@pytest.mark.parametrize("name", LIKE)
def test_layouts_of_a_value_hash_alike(name: str) -> None:
    values, kinds = LIKE[name]
    first = hash_values(pa.array(values, kinds[0]))
    for kind in kinds[1:]:
        assert (hash_values(pa.array(values, kind)) == first).all(), kind


def test_list_views_out_of_order_hash_as_lists() -> None:
    view = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 0], pa.int32()), pa.array([1, 2, 0], pa.int32()), pa.array([1, 2, 3])
    )
    assert (hash_values(view) == hash_values(pa.array([[3], [1, 2], []]))).all()


def test_what_stands_under_a_null_does_not_count() -> None:
    data = pa.array([7, 8], pa.int64()).buffers()[1]
    masked = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), data])
    assert (hash_values(masked) == hash_values(pa.array([7, None]))).all()


def test_every_nan_is_one_value_and_maps_have_no_order() -> None:
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64)
    assert len(set(hash_values(pa.array(bits.view(np.float64))).tolist())) == 1
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], MAP)
    assert len(set(hash_values(maps).tolist())) == 1


def test_a_type_without_equality_is_refused() -> None:
    with pytest.raises(SchemaError, match="month_day_nano_interval cannot be compared"):
        hash_values(pa.array([pa.MonthDayNano([1, 2, 3])]))


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2), st.text(max_size=1)).map(
        lambda values: dict(zip("kab", values, strict=True))
    ),
    max_size=6,
)
SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string())])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_fingerprints_equal_as_multisets_do(left: list[Any], right: list[Any], random: Any) -> None:
    """Small alphabets, so that equal tables, lost rows and doubled rows all come up often."""
    if random.random() < 0.5:
        right = list(left)
        random.shuffle(right)
        if right and random.random() < 0.5:
            right[0] = {**right[0], "b": right[-1]["b"]}
    mine, theirs = (pa.Table.from_pylist(rows, schema=SCHEMA) for rows in (left, right))
    same = sorted(map(repr, left)) == sorted(map(repr, right))
    assert (fingerprint(mine) == fingerprint(theirs)) == same
    assert (fingerprint(mine).digest == fingerprint(theirs).digest) == same
    difference = first_difference(mine, theirs, ["k"])
    assert (difference is None) == same
    assert (fingerprint(mine).difference(fingerprint(theirs)) is None) == same


def test_columns_are_compared_by_name_and_type() -> None:
    one = pa.table({"a": pa.array([1, 2], pa.int8()), "b": pa.array(["x", "y"], pa.string_view())})
    other = pa.table({"b": pa.array(["x", "y"]), "a": pa.array([1, 2], pa.int32())})
    assert fingerprint(one) == fingerprint(other)
    renamed = one.rename_columns(["b", "a"])
    assert fingerprint(one) != fingerprint(renamed)
    wider = one.set_column(0, "a", pa.array([1, 2], pa.int64()))
    assert (
        fingerprint(one).difference(fingerprint(wider))
        == "column a has the type int64, expected int32"
    )
    assert fingerprint(one).digest == fingerprint(wider).digest


def test_values_exchanged_between_columns_or_rows_are_seen() -> None:
    one = pa.table({"a": ["x", "y"], "b": ["y", "x"]})
    columns = pa.table({"a": ["y", "x"], "b": ["x", "y"]})
    rows = pa.table({"a": ["x", "y"], "b": ["x", "y"]})
    assert fingerprint(one) == fingerprint(columns)  # the same two rows in another order
    assert fingerprint(one) != fingerprint(rows)
    assert fingerprint(pa.table({"a": ["x"], "b": ["y"]})) != fingerprint(
        pa.table({"a": ["y"], "b": ["x"]})
    )


def test_meta_columns_are_left_out() -> None:
    data = pa.table({"a": [1]})
    stored = data.append_column("_hoodie_commit_time", [["1"]]).append_column(
        "_hoodie_operation", [["I"]]
    )
    assert fingerprint(stored) == fingerprint(data)
    assert first_difference(data, stored, ["a"]) is None


def test_the_first_difference_is_first_in_key_order() -> None:
    keys = [(b, a) for a in range(300) for b in ("z", "y")]
    one = pa.table({"s": [s for s, _ in keys], "n": [n for _, n in keys], "v": [0] * 600})
    values = [0] * 600
    for s, n in (("z", 3), ("y", 200), ("y", 31)):
        values[keys.index((s, n))] = 5
    other = one.set_column(2, "v", pa.array(values)).slice(1)
    difference = first_difference(
        one, pa.concat_tables([other.slice(300), other.slice(0, 300)]), ["s", "n"]
    )
    assert difference == (
        "3 rows differ of 600, first (in key order) s = 'y', n = 31: v is 5, expected 0. "
        "1 key is missing; first s = 'z', n = 0"
    )


def test_all_kinds_of_differences_are_counted() -> None:
    one = pa.table({"k": [1, 2, 3, 4, 4, 5], "v": [1, 2, 3, 4, 4, 5]})
    other = pa.table({"k": [2, 3, 3, 4, 5, 6], "v": [2, 3, 3, 4, 6, 6]})
    difference = first_difference(one, other, ["k"])
    assert difference == (
        "1 row differs of 6, first (in key order) k = 5: v is 6, expected 5. 1 key is missing; first k = 1. "
        "1 key is in fewer rows than expected; first k = 4. "
        "1 key is unexpected; first k = 6. "
        "1 key is in more rows than expected; first k = 3"
    )


def test_empty_tables() -> None:
    empty = SCHEMA.empty_table()
    assert fingerprint(empty).rows == 0
    assert first_difference(empty, empty, ["k"]) is None
    one = pa.Table.from_pylist([{"k": 1, "a": 1, "b": "x"}], schema=SCHEMA)
    assert first_difference(empty, one, ["k"]) == "1 key is unexpected; first k = 1"


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (None, pa.string(), "null"),
        ("", pa.string(), "''"),
        ("null", pa.string(), "'null'"),
        (-0.0, pa.float64(), "-0.0"),
        (math.nan, pa.float64(), "NaN"),
        (True, pa.bool_(), "true"),
        (b"\x00\xff", pa.binary(), "0x00ff"),
        (Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (dt.date(1992, 1, 2), pa.date32(), "1992-01-02"),
        (dt.datetime(1992, 1, 2), pa.timestamp("us"), "1992-01-02 00:00:00.000000"),
        ([], LIST, "[]"),
        ("x" * 100, pa.string(), "'" + "x" * 79 + "… (102 characters)"),
        (2**62, pa.timestamp("us", "UTC"), "4611686018427387904 as timestamp[us, tz=UTC]"),
    ],
)
def test_values_in_words(value: Any, kind: pa.DataType, words: str) -> None:
    assert in_words(pa.scalar(value, kind)) == words
