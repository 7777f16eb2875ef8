"""Writes and reads `arrow` frames: Arrow IPC messages without the schema and without constant columns.

A frame, numbers little endian:

    byte 0      the mark, 0xA2
    byte 1      compression of the body: 0 none, 1 lz4 (frame format), 2 zstd
    byte 2      constant columns: bit i is set if envelope column i has one value in the whole frame
    byte 3      0
    4 to 7      fingerprint of the schema (`framing.schema_fingerprint`)
    8 to 11     bytes of the body as stored in the frame
    12 to 15    bytes of the body when decompressed
    16 …        the body: an encapsulated Arrow IPC RecordBatch message of the columns that are not
                constant, in the order of the batch schema; then for each constant column, in
                order, u32 length and bytes of its value (the boolean: length 1, byte 0 or 1)
    then        zeros, until the frame has a multiple of 8 bytes (so that the next one is aligned as
                Arrow prefers) and decoding allocates at most 16 times the frame

The record key is never sent as a constant: its offsets bound how many records a frame can claim.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.buffers import binary_array
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RECORD_KEY
from serde_lab.serde.framing import Damaged

MARK = 0xA2
CODECS = (None, "lz4", "zstd")
KEY = ENVELOPE.get_field_index(RECORD_KEY)
_HEADER = struct.Struct("<BBBBIII")
_LENGTH = struct.Struct("<I")
_EXPANSION = 16


class FrameReader:
    """Reads frames of records of one schema."""

    def __init__(self, plain: pa.Schema, fingerprint: int) -> None:
        """`plain` has all columns of a batch, in plain form."""
        self._plain = plain
        self._fingerprint = fingerprint
        self._schemas: dict[int, pa.Schema] = {}

    def read(self, frame: pa.Buffer) -> tuple[pa.RecordBatch, dict[int, bytes]]:
        """The columns that vary, and the values of the constant ones by number.

        Raises Damaged, or an error of Arrow's.
        """
        if frame.size < _HEADER.size:
            raise Damaged(f"it has {frame.size} bytes, less than a header")
        mark, codec, constant, zero, fingerprint, stored, raw = _HEADER.unpack(
            frame[: _HEADER.size]
        )
        if mark != MARK:
            raise Damaged(f"its mark is {mark:#04x}, expected {MARK:#04x}")
        if fingerprint != self._fingerprint:
            raise Damaged(
                f"it is of schema {fingerprint:#010x}, expected {self._fingerprint:#010x}"
            )
        if codec >= len(CODECS) or zero or constant >> len(ENVELOPE) or constant >> KEY & 1:
            raise Damaged("its header is invalid")
        if frame.size < _HEADER.size + stored or 2 * raw > _EXPANSION * frame.size:
            raise Damaged(f"{frame.size} bytes cannot hold a body of {stored} or {raw} bytes")
        body = frame.slice(_HEADER.size, stored)
        if codec:
            body = pa.Codec(CODECS[codec]).decompress(body, decompressed_size=raw)
        elif body.address % 8:
            # the shuffle or a trailer may have moved the frame, and Arrow must read aligned bytes
            body = pa.py_buffer(body.to_pybytes())
        if body.size != raw:
            raise Damaged(f"its body has {body.size} bytes, expected {raw}")
        reader = pa.BufferReader(body)
        message = pa.ipc.read_message(reader)
        schema = self._varying(constant)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        constants = _constants(constant, body.slice(reader.tell()))
        if frame.size != _frame_bytes(stored, raw, batch.num_rows, constants):
            raise Damaged(f"it has {frame.size} bytes, which is not what its body needs")
        envelope_columns = len(ENVELOPE) - constant.bit_count()
        if any(batch.column(i).null_count for i in range(envelope_columns)):
            raise Damaged("an envelope column holds a null")
        return batch, constants

    def _varying(self, constant: int) -> pa.Schema:
        """The schema of a frame's other columns; `constant` is its mask of constant columns."""
        if constant not in self._schemas:
            fields = [f for i, f in enumerate(self._plain) if not constant >> i & 1]
            self._schemas[constant] = pa.schema(fields)
        return self._schemas[constant]


