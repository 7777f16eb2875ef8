"""Strategy `arrow`: records as an Arrow record batch, frames as Arrow IPC messages without the schema.

`Records` holds one RecordBatch in plain form (`records/plain_form.py`), so that converting in and out
costs next to nothing and serialising is copying of columns. Frames are meant to hold many records: the
message's own metadata takes about 150 bytes and 50 a column, however few they are.

A frame, numbers little endian:

    byte 0      the mark, 0xA2
    byte 1      compression of the body: 0 none, 1 lz4 (frame format), 2 zstd
    byte 2      constant columns: bit i is set where envelope column i has one value in all the frame
    byte 3      0
    4 to 7      fingerprint of the schema (`fingerprint.py`)
    8 to 11     bytes of the body as it stands here
    12 to 15    bytes of the body when decompressed
    16 …        the body: an encapsulated Arrow IPC RecordBatch message of the columns that are not
                constant, in the order of the batch schema; then for each constant column, in
                order, u32 length and bytes of its value (the boolean: length 1, byte 0 or 1)
    then        zeros, if needed, until decoding allocates at most 16 times the frame

The record key is never sent as a constant: its offsets bound how many records a frame can claim.
Must not know how frames are cut (`framing.py`) or what the columns mean.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.plain_form import from_plain, from_plain_batch, to_plain_batch
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RECORD_KEY, RecordSchema
from serde_lab.records.types import check_supported, plain_schema
from serde_lab.serde.fingerprint import schema_fingerprint
from serde_lab.serde.framing import Cuts, cut, frame_error, frames_of, opened, payload_bytes
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.options import resolve

_HEADER = struct.Struct("<BBBBIII")
_LENGTH = struct.Struct("<I")
_CODECS = (None, "lz4", "zstd")
_KEY = ENVELOPE.get_field_index(RECORD_KEY)
_EXPANSION = 16


@dataclass(frozen=True, slots=True)
class ArrowRecords(Records):
    """Records as one RecordBatch in plain form."""

    schema: RecordSchema
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def to_arrow(self) -> pa.RecordBatch:
        return from_plain_batch(self.batch, self.schema.batch_schema)

    def column(self, name: str) -> pa.Array:
        return from_plain(self.batch.column(name), self.schema.batch_schema.field(name).type)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.schema, self.batch.take(pa.array(indices)))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        return cls(parts[0].schema, pa.concat_batches([part.batch for part in parts]))


@dataclass(frozen=True)
class BoundArrow(BoundSerde):
    """`arrow` bound to a schema."""

    schema: RecordSchema
    options: SerdeOptions
    mark = b"\xa2"

    def __repr__(self) -> str:
        return f"arrow({self.options})"

    @cached_property
    def _plain(self) -> pa.Schema:
        return plain_schema(self.schema.batch_schema)

    @cached_property
    def _fingerprint(self) -> int:
        return schema_fingerprint(self.schema)

    @cached_property
    def _codec(self) -> int:
        name = self.options.own["compression"]
        return 0 if name == "none" else _CODECS.index(str(name))

    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        plain = to_plain_batch(batch)
        return ArrowRecords(self.schema, pa.record_batch(plain.columns, schema=self._plain))

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, ArrowRecords)
        writer = _FrameWriter(records.batch, self._fingerprint, self._codec)
        most_bytes = payload_bytes(self.options)
        frames: list[bytes] = []
        starts: list[int] = []
        targets: list[int] = []
        cuts = cut(bounds, self.options)
        offsets = cuts.offsets.tolist()
        for target, first, last in zip(
            cuts.targets.tolist(), offsets[:-1], offsets[1:], strict=True
        ):
            for start, frame in writer.frames(first, last, most_bytes):
                frames.append(frame)
                starts.append(start)
                targets.append(target)
        final = Cuts(np.array([*starts, len(records)], np.int64), np.array(targets, np.int32))
        return frames_of(final, pa.array(frames, pa.binary()), self.options)

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        parts = []
        for index, frame in enumerate(opened("arrow", frames, self.options)):
            try:
                parts.append(self._read(frame.as_buffer()))
            except (pa.ArrowException, OSError, EOFError, _Damaged) as exc:
                raise frame_error("arrow", index, self.options, str(exc)) from exc
        columns = [self._joined(i, parts) for i in range(len(self._plain))]
        return ArrowRecords(self.schema, pa.record_batch(columns, schema=self._plain))

    def _read(self, frame: pa.Buffer) -> _Part:
        if frame.size < _HEADER.size:
            raise _Damaged(f"it has {frame.size} bytes, less than a header")
        mark, codec, constant, zero, fingerprint, stored, raw = _HEADER.unpack(
            frame[: _HEADER.size]
        )
        if bytes([mark]) != self.mark:
            raise _Damaged(f"its mark is {mark:#04x}, expected {self.mark[0]:#04x}")
        if fingerprint != self._fingerprint:
            raise _Damaged(
                f"it is of schema {fingerprint:#010x}, expected {self._fingerprint:#010x}"
            )
        if codec >= len(_CODECS) or zero or constant >> len(ENVELOPE) or constant >> _KEY & 1:
            raise _Damaged("its header says what no header says")
        if frame.size < _HEADER.size + stored or 2 * raw > _EXPANSION * frame.size:
            raise _Damaged(f"{frame.size} bytes cannot hold a body of {stored} or {raw} bytes")
        body = frame.slice(_HEADER.size, stored)
        if codec:
            body = pa.Codec(_CODECS[codec]).decompress(body, decompressed_size=raw)
        elif stored == raw:
            # a frame may begin anywhere in its column; what is read must be aligned
            body = pa.py_buffer(body.to_pybytes())
        if body.size != raw:
            raise _Damaged(f"its body has {body.size} bytes, expected {raw}")
        reader = pa.BufferReader(body)
        message = pa.ipc.read_message(reader)
        schema = pa.schema([f for i, f in enumerate(self._plain) if not constant >> i & 1])
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        part = _Part(batch, _constants(constant, body.slice(reader.tell())))
        if frame.size != max(
            _HEADER.size + stored, _least_bytes(raw, batch.num_rows, list(part.constants.values()))
        ):
            raise _Damaged(f"it has {frame.size} bytes, which is not what its body needs")
        if any(batch.column(f.name).null_count for f in schema if not f.nullable):
            raise _Damaged("an envelope column holds a null")
        return part

    def _joined(self, i: int, parts: list[_Part]) -> pa.Array:
        """Column i of all `parts`."""
        field = self._plain.field(i)
        if not parts:
            return pa.array([], field.type)
        if all(i in part.constants for part in parts):
            values = pa.array([part.constants[i] for part in parts], pa.binary())
            typed = _typed(values, field)
            rows = [part.batch.num_rows for part in parts]
            if len(set(values.to_pylist())) == 1:
                return pa.repeat(typed[0], sum(rows))
            return typed.take(pa.array(np.repeat(np.arange(len(rows)), rows)))
        arrays = [
            pa.repeat(_typed(pa.array([part.constants[i]]), field)[0], part.batch.num_rows)
            if i in part.constants
            else part.batch.column(field.name)
            for part in parts
        ]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


class _Damaged(Exception):  # noqa: N818 - it is turned into DecodeError before anyone sees it
    """What is wrong with a frame."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One frame, read: the columns that vary, and the values of those that do not."""

    batch: pa.RecordBatch
    constants: dict[int, bytes]


