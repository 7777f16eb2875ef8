"""A table's configuration as a frozen value, and the settings that follow from it.

`config_properties` converts it to and from `hoodie.properties`; `check_creatable` decides which
configurations can be created, and each of its refusals names the option at fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serde_lab.errors import OptionError, TableError
from serde_lab.merging.combiner import PartialUpdate
from serde_lab.merging.merger import PAYLOAD_STRATEGY
from serde_lab.merging.rules import DeleteMarkers, MergeRules
from serde_lab.merging.survivors import MergeMode
from serde_lab.records.keys import PartitionKind
from serde_lab.records.partition_time import INPUT_TYPE, OUTPUT_FORMAT, TimeRule
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.index.index_kind import BUCKET, COVERS_LOGS, IndexKind
from serde_lab.table.properties import fields_of

TableType = Literal["COPY_ON_WRITE", "MERGE_ON_READ"]

PROPERTIES_PATH = ".hoodie/hoodie.properties"
VERSIONS_CREATED, VERSIONS_READ = (6, 9), (6, 8, 9)
KEY_GENERATOR_CLASSES = {
    "SIMPLE": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "COMPLEX": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "NON_PARTITION": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "TIMESTAMP": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    "CUSTOM": "org.apache.hudi.keygen.CustomKeyGenerator",
}
PARTIAL_UPDATE = "hoodie.table.partial.update.mode"
MERGE_PROPERTY = "hoodie.record.merge.property."
"""Write options with this prefix become properties of the table."""
UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"
TIMELINE_ZONE = "hoodie.table.timeline.timezone"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
INDEX_DEFINITIONS_PATH = "hoodie.table.index.defs.path"
CHANGE_DATA = "hoodie.table.cdc.enabled"
_EXTRACTOR = "hoodie.table.partition_extractor_class"
_SLASHES = "hoodie.datasource.write.slash.separated.date.partitioning"
_OF_SLASHES = "SlashEncodedDayPartitionValueExtractor"


@dataclass(frozen=True, slots=True)
class TableConfig(IndexKind):
    """What is fixed when a table is created. `extra` holds the properties that have no field here."""

    name: str
    record_key_fields: tuple[str, ...]
    table_type: TableType = "COPY_ON_WRITE"
    version: int = 9
    partition_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    merge_mode: MergeMode | None = None
    """None selects event time if there is an ordering field, else commit time."""
    merge_strategy_id: str = ""
    """For CUSTOM: the UUID of the merge strategy; the other modes imply theirs."""
    partial_update_mode: str = ""
    """IGNORE_DEFAULTS or FILL_UNAVAILABLE: gaps in one version of a record are filled from the other."""
    unavailable_value: str = ""
    """The text that FILL_UNAVAILABLE treats as a gap."""
    delete_field: str = ""
    delete_marker: str = ""
    """A row with this text in `delete_field` deletes its key."""
    payload_class: str = ""
    """The payload class whose rules CUSTOM applies; in other modes, the class that once merged the table."""
    merger_classes: tuple[str, ...] = ()
    """Merger implementations for this write or read; the table does not store them."""
    merger_records: StrategyRecords = field(default_factory=StrategyRecords)
    """The records that a read or compaction can give to a merger; the table does not store them either."""
    hive_style: bool = False
    url_encode: bool = False
    key_generator: str = ""
    """SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP or CUSTOM; "" infers it from the fields. `extra` holds the
    settings of TIMESTAMP."""
    partition_kinds: tuple[PartitionKind, ...] = ()
    """For CUSTOM: the kind of each partition field."""
    database: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def settle(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        implied = MergeMode.EVENT_TIME if self.ordering_fields else MergeMode.COMMIT_TIME
        settle("merge_mode", MergeMode(self.merge_mode or implied))
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
        return MergeRules(
            self.merge_mode or MergeMode.COMMIT_TIME,
            self.merge_strategy_id,
            PartialUpdate(self.partial_update_mode) if self.partial_update_mode else None,
            self.unavailable_value,
            DeleteMarkers(self.delete_field, self.delete_marker),
            self.payload_class,
            self.merger_classes,
            self.merger_records,
        )

    @property
    def merge_ordering(self) -> tuple[str, ...]:
        """The ordering fields that decide a merge; none in commit-time mode."""
        return () if self.merge_mode is MergeMode.COMMIT_TIME else self.ordering_fields

    @property
    def bare_keys(self) -> bool:
        """Whether a record key is the value of its one field, without the field's name."""
        return len(self.record_key_fields) == 1 and self.key_generator != "COMPLEX"

    @property
    def is_keyless(self) -> bool:
        """Whether the table has no record key fields; keys are then made from row positions in each write."""
        return not self.record_key_fields

    @property
    def keys_are_where_base_files_say(self) -> bool:
        """Whether a key belongs to the file group whose base file has it, even if a log deletes it there.

        Writers that look into Bloom filters alone, such as Apache Hudi's, still find it there, and would
        write it a second time if the lab had moved it to another file group. Logs do count for an index that
        covers them, and under a global index, where a record leaves its partition by such a delete.
        """
        leaves = self.index_is_global and bool(self.partition_fields)
        return self.index_type not in COVERS_LOGS and not leaves

    @property
    def time_rule(self) -> TimeRule | None:
        """The rule that names folders by time, if the key generator or a field's kind is TIMESTAMP.

        None also if only the kind says so and the rule is not stored: Apache Hudi does not store it then.
        Raises OptionError for time properties that are missing, wrong or not supported.
        """
        stated = INPUT_TYPE in self.extra or OUTPUT_FORMAT in self.extra
        by_time = self.key_generator == "TIMESTAMP" or (self.time_fields and stated)
        return TimeRule.from_properties(self.extra) if by_time else None

    @property
    def time_fields(self) -> tuple[str, ...]:
        """The partition fields whose folders are named by time."""
        if self.key_generator == "TIMESTAMP":
            return self.partition_fields
        pairs = zip(self.partition_fields, self.partition_kinds, strict=bool(self.partition_kinds))
        return tuple(name for name, kind in pairs if kind == "TIMESTAMP")

    @property
    def stated_partition_fields(self) -> tuple[str, ...]:
        """The partition fields as the properties state them: for CUSTOM with their kinds, except in version
        6."""
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
        """The folder of archived instants."""
        if self.layout_version == 1:
            return f".hoodie/{self.extra.get('hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_folder}/{self.extra.get('hoodie.timeline.history.path', 'history')}"

    @property
    def write_action(self) -> str:
        """The action of an upsert's instant."""
        return "deltacommit" if self.is_mor else "commit"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of Hudi's metadata table, from which readers list files; () without one."""
        return fields_of(self.extra.get(METADATA_PARTITIONS, ""))

    def check_writable(self, dropping_metadata_table: bool = False) -> None:
        """Raises TableError for a table that can be read but not safely written.

        `dropping_metadata_table` allows a metadata table: the caller removes it first.
        """
        if self.metadata_partitions and not dropping_metadata_table:
            raise TableError(
                f"table {self.name} has a metadata table ({', '.join(self.metadata_partitions)}), "
                "and a write without it would be invisible to its readers",
                hint="--drop-metadata-table, or serde_lab.drop_metadata_table=true, removes it first",
            )
        if self.key_generator not in KEY_GENERATOR_CLASSES:
            raise TableError(
                f"table {self.name} has the key generator {self.key_generator}; "
                f"the lab can write {', '.join(KEY_GENERATOR_CLASSES)}"
            )
        if self.extra.get(CHANGE_DATA) == "true":
            raise TableError(
                f"table {self.name} has {CHANGE_DATA}=true, which the lab cannot write"
            )
        self._check_days()

    def _check_days(self) -> None:
        """Raises TableError if Apache Hudi would name a folder by text 2024/01/31 for 2024-01-31.

        A table made by SQL states the option itself, any other only the extractor that the option implies.
        """
        stated = {_SLASHES: self.extra.get(_SLASHES, "").lower() == "true"}
        if self.partition_kinds or self.key_generator != "CUSTOM":
            # an extractor alone says nothing of fields whose kinds are not known
            stated[_EXTRACTOR] = self.extra.get(_EXTRACTOR, "").endswith(_OF_SLASHES)
        for key, is_stated in stated.items():
            if is_stated and set(self.partition_fields) != set(self.time_fields):
                raise TableError(
                    f"table {self.name} has {key}={self.extra[key]}: its days are folders such as 2024/01/31,"
                    " which the lab writes only by the key generator TIMESTAMP"
                )


