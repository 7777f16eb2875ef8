"""Reading and merging of a file slice's log files: one row or one delete per record key.

Only committed blocks are read. `merging.histories` has the merge rules. If choosing one of two rows is not
enough, a combiner makes one row of both, also for partial blocks, whose rows lack columns. Source:
BufferedRecordMergerFactory and KeyBasedFileGroupRecordBuffer of Hudi 1.x.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import TableError
from serde_lab.merging.combiner import Combiner, Entries, Present
from serde_lab.merging.rules import DeleteMarkers, MergeRules, deletes_of
from serde_lab.merging.survivors import EntryHistory, winners
from serde_lab.records.buffers import one_batch
from serde_lab.records.conversion import conform_table
from serde_lab.records.schema import RecordSchema, type_at, values_at
from serde_lab.table.files.base_file import RECORD_KEY, with_meta_columns
from serde_lab.table.files.delete_block import DeletedKeys, decode_deletes
from serde_lab.table.files.file_system_view import LogFile, Visibility
from serde_lab.table.files.log_block import (
    BlockType,
    Damage,
    Header,
    LogBlock,
    decode_avro,
    decode_parquet,
    parse_blocks,
)
from serde_lab.table.storage.storage import Storage

_ROLLBACK_COMMAND = "0"


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The merged log files of a slice, one entry per record key; all arrays have the same length.

    `keys`: record keys. `row`: the entry's row in `rows`, or -1 for a delete. `always`: deletes by commit
    time, which win over the base file's row whatever its ordering value. `ordering`: one array per ordering
    field, null where `always`. `present`: for each column that some writers left out, which of `rows` have
    it; None if the log has no partial updates.
    """

    keys: pa.Array
    row: npt.NDArray[np.int64]
    always: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...]
    rows: pa.Table
    present: Present | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class LogCount:
    """Counts of what was read, for the statistics of a compaction."""

    files: int = 0
    blocks: int = 0
    records: int = 0
    size_bytes: int = 0


def read_log_records(
    storage: Storage,
    log_files: Sequence[LogFile],
    schema: RecordSchema,
    visibility: Visibility,
    rules: MergeRules | None = None,
) -> tuple[LogRecords, LogCount]:
    """Read the blocks of committed instants and merge them by `rules`. `schema` has the wanted columns,
    ordering fields included; without ordering fields the later entry of a key wins.

    Raises TableError for a damaged block: Hudi's readers silently skip it, which loses its records.
    """
    rules = rules or MergeRules()
    columns = with_meta_columns(schema.data)
    kinds = tuple(type_at(columns, name) for name in schema.ordering)
    blocks = list(committed_blocks(storage, log_files, visibility))
    parts: list[_Part] = []
    for block, where in blocks:
        if block.type == BlockType.DELETE:
            parts.append(_deletes(decode_deletes(block.content, kinds, where), kinds))
        else:
            parts.append(_rows(block, columns, schema.ordering, rules.markers, where))
    partial = any(part.missing is not None for part in parts)
    combiner = rules.combiner(schema, in_log=True, partial=partial)
    records = _merge(parts, columns, kinds, combiner, _present(parts) if partial else None)
    count = LogCount(
        files=len(log_files),
        blocks=len(blocks),
        records=sum(len(part.keys) for part in parts),
        size_bytes=sum(file.size_bytes for file in log_files),
    )
    return records, count


def has_partial_rows(
    storage: Storage, log_files: Sequence[LogFile], visibility: Visibility
) -> bool:
    """Whether these logs have rows that lack columns. Raises TableError for a damaged block."""
    blocks = committed_blocks(storage, log_files, visibility)
    return any(_is_partial(block) for block, _ in blocks)


def columns_of_partial_rows(
    storage: Storage, log_files: Sequence[LogFile], visibility: Visibility
) -> set[str]:
    """The columns of those rows in these logs that lack other columns. Raises TableError for a damaged
    block."""
    blocks = committed_blocks(storage, log_files, visibility)
    schemas = [block.header.get(Header.SCHEMA) for block, _ in blocks if _is_partial(block)]
    return {field["name"] for schema in schemas if schema for field in json.loads(schema)["fields"]}


def committed_blocks(
    storage: Storage, log_files: Sequence[LogFile], visibility: Visibility
) -> Iterable[tuple[LogBlock, str]]:
    """Data and delete blocks of visible instants, in order, each with its place for messages."""
    kept: list[tuple[LogBlock, str]] = []
    for file in log_files:
        path = storage.describe(file.path)
        for block in parse_blocks(storage.open_input(file.path).read_buffer()):
            if isinstance(block, Damage):
                raise TableError(
                    f"{path}: is damaged at byte {block.offset}: {block.problem}; Hudi's readers "
                    "would skip its rows silently"
                )
            where = f"{path} (block at byte {block.offset})"
            if block.type == BlockType.COMMAND:
                _undo(kept, block, where)
            elif visibility.completion_of(block.instant) is not None:
                _check_kind(block, where)
                kept.append((block, where))
    return kept