def _typed(values: pa.BinaryArray, field: pa.Field) -> pa.Array:
    """Constants as they stand in frames, as a column of the envelope."""
    if field.name == IS_INDEX_RECORD:
        return pc.equal(values, b"\x01")
    return values.cast(field.type)


def _constants(mask: int, section: pa.Buffer) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    data, at = section.to_pybytes(), 0
    for i, field in enumerate(ENVELOPE):
        if not mask >> i & 1:
            continue
        if at + _LENGTH.size > len(data):
            raise _Damaged("it ends inside its constants")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found[i] = value = data[at : at + length]
        at += length
        if at > len(data) or (field.name == IS_INDEX_RECORD and value not in (b"\0", b"\x01")):
            raise _Damaged("its constants are none")
    if at != len(data):
        raise _Damaged("bytes follow its constants")
    return found


def _least_bytes(raw_bytes: int, rows: int, constants: Sequence[bytes]) -> int:
    """The least size of a frame: decoding copies its body twice and repeats its constants."""
    repeated = rows * sum(len(value) + 4 for value in constants)
    return -(-(2 * raw_bytes + repeated) // _EXPANSION)


class _FrameWriter:
    """Writes frames of any run of a batch's records."""

    def __init__(self, batch: pa.RecordBatch, fingerprint: int, codec: int) -> None:
        self._batch = batch
        self._fingerprint = fingerprint
        self._codec_number = codec
        self._codec = pa.Codec(_CODECS[codec]) if codec else None
        self._changes = [_changes(batch.column(i)) for i in range(len(ENVELOPE))]
        self._varying: dict[int, pa.RecordBatch] = {}

    def frames(self, first: int, last: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """Frames of records [first, last), each with its first record, cut at `most_bytes`."""
        frame = self._frame(first, last)
        rows = last - first
        if len(frame) <= most_bytes or rows == 1:
            return [(first, frame)]
        # into as many pieces as its bytes ask for, and again where rows differ in size
        step = max(1, rows // -(-len(frame) // most_bytes))
        starts = range(first, last, step)
        pieces = (self.frames(at, min(at + step, last), most_bytes) for at in starts)
        return [piece for found in pieces for piece in found]

    def _frame(self, first: int, last: int) -> bytes:
        mask = 0
        for i, changes in enumerate(self._changes):
            if i != _KEY and (changes is None or changes[first] == changes[last - 1]):
                mask |= 1 << i
        if mask not in self._varying:
            kept = [i for i in range(self._batch.num_columns) if not mask >> i & 1]
            self._varying[mask] = self._batch.select(kept)
        message = self._varying[mask].slice(first, last - first).serialize()
        constants = [
            _constant(self._batch.column(i)[first]) for i in range(len(ENVELOPE)) if mask >> i & 1
        ]
        section = b"".join(part for v in constants for part in (_LENGTH.pack(len(v)), v))
        raw_bytes = message.size + len(section)
        body = b"".join([message, section])
        if self._codec is not None:
            body = self._codec.compress(body, asbytes=True)
        header = _HEADER.pack(
            BoundArrow.mark[0],
            self._codec_number,
            mask,
            0,
            self._fingerprint,
            len(body),
            raw_bytes,
        )
        frame = header + body
        return frame.ljust(_least_bytes(raw_bytes, last - first, constants), b"\0")


def _constant(value: pa.Scalar) -> bytes:
    if pa.types.is_boolean(value.type):
        return bytes([value.as_py()])
    return bytes(value.as_buffer())


def _changes(column: pa.Array) -> npt.NDArray[np.int32] | None:
    """How often the value has changed up to each row; None if it never does."""
    if len(column) < 2:
        return None
    same_as_first = pc.all(pc.equal(column, column[0])).as_py()
    if same_as_first:
        return None
    differs = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.append(0, np.cumsum(differs)).astype(np.int32)


class ArrowStrategy(Strategy):
    """Arrow IPC record batches; see the module's docstring."""

    name = "arrow"
    executions = ("batch",)
    default_rows_per_frame = 1000

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundArrow:
        check_supported(schema.data)
        own = {"compression": ("none", "lz4", "zstd")}
        return BoundArrow(schema, resolve(self, options, own))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a frame carries 4 bytes of its fingerprint",
            copies="columns are copied into the frame once; out of it twice (to align, to join)",
            batching="metadata, validation and calls are shared by all records of a frame; "
            "envelope columns with one value in a frame are sent once",
            trust="every frame is validated in full by Arrow before use; damage raises",
            notes="at one record a frame the metadata outweighs the record many times",
        )
