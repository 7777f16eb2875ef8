"""Checks that open each visible file without reading its rows: footers, types, log blocks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from serde_lab.errors import LabError, TableError
from serde_lab.records.schema import find_field
from serde_lab.table.files.base_file import BLOOM_KEY, BLOOM_TYPE_KEY, BaseFileReader
from serde_lab.table.files.bloom import BloomFilter
from serde_lab.table.files.delete_block import decode_deletes
from serde_lab.table.files.file_system_view import BaseFile, LogFile
from serde_lab.table.files.log_block import BlockType, Damage, Header, LogBlock, parse_blocks
from serde_lab.table.files.log_content import decode_avro, decode_parquet
from serde_lab.table.files.meta_columns import RECORD_KEY, data_schema
from serde_lab.table.validation import finding as kinds
from serde_lab.table.validation.finding import Finding
from serde_lab.table.validation.inspection import Inspection


def check(table: Inspection, deep: bool) -> Iterator[Finding]:
    """All findings in the files of the newest slices; `deep` also decodes log blocks and tests bloom
    filters."""
    if table.view is None:
        return
    for slice_ in table.view.latest_file_slices():
        if slice_.base_file is not None:
            yield from _base_file(table, slice_.base_file, deep)
        for log in slice_.log_files:
            yield from _log_file(table, log, deep)


def _base_file(table: Inspection, base: BaseFile, deep: bool) -> Iterator[Finding]:
    try:
        reader = BaseFileReader(table.storage, base.path)
    except LabError as exc:
        yield Finding(kinds.BASE_FILE_UNREADABLE, base.path, exc.message)
        return
    yield from _types(table, base.path, data_schema(reader.schema), reader.physical_types)
    footer = reader.footer
    if BLOOM_KEY not in footer:
        yield Finding(kinds.BLOOM_MISSING, base.path, f"its footer has no {BLOOM_KEY}")
    elif deep:
        yield from _bloom(base.path, reader)


def _bloom(path: str, reader: BaseFileReader) -> Iterator[Finding]:
    footer = reader.footer
    try:
        bloom = BloomFilter.from_footer(footer[BLOOM_KEY], footer.get(BLOOM_TYPE_KEY, ""), path)
        keys = reader.read([RECORD_KEY]).column(0).combine_chunks()
    except TableError as exc:
        yield Finding(kinds.BLOOM_WRONG, path, exc.message)
        return
    if isinstance(keys, pa.ChunkedArray):
        return
    known = keys.drop_null()
    missed = len(known) - int(bloom.may_contain(known).sum())
    if missed:
        yield Finding(
            kinds.BLOOM_WRONG, path, f"it denies {missed} of the file's {len(known)} keys"
        )


def _types(
    table: Inspection, path: str, schema: pa.Schema, physical: dict[str, str]
) -> Iterator[Finding]:
    for field in schema:
        kind = field.type
        if pa.types.is_timestamp(kind) and kind.tz is None:
            what = "INT96" if physical.get(field.name) == "INT96" else "without a time zone"
            yield Finding(kinds.COLUMN_TYPE, f"{path}: {field.name}", f"it is a timestamp {what}")
        if pa.types.is_decimal(kind) and physical.get(field.name) in ("INT32", "INT64"):
            yield Finding(
                kinds.COLUMN_TYPE,
                f"{path}: {field.name}",
                f"the decimal is stored as {physical[field.name]}",
            )
    if table.config is None or table.config.is_mor:
        return
    for name in table.config.ordering_fields:
        found = find_field(schema, name)
        if found is None:
            continue
        if pa.types.is_decimal(found.type) or pa.types.is_date(found.type):
            yield Finding(kinds.ORDERING_TYPE, name, f"the ordering field is a {found.type}")


def _log_file(table: Inspection, log: LogFile, deep: bool) -> Iterator[Finding]:
    try:
        content = table.storage.open_input(log.path).read_buffer()
    except LabError as exc:
        yield Finding(kinds.LOG_DAMAGED, log.path, exc.message)
        return
    if not content.size:
        yield Finding(kinds.LOG_DAMAGED, log.path, "it is empty")
    for block in parse_blocks(content):
        if isinstance(block, Damage):
            yield Finding(
                kinds.LOG_DAMAGED,
                log.path,
                f"at byte {block.offset} of {content.size}: {block.problem}",
            )
        else:
            yield from _block(table, f"{log.path} (block at byte {block.offset})", block, deep)


def _block(table: Inspection, where: str, block: LogBlock, deep: bool) -> Iterator[Finding]:
    ordering = () if table.config is None else table.config.ordering_fields
    if block.type == BlockType.COMMAND:
        return
    if block.type not in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE):
        yield Finding(kinds.LOG_UNSUPPORTED, where, f"the block is of type {block.type}")
        return
    try:
        if block.type == BlockType.PARQUET_DATA:
            rows = decode_parquet(block.content, where)
            for name in ordering:
                found = find_field(rows.schema, name)
                if found is not None and pa.types.is_string(found.type):
                    yield Finding(
                        kinds.ORDERING_STRING_PARQUET,
                        where,
                        f"the ordering field {name} is a string",
                    )
        elif deep and block.type == BlockType.AVRO_DATA:
            decode_avro(block.content, block.header.get(Header.SCHEMA, ""), where)
        elif deep:
            decode_deletes(block.content, (), where)
    except LabError as exc:
        yield Finding(kinds.LOG_DAMAGED, where, exc.message)
