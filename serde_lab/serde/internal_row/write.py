"""Batch execution of `internal_row`: writes whole columns as binary rows, without a loop over rows.

Fixed parts are filled column by column into one structured numpy array; Arrow appends the variable parts.
Nested types are written level by level: a column of lists is one array of counts and one of items,
whatever the number of rows. `internal_row/layout.py` describes the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import DataError
from serde_lab.records.buffers import binary_array, data_of, lengths_of, offsets_of
from serde_lab.records.plain_form import null_mask, to_plain, to_plain_batch
from serde_lab.records.schema import RECORD_KEY, is_decimal
from serde_lab.serde.framing import rows_present
from serde_lab.serde.internal_row.layout import (
    INDEX,
    INDEX_DTYPE,
    MOST_BYTES,
    STRINGS_BEFORE_ROW,
    WITH_ROW,
    RowLayout,
    head,
    slot_dtype,
    struct_layout,
)

Numbers = npt.NDArray[np.integer]
"""Numbers of rows, or of records."""

LONGEST_SLOT_STRING = 64
"""The longest string that is written like a slot if all records' strings have its length; Arrow appends
longer ones."""


def write_records(batch: pa.RecordBatch, layout: RowLayout, fingerprint: int) -> pa.BinaryArray:
    """The records of `batch`, which is in plain form: one binary value each, in one buffer.

    Raises DataError if an index record has data, or if a string of the envelope is too long.
    """
    present = rows_present(batch)
    if present is None:
        return _write_rows(batch, layout, fingerprint)
    numbers = [np.flatnonzero(present), np.flatnonzero(~present)]
    with_row, index = (to_plain_batch(batch.take(pa.array(n))) for n in numbers)
    written = [_write_rows(with_row, layout, fingerprint), _write_index(index, fingerprint)]
    place = np.argsort(np.concatenate(numbers), kind="stable")
    return pa.concat_arrays(written).take(pa.array(place))


def _write_rows(batch: pa.RecordBatch, layout: RowLayout, fingerprint: int) -> pa.BinaryArray:
    parts = [StoredField.of(batch.column(f.name)) for f in layout.fields]
    strings = [batch.column(name) for name in (*STRINGS_BEFORE_ROW, RECORD_KEY)]
    return write_rows(strings, parts, layout, fingerprint)


def write_rows(
    strings: Sequence[pa.Array], parts: Sequence[StoredField], layout: RowLayout, fingerprint: int
) -> pa.BinaryArray:
    """Records with a row, from the envelope's strings, the key last, and the fields of the row."""
    rows = len(strings[0])
    pieces = [*strings[:-1], *(parts[f.number].data for f in layout.variable), strings[-1]]
    lengths = [lengths_of(piece) for piece in pieces]
    # strings of one length are written as slots after the fixed part and need not be appended
    constant: list[int] = []
    for piece_lengths in lengths[:-1]:
        first = int(piece_lengths[0]) if rows else 0
        if first > LONGEST_SLOT_STRING or not (piece_lengths == first).all():
            break
        constant.append(first)
    records = np.empty(rows, layout.record_dtype(tuple(constant)))
    fill_envelope(records, [*lengths[:4], lengths[-1]], head(WITH_ROW, fingerprint))
    _fill_row(records, parts, layout, lengths[4:-1])
    for i, length in enumerate(constant):
        if length:
            records[f"s{i}"] = np.frombuffer(data_of(pieces[i]), f"V{length}", rows)
    return join(records, pieces[len(constant) :])


def _write_index(batch: pa.RecordBatch, fingerprint: int) -> pa.BinaryArray:
    pieces = [batch.column(name) for name in (*STRINGS_BEFORE_ROW, RECORD_KEY)]
    records = np.empty(len(batch), INDEX_DTYPE)
    fill_envelope(records, [lengths_of(p) for p in pieces], head(INDEX, fingerprint))
    return join(records, pieces)


