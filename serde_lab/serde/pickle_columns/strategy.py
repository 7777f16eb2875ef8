"""Strategy `pickle_columns`: Python's pickle at its best on columns, as `pickle` is at its best on rows.

Records are those of `arrow`: columns in plain form, an envelope column with a single value held once.
Converting in and out costs what it costs there, so the two strategies differ in the bytes of a frame alone:
a pickle of protocol 5, whose buffers stay out of band and are copied as they are, against an Arrow IPC
message. As in `pickle`, a frame holds nothing that both sides know: neither classes nor types nor names,
only the buffers and how they are arranged. `pickle_columns/frames.py` describes the bytes.

A frame costs some microseconds however few its records, so frames should hold many.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from serde_lab.errors import DecodeError
from serde_lab.records.schema import ENVELOPE, RecordSchema, check_supported
from serde_lab.serde.arrow.frames import KEY, changes, constant_bytes
from serde_lab.serde.arrow.records import ArrowRecords, BoundArrow
from serde_lab.serde.framing import (
    Cuts,
    Damaged,
    cut,
    frame_error,
    frames_of,
    opened,
    payload_bytes,
    without_collector,
)
from serde_lab.serde.interface import Bounds, Fairness, Frames, Records, SerdeOptions, Strategy
from serde_lab.serde.pickle_columns.frames import (
    FRAMES_AT_ONCE,
    MARK,
    Constants,
    PickledFrameReader,
    PickledFrameWriter,
)
from serde_lab.serde.registry import resolve

_NOT_COLUMNS = (pa.ArrowException, ValueError, TypeError, OverflowError, MemoryError)


class BoundPickleColumns(BoundArrow):
    """`pickle_columns` bound to a schema; converts as `arrow` does."""

    name = "pickle_columns"
    mark = MARK

    @cached_property
    def _prefix(self) -> bytes:
        return MARK + self._fingerprint.to_bytes(4, "little")

    @without_collector()
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, ArrowRecords)
        writer = PickledFrameWriter.of(self._plain, records.batch, self._prefix)
        cuts = cut(bounds, self.options)
        # a constant takes its bytes, its length and at most one of the pickle's own frames
        shared = sum(len(value) + 16 for value in records.constants.values())
        sizes = writer.frame_bytes(cuts.offsets) + shared
        if ((sizes > payload_bytes(self.options)) & (cuts.rows > 1)).any():
            ends = writer.record_ends(len(records))
            cuts = cut(bounds, self.options, ends, writer.overhead_bytes + shared)
        return frames_of(cuts, writer.write(cuts.offsets, _constants(records, cuts)), self.options)

    @without_collector()
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        parts = []
        columns = opened("pickle_columns", frames, self.options)
        for first in range(0, len(columns), FRAMES_AT_ONCE):
            parts.append(self._read(columns.slice(first, FRAMES_AT_ONCE), first))
        if not parts:
            nothing = [pa.array([], field.type) for field in self._plain]
            return ArrowRecords(self.schema, pa.record_batch(nothing, schema=self._plain), {})
        return ArrowRecords.concatenate(parts)

    def _read(self, frames: pa.BinaryArray, first: int) -> ArrowRecords:
        """The records of some frames; `first` is the number of the first one. Raises DecodeError."""
        reader = PickledFrameReader(self._plain, self._prefix)
        for index, frame in enumerate(frames):
            try:
                reader.add(memoryview(frame.as_buffer()).cast("B"))
            except Exception as exc:  # a pickle is a program, so it may raise anything
                raise self._error(first + index, exc) from exc
        try:
            return ArrowRecords(self.schema, *reader.batch())
        except Damaged as exc:
            raise self._error(None if exc.number is None else first + exc.number, exc) from exc
        except _NOT_COLUMNS as exc:
            raise self._error(None, exc) from exc

    def _error(self, frame: int | None, exc: Exception) -> DecodeError:
        if frame is None:
            return DecodeError("pickle_columns", None, f"it holds no columns of the schema: {exc}")
        return frame_error("pickle_columns", frame, self.options, str(exc))


def _constants(records: ArrowRecords, cuts: Cuts) -> Constants:
    """The value of each envelope column in each frame, None where it has several."""
    found: dict[int, list[bytes | None]] = {}
    for number, field in enumerate(ENVELOPE):
        if number in records.constants:
            found[number] = [records.constants[number]] * len(cuts)
        elif number != KEY and len(cuts):
            column = records.batch.column(field.name)
            first, last = cuts.offsets[:-1], cuts.offsets[1:] - 1
            steps = changes(column)
            values = map(constant_bytes, column.take(pa.array(first)))
            same = (steps[first] == steps[last]).tolist()
            found[number] = [v if one else None for v, one in zip(values, same, strict=True)]
    return found


class PickleColumnsStrategy(Strategy):
    """Pickled columns; see the module's docstring."""

    name = "pickle_columns"
    executions = ("batch",)
    default_rows_per_frame = 1000

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundPickleColumns:
        check_supported(schema.data)
        return BoundPickleColumns(schema, resolve(self, options))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know schema and layout of the columns; a frame carries 4 bytes of "
            "the schema's fingerprint",
            copies="buffers are copied into the frame once, out of band, and out of it once (to join)",
            batching="one pickle and one row of buffers a frame, however many its records; envelope "
            "columns with one value in a frame are sent once",
            trust="a pickle is a program: a hostile frame can run anything, a damaged one may do "
            "anything unless sealed by crc32c; columns are validated in full by Arrow before use",
            notes="converts in and out as arrow does; at one record a frame it costs more than pickle",
        )
