"""Writes and reads `pickle_columns` frames: a pickle of protocol 5, with the columns' buffers out of band.

A frame, numbers little endian:

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.buffers import binary_array
from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import ENVELOPE
from serde_lab.serde.framing import Damaged
from serde_lab.serde.pickle_columns.planes import (
    Plane,
    PlanesOfFrames,
    Positions,
    planes_of,
    refuse,
)

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
        for plane in self._all():
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

    def _all(self) -> Iterator[Plane]:
        return (plane for column in self.columns for plane in column or () if plane is not None)


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
