"""What kind of table it is: its configuration as a value, and what follows from it.

Its words in `hoodie.properties` are `config_properties`'s, and which ones can be made is
`config_checks`'s. Must not know files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serde_lab.errors import TableError
from serde_lab.merging.delete_markers import DeleteMarkers
from serde_lab.merging.partial_update import PartialUpdate
from serde_lab.merging.rules import MergeRules
from serde_lab.merging.survivors import MergeMode as Mode
from serde_lab.records.keys import PartitionKind
from serde_lab.records.partition_time import INPUT_TYPE, OUTPUT_FORMAT, TimeRule
from serde_lab.table.index.index_kind import BUCKET, SIMPLE_ENGINE, IndexKind
from serde_lab.table.table_kind import (
    COMMIT_TIME,
    EVENT_TIME,
    KEY_GENERATOR_CLASSES,
    MergeMode,
)

TableType = Literal["COPY_ON_WRITE", "MERGE_ON_READ"]

PROPERTIES_PATH = ".hoodie/hoodie.properties"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
INDEX_DEFINITIONS_PATH = "hoodie.table.index.defs.path"


@dataclass(frozen=True, slots=True)
class TableConfig:
    """What a table is, once and for all. `extra` holds the properties that have no field here."""

    name: str
    record_key_fields: tuple[str, ...]
    table_type: TableType = "COPY_ON_WRITE"
    version: int = 9
    partition_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    merge_mode: MergeMode | None = None
    """None means by event time if there is an ordering field, else by commit time."""
    merge_strategy_id: str = ""
    """Of CUSTOM: the UUID of the semantics; the other modes imply theirs."""
    partial_update_mode: str = ""
    """IGNORE_DEFAULTS or FILL_UNAVAILABLE: gaps in one version of a record are filled from the other."""
    unavailable_value: str = ""
    """The marker of FILL_UNAVAILABLE."""
    delete_field: str = ""
    delete_marker: str = ""
    """A row that has this text in `delete_field` deletes its key."""
    payload_class: str = ""
    """The payload class by whose rules CUSTOM merges, or, of another mode, was merged of old."""
    merger_classes: tuple[str, ...] = ()
    """Implementations for this write or read; no property of the table."""
    hive_style: bool = False
    url_encode: bool = False
    key_generator: str = ""
    """SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP or CUSTOM; "" means what follows from the fields. What
    TIMESTAMP is told of its field stands in `extra`."""
    partition_kinds: tuple[PartitionKind, ...] = ()
    """Of CUSTOM: what each partition field is."""
    database: str = ""
    index_type: str = ""
    """One of INDEX_TYPES; "" in a table without keys, and where a table does not state it. With a bucket
    count it is BUCKET."""
    index_global: bool = True
    """Of INMEMORY and FLINK_STATE: whether keys are unique in the whole table; others say so by name."""
    bucket_count: int | None = None
    """Buckets of the bucket index in a partition (of consistent hashing: at first); None: no such
    index."""
    bucket_engine: str = SIMPLE_ENGINE
    """SIMPLE or CONSISTENT_HASHING."""
    bucket_expressions: str = ""
    """`pattern,buckets;...`: partitions with another number of buckets, of the simple engine."""
    bucket_fields: tuple[str, ...] = ()
    """Fields of the record key that the bucket hash takes; () means all of them."""
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def settle(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if self.merge_mode is None:
            settle("merge_mode", EVENT_TIME if self.ordering_fields else COMMIT_TIME)
        if not self.key_generator:
            settle("key_generator", inferred_key_generator(self))
        if not self.bucket_fields:
            settle("bucket_fields", self.record_key_fields)
        if not self.index_type and self.bucket_count is not None:
            settle("index_type", BUCKET)

    @property
    def is_mor(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    @property
    def merge_rules(self) -> MergeRules:
        """How the table merges."""
        return MergeRules(
            Mode(self.merge_mode or COMMIT_TIME),
            self.merge_strategy_id,
            PartialUpdate(self.partial_update_mode) if self.partial_update_mode else None,
            self.unavailable_value,
            DeleteMarkers(self.delete_field, self.delete_marker),
            self.payload_class,
            self.merger_classes,
        )

    @property
    def merge_ordering(self) -> tuple[str, ...]:
        """The fields whose values decide; none by commit time."""
        return () if self.merge_mode == COMMIT_TIME else self.ordering_fields

    @property
    def is_keyless(self) -> bool:
        """Whether no column is a record key: keys are made up of where rows stood in their writes."""
        return not self.record_key_fields

    @property
    def index(self) -> IndexKind:
        """The index that the table is written with."""
        return IndexKind(
            self.index_type,
            self.index_global,
            self.bucket_count,
            self.bucket_engine,
            self.bucket_expressions,
        )

    @property
    def index_is_global(self) -> bool:
        """Whether a record key is unique in the whole table, not only in its partition."""
        return self.index.is_global

    def buckets_of(self, partition_path: str) -> int | None:
        """Buckets of a partition that file ids name; None with any index but the simple bucket index."""
        return self.index.buckets_of(partition_path)

    @property
    def time_rule(self) -> TimeRule | None:
        """How partition fields become folders by time, where the key generator or their kind is TIMESTAMP.

        None also where the kind is, and the table does not say how: Apache Hudi does not store it then.
        Raises OptionError for properties of it that are missing, wrong or not supported.
        """
        said = INPUT_TYPE in self.extra or OUTPUT_FORMAT in self.extra
        by_time = self.key_generator == "TIMESTAMP" or (self.time_fields and said)
        return TimeRule.from_properties(self.extra) if by_time else None

    @property
    def time_fields(self) -> tuple[str, ...]:
        """Partition fields that name folders by time."""
        if self.key_generator == "TIMESTAMP":
            return self.partition_fields
        pairs = zip(self.partition_fields, self.partition_kinds, strict=bool(self.partition_kinds))
        return tuple(name for name, kind in pairs if kind == "TIMESTAMP")

    @property
    def stated_partition_fields(self) -> tuple[str, ...]:
        """The partition fields as properties have them: of CUSTOM each with its kind, but for version 6."""
        if not self.partition_kinds or self.version == 6:
            return self.partition_fields
        pairs = zip(self.partition_fields, self.partition_kinds, strict=True)
        return tuple(f"{name}:{kind}" for name, kind in pairs)

    @property
    def layout_version(self) -> int:
        """1: instants in `.hoodie` with JSON; 2: in `.hoodie/timeline` with Avro and completion times."""
        return 1 if self.version < 8 else 2

    @property
    def timeline_folder(self) -> str:
        if self.layout_version == 1:
            return ".hoodie"
        return f".hoodie/{self.extra.get('hoodie.timeline.path', 'timeline')}"

    @property
    def history_folder(self) -> str:
        """Where archived instants go."""
        if self.layout_version == 1:
            return f".hoodie/{self.extra.get('hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_folder}/{self.extra.get('hoodie.timeline.history.path', 'history')}"

    @property
    def write_action(self) -> str:
        """The action of an upsert's instant."""
        return "deltacommit" if self.is_mor else "commit"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of Hudi's metadata table, through which readers then list files; () without one."""
        return fields_of(self.extra.get(METADATA_PARTITIONS, ""))

    def check_writable(self, dropping_metadata_table: bool = False) -> None:
        """Raises TableError for a table that is read but cannot be written without harm.

        With `dropping_metadata_table` its metadata table is no reason: the caller removes it first.
        """
        if self.metadata_partitions and not dropping_metadata_table:
            raise TableError(
                f"table {self.name} has a metadata table ({', '.join(self.metadata_partitions)}), "
                "which our writes would leave stale, so that its readers would not see them",
                hint="--drop-metadata-table, or serde_lab.drop_metadata_table=true, removes it first",
            )
        if self.key_generator not in KEY_GENERATOR_CLASSES:
            raise TableError(
                f"table {self.name} has the key generator {self.key_generator}; "
                f"written are {', '.join(KEY_GENERATOR_CLASSES)}"
            )
        for key in ("hoodie.table.cdc.enabled",):
            if self.extra.get(key) == "true":
                raise TableError(f"table {self.name} has {key}=true, which is not written")


def inferred_key_generator(config: TableConfig) -> str:
    """The key generator that follows from the fields.

    Source: org.apache.hudi.keygen.KeyGenUtils#inferKeyGeneratorType.
    """
    if not config.partition_fields:
        return "NON_PARTITION"
    single = len(config.partition_fields) == 1 and len(config.record_key_fields) <= 1
    return "SIMPLE" if single else "COMPLEX"


def fields_of(text: str) -> tuple[str, ...]:
    """The names in a property that has several, with commas between them."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
