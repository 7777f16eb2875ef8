"""What a worker must know to do its share of one write: a frozen value that travels with the stages.

Owns the facts that the driver decides before data moves (instant, file slices, routing, options). Must
not know how they are carried out, nor pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa

from serde_lab.records.combiner import Combiner
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.merge_rules import MergeRules
from serde_lab.records.merging import MergeMode
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import BoundSerde, SerdeOptions
from serde_lab.serde.registry import bind
from serde_lab.table.base_file import BaseFileFormat
from serde_lab.table.config import TableConfig
from serde_lab.table.file_system_view import FileSlice, Visibility
from serde_lab.table.log_file import LogFormat
from serde_lab.table.storage import Storage


class Operation(StrEnum):
    """`hoodie.datasource.write.operation`, as far as this pipeline goes."""

    UPSERT = "upsert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT = "insert"

    @property
    def looks_up(self) -> bool:
        """Whether records are matched with stored ones by key; the others only add rows."""
        return self in (Operation.UPSERT, Operation.DELETE)


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
class PartialUpdates:
    """A table whose columns the records leave out: all its data columns, and how to see which keys it
    has. `slices` maps (partition path, bucket) to the latest file slice."""

    table_columns: pa.Schema
    slices: Mapping[tuple[str, int], FileSlice]
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One write, decided: picklable, no larger than the list of file groups.

    `targets`: reduce partitions. `shards`: slices of a reduce task by key hash, one in memory at a
    time. `inflight_path`: the instant's inflight file, without which a late attempt writes nothing.
    `groups` maps (partition path, bucket) to what is stored. `seed` makes new file ids, so that
    two runs name their files alike.
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
    shards: int = 1
    seed: int = 0
    base_file_format: BaseFileFormat = field(default_factory=BaseFileFormat)
    log_format: LogFormat = field(default_factory=LogFormat)
    partial: PartialUpdates | None = None
    """What records are filled from that leave columns of the table out; None where they have all."""
    groups: Mapping[tuple[str, int], StoredFileGroup] = field(default_factory=dict)

    @property
    def buckets(self) -> int:
        """Buckets of each partition; without keys there are none, and each task has its own file groups."""
        return self.targets if self.table.is_keyless else self.table.bucket_count or 1

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
        """What makes one row of two; None where one of them stands, and for deletes and first loads."""
        if self.operation is not Operation.UPSERT:
            return None
        ordering = self.schema.ordering if self.merge_mode is not MergeMode.COMMIT_TIME else ()
        roles = replace(self.schema, ordering=ordering)
        return self.merge_rules.combiner(roles, self.strategy.upper())

    @property
    def source_schema(self) -> pa.Schema:
        """The columns that the source must give: a delete wants nothing but what tells records."""
        deletes = self.operation is Operation.DELETE
        return self.keygen.identity if deletes else self.schema.data

    def bind(self) -> BoundSerde:
        """The strategy of this write, bound to the schema of its records."""
        return bind(self.strategy, self.schema, self.serde_options)
