"""Writing of log files: what one instant appends to a file group, as blocks in one or more new files.

From table version 8 on, a log file carries the deltacommit's instant and versions begin at 1; before, it
carries the base file's instant and versions continue. A log file is never appended to: object stores cannot
do it, and a file that appears whole needs no recovery. Source: HoodieAppendHandle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from serde_lab.avro.schema import arrow_to_avro
from serde_lab.errors import OptionError
from serde_lab.records.buffers import one_batch
from serde_lab.records.conversion import conform
from serde_lab.table.files.base_file import (
    CONSTANTS,
    constant,
    sequence_numbers,
    with_constants,
    with_meta_columns,
)
from serde_lab.table.files.delete_block import encode_deletes
from serde_lab.table.files.log_block import (
    BlockType,
    Header,
    encode_avro,
    encode_parquet,
    frame_block,
)
from serde_lab.table.files.parquet import BaseFileFormat
from serde_lab.table.storage.data_files import (
    APPEND,
    CREATE,
    LogFileName,
    Writing,
    in_partition,
    place_data_file,
)
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.commit_metadata import WriteStat

BlockFormat = Literal["avro", "parquet"]


@dataclass(frozen=True, slots=True)
class LogFormat:
    """How log files are written. `block_bytes`: most bytes of rows (in memory) in one data block;
    `file_bytes`: a file of this size gets no further block."""

    blocks: BlockFormat = "avro"
    compression: BaseFileFormat = field(default_factory=BaseFileFormat)
    block_bytes: int = 64 << 20
    file_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class LogTarget:
    """The file group to append to, and what the names of its log files need.

    `base_instant` and `base_file` are those of its latest slice; `latest_version` is the version of the
    slice's newest log file, 0 if it has none (both matter only before table version 8). `own_version` is the
    newest version that earlier batches of the same instant wrote, 0 if there is none (from version 8 on).
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_file: str = ""
    latest_version: int = 0
    own_version: int = 0


def check_block_format(blocks: BlockFormat, ordering: tuple[pa.DataType, ...]) -> None:
    """Raises OptionError for Parquet blocks in a table whose ordering field is a string.

    Hudi 1.2.0 compares every row of such a block with the last row's ordering value, so that updates are lost
    and late rows win.
    """
    if blocks == "parquet" and any(pa.types.is_string(kind) for kind in ordering):
        raise OptionError(
            "hoodie.logfile.data.block.format is parquet and the ordering field is a string, which "
            "Hudi 1.2.0 merges incorrectly",
            hint="use avro blocks, or an ordering field of another type",
        )


@dataclass(frozen=True, slots=True)
class _BlockKind:
    """The form of data blocks: their columns (meta columns too), the same as an Avro schema, and whether
    they lack columns of the table."""

    schema: pa.Schema
    avro: str
    partial: bool

    @property
    def varying(self) -> pa.Schema:
        """The columns without the meta columns that have one value in a block."""
        return pa.schema([f for f in self.schema if f.name not in CONSTANTS])


