"""The blocks of a log file: their framing, detection of damage, and the rows inside data blocks.

Blocks carry no checksum: Hudi's readers silently skip a block whose lengths do not fit, so that a lost tail
loses committed rows. Here it is found and reported. Sources: org.apache.hudi.common.table.log
(HoodieLogFormatWriter, HoodieLogFileReader), HoodieAvroDataBlock (version 3) and HoodieParquetDataBlock.

    #HUDI# | int64 length | int32 version 1 | int32 type | header | int64 content length | content |
    footer | int64 length of all before it

All integers are big-endian; header and footer are maps: int32 count, then int32 key, int32 bytes, text. The
content of a data block is rows as Avro datums, or a whole Parquet file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.avro.codec import AvroCodec, check_maps
from serde_lab.errors import DecodeError, SchemaError, TableError
from serde_lab.records.buffers import data_of, lengths_of, parquet_errors, rows_of
from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import is_nested
from serde_lab.table.files.parquet import (
    BaseFileFormat,
    check_calendar,
    columns_with_nan,
    parquet_file,
    parquet_options,
    without_bounds,
)

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1

_HEAD = struct.Struct(">qii")  # length, version, type
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_PAIR = struct.Struct(">ii")


class BlockType(IntEnum):
    """Kinds of blocks, by Hudi's numbers."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class Header(IntEnum):
    """Keys of a block's header, by Hudi's numbers."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One whole block. `offset` is its start in the file, `size_bytes` its whole length."""

    type: int
    header: Mapping[int, str]
    content: pa.Buffer
    offset: int = 0
    size_bytes: int = 0

    @property
    def instant(self) -> str:
        """The instant that wrote the block; "" if the header does not state it."""
        return self.header.get(Header.INSTANT_TIME, "")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a log file that form no block: where they begin, how many, and what is wrong."""

    offset: int
    size_bytes: int
    problem: str


def frame_block(type: BlockType, header: Mapping[int, str], content: bytes | pa.Buffer) -> bytes:
    head = _frame_map(header)
    body = memoryview(content)
    foot = _frame_map({})
    # counts the bytes between this number and the block's end
    length = 8 + len(head) + 8 + body.nbytes + len(foot) + 8
    return b"".join(
        (
            MAGIC,
            _HEAD.pack(length, FORMAT_VERSION, type),
            head,
            _LONG.pack(body.nbytes),
            body,
            foot,
            _LONG.pack(length + len(MAGIC)),
        )
    )


def parse_blocks(data: pa.Buffer) -> Iterator[LogBlock | Damage]:
    """The blocks of a log file in order, and the damage between them.

    After damage the search continues at the next magic, as in Hudi's reader.
    """
    view = memoryview(data)
    offset = 0
    while offset < len(view):
        found = _parse_block(data, view, offset)
        if isinstance(found, str):
            end = _next_magic(view, offset + 1)
            yield Damage(offset, end - offset, found)
            offset = end
        else:
            yield found
            offset += found.size_bytes


def _parse_block(data: pa.Buffer, view: memoryview, offset: int) -> LogBlock | str:
    """The block at `offset`, or what is wrong with it."""
    if bytes(view[offset : offset + len(MAGIC)]) != MAGIC:
        return "no block begins here"
    at = offset + len(MAGIC)
    if at + _HEAD.size > len(view):
        return "the file ends inside the block's head"
    length, version, type = _HEAD.unpack_from(view, at)
    end = at + 8 + length
    if length < _HEAD.size + 16 or end > len(view):
        return f"the block states {length} bytes, the file has {len(view) - at - 8} left"
    if version != FORMAT_VERSION:
        return f"the block has format version {version}; {FORMAT_VERSION} is known"
    (total,) = _LONG.unpack_from(view, end - 8)
    if total != length + len(MAGIC):
        return f"the block's two lengths disagree: {length + len(MAGIC)} before it, {total} after"
    try:
        header, at = _parse_map(view, at + _HEAD.size, end - 8)
        (content_bytes,) = _LONG.unpack_from(view, at)
        start = at + 8
        if content_bytes < 0 or start + content_bytes > end - 12:
            return f"the block's content states {content_bytes} bytes, {end - 12 - start} are there"
        _, at = _parse_map(view, start + content_bytes, end - 8)
    except (struct.error, UnicodeDecodeError, ValueError) as exc:
        return f"the block's header cannot be read: {exc}"
    if at != end - 8:
        return f"{end - 8 - at} bytes follow the block's footer"
    return LogBlock(type, header, data.slice(start, content_bytes), offset, end - offset)


def _frame_map(entries: Mapping[int, str]) -> bytes:
    parts = [_INT.pack(len(entries))]
    for key, value in entries.items():
        text = value.encode()
        parts += [_PAIR.pack(key, len(text)), text]
    return b"".join(parts)


def _parse_map(view: memoryview, at: int, end: int) -> tuple[dict[int, str], int]:
    (count,) = _INT.unpack_from(view, at)
    if not 0 <= count <= (end - at) // 8:
        raise ValueError(f"it states {count} entries")
    at += 4
    entries = {}
    for _ in range(count):
        key, size = _PAIR.unpack_from(view, at)
        at += 8
        if size < 0 or at + size > end:
            raise ValueError(f"entry {key} states {size} bytes")
        entries[key] = bytes(view[at : at + size]).decode()
        at += size
    return entries, at


def _next_magic(view: memoryview, start: int) -> int:
    chunk = 1 << 20
    while start < len(view):
        found = bytes(view[start : start + chunk + len(MAGIC) - 1]).find(MAGIC)
        if found >= 0:
            return start + found
        start += chunk
    return len(view)


_AVRO_VERSION = 3
_AVRO_HEAD = struct.Struct(">ii")


@lru_cache(maxsize=16)
def codec_of(avro_schema: str) -> AvroCodec:
    """The codec of the schema in a block's header."""
    return AvroCodec(avro_schema)


