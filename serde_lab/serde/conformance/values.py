"""Provides the conformance kit with types and values: kinds of types, awkward values, and drawn ones.

Awkward values are those at which serialisers have failed before. `REFUSED` has types that every strategy
refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st

from serde_lab.records.schema import child_fields, is_binary, is_decimal, is_list, is_string

_YEAR_1_DAY, _YEAR_9999_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000
_YEAR_1_US, _YEAR_9999_US = _YEAR_1_DAY * _DAY_US, (_YEAR_9999_DAY + 1) * _DAY_US - 1
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "+05:30")

LEAVES: dict[str, st.SearchStrategy[pa.DataType]] = {
    "bool": st.just(pa.bool_()),
    "int8": st.just(pa.int8()),
    "int16": st.just(pa.int16()),
    "int32": st.just(pa.int32()),
    "int64": st.just(pa.int64()),
    "float": st.just(pa.float32()),
    "double": st.just(pa.float64()),
    "decimal": st.one_of(
        st.sampled_from([pa.decimal128(9, 2), pa.decimal128(15, 2), pa.decimal128(38, 10)]),
        st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
    ),
    "string": st.just(pa.string()),
    "large_string": st.just(pa.large_string()),
    "string_view": st.just(pa.string_view()),
    "binary": st.just(pa.binary()),
    "large_binary": st.just(pa.large_binary()),
    "binary_view": st.just(pa.binary_view()),
    "date": st.just(pa.date32()),
    "timestamp": st.just(pa.timestamp("us")),
    "timestamp_zone": st.sampled_from(_ZONES).map(lambda zone: pa.timestamp("us", zone)),
}
LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
NESTED = (*LISTS, "map", "struct")
KINDS: frozenset[str] = frozenset([*LEAVES, *NESTED])
"""Every kind of type that the project supports; a plug-in may declare fewer."""

PATTERNS = ("none", "some", "all")
"""How many values of a column are null."""

REFUSED: dict[str, pa.DataType] = {
    "unsigned": pa.uint32(),
    "time32": pa.time32("ms"),
    "time64": pa.time64("us"),
    "duration": pa.duration("us"),
    "half-float": pa.float16(),
    "union": pa.sparse_union([pa.field("a", pa.int32()), pa.field("b", pa.string())]),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "nanoseconds": pa.timestamp("ns"),
    "decimal256": pa.decimal256(50, 2),
    "null": pa.null(),
    "fixed_size_binary": pa.binary(4),
    "month interval": pa.month_day_nano_interval(),
    "unsigned in a list": pa.list_(pa.uint8()),
    "map with integer keys": pa.map_(pa.int32(), pa.string()),
    "four levels": pa.list_(pa.list_(pa.list_(pa.list_(pa.int32())))),
}
"""Types that every strategy refuses, by description."""


def kind_of(t: pa.DataType) -> str:
    """The name of `t` among KINDS."""
    names = {
        pa.bool_(): "bool",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.date32(): "date",
    }
    if is_decimal(t):
        return "decimal"
    if pat.is_timestamp(t):
        return "timestamp" if t.tz is None else "timestamp_zone"
    if pat.is_map(t) or pat.is_struct(t) or is_list(t):
        return str(t).partition("<")[0]
    return names.get(t, str(t))


@st.composite
def types(draw: st.DrawFn, kinds: frozenset[str], max_depth: int) -> pa.DataType:
    """A type of one of `kinds`, nested at most `max_depth` levels."""
    allowed = kinds if max_depth else kinds - set(NESTED)
    return draw(type_of(draw(st.sampled_from(sorted(allowed))), kinds, max_depth))


@st.composite
def type_of(draw: st.DrawFn, kind: str, kinds: frozenset[str], max_depth: int) -> pa.DataType:
    """A type of this kind; a nested type has children of `kinds`."""
    if kind in LEAVES:
        return draw(LEAVES[kind])
    inner = types(kinds, max_depth - 1)
    if kind in LISTS:
        return LISTS[kind](draw(inner))
    if kind == "map":
        keys = sorted({"string", "large_string", "string_view"} & kinds)
        return pa.map_(draw(LEAVES[draw(st.sampled_from(keys))]), draw(inner))
    members = draw(st.lists(inner, min_size=1, max_size=3))
    names = ["a", "Ünï code", "c"]
    return pa.struct([pa.field(names[i], t) for i, t in enumerate(members)])


def around(t: pa.DataType, kinds: frozenset[str]) -> pa.DataType:
    """A nested type of `kinds` that contains `t`: a list if lists are supported."""
    for kind, make in LISTS.items():
        if kind in kinds:
            return make(t)
    return pa.struct([pa.field("a", t)]) if "struct" in kinds else pa.map_(pa.string(), t)


def awkward(t: pa.DataType) -> list[Any]:
    """Values of a leaf type at which serialisers have failed before."""
    if pat.is_boolean(t):
        return [True, False]
    if pat.is_integer(t):
        top = 2 ** (t.bit_width - 1)
        return [-top, -1, 0, 1, top - 1]
    if pat.is_floating(t):
        info = np.finfo(t.to_pandas_dtype())
        edges = [float(info.max), float(info.smallest_subnormal), float(info.min)]
        return [float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 0.1, *edges]
    if is_decimal(t):
        nines = 10**t.precision - 1
        return [_decimal(unscaled, t.scale) for unscaled in (-nines, -1, 0, 1, nines)]
    if is_string(t):
        texts = ["", "\0", "a\0", " ", "é", "\ufeff", "\ud7ff\ue000", "😀\U0010ffff", "e\u0301"]
        return [*texts, '"quoted", \\ and\nnew line', "x" * 300]
    if is_binary(t):
        return [b"", b"\0", b"\xff\xfe", bytes(range(256)), b"\xa1\x01", b"y" * 300]
    if pat.is_date(t):
        return [_YEAR_1_DAY, -141_428, -1, 0, 1, _YEAR_9999_DAY]
    return [_YEAR_1_US, -_DAY_US - 1, -1, 0, 1, _YEAR_9999_US]


def _decimal(unscaled: int, scale: int) -> Decimal:
    # build the decimal from its digits, since arithmetic rounds to 28 digits
    digits = tuple(int(d) for d in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def values(t: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values for `pa.array(…, t)`, never null at the top."""
    if is_list(t):
        return st.lists(_nullable(values(t.value_type)), max_size=3)
    if pat.is_map(t):
        entries = st.dictionaries(values(t.key_type), _nullable(values(t.item_type)), max_size=2)
        return entries.map(lambda d: list(d.items()))
    if pat.is_struct(t):
        return st.fixed_dictionaries({f.name: _nullable(values(f.type)) for f in t})
    return st.one_of(st.sampled_from(awkward(t)), _ordinary(t))


