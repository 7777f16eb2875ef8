"""Batches that a strategy must survive: drawn by hypothesis, and a fixed one of awkward values.

Owns the kinds of types, their awkward values, and the count of what was reached. Must not know
strategies or laws (`conformance.py`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st

from serde_lab.records.plain_form import (
    from_plain,
    from_plain_batch,
    null_mask,
    to_plain,
    to_plain_batch,
)
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RecordSchema
from serde_lab.records.types import child_fields, depth, is_binary, is_decimal, is_list, is_string

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
"""Types that every strategy refuses, by what they are."""


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
    """A type of this kind; if it is nested, around types of `kinds`."""
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
    # by digits: arithmetic would round to 28 of them
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


_ENVELOPES = st.tuples(
    st.one_of(st.text(max_size=12), st.sampled_from(["id:1", "a:1,b:2", "k" * 300])),
    st.sampled_from(["", "2024-01-01", "dt=2024/é=ü"]),
    st.sampled_from(["", "00000003-5c2f-4a6b-9d1e-0123456789ab-0"]),
    st.sampled_from(["", "20240102030405678", "I", "U"]),
    st.sampled_from(["", "I", "-U", "+U", "D"]),
    # most records have a row
    st.integers(0, 7).map(lambda n: n == 7),
)


def batch_of(
    data: pa.Schema, columns: Sequence[Sequence[Any]], envelopes: Sequence[Sequence[Any]]
) -> tuple[RecordSchema, pa.RecordBatch]:
    """A schema and a batch from Python values; index records lose their data."""
    schema = RecordSchema(data, record_key=(data.names[0],))
    parts = list(zip(*envelopes, strict=True)) or [()] * len(ENVELOPE)
    index = parts[ENVELOPE.get_field_index(IS_INDEX_RECORD)]
    arrays = [pa.array(list(part), f.type) for part, f in zip(parts, ENVELOPE, strict=True)]
    for given, f in zip(columns, data, strict=True):
        kept = [None if is_index else v for v, is_index in zip(given, index, strict=True)]
        arrays.append(pa.array(kept, f.type))
    return schema, pa.record_batch(arrays, schema=schema.batch_schema)


@st.composite
def cases(
    draw: st.DrawFn,
    kinds: frozenset[str] = KINDS,
    max_depth: int = 3,
    min_rows: int = 0,
    max_rows: int = 6,
    first: tuple[str, str] | None = None,
) -> tuple[RecordSchema, pa.RecordBatch]:
    """A schema and a batch of it, which may be a slice of a larger one (offsets, other rows around).

    `first` fixes kind and null pattern of the first column.
    """
    rows = draw(st.integers(min_rows, max_rows))
    before, after = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (3, 2), (9, 1)]))
    total = before + rows + after
    fields, columns = [], []
    for i in range(draw(st.integers(1, 4))):
        directed = first if i == 0 else None
        t = draw(
            types(kinds, max_depth) if directed is None else type_of(directed[0], kinds, max_depth)
        )
        fields.append(pa.field(draw(st.sampled_from(["c", "名", "c d", "_x"])) + str(i), t))
        pattern = draw(st.sampled_from(PATTERNS)) if directed is None else directed[1]
        value = values(t)
        if pattern == "all":
            columns.append([None] * total)
            continue
        column = draw(st.lists(value, min_size=total, max_size=total))
        if pattern == "some" and rows:
            holes = draw(st.sets(st.integers(0, total - 1), max_size=total))
            holes.add(before + draw(st.integers(0, rows - 1)))
            column = [None if n in holes else v for n, v in enumerate(column)]
        columns.append(column)
    envelopes = draw(st.lists(_ENVELOPES, min_size=total, max_size=total))
    schema, batch = batch_of(pa.schema(fields), columns, envelopes)
    return schema, batch.slice(before, rows)


def awkward_case(
    kinds: frozenset[str] = KINDS, max_depth: int = 3
) -> tuple[RecordSchema, pa.RecordBatch]:
    """One batch with a column per kind, and per kind of nesting, of all awkward values and nulls."""
    leaves = [t for kind in LEAVES if kind in kinds for t in _fixed_types(kind)]
    columns: list[tuple[pa.DataType, list[Any]]] = [(t, [*awkward(t), None]) for t in leaves]
    for level in range(max_depth):
        text, inner, some = columns[-1 - level][0], *columns[level % len(columns)]
        pair = [some[0], None, some[-2]]
        columns += [(make(inner), [some, [], pair]) for k, make in LISTS.items() if k in kinds]
        if "map" in kinds:
            entries = [(f"k{n}\0é", v) for n, v in enumerate(some)]
            columns.append((pa.map_(pa.string(), inner), [entries, [], entries[:1]]))
        if "struct" in kinds:
            t = pa.struct([pa.field("a", inner), pa.field("b", text)])
            columns.append((t, [{"a": v, "b": None} for v in pair]))
        if level and columns[-1][0] != columns[-2][0]:
            columns += [
                (pa.list_(t), [[v[0]], [None, v[-1]], []])
                for t, v in columns[-6:]
                if depth(t) < max_depth and "list" in kinds
            ]
    columns = [(t, v) for t, v in columns if depth(t) <= max_depth]
    rows = max(len(v) for _, v in columns) + 2
    fields = [pa.field(f"c{i}", t) for i, (t, _) in enumerate(columns)]
    filled = [list(itertools.islice(itertools.cycle([*v, None]), rows)) for _, v in columns]
    envelopes = [
        (
            f"key-{n}\0é😀",
            ("", "dt=2024-01-01")[n % 2],
            ("", "00000003-5c2f-4a6b-9d1e-0123456789ab-0")[n % 2],
            ("", "20240102030405678")[n % 2],
            ("", "I", "-U", "+U", "D")[n % 5],
            n % 7 == 6,
        )
        for n in range(rows)
    ]
    return batch_of(pa.schema(fields), filled, envelopes)


def golden_case(
    kinds: frozenset[str] = KINDS, max_depth: int = 3
) -> tuple[RecordSchema, pa.RecordBatch]:
    """A smaller awkward batch, for golden frames: every leaf kind, some of the nested columns."""
    schema, batch = awkward_case(kinds, max_depth)
    nested = [f for f in schema.data if depth(f.type)]
    fields = [f for f in schema.data if not depth(f.type)] + nested[::4]
    small = RecordSchema(pa.schema(fields), record_key=(fields[0].name,))
    return small, batch.select(small.batch_schema.names).slice(3, 5)


def _fixed_types(kind: str) -> list[pa.DataType]:
    if kind == "decimal":
        shapes = ((1, 0), (9, 2), (10, 9), (18, 18), (19, 0), (38, 10), (38, 38))
        return [pa.decimal128(p, s) for p, s in shapes]
    if kind == "timestamp_zone":
        return [pa.timestamp("us", zone) for zone in _ZONES]
    plain = {"float": pa.float32(), "double": pa.float64(), "date": pa.date32()}
    plain |= {"bool": pa.bool_(), "timestamp": pa.timestamp("us")}
    return [plain[kind] if kind in plain else getattr(pa, kind)()]


def split(
    case: tuple[RecordSchema, pa.RecordBatch], width: int
) -> list[tuple[RecordSchema, pa.RecordBatch]]:
    """`case` as several of at most `width` data columns."""
    data = case[0].data
    parts = []
    for start in range(0, len(data), width):
        names = data.names[start : start + width]
        schema = RecordSchema(pa.schema([data.field(n) for n in names]), record_key=(names[0],))
        parts.append((schema, case[1].select([*ENVELOPE.names, *names])))
    return parts


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An equal batch without offsets, made from Python values where those are exact."""
    return _rebuilt(batch, lambda array: _from_python(array))


