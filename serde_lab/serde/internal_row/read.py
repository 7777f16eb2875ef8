"""Batch execution of `internal_row`: reads binary rows into whole columns, without a loop over rows.

Reading mirrors writing (`internal_row/write.py`). Fixed parts are cut out of all records at once and viewed
as one structured numpy array. The variable parts of all records are cut at offsets that are sums of
lengths, and Arrow gathers each column's pieces. `internal_row/values.py` reads the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.records.buffers import binary_array
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD
from serde_lab.serde.internal_row.layout import (
    INDEX,
    INDEX_DTYPE,
    STRINGS_BEFORE_ROW,
    WITH_ROW,
    Field,
    Pieces,
    RowLayout,
    Rows,
    head,
    refuse_where,
)
from serde_lab.serde.internal_row.values import FieldReader, NullBits, text
from serde_lab.serde.internal_row.write import Numbers, StoredField

_HEAD = np.uint64(0xFFFF_FFFF_FFFF)


class RowReader:
    """Reads the rows of records of one layout.

    `row_part` has the records with a row. `place` is each record's number in it, and beyond its end for an
    index record; None if all records have a row.
    """

    layout: RowLayout
    row_part: FieldReader
    place: npt.NDArray[np.int64] | None = None

    def part(self, field: Field, numbers: Numbers | None) -> StoredField:
        """A field's stored slots or bytes in these records (None: all), null for a record without a row."""
        part = self.row_part.part(field)
        if self.place is None:
            return part if numbers is None else part.take(numbers, None)
        place = self.place if numbers is None else self.place[numbers]
        missing = place >= len(self.row_part.rows)
        return part.take(np.where(missing, 0, place), missing)

    def data_column(self, name: str) -> pa.Array:
        """One data column in plain form. Raises Damaged if a value is invalid."""
        column = self.row_part.value(self.layout.field(name))
        if self.place is None:
            return column
        return column.take(pa.array(self.place, mask=self.place >= len(self.row_part.rows)))


class FlatReader(RowReader):
    """Reads columns of flat records; keeps the parsed fixed parts and offsets."""

    row_part: _RowPart

    def __init__(self, rows: Rows, layout: RowLayout, fingerprint: int) -> None:
        """Raises Damaged unless every record has the form that `layout` prescribes."""
        self._rows = rows
        self.layout = layout
        self._index_part: EnvelopePart | None = None
        dtype = layout.record_dtype()
        if len(rows) and int(rows.lengths.min()) >= dtype.itemsize:
            fixed = rows.head(dtype)
            if (fixed["head"] & _HEAD == head(WITH_ROW, fingerprint)).all():
                self.row_part = _RowPart(rows, fixed, layout)
                return
        forms = rows.head(INDEX_DTYPE)["head"] & _HEAD
        is_index = forms == head(INDEX, fingerprint)
        refuse_where(
            ~is_index & (forms != head(WITH_ROW, fingerprint)),
            "it is not a record of this strategy and schema",
        )
        numbers = [np.flatnonzero(~is_index), np.flatnonzero(is_index)]
        self.place = np.argsort(np.concatenate(numbers), kind="stable")
        with_row, index = (rows.select(n) for n in numbers)
        self.row_part = _RowPart(with_row, with_row.head(dtype), layout)
        self._index_part = EnvelopePart(index, index.head(INDEX_DTYPE))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def with_row(self) -> npt.NDArray[np.integer] | None:
        """The numbers of the records with a row; None if all have one."""
        return None if self._index_part is None else self.row_part.rows.of

    @property
    def forms(self) -> list[EnvelopePart]:
        """The records with a row, then the index records, if there are any."""
        return [self.row_part] if self._index_part is None else [self.row_part, self._index_part]

    def placed(self, forms: Sequence[pa.Array]) -> pa.Array:
        """Merge one array for each of `forms` into the order of the records."""
        if self.place is None:
            return forms[0]
        return pa.concat_arrays(forms).take(pa.array(self.place))

    def column(self, name: str) -> pa.Array:
        """One column in plain form. Raises Damaged if a value is invalid."""
        if name == IS_INDEX_RECORD:
            flags = [pa.repeat(part is self._index_part, len(part)) for part in self.forms]
            return self.placed(flags)
        if name in ENVELOPE.names:
            return self.placed([part.string(name) for part in self.forms])
        return self.data_column(name)


class EnvelopePart:
    """The envelopes of records of one form."""

    def __init__(self, rows: Rows, fixed: npt.NDArray[np.void]) -> None:
        self.rows = rows
        self.fixed = fixed
        self._width = fixed.dtype.itemsize
        heads = fixed["head"]
        self._lengths: list[npt.NDArray[np.integer]] = [
            (heads >> np.uint64(48) & np.uint64(0xFF)).astype(np.int32),
            (heads >> np.uint64(56)).astype(np.int32),
            fixed["file_id_bytes"],
            fixed["partition_bytes"],
            *self._row_lengths(),
            fixed["key_bytes"],
        ]
        shared = self._constant
        self._pieces = Pieces(rows, self._width + sum(shared), self._lengths[len(shared) :])

    def _row_lengths(self) -> list[npt.NDArray[np.integer]]:
        return []

    def __len__(self) -> int:
        return len(self.rows)

    def string(self, name: str) -> pa.StringArray:
        numbers = {n: j for j, n in enumerate(STRINGS_BEFORE_ROW)}
        return text(self.piece(numbers.get(name, len(self._lengths) - 1)), self.rows.of)

    @property
    def strings(self) -> list[pa.BinaryArray]:
        """The bytes of the envelope's strings, the key last."""
        return [self.piece(j) for j in (*range(len(STRINGS_BEFORE_ROW)), len(self._lengths) - 1)]

    @property
    def string_lengths(self) -> list[npt.NDArray[np.integer]]:
        """Lengths in bytes of the strings before the row's variable part, one array a string."""
        return self._lengths[: len(STRINGS_BEFORE_ROW)]

    def piece(self, j: int) -> pa.BinaryArray:
        """Variable part j of each record."""
        if j < len(self._constant):
            return self._constant_piece(j)
        return self._pieces[j - len(self._constant)]

    @cached_property
    def _constant(self) -> tuple[int, ...]:
        """The lengths of the leading variable parts that have one length in all records."""
        found: list[int] = []
        for lengths in self._lengths:
            if not len(lengths) or not (lengths == lengths[0]).all():
                break
            found.append(int(lengths[0]))
        return tuple(found)

    def _constant_piece(self, j: int) -> pa.BinaryArray:
        start = self._width + sum(self._constant[:j])
        length = self._constant[j]
        if not length:
            return binary_array(np.zeros(len(self) + 1, np.int32), b"")
        ends = length * np.arange(len(self) + 1, dtype=np.int64)
        return binary_array(ends, self.rows.cut(start, length).view(np.uint8))


class _RowPart(EnvelopePart, FieldReader):
    """The envelopes and the rows of records with a row."""

    def __init__(self, rows: Rows, fixed: npt.NDArray[np.void], layout: RowLayout) -> None:
        self.layout = layout
        super().__init__(rows, fixed)
        self.nulls = NullBits(fixed["nulls"], layout, rows.of)

    def _row_lengths(self) -> list[npt.NDArray[np.integer]]:
        return [self.fixed[f.part] for f in self.layout.variable]

    def variable_part(self, number: int) -> pa.BinaryArray:
        return self.piece(len(STRINGS_BEFORE_ROW) + number)
