"""What a worker must know to do its share of one write: a frozen value that travels with the stages.

Owns the facts that the driver decides before data moves (instant, file slices, routing, options). Must
not know how they are carried out, nor pyspark.
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
    """`hoodie.datasource.write.operation`, as far as this pipeline goes."""

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
        """Whether records are looked for among the stored ones by key."""
        return self in (Operation.UPSERT, Operation.DELETE)

    @property
    def merges(self) -> bool:
        """Whether one row of a key stands, of those of the write and, if it looks up, the stored one."""
        return self in _MERGING

    @property
    def replaces(self) -> bool:
        """Whether file groups that are there give way to those of the write: a replacecommit."""
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

    `base_path` is relative to the table, None where another writer began the group with a log;
    `log_version` is that of the slice's newest log file, 0 if it has none.
    """

    file_id: str
    base_path: str | None
    base_instant: str
    log_version: int = 0


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """How records find their file groups where no hash of the key tells them.

    `stored` reads the stored records that the index knows, slice by slice. `small_files` by partition
    path: file groups that inserts may join. `sizing` and `record_bytes` say when a new one is full.
    `rings`: of consistent hashing, by partition path. `updates_path`: whether a record whose key is told
    apart in the whole table leaves its partition when its values say so.
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
    """How many bytes of frames a writing task buffers: of one file group, and of all together."""

    bucket_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class PartialUpdates:
    """A table whose columns the records leave out: all its data columns, and how to see which keys it
    has. `slices` maps (partition path, file id) to the latest file slice."""

    table_columns: pa.Schema
    slices: Mapping[tuple[str, str], FileSlice]
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One write, decided: picklable, no larger than the list of file groups.

    `targets`: reduce partitions. `shards`: slices of a reduce task by key hash, one in memory at a
    time. `inflight_path`: the instant's inflight file, without which a late attempt writes nothing.
    `topology` names the chain of stages (`topologies.py`).
    `groups` maps (partition path, file id) to what is stored, and, where a bucket is a file group,
    (partition path, bucket). `seed` makes new file ids, so that two runs name their files alike.
    `batch` numbers it among those of its instant, which are `batches`.
    `fresh_file_ids`: ids that the seed alone gives may have been used up by groups that were replaced.
    `index`: how records find their file groups, None where the hash of a key tells. `mini_batches`:
    how much a writing task holds before it writes, None where it holds all.
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
    """What records are filled from that leave columns of the table out; None where they have all."""

    @property
    def buckets(self) -> int:
        """Buckets of each partition for which the table has no rule of its own; without keys there are
        none, and each task has its own file groups."""
        return self.targets if self.table.is_keyless else self.table.bucket_count or 1

    def buckets_in(self, partition_path: str) -> int:
        """Buckets of this partition."""
        own = None if self.table.is_keyless else self.table.buckets_of(partition_path)
        return self.buckets if own is None else own

    @property
    def file_columns(self) -> pa.Schema:
        """The data columns of base files."""
        return self.schema.data if self.partial is None else self.partial.table_columns

    @property
    def merge_mode(self) -> MergeMode:
        """How the table merges."""
        return MergeMode(self.table.merge_mode or MergeMode.COMMIT_TIME)

    @property
    def merge_rules(self) -> MergeRules:
        """All that the table says of merging."""
        return self.table.merge_rules

    def combiner(self) -> Combiner | None:
        """What makes one row of two; None where one of them stands, and for writes that merge nothing."""
        if not self.operation.merges:
            return None
        ordering = self.schema.ordering if self.merge_mode is not MergeMode.COMMIT_TIME else ()
        roles = replace(self.schema, ordering=ordering)
        return self.merge_rules.combiner(roles, self.strategy.upper())

    @property
    def located(self) -> bool:
        """Whether records come with their file ids."""
        return self.operation is Operation.UPSERT_PREPPED

    @property
    def moves(self) -> bool:
        """Whether a record may leave its partition: its key is told apart in the whole table."""
        return self.index is not None and self.index.is_global and bool(self.schema.partition)

    @property
    def marker_columns(self) -> list[str]:
        """The columns by which records of this write may say that they are deletes."""
        names = list(self.schema.data.names)
        return [OPERATION, *names] if self.moves else names

    @property
    def source_schema(self) -> pa.Schema:
        """The columns that the source must give: a delete wants nothing but what tells records, and
        records whose places are known bring them."""
        if self.operation is Operation.DELETE:
            return self.keygen.identity
        if self.operation is Operation.UPSERT_PREPPED:
            return pa.schema([pa.field(FILE_NAME, pa.string()), *self.schema.data])
        return self.schema.data

    def bind(self) -> BoundSerde:
        """The strategy of this write, bound to the schema of its records."""
        return bind(self.strategy, self.schema, self.serde_options)
