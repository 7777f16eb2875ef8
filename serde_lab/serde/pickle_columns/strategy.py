"""Strategy `pickle_columns`: Python's pickle at its best on columns, as `pickle` is at its best on rows.

Records are those of `arrow`: columns in plain form, an envelope column with a single value held once.
Converting in and out costs what it costs there, so the two strategies differ in the bytes of a frame alone:
a pickle of protocol 5, whose buffers stay out of band and are copied as they are, against an Arrow IPC
message. As in `pickle`, a frame holds nothing that both sides know: neither classes nor types nor names,
only the buffers and how they are arranged.

A frame costs some microseconds however few its records, so frames should hold many. Its bytes, numbers little
endian:

    byte 0      the mark, 0xA5
    1 to 4      fingerprint of the schema (`framing.py`)
    5 to 8      n, the number of buffers
    9 …         u32 × n, the bytes of each buffer
    then        a pickle, protocol 5, without memo, of the tuple (rows, columns)
    then        the buffers that the pickle refers to, in its order

`columns` has an entry for each column of the batch schema. An envelope column with one value in the whole
frame is that value, as bytes (the boolean: byte 0 or 1); any other column is a tuple of its planes
(`planes.py`), each a buffer out of band.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DecodeError
from serde_lab.records.buffers import binary_array
from serde_lab.records.plain_form import to_plain
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
from serde_lab.serde.pickle_columns.planes import (
    Plane,
    PlanesOfFrames,
    Positions,
    planes_of,
    refuse,
)
from serde_lab.serde.registry import resolve

MARK = b"\xa5"
_HEAD = struct.Struct("<II")
_PREFIX_BYTES = len(MARK) + _HEAD.size
FRAMES_AT_ONCE = 256
"""Frames that are written or read together: enough to spread the calls of numpy, few enough for caches."""

Constants = Mapping[int, Sequence[bytes | None]]
"""For each envelope column by number: its value in each frame, None where it has several."""


@dataclass(frozen=True)
class PickledFrameWriter:
    """Writes frames of the records of one batch; `prefix` is mark and fingerprint.

    `columns` has the planes of each column of the batch schema, None for one that is constant in all frames.
    """

    prefix: bytes
    columns: Sequence[Sequence[Plane | None] | None]

    @classmethod
    def of(cls, schema: pa.Schema, batch: pa.RecordBatch, prefix: bytes) -> PickledFrameWriter:
        """The writer for `batch`, which may lack envelope columns of the plain `schema`."""
        held = set(batch.schema.names)
        columns = [
            list(planes_of(to_plain(batch.column(f.name)))) if f.name in held else None
            for f in schema
        ]
        return cls(prefix, columns)

    def frame_bytes(self, edges: Positions) -> Positions:
        """The bytes of each frame, without constants; a few too many rather than too few."""
        total = np.full(len(edges) - 1, self.overhead_bytes, np.int64)
        for plane in chain.from_iterable(column or () for column in self.columns):
            if plane is not None:
                total += plane.sizes(edges)
        return total

    @property
    def overhead_bytes(self) -> int:
        """The most bytes of a frame that do not depend on its records, without constants."""
        # a buffer has its size and two opcodes; a column's tuple has its mark and its end, None one opcode
        inside = sum(2 + 6 * len(column or ()) for column in self.columns)
        return _PREFIX_BYTES + 24 + inside

    def record_ends(self, rows: int) -> Positions:
        """Where records would end, with each in a frame of its own that has no head; shape (rows + 1,)."""
        each = self.frame_bytes(np.arange(rows + 1, dtype=np.int64)) - self.overhead_bytes
        return np.append(0, np.cumsum(each))

    def write(self, edges: Positions, constants: Constants) -> pa.BinaryArray:
        """The frames between these edges. Raises DataError if they take 2 GiB or more."""
        buffer, inside = io.BytesIO(), io.BytesIO()
        outside: list[pickle.PickleBuffer] = []
        pickler = pickle.Pickler(inside, 5, buffer_callback=outside.append)
        pickler.fast = True
        ends = [0]
        rows = np.diff(edges).tolist()
        for at in range(0, len(rows), FRAMES_AT_ONCE):
            some = slice(at, at + FRAMES_AT_ONCE)
            between = edges[at : at + FRAMES_AT_ONCE + 1]
            found = [
                self._column(column, between, constants.get(number, ()), some)
                for number, column in enumerate(self.columns)
            ]
            for count, *columns in zip(rows[some], *found, strict=True):
                pickler.dump((count, columns))
                sizes = list(map(len, map(pickle.PickleBuffer.raw, outside)))
                buffer.write(self.prefix)
                buffer.write(struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes))
                buffer.write(inside.getvalue())
                buffer.writelines(outside)
                inside.seek(0)
                inside.truncate()
                outside.clear()
                ends.append(buffer.tell())
        return binary_array(np.array(ends), buffer.getbuffer())

    def _column(
        self,
        planes: Sequence[Plane | None] | None,
        edges: Positions,
        constants: Sequence[bytes | None],
        some: slice,
    ) -> Sequence[Any]:
        """What stands for a column in each of some frames."""
        values = constants[some]
        if planes is None:
            return values
        frames = len(edges) - 1
        nothing = [None] * frames
        parts = zip(
            *(nothing if plane is None else plane.parts(edges) for plane in planes), strict=True
        )
        if not values:
            return list(parts)
        return [part if value is None else value for part, value in zip(parts, values, strict=True)]


@dataclass(slots=True)
class PickledFrameReader:
    """Reads frames of records of one schema in plain form; `prefix` is mark and fingerprint."""

    schema: pa.Schema
    prefix: bytes
    _rows: list[int] = field(default_factory=list)
    _columns: list[Sequence[Any]] = field(default_factory=list)

    def add(self, frame: memoryview) -> None:
        """Unpickle a frame. Raises Damaged, or whatever a pickle raises."""
        if frame[:1] != MARK:
            raise Damaged("it does not begin with this strategy's mark")
        if len(frame) < _PREFIX_BYTES:
            raise Damaged("it is too short")
        if frame[: len(self.prefix)] != self.prefix:
            raise Damaged("it is of another schema")
        _, count = _HEAD.unpack_from(frame, 1)
        at = _PREFIX_BYTES + 4 * count
        if at > len(frame):
            raise Damaged("it ends in the sizes of its buffers")
        sizes = struct.unpack_from(f"<{count}I", frame, _PREFIX_BYTES)
        first = len(frame) - sum(sizes)
        if first < at:
            raise Damaged("its buffers are longer than itself")
        ends = np.cumsum([first, *sizes]).tolist()
        buffers = (frame[a:b] for a, b in pairwise(ends))
        stream = io.BytesIO(frame[at:first])
        found = pickle.Unpickler(stream, buffers=buffers).load()
        if stream.read(1) or next(buffers, None) is not None:
            raise Damaged("bytes or buffers follow its pickle")
        if type(found) is not tuple or list(map(type, found)) != [int, list]:
            raise Damaged("its pickle does not hold columns")
        rows, columns = found
        if rows < 1 or len(columns) != len(self.schema):
            raise Damaged(f"it has {rows} rows and {len(columns)} columns")
        self._rows.append(rows)
        self._columns.append(columns)

    def batch(self) -> tuple[pa.RecordBatch, dict[int, bytes]]:
        """All records: the columns that vary, and the values of the constant ones by number.

        Raises Damaged, or an error of Arrow's.
        """
        rows = np.array(self._rows, np.int64)
        arrays, fields, constants = [], [], {}
        frames = np.arange(len(rows))
        for number, (field_, found) in enumerate(
            zip(self.schema, zip(*self._columns, strict=True), strict=True)
        ):
            is_constant = np.fromiter((type(entry) is bytes for entry in found), bool, len(found))
            if number >= len(ENVELOPE):
                refuse(is_constant, frames, "a data column is a constant")
            if is_constant.all() and len(set(found)) == 1:
                constants[number] = found[0]
                _typed(found[:1], field_.type)
                continue
            arrays.append(_joined(found, is_constant, field_, rows))
            fields.append(field_)
        if any(
            a.null_count for a, f in zip(arrays, fields, strict=True) if f.name in ENVELOPE.names
        ):
            raise Damaged("an envelope column holds a null")
        batch = pa.record_batch(arrays, schema=pa.schema(fields))
        batch.validate(full=True)
        return batch, constants


def _joined(
    found: Sequence[Any], is_constant: npt.NDArray[np.bool_], field_: pa.Field, rows: Positions
) -> pa.Array:
    """A column of all frames, of which some may have a constant."""
    several = np.flatnonzero(~is_constant)
    planes = PlanesOfFrames([found[i] for i in several.tolist()], several)
    array = planes.array(field_.type, rows[several])
    if not len(found) > len(several):
        return array
    values = _typed([entry for entry in found if type(entry) is bytes], field_.type)
    places = np.zeros(len(found), np.int64)
    places[is_constant] = len(array) + np.arange(len(values))
    index = np.repeat(places, rows)
    index[np.repeat(~is_constant, rows)] = np.arange(len(array))
    return pa.concat_arrays([array, values]).take(pa.array(index))


def _typed(values: Sequence[bytes], t: pa.DataType) -> pa.Array:
    if pat.is_boolean(t):
        if set(values) - {b"\0", b"\1"}:
            raise Damaged("a constant is not a boolean")
        return pa.array([value == b"\1" for value in values])
    return pa.array(values, pa.binary()).cast(t)


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
            return ArrowRecords(self.schema, pa.RecordBatch.from_pylist([], self._plain), {})
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
    for number, name in enumerate(ENVELOPE.names):
        if number in records.constants:
            found[number] = [records.constants[number]] * len(cuts)
        elif number != KEY and len(cuts):
            column = records.batch.column(name)
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