def fill_envelope(
    records: npt.NDArray[np.void], lengths: Sequence[npt.NDArray[np.int32]], first: int
) -> None:
    for name, found in zip((*STRINGS_BEFORE_ROW, RECORD_KEY), lengths, strict=True):
        longest = int(found.max(initial=0))
        if longest > MOST_BYTES[name]:
            raise DataError(
                f"{name} has {longest} bytes in one record, expected at most {MOST_BYTES[name]}"
            )
    operation, instant = (_one_if_constant(found).astype(np.uint64) for found in lengths[:2])
    records["head"] = np.uint64(first) | operation << np.uint64(48) | instant << np.uint64(56)
    records["file_id_bytes"] = lengths[2]
    records["partition_bytes"] = lengths[3]
    records["key_bytes"] = lengths[4]


def _one_if_constant(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return values[:1] if len(values) and (values == values[0]).all() else values


def _fill_row(
    rows: npt.NDArray[np.void],
    parts: Sequence[StoredField],
    layout: RowLayout,
    lengths: Sequence[npt.NDArray[np.int32]],
) -> None:
    """Fill in the null bits, slots and lengths of the fields of all rows."""
    nulls = rows["nulls"]
    nulls[:] = 0
    for field in layout.fields:
        mask = parts[field.number].mask
        if mask is not None:
            nulls[:, field.number // 8] |= mask.astype(np.uint8) << np.uint8(field.number % 8)
    for field in layout.fixed:
        rows[field.part] = parts[field.number].slots
    for field, found in zip(layout.variable, lengths, strict=True):
        rows[field.part] = found


def write_structs(parts: Sequence[StoredField], layout: RowLayout, rows: int) -> pa.BinaryArray:
    """Rows without an envelope, from their fields."""
    pieces = [parts[f.number].data for f in layout.variable]
    fixed = np.empty(rows, layout.struct_dtype)
    _fill_row(fixed, parts, layout, [lengths_of(piece) for piece in pieces])
    return join(fixed, pieces)


@dataclass(frozen=True, slots=True)
class StoredField:
    """One field as rows store it: a mask of its nulls (None: there are none), and its slots or its bytes."""

    mask: npt.NDArray[np.bool_] | None
    slots: npt.NDArray[np.generic] | None = None
    data: pa.BinaryArray | None = None

    @classmethod
    def of(cls, column: pa.Array) -> StoredField:
        """The values of a plain column."""
        if slot_dtype(column.type) is not None:
            return cls(null_mask(column), slots=slot_values(column))
        return cls(null_mask(column), data=value_bytes(column))

    def take(self, numbers: Numbers, missing: npt.NDArray[np.bool_] | None) -> StoredField:
        """The values of these rows; null where `missing` is set, for which `numbers` is ignored."""
        held: npt.NDArray[np.bool_] | slice = slice(None) if missing is None else ~missing
        wanted = numbers[held]
        mask = missing
        if self.mask is not None:
            mask = np.ones(len(numbers), np.bool_)
            mask[held] = self.mask[wanted]
        slots = data = None
        if self.slots is not None:
            slots = np.zeros(len(numbers), self.slots.dtype)
            slots[held] = self.slots[wanted]
        if self.data is not None:
            data = as_binary(self.data).take(pa.array(numbers, mask=missing))
            data = data if missing is None else data.fill_null(b"")
        return StoredField(mask, slots, data)


def slot_values(column: pa.Array) -> npt.NDArray[np.generic]:
    """The slots of a plain column: shape (n,), strided for decimals of at most 18 digits."""
    t, data, n = column.type, column.buffers()[1], len(column)
    if pat.is_boolean(t):
        bits = np.frombuffer(data, np.uint8) if n else np.zeros(0, np.uint8)
        return np.unpackbits(bits, count=n, bitorder="little")
    if is_decimal(t) and t.precision <= 18:
        # the low half of 16 bytes; the high half only repeats the sign
        return np.frombuffer(data, "<i8", 2 * n)[::2]
    dtype = slot_dtype(t)
    assert dtype is not None
    return np.frombuffer(data, dtype, n)


def value_bytes(column: pa.Array) -> pa.BinaryArray:
    """The variable part of each value of a plain column; empty for a null."""
    t = column.type
    if pat.is_string(t) or pat.is_binary(t):
        return column
    mask = null_mask(column)
    if mask is None:
        return _nested_bytes(column)
    # write the other values, then give each null a length of 0
    held = _nested_bytes(to_plain(column.take(pa.array(np.flatnonzero(~mask)))))
    ends = np.zeros(len(column) + 1, np.int32)
    lengths = np.zeros(len(column), np.int32)
    lengths[~mask] = lengths_of(held)
    np.cumsum(lengths, out=ends[1:])
    return binary_array(ends, data_of(held))


def _nested_bytes(column: pa.Array) -> pa.BinaryArray:
    """The variable part of plain lists, maps or structs, none of them null."""
    t = column.type
    if pat.is_struct(t):
        fields = [StoredField.of(column.field(i)) for i in range(t.num_fields)]
        return write_structs(fields, struct_layout(t), len(column))
    ends = offsets_of(column)
    counts = np.diff(ends).astype("<u4")
    if pat.is_map(t):
        keys = _sequence(column.keys, ends, nullable=False)
        pieces = [*keys, *_sequence(column.items, ends)]
    else:
        pieces = _sequence(column.values, ends)
    return join(counts, pieces)


def _sequence(
    items: pa.Array, ends: npt.NDArray[np.int32], *, nullable: bool = True
) -> list[pa.BinaryArray]:
    """The pieces of each sequence: null bits; then slots, or lengths and bytes."""
    pieces = [_null_bits(items, ends)] if nullable else []
    dtype = slot_dtype(items.type)
    if dtype is not None:
        slots = np.ascontiguousarray(slot_values(items).astype(dtype, copy=False))
        return [*pieces, binary_array(dtype.itemsize * ends.astype(np.int64), slots)]
    values = value_bytes(items)
    lengths = lengths_of(values).astype("<u4")
    data_ends = offsets_of(values)
    return [
        *pieces,
        binary_array(4 * ends.astype(np.int64), lengths),
        binary_array(data_ends[ends] - data_ends[0], data_of(values)),
    ]


def _null_bits(items: pa.Array, ends: npt.NDArray[np.int32]) -> pa.BinaryArray:
    """The null bits of each sequence, padded to whole bytes."""
    counts = np.diff(ends)
    nbytes = (counts + 7) // 8
    byte_ends = np.append(0, np.cumsum(nbytes)).astype(np.int32)
    mask = null_mask(items)
    if mask is None:
        return binary_array(byte_ends, np.zeros(int(byte_ends[-1]), np.uint8))
    # each sequence begins at a multiple of 8 bits
    shift = np.repeat(byte_ends[:-1] * 8 - ends[:-1], counts)
    spread = np.zeros(int(byte_ends[-1]) * 8, np.bool_)
    spread[np.arange(len(items)) + shift] = mask
    return binary_array(byte_ends, np.packbits(spread, bitorder="little"))


def join(fixed: npt.NDArray[np.generic], pieces: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    """One binary value a row: the fixed part, then the pieces."""
    width = fixed.dtype.itemsize
    ends = width * np.arange(len(fixed) + 1, dtype=np.int64)
    whole = binary_array(ends, np.ascontiguousarray(fixed).view(np.uint8) if len(fixed) else b"")
    pieces = [as_binary(piece) for piece in pieces if len(data_of(piece))]
    if not pieces:
        return whole
    try:
        return pc.binary_join_element_wise(whole, *pieces, b"")
    except pa.ArrowCapacityError as exc:
        problem = "a batch takes more than 2 GiB as binary rows"
        raise DataError(problem, "send smaller batches") from exc


def as_binary(text: pa.Array) -> pa.BinaryArray:
    """The UTF-8 bytes of strings, or the same binary array, without copying or nulls."""
    buffers = [None, *text.buffers()[1:]]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers, 0, text.offset)
