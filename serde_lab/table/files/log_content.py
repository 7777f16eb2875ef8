"""Encoding and decoding of data blocks: rows as Avro datums, or a whole Parquet file.

Sources: HoodieAvroDataBlock (version 3) and HoodieParquetDataBlock.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.avro.codec import AvroCodec
from serde_lab.errors import DecodeError, SchemaError, TableError
from serde_lab.table.files.base_file import BaseFileFormat, parquet_options

_VERSION = 3
_HEAD = struct.Struct(">ii")


@lru_cache(maxsize=16)
def codec_of(avro_schema: str) -> AvroCodec:
    """The codec of the schema in a block's header."""
    return AvroCodec(avro_schema)


def encode_avro(rows: pa.RecordBatch, avro_schema: str) -> pa.Buffer:
    """Encode rows: int32 version, int32 record count, then each record as int32 size and datum."""
    datums = AvroCodec(avro_schema, rows.schema).encode(rows)
    sizes = pc.binary_length(datums).to_numpy().astype(">i4")
    heads = pa.Array.from_buffers(
        pa.binary(4), len(datums), [None, pa.py_buffer(sizes.tobytes())]
    ).cast(pa.binary())
    joined = pc.binary_join_element_wise(heads, datums, b"")
    _, offsets, data = joined.buffers()
    first, last = np.frombuffer(offsets, np.int32, len(joined) + 1, 4 * joined.offset)[[0, -1]]
    records = b"" if data is None else memoryview(data)[first:last]
    return pa.py_buffer(b"".join((_HEAD.pack(_VERSION, rows.num_rows), records)))


def decode_avro(content: pa.Buffer, avro_schema: str, where: str) -> pa.RecordBatch:
    """The rows of an Avro block, with the columns of its own schema. Raises TableError."""
    view = memoryview(content)
    if len(view) < _HEAD.size:
        raise TableError(f"{where}: its content has {len(view)} bytes, which is no Avro block")
    version, count = _HEAD.unpack_from(view)
    if version != _VERSION:
        raise TableError(f"{where}: is an Avro block of version {version}; {_VERSION} is known")
    starts = np.empty(max(count, 0), np.int64)
    sizes = np.empty(max(count, 0), np.int64)
    at = _HEAD.size
    # only a record's length tells where the next record starts, so they are visited one by one
    for row in range(count):
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if size < 0 or at + size > len(view):
            raise TableError(f"{where}: record {row} of {count} does not fit into the block")
        starts[row], sizes[row] = at, size
        at += size
    if at != len(view):
        raise TableError(f"{where}: {len(view) - at} bytes stand behind its last record")
    try:
        return codec_of(avro_schema).decode_spans(content, starts, starts + sizes, where)
    except DecodeError as exc:
        raise TableError(f"{where}: {exc.problem}") from exc
    except SchemaError as exc:
        raise TableError(f"{where}: its schema is not supported: {exc}") from exc


def encode_parquet(rows: pa.RecordBatch, format: BaseFileFormat) -> pa.Buffer:
    """Encode rows as a whole Parquet file."""
    table = pa.Table.from_batches([rows])
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, rows.schema, **parquet_options(table, format)) as writer:
        writer.write_table(table)
    return out.getvalue()


def decode_parquet(content: pa.Buffer, where: str) -> pa.Table:
    """The rows of a Parquet block. Raises TableError."""
    try:
        return pq.read_table(pa.BufferReader(content))
    except (pa.ArrowInvalid, OSError) as exc:
        raise TableError(f"{where}: holds no readable Parquet file: {exc}") from exc
