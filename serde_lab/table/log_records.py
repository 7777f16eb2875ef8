"""What the log files of a file slice say in the end: one row or one delete a record key.

Owns the reading of committed blocks and Hudi's rules of merging within a log; must not know base
files. Source: BufferedRecordMergerFactory and KeyBasedFileGroupRecordBuffer of Hudi 1.x:

* commit time: the later record or delete of a key wins.
* event time: the higher ordering value wins, ties go to the later. A delete without an ordering value
  (by commit time) wins over everything before it; the first row after it wins over it whatever its
  ordering value, and deletes with an ordering value after it change nothing until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.records.ordering import ranks
from serde_lab.table.delete_block import Deletes, decode_deletes
from serde_lab.table.file_system_view import LogFile, Visibility
from serde_lab.table.log_block import BlockType, Damage, Header, LogBlock, parse_blocks
from serde_lab.table.log_content import decode_avro, decode_parquet
from serde_lab.table.meta_columns import IS_DELETED, OPERATION, RECORD_KEY, with_meta_columns
from serde_lab.table.row_schema import conform_table
from serde_lab.table.storage import Storage
from serde_lab.table.table_kind import EVENT_TIME, MergeMode

_ROLLBACK_COMMAND = "0"


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The outcome of a slice's log files, one entry a record key; all arrays have one length.

    `keys`: record keys. `row`: the entry's row in `rows`, or -1 where it is a delete. `always`: deletes
    by commit time, which win over the base file's row whatever its ordering value. `ordering`: one
    array an ordering field, null where `always`.
    """

    keys: pa.Array
    row: npt.NDArray[np.int64]
    always: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...]
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class LogCount:
    """What was read: for the statistics of a compaction."""

    files: int = 0
    blocks: int = 0
    records: int = 0
    size_bytes: int = 0


def read_log_records(
    storage: Storage,
    log_files: Sequence[LogFile],
    data_schema: pa.Schema,
    ordering_fields: Sequence[str],
    merge_mode: MergeMode,
    visibility: Visibility,
) -> tuple[LogRecords, LogCount]:
    """Read the blocks of committed instants and merge them. `data_schema`: the columns that are wanted,
    ordering fields among them.

    Raises TableError for a damaged block: Hudi's readers pass over it in silence, and what it held
    would be gone.
    """
    schema = with_meta_columns(data_schema)
    kinds = tuple(schema.field(name).type for name in ordering_fields)
    blocks = list(committed_blocks(storage, log_files, visibility))
    parts: list[_Part] = []
    for block, where in blocks:
        if block.type == BlockType.DELETE:
            parts.append(_deletes(decode_deletes(block.content, kinds, where), kinds))
        else:
            parts.append(_rows(block, schema, ordering_fields, where))
    records = _merge(parts, schema, kinds, merge_mode)
    count = LogCount(
        files=len(log_files),
        blocks=len(blocks),
        records=sum(len(part.keys) for part in parts),
        size_bytes=sum(file.size_bytes for file in log_files),
    )
    return records, count


def committed_blocks(
    storage: Storage, log_files: Sequence[LogFile], visibility: Visibility
) -> Iterable[tuple[LogBlock, str]]:
    """Data and delete blocks of instants that count, in order, each with its place for messages."""
    kept: list[tuple[LogBlock, str]] = []
    for file in log_files:
        path = storage.describe(file.path)
        for block in parse_blocks(storage.open_input(file.path).read_buffer()):
            if isinstance(block, Damage):
                raise TableError(
                    f"{path}: is damaged at byte {block.offset}: {block.problem}; Hudi's readers "
                    "would leave out what it held without a word"
                )
            where = f"{path} (block at byte {block.offset})"
            if block.type == BlockType.COMMAND:
                _undo(kept, block, where)
            elif visibility.completion_of(block.instant) is not None:
                _check_kind(block, where)
                kept.append((block, where))
    return kept


def _undo(kept: list[tuple[LogBlock, str]], command: LogBlock, where: str) -> None:
    """A rollback block, which only table version 6 has, takes its target's blocks back."""
    if command.header.get(Header.COMMAND_BLOCK_TYPE) != _ROLLBACK_COMMAND:
        raise TableError(f"{where}: is a command that is not known")
    target = command.header.get(Header.TARGET_INSTANT_TIME)
    kept[:] = [(block, place) for block, place in kept if block.instant != target]


def _check_kind(block: LogBlock, where: str) -> None:
    known = (BlockType.DELETE, BlockType.AVRO_DATA, BlockType.PARQUET_DATA)
    if block.type not in known:
        names = {kind.value: kind.name for kind in BlockType}
        raise TableError(f"{where}: is of type {names.get(block.type, block.type)}, not supported")
    if block.header.get(Header.IS_PARTIAL) == "true":
        raise TableError(f"{where}: holds partial updates, which are not supported")
    if Header.COMPACTED_BLOCK_TIMES in block.header:
        raise TableError(f"{where}: is the outcome of a log compaction, which is not supported")


@dataclass(frozen=True, slots=True)
class _Part:
    """The entries of one block. `rows` is None for deletes."""

    keys: pa.Array
    deleted: npt.NDArray[np.bool_]
    always: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...]
    rows: pa.Table | None


