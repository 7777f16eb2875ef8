"""Defines the properties of a table that the right answer depends on: columns, their roles, and merging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

import pyarrow as pa

from serde_lab.records.schema import RecordSchema, storage_schema

MergeMode = Literal["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"]
TableType = Literal["COPY_ON_WRITE", "MERGE_ON_READ"]
PartialUpdate = Literal["", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"]

_OPTIONS = {
    "table_type": "hoodie.datasource.write.table.type",
    "partition": "hoodie.datasource.write.partitionpath.field",
    "hive_style": "hoodie.datasource.write.hive_style_partitioning",
    "url_encode": "hoodie.datasource.write.partitionpath.urlencode",
    "merge_mode": "hoodie.write.record.merge.mode",
    "partial_update": "hoodie.table.partial.update.mode",
    "unavailable": "hoodie.write.partial.update.unavailable.value",
    "delete_field": "hoodie.payload.delete.field",
    "delete_marker": "hoodie.payload.delete.marker",
    "index": "hoodie.index.type",
    "engine": "hoodie.index.bucket.engine",
    "buckets": "hoodie.bucket.index.num.buckets",
    "bucket_fields": "hoodie.bucket.index.hash.field",
}
_RING = "CONSISTENT_HASHING"
"""With this engine a bucket is an interval of hashes, and may split."""

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
    """A table as the checks see it.

    `schema` names fields by path; `schema.data` may have the input's types, from which the stored types
    follow. `buckets` is the count of the simple bucket index, 0 if no hash assigns file groups; with empty
    `bucket_fields` all record key fields make the bucket. Buckets matter on MERGE_ON_READ only: the rows in a
    base file decide what reappears after a commit-time delete. `unavailable` is the marker of
    FILL_UNAVAILABLE; a row with `delete_marker` in `delete_field` deletes its key.
    """

    schema: RecordSchema
    merge_mode: MergeMode = "EVENT_TIME_ORDERING"
    table_type: TableType = "COPY_ON_WRITE"
    hive_style: bool = False
    url_encode: bool = False
    ordering_nulls: Literal["refuse", "lowest"] = "refuse"
    key_is_global: bool = False
    """Whether keys are unique in the whole table (global index), or else in each partition."""
    buckets: int = 0
    bucket_fields: tuple[str, ...] = ()
    time: Mapping[str, str] = field(default_factory=dict)
    """Hudi's options of the key generator TIMESTAMP, if the partition field names folders by time."""
    kinds: tuple[str, ...] = ()
    """For the key generator CUSTOM: SIMPLE or TIMESTAMP (with `time`) for each partition field."""
    partial_update: PartialUpdate = ""
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""

    @classmethod
    def of_options(cls, options: Mapping[str, str], schema: RecordSchema) -> TableRules:
        """The table that `hoodie.*` options describe; `schema` has its columns with their roles.

        The writer reads the same options. On purpose this reading shares no code with the writer's: an
        error in one of them then shows as a difference.
        """
        given = {name: options.get(option, "") for name, option in _OPTIONS.items()}
        index = given["index"] or "BUCKET"
        hashed = bool(schema.record_key) and index == "BUCKET"
        partition = given["partition"].split(",")
        by_kind = [part.partition(":")[2].strip().upper() for part in partition if ":" in part]
        return cls(
            schema,
            merge_mode=cast(MergeMode, given["merge_mode"] or "EVENT_TIME_ORDERING"),
            table_type=cast(TableType, given["table_type"] or "COPY_ON_WRITE"),
            hive_style=given["hive_style"] == "true",
            url_encode=given["url_encode"] == "true",
            key_is_global=index.startswith(("GLOBAL_", "INMEMORY", "FLINK_STATE"))
            and bool(schema.partition),
            buckets=int(given["buckets"] or 8) if hashed and given["engine"] != _RING else 0,
            bucket_fields=tuple(name for name in given["bucket_fields"].split(",") if name),
            time={k: v for k, v in options.items() if k.startswith("hoodie.keygen.timebased.")},
            kinds=tuple(by_kind),
            partial_update=cast(PartialUpdate, given["partial_update"]),
            unavailable=given["unavailable"],
            delete_field=given["delete_field"],
            delete_marker=given["delete_marker"],
        )

    @property
    def marker_columns(self) -> tuple[str, ...]:
        """Columns that may mark a row as a delete."""
        return tuple(
            name for name in (IS_DELETED, self.delete_field) if name in self.schema.data.names
        )

    @property
    def best_row_wins(self) -> bool:
        """Whether each key ends with one of its input rows unchanged, and no row is a delete."""
        return not self.marker_columns and not self.partial_update

    @property
    def stored(self) -> pa.Schema:
        """Data columns as the table stores them, with the declared type mappings applied."""
        return storage_schema(self.schema.data)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a record: partition, then key; under a global index the key alone.

        In a table without keys, all data columns take the key's place.
        """
        identity = self.schema.record_key or self.schema.data.names
        if self.key_is_global:
            return identity
        return tuple(dict.fromkeys([*self.schema.partition, *identity]))

    @property
    def bare_keys(self) -> bool:
        """Whether a key is a value alone, without its field's name."""
        return len(self.schema.record_key) == 1 and (
            len(self.schema.partition) < 2 or bool(self.kinds)
        )

    def time_of(self, place: int) -> Mapping[str, str]:
        """Hudi's options for the partition field at `place`; empty if it does not name folders by time."""
        return self.time if not self.kinds or self.kinds[place] == "TIMESTAMP" else {}

    @property
    def by_event_time(self) -> bool:
        """Whether ordering values decide; without an ordering field every mode is by commit time."""
        return self.merge_mode == "EVENT_TIME_ORDERING" and bool(self.schema.ordering)
