"""Strategy `internal_row`: RFC-84's HoodieFlinkInternalRow, a typed binary row behind its envelope.

`Records` holds one contiguous buffer of binary rows with offsets, whose bytes `internal_row_layout.py`
describes. Converting in builds that buffer, which is where the work is; serialising one record a frame
hands out a view of it. Deserialising checks the form of every record, and the values of a column are
checked when the column is read: what is never read, as in a hop that only routes, costs nothing.

Two executions with the same bytes: `batch` works on whole columns with Arrow and numpy
(`internal_row_write.py`, `internal_row_read.py`), `row` is a loop with `struct` (`internal_row_loop.py`).
Must not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.plain_form import from_plain, to_plain_batch
from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import check_supported, plain_type
from serde_lab.serde import internal_row_loop, internal_row_read, internal_row_write
from serde_lab.serde.fingerprint import schema_fingerprint
from serde_lab.serde.framing import cut, frame_error, frames_of, opened
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.internal_row_frames import frames_from, records_in
from serde_lab.serde.internal_row_layout import (
    FRAME_HEADER_BYTES,
    MARK,
    WITH_ROW,
    RowLayout,
    layout_of,
)
from serde_lab.serde.internal_row_read import Damaged, Rows
from serde_lab.serde.options import resolve

_LENGTH_BYTES = 4


@dataclass(frozen=True)
class RowRecords(Records):
    """Records as binary rows in one buffer; `rows` has one value a record."""

    schema: RecordSchema
    rows: pa.BinaryArray
    execution: str

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def reader(self) -> internal_row_read.RecordReader | internal_row_loop.RecordReader:
        """Reads columns of these records; making it checks the form of every record."""
        layout, fingerprint = layout_and_fingerprint(self.schema)
        if self.execution == "row":
            return internal_row_loop.RecordReader(self.rows, layout, fingerprint)
        return internal_row_read.RecordReader(Rows.over(self.rows), layout, fingerprint)

    def column(self, name: str) -> pa.Array:
        t = self.schema.batch_schema.field(name).type
        try:
            return from_plain(self.reader.column(name), t)
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc

    def to_arrow(self) -> pa.RecordBatch:
        schema = self.schema.batch_schema
        return pa.record_batch([self.column(name) for name in schema.names], schema=schema)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.schema, self.rows.take(pa.array(indices)), self.execution)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        try:
            rows = pa.concat_arrays([part.rows for part in parts])
        except pa.ArrowInvalid as exc:
            total = sum(part.rows.nbytes for part in parts)
            raise DataError(f"{total} bytes of records do not fit one buffer of 2 GiB") from exc
        return cls(parts[0].schema, rows, parts[0].execution)


def layout_and_fingerprint(schema: RecordSchema) -> tuple[RowLayout, int]:
    """What the bytes of a record depend on."""
    types = tuple(plain_type(t) for t in schema.data.types)
    return layout_of(tuple(schema.data.names), types), schema_fingerprint(schema)


Writer = Callable[[pa.RecordBatch, RowLayout, int], pa.BinaryArray]


@dataclass(frozen=True)
class BoundInternalRow(BoundSerde):
    """`internal_row` bound to a schema."""

    schema: RecordSchema
    options: SerdeOptions
    mark = bytes([MARK])

    def __repr__(self) -> str:
        return f"internal_row({self.options})"

    @cached_property
    def _layout(self) -> tuple[RowLayout, int]:
        return layout_and_fingerprint(self.schema)

    @property
    def _write(self) -> Writer:
        by_row = self.options.execution == "row"
        return internal_row_loop.write_records if by_row else internal_row_write.write_records

    def from_arrow(self, batch: pa.RecordBatch) -> RowRecords:
        return self._records(self._write(to_plain_batch(batch), *self._layout))

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, RowRecords)
        ends = Rows.over(records.rows).ends
        if self.options.rows_per_frame != 1:
            # a record costs its bytes and its length in the frame's table
            ends = ends + _LENGTH_BYTES * np.arange(len(ends))
        cuts = cut(bounds, self.options, ends, FRAME_HEADER_BYTES)
        return frames_of(cuts, frames_from(records.rows, cuts), self.options)

    def decode(self, frames: pa.BinaryArray) -> RowRecords:
        payloads = opened("internal_row", frames, self.options)
        try:
            rows, _ = records_in(payloads)
        except Damaged as exc:
            raise frame_error("internal_row", exc.record, self.options, exc.problem) from exc
        records = self._records(rows)
        try:
            # the form of every record is checked here, its values when they are read
            _ = records.reader
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc
        return records

    def _records(self, rows: pa.BinaryArray) -> RowRecords:
        return RowRecords(self.schema, rows, self.options.execution)


class InternalRowStrategy(Strategy):
    """RFC-84's typed binary rows; see the module's docstring."""

    name = "internal_row"
    executions = ("batch", "row")
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundInternalRow:
        check_supported(schema.data)
        return BoundInternalRow(schema, resolve(self, options))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a record carries 4 bytes of its fingerprint",
            copies="one into the rows, none into frames of one record; out, one per column",
            batching="execution batch: fixed parts as one numpy array, calls shared by all records; "
            "execution row: nothing",
            trust="every length is checked against the bytes that are there; damage raises",
            notes=f"form {WITH_ROW} of the layout; the envelope's strings are limited to 255 bytes "
            "(operation, instant time), 64 KiB (file id, partition path) and 4 GiB (record key)",
        )
