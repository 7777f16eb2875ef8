"""Strategy `internal_row`: RFC-84's HoodieFlinkInternalRow, a typed binary row after its envelope.

`Records` holds one contiguous buffer of binary rows with offsets; `internal_row/layout.py` describes the
bytes. Most of the work is converting in, which builds that buffer; serialising one record a frame returns
a view of it. Deserialising checks the form of every record. A column's values are checked when the column
is read, so columns that are never read, as in a hop that only routes, cost nothing.
`internal_row/records.py` describes what is cached of records that were read.

Two executions give the same bytes (`RowShape` chooses): `batch` works on whole columns with Arrow and numpy
(`internal_row/write.py`, `internal_row/read.py`), `row` is a loop with `struct` (`internal_row/loop.py`).
The verbs work on the bytes too (`internal_row/verbs.py`). `layout = "nested"` stores the envelope as a row
of its own (`internal_row/nested.py`); RFC-84's discussion measured and rejected it, and the option is here
to measure it against the default, `flat`. `to_files = "batches"` converts whole Arrow batches out for files,
where the default, `columns`, reads only the columns that a file holds; the files are the same.
A frame of one record is that record; a frame of several has a table of lengths before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DecodeError
from serde_lab.records.buffers import binary_array
from serde_lab.records.plain_form import to_plain_batch
from serde_lab.records.schema import RecordSchema, check_supported
from serde_lab.serde.framing import (
    Cuts,
    Damaged,
    cut,
    frame_error,
    frames_of,
    opened,
    without_collector,
)
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.internal_row.layout import (
    FRAME_HEADER_BYTES,
    MARK,
    SEVERAL,
    WITH_ROW,
    Rows,
    refuse_where,
)
from serde_lab.serde.internal_row.records import RowRecords, RowShape
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues
from serde_lab.serde.registry import resolve

_FIRST_WORD = MARK | SEVERAL << 8
_WORD = 4


def frames_from(records: pa.BinaryArray, cuts: Cuts) -> pa.BinaryArray:
    if len(cuts) == len(records):
        return records
    rows = Rows.over(records)
    bodies = binary_array(rows.ends[cuts.offsets], rows.data)
    # the words before the records of each frame: mark, count and lengths; none before a single record
    counts = np.diff(cuts.offsets)
    several = counts > 1
    words = np.where(several, counts + FRAME_HEADER_BYTES // _WORD, 0)
    ends = np.append(0, np.cumsum(words))
    tables = np.empty(int(ends[-1]), "<u4")
    starts = ends[:-1][several]
    tables[starts] = _FIRST_WORD
    tables[starts + 1] = counts[several]
    is_length = np.ones(len(tables), np.bool_)
    is_length[starts] = is_length[starts + 1] = False
    tables[is_length] = rows.lengths[np.repeat(several, counts)]
    return pc.binary_join_element_wise(binary_array(ends * _WORD, tables), bodies, b"")


def records_in(frames: pa.BinaryArray) -> pa.BinaryArray:
    """All records of `frames`. Raises Damaged, with the number of the frame, for an invalid table of
    lengths."""
    rows = Rows.over(frames)
    lengths = rows.lengths.astype(np.int64)
    refuse_where(lengths < 2, "it has less than two bytes")
    data = np.frombuffer(rows.data, np.uint8)
    several = np.flatnonzero(data[rows.ends[:-1] + 1] == SEVERAL) if len(rows) else np.zeros(0, int)
    if not len(several):
        return frames
    words = np.zeros((len(frames), FRAME_HEADER_BYTES // _WORD), "<u4")
    too_short = np.zeros(len(frames), np.bool_)
    too_short[several] = lengths[several] < FRAME_HEADER_BYTES
    refuse_where(too_short, "it ends inside its header")
    at = rows.ends[several].astype(np.int64)[:, None] + np.arange(FRAME_HEADER_BYTES)
    words[several] = data[at].view("<u4")
    wrong = np.zeros(len(frames), np.bool_)
    counts = np.ones(len(frames), np.int64)
    counts[several] = words[several, 1]
    wrong[several] = (words[several, 0] != _FIRST_WORD) | (counts[several] < 2)
    refuse_where(wrong, "its header is invalid")
    table_bytes = np.zeros(len(frames), np.int64)
    table_bytes[several] = FRAME_HEADER_BYTES + _WORD * counts[several]
    refuse_where(table_bytes > lengths, "it ends inside its table of lengths")
    # each frame in three pieces: header, lengths, records
    ends = np.empty(3 * len(frames) + 1, np.int32)
    header_bytes = np.where(table_bytes > 0, FRAME_HEADER_BYTES, 0)
    ends[0:-1:3] = rows.ends[:-1]
    ends[1::3] = rows.ends[:-1] + header_bytes
    ends[2::3] = rows.ends[:-1] + table_bytes
    ends[-1] = rows.ends[-1]
    cut = binary_array(ends, rows.data)
    numbers = np.arange(0, 3 * len(frames), 3)
    tables = np.frombuffer(cut.take(pa.array(numbers + 1)).buffers()[2], "<u4")
    bodies = cut[2:] if len(frames) == 1 else cut.take(pa.array(numbers + 2))
    # a frame without a table is one record of the frame's length
    record_bytes = np.empty(int(counts.sum()), np.int64)
    has_table = np.repeat(table_bytes > 0, counts)
    record_bytes[has_table] = tables
    record_bytes[~has_table] = lengths[table_bytes == 0]
    first = np.append(0, np.cumsum(counts))
    sums = np.append(0, np.cumsum(record_bytes))
    body = Rows.over(bodies)
    stated = sums[first[1:]] - sums[first[:-1]]
    refuse_where(stated != body.lengths, "its records do not have the lengths that it states")
    return binary_array(sums + int(body.ends[0]), body.data)


class BoundInternalRow(BoundSerde):
    name = "internal_row"
    mark = bytes([MARK])

    @cached_property
    def _shape(self) -> RowShape:
        return RowShape.of(self.schema, self.options)

    @without_collector()
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
            raise DecodeError("internal_row", exc.number, exc.problem) from exc

    def update_metadata(self, records: Records, values: MetadataValues) -> RowRecords:
        assert isinstance(records, RowRecords)
        given = values.arrays(len(records))
        if not given:
            return records
        return RowRecords(self._shape, self._shape.update_metadata(records.reader, given))

    @without_collector()
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, RowRecords)
        ends = Rows.over(records.rows).ends
        if self.options.rows_per_frame != 1:
            # each record also takes the bytes of its length in the frame's table
            ends = ends + _WORD * np.arange(len(ends))
        cuts = cut(bounds, self.options, ends, FRAME_HEADER_BYTES)
        return frames_of(cuts, frames_from(records.rows, cuts), self.options)

    @without_collector()
    def decode(self, frames: pa.BinaryArray) -> RowRecords:
        payloads = opened("internal_row", frames, self.options)
        try:
            rows = records_in(payloads)
        except Damaged as exc:
            raise frame_error("internal_row", exc.number, self.options, exc.problem) from exc
        records = RowRecords(self._shape, rows)
        try:
            # values are checked later, when their column is read
            records.check_form()
        except Damaged as exc:
            raise DecodeError("internal_row", exc.number, exc.problem) from exc
        return records


class InternalRowStrategy(Strategy):
    """RFC-84's typed binary rows; see the module's docstring."""

    name = "internal_row"
    executions = ("batch", "row")
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundInternalRow:
        check_supported(schema.data)
        own = {"layout": ("flat", "nested"), "to_files": ("columns", "batches")}
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
