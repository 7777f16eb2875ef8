"""Reads columns from slots and variable parts, for the batch execution of `internal_row`.

Nested types are read level by level: all lists of a column are read at once, as counts and as one column
of items. `internal_row/layout.py` describes the bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.buffers import binary_array, first_invalid, is_ascii
from serde_lab.records.plain_form import validity_buffer
from serde_lab.records.schema import is_decimal
from serde_lab.serde.framing import Damaged
from serde_lab.serde.internal_row.layout import (
    Field,
    Pieces,
    RowLayout,
    Rows,
    refuse_where,
    rows_at,
    slot_dtype,
    struct_layout,
)
from serde_lab.serde.internal_row.write import StoredField


class NullBits:
    """The null bits of rows."""

    def __init__(
        self,
        bits: npt.NDArray[np.uint8],
        layout: RowLayout,
        of: npt.NDArray[np.integer] | None,
    ) -> None:
        self._bits = bits
        used = len(layout.fields) % 8
        if used:
            behind: npt.NDArray[np.uint8] = bits[:, -1] >> np.uint8(used)
            refuse_where(behind != 0, "null bits are set after its last field", of)
        # most columns of most batches have no nulls, and are recognised here at once
        self._somewhere = np.bitwise_or.reduce(bits, axis=0)

    def of_field(self, field: Field) -> npt.NDArray[np.bool_] | None:
        """A mask of the rows in which a field is null; None if there are none."""
        byte, bit = divmod(field.number, 8)
        if not self._somewhere[byte] >> bit & 1:
            return None
        mask: npt.NDArray[np.bool_] = (self._bits[:, byte] & np.uint8(1 << bit)) != 0
        return mask


def from_slots(
    slots: npt.NDArray[np.generic],
    mask: npt.NDArray[np.bool_] | None,
    t: pa.DataType,
    of: npt.NDArray[np.integer] | None,
) -> pa.Array:
    """A plain column from its slots. Raises Damaged if a slot holds an invalid value."""
    values = np.ascontiguousarray(slots)
    if mask is not None:
        under_null = values[mask].view(np.uint8).reshape(int(mask.sum()), -1)
        stray: npt.NDArray[np.bool_] = under_null.max(axis=1, initial=0) > 0
        refuse_where(stray, "a null has bytes that are not zero", rows_at(of, mask))
    nulls, validity = (0, None) if mask is None else (int(mask.sum()), validity_buffer(mask))
    if pat.is_boolean(t):
        flags: npt.NDArray[np.uint8] = values.view(np.uint8)
        refuse_where(flags > 1, "a boolean is neither 0 nor 1", of)
        data = np.packbits(flags, bitorder="little")
    elif is_decimal(t) and t.precision <= 18:
        unscaled = values.astype(np.int64)
        limit = 10**t.precision
        if len(values) and not -limit < unscaled.min() <= unscaled.max() < limit:
            too_long = (unscaled <= -limit) | (unscaled >= limit)
            refuse_where(too_long, f"a decimal has more than {t.precision} digits", of)
        data = np.empty((len(values), 2), np.int64)
        data[:, 0] = unscaled
        np.right_shift(unscaled, 63, out=data[:, 1])
    else:
        data = values
    column = pa.Array.from_buffers(t, len(values), [validity, pa.py_buffer(data)], nulls)
    if is_decimal(t) and t.precision > 18:
        _check_decimals(column, of)
    return column


def _check_decimals(column: pa.Array, of: npt.NDArray[np.integer] | None) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as exc:
        # Arrow does not say which decimal is invalid
        row = first_invalid(column, lambda some: some.validate(full=True))
        problem = f"a decimal has more than {column.type.precision} digits"
        raise Damaged(problem, row if of is None else int(of[row])) from exc


def text(values: pa.BinaryArray, of: npt.NDArray[np.integer] | None) -> pa.StringArray:
    """Binary values as strings. Raises Damaged if one is not UTF-8."""
    strings = pa.Array.from_buffers(
        pa.string(), len(values), [None, *values.buffers()[1:]], 0, values.offset
    )
    if is_ascii(values):
        return strings
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid as exc:
        row = first_invalid(strings, lambda some: some.validate(full=True))
        problem = "a string of it is not UTF-8"
        raise Damaged(problem, row if of is None else int(of[row])) from exc
    return strings


def from_bytes(rows: Rows, mask: npt.NDArray[np.bool_] | None, t: pa.DataType) -> pa.Array:
    """A plain column from the variable parts of its values; that of a null is empty."""
    if mask is not None:
        refuse_where(
            rows.lengths[mask] != 0, "a null has bytes that are not zero", rows_at(rows.of, mask)
        )
    if pat.is_string(t) or pat.is_binary(t):
        column = rows.array if pat.is_binary(t) else text(rows.array, rows.of)
        if mask is None:
            return column
        buffers = [validity_buffer(mask), *column.buffers()[1:]]
        return pa.Array.from_buffers(t, len(rows), buffers, int(mask.sum()))
    if mask is None:
        return _from_nested(rows, t)
    # nulls have no bytes: read the other values, then insert the nulls
    held = ~mask
    ends = np.append(rows.ends[:-1][held], rows.ends[-1])
    dense = _from_nested(Rows(ends, rows.data, rows_at(rows.of, held)), t)
    place = np.cumsum(held) - 1
    return dense.take(pa.array(place, mask=mask))


def _from_nested(rows: Rows, t: pa.DataType) -> pa.Array:
    """A column of lists, maps or structs, none of them null."""
    if pat.is_struct(t):
        return _from_struct(rows, t)
    counts = rows.head(np.dtype([("count", "<u4")]))["count"].astype(np.int64)
    if not pat.is_map(t):
        child = _SequenceReader(rows, 4, counts, t.value_type).read_to_end()
        return pa.Array.from_buffers(t, len(rows), [None, _list_ends(counts)], 0, 0, [child])
    reader = _SequenceReader(rows, 4, counts, t.key_type, nullable=False)
    keys = reader.read()
    items = _SequenceReader(rows, reader.ends_at, counts, t.item_type).read_to_end()
    entries = pa.StructArray.from_arrays([keys, items], fields=[t.key_field, t.item_field])
    return pa.Array.from_buffers(t, len(rows), [None, _list_ends(counts)], 0, 0, [entries])


def _list_ends(counts: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(np.append(0, np.cumsum(counts)).astype(np.int32))


def _from_struct(rows: Rows, t: pa.StructType) -> pa.Array:
    reader = StructReader(rows, struct_layout(t))
    children = [reader.value(field) for field in reader.layout.fields]
    return pa.StructArray.from_arrays(children, fields=list(t))


class FieldReader:
    """Reads the fields of rows, whose fixed parts it has; a subclass finds the variable ones."""

    rows: Rows
    layout: RowLayout
    fixed: npt.NDArray[np.void]
    nulls: NullBits

    def variable_part(self, number: int) -> pa.BinaryArray:
        """The bytes of the layout's variable field with this number."""
        raise NotImplementedError

    def value(self, field: Field) -> pa.Array:
        """A field, as a plain column. Raises Damaged if a value is invalid."""
        mask = self.nulls.of_field(field)
        if field.slot is not None:
            return from_slots(self.fixed[field.part], mask, field.type, self.rows.of)
        found = self.variable_part(self.layout.variable.index(field))
        return from_bytes(Rows.over(found, self.rows.of), mask, field.type)

    def part(self, field: Field) -> StoredField:
        """The stored slots or bytes of a field, unchecked."""
        mask = self.nulls.of_field(field)
        if field.slot is not None:
            return StoredField(mask, slots=self.fixed[field.part])
        found = self.variable_part(self.layout.variable.index(field))
        return StoredField(mask, data=found)


