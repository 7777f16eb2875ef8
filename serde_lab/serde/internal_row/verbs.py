"""Runs the record API's verbs on flat binary rows: changes metadata and columns, from bytes to bytes.

The batch execution copies the slots and bytes of fields without reading values; only a column whose type
changes is read and written again. A change of metadata rewrites the envelope and copies the row as one
piece. Index records have no row, so a change of schema alters only their fingerprint.
`internal_row/nested.py` has the batch verbs of the nested layout. The row execution's verbs work on stored
values and serve both layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.records.buffers import data_of, lengths_of
from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD
from serde_lab.serde.internal_row.layout import (
    INDEX,
    INDEX_DTYPE,
    STRINGS_BEFORE_ROW,
    Field,
    Pieces,
    RowLayout,
    head,
)
from serde_lab.serde.internal_row.loop import LoopReader, stored_values
from serde_lab.serde.internal_row.read import EnvelopePart, FlatReader
from serde_lab.serde.internal_row.write import (
    LONGEST_SLOT_STRING,
    Numbers,
    StoredField,
    as_binary,
    fill_envelope,
    join,
    write_rows,
)
from serde_lab.serde.projection.columns import changed, new_column
from serde_lab.serde.projection.plan import Projection, TargetColumn

Given = Mapping[str, pa.StringArray]
"""The metadata to set, by envelope column: one text a record."""

_FORM_BITS = np.uint64(0xFF << 8)
_HEAD_BITS = np.uint64(0xFFFF_FFFF_FFFF)


def project(
    readers: Sequence[FlatReader], projection: Projection, layout: RowLayout, fingerprint: int
) -> pa.BinaryArray:
    """The projection of these records as flat records of `layout`."""
    first = readers[0]
    parts = projected_parts(readers, projection, first.with_row)
    written = [write_rows(first.row_part.strings, parts, layout, fingerprint)]
    written += [_of_schema(index, fingerprint) for index in first.forms[1:]]
    return first.placed(written)


def projected_parts(
    readers: Sequence[Any], projection: Projection, with_row: Numbers | None
) -> list[StoredField]:
    """The fields of the target's rows, for the records with these numbers (None: all)."""
    rows = len(readers[0]) if with_row is None else len(with_row)
    return [_part(readers, column, with_row, rows) for column in projection.columns]


def _part(
    readers: Sequence[Any], column: TargetColumn, with_row: Numbers | None, rows: int
) -> StoredField:
    if column.source is None:
        return StoredField.of(new_column(column, rows, None))
    side, number = column.source
    reader = readers[side]
    field: Field = reader.layout.fields[number]
    if column.is_copied:
        own_rows = side == 0
        # the first side's row_part already has only the records with a row
        return reader.row_part.part(field) if own_rows else reader.part(field, with_row)
    assert column.change is not None
    values = reader.column(field.name)
    if with_row is not None:
        values = to_plain(values.take(pa.array(with_row)))
    return StoredField.of(changed(values, column.change, column.name))


def _of_schema(index: EnvelopePart, fingerprint: int) -> pa.BinaryArray:
    """The index records, with the fingerprint of another schema."""
    fixed = index.fixed.copy()
    fixed["head"] = fixed["head"] & ~_HEAD_BITS | np.uint64(head(INDEX, fingerprint))
    width = INDEX_DTYPE.itemsize
    return join(fixed, [Pieces(index.rows, width, [index.rows.lengths - width])[0]])


def update_metadata(reader: FlatReader, given: Given, fingerprint: int) -> pa.BinaryArray:
    """The same records with other metadata."""
    forms = reader.forms
    written = []
    for part in forms:
        own: Given = given
        if len(forms) > 1:
            assert part.rows.of is not None
            places = pa.array(part.rows.of)
            own = {name: texts.take(places) for name, texts in given.items()}
        written.append(_with_metadata(part, own, fingerprint))
    return reader.placed(written)


def _with_metadata(part: EnvelopePart, given: Given, fingerprint: int) -> pa.BinaryArray:
    rows, width = len(part), part.fixed.dtype.itemsize
    if not rows:
        return part.rows.array
    # everything after the four strings is copied as one piece
    total = sum(part.string_lengths, np.zeros(rows, np.int64))
    rest = Pieces(part.rows, width, [total, part.rows.lengths - width - total])[1]
    strings = [
        as_binary(to_plain(given[name])) if name in given else part.piece(j)
        for j, name in enumerate(STRINGS_BEFORE_ROW)
    ]
    lengths = [lengths_of(s) for s in strings]
    slots = 0
    while slots < len(strings) and _is_slot(lengths[slots]):
        slots += 1
    widths = [int(found[0]) for found in lengths[:slots]]
    records = np.empty((rows, width + sum(widths)), np.uint8)
    records[:, :width] = part.fixed.view(np.uint8).reshape(rows, width)
    at = width
    for string, size in zip(strings, widths, strict=False):
        if size:
            records[:, at : at + size] = np.frombuffer(data_of(string), np.uint8).reshape(rows, -1)
        at += size
    envelope = records[:, : INDEX_DTYPE.itemsize].copy().view(INDEX_DTYPE).reshape(rows)
    form = int(envelope["head"][0] & _FORM_BITS) >> 8
    key_bytes = envelope["key_bytes"].copy()
    fill_envelope(envelope, [*lengths, key_bytes], head(form, fingerprint))
    records[:, : INDEX_DTYPE.itemsize] = envelope.view(np.uint8).reshape(rows, -1)
    fixed = records.reshape(-1).view(f"V{records.shape[1]}")
    return join(fixed, [*strings[slots:], rest])


def _is_slot(lengths: npt.NDArray[np.int32]) -> bool:
    first = int(lengths[0])
    return first <= LONGEST_SLOT_STRING and bool((lengths == first).all())


Write = Callable[[Sequence[Sequence[Any]], RowLayout, int], pa.BinaryArray]


def project_in_loop(
    readers: Sequence[LoopReader],
    projection: Projection,
    write: Write,
    layout: RowLayout,
    fingerprint: int,
) -> pa.BinaryArray:
    """The projection of these records, written by `write`."""
    first = readers[0]
    no_row = first.values(IS_INDEX_RECORD)
    columns = [first.values(name) for name in ENVELOPE.names]
    for column in projection.columns:
        values: Sequence[Any]
        if column.source is None:
            values = stored_values(new_column(column, 1, None)) * len(first)
        else:
            side, number = column.source
            name = readers[side].layout.fields[number].name
            if column.is_copied:
                values = readers[side].values(name)
            else:
                assert column.change is not None
                array = changed(readers[side].column(name), column.change, column.name)
                values = stored_values(array)
        columns.append([None if gone else v for gone, v in zip(no_row, values, strict=True)])
    return write(columns, layout, fingerprint)


def update_metadata_in_loop(
    reader: LoopReader, given: Given, write: Write, layout: RowLayout, fingerprint: int
) -> pa.BinaryArray:
    """The same records with other metadata, written by `write`."""
    columns = {name: reader.values(name) for name in ENVELOPE.names}
    columns |= {name: texts.to_pylist() for name, texts in given.items()}
    row = [reader.values(field.name) for field in layout.fields]
    return write([*columns.values(), *row], layout, fingerprint)