def _nullable(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(inner, inner, st.none())


def _ordinary(t: pa.DataType) -> st.SearchStrategy[Any]:
    if pat.is_boolean(t):
        return st.booleans()
    if pat.is_integer(t):
        top = 2 ** (t.bit_width - 1)
        return st.integers(-top, top - 1)
    if pat.is_floating(t):
        return st.floats(width=t.bit_width)
    if is_decimal(t):
        top = 10**t.precision - 1
        return st.integers(-top, top).map(lambda unscaled: _decimal(unscaled, t.scale))
    if is_string(t):
        return st.text(max_size=8)
    if is_binary(t):
        return st.binary(max_size=8)
    if pat.is_date(t):
        return st.integers(_YEAR_1_DAY, _YEAR_9999_DAY)
    return st.integers(_YEAR_1_US, _YEAR_9999_US)


def fixed_types(kind: str) -> list[pa.DataType]:
    if kind == "decimal":
        shapes = ((1, 0), (9, 2), (10, 9), (18, 18), (19, 0), (38, 10), (38, 38))
        return [pa.decimal128(p, s) for p, s in shapes]
    if kind == "timestamp_zone":
        return [pa.timestamp("us", zone) for zone in _ZONES]
    plain = {"float": pa.float32(), "double": pa.float64(), "date": pa.date32()}
    plain |= {"bool": pa.bool_(), "timestamp": pa.timestamp("us")}
    return [plain[kind] if kind in plain else getattr(pa, kind)()]


def fixed_type(kind: str) -> pa.DataType:
    """A type of `kind`, always the same."""
    if kind in LISTS:
        return LISTS[kind](pa.int32())
    if kind == "map":
        return pa.map_(pa.string(), pa.int32())
    return pa.struct([pa.field("a", pa.int32())]) if kind == "struct" else fixed_types(kind)[0]


def types_inside(t: pa.DataType) -> Iterable[pa.DataType]:
    for f in child_fields(t):
        yield f.type
        yield from types_inside(f.type)
