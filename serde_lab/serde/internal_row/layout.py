"""Defines the bytes of an `internal_row` record: the flat layout of RFC-84's HoodieFlinkInternalRow.

A record is the envelope, then the row, in one piece. Numbers are little endian; "length" is in bytes.

    0        u8    mark, 0xA1
    1        u8    form: 1 a record with a row, 2 an index record (RFC-84: it has no row)
    2        u32   fingerprint of the schema (`framing.schema_fingerprint`)
    6        u8    length of the operation
    7        u8    length of the instant time
    8        u16   length of the file id
    10       u16   length of the partition path
    12       u32   length of the record key
    16       …     the row's fixed part (none in an index record), see below
    …        …     operation, instant time, file id, partition path, as UTF-8
    …        …     the row's variable part (none in an index record)
    …        …     record key, as UTF-8

Strings that usually have the same length in all records of a batch come first, since the batch execution
reads and writes them like fixed-width slots. The key, whose length usually varies, is last.

A row, of the data columns or of a struct's fields, in their order:

    null bits      one bit a field, bit 0 of byte 0 first, 1 is null; unused bits are 0
    slots          one for each field of fixed width, zero under a null
    lengths        u32 for each field of variable width, 0 under a null
    variable part  the bytes of those fields, concatenated

| type                    | slot                             | variable part                        |
|-------------------------|----------------------------------|--------------------------------------|
| bool                    | 1 byte, 0 or 1                   |                                      |
| int8, int16, int32, int64 | 1, 2, 4, 8 bytes               |                                      |
| float, double           | 4, 8 bytes, IEEE 754             |                                      |
| date                    | 4 bytes, days since 1970         |                                      |
| timestamp               | 8 bytes, microseconds since 1970 |                                      |
| decimal to 9, 18, 38 digits | 4, 8, 16 bytes, unscaled     |                                      |
| string, binary          |                                  | the bytes                            |
| struct                  |                                  | a row of its fields                  |
| list                    |                                  | u32 items, then their sequence       |
| map                     |                                  | u32 entries, then the sequence of the |
|                         |                                  | keys (without null bits), then that of |
|                         |                                  | the values                           |

A sequence of n values: null bits for n values, then n slots if the type has one, else n lengths (u32)
and the bytes of the values, concatenated.

A frame of one record is that record. A frame of several:

    0        u8    mark, 0xA1
    1        u8    form: 3
    2        u16   0
    4        u32   n, the number of records, from 2
    8        u32   × n, the length of each record
    …        …     the records, each with its own first 16 bytes

For a schema, `RowLayout` has slots, lengths and numpy's structured type of the fixed part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.buffers import binary_array, offsets_of
from serde_lab.records.schema import (
    FILE_ID,
    INSTANT_TIME,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    is_decimal,
    is_nested,
)
from serde_lab.serde.framing import Damaged

MARK = 0xA1
WITH_ROW, INDEX, SEVERAL = 1, 2, 3
FRAME_HEADER_BYTES = 8

STRINGS_BEFORE_ROW = (OPERATION, INSTANT_TIME, FILE_ID, PARTITION_PATH)
MOST_BYTES = {
    OPERATION: 0xFF,
    INSTANT_TIME: 0xFF,
    FILE_ID: 0xFFFF,
    PARTITION_PATH: 0xFFFF,
    RECORD_KEY: 0xFFFF_FFFF,
}
"""The maximum length of each of the envelope's strings in bytes, given by the width of its length field."""

_ENVELOPE_DTYPE = [
    # mark, form, fingerprint and the two one-byte lengths as one number, to compare and store them at once
    ("head", "<u8"),
    ("file_id_bytes", "<u2"),
    ("partition_bytes", "<u2"),
    ("key_bytes", "<u4"),
]


def head(form: int, fingerprint: int) -> int:
    """The first 8 bytes of a record as a number, with operation and instant time of length 0."""
    return MARK | form << 8 | fingerprint << 16


def slot_dtype(t: pa.DataType) -> np.dtype[np.void] | np.dtype[np.integer] | None:
    """The numpy type of a plain type's slot (floats as their bits); None if it has no slot."""
    if pat.is_boolean(t):
        return np.dtype("u1")
    if is_decimal(t):
        return np.dtype("<i4" if t.precision <= 9 else "<i8" if t.precision <= 18 else "V16")
    if is_nested(t) or pat.is_string(t) or pat.is_binary(t):
        return None
    return np.dtype(f"<i{t.bit_width // 8}")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a row: `slot` is the type of its slot, or None if it has a length and bytes instead."""

    name: str
    number: int
    type: pa.DataType
    slot: np.dtype[np.void] | np.dtype[np.integer] | None

    @property
    def part(self) -> str:
        """The name of its slot, or of its length, in the structured type."""
        return f"f{self.number}"


@dataclass(frozen=True)
class RowLayout:
    """The fixed part of a row of these fields."""

    fields: tuple[Field, ...]

    def field(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    @cached_property
    def fixed(self) -> tuple[Field, ...]:
        """The fields that have slots."""
        return tuple(f for f in self.fields if f.slot is not None)

    @cached_property
    def variable(self) -> tuple[Field, ...]:
        """The fields that have lengths."""
        return tuple(f for f in self.fields if f.slot is None)

    @cached_property
    def null_bytes(self) -> int:
        return -(-len(self.fields) // 8)

    @cached_property
    def parts(self) -> list[tuple[object, ...]]:
        """The members of the fixed part's structured type: null bits, slots, lengths."""
        nulls: tuple[object, ...] = ("nulls", "u1", (self.null_bytes,))
        slots: list[tuple[object, ...]] = [(f.part, f.slot) for f in self.fixed]
        return [nulls, *slots, *((f.part, "<u4") for f in self.variable)]

    @cached_property
    def struct_dtype(self) -> np.dtype[np.void]:
        """The fixed part of a struct's value."""
        return np.dtype(self.parts)

    def record_dtype(self, string_bytes: tuple[int, ...] = ()) -> np.dtype[np.void]:
        """The envelope's first bytes and the fixed part of a record with a row.

        Members s0, s1, … follow for strings of these lengths; a string of length 0 has no member.
        """
        if string_bytes not in self._record_dtypes:
            strings = [(f"s{i}", f"V{n}") for i, n in enumerate(string_bytes) if n]
            dtype = np.dtype([*_ENVELOPE_DTYPE, *self.parts, *strings])
            if len(self._record_dtypes) > 1000:
                self._record_dtypes.clear()
            self._record_dtypes[string_bytes] = dtype
        return self._record_dtypes[string_bytes]

    @cached_property
    def _record_dtypes(self) -> dict[tuple[int, ...], np.dtype[np.void]]:
        return {}


