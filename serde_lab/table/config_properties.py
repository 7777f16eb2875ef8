"""Conversion of a table's configuration to and from `hoodie.properties`.

Property keys differ between table versions 6, 8 and 9, and so does the inference of what the properties leave
out. Kinds of tables that would be read wrong are refused. Source:
org.apache.hudi.common.table.HoodieTableConfig, and what Hudi 1.2.0 on Spark writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

from serde_lab.errors import LabError, TableError
from serde_lab.merging.merger import (
    COMMIT_TIME_PAYLOAD,
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_PAYLOAD,
    EVENT_TIME_STRATEGY,
    MODEL,
    PAYLOAD_CLASS,
    PAYLOAD_STRATEGY,
)
from serde_lab.merging.survivors import MergeMode
from serde_lab.records.keys import PartitionKind
from serde_lab.table.config import (
    CHANGE_DATA,
    KEY_GENERATOR_CLASSES,
    MERGE_PROPERTY,
    PARTIAL_UPDATE,
    TIMELINE_ZONE,
    UNAVAILABLE,
    VERSIONS_READ,
    TableConfig,
    TableType,
)
from serde_lab.table.index.index_kind import INDEX_KEYS, index_fields
from serde_lab.table.properties import fields_of, table_checksum

STRATEGY_ID = "hoodie.record.merge.strategy.id"
LEGACY_PAYLOAD_CLASS = "hoodie.table.legacy.payload.class"
DELETE_FIELD = "hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.payload.delete.marker"
PARTITION_FIELDS = "hoodie.table.partition.fields"
CHECKSUM = "hoodie.table.checksum"
"""Every writer states it, since before version 6."""

_PAYLOAD_MODES: Mapping[str, MergeMode] = {
    EVENT_TIME_PAYLOAD: MergeMode.EVENT_TIME,
    f"{MODEL}.EventTimeAvroPayload": MergeMode.EVENT_TIME,
    COMMIT_TIME_PAYLOAD: MergeMode.COMMIT_TIME,
}
_STRATEGY_MODES: Mapping[str, MergeMode] = {
    EVENT_TIME_STRATEGY: MergeMode.EVENT_TIME,
    COMMIT_TIME_STRATEGY: MergeMode.COMMIT_TIME,
}


def to_properties(config: TableConfig) -> dict[str, str]:
    """All properties of the table, under the keys of its version."""
    own = _shared_properties(config)
    if config.version == 6:
        own |= _properties_of_version_6(config)
    else:
        own |= _properties_of_version_9(config)
    own = {**own, **config.index_properties(), **config.extra}
    own.pop(CHECKSUM, None)
    # the last line: a file whose end was cut off lacks it
    return {**own, CHECKSUM: str(table_checksum(config.name, config.database))}


def _shared_properties(config: TableConfig) -> dict[str, str]:
    properties = {
        "hoodie.table.name": config.name,
        "hoodie.table.type": config.table_type,
        "hoodie.table.version": str(config.version),
        "hoodie.timeline.layout.version": str(config.layout_version),
        "hoodie.datasource.write.hive_style_partitioning": _flag(config.hive_style),
        "hoodie.datasource.write.partitionpath.urlencode": _flag(config.url_encode),
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.populate.meta.fields": "true",
        "hoodie.partition.metafile.use.base.format": "false",
        CHANGE_DATA: "false",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        TIMELINE_ZONE: "UTC",
    }
    # empty if not partitioned, as Spark writes it
    properties[PARTITION_FIELDS] = ",".join(config.stated_partition_fields)
    if not config.is_keyless:
        properties["hoodie.table.recordkey.fields"] = ",".join(config.record_key_fields)
    if config.database:
        properties["hoodie.database.name"] = config.database
    return properties


def _properties_of_version_6(config: TableConfig) -> dict[str, str]:
    by_event_time = config.merge_mode is MergeMode.EVENT_TIME
    properties = {
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.keygenerator.class": KEY_GENERATOR_CLASSES[config.key_generator],
        # version 6 does not store the merge mode: the payload class decides
        PAYLOAD_CLASS: config.payload_class
        or (EVENT_TIME_PAYLOAD if by_event_time else COMMIT_TIME_PAYLOAD),
    }
    if config.ordering_fields:
        properties["hoodie.table.precombine.field"] = ",".join(config.ordering_fields)
    if config.is_mor:
        properties["hoodie.compaction.record.merger.strategy"] = EVENT_TIME_STRATEGY
    return properties


def _properties_of_version_9(config: TableConfig) -> dict[str, str]:
    properties = {
        "hoodie.table.initial.version": str(config.version),
        "hoodie.table.format": "native",
        "hoodie.table.keygenerator.type": config.key_generator,
        "hoodie.record.merge.mode": config.merge_mode or MergeMode.COMMIT_TIME,
        "hoodie.archivelog.folder": "history",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
    }
    if config.ordering_fields:
        properties["hoodie.table.ordering.fields"] = ",".join(config.ordering_fields)
    custom = config.merge_mode is MergeMode.CUSTOM
    stated = {
        STRATEGY_ID: config.merge_strategy_id,
        PAYLOAD_CLASS if custom else LEGACY_PAYLOAD_CLASS: config.payload_class,
        PARTIAL_UPDATE: config.partial_update_mode,
        MERGE_PROPERTY + UNAVAILABLE: config.unavailable_value,
        MERGE_PROPERTY + DELETE_FIELD: config.delete_field,
        MERGE_PROPERTY + DELETE_MARKER: config.delete_marker,
    }
    return properties | {key: value for key, value in stated.items() if value}


def from_properties(properties: Mapping[str, str], where: str) -> TableConfig:
    """The configuration that the properties describe. `where` names the file in messages.

    Raises TableError, naming the property, for one that is missing or wrong, and for a kind of table that
    would be read wrong.
    """
    _check(properties, where)
    version = int(properties["hoodie.table.version"])
    ordering = fields_of(
        properties.get("hoodie.table.ordering.fields")
        or properties.get("hoodie.table.precombine.field", "")
    )
    mode = merge_mode_of(properties, version, bool(ordering), where)
    partial = properties.get(PARTIAL_UPDATE, "")
    if partial not in ("", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"):
        raise TableError(
            f"{where}: {PARTIAL_UPDATE} is {partial}; known are IGNORE_DEFAULTS and"
            " FILL_UNAVAILABLE"
        )
    keys = fields_of(properties.get("hoodie.table.recordkey.fields", ""))
    partition, kinds = partition_fields_of(properties, where)
    return TableConfig(
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
        **index_fields(properties, where),
        extra={k: v for k, v in {**_DEFAULTS, **properties}.items() if k not in _OWN_KEYS},
    )


# Apache Hudi's, where its tables need not state them and new tables here state another value
_DEFAULTS = {TIMELINE_ZONE: "LOCAL"}

# the keys that TableConfig has fields for; all other properties are kept unchanged
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
        *INDEX_KEYS,
    }
)


def _payload_class(properties: Mapping[str, str]) -> str:
    """The stated payload class; "" if it only repeats the merge mode."""
    found = properties.get(PAYLOAD_CLASS) or properties.get(LEGACY_PAYLOAD_CLASS, "")
    return "" if found in (EVENT_TIME_PAYLOAD, COMMIT_TIME_PAYLOAD) else found


def _merge_property(properties: Mapping[str, str], key: str) -> str:
    """A merge property; version 9 stores it with the prefix, older tables without."""
    return properties.get(MERGE_PROPERTY + key, "") or properties.get(key, "")


def _flag(value: bool) -> str:
    return "true" if value else "false"


_REFUSED_VALUES = {
    "hoodie.datasource.write.drop.partition.columns": "true",
    "hoodie.populate.meta.fields": "false",
    "hoodie.table.multiple.base.file.formats.enable": "true",
}
_ONLY_VALUES = {
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.log.file.format": "HOODIE_LOG",
    "hoodie.table.format": "native",
}
_FLAGS = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    CHANGE_DATA,
    *_REFUSED_VALUES,
)


def _check(properties: Mapping[str, str], where: str) -> None:
    for key in (
        "hoodie.table.name",
        "hoodie.table.type",
        "hoodie.table.version",
        "hoodie.timeline.layout.version",
    ):
        if not properties.get(key):
            raise TableError(f"{where}: {key} is missing; every Hudi table has it")
    if properties["hoodie.table.type"] not in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        raise TableError(
            f"{where}: hoodie.table.type is {properties['hoodie.table.type']!r}; "
            "known are COPY_ON_WRITE and MERGE_ON_READ"
        )
    version = properties["hoodie.table.version"]
    if version not in {str(v) for v in VERSIONS_READ}:
        raise TableError(f"{where}: hoodie.table.version is {version}; the lab reads 6, 8 and 9")
    layout = "1" if version == "6" else "2"
    if properties["hoodie.timeline.layout.version"] != layout:
        raise TableError(
            f"{where}: hoodie.timeline.layout.version is "
            f"{properties['hoodie.timeline.layout.version']}; table version {version} has {layout}"
        )
    for key in _FLAGS:
        if properties.get(key, "true") not in ("true", "false"):
            raise TableError(f"{where}: {key} is {properties[key]!r}; it must be true or false")
    for key, value in _REFUSED_VALUES.items():
        if properties.get(key) == value:
            raise TableError(f"{where}: {key}={value} is not supported")
    for key, only in _ONLY_VALUES.items():
        if properties.get(key, only).upper() != only.upper():
            raise TableError(f"{where}: {key} is {properties[key]}; only {only} is supported")
    if bootstrap := properties.get("hoodie.bootstrap.base.path"):
        raise TableError(f"{where}: hoodie.bootstrap.base.path={bootstrap} is not supported")
    _check_checksum(properties, where)


def _check_checksum(properties: Mapping[str, str], where: str) -> None:
    stated = properties.get(CHECKSUM)
    if stated is None:
        return
    expected = table_checksum(
        properties["hoodie.table.name"], properties.get("hoodie.database.name", "")
    )
    if stated != str(expected):
        raise TableError(
            f"{where}: {CHECKSUM} is {stated}, but database and table name give "
            f"{expected}; the file was edited or damaged"
        )


def merge_mode_of(
    properties: Mapping[str, str], version: int, ordered: bool, where: str
) -> MergeMode:
    """The merge mode, stated or inferred. Source: HoodieTableConfig's inference, which differs by version."""
    stated = properties.get("hoodie.record.merge.mode")
    if stated:
        if stated not in list(MergeMode):
            raise TableError(
                f"{where}: hoodie.record.merge.mode is {stated}; known are {', '.join(MergeMode)}"
            )
        return MergeMode(stated)
    payload, strategy = properties.get(PAYLOAD_CLASS), properties.get(STRATEGY_ID, "")
    if version >= 8 and strategy in _STRATEGY_MODES:
        return _STRATEGY_MODES[strategy]
    if payload:
        return _PAYLOAD_MODES.get(payload, MergeMode.CUSTOM)
    if strategy:
        return _STRATEGY_MODES.get(strategy, MergeMode.CUSTOM)
    return MergeMode.EVENT_TIME if ordered else MergeMode.COMMIT_TIME


