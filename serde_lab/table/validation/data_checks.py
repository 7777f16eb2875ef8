"""Checks that open data files: footers, types and log blocks, and then every row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import LabError, TableError
from serde_lab.records.buffers import hash64
from serde_lab.records.schema import (
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    columns_of,
    find_field,
    values_at,
)
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BLOOM_KEY, BLOOM_TYPE_KEY, BaseFileReader, data_schema
from serde_lab.table.files.delete_block import decode_deletes
from serde_lab.table.files.file_system_view import BaseFile, FileSlice, LogFile
from serde_lab.table.files.key_footer import BloomFilter
from serde_lab.table.files.log_block import (
    BlockType,
    Damage,
    Header,
    LogBlock,
    decode_avro,
    decode_parquet,
    parse_blocks,
)
from serde_lab.table.index.key_places import stray_keys
from serde_lab.table.read_plan import FileSliceReader, ReadPlan
from serde_lab.table.storage.data_files import BaseFileName
from serde_lab.table.validation.finding import Kind, TableFinding
from serde_lab.table.validation.inspection import Inspection


def check_contents(table: Inspection, deep: bool) -> Iterator[TableFinding]:
    """All findings in the files of the newest slices; `deep` also decodes all columns and log blocks, and
    tests bloom filters."""
    if table.view is None:
        return
    for slice_ in table.view.latest_file_slices():
        if slice_.base_file is not None:
            yield from _base_file(table, slice_.base_file, deep)
        for log in slice_.log_files:
            yield from _log_file(table, slice_, log, deep)


def _base_file(table: Inspection, base: BaseFile, deep: bool) -> Iterator[TableFinding]:
    try:
        reader = BaseFileReader(table.storage, base.path)
        if deep:
            reader.read_through()
    except LabError as exc:
        yield Kind.BASE_FILE_UNREADABLE.at(base.path, exc.message)
        return
    stat = table.base_stats.get(base.path)
    # a file of the size that its commit states is the committed one, however its rows were counted
    other = stat is not None and base.size_bytes != stat.fileSizeInBytes != 0
    if stat is not None and other and stat.numWrites != reader.rows:
        detail = f"it has {reader.rows} rows; instant {base.instant} wrote {stat.numWrites}"
        yield Kind.FILE_ROWS_DIFFER.at(base.path, detail)
    yield from _types(table, base.path, data_schema(reader.schema), reader.physical_types)
    footer = reader.footer
    if BLOOM_KEY not in footer:
        yield Kind.BLOOM_MISSING.at(base.path, f"its footer has no {BLOOM_KEY}")
    elif deep:
        yield from _bloom(base.path, reader)
    if deep:
        yield from _written_as_another(base.path, reader)


def _written_as_another(path: str, reader: BaseFileReader) -> Iterator[TableFinding]:
    """A base file that stands in the place of another, such as an older one of its group."""
    if FILE_NAME not in reader.schema.names:
        return
    named = pc.unique(reader.read([FILE_NAME]).column(0)).to_pylist()
    written = BaseFileName.parse(named[0] or "") if len(named) == 1 else None
    if written is not None and str(written) != path.rpartition("/")[2]:
        yield Kind.FILE_ROWS_DIFFER.at(path, f"its rows were written to {written}")


def _bloom(path: str, reader: BaseFileReader) -> Iterator[TableFinding]:
    footer = reader.footer
    try:
        bloom = BloomFilter.from_footer(footer[BLOOM_KEY], footer.get(BLOOM_TYPE_KEY, ""), path)
        keys = reader.read([RECORD_KEY]).column(0).combine_chunks()
    except TableError as exc:
        yield Kind.BLOOM_WRONG.at(path, exc.message)
        return
    if isinstance(keys, pa.ChunkedArray):
        return
    known = keys.drop_null()
    missed = len(known) - int(bloom.may_contain(known).sum())
    if missed:
        yield Kind.BLOOM_WRONG.at(path, f"it excludes {missed} of the file's {len(known)} keys")


def _types(
    table: Inspection, path: str, schema: pa.Schema, physical: dict[str, str]
) -> Iterator[TableFinding]:
    for field in schema:
        kind = field.type
        if pa.types.is_timestamp(kind) and kind.tz is None:
            what = "INT96" if physical.get(field.name) == "INT96" else "without a time zone"
            yield Kind.COLUMN_TYPE.at(f"{path}: {field.name}", f"it is a timestamp {what}")
        if pa.types.is_decimal(kind) and physical.get(field.name) in ("INT32", "INT64"):
            yield Kind.COLUMN_TYPE.at(
                f"{path}: {field.name}", f"the decimal is stored as {physical[field.name]}"
            )
    if table.config is None or table.config.is_mor:
        return
    for name in table.config.ordering_fields:
        found = find_field(schema, name)
        if found is None:
            continue
        if pa.types.is_decimal(found.type) or pa.types.is_date(found.type):
            yield Kind.ORDERING_TYPE.at(name, f"the ordering field is a {found.type}")


def _log_file(
    table: Inspection, slice_: FileSlice, log: LogFile, deep: bool
) -> Iterator[TableFinding]:
    try:
        content = table.storage.open_input(log.path).read_buffer()
    except LabError as exc:
        yield Kind.LOG_DAMAGED.at(log.path, exc.message)
        return
    if not content.size:
        yield Kind.LOG_DAMAGED.at(log.path, "it is empty")
    for block in parse_blocks(content):
        if isinstance(block, Damage):
            yield Kind.LOG_DAMAGED.at(
                log.path, f"at byte {block.offset} of {content.size}: {block.problem}"
            )
            continue
        where = f"{log.path} (block at byte {block.offset})"
        if table.layout_version == 2 and block.instant != log.instant:
            yield Kind.LOG_DAMAGED.at(
                where, f"it is of instant {block.instant}, and its file of {log.instant}"
            )
        yield from _block(table, slice_, where, block, deep)


def _block(
    table: Inspection, slice_: FileSlice, where: str, block: LogBlock, deep: bool
) -> Iterator[TableFinding]:
    ordering = () if table.config is None else table.config.ordering_fields
    if block.type == BlockType.COMMAND:
        return
    if block.type not in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE):
        yield Kind.LOG_UNSUPPORTED.at(where, f"the block is of type {block.type}")
        return
    try:
        if block.type == BlockType.PARQUET_DATA:
            rows = decode_parquet(block.content, where)
            for name in ordering:
                found = find_field(rows.schema, name)
                if found is not None and pa.types.is_string(found.type):
                    yield Kind.ORDERING_STRING_PARQUET.at(
                        where, f"the ordering field {name} is a string"
                    )
        elif deep and block.type == BlockType.AVRO_DATA:
            decode_avro(block.content, block.header.get(Header.SCHEMA, ""), where)
        elif deep:
            keys = decode_deletes(block.content, (), where).keys
            # the rows of other blocks are looked at when they are merged
            if wrong := wrong_buckets(table, slice_, keys):
                yield Kind.BUCKET_WRONG.at(
                    where, f"{wrong} deleted keys do not hash to the bucket of its file group"
                )
    except LabError as exc:
        yield Kind.LOG_DAMAGED.at(where, exc.message)


def wrong_buckets(table: Inspection, slice_: FileSlice, keys: pa.Array) -> int:
    """Number of keys that belong to another file group by the table's own bucket index."""
    config = table.config
    if config is None:
        return 0
    ring = table.rings.get(slice_.partition_path)
    return int(stray_keys(config, ring, slice_, keys).sum())


