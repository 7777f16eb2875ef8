"""Strategy `arrow`: records as an Arrow record batch, frames as Arrow IPC messages without the schema.

`Records` holds one RecordBatch in plain form (`records/plain_form.py`), without those envelope columns
that have one value throughout, which it holds once. Converting in and out costs next to nothing, and
serialising is copying of columns. Frames are meant to hold many records: the message's own metadata
takes about 150 bytes and 50 a column, however few they are.

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
    then        zeros, until the frame has a multiple of 8 bytes (so that the next one is aligned as
                Arrow likes it) and decoding allocates at most 16 times the frame

The record key is never sent as a constant: its offsets bound how many records a frame can claim.
Must not know how frames are cut (`framing.py`) or what the columns mean.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.plain_form import from_plain, to_plain_batch
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

EXPECTED: Mapping[str, tuple[float, float]] = {
    "record": (33, 60),
    "bool": (0.2, 2),
    "int8": (1.1, 2),
    "int16": (2.1, 2),
    "int32": (4.1, 2.5),
    "int64": (8.1, 3),
    "float": (4.1, 2.5),
    "double": (8.1, 3),
    "decimal": (16.1, 8),
    "string": (16.2, 15),
    "binary": (16.2, 12),
    "date": (4.1, 2.5),
    "timestamp": (8.1, 3),
    "list": (28.2, 15),
    "map": (34.3, 35),
    "struct": (24.3, 20),
}
"""Written down before columns were measured one by one: bytes and nanoseconds of a value.

