"""Makes test cases for the verbs of the record API: pairs of batches, before and after a verb.

Expected values are columns of the batch itself, casts by Arrow, or Python values written here; they never
come from code that strategies use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.plain_form import from_plain, to_plain
from serde_lab.records.schema import ENVELOPE, FILE_ID, INSTANT_TIME, IS_INDEX_RECORD, RecordSchema
from serde_lab.serde.conformance.cases import batch_of
from serde_lab.serde.conformance.values import LEAVES, awkward, fixed_type, fixed_types
from serde_lab.serde.record_verbs import MetadataValues

Case = tuple[RecordSchema, pa.RecordBatch]
LocationPairs = list[tuple[str | None, str | None]]
"""File id and instant time of each record, or None for both."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Records before and after a change of schema."""

    before: Case
    after: Case
    renames: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)


def places(batch: pa.RecordBatch) -> tuple[LocationPairs, LocationPairs]:
    """Where the records of `batch` are stored, and where the write of instant 20990101 puts them."""
    files, instants = (batch.column(name).to_pylist() for name in (FILE_ID, INSTANT_TIME))
    current = [
        (f, i) if f and i != "I" else (None, None) for f, i in zip(files, instants, strict=True)
    ]
    return current, [(f, "20990101") if f else (None, None) for f in files]


def metadata(rows: int) -> list[MetadataValues]:
    """Values to set for this many records: one for all, and one each, of various lengths."""
    each = [
        ("", "é😀", "00000003-5c2f-4a6b-9d1e-0123456789ab-0", "f" * 300)[n % 4] for n in range(rows)
    ]
    times = [("20240102030405678", "I", "", "U")[n % 4] for n in range(rows)]
    return [
        MetadataValues(),
        MetadataValues(file_id="00000007-aaaa-0", instant_time="20240102030405678", operation="D"),
        MetadataValues(file_id="", instant_time="", operation=""),
        MetadataValues(operation=pa.array([("I", "-U", "+U", "D")[n % 4] for n in range(rows)], pa.string())),
        MetadataValues(file_id=pa.array(each, pa.string())),
        MetadataValues(
            file_id=pa.array(each[::-1], pa.string()),
            instant_time=pa.array(times, pa.string()),
            operation="+U",
        ),
    ]  # fmt: skip


def rearranged(case: Case, kinds: frozenset[str], picks: Sequence[int]) -> Rewriting:
    """Columns of `case` chosen by `picks`: some left out, reordered or renamed, and some new ones."""
    schema, batch = case
    names = schema.data.names
    is_index = batch.column(IS_INDEX_RECORD).to_pylist()
    leaves = sorted(kinds & set(LEAVES))
    renames: dict[str, str] = {}
    defaults: dict[str, object] = {}
    fields: list[pa.Field] = []
    columns: list[pa.Array] = []
    used: set[str] = set()
    for number, pick in enumerate([*picks, 0]):
        old = names[pick % len(names)]
        if pick >= 200:
            t = fixed_type(leaves[pick % len(leaves)])
            value = awkward(t)[pick % 2] if pick % 3 else None
            name = f"new {number}"
            if value is not None:
                defaults[name] = value
            column = pa.array([None if i else value for i in is_index], t)
        elif old in used:
            continue
        else:
            used.add(old)
            t, column = schema.data.field(old).type, batch.column(old)
            name = f"é {number}" if pick >= 100 else old
            if pick >= 100:
                renames[name] = old
        fields.append(pa.field(name, t))
        columns.append(column)
    target = RecordSchema(pa.schema(fields), (fields[0].name,))
    after = pa.record_batch([*batch.columns[: len(ENVELOPE)], *columns], schema=target.batch_schema)
    return Rewriting(case, (target, after), renames, defaults)


def exchanged_names(kinds: frozenset[str]) -> Iterator[Rewriting]:
    """Columns of one type that swap positions or names, or whose old name goes to a new column."""
    t = fixed_type(min(kinds & set(LEAVES)))
    one, other = awkward(t)[:2]
    envelopes = [("k0", "", "", "", "I", False), ("k1", "", "", "", "I", True)]
    envelopes += [("k2", "p", "f", "2024", "D", False)]
    values = {"a": [one, None, other], "b": [other, None, None]}

    def of(**columns: str | None) -> Case:
        data = pa.schema([pa.field(name, t) for name in columns])
        rows = [[None] * 3 if n is None else values[n] for n in columns.values()]
        return batch_of(data, rows, envelopes)

    before = of(a="a", b="b")
    yield Rewriting(before, of(b="b", a="a"))
    yield Rewriting(before, of(a="b", b="a"), {"a": "b", "b": "a"})
    # the old a is now called c, and there is a new a
    yield Rewriting(before, of(a=None, c="a", b="b"), {"c": "a"})
    yield Rewriting(before, of(b="b"))