class RowCheck:
    """Reads a table's newest slices once; `rows` is the number of rows read."""

    def __init__(self, table: Inspection, data_schema: pa.Schema) -> None:
        self._table, self._schema = table, data_schema
        self.rows = 0
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._partitions: list[npt.NDArray[np.int32]] = []

    def check(self) -> Iterator[TableFinding]:
        view, config = self._table.view, self._table.config
        if view is None or config is None:
            return
        partitions: list[str] = []
        for slice_ in view.latest_file_slices():
            if not partitions or partitions[-1] != slice_.partition_path:
                partitions.append(slice_.partition_path)
            try:
                yield from self._slice(config, slice_, len(partitions) - 1)
            except LabError as exc:
                yield Kind.ROWS_UNREADABLE.at(slice_.paths[0], exc.message)
            except UnicodeDecodeError:
                yield Kind.ROWS_UNREADABLE.at(slice_.paths[0], "a key is not text in UTF-8")
        yield from self._doubled(partitions)

    def _slice(
        self, config: TableConfig, slice_: FileSlice, partition: int
    ) -> Iterator[TableFinding]:
        ordering = [
            name for name in config.ordering_fields if find_field(self._schema, name) is not None
        ]
        for name in set(config.ordering_fields) - set(ordering):
            yield Kind.ORDERING_NULL.at(
                f"{slice_.paths[0]}: {name}", "the table has no such column"
            )
        wanted = [RECORD_KEY, PARTITION_PATH, *columns_of(ordering), *self._lists()]
        plan = ReadPlan(
            self._table.storage,
            config,
            self._schema,
            (slice_,),
            self._table.visibility,
            columns=tuple(dict.fromkeys(wanted)),
        )
        null_keys = misplaced = wrong_bucket = 0
        null_ordering = dict.fromkeys(ordering, 0)
        null_elements = dict.fromkeys(self._lists(), 0)
        for batch in FileSliceReader(plan, slice_).batches():
            self.rows += batch.num_rows
            keys = batch.column(RECORD_KEY)
            null_keys += keys.null_count
            keys = keys.drop_null()
            self._hashes.append(hash64(keys))
            self._partitions.append(np.full(len(keys), partition, np.int32))
            same = pc.equal(batch.column(PARTITION_PATH), slice_.partition_path)
            misplaced += batch.num_rows - (pc.sum(same).as_py() or 0)
            for name in null_ordering:
                null_ordering[name] += values_at(batch, name).null_count
            for name in null_elements:
                null_elements[name] += batch.column(name).flatten().null_count
            wrong_bucket += wrong_buckets(self._table, slice_, keys)
        where = slice_.paths[0]
        if null_keys:
            yield Kind.KEY_NULL.at(where, f"{null_keys} rows have no record key")
        if misplaced:
            yield Kind.META_COLUMN_WRONG.at(
                where, f"{misplaced} rows have another {PARTITION_PATH} than their folder"
            )
        if wrong_bucket:
            yield Kind.BUCKET_WRONG.at(
                where,
                f"{wrong_bucket} keys do not hash to the bucket of file group {slice_.file_id}",
            )
        for name, nulls in null_ordering.items():
            if nulls:
                yield Kind.ORDERING_NULL.at(f"{where}: {name}", f"{nulls} rows have a null")
        for name, nulls in null_elements.items():
            if nulls:
                yield Kind.NULL_LIST_ELEMENT.at(
                    f"{where}: {name}", f"{nulls} list elements are null"
                )

    def _lists(self) -> list[str]:
        return [f.name for f in self._schema if pa.types.is_list(f.type)]

    def _doubled(self, partitions: list[str]) -> Iterator[TableFinding]:
        """Duplicate keys, found by 64-bit hashes: at 10⁸ keys one false alarm in 4,000 tables."""
        if not self._hashes:
            return
        hashes = np.concatenate(self._hashes)
        owners = np.concatenate(self._partitions)
        order = np.lexsort((owners, hashes))
        hashes, owners = hashes[order], owners[order]
        again = hashes[1:] == hashes[:-1]
        within = again & (owners[1:] == owners[:-1])
        for partition in np.unique(owners[1:][within]):
            count = int((owners[1:][within] == partition).sum())
            yield Kind.KEY_DOUBLED.at(
                partitions[partition] or ".",
                f"{count} rows have the record key of another row of the partition",
            )
        across = int((again & ~within).sum())
        if across:
            yield Kind.KEY_IN_PARTITIONS.at(
                ".", f"{across} record keys occur in another partition too"
            )