For 1,000 records a frame; the values are those of `pickle_records.EXPECTED`."""

_HEADER = struct.Struct("<BBBBIII")
_LENGTH = struct.Struct("<I")
_CODECS = (None, "lz4", "zstd")
_KEY = ENVELOPE.get_field_index(RECORD_KEY)
_EXPANSION = 16


@dataclass(frozen=True, slots=True)
class ArrowRecords(Records):
    """Records as one RecordBatch in plain form, of the columns that are not in `constants`.

    `constants` maps numbers of envelope columns to the value that all records have.
    """

    schema: RecordSchema
    batch: pa.RecordBatch
    constants: Mapping[int, bytes]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def to_arrow(self) -> pa.RecordBatch:
        schema = self.schema.batch_schema
        return pa.record_batch([self._column(field) for field in schema], schema=schema)

    def column(self, name: str) -> pa.Array:
        return self._column(self.schema.batch_schema.field(name))

    def _column(self, field: pa.Field) -> pa.Array:
        number = ENVELOPE.get_field_index(field.name)
        if number in self.constants:
            return pa.repeat(_typed([self.constants[number]], number)[0], len(self))
        return from_plain(self.batch.column(field.name), field.type)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.schema, self.batch.take(pa.array(indices)), self.constants)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        schema = parts[0].schema
        shared = set[int].intersection(*(set(part.constants) for part in parts))
        parts = [part._with_columns(shared) for part in parts]
        batch = pa.concat_batches([part.batch for part in parts])
        constants = dict(parts[0].constants)
        differing = {i for i, v in constants.items() if any(p.constants[i] != v for p in parts)}
        if differing:
            rows = pa.array(np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
            for i in differing:
                del constants[i]
            columns = {
                i: _typed([part.constants[i] for part in parts], i).take(rows) for i in differing
            }
            batch = _with_envelope(batch, columns)
        return cls(schema, batch, constants)

    def _with_columns(self, kept: set[int]) -> Self:
        """The same records with no constants but those in `kept`."""
        spread = set(self.constants) - kept
        if not spread:
            return self
        columns = {i: self.column(ENVELOPE.field(i).name) for i in spread}
        constants = {i: v for i, v in self.constants.items() if i in kept}
        return type(self)(self.schema, _with_envelope(self.batch, columns), constants)


def _with_envelope(batch: pa.RecordBatch, columns: Mapping[int, pa.Array]) -> pa.RecordBatch:
    """`batch` and these columns of the envelope, in the envelope's order."""
    given = {ENVELOPE.field(i).name: column for i, column in columns.items()}
    names = [n for n in ENVELOPE.names if n in given or n in batch.schema.names]
    fields = [ENVELOPE.field(n) for n in names]
    arrays = [given[n] if n in given else batch.column(n) for n in names]
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name not in names:
            fields.append(field)
            arrays.append(array)
    return pa.record_batch(arrays, schema=pa.schema(fields))


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
    def _schemas(self) -> dict[int, pa.Schema]:
        return {}

    def _varying(self, constant: int) -> pa.Schema:
        """The columns of a frame in which these are constant."""
        if constant not in self._schemas:
            fields = [f for i, f in enumerate(self._plain) if not constant >> i & 1]
            self._schemas[constant] = pa.schema(fields)
        return self._schemas[constant]

    @cached_property
    def _fingerprint(self) -> int:
        return schema_fingerprint(self.schema)

    @cached_property
    def _codec(self) -> int:
        name = self.options.own["compression"]
        return 0 if name == "none" else _CODECS.index(str(name))

    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        plain = to_plain_batch(batch)
        constants = {
            i: value
            for i in range(len(ENVELOPE))
            if i != _KEY and (value := _one_value(plain.column(i))) is not None
        }
        return ArrowRecords(self.schema, _without(plain, self._plain, constants), constants)

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, ArrowRecords)
        writer = _FrameWriter(records, self._fingerprint, self._codec)
        most_bytes = payload_bytes(self.options)
        cuts = cut(bounds, self.options)
        offsets = cuts.offsets.tolist()
        starts: list[int] = []
        targets: list[int] = []
        for target, first, last in zip(
            cuts.targets.tolist(), offsets[:-1], offsets[1:], strict=True
        ):
            starts += writer.write(first, last, most_bytes)
            targets += [target] * (len(starts) - len(targets))
        final = Cuts(np.array([*starts, len(records)], np.int64), np.array(targets, np.int32))
        return frames_of(final, writer.column(), self.options)

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        parts = []
        for index, frame in enumerate(opened("arrow", frames, self.options)):
            try:
                parts.append(self._read(frame.as_buffer()))
            except (pa.ArrowException, OSError, EOFError, _Damaged) as exc:
                raise frame_error("arrow", index, self.options, str(exc)) from exc
        if not parts:
            nothing = [pa.array([], field.type) for field in self._plain]
            return ArrowRecords(self.schema, pa.record_batch(nothing, schema=self._plain), {})
        return ArrowRecords.concatenate(parts)

    def _read(self, frame: pa.Buffer) -> ArrowRecords:
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
        elif body.address % 8:
            # where the exchange, or a trailer, has moved the frame: what is read must be aligned
            body = pa.py_buffer(body.to_pybytes())
        if body.size != raw:
            raise _Damaged(f"its body has {body.size} bytes, expected {raw}")
        reader = pa.BufferReader(body)
        message = pa.ipc.read_message(reader)
        schema = self._varying(constant)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        constants = _constants(constant, body.slice(reader.tell()))
        if frame.size != _frame_bytes(stored, raw, batch.num_rows, constants):
            raise _Damaged(f"it has {frame.size} bytes, which is not what its body needs")
        if any(column.null_count for column in batch.columns[: _envelope_columns(constant)]):
            raise _Damaged("an envelope column holds a null")
        return ArrowRecords(self.schema, batch, constants)


def _envelope_columns(constant: int) -> int:
    return len(ENVELOPE) - constant.bit_count()


class _Damaged(Exception):
    """What is wrong with a frame."""


def _typed(values: Sequence[bytes], number: int) -> pa.Array:
    """Constants, as bytes, in the type of their envelope column."""
    if ENVELOPE.field(number).name == IS_INDEX_RECORD:
        return pa.array([value == b"\x01" for value in values])
    return pa.array(values, pa.binary()).cast(pa.string())


def _one_value(column: pa.Array) -> bytes | None:
    """The one value of all rows of an envelope column, or None."""
    if not len(column):
        return None
    first = column[0]
    # most columns that vary differ in their last row: the others are worth a full comparison
    if column[len(column) - 1] != first or not pc.all(pc.equal(column, first)).as_py():
        return None
    return _bytes(first)


def _bytes(value: pa.Scalar) -> bytes:
    if pa.types.is_boolean(value.type):
        return bytes([value.as_py()])
    encoded: bytes = value.as_py().encode()
    return encoded


