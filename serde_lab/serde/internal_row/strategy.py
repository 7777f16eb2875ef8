"""Strategy `internal_row`: RFC-84's HoodieFlinkInternalRow, a typed binary row behind its envelope.

`Records` holds one contiguous buffer of binary rows with offsets, whose bytes `internal_row/layout.py`
describes. Converting in builds that buffer, which is where the work is; serialising one record a frame
hands out a view of it. Deserialising checks the form of every record, and the values of a column are
checked when the column is read: what is never read, as in a hop that only routes, costs nothing.

What is kept of the records that were read is said in `internal_row/records.py`.

Two executions with the same bytes (`internal_row/shape.py` chooses): `batch` works on whole columns with
Arrow and numpy (`internal_row/write.py`, `internal_row/read.py`), `row` is a loop with `struct`
(`internal_row/loop.py`).
Other metadata and other columns are made of such bytes too (`internal_row/verbs.py`).
`layout = "nested"` puts the envelope into the record as a row of its own (`internal_row/nested.py`), which
RFC-84's discussion measured and left: an option to measure it here, against the flat one that is default.
Must not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from serde_lab.errors import DecodeError
from serde_lab.records.plain_form import to_plain_batch
from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import check_supported
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
from serde_lab.serde.internal_row.frames import frames_from, records_in
from serde_lab.serde.internal_row.layout import FRAME_HEADER_BYTES, MARK, WITH_ROW
from serde_lab.serde.internal_row.records import RowRecords
from serde_lab.serde.internal_row.rows import Damaged, Rows
from serde_lab.serde.internal_row.shape import Shape
from serde_lab.serde.options import resolve
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues

EXPECTED: Mapping[str, tuple[float, float]] = {
    "record": (85, 150),
    "bool": (1.1, 8),
    "int8": (1.1, 7),
    "int16": (2.1, 7),
    "int32": (4.1, 7),
    "int64": (8.1, 7),
    "float": (4.1, 7),
    "double": (8.1, 7),
    "decimal": (8.1, 14),
    "string": (16.1, 38),
    "binary": (16.1, 35),
    "date": (4.1, 7),
    "timestamp": (8.1, 7),
    "list": (33.1, 160),
    "map": (39.1, 350),
    "struct": (29.1, 130),
}
"""Written down before columns were measured one by one: bytes and nanoseconds of a value.

For `execution = "batch"` at one record a frame; the values are those of `pickle.records.EXPECTED`."""
EXPECTED_ROW_NS: Mapping[str, float] = {
    "record": 4000,
    "bool": 450,
    "int8": 350,
    "int16": 350,
    "int32": 350,
    "int64": 350,
    "float": 350,
    "double": 350,
    "decimal": 700,
    "string": 600,
    "binary": 500,
    "date": 350,
    "timestamp": 350,
    "list": 2500,
    "map": 4000,
    "struct": 3000,
}
"""The nanoseconds expected of `execution = "row"`; its bytes are the same."""

_LENGTH_BYTES = 4


@dataclass(frozen=True)
class BoundInternalRow(BoundSerde):
    """`internal_row` bound to a schema."""

    schema: RecordSchema
    options: SerdeOptions
    mark = bytes([MARK])

    def __repr__(self) -> str:
        return f"internal_row({self.options})"

    @cached_property
    def _shape(self) -> Shape:
        return Shape.of(self.schema, self.options)

    def from_arrow(self, batch: pa.RecordBatch) -> RowRecords:
        return RowRecords(self._shape, self._shape.write(to_plain_batch(batch)))

    def project(self, projection: Projection, sides: Sequence[Records]) -> RowRecords:
        readers = []
        for side in sides:
            assert isinstance(side, RowRecords)
            readers.append(side.reader)
        try:
            return RowRecords(self._shape, self._shape.project(projection, readers))
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc

    def update_metadata(self, records: Records, values: MetadataValues) -> RowRecords:
        assert isinstance(records, RowRecords)
        given = values.columns(len(records))
        if not given:
            return records
        return RowRecords(self._shape, self._shape.update_metadata(records.reader, given))

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
        records = RowRecords(self._shape, rows)
        try:
            # the form of every record is checked here, its values when they are read
            records.check_form()
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc
        return records


class InternalRowStrategy(Strategy):
    """RFC-84's typed binary rows; see the module's docstring."""

    name = "internal_row"
    executions = ("batch", "row")
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundInternalRow:
        check_supported(schema.data)
        own = {"layout": ("flat", "nested")}
        return BoundInternalRow(schema, resolve(self, options, own))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a record carries 4 bytes of its fingerprint",
            copies="one into the rows, none into frames of one record; out, one per column",
            batching="execution batch: fixed parts as one numpy array, calls shared by all records; "
            "execution row: nothing",
            trust="every length is checked against the bytes that are there; damage raises",
            notes=f"form {WITH_ROW} of the layout; the envelope's strings are limited to 255 bytes "
            "(operation, instant time), 64 KiB (file id, partition path) and 4 GiB (record key); "
            "layout nested: the envelope is a row of its own, with null bits and lengths of 4 bytes",
        )