def halves(names: Sequence[str], picks: Sequence[int]) -> tuple[list[str], list[str]]:
    """The columns of the left (pick 0), the right (1) or both (2); each side has at least one."""
    sides = [picks[i % len(picks)] for i in range(len(names))]
    left = [n for n, side in zip(names, sides, strict=True) if side != 1]
    right = [n for n, side in zip(names, sides, strict=True) if side != 0]
    return left or list(names[:1]), right or list(names[-1:])


def halves_without_rows(kinds: frozenset[str]) -> tuple[RecordSchema, Case, Case, pa.RecordBatch]:
    """Target, left, right and expected batch of a join of index records with records that have rows.

    A record without a row on the left stays without one; without a row on the right, the right's columns
    are null. Both have a column of the same name, which comes from the right. Envelopes are the left's.
    """
    t = fixed_type(min(kinds & set(LEAVES)))
    one, other = awkward(t)[0], awkward(t)[1]
    data = pa.schema([pa.field("a", t), pa.field("both", t)])
    of_right = pa.schema([pa.field("both", t), pa.field("b", t)])
    whole = pa.schema([pa.field("b", t), pa.field("both", t), pa.field("a", t)])
    lefts = [
        ("k0", "p", "f", "1", "I", False),
        ("k1", "p", "f", "2", "D", True),
        ("k2", "", "", "", "", False),
    ]
    rights = [("x", "", "", "", "U"[:0], i) for i in (False, False, True)]
    left = batch_of(data, [[one, one, one], [one, one, one]], lefts)
    right = batch_of(of_right, [[other, other, other], [one, one, one]], rights)
    expected = batch_of(whole, [[one, one, None], [other, other, None], [one, one, one]], lefts)
    return expected[0], left, right, expected[1]


def promotions(kinds: frozenset[str], max_depth: int) -> Iterator[Rewriting]:
    """Every type promotion that a rewrite allows, for every awkward value."""
    pairs = [
        (before, after)
        for before in _leaf_types(kinds)
        for after in _leaf_types(kinds)
        if before != after and _is_promotion(before, after)
    ]
    if not pairs:
        return
    rows = 1 + max(len(awkward(before)) for before, _ in pairs)
    envelopes = [(f"k{n}", "", "", "", "I", n == 2) for n in range(rows)]
    wide: dict[str, tuple[pa.Array, pa.Array]] = {}
    for number, (before, after) in enumerate(pairs):
        column = pa.array([*_values_of(before, after), None] * rows, before)[:rows]
        name = f"c{number}"
        wide[name] = column, _cast(column, after)
        if number % 3 == 0 and max_depth and "list" in kinds:
            wide[f"{name} list"] = _lists(*wide[name])
        if number % 3 == 1 and max_depth and "struct" in kinds:
            wide[f"{name} struct"] = _structs(*wide[name])
        if number % 3 == 2 and max_depth and "map" in kinds:
            wide[f"{name} map"] = _maps(*wide[name])
    yield _changing(wide, envelopes)


def _values_of(before: pa.DataType, after: pa.DataType) -> list[Any]:
    values = awkward(before)
    if pat.is_binary(before) and pat.is_string(after):
        # only UTF-8 bytes, since others are refused
        return [text.encode() for text in awkward(pa.string())]
    if pat.is_floating(before):
        # its digits are converted: leave out subnormal numbers, which Java writes with a second digit that
        # carries no information
        least = np.finfo(before.to_pandas_dtype()).tiny
        return [v for v in values if not 0 < abs(v) < least]
    return values