def typed(values: Sequence[bytes], number: int) -> pa.Array:
    """Constants given as bytes, as an array of the type of envelope column `number`."""
    if ENVELOPE.field(number).name == IS_INDEX_RECORD:
        return pa.array([value == b"\x01" for value in values])
    return pa.array(values, pa.binary()).cast(pa.string())


def constant_bytes(value: pa.Scalar) -> bytes:
    if pa.types.is_boolean(value.type):
        return bytes([value.as_py()])
    encoded: bytes = value.as_py().encode()
    return encoded


def _constants(mask: int, section: pa.Buffer) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    data, at = section.to_pybytes(), 0
    for i, field in enumerate(ENVELOPE):
        if not mask >> i & 1:
            continue
        if at + _LENGTH.size > len(data):
            raise Damaged("it ends inside its constants")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found[i] = value = data[at : at + length]
        at += length
        if at > len(data) or not _is_constant(field, value):
            raise Damaged("its constants are invalid")
    if at != len(data):
        raise Damaged("bytes follow its constants")
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
    """The size of a frame with padding, which allows for two copies of the body and repeated constants."""
    repeated = rows * sum(len(value) + 4 for value in constants.values())
    least = -(-(2 * raw_bytes + repeated) // _EXPANSION)
    return -(-max(_HEADER.size + stored_bytes, least) // 8) * 8


class FrameWriter:
    """Writes frames of runs of records into one column."""

    def __init__(
        self, batch: pa.RecordBatch, constants: Mapping[int, bytes], fingerprint: int, codec: int
    ) -> None:
        self._batch = batch
        self._constants = constants
        self._fingerprint = fingerprint
        self._codec_number = codec
        self._codec = pa.Codec(CODECS[codec]) if codec else None
        names = batch.schema.names
        self._changes = {
            ENVELOPE.get_field_index(name): changes(batch.column(name))
            for name in ENVELOPE.names
            if name in names and name != RECORD_KEY
        }
        self._varying: dict[tuple[int, ...], pa.RecordBatch] = {}
        self._parts: list[bytes | pa.Buffer] = []
        self._ends = [0]

    def write(self, first: int, last: int, most_bytes: int) -> list[int]:
        """Write records [first, last) as frames; returns the first record of each."""
        rows = last - first
        parts, size = self._frame(first, last)
        if size <= most_bytes or rows == 1:
            self._parts += parts
            self._ends.append(self._ends[-1] + size)
            return [first]
        # cut into as many pieces as the size requires, and again if rows of unlike size make one too large
        step = max(1, rows // -(-size // most_bytes))
        pieces = [
            self.write(at, min(at + step, last), most_bytes) for at in range(first, last, step)
        ]
        return [start for piece in pieces for start in piece]

    def column(self) -> pa.BinaryArray:
        """All frames written so far."""
        return binary_array(np.array(self._ends), b"".join(self._parts))

    def _frame(self, first: int, last: int) -> tuple[list[bytes | pa.Buffer], int]:
        """The parts of the frame of records [first, last), and its size."""
        same = tuple(i for i, c in self._changes.items() if c[first] == c[last - 1])
        names = [ENVELOPE.field(i).name for i in same]
        if same not in self._varying:
            self._varying[same] = self._batch.drop_columns(names)
        message = self._varying[same].slice(first, last - first).serialize()
        constants = dict(self._constants)
        for i, name in zip(same, names, strict=True):
            constants[i] = constant_bytes(self._batch.column(name)[first])
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
        return [_HEADER.pack(MARK, *numbers), *body, padding], size


def changes(column: pa.Array) -> npt.NDArray[np.int64]:
    """The number of changes of value up to each row: shape (n,), from 0."""
    if len(column) < 2:
        return np.zeros(len(column), np.int64)
    differs = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.append(0, np.cumsum(differs))