def _undo(kept: list[tuple[LogBlock, str]], command: LogBlock, where: str) -> None:
    """Remove the blocks that a rollback block targets; only table version 6 has such blocks."""
    if command.header.get(Header.COMMAND_BLOCK_TYPE) != _ROLLBACK_COMMAND:
        raise TableError(f"{where}: is an unknown command block")
    target = command.header.get(Header.TARGET_INSTANT_TIME)
    kept[:] = [(block, place) for block, place in kept if block.instant != target]


def _is_partial(block: LogBlock) -> bool:
    return block.header.get(Header.IS_PARTIAL) == "true"


def _check_kind(block: LogBlock, where: str) -> None:
    known = (BlockType.DELETE, BlockType.AVRO_DATA, BlockType.PARQUET_DATA)
    if block.type not in known:
        names = {kind.value: kind.name for kind in BlockType}
        raise TableError(f"{where}: is of type {names.get(block.type, block.type)}, not supported")
    if Header.COMPACTED_BLOCK_TIMES in block.header:
        raise TableError(f"{where}: is the outcome of a log compaction, which is not supported")


@dataclass(frozen=True, slots=True)
class _Part:
    """The entries of one block. `rows` is None for deletes; `missing`: the columns that a partial block
    lacks."""

    keys: pa.Array
    deleted: npt.NDArray[np.bool_]
    always: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...]
    rows: pa.Table | None
    missing: frozenset[str] | None = None


def _deletes(found: DeletedKeys, kinds: tuple[pa.DataType, ...]) -> _Part:
    rows = len(found)
    ordering = found.ordering or tuple(pa.nulls(rows, kind) for kind in kinds)
    return _Part(found.keys, np.ones(rows, np.bool_), found.commit_time, ordering, None)


def _rows(
    block: LogBlock,
    schema: pa.Schema,
    ordering_fields: Sequence[str],
    markers: DeleteMarkers,
    where: str,
) -> _Part:
    if block.type == BlockType.PARQUET_DATA:
        stored = decode_parquet(block.content, where)
    else:
        avro = block.header.get(Header.SCHEMA)
        if avro is None:
            raise TableError(f"{where}: has no schema")
        stored = pa.Table.from_batches([decode_avro(block.content, avro, where)])
    marked = markers.marked(stored, stored.schema.names)
    rows = conform_table(stored, schema, where).combine_chunks()
    keys = _one_array(rows.column(RECORD_KEY))
    if keys.null_count:
        raise TableError(f"{where}: has a row without a record key")
    ordering = tuple(_one_array(values_at(rows, name)) for name in ordering_fields)
    missing = frozenset(schema.names) - set(stored.schema.names) if _is_partial(block) else None
    if marked is None:
        none = np.zeros(len(keys), np.bool_)
        return _Part(keys, none, none, ordering, rows, missing)
    deletes = deletes_of(marked, ordering)
    return _Part(keys, deletes.marked, deletes.always, ordering, rows, missing)


def _merge(
    parts: list[_Part],
    schema: pa.Schema,
    kinds: tuple[pa.DataType, ...],
    combiner: Combiner | None,
    present: Present | None,
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
    group = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    history = EntryHistory(group, ordering, deleted, always)
    if combiner is None:
        surviving = winners(history)
        taken = pa.array(surviving)
        return LogRecords(
            keys.take(taken),
            row[surviving],
            always[surviving],
            tuple(values.take(taken) for values in ordering),
            rows,
        )
    folded = combiner.fold(Entries(one_batch(rows), history, row, present))
    taken = pa.array(folded.tops)
    return LogRecords(
        keys.take(taken),
        folded.row,
        always[folded.tops] if folded.always is None else folded.always,
        tuple(values.take(taken) for values in ordering),
        pa.Table.from_batches([folded.rows]),
        folded.present,
    )


def _present(parts: list[_Part]) -> Present:
    """For each column that some block lacks: which rows have it."""
    lacking = {name for part in parts for name in part.missing or ()}
    return {
        name: _concatenated(
            [
                np.full(len(part.keys), part.missing is None or name not in part.missing)
                for part in parts
                if part.rows is not None
            ]
        )
        for name in sorted(lacking)
    }


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


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return _joined(joined.chunks, column.type)
    return joined


def _joined(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _concatenated(arrays: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    return np.concatenate(arrays) if arrays else np.empty(0, np.bool_)