def _leaf_types(kinds: frozenset[str]) -> list[pa.DataType]:
    plain = ("int8", "int16", "int32", "int64", "float", "double", "string", "binary")
    found = [t for kind in plain if kind in kinds for t in fixed_types(kind)]
    if "decimal" in kinds:
        found += [pa.decimal128(p, s) for p, s in ((5, 2), (9, 2), (10, 3), (18, 3), (38, 10))]
    if "timestamp_zone" in kinds:
        found += [pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin")]
    return found


def _is_promotion(before: pa.DataType, after: pa.DataType) -> bool:
    order = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    if before in order and after in order:
        return order.index(before) < order.index(after)
    if before in order and pat.is_string(after):
        return True
    texts = (pa.string(), pa.binary())
    if before in texts and after in texts:
        return True
    if pat.is_decimal(before) and pat.is_decimal(after):
        more = after.precision - after.scale >= before.precision - before.scale
        return more and after.scale >= before.scale
    return pat.is_timestamp(before) and pat.is_timestamp(after)


def _cast(column: pa.Array, after: pa.DataType) -> pa.Array:
    nulls = pa.compute.is_null(column).to_numpy(zero_copy_only=False)
    if pat.is_floating(after) and pat.is_integer(column.type):
        # numpy rounds to the nearest as C and Java do, and only once, not first to a double
        values = column.fill_null(0).to_numpy().astype(after.to_pandas_dtype())
        return pa.array(values, after, mask=nulls)
    if pat.is_float32(column.type) and pat.is_float64(after):
        # by decimal digits, as Hudi does: 0.1 stays 0.1
        floats = [v and float(str(np.float32(v))) for v in column.to_pylist()]
        return pa.array(floats, after)
    if pat.is_floating(column.type) and pat.is_string(after):
        number = column.type.to_pandas_dtype()
        return pa.array([None if v is None else _java(number(v)) for v in column.to_pylist()])
    return column.cast(after)


def _java(value: Any) -> str:
    """A number as Java's Float.toString and Double.toString write it."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    mantissa, _, exponent = np.format_float_scientific(value, unique=True, trim="0").partition("e")
    return f"{mantissa}E{int(exponent)}"


def _lists(before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array]:
    # offsets 0, 0, 1, 2, …: the first list is empty, each other one has one value
    ends = pa.array([0, *range(len(before))], pa.int32())
    return tuple(pa.ListArray.from_arrays(ends, values) for values in (before, after))


def _structs(before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array]:
    nulls = pa.array([n % 4 == 3 for n in range(len(before))])
    return tuple(
        pa.StructArray.from_arrays([values, before], names=["changed", "same"], mask=nulls)
        for values in (before, after)
    )


def _maps(before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array]:
    ends = pa.array([0, *range(len(before))], pa.int32())
    keys = pa.array([f"k{n}é" for n in range(len(before))])
    return tuple(pa.MapArray.from_arrays(ends, keys, values) for values in (before, after))


def _changing(
    columns: Mapping[str, tuple[pa.Array, pa.Array]], envelopes: Sequence[Sequence[Any]]
) -> Rewriting:
    """A rewriting of these columns, given before and after; index records lose their rows."""
    parts = list(zip(*envelopes, strict=True))
    envelope = [pa.array(list(part), f.type) for part, f in zip(parts, ENVELOPE, strict=True)]
    kept = pa.array(np.arange(len(envelopes)), mask=np.array(parts[-1], np.bool_))
    cases = []
    for side in (0, 1):
        arrays = {name: pair[side] for name, pair in columns.items()}
        data = pa.schema([pa.field(name, array.type) for name, array in arrays.items()])
        schema = RecordSchema(data, (data.names[0],))
        rows = [from_plain(to_plain(a).take(kept), a.type) for a in arrays.values()]
        cases.append((schema, pa.record_batch([*envelope, *rows], schema=schema.batch_schema)))
    return Rewriting(cases[0], cases[1])


def nested_changes(kinds: frozenset[str], max_depth: int) -> Iterator[Rewriting]:
    """Changes inside structs, with the expected values written out."""
    if not {"struct", "string", "int32"} <= kinds or not max_depth:
        return
    wide = pa.int64() if "int64" in kinds else pa.int32()
    before = pa.struct([("a", pa.int32()), ("b", pa.string()), ("gone", pa.int32())])
    # reordered, promoted, one renamed, one new, one left out
    after = pa.struct([("neu é", pa.string()), ("new", pa.int32()), ("a", wide)])
    rows: list[Any] = [{"a": -5, "b": "é😀", "gone": 1}, None, {"a": None, "b": None, "gone": None}]
    rows += [{"a": 2**31 - 1, "b": "", "gone": None}, {"a": 0, "b": "x" * 300, "gone": 7}]
    changed = [r and {"neu é": r["b"], "new": None, "a": r["a"]} for r in rows]
    # only names change, so the bytes of most representations do not
    named = pa.struct([("A", pa.int32()), ("B", pa.string()), ("C", pa.int32())])
    renamed = [r and {"A": r["a"], "B": r["b"], "C": r["gone"]} for r in rows]
    columns = {
        "s": (pa.array(rows, before), pa.array(changed, after)),
        "t": (pa.array(rows, before), pa.array(renamed, named)),
        "u": (pa.array(rows, before), pa.array(rows, before)),
    }
    renames = {"s.neu é": "b", "t.A": "a", "t.B": "b", "t.C": "gone"}
    if max_depth > 1 and "list" in kinds:
        lists = ([rows, [], None, rows[:1], [None]], [changed, [], None, changed[:1], [None]])
        columns["l"] = pa.array(lists[0], pa.list_(before)), pa.array(lists[1], pa.list_(after))
        renames["l.element.neu é"] = "b"
    if max_depth > 1 and "map" in kinds:
        maps = [
            [
                None,
                [],
                [("k", v) for v in some[:1]],
                [("é", None)],
                [("a", some[3]), ("b", some[1])],
            ]
            for some in (rows, changed)
        ]
        columns["m"] = tuple(
            pa.array(values, pa.map_(pa.string(), t))
            for values, t in zip(maps, (before, after), strict=True)
        )
        renames["m.value.neu é"] = "b"
    if max_depth > 1:
        outer = [
            [row and {"in": value, "b": "x"} for row, value in zip(rows, some, strict=True)]
            for some in (rows, changed)
        ]
        columns["o"] = tuple(
            pa.array(values, pa.struct([("in", t), ("b", pa.string())]))
            for values, t in zip(outer, (before, after), strict=True)
        )
        renames["o.in.neu é"] = "b"
    for index in (-1, 3):
        envelopes = [(f"k{n}", "", "", "", "I", n == index) for n in range(len(rows))]
        change = _changing(columns, envelopes)
        yield Rewriting(change.before, change.after, renames)


Impossible = tuple[RecordSchema, RecordSchema, Mapping[str, str], Mapping[str, object], list[str]]


def impossible(kinds: frozenset[str]) -> Iterator[Impossible]:
    """Rewrites that are refused: source, target, renames, defaults, and words that the error must have."""
    t = fixed_type(min(kinds & set(LEAVES)))

    def of(**types: pa.DataType) -> RecordSchema:
        data = pa.schema([pa.field(name, kind) for name, kind in types.items()])
        return RecordSchema(data, (data.names[0],))

    yield of(a=t), of(b=t), {"b": "gone"}, {}, ["'b'", "'gone'", "a"]
    yield of(a=t), of(a=t), {"odd one": "a"}, {}, ["'odd one'"]
    value = awkward(t)[0]
    yield of(a=t), of(a=t), {}, {"a": value}, ["'a'"]
    yield of(a=t), of(a=t), {}, {"odd one": value}, ["'odd one'"]
    narrower = {
        ("int64", "int32"): (pa.int64(), pa.int32()),
        ("double", "float"): (pa.float64(), pa.float32()),
        ("double", "int64"): (pa.float64(), pa.int64()),
        ("string", "int64"): (pa.string(), pa.int64()),
        ("bool", "string"): (pa.bool_(), pa.string()),
        ("decimal",): (pa.decimal128(9, 2), pa.decimal128(10, 4)),
        ("timestamp", "timestamp_zone"): (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        ("list", "int32"): (pa.list_(pa.int32()), pa.int32()),
    }
    for needed, (before, after) in narrower.items():
        if kinds.issuperset(needed):
            yield of(odd=before), of(odd=after), {}, {}, ["'odd'", str(after)]
    if {"struct", "int32", "int64"} <= kinds:
        inner = [pa.struct([("x", kind)]) for kind in (pa.int64(), pa.int32())]
        yield of(odd=inner[0]), of(odd=inner[1]), {}, {}, ["'odd.x'"]
    if {"int32", "string"} <= kinds:
        yield of(a=pa.string()), of(b=pa.int32()), {}, {"b": "no number"}, ["'b'", "no number"]
