"""What the right answer depends on: the table's columns, their roles, and how the table merges.

Owns the facts that the oracle and the checks are told; must not know where they come from, nor any
code that writes tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import storage_schema

MergeMode = Literal["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"]
TableType = Literal["COPY_ON_WRITE", "MERGE_ON_READ"]

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
IS_DELETED = "_hoodie_is_deleted"
OPERATION_COLUMN = "_hoodie_operation"
"""A sixth meta column, which only changelog writers add."""


@dataclass(frozen=True, slots=True)
class TableRules:
    """A table as the checks see it. `schema` names fields by path, and `schema.data` may be the input's
    types; the stored ones follow.

    `buckets` is the count of the simple bucket index, 0 where file groups are not told by a hash; with
    `bucket_fields` empty all record key fields make the bucket. They matter on MERGE_ON_READ only:
    which rows are in a base file decides what comes back after a commit-time delete. `unavailable` is the
    marker of FILL_UNAVAILABLE; a row with `delete_marker` in `delete_field` deletes its key.
    """

    schema: RecordSchema
    merge_mode: MergeMode = "EVENT_TIME_ORDERING"
    table_type: TableType = "COPY_ON_WRITE"
    hive_style: bool = False
    url_encode: bool = False
    ordering_nulls: Literal["refuse", "lowest"] = "refuse"
    key_is_global: bool = False
    """Whether a key is told apart in the whole table, under a global index; else in each partition."""
    buckets: int = 0
    bucket_fields: tuple[str, ...] = ()
    time: Mapping[str, str] = field(default_factory=dict)
    """Hudi's options of the key generator TIMESTAMP, where the partition field names folders by time."""
    kinds: tuple[str, ...] = ()
    """Of the key generator CUSTOM: SIMPLE or TIMESTAMP for each partition field; `time` is the latter's."""
    partial_update: Literal["", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"] = ""
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""

    @property
    def marker_columns(self) -> tuple[str, ...]:
        """Columns by which a row may say that it is a delete."""
        return tuple(
            name for name in (IS_DELETED, self.delete_field) if name in self.schema.data.names
        )

    @property
    def best_row_wins(self) -> bool:
        """Whether each key ends with one of its rows as it came, and no row is a delete."""
        return not self.marker_columns and not self.partial_update

    @property
    def stored(self) -> pa.Schema:
        """Data columns as the table stores them: the declared mappings of types applied."""
        return storage_schema(self.schema.data)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Fields that tell rows apart: partition, then key; under a global index the key alone.

        In a table without keys, all of them.
        """
        told_by = self.schema.record_key or self.schema.data.names
        if self.key_is_global:
            return told_by
        return tuple(dict.fromkeys([*self.schema.partition, *told_by]))

    @property
    def bare_keys(self) -> bool:
        """Whether a key is a value alone, without its field's name."""
        return len(self.schema.record_key) == 1 and (
            len(self.schema.partition) < 2 or bool(self.kinds)
        )

    def time_of(self, place: int) -> Mapping[str, str]:
        """Hudi's options for the partition field at `place`, empty where it does not name folders by time."""
        return self.time if not self.kinds or self.kinds[place] == "TIMESTAMP" else {}

    @property
    def by_event_time(self) -> bool:
        """Whether ordering values decide; without an ordering field every mode is by commit time."""
        return self.merge_mode == "EVENT_TIME_ORDERING" and bool(self.schema.ordering)
