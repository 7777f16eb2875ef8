"""Writes and reads `avro` frames: Hudi's HoodieRecord, an envelope around an Avro payload.

A frame of one record, numbers little endian unless Avro says otherwise:

    0        u8    the mark, 0xA4
    1        u8    form: 1
    2        u32   fingerprint of the schema (`framing.schema_fingerprint`)
    6        …     the record

A record is itself an Avro datum of the fields that Hudi's serialiser writes for a HoodieRecord: its key,
location, operation and payload. "long" is Avro's zig-zag varint.

    recordKey      string    long length, UTF-8
    partitionPath  string    the same; 0x00 for a table without partitions
    fileId         string    the location's file group, 0x00 before it is known
    instantTime    string    the location's instant, or "I" and "U" as in Hudi's Flink writer
    operation      string    I, -U, +U, D
    isIndexRecord  boolean   0x00 or 0x01
    payload        bytes     long length, then the row as an Avro datum; 0x00 for an index record,
                             which has no row

The row's datum has the schema of `arrow_to_avro` (`serde_lab/avro/schema.py`): every column is a union with
null, written as one byte for the branch, then the value.

A frame of several records:

    0        u8    the mark, 0xA4
    1        u8    form: 2
    2        u32   fingerprint of the schema
    6        u32   n, the number of records, from 2
    10       u32   × n, the length of each record
    …        …     the records

The lengths are needed since an Avro datum does not state its size: without them a record could be found
only by reading all records before it. Hudi's log blocks store lengths too. Both executions use these
frames; `avro/datums.py` makes the payloads.

Records are written and read by columns or, with the option `envelope = "record"`, one envelope at a time by
fastavro. The bytes are the same.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.avro.codec import AvroCodec
from serde_lab.avro.schema import arrow_to_avro
from serde_lab.errors import DataError, DecodeError
from serde_lab.records.buffers import binary_array, spans_of
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RecordSchema
from serde_lab.serde.framing import cut, frame_error, frames_of, opened, schema_fingerprint
from serde_lab.serde.interface import Bounds, Frames, SerdeOptions

MARK = b"\xa4"
_ONE, _SEVERAL = 1, 2
_HEADER_BYTES = 6
_COUNT_BYTES = _LENGTH_BYTES = 4

_FIELDS = pa.schema(
    [
        *(pa.field(name, pa.string(), False) for name in (
            "recordKey", "partitionPath", "fileId", "instantTime", "operation",
        )),
        pa.field("isIndexRecord", pa.bool_(), False),
        pa.field("payload", pa.binary(), False),
    ]
)  # fmt: skip
_AVRO = arrow_to_avro(_FIELDS, "HoodieRecord", "org.apache.hudi.common.model")
_CODEC = AvroCodec(_AVRO, _FIELDS)
_HOODIE_RECORD = fastavro.parse_schema(_AVRO)

NOT_DATUM = (
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    pa.ArrowException,
)
"""What fastavro raises for bytes that are no datum of the schema, and Arrow for values of another type."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AvroFrames:
    """Frames of one schema under one set of options."""

    fingerprint: int
    options: SerdeOptions

    @property
    def _one_by_one(self) -> bool:
        return self.options.own.get("envelope") == "record"

    @classmethod
    def of(cls, schema: RecordSchema, options: SerdeOptions) -> AvroFrames:
        return cls(schema_fingerprint(schema), options)

    def join(self, envelope: pa.RecordBatch, payload: pa.BinaryArray, bounds: Bounds) -> Frames:
        """Frames of the records with these envelopes and payloads, which are of equal length.

        Raises DataError if they take 2 GiB or more.
        """
        columns = [*envelope.columns, payload]
        batch = pa.record_batch(columns, schema=_FIELDS)
        records = _each_written(batch) if self._one_by_one else _CODEC.encode(batch)
        data, ends = spans_of(records)
        # in a frame of several, each record also takes the bytes of its length
        cost = ends + _LENGTH_BYTES * np.arange(len(ends))
        cuts = cut(bounds, self.options, cost, _HEADER_BYTES + _COUNT_BYTES)
        rows = cuts.rows
        several = rows > 1
        if not several.any():
            parts = [pa.scalar(self._header(_ONE)), records]
        else:
            headers = pc.if_else(pa.array(several), self._header(_SEVERAL), self._header(_ONE))
            # the numbers before the records: for each frame of several, n and its n lengths
            numbers = np.insert(np.diff(ends), cuts.offsets[:-1], rows).astype("<u4")
            numbers = numbers[np.repeat(several, rows + 1)]
            table_ends = np.append(0, np.cumsum(np.where(several, _LENGTH_BYTES * (rows + 1), 0)))
            tables = binary_array(table_ends, numbers)
            parts = [headers, tables, binary_array(ends[cuts.offsets], data)]
        try:
            frames = pc.binary_join_element_wise(*parts, b"")
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as exc:
            raise DataError(f"the frames of {len(records)} records have too many bytes") from exc
        return frames_of(cuts, frames, self.options)

    def split(self, frames: pa.BinaryArray) -> tuple[pa.RecordBatch, pa.BinaryArray]:
        """Envelopes and payloads of all records of `frames`, in order. Raises DecodeError."""
        data, starts, ends = self._records(opened("avro", frames, self.options))
        decode = _each_read if self._one_by_one else _CODEC.decode_spans
        batch = decode(data, starts, ends, "avro")
        payload = batch.column(len(ENVELOPE))
        envelope = pa.record_batch(batch.columns[: len(ENVELOPE)], schema=ENVELOPE)
        empty = pc.equal(pc.binary_length(payload), 0)
        wrong = pc.not_equal(empty, envelope.column(IS_INDEX_RECORD))
        if pc.any(wrong).as_py():
            row = pc.index(wrong, True).as_py()
            problem = "an index record must have no payload, and any other record must have one"
            raise DecodeError("avro", row, problem)
        return envelope, payload

    def _header(self, form: int) -> bytes:
        return MARK + bytes([form]) + self.fingerprint.to_bytes(4, "little")

    def _records(self, frames: pa.BinaryArray) -> tuple[pa.Buffer, Positions, Positions]:
        """The bytes of all frames, and the offsets at which their records begin and end."""
        data, ends = spans_of(frames)
        starts, ends = ends[:-1], ends[1:]
        self._refuse(ends - starts <= _HEADER_BYTES, "it is shorter than a header")
        raw = np.frombuffer(data, np.uint8)
        for place, byte in enumerate(self._header(_ONE)):
            if place != 1:
                what = "it is of another schema"
                if place == 0:
                    what = "it does not begin with this strategy's mark"
                self._refuse(raw[starts + place] != byte, what)
        form = raw[starts + 1]
        if (form == _ONE).all():
            return data, starts + _HEADER_BYTES, ends
        self._refuse((form != _ONE) & (form != _SEVERAL), "its form is unknown")
        return data, *self._several(raw, form == _SEVERAL, starts + _HEADER_BYTES, ends)

    def _several(
        self,
        raw: npt.NDArray[np.uint8],
        several: npt.NDArray[np.bool_],
        at: Positions,
        end: Positions,
    ) -> tuple[Positions, Positions]:
        """The offsets at which records begin and end, if some frames hold several."""
        self._refuse(several & (at + _COUNT_BYTES > end), "it ends in the number of its records")
        numbers = np.ndarray((max(0, len(raw) - 3),), "<u4", raw, 0, (1,))
        rows = np.ones(len(at), np.int64)
        rows[several] = numbers[at[several]]
        at = np.where(several, at + _COUNT_BYTES, at)
        room = (end - at) // _LENGTH_BYTES
        self._refuse(several & ((rows < 2) | (rows > room)), "it has not so many records")
        frame_of = np.repeat(np.arange(len(at)), rows)
        place = np.arange(len(frame_of)) - np.repeat(np.cumsum(rows) - rows, rows)
        sizes = (end - at)[frame_of]
        listed = several[frame_of]
        where = at[frame_of[listed]] + _LENGTH_BYTES * place[listed]
        sizes[listed] = numbers[where]
        at = np.where(several, at + _LENGTH_BYTES * rows, at)
        upto = np.append(0, np.cumsum(sizes))
        last = np.cumsum(rows)
        wrong = upto[last] - upto[last - rows] != end - at
        self._refuse(wrong, "its length is not that of its records")
        starts = at[frame_of] + upto[:-1] - upto[(last - rows)[frame_of]]
        return starts, starts + sizes

    def _refuse(self, wrong: npt.NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            raise frame_error("avro", int(wrong.argmax()), self.options, problem)


def _each_written(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The records of a batch of _FIELDS as Avro datums, one call of fastavro a record."""
    stream = io.BytesIO()
    write, tell, names = fastavro.schemaless_writer, stream.tell, _FIELDS.names
    ends = [0]
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        write(stream, _HOODIE_RECORD, dict(zip(names, values, strict=True)))
        ends.append(tell())
    return binary_array(np.array(ends), stream.getbuffer())


def _each_read(data: pa.Buffer, starts: Positions, ends: Positions, name: str) -> pa.RecordBatch:
    """The records between these offsets of `data`, one call of fastavro each. Raises DecodeError."""
    stream = io.BytesIO(data)
    read, tell, seek = fastavro.schemaless_reader, stream.tell, stream.seek
    found: list[Any] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        seek(start)
        try:
            found.append(read(stream, _HOODIE_RECORD, None))
        except NOT_DATUM as exc:
            raise DecodeError(name, len(found), f"fastavro: {exc!r}") from exc
        if tell() != end:
            raise DecodeError(name, len(found) - 1, "its length is not that of its fields")
    columns = [pa.array([one[f.name] for one in found], f.type) for f in _FIELDS]
    return pa.record_batch(columns, schema=_FIELDS)