def merge_strategy_of(properties: Mapping[str, str], mode: MergeMode) -> str:
    """The merge strategy id of CUSTOM, stated or implied by the payload class; "" in other modes."""
    if mode is not MergeMode.CUSTOM:
        return ""
    stated = properties.get(STRATEGY_ID, "")
    by_payload = PAYLOAD_STRATEGY if properties.get(PAYLOAD_CLASS) else ""
    return stated or by_payload


def partition_fields_of(
    properties: Mapping[str, str], where: str
) -> tuple[tuple[str, ...], tuple[PartitionKind, ...]]:
    """The partition fields, and their kinds if the table states them: `a:SIMPLE,b:TIMESTAMP`.

    Source: org.apache.hudi.keygen.CustomAvroKeyGenerator, which reads fields in this form.
    """
    stated = [part.strip() for part in properties.get(PARTITION_FIELDS, "").split(",")]
    return split_kinds(
        [part for part in stated if part], f"{where}: {PARTITION_FIELDS}", TableError
    )


def split_kinds(
    stated: Sequence[str], what: str, error: type[LabError]
) -> tuple[tuple[str, ...], tuple[PartitionKind, ...]]:
    """Fields and kinds of texts `field:KIND`; no kinds if no field has one.

    Raises `error`, with a message that begins with `what`, for an unknown kind or one that only some fields
    have.
    """
    names = [text.partition(":")[0].strip() for text in stated]
    kinds = [text.partition(":")[2].strip().upper() for text in stated]
    if not any(":" in text for text in stated):
        return tuple(names), ()
    for text, kind in zip(stated, kinds, strict=True):
        if kind not in get_args(PartitionKind):
            raise error(f"{what} has {text!r}, expected a field and :SIMPLE or :TIMESTAMP")
    return tuple(names), cast(tuple[PartitionKind, ...], tuple(kinds))


def key_generator_of(properties: Mapping[str, str]) -> str:
    stated = properties.get("hoodie.table.keygenerator.type")
    if stated:
        return stated
    class_name = properties.get("hoodie.table.keygenerator.class", "")
    for name, known in KEY_GENERATOR_CLASSES.items():
        if class_name == known:
            return name
    return class_name
