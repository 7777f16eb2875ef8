"""What a worker must know to do its share of one write: a frozen value that travels with the stages.

Owns the facts that the driver decides before data moves (instant, file slices, routing, options). Must
not know how they are carried out, nor pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from serde_lab.records.keys import KeyGenerator
from serde_lab.records.merging import MergeMode
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import BoundSerde, SerdeOptions
from serde_lab.serde.registry import bind
from serde_lab.table.base_file import BaseFileFormat
from serde_lab.table.config import TableConfig
from serde_lab.table.storage import Storage


class Operation(StrEnum):
    """`hoodie.datasource.write.operation`, as far as this pipeline goes."""

    UPSERT = "upsert"
    BULK_INSERT = "bulk_insert"


@dataclass(frozen=True, slots=True)
class StoredFileGroup:
    """A file group that has data: its id and its latest base file (path relative to the table)."""

    file_id: str
    base_path: str
    base_instant: str


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
    groups: Mapping[tuple[str, int], StoredFileGroup] = field(default_factory=dict)

    @property
    def buckets(self) -> int:
        """Buckets of each partition."""
        return self.table.bucket_count or 1

    @property
    def merge_mode(self) -> MergeMode:
        """How the table merges."""
        return MergeMode(self.table.merge_mode or MergeMode.COMMIT_TIME)

    def bind(self) -> BoundSerde:
        """The strategy of this write, bound to the schema of its records."""
        return bind(self.strategy, self.schema, self.serde_options)