def encode_avro(rows: pa.RecordBatch, avro_schema: str) -> pa.Buffer:
    """Encode rows: int32 version, int32 record count, then each record as int32 size and datum.

    Raises DataError for a map with a key twice, of which Apache Hudi reads the last value alone.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if is_nested(column.type):
            check_maps(name, to_plain(column))
    datums = AvroCodec(avro_schema, rows.schema).encode(rows)
    sizes = lengths_of(datums).astype(">i4")
    heads = pa.Array.from_buffers(
        pa.binary(4), len(datums), [None, pa.py_buffer(sizes.tobytes())]
    ).cast(pa.binary())
    records = data_of(pc.binary_join_element_wise(heads, datums, b""))
    return pa.py_buffer(b"".join((_AVRO_HEAD.pack(_AVRO_VERSION, rows.num_rows), records)))


def decode_avro(content: pa.Buffer, avro_schema: str, where: str) -> pa.RecordBatch:
    """The rows of an Avro block, with the columns of its own schema. Raises TableError."""
    view = memoryview(content)
    if len(view) < _AVRO_HEAD.size:
        raise TableError(f"{where}: its content has {len(view)} bytes, too few for an Avro block")
    version, count = _AVRO_HEAD.unpack_from(view)
    if version != _AVRO_VERSION:
        raise TableError(
            f"{where}: is an Avro block of version {version}; {_AVRO_VERSION} is known"
        )
    starts = np.empty(max(count, 0), np.int64)
    sizes = np.empty(max(count, 0), np.int64)
    at = _AVRO_HEAD.size
    # only a record's length tells where the next record starts, so they are visited one by one
    for row in range(count):
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if size < 0 or at + size > len(view):
            raise TableError(f"{where}: record {row} of {count} does not fit into the block")
        starts[row], sizes[row] = at, size
        at += size
    if at != len(view):
        raise TableError(f"{where}: {len(view) - at} bytes follow its last record")
    try:
        return codec_of(avro_schema).decode_spans(content, starts, starts + sizes, where)
    except DecodeError as exc:
        raise TableError(f"{where}: {exc.problem}") from exc
    except SchemaError as exc:
        raise TableError(f"{where}: its schema is not supported: {exc}") from exc


def encode_parquet(rows: pa.RecordBatch, format: BaseFileFormat) -> pa.Buffer:
    table = pa.Table.from_batches([rows])
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, rows.schema, **parquet_options(table, format)) as writer:
        writer.write_table(table)
    return without_bounds(out.getvalue(), columns_with_nan(table))


def decode_parquet(content: pa.Buffer, where: str) -> pa.Table:
    """The rows of a Parquet block. Raises TableError."""
    with parquet_errors(where, TableError):
        file = parquet_file(pa.BufferReader(content))
        check_calendar(file.metadata, None, where)
        return rows_of(file)