def inferred_key_generator(config: TableConfig) -> str:
    """The key generator that the fields imply.

    Source: org.apache.hudi.keygen.KeyGenUtils#inferKeyGeneratorType.
    """
    if not config.partition_fields:
        return "NON_PARTITION"
    single = len(config.partition_fields) == 1 and len(config.record_key_fields) <= 1
    return "SIMPLE" if single else "COMPLEX"


def check_creatable(config: TableConfig) -> None:
    """Raises OptionError, naming the option, for a table that cannot be created."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", config.name):
        raise OptionError(
            f"hoodie.table.name is {config.name!r}; expected letters, digits and _ only, as Avro requires"
        )
    if config.version not in VERSIONS_CREATED:
        raise OptionError(f"table version {config.version} cannot be created; expected 6 or 9")
    if config.is_keyless and config.bucket_count is not None:
        raise OptionError(
            "hoodie.bucket.index.num.buckets is set, but the table has no record key",
            hint="set hoodie.datasource.write.recordkey.field",
        )
    if config.merge_mode is MergeMode.EVENT_TIME and not config.ordering_fields:
        raise OptionError("merging by event time needs an ordering field")
    _check_merging(config)
    if config.key_generator in KEY_GENERATOR_CLASSES:
        _check_key_generator(config)
    else:
        raise OptionError(
            f"key generator {config.key_generator!r} is not supported; known are "
            f"{', '.join(KEY_GENERATOR_CLASSES)}"
        )
    config.check_index()
    if config.bucket_expressions and not config.partition_fields:
        raise OptionError(
            "hoodie.bucket.index.partition.expressions is set, but the table has no partition fields"
        )
    if config.index_type and config.is_keyless:
        raise OptionError(
            f"hoodie.index.type is {config.index_type}, but the table has no record key",
            hint="set hoodie.datasource.write.recordkey.field",
        )


def _check_key_generator(config: TableConfig) -> None:
    """Source: HoodieSparkKeyGeneratorFactory, and the checks in each key generator's constructor."""
    for number, name in enumerate(config.partition_fields):
        if name in config.partition_fields[:number]:
            raise OptionError(
                f"hoodie.datasource.write.partitionpath.field names {name} twice, and Apache Hudi cannot read"
                " such a table"
            )
    inferred = inferred_key_generator(config)
    rule = TimeRule.from_properties(config.extra) if config.time_fields else None
    if config.key_generator == "CUSTOM":
        if config.partition_fields and not config.partition_kinds:
            raise OptionError(
                f"the key generator CUSTOM needs the kinds of {', '.join(config.partition_fields)}",
                hint="hoodie.datasource.write.partitionpath.field=a:SIMPLE,b:TIMESTAMP",
            )
        return
    fits = {inferred}
    if rule is not None:
        fits = {"TIMESTAMP"} if inferred == "SIMPLE" else set()
    if config.key_generator not in fits:
        raise OptionError(
            f"key generator {config.key_generator} does not fit {len(config.record_key_fields)} key and"
            f" {len(config.partition_fields)} partition columns, which need {inferred}"
        )