def _without(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[int, bytes]
) -> pa.RecordBatch:
    """`batch` with the types of `schema`, but without its constant columns."""
    kept = [i for i in range(len(schema)) if i not in constants]
    fields = [schema.field(i) for i in kept]
    return pa.record_batch([batch.column(i) for i in kept], schema=pa.schema(fields))


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
        if at > len(data) or not _is_constant(field, value):
            raise _Damaged("its constants are none")
    if at != len(data):
        raise _Damaged("bytes follow its constants")
    return found


def _is_constant(field: pa.Field, value: bytes) -> bool:
    if field.name == IS_INDEX_RECORD:
        return value in (b"\0", b"\x01")
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _frame_bytes(
    stored_bytes: int, raw_bytes: int, rows: int, constants: Mapping[int, bytes]
) -> int:
    """The size of a frame with its padding: decoding copies the body twice, and repeats constants."""
    repeated = rows * sum(len(value) + 4 for value in constants.values())
    least = -(-(2 * raw_bytes + repeated) // _EXPANSION)
    return -(-max(_HEADER.size + stored_bytes, least) // 8) * 8


class _FrameWriter:
    """Writes frames of runs of records, one behind the other."""

    def __init__(self, records: ArrowRecords, fingerprint: int, codec: int) -> None:
        self._records = records
        self._fingerprint = fingerprint
        self._codec_number = codec
        self._codec = pa.Codec(_CODECS[codec]) if codec else None
        names = records.batch.schema.names
        self._changes = {
            ENVELOPE.get_field_index(name): _changes(records.batch.column(name))
            for name in ENVELOPE.names
            if name in names and name != RECORD_KEY
        }
        self._varying: dict[tuple[int, ...], pa.RecordBatch] = {}
        self._parts: list[bytes | pa.Buffer] = []
        self._ends = [0]

    def write(self, first: int, last: int, most_bytes: int) -> list[int]:
        """Write records [first, last); returns the first record of each frame that this took."""
        rows = last - first
        parts, size = self._frame(first, last)
        if size <= most_bytes or rows == 1:
            self._parts += parts
            self._ends.append(self._ends[-1] + size)
            return [first]
        # into as many pieces as its bytes ask for, and again where rows differ in size
        step = max(1, rows // -(-size // most_bytes))
        pieces = [
            self.write(at, min(at + step, last), most_bytes) for at in range(first, last, step)
        ]
        return [start for piece in pieces for start in piece]

    def column(self) -> pa.BinaryArray:
        """All frames that were written."""
        ends = pa.array(self._ends, pa.int32()).buffers()[1]
        data = pa.py_buffer(b"".join(self._parts))
        return pa.Array.from_buffers(pa.binary(), len(self._ends) - 1, [None, ends, data], 0)

    def _frame(self, first: int, last: int) -> tuple[list[bytes | pa.Buffer], int]:
        """The parts of the frame of records [first, last), and its size."""
        same = tuple(i for i, c in self._changes.items() if c[first] == c[last - 1])
        names = [ENVELOPE.field(i).name for i in same]
        if same not in self._varying:
            self._varying[same] = self._records.batch.drop_columns(names)
        message = self._varying[same].slice(first, last - first).serialize()
        constants = dict(self._records.constants)
        for i, name in zip(same, names, strict=True):
            constants[i] = _bytes(self._records.batch.column(name)[first])
        section = b"".join(
            _LENGTH.pack(len(value)) + value for _, value in sorted(constants.items())
        )
        raw_bytes = message.size + len(section)
        body: list[bytes | pa.Buffer] = [message, section]
        if self._codec is not None:
            body = [self._codec.compress(b"".join(body), asbytes=True)]
        stored_bytes = sum(map(len, body))
        mask = sum(1 << i for i in constants)
        numbers = (self._codec_number, mask, 0, self._fingerprint, stored_bytes, raw_bytes)
        size = _frame_bytes(stored_bytes, raw_bytes, last - first, constants)
        padding = bytes(size - _HEADER.size - stored_bytes)
        return [_HEADER.pack(BoundArrow.mark[0], *numbers), *body, padding], size


def _changes(column: pa.Array) -> npt.NDArray[np.int64]:
    """How often the value has changed up to each row."""
    if len(column) < 2:
        return np.zeros(len(column), np.int64)
    differs = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.append(0, np.cumsum(differs))


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