def _from_python(array: pa.Array) -> pa.Array:
    inner = [array.type, *_inside(array.type)]
    if any(pat.is_timestamp(t) or pat.is_floating(t) for t in inner):
        # Python has no times outside years 1 to 9999 in some zones, and one NaN
        return from_plain(to_plain(array), array.type)
    return pa.array(array.to_pylist(), array.type)


def with_garbage_under_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An equal batch, in plain layout, in which bytes stand under the nulls."""
    return _rebuilt(batch, lambda array: from_plain(_garbage(to_plain(array)), array.type))


def _garbage(array: pa.Array) -> pa.Array:
    mask = null_mask(array)
    t = array.type
    if mask is None or pat.is_struct(t) or pat.is_map(t):
        return array
    if is_list(t):
        # null lists take over the items of the list behind them
        if not len(array.values):
            return array
        offsets = np.frombuffer(array.buffers()[1], np.int32).copy()
        spare = pa.concat_arrays([array.values, array.values])
        sizes = np.diff(offsets)
        sizes[mask] = 1
        items = np.where(np.repeat(mask, sizes), 0, -1)
        items[items < 0] = np.arange(len(array.values))
        child = spare.take(pa.array(items))
        buffers = [
            array.buffers()[0],
            pa.py_buffer(np.append(0, np.cumsum(sizes)).astype(np.int32)),
        ]
        return pa.Array.from_buffers(t, len(array), buffers, array.null_count, 0, [child])
    if is_string(t) or is_binary(t):
        filled = array.fill_null("garbage" if is_string(t) else b"garbage")
        buffers = [array.buffers()[0], *filled.buffers()[1:]]
        return pa.Array.from_buffers(t, len(array), buffers, array.null_count)
    values = bytearray(array.buffers()[1].to_pybytes())
    if pat.is_boolean(t):
        bits = np.packbits(mask, bitorder="little")
        values[: len(bits)] = bytes(np.frombuffer(values, np.uint8, len(bits)) | bits)
    else:
        width = t.bit_width // 8
        for row in np.flatnonzero(mask).tolist():
            values[row * width : (row + 1) * width] = b"\x5a" * width
    buffers = [array.buffers()[0], pa.py_buffer(bytes(values))]
    return pa.Array.from_buffers(t, len(array), buffers, array.null_count)


def _rebuilt(batch: pa.RecordBatch, change: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    return pa.record_batch([change(column) for column in batch.columns], schema=batch.schema)


def taken(batch: pa.RecordBatch, indices: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The rows at `indices`; Arrow takes them on the plain form, which has every type."""
    plain = to_plain_batch(batch)
    arrays = [column.take(pa.array(indices)) for column in plain.columns]
    plain = pa.record_batch(arrays, schema=plain.schema)
    return from_plain_batch(plain, batch.schema)


def joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of `parts`, which have one schema."""
    plain = pa.concat_batches([to_plain_batch(part) for part in parts])
    return from_plain_batch(plain, parts[0].schema)


def fixed_type(kind: str) -> pa.DataType:
    """A type of `kind`, always the same."""
    if kind in LISTS:
        return LISTS[kind](pa.int32())
    if kind == "map":
        return pa.map_(pa.string(), pa.int32())
    return pa.struct([pa.field("a", pa.int32())]) if kind == "struct" else _fixed_types(kind)[0]


@dataclass(slots=True)
class Reached:
    """Counts what examples have reached: types, null patterns, depths, numbers of rows."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, schema: RecordSchema, batch: pa.RecordBatch) -> None:
        """Count the types, null patterns and depths of `batch`."""
        self.counts[f"rows: {'many' if len(batch) > 1 else len(batch)}"] += 1
        for f in schema.data:
            column = batch.column(f.name)
            self.counts[f"depth: {depth(f.type)}"] += 1
            if len(batch):
                nulls = column.null_count
                pattern = "none" if not nulls else "all" if nulls == len(batch) else "some"
                self.counts[f"{kind_of(f.type)}: {pattern} null"] += 1
            for t in _inside(f.type):
                self.counts[f"{kind_of(t)}: nested"] += 1

    def missing(self, kinds: frozenset[str], max_depth: int) -> list[str]:
        """What should have been reached and was not."""
        wanted = [f"rows: {n}" for n in ("0", "1", "many")]
        wanted += [f"depth: {n}" for n in range(max_depth + 1)]
        wanted += [f"{kind}: {p} null" for kind in sorted(kinds) for p in PATTERNS]
        if max_depth:
            inner = kinds if max_depth > 1 else kinds - set(NESTED)
            wanted += [f"{kind}: nested" for kind in sorted(inner)]
        return [name for name in wanted if not self.counts[name]]


def _inside(t: pa.DataType) -> Iterable[pa.DataType]:
    for f in child_fields(t):
        yield f.type
        yield from _inside(f.type)