@lru_cache(maxsize=256)
def layout_of(names: tuple[str, ...], types: tuple[pa.DataType, ...]) -> RowLayout:
    """The layout of a row of plain types."""
    fields = zip(names, types, strict=True)
    return RowLayout(tuple(Field(n, i, t, slot_dtype(t)) for i, (n, t) in enumerate(fields)))


def struct_layout(t: pa.StructType) -> RowLayout:
    return layout_of(tuple(f.name for f in t), tuple(f.type for f in t))


INDEX_DTYPE: np.dtype[np.void] = np.dtype(_ENVELOPE_DTYPE)
"""The fixed part of an index record."""


def refuse_where(
    wrong: npt.NDArray[np.bool_], problem: str, of: npt.NDArray[np.integer] | None = None
) -> None:
    """Raise Damaged for the first row that is wrong; `of` maps rows to records."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise Damaged(problem, row if of is None else int(of[row]))


@dataclass(frozen=True, slots=True)
class Rows:
    """Contiguous binary values in one buffer: row i is data[ends[i]:ends[i + 1]].

    `of` maps each row to the number of the record that holds it; None if they are the same.
    """

    ends: npt.NDArray[np.int32]
    data: pa.Buffer
    of: npt.NDArray[np.integer] | None = None

    @classmethod
    def over(cls, array: pa.BinaryArray, of: npt.NDArray[np.integer] | None = None) -> Rows:
        """The rows of a binary array without nulls."""
        return cls(offsets_of(array), array.buffers()[2] or pa.py_buffer(b""), of)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        lengths: npt.NDArray[np.int32] = np.diff(self.ends)
        return lengths

    @property
    def array(self) -> pa.BinaryArray:
        return binary_array(self.ends, self.data)

    def head(self, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """The first bytes of each row, as an array of this type. Raises Damaged if a row is shorter."""
        width = dtype.itemsize
        refuse_where(self.lengths < width, f"it ends before its first {width} bytes", self.of)
        return self.cut(0, width).view(dtype)

    def cut(self, start: int, width: int) -> npt.NDArray[np.void]:
        """Bytes [start, start + width) of each row: shape (n,), in memory of their own. Each row has them."""
        if not len(self):
            return np.empty(0, f"V{width}")
        data = np.frombuffer(self.data, np.uint8)
        # the bytes from every place on, of which those of the rows are copied
        windows = np.ndarray(len(data) - start - width + 1, f"V{width}", data, start, (1,))
        return windows[self.ends[:-1]]

    def select(self, numbers: npt.NDArray[np.int64]) -> Rows:
        """The rows with these numbers, in a buffer of their own."""
        of = numbers if self.of is None else self.of[numbers]
        return Rows.over(self.array.take(pa.array(numbers)), of)


class Pieces:
    """The variable parts of rows, which are contiguous: piece j of row i has `lengths[j][i]` bytes."""

    def __init__(
        self, rows: Rows, fixed_bytes: int, lengths: Sequence[npt.NDArray[np.integer]]
    ) -> None:
        """Raises Damaged if the pieces do not fill a row."""
        self._rows = rows
        self._count = len(lengths)
        starts = np.empty((len(rows), self._count + 1), np.int64)
        starts[:, 0] = rows.ends[:-1]
        starts[:, 0] += fixed_bytes
        for j, found in enumerate(lengths):
            np.add(starts[:, j], found, out=starts[:, j + 1])
        refuse_where(
            starts[:, -1] != rows.ends[1:],
            "the lengths that it states are not those of its bytes",
            rows.of,
        )
        self._starts = starts

    @cached_property
    def _cut(self) -> pa.BinaryArray:
        """All bytes, cut at every start: value i × (count + 1) + j is piece j of row i."""
        last = self._rows.ends[-1:]
        return binary_array(np.concatenate([self._starts.ravel(), last]), self._rows.data)

    def __getitem__(self, j: int) -> pa.BinaryArray:
        """Piece j of every row, in a buffer of its own."""
        step = self._count + 1
        return self._cut.take(pa.array(np.arange(j, len(self._rows) * step, step)))


def rows_at(
    of: npt.NDArray[np.integer] | None, chosen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.integer]:
    numbers: npt.NDArray[np.integer] = np.flatnonzero(chosen)
    return numbers if of is None else of[numbers]
