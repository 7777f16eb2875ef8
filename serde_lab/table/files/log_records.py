"""Reading and merging of a file slice's log files: one row or one delete per record key.

Only committed blocks are read. `merging.survivors` has the merge rules. If choosing one of two rows is not
enough, a combiner makes one row of both, also for partial blocks, whose rows lack columns. Source:
BufferedRecordMergerFactory, KeyBasedFileGroupRecordBuffer and PositionBasedFileGroupRecordBuffer of Hudi 1.x.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.merging.combiner import Combiner, Entries, Present
from serde_lab.merging.rules import DeleteMarkers, MergeRules, deletes_of
from serde_lab.merging.survivors import EntryHistory, match, winners
from serde_lab.records.buffers import HashedKeys, repeated
from serde_lab.records.conversion import conform_table
from serde_lab.records.schema import RECORD_KEY, RecordSchema, find_field, type_at
from serde_lab.table.files.base_file import BaseFileReader, with_meta_columns
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
from serde_lab.table.files.slice_rows import ArrowForm, RowForm, SliceRows
from serde_lab.table.storage.storage import Storage

_ROLLBACK_COMMAND = "0"


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The merged log files of a slice, one entry per record key; all arrays have the same length.

    `keys`: record keys, hashed. `row`: the entry's row in `rows`, or -1 for a delete. `always`: deletes by
    commit time, which win over the base file's row whatever its ordering value. `ordering`: one array per
    ordering field, null where `always`. `present`: for each column that some writers left out, which of
    `rows` have it; None if the log has no partial updates. `by_position`: every block names the base file's
    rows that it changes by their positions, as Apache Hudi writes them under most indexes.
    """

    keys: HashedKeys
    row: npt.NDArray[np.int64]
    always: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...]
    rows: SliceRows
    present: Present | None = None
    by_position: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    def met_by(
        self, base_keys: pa.Array, open_: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows of a batch of the base file that meet an entry, and the entry of each.

        An entry meets one row of its key, even if the base file has several; `open_` are those that have
        met none yet. By position it meets all of them: Hudi's writer finds each, and logs its position.
        """
        if self.by_position:
            found = pc.index_in(base_keys, value_set=self.keys.values)
            rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            return rows, found.drop_null().to_numpy().astype(np.int64)
        entries = np.flatnonzero(open_)
        keys = self.keys if len(entries) == len(self) else self.keys.take(entries)
        at = match(base_keys, keys)
        hit = np.flatnonzero(at >= 0)
        return at[hit], entries[hit]


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
    form: RowForm | None = None,
    timeline: TaskTimeline | None = None,
    base_instant: str = "",
) -> tuple[LogRecords, LogCount]:
    """Read the blocks of committed instants and merge them by `rules`. `schema` has the wanted columns,
    ordering fields included; without ordering fields the later entry of a key wins. Rows are merged in
    `form`, on Arrow by default, and the steps are timed by `timeline`. `base_instant`: of the base file
    below, "" if there is none.

    Raises TableError for a damaged block: Hudi's readers silently skip it, which loses its records.
    """
    rules, form = rules or MergeRules(), form or ArrowForm()
    timeline = timeline or TaskTimeline("read")
    columns = with_meta_columns(schema.data)
    for name in schema.ordering:
        if find_field(columns, name) is None:
            raise TableError(
                f"{storage.url}: the ordering field {name!r} is no column of the table, so nothing says which"
                " of two rows of a key is the newer"
            )
    kinds = tuple(type_at(columns, name) for name in schema.ordering)
    parts: list[_Part] = []
    with timeline.phase("read_base"):
        blocks = list(committed_blocks(storage, log_files, visibility))
        for block, where in blocks:
            if block.type == BlockType.DELETE:
                parts.append(_Part(deletes=decode_deletes(block.content, kinds, where)))
            else:
                parts.append(_rows(block, columns, rules.markers, where))
    partial = any(part.missing is not None for part in parts)
    combiner = rules.combiner(schema, in_log=True, partial=partial)
    rows = form.rows([part.rows for part in parts if part.rows is not None], columns)
    with timeline.phase("merge"):
        entries = _entries(parts, rows, schema.ordering, kinds)
        if rules.deletes_late:
            entries = replace(entries, always=entries.deleted)
        present = _present(parts) if partial else None
        records = _merge(entries, rows, columns, form, combiner, present)
        positions = all(has_positions(block, base_instant) for block, _ in blocks)
        records = replace(records, by_position=positions)
    count = LogCount(
        files=len(log_files),
        blocks=len(blocks),
        records=sum(len(part) for part in parts),
        size_bytes=sum(file.size_bytes for file in log_files),
    )
    return records, count


def has_positions(block: LogBlock, base_instant: str) -> bool:
    """Whether a block names the rows that it changes in the base file of this instant by their positions."""
    of_base = block.header.get(Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS, "")
    return bool(block.header.get(Header.RECORD_POSITIONS)) and of_base == base_instant != ""


def check_positions(storage: Storage, base: str, base_instant: str, newest_log: str) -> None:
    """Raise TableError if a log without positions would undo what this slice's logs changed.

    If a base file has a key more than once, Apache Hudi's logs reach all rows of the key, by their positions.
    With a block without positions among them, every reader goes by keys, and they reach one row each.
    """
    blocks = list(parse_blocks(storage.open_input(newest_log).read_buffer()))
    last = blocks[-1] if blocks else None
    if not isinstance(last, LogBlock) or not has_positions(last, base_instant):
        return
    keys = BaseFileReader(storage, base).read([RECORD_KEY]).column(RECORD_KEY)
    often = repeated(keys.combine_chunks())
    if len(often):
        raise TableError(
            f"{storage.describe(base)} has record key {often[0].as_py()!r} more than once, and Apache Hudi's"
            " logs on top of it name its rows by position; a log of the lab would undo what they changed",
            hint="compact the table first",
        )


def has_partial_rows(
    storage: Storage, log_files: Sequence[LogFile], visibility: Visibility
) -> bool:
    """Whether these logs have rows that lack columns. Raises TableError for a damaged block."""
    blocks = committed_blocks(storage, log_files, visibility)
    return any(_is_partial(block) for block, _ in blocks)


def partial_columns_and_deletes(
    storage: Storage, log_files: Sequence[LogFile], visibility: Visibility
) -> tuple[set[str], bool]:
    """The columns of the partial rows in these logs, and whether there are delete blocks. Raises TableError
    for a damaged block."""
    blocks = [block for block, _ in committed_blocks(storage, log_files, visibility)]
    schemas = [block.header.get(Header.SCHEMA) for block in blocks if _is_partial(block)]
    columns = {f["name"] for schema in schemas if schema for f in json.loads(schema)["fields"]}
    return columns, any(block.type == BlockType.DELETE for block in blocks)


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
    """The entries of one block: `rows`, those that are `marked` deletes (None: none), or else `deletes`.

    `missing`: the columns that a partial block lacks.
    """

    rows: pa.Table | None = None
    marked: npt.NDArray[np.bool_] | None = None
    missing: frozenset[str] | None = None
    deletes: DeletedKeys | None = None

    def __len__(self) -> int:
        return len(self.deletes or ()) if self.rows is None else len(self.rows)


def _rows(block: LogBlock, schema: pa.Schema, markers: DeleteMarkers, where: str) -> _Part:
    if block.type == BlockType.PARQUET_DATA:
        stored = decode_parquet(block.content, where)
    else:
        avro = block.header.get(Header.SCHEMA)
        if avro is None:
            raise TableError(f"{where}: has no schema")
        stored = pa.Table.from_batches([decode_avro(block.content, avro, where)])
    rows = conform_table(stored, schema, where).combine_chunks()
    if rows.column(RECORD_KEY).null_count:
        raise TableError(f"{where}: has a row without a record key")
    missing = frozenset(schema.names) - set(stored.schema.names) if _is_partial(block) else None
    return _Part(rows, markers.marked(stored, stored.schema.names), missing)


@dataclass(frozen=True, slots=True)
class _LogEntries:
    """All entries of a log, in order; arrays of equal length. `row`: as in LogRecords."""

    keys: pa.Array
    deleted: npt.NDArray[np.bool_]
    always: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...]
    row: npt.NDArray[np.int64]


def _entries(
    parts: list[_Part], rows: SliceRows, ordering: Sequence[str], kinds: Sequence[pa.DataType]
) -> _LogEntries:
    """The entries of `parts`, whose rows are `rows`, with the keys and ordering values that those have."""
    row_keys, row_ordering = rows.keys(), rows.ordering(ordering)
    keys, deleted, always, row = [], [], [], [np.empty(0, np.int64)]
    values: list[list[pa.Array]] = [[] for _ in kinds]
    seen = 0
    for part in parts:
        count = len(part)
        if part.deletes is not None:
            found = part.deletes
            keys.append(found.keys)
            deleted.append(np.ones(count, np.bool_))
            always.append(found.commit_time)
            row.append(np.full(count, -1))
            mine = found.ordering or tuple(pa.nulls(count, kind) for kind in kinds)
        else:
            keys.append(row_keys.slice(seen, count))
            mine = tuple(one.slice(seen, count) for one in row_ordering)
            row.append(np.arange(seen, seen + count))
            seen += count
            if part.marked is None:
                deleted.append(np.zeros(count, np.bool_))
                always.append(deleted[-1])
            else:
                deletes = deletes_of(part.marked, mine)
                deleted.append(deletes.marked)
                always.append(deletes.always)
        for held, one in zip(values, mine, strict=True):
            held.append(one)
    gone = _concatenated(deleted)
    return _LogEntries(
        _joined(keys, pa.string()),
        gone,
        _concatenated(always),
        tuple(_joined(held, kind) for held, kind in zip(values, kinds, strict=True)),
        np.where(gone, -1, np.concatenate(row)),
    )


def _merge(
    entries: _LogEntries,
    rows: SliceRows,
    schema: pa.Schema,
    form: RowForm,
    combiner: Combiner | None,
    present: Present | None,
) -> LogRecords:
    keys, ordering, always = entries.keys, entries.ordering, entries.always
    group = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    history = EntryHistory(group, ordering, entries.deleted, always)
    if combiner is None:
        surviving = winners(history)
        taken = pa.array(surviving)
        return LogRecords(
            HashedKeys.of(keys.take(taken)),
            entries.row[surviving],
            always[surviving],
            tuple(values.take(taken) for values in ordering),
            rows,
        )
    # a combiner works on Arrow, so that records are converted out and in again
    folded = combiner.fold(Entries(rows.to_arrow(), history, entries.row, present))
    taken = pa.array(folded.tops)
    return LogRecords(
        HashedKeys.of(keys.take(taken)),
        folded.row,
        always[folded.tops] if folded.always is None else folded.always,
        tuple(values.take(taken) for values in ordering),
        form.rows([pa.Table.from_batches([folded.rows])], schema),
        folded.present,
    )


def _present(parts: list[_Part]) -> Present:
    """For each column that some block lacks: which rows have it."""
    lacking = {name for part in parts for name in part.missing or ()}
    return {
        name: _concatenated(
            [
                np.full(len(part), part.missing is None or name not in part.missing)
                for part in parts
                if part.rows is not None
            ]
        )
        for name in sorted(lacking)
    }


def _joined(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _concatenated(arrays: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    return np.concatenate(arrays) if arrays else np.empty(0, np.bool_)
