"""Holds what workers need for one write: frozen values that the driver sends along with the stages.

The driver decides them before data moves: instant, file slices, routing, options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa

from serde_lab.merging.combiner import Combiner
from serde_lab.merging.rules import MergeRules
from serde_lab.merging.survivors import MergeMode
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import OPERATION, RecordSchema
from serde_lab.serde.interface import BoundSerde, SerdeOptions
from serde_lab.serde.registry import bind
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileFormat
from serde_lab.table.files.file_sizing import FileSizing, SmallFile
from serde_lab.table.files.file_system_view import FileSlice, Visibility
from serde_lab.table.files.log_file import LogFormat
from serde_lab.table.files.meta_columns import FILE_NAME
from serde_lab.table.index.consistent_hashing import HashingMetadata
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.storage.storage import Storage


class Operation(StrEnum):
    """The values of `hoodie.datasource.write.operation` that this pipeline supports."""

    UPSERT = "upsert"
    UPSERT_PREPPED = "upsert_prepped"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"

    @property
    def looks_up(self) -> bool:
        """Whether records are looked up by key among the stored ones."""
        return self in (Operation.UPSERT, Operation.DELETE)

    @property
    def merges(self) -> bool:
        """Whether one row per key is kept, of the write's rows and, if it looks up keys, the stored one."""
        return self in _MERGING

    @property
    def replaces(self) -> bool:
        """Whether the write replaces existing file groups, by a replacecommit."""
        return self in _REPLACING


_MERGING = frozenset(
    {
        *(Operation.UPSERT, Operation.UPSERT_PREPPED),
        *(Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE),
    }
)
_REPLACING = frozenset(
    {
        *(Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE),
        Operation.DELETE_PARTITION,
    }
)


@dataclass(frozen=True, slots=True)
class StoredFileGroup:
    """The latest slice of a file group that has data.

    `base_path` is relative to the table; None if another writer began the group with a log. `log_version`
    is that of the slice's newest log file, 0 if it has none.
    """

    file_id: str
    base_path: str | None
    base_instant: str
    log_version: int = 0


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """How records find their file groups if no key hash determines them.

    `stored` reads the stored records that the index covers, slice by slice. `small_files` maps partition
    paths to file groups that inserts may join. `sizing` and `record_bytes` determine when a new group is
    full. `rings`, for consistent hashing, maps partition paths to their hashing metadata. `updates_path`:
    under a global index, whether a record moves to another partition when its values say so.
    """

    is_global: bool
    covers_logs: bool
    stored: ReadPlan
    sizing: FileSizing = field(default_factory=FileSizing)
    record_bytes: int = 1024
    small_files: Mapping[str, tuple[SmallFile, ...]] = field(default_factory=dict)
    rings: Mapping[str, HashingMetadata] = field(default_factory=dict)
    updates_path: bool = True


@dataclass(frozen=True, slots=True)
class MiniBatches:
    """How many bytes of frames a writing task buffers: for one file group, and for all together."""

    bucket_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class PartialUpdates:
    """All data columns of a table whose records leave some out, and where to read which keys it has.

    `slices` maps (partition path, file id) to the latest file slice.
    """

    table_columns: pa.Schema
    slices: Mapping[tuple[str, str], FileSlice]
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All decisions for one write; picklable, and no larger than the list of file groups.

    `targets`: reduce partitions. `shards`: slices of a reduce task by key hash, one in memory at a time.
    `inflight_path`: the instant's inflight file, without which a late attempt writes nothing. `topology`
    names the chain of stages (`topologies.py`). `groups` maps (partition path, file id) to what is
    stored, or (partition path, bucket) where a bucket is a file group. `seed` determines new file ids, so
    that two runs use the same file names. `batch` numbers the write among the `batches` of its instant.
    `fresh_file_ids`: ids from the seed alone may already belong to replaced groups. `index`: how records
    find their file groups; None if the key hash determines them. `mini_batches`: how much a writing task
    buffers before it writes; None if it holds everything.
    """

    operation: Operation
    schema: RecordSchema
    keygen: KeyGenerator
    strategy: str
    serde_options: SerdeOptions
    storage: Storage
    table: TableConfig
    instant: str
    targets: int
    inflight_path: str | None = None
    topology: str = "bucket"
    shards: int = 1
    seed: int = 0
    fresh_file_ids: bool = False
    batch: int = 0
    batches: int = 1
    base_file_format: BaseFileFormat = field(default_factory=BaseFileFormat)
    log_format: LogFormat = field(default_factory=LogFormat)
    groups: Mapping[tuple[str, int | str], StoredFileGroup] = field(default_factory=dict)
    index: IndexPlan | None = None
    mini_batches: MiniBatches | None = None
    partial: PartialUpdates | None = None
    """What completes records that leave out table columns; None if records have all columns."""

    @property
    def buckets(self) -> int:
        """Buckets of each partition without a rule of its own; without keys, the number of tasks.

        A table without keys has no buckets: each task has its own file groups.
        """
        return self.targets if self.table.is_keyless else self.table.bucket_count or 1

    def buckets_in(self, partition_path: str) -> int:
        """The number of buckets of this partition."""
        own = None if self.table.is_keyless else self.table.buckets_of(partition_path)
        return self.buckets if own is None else own

    @property
    def file_columns(self) -> pa.Schema:
        """The data columns of base files."""
        return self.schema.data if self.partial is None else self.partial.table_columns

    @property
    def merge_mode(self) -> MergeMode:
        """The table's merge mode."""
        return MergeMode(self.table.merge_mode or MergeMode.COMMIT_TIME)

    @property
    def merge_rules(self) -> MergeRules:
        """All merge settings of the table."""
        return self.table.merge_rules

    def combiner(self) -> Combiner | None:
        """Combines two rows into one; None if merging picks one of them or the write does not merge."""
        if not self.operation.merges:
            return None
        ordering = self.schema.ordering if self.merge_mode is not MergeMode.COMMIT_TIME else ()
        roles = replace(self.schema, ordering=ordering)
        return self.merge_rules.combiner(roles, self.strategy.upper())

    @property
    def located(self) -> bool:
        """Whether records arrive with their file ids."""
        return self.operation is Operation.UPSERT_PREPPED

    @property
    def moves(self) -> bool:
        """Whether a record may move to another partition, because its key is unique across the table."""
        return self.index is not None and self.index.is_global and bool(self.schema.partition)

    @property
    def marker_columns(self) -> list[str]:
        """The columns that can mark this write's records as deletes."""
        names = list(self.schema.data.names)
        return [OPERATION, *names] if self.moves else names

    @property
    def source_schema(self) -> pa.Schema:
        """The columns that the source must have. A delete needs only the columns that identify a record;
        upsert_prepped also needs the column of the file name.
        """
        if self.operation is Operation.DELETE:
            return self.keygen.identity
        if self.operation is Operation.UPSERT_PREPPED:
            return pa.schema([pa.field(FILE_NAME, pa.string()), *self.schema.data])
        return self.schema.data

    def bind(self) -> BoundSerde:
        """The strategy of this write, bound to the schema of its records."""
        return bind(self.strategy, self.schema, self.serde_options)
