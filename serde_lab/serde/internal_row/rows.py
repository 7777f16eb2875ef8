"""Cuts contiguous binary values into pieces, for the batch execution of `internal_row`.

Every length is checked against the available bytes before it is used, so that damaged input raises
`Damaged` and is never read past the end of a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


class Damaged(Exception):
    """Damage in the record with this number; `problem` says what is wrong."""

    def __init__(self, record: int, problem: str) -> None:
        super().__init__(problem)
        self.record, self.problem = record, problem


def refuse_where(
    wrong: npt.NDArray[np.bool_], problem: str, of: npt.NDArray[np.integer] | None = None
) -> None:
    """Raise Damaged for the first row that is wrong; `of` maps rows to records."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise Damaged(row if of is None else int(of[row]), problem)


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
        if not len(array):
            return cls(np.zeros(1, np.int32), pa.py_buffer(b""), of)
        ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        return cls(ends, array.buffers()[2] or pa.py_buffer(b""), of)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """The length of each row in bytes."""
        lengths: npt.NDArray[np.int32] = np.diff(self.ends)
        return lengths

    @property
    def array(self) -> pa.BinaryArray:
        """The same as an Arrow array."""
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(self.ends), self.data], 0
        )

    def head(self, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """The first bytes of each row, as an array of this type. Raises Damaged if a row is shorter."""
        width = dtype.itemsize
        refuse_where(self.lengths < width, f"it ends before its first {width} bytes", self.of)
        if not len(self):
            return np.empty(0, dtype)
        cut = pc.binary_slice(self.array, 0, width)
        return np.frombuffer(cut.buffers()[2], dtype, len(self))

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
        ends = np.concatenate([self._starts.ravel(), last]).astype(np.int32)
        return pa.Array.from_buffers(
            pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), self._rows.data], 0
        )

    def __getitem__(self, j: int) -> pa.BinaryArray:
        """Piece j of every row, in a buffer of its own."""
        step = self._count + 1
        return self._cut.take(pa.array(np.arange(j, len(self._rows) * step, step)))


def rows_at(
    of: npt.NDArray[np.integer] | None, chosen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.integer]:
    numbers: npt.NDArray[np.integer] = np.flatnonzero(chosen)
    return numbers if of is None else of[numbers]
