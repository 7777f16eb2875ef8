"""Makes test batches for the conformance kit: drawn by hypothesis, and fixed ones of awkward values.

It also makes equal batches with another memory layout, and counts which types and null patterns the drawn
batches have covered. `values.py` provides the single values.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st

from serde_lab.merging.rules import DeleteMarkers
from serde_lab.records.plain_form import (
    from_plain,
    from_plain_batch,
    null_mask,
    to_plain,
    to_plain_batch,
)
from serde_lab.records.schema import (
    ENVELOPE,
    IS_INDEX_RECORD,
    OPERATION,
    RecordSchema,
    depth,
    is_binary,
    is_list,
    is_string,
)
from serde_lab.serde.conformance.values import (
    KINDS,
    LEAVES,
    LISTS,
    NESTED,
    PATTERNS,
    around,
    awkward,
    fixed_type,
    fixed_types,
    kind_of,
    type_of,
    types,
    types_inside,
    values,
)

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
    inside: bool = False,
) -> tuple[RecordSchema, pa.RecordBatch]:
    """A schema and a batch of it, which may be a slice of a larger batch (with offsets).

    `first` fixes kind and null pattern of the first column; with `inside`, the column nests a value of
    that kind.
    """
    rows = draw(st.integers(min_rows, max_rows))
    before, after = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (3, 2), (9, 1)]))
    total = before + rows + after
    fields, columns = [], []
    for i in range(draw(st.integers(1, 4))):
        directed = first if i == 0 else None
        if directed is None:
            t = draw(types(kinds, max_depth))
        else:
            t = draw(type_of(directed[0], kinds, max_depth - inside))
            t = around(t, kinds) if inside else t
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
    """One batch of all awkward values and nulls, with a column per kind and per kind of nesting."""
    leaves = [t for kind in LEAVES if kind in kinds for t in fixed_types(kind)]
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
    return selected((schema, batch.slice(3, 5)), [f.name for f in fields])


def selected(
    case: tuple[RecordSchema, pa.RecordBatch], names: Sequence[str]
) -> tuple[RecordSchema, pa.RecordBatch]:
    """The records with only these data columns."""
    data = pa.schema([case[0].data.field(name) for name in names])
    return RecordSchema(data, (names[0],)), case[1].select([*ENVELOPE.names, *names])


def split(
    case: tuple[RecordSchema, pa.RecordBatch], width: int
) -> list[tuple[RecordSchema, pa.RecordBatch]]:
    """`case` as several of at most `width` data columns."""
    names = case[0].data.names
    return [selected(case, names[at : at + width]) for at in range(0, len(names), width)]


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An equal batch without offsets, made from Python values if those are exact."""
    return _rebuilt(batch, _from_python)


def _from_python(array: pa.Array) -> pa.Array:
    inner = [array.type, *types_inside(array.type)]
    if any(pat.is_timestamp(t) or pat.is_floating(t) for t in inner):
        # in some zones Python has no times outside years 1 to 9999, and it has only one NaN
        return from_plain(to_plain(array), array.type)
    return pa.array(array.to_pylist(), array.type)


def with_garbage_under_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An equal batch, in plain layout, with arbitrary bytes under the nulls."""
    return _rebuilt(batch, lambda array: from_plain(_garbage(to_plain(array)), array.type))


def _garbage(array: pa.Array) -> pa.Array:
    mask = null_mask(array)
    t = array.type
    if mask is None or pat.is_struct(t) or pat.is_map(t):
        return array
    if is_list(t):
        # each null list gets one item
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
    """The rows at `indices`; taken in plain form, since Arrow's take does not support all types."""
    plain = to_plain_batch(batch)
    arrays = [column.take(pa.array(indices)) for column in plain.columns]
    plain = pa.record_batch(arrays, schema=plain.schema)
    return from_plain_batch(plain, batch.schema)


def joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of `parts`, which have the same schema."""
    plain = pa.concat_batches([to_plain_batch(part) for part in parts])
    return from_plain_batch(plain, parts[0].schema)


def kinds_inside(kinds: frozenset[str], max_depth: int) -> list[str]:
    """The kinds that can be nested in another one."""
    if not max_depth or not kinds & set(NESTED):
        return []
    return sorted(kinds if max_depth > 1 else kinds - set(NESTED))


@dataclass(slots=True)
class Reached:
    """Counts what the examples have covered: types, null patterns, depths, numbers of rows."""

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
            for t in types_inside(f.type):
                self.counts[f"{kind_of(t)}: nested"] += 1

    def missing(self, kinds: frozenset[str], max_depth: int) -> list[str]:
        """What should have been covered and was not."""
        wanted = [f"rows: {n}" for n in ("0", "1", "many")]
        wanted += [f"depth: {n}" for n in range(max_depth + 1)]
        wanted += [f"{kind}: {p} null" for kind in sorted(kinds) for p in PATTERNS]
        wanted += [f"{kind}: nested" for kind in kinds_inside(kinds, max_depth)]
        return [name for name in wanted if not self.counts[name]]


def deleting(batch: pa.RecordBatch, marked: Mapping[str, str]) -> list[bool]:
    """Which records are deletes; `marked` maps a column to the value that marks one."""
    found = []
    for row in batch.select(
        [n for n in batch.schema.names if n in _TELLING or n in marked]
    ).to_pylist():
        by_row = row.get("_hoodie_is_deleted") is True
        by_mark = any(str(row[name]) == value for name, value in marked.items())
        by_operation = row[OPERATION] in ("D", "-U")
        found.append((by_row or by_mark or by_operation) and not row[IS_INDEX_RECORD])
    return found


_TELLING = {OPERATION, IS_INDEX_RECORD, "_hoodie_is_deleted"}


def deletes(kinds: frozenset[str]) -> tuple[RecordSchema, pa.RecordBatch]:
    """Deletes in every form that these kinds of columns allow, and records that are not deletes."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "_hoodie_is_deleted": (pa.bool_(), [True, False, None]),
        "op": (pa.string(), ["delete", None, "Delete", "", "upsert"]),
        "code": (pa.int64(), [-1, 7, None, 1]),
    }
    usable = {n: (t, v) for n, (t, v) in columns.items() if str(t) in kinds}
    # a strategy that supports none of these types has some other leaf type
    usable = usable or {"c": (fixed_type(min(kinds & set(LEAVES))), [None])}
    rows = 30
    data = pa.schema([pa.field(n, t) for n, (t, _) in usable.items()])
    filled = [[v[i % len(v)] for i in range(rows)] for _, v in usable.values()]
    envelopes = [
        (f"k{n}", "", "", "", ("I", "", "I", "D", "-U", "+U")[n % 6], n % 11 == 3)
        for n in range(rows)
    ]
    schema, batch = batch_of(data, filled, envelopes)
    names = tuple(data.names[-2:])
    return RecordSchema(data, schema.record_key, ordering=names), batch


def delete_rules(schema: RecordSchema) -> Iterator[tuple[DeleteMarkers, Mapping[str, str]]]:
    """Rules for the columns of `deletes`, each with its column and the value that marks a delete."""
    yield DeleteMarkers(), {}
    for name, marker in (("op", "delete"), ("code", "-1")):
        if name in schema.data.names:
            yield DeleteMarkers(name, marker), {name: marker}