def _deletes(found: Deletes, kinds: tuple[pa.DataType, ...]) -> _Part:
    rows = len(found)
    ordering = found.ordering or tuple(pa.nulls(rows, kind) for kind in kinds)
    return _Part(found.keys, np.ones(rows, np.bool_), found.commit_time, ordering, None)


def _rows(block: LogBlock, schema: pa.Schema, ordering_fields: Sequence[str], where: str) -> _Part:
    if block.type == BlockType.PARQUET_DATA:
        stored = decode_parquet(block.content, where)
    else:
        avro = block.header.get(Header.SCHEMA)
        if avro is None:
            raise TableError(f"{where}: has no schema")
        stored = pa.Table.from_batches([decode_avro(block.content, avro, where)])
    deleted = _marked_deleted(stored)
    rows = conform_table(stored, schema, where).combine_chunks()
    keys = _one_array(rows.column(RECORD_KEY))
    if keys.null_count:
        raise TableError(f"{where}: has a row without a record key")
    ordering = tuple(_one_array(rows.column(name)) for name in ordering_fields)
    return _Part(keys, deleted, np.zeros(len(keys), np.bool_), ordering, rows)


def _marked_deleted(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Rows that say of themselves that they are deletes."""
    deleted = np.zeros(stored.num_rows, np.bool_)
    if IS_DELETED in stored.schema.names:
        flags = stored.column(IS_DELETED)
        if pa.types.is_boolean(flags.type):
            deleted |= pc.fill_null(flags, False).to_numpy()
    if OPERATION in stored.schema.names:
        operations = pc.is_in(stored.column(OPERATION), value_set=pa.array(["D", "-U"]))
        deleted |= operations.to_numpy()
    return deleted


def _merge(
    parts: list[_Part], schema: pa.Schema, kinds: tuple[pa.DataType, ...], mode: MergeMode
) -> LogRecords:
    tables = [part.rows for part in parts if part.rows is not None]
    rows = pa.concat_tables(tables) if tables else schema.empty_table()
    keys = _joined([part.keys for part in parts], pa.string())
    deleted = _concatenated([part.deleted for part in parts])
    always = _concatenated([part.always for part in parts])
    ordering = tuple(
        _joined([part.ordering[i] for part in parts], kind) for i, kind in enumerate(kinds)
    )
    row = _row_numbers(parts)
    row[deleted] = -1
    winners = _winners(keys, deleted, always, ordering, mode)
    taken = pa.array(winners)
    return LogRecords(
        keys.take(taken),
        row[winners],
        always[winners],
        tuple(values.take(taken) for values in ordering),
        rows,
    )


def _row_numbers(parts: list[_Part]) -> npt.NDArray[np.int64]:
    numbers: list[npt.NDArray[np.int64]] = []
    seen = 0
    for part in parts:
        if part.rows is None:
            numbers.append(np.full(len(part.keys), -1, np.int64))
        else:
            numbers.append(np.arange(seen, seen + len(part.keys), dtype=np.int64))
            seen += len(part.keys)
    return np.concatenate(numbers) if numbers else np.empty(0, np.int64)


def _winners(
    keys: pa.Array,
    deleted: npt.NDArray[np.bool_],
    always: npt.NDArray[np.bool_],
    ordering: tuple[pa.Array, ...],
    mode: MergeMode,
) -> npt.NDArray[np.int64]:
    """The entry of each key that stands, in order of position."""
    count = len(keys)
    if not count:
        return np.empty(0, np.int64)
    group = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    position = np.arange(count)
    if mode != EVENT_TIME or not ordering:
        last = np.zeros(int(group.max()) + 1, np.int64)
        np.maximum.at(last, group, position)
        return np.sort(last)
    alive = np.ones(count, np.bool_)
    if always.any():
        alive = _after_last_delete(group, position, deleted, always)
    entries = np.flatnonzero(alive)
    by_value = [ranks(values.take(pa.array(entries))) for values in ordering]
    # lexsort's last key is its first: key, then ordering fields in order, then position
    order = np.lexsort([position[entries], *reversed(by_value), group[entries]])
    ordered = entries[order]
    last_of_group = np.append(group[ordered][1:] != group[ordered][:-1], True)
    return np.sort(ordered[last_of_group])


def _after_last_delete(
    group: npt.NDArray[np.int64],
    position: npt.NDArray[np.int64],
    deleted: npt.NDArray[np.bool_],
    always: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Which entries still count where a key has deletes by commit time: what comes from the first row
    after the last such delete on, or, where no row follows, that delete alone."""
    groups = int(group.max()) + 1
    cut = np.full(groups, -1, np.int64)
    np.maximum.at(cut, group[always], position[always])
    after = position > cut[group]
    rows_after = after & ~deleted
    first_row = np.full(groups, len(position), np.int64)
    np.minimum.at(first_row, group[rows_after], position[rows_after])
    untouched = cut[group] < 0
    from_row = (cut[group] >= 0) & after & (position >= first_row[group])
    delete_alone = (position == cut[group]) & (first_row[group] == len(position))
    kept: npt.NDArray[np.bool_] = untouched | from_row | delete_alone
    return kept


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return _joined(joined.chunks, column.type)
    return joined


def _joined(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _concatenated(arrays: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    return np.concatenate(arrays) if arrays else np.empty(0, np.bool_)