class StructReader(FieldReader):
    """Reads the fields of rows that have no envelope."""

    def __init__(self, rows: Rows, layout: RowLayout) -> None:
        """Raises Damaged if the fields do not fill a row."""
        self.rows, self.layout, self.fixed = rows, layout, rows.head(layout.struct_dtype)
        lengths = [self.fixed[f.part] for f in layout.variable]
        self._pieces = Pieces(rows, self.fixed.dtype.itemsize, lengths)
        self.nulls = NullBits(self.fixed["nulls"], layout, rows.of)

    def variable_part(self, number: int) -> pa.BinaryArray:
        return self._pieces[number]


class _SequenceReader:
    """Reads one sequence of each row, from offset `starts_at` (in bytes, from the row's start)."""

    def __init__(
        self,
        rows: Rows,
        starts_at: int | npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        t: pa.DataType,
        *,
        nullable: bool = True,
    ) -> None:
        self._rows = rows
        self._counts = counts
        self._type = t
        self._nullable = nullable
        self.ends_at = np.broadcast_to(np.asarray(starts_at, np.int64), counts.shape)
        """The offset in each row up to which it has been read."""

    def read_to_end(self) -> pa.Array:
        """The items of all rows. Raises Damaged unless the sequences fill their rows."""
        items = self.read()
        refuse_where(
            self.ends_at != self._rows.lengths, "its items do not fill its bytes", self._rows.of
        )
        return items

    def read(self) -> pa.Array:
        """The items of all rows."""
        counts, t = self._counts, self._type
        dtype = slot_dtype(t)
        # check that this many items fit before allocating anything for them
        least = counts * (dtype.itemsize if dtype is not None else 4)
        self._refuse_beyond(self.ends_at + least + (counts + 7) // 8 * self._nullable)
        of_row = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        of = of_row if self._rows.of is None else self._rows.of[of_row]
        mask = self._null_bits() if self._nullable else None
        if dtype is not None:
            data = self._next(counts * dtype.itemsize)
            return from_slots(np.frombuffer(data, dtype, len(of)), mask, t, of)
        lengths = np.frombuffer(self._next(4 * counts), "<u4", len(of)).astype(np.int64)
        sums = np.append(0, np.cumsum(lengths))
        bounds = np.append(0, np.cumsum(counts))
        data = self._next(sums[bounds[1:]] - sums[bounds[:-1]])
        return from_bytes(Rows(sums.astype(np.int32), data, of), mask, t)

    def _null_bits(self) -> npt.NDArray[np.bool_] | None:
        counts = self._counts
        nbytes = (counts + 7) // 8
        data = self._next(nbytes)
        packed = np.frombuffer(data, np.uint8, int(nbytes.sum()))
        if not packed.any():
            return None
        bits = np.unpackbits(packed, bitorder="little").view(np.bool_)
        # the bits of items, without the padding of each row's last byte
        some = counts > 0
        first_bit = (np.cumsum(nbytes) - nbytes)[some] * 8
        steps = np.zeros(len(bits) + 1, np.int8)
        steps[first_bit] += 1
        steps[first_bit + counts[some]] -= 1
        is_item = np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)
        if bits[~is_item].any():
            in_row = np.add.reduceat(bits & ~is_item, first_bit, dtype=np.int64)
            problem = "null bits are set after its last item"
            refuse_where(in_row > 0, problem, rows_at(self._rows.of, some))
        mask: npt.NDArray[np.bool_] = bits[is_item]
        return mask if mask.any() else None

    def _refuse_beyond(self, stop: npt.NDArray[np.int64]) -> None:
        refuse_where(stop > self._rows.lengths, "it ends inside its items", self._rows.of)

    def _next(self, lengths: npt.NDArray[np.int64]) -> pa.Buffer:
        """The next bytes of every row, `lengths` of each, concatenated."""
        rows = self._rows
        stop = self.ends_at + lengths
        self._refuse_beyond(stop)
        first = self.ends_at
        self.ends_at = stop
        if not lengths.any():
            return pa.py_buffer(b"")
        starts = rows.ends[:-1] + first
        ends = np.empty(2 * len(rows) + 1, np.int32)
        ends[0:-1:2] = starts
        ends[1::2] = starts + lengths
        ends[-1] = rows.ends[-1]
        taken = binary_array(ends, rows.data).take(pa.array(np.arange(0, 2 * len(rows), 2)))
        return taken.buffers()[2]