def _check_merging(config: TableConfig) -> None:
    if config.merge_mode is MergeMode.CUSTOM and not config.merge_strategy_id:
        raise OptionError(
            "the merge mode is CUSTOM, but neither a strategy nor a payload class is set",
            hint="hoodie.write.record.merge.strategy.id or hoodie.datasource.write.payload.class",
        )
    if config.merge_mode is MergeMode.CUSTOM and config.partial_update_mode:
        raise OptionError(f"{PARTIAL_UPDATE} has no effect with merge mode CUSTOM")
    if (config.partial_update_mode == "FILL_UNAVAILABLE") != bool(config.unavailable_value):
        raise OptionError(
            f"{MERGE_PROPERTY}{UNAVAILABLE} and {PARTIAL_UPDATE}=FILL_UNAVAILABLE need each"
            " other; one of them is missing"
        )
    if (
        config.version == 6
        and config.merge_mode is MergeMode.CUSTOM
        and config.merge_strategy_id != PAYLOAD_STRATEGY
    ):
        raise OptionError("a merger of your own needs table version 9, since version 6 states none")
    if config.version == 6 and (config.partial_update_mode or config.delete_field):
        raise OptionError("partial updates and hoodie.payload.delete.field need table version 9")
    # the constructor refuses a field without marker, or a marker without field
    DeleteMarkers(config.delete_field, config.delete_marker)