class LogWriter:
    """Appends one instant's rows and deletes to one file group, in the order of the calls.

    Files appear when they are full and at `close`.
    """

    def __init__(
        self,
        storage: Storage,
        writing: Writing,
        *,
        table_name: str,
        table_version: int,
        data_schema: pa.Schema,
        target: LogTarget,
        format: LogFormat | None = None,
    ) -> None:
        self._storage, self._writing, self._target = storage, writing, target
        self._instant = writing.instant
        self._format = format or LogFormat()
        self._own_instant = table_version >= 8
        self._table_name = table_name
        self._data_schema = data_schema.remove_metadata()
        self._kind = self._whole = self._block_kind(self._data_schema, partial=False)
        self._seqno_prefix = f"{writing.instant}_{writing.task_partition}_"
        self._version = 1 + (target.own_version if self._own_instant else target.latest_version)
        self._rows = writing.rows_before
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._blocks: list[bytes] = []
        self._block_bytes = self._file_rows = self._file_deletes = 0
        self._stats: list[WriteStat] = []

    def _block_kind(self, data_schema: pa.Schema, partial: bool) -> _BlockKind:
        schema = with_meta_columns(data_schema)
        avro = arrow_to_avro(schema, f"{self._table_name}_record", f"hoodie.{self._table_name}")
        return _BlockKind(schema, json.dumps(avro), partial)

    def append(self, record_keys: pa.Array, data: pa.RecordBatch) -> None:
        """Add rows that this instant writes, with their record keys."""
        where = self._storage.describe(self._target.partition_path)
        self._append(record_keys, conform(data, self._data_schema, where), self._whole)

    def append_partial(self, record_keys: pa.Array, data: pa.RecordBatch) -> None:
        """Add rows that have only some of the columns; the others keep their stored values.

        Every key must be stored: if there is no whole row, Apache Hudi reads memory that is not its own.
        Source: KEEP_VALUES, HoodieAppendHandle's partial updates.
        """
        kind = self._kind
        if not kind.partial or kind.schema != with_meta_columns(data.schema):
            kind = self._block_kind(data.schema, partial=True)
        self._append(record_keys, data, kind)

    def _append(self, record_keys: pa.Array, data: pa.RecordBatch, kind: _BlockKind) -> None:
        rows = data.num_rows
        if not rows:
            return
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        # counted from 1, as in Hudi's append handle
        seqnos = sequence_numbers(self._seqno_prefix, self._rows + 1, rows)
        self._rows += rows
        batch = pa.RecordBatch.from_arrays(
            [seqnos, record_keys, *data.columns], schema=kind.varying
        )
        # a batch larger than a block is split by its average row size
        size = max(1, data.nbytes)
        step = max(1, rows * self._format.block_bytes // size)
        for start in range(0, rows, step):
            part = batch.slice(start, step)
            self._waiting.append(part)
            self._waiting_bytes += size * part.num_rows // rows
            if self._waiting_bytes >= self._format.block_bytes:
                self._flush()

    def delete(self, record_keys: pa.Array, ordering: Sequence[pa.Array] = ()) -> None:
        """Add deletes, which come after the rows appended before them.

        With `ordering` (one array per ordering field) a delete removes only rows that are not newer; without,
        all rows. Raises DataError for an ordering value that a delete block cannot hold.
        """
        if not len(record_keys):
            return
        self._flush()
        content = encode_deletes(record_keys, self._target.partition_path, ordering)
        self._add(BlockType.DELETE, content, deletes=len(record_keys))

    def close(self, updates: int = 0) -> list[WriteStat]:
        """Place what is left; returns one stat per file, none if nothing was written.

        The first `updates` of the appended rows replace a stored one, the others are new; each file's stat
        counts its own rows.
        """
        self._flush()
        self._place(is_last=True)
        counted = []
        for stat in self._stats:
            replaced = min(updates, stat.numWrites)
            updates -= replaced
            counted.append(
                replace(stat, numUpdateWrites=replaced, numInserts=stat.numWrites - replaced)
            )
        return counted

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = self._with_constants(one_batch(pa.Table.from_batches(self._waiting)))
        self._waiting, self._waiting_bytes = [], 0
        if self._format.blocks == "parquet":
            content = encode_parquet(rows, self._format.compression)
            self._add(BlockType.PARQUET_DATA, content, rows=rows.num_rows)
        else:
            self._add(BlockType.AVRO_DATA, encode_avro(rows, self._kind.avro), rows=rows.num_rows)

    def _with_constants(self, varying: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a block with the meta columns that have one value."""
        rows, schema = varying.num_rows, self._kind.schema
        fill = pa.repeat
        if self._format.blocks == "parquet" and rows >= _FEWEST_FOR_DICTIONARY:
            fill, schema = constant, with_constants(schema)
        values = {
            "_hoodie_commit_time": self._instant,
            "_hoodie_partition_path": self._target.partition_path,
            # logs have only the file id here: compaction gives rows the name of their file
            "_hoodie_file_name": self._target.file_id,
        }
        columns = dict(zip(varying.schema.names, varying.columns, strict=True))
        columns |= {name: fill(value, rows) for name, value in values.items()}
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _add(self, type: BlockType, content: pa.Buffer, rows: int = 0, deletes: int = 0) -> None:
        kind = self._whole if type is BlockType.DELETE else self._kind
        header: dict[int, str] = {Header.INSTANT_TIME: self._instant, Header.SCHEMA: kind.avro}
        if kind.partial:
            header[Header.IS_PARTIAL] = "true"
        block = frame_block(type, header, content)
        self._blocks.append(block)
        self._block_bytes += len(block)
        self._file_rows += rows
        self._file_deletes += deletes
        if self._block_bytes >= self._format.file_bytes:
            self._place()

    def _place(self, is_last: bool = False) -> None:
        if not self._blocks:
            return
        target = self._target
        # one file has all rows, whatever their order; of several, the order says which ones
        split = bool(self._stats) or not is_last
        name = LogFileName(
            target.file_id,
            self._instant if self._own_instant else target.base_instant,
            self._version,
            self._writing.write_token,
        )
        path = in_partition(target.partition_path, str(name))
        size = place_data_file(
            self._storage,
            replace(self._writing, split_by_order=split),
            target.partition_path,
            path,
            CREATE if self._own_instant else APPEND,
            b"".join(self._blocks),
        )
        self._stats.append(
            WriteStat(
                fileId=target.file_id,
                path=path,
                prevCommit=self._instant if self._own_instant else target.base_instant,
                partitionPath=target.partition_path,
                numWrites=self._file_rows,
                numDeletes=self._file_deletes,
                totalWriteBytes=size,
                fileSizeInBytes=size,
                logVersion=self._version,
                logOffset=0,
                baseFile="" if self._own_instant else target.base_file,
                logFiles=(str(name),),
            )
        )
        self._version += 1
        self._blocks, self._block_bytes, self._file_rows, self._file_deletes = [], 0, 0, 0


# of fewer rows no column has a dictionary
_FEWEST_FOR_DICTIONARY = 3
