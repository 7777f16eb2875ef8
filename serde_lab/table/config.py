"""What kind of table it is: `hoodie.properties` as a value, and the kinds that are refused by name.

Owns the property keys of table versions 6, 8 and 9 and what follows from them; must not know files
other than `hoodie.properties`. Source: org.apache.hudi.common.table.HoodieTableConfig, and what Hudi
1.2.0 on Spark writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self, cast

from serde_lab.errors import OptionError, TableError
from serde_lab.records.delete_markers import DeleteMarkers
from serde_lab.records.keys import PartitionKind
from serde_lab.records.merge_rules import MergeRules
from serde_lab.records.merger import EVENT_TIME_STRATEGY, PAYLOAD_STRATEGY
from serde_lab.records.merging import MergeMode as Mode
from serde_lab.records.partial_update import PartialUpdate
from serde_lab.records.partition_time import INPUT_TYPE, OUTPUT_FORMAT, TimeRule
from serde_lab.table.properties import table_checksum
from serde_lab.table.table_kind import (
    COMMIT_TIME,
    COMMIT_TIME_PAYLOAD,
    CUSTOM,
    EVENT_TIME,
    EVENT_TIME_PAYLOAD,
    KEY_GENERATOR_CLASSES,
    PARTITION_FIELDS,
    MergeMode,
    check_properties,
    key_generator_of,
    merge_mode_of,
    merge_strategy_of,
    partition_fields_of,
)

TableType = Literal["COPY_ON_WRITE", "MERGE_ON_READ"]

PROPERTIES_PATH = ".hoodie/hoodie.properties"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
INDEX_DEFINITIONS_PATH = "hoodie.table.index.defs.path"

# Hudi does not store the bucket count, and a wrong one doubles keys without a word
INDEX_TYPE = "serde_lab.index.type"
BUCKETS = "serde_lab.bucket.index.num.buckets"
BUCKET_FIELDS = "serde_lab.bucket.index.hash.field"

STRATEGY_ID = "hoodie.record.merge.strategy.id"
PAYLOAD_CLASS = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD_CLASS = "hoodie.table.legacy.payload.class"
PARTIAL_UPDATE = "hoodie.table.partial.update.mode"
# a write's options with this prefix are the table's own for good
MERGE_PROPERTY = "hoodie.record.merge.property."
UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"
DELETE_FIELD = "hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.payload.delete.marker"

VERSIONS_CREATED = (6, 9)


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
    bucket_count: int | None = None
    """Buckets of the simple bucket index in each partition; None means the table has no such index."""
    bucket_fields: tuple[str, ...] = ()
    """Fields of the record key that the bucket hash takes; () means all of them."""
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def settle(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if self.merge_mode is None:
            settle("merge_mode", EVENT_TIME if self.ordering_fields else COMMIT_TIME)
        if not self.key_generator:
            settle("key_generator", _inferred_key_generator(self))
        if not self.bucket_fields:
            settle("bucket_fields", self.record_key_fields)

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
        return _fields(self.extra.get(METADATA_PARTITIONS, ""))

    def check_creatable(self) -> None:
        """Raises OptionError, by the option's name, for a table that cannot be made."""
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.name):
            raise OptionError(
                f"hoodie.table.name is {self.name!r}; letters, digits and _ are what Avro accepts"
            )
        if self.version not in VERSIONS_CREATED:
            raise OptionError(f"table version {self.version} cannot be made; known are 6 and 9")
        if self.is_keyless and self.bucket_count is not None:
            raise OptionError(
                "hoodie.bucket.index.num.buckets is given, and the table has no record key to hash",
                hint="hoodie.datasource.write.recordkey.field names it",
            )
        if self.merge_mode == EVENT_TIME and not self.ordering_fields:
            raise OptionError("merging by event time needs an ordering field")
        self._check_merging()
        if self.key_generator in KEY_GENERATOR_CLASSES:
            self._check_key_generator()
        else:
            raise OptionError(
                f"key generator {self.key_generator!r} is not supported; known are "
                f"{', '.join(KEY_GENERATOR_CLASSES)}"
            )
        if self.bucket_count is not None and not 1 <= self.bucket_count <= 99_999_999:
            raise OptionError(f"the bucket index has {self.bucket_count} buckets; 1 is the least")

    def _check_key_generator(self) -> None:
        """Source: HoodieSparkKeyGeneratorFactory, and what each key generator refuses when it is made."""
        inferred = _inferred_key_generator(self)
        rule = TimeRule.from_properties(self.extra) if self.time_fields else None
        if self.key_generator == "CUSTOM":
            if self.partition_fields and not self.partition_kinds:
                raise OptionError(
                    f"the key generator CUSTOM is not told what {', '.join(self.partition_fields)} is",
                    hint="hoodie.datasource.write.partitionpath.field=a:SIMPLE,b:TIMESTAMP",
                )
            return
        fits = {inferred}
        if rule is not None:
            fits = {"TIMESTAMP"} if inferred == "SIMPLE" else set()
        if self.key_generator not in fits:
            raise OptionError(
                f"key generator {self.key_generator} does not fit {len(self.record_key_fields)} key and"
                f" {len(self.partition_fields)} partition columns, whose own is {inferred}"
            )

    def _check_merging(self) -> None:
        if self.merge_mode == CUSTOM and not self.merge_strategy_id:
            raise OptionError(
                "merging is CUSTOM, and nothing says which",
                hint="hoodie.write.record.merge.strategy.id or hoodie.datasource.write.payload.class",
            )
        if self.merge_mode == CUSTOM and self.partial_update_mode:
            raise OptionError(f"{PARTIAL_UPDATE} is of no use: merging is CUSTOM")
        if (self.partial_update_mode == "FILL_UNAVAILABLE") != bool(self.unavailable_value):
            raise OptionError(
                f"{MERGE_PROPERTY}{UNAVAILABLE} and {PARTIAL_UPDATE}=FILL_UNAVAILABLE go together;"
                " one of them is missing"
            )
        if self.version == 6 and (self.partial_update_mode or self.delete_field):
            raise OptionError(
                "partial updates and delete markers of the table's own need table version 9"
            )
        # half a marker is refused where it is made
        DeleteMarkers(self.delete_field, self.delete_marker)

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

    def to_properties(self) -> dict[str, str]:
        """All properties of the table, in the words of its version."""
        own = self._shared_properties()
        if self.version == 6:
            own |= self._properties_of_version_6()
        else:
            own |= self._properties_of_version_9()
        if self.bucket_count is not None:
            own |= {
                INDEX_TYPE: "BUCKET",
                BUCKETS: str(self.bucket_count),
                BUCKET_FIELDS: ",".join(self.bucket_fields),
            }
        return {**own, **self.extra}

    def _shared_properties(self) -> dict[str, str]:
        properties = {
            "hoodie.table.name": self.name,
            "hoodie.table.type": self.table_type,
            "hoodie.table.version": str(self.version),
            "hoodie.timeline.layout.version": str(self.layout_version),
            "hoodie.datasource.write.hive_style_partitioning": _flag(self.hive_style),
            "hoodie.datasource.write.partitionpath.urlencode": _flag(self.url_encode),
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.table.base.file.format": "PARQUET",
            "hoodie.populate.meta.fields": "true",
            "hoodie.partition.metafile.use.base.format": "false",
            "hoodie.table.cdc.enabled": "false",
            "hoodie.table.multiple.base.file.formats.enable": "false",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.table.checksum": str(table_checksum(self.name, self.database)),
        }
        # empty when not partitioned, as Spark writes it
        properties[PARTITION_FIELDS] = ",".join(self.stated_partition_fields)
        if not self.is_keyless:
            properties["hoodie.table.recordkey.fields"] = ",".join(self.record_key_fields)
        if self.database:
            properties["hoodie.database.name"] = self.database
        return properties

    def _properties_of_version_6(self) -> dict[str, str]:
        by_event_time = self.merge_mode == EVENT_TIME
        properties = {
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.keygenerator.class": KEY_GENERATOR_CLASSES[self.key_generator],
            # version 6 has no word for the merge mode: the payload class decides
            PAYLOAD_CLASS: self.payload_class
            or (EVENT_TIME_PAYLOAD if by_event_time else COMMIT_TIME_PAYLOAD),
        }
        if self.ordering_fields:
            properties["hoodie.table.precombine.field"] = ",".join(self.ordering_fields)
        if self.merge_mode == CUSTOM and self.merge_strategy_id != PAYLOAD_STRATEGY:
            properties["hoodie.compaction.record.merger.strategy"] = self.merge_strategy_id
        elif self.is_mor:
            properties["hoodie.compaction.record.merger.strategy"] = EVENT_TIME_STRATEGY
        return properties

    def _properties_of_version_9(self) -> dict[str, str]:
        properties = {
            "hoodie.table.initial.version": str(self.version),
            "hoodie.table.format": "native",
            "hoodie.table.keygenerator.type": self.key_generator,
            "hoodie.record.merge.mode": cast(str, self.merge_mode),
            "hoodie.archivelog.folder": "history",
            "hoodie.timeline.path": "timeline",
            "hoodie.timeline.history.path": "history",
        }
        if self.ordering_fields:
            properties["hoodie.table.ordering.fields"] = ",".join(self.ordering_fields)
        custom = self.merge_mode == CUSTOM
        stated = {
            STRATEGY_ID: self.merge_strategy_id,
            PAYLOAD_CLASS if custom else LEGACY_PAYLOAD_CLASS: self.payload_class,
            PARTIAL_UPDATE: self.partial_update_mode,
            MERGE_PROPERTY + UNAVAILABLE: self.unavailable_value,
            MERGE_PROPERTY + DELETE_FIELD: self.delete_field,
            MERGE_PROPERTY + DELETE_MARKER: self.delete_marker,
        }
        return properties | {key: value for key, value in stated.items() if value}

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], where: str) -> Self:
        """Read what a table says of itself. `where` names the file in messages.

        Raises TableError for a property that is missing or wrong, and for a kind of table that would
        be read wrong, by the property's name.
        """
        check_properties(properties, where)
        version = int(properties["hoodie.table.version"])
        ordering = _fields(
            properties.get("hoodie.table.ordering.fields")
            or properties.get("hoodie.table.precombine.field", "")
        )
        buckets = properties.get(BUCKETS, "")
        mode = merge_mode_of(properties, version, bool(ordering), where)
        partial = properties.get(PARTIAL_UPDATE, "")
        if partial not in ("", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"):
            raise TableError(
                f"{where}: {PARTIAL_UPDATE} is {partial}; known are IGNORE_DEFAULTS and"
                " FILL_UNAVAILABLE"
            )
        keys = _fields(properties.get("hoodie.table.recordkey.fields", ""))
        partition, kinds = partition_fields_of(properties, where)
        return cls(
            name=properties["hoodie.table.name"],
            record_key_fields=keys,
            table_type=cast(TableType, properties["hoodie.table.type"]),
            version=version,
            partition_fields=partition,
            partition_kinds=kinds,
            ordering_fields=ordering,
            merge_mode=mode,
            merge_strategy_id=merge_strategy_of(properties, mode),
            partial_update_mode=partial,
            unavailable_value=properties.get(MERGE_PROPERTY + UNAVAILABLE, ""),
            delete_field=_merge_property(properties, DELETE_FIELD),
            delete_marker=_merge_property(properties, DELETE_MARKER),
            payload_class=_payload_class(properties),
            hive_style=properties.get("hoodie.datasource.write.hive_style_partitioning") == "true",
            url_encode=properties.get("hoodie.datasource.write.partitionpath.urlencode") == "true",
            key_generator=key_generator_of(properties),
            database=properties.get("hoodie.database.name", ""),
            bucket_count=int(buckets) if buckets else None,
            bucket_fields=_fields(properties.get(BUCKET_FIELDS, "")),
            extra={k: v for k, v in properties.items() if k not in _OWN_KEYS},
        )


# what TableConfig has fields for; everything else is kept as it was found
_OWN_KEYS = frozenset(
    {
        "hoodie.table.name",
        "hoodie.table.recordkey.fields",
        "hoodie.table.type",
        "hoodie.table.version",
        "hoodie.timeline.layout.version",
        PARTITION_FIELDS,
        "hoodie.table.ordering.fields",
        "hoodie.table.precombine.field",
        "hoodie.record.merge.mode",
        PARTIAL_UPDATE,
        MERGE_PROPERTY + UNAVAILABLE,
        MERGE_PROPERTY + DELETE_FIELD,
        MERGE_PROPERTY + DELETE_MARKER,
        "hoodie.datasource.write.hive_style_partitioning",
        "hoodie.datasource.write.partitionpath.urlencode",
        "hoodie.database.name",
        INDEX_TYPE,
        BUCKETS,
        BUCKET_FIELDS,
    }
)


def _inferred_key_generator(config: TableConfig) -> str:
    """Source: org.apache.hudi.keygen.KeyGenUtils#inferKeyGeneratorType."""
    if not config.partition_fields:
        return "NON_PARTITION"
    single = len(config.partition_fields) == 1 and len(config.record_key_fields) <= 1
    return "SIMPLE" if single else "COMPLEX"


def _payload_class(properties: Mapping[str, str]) -> str:
    """The stated payload class, unless it says what the merge mode says already."""
    found = properties.get(PAYLOAD_CLASS) or properties.get(LEGACY_PAYLOAD_CLASS, "")
    return "" if found in (EVENT_TIME_PAYLOAD, COMMIT_TIME_PAYLOAD) else found


def _merge_property(properties: Mapping[str, str], key: str) -> str:
    """A merge property of version 9 under its prefix; older tables have it without."""
    return properties.get(MERGE_PROPERTY + key, "") or properties.get(key, "")


def _fields(text: str) -> tuple[str, ...]:
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def _flag(value: bool) -> str:
    return "true" if value else "false"
