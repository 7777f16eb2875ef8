"""Inference of merge mode, key generator and partition fields from a table's properties, and refusals.

The inference differs by table version; refusals name the property. Source:
org.apache.hudi.common.table.HoodieTableConfig.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

from serde_lab.errors import LabError, TableError
from serde_lab.merging.merger import (
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_STRATEGY,
    PAYLOAD_STRATEGY,
)
from serde_lab.merging.survivors import MergeMode
from serde_lab.records.keys import PartitionKind
from serde_lab.table.properties import table_checksum

VERSIONS_READ = (6, 8, 9)

EVENT_TIME_PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
_PAYLOAD_MODES: Mapping[str, MergeMode] = {
    EVENT_TIME_PAYLOAD: MergeMode.EVENT_TIME,
    "org.apache.hudi.common.model.EventTimeAvroPayload": MergeMode.EVENT_TIME,
    COMMIT_TIME_PAYLOAD: MergeMode.COMMIT_TIME,
}
_STRATEGY_MODES: Mapping[str, MergeMode] = {
    EVENT_TIME_STRATEGY: MergeMode.EVENT_TIME,
    COMMIT_TIME_STRATEGY: MergeMode.COMMIT_TIME,
}
KEY_GENERATOR_CLASSES = {
    "SIMPLE": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "COMPLEX": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "NON_PARTITION": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "TIMESTAMP": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    "CUSTOM": "org.apache.hudi.keygen.CustomKeyGenerator",
}
PARTITION_FIELDS = "hoodie.table.partition.fields"


_REFUSED_VALUES = {
    "hoodie.datasource.write.drop.partition.columns": "true",
    "hoodie.populate.meta.fields": "false",
    "hoodie.table.multiple.base.file.formats.enable": "true",
}
_FLAGS = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    *_REFUSED_VALUES,
)


def check_properties(properties: Mapping[str, str], where: str) -> None:
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
    base_format = properties.get("hoodie.table.base.file.format", "PARQUET")
    if base_format.upper() != "PARQUET":
        raise TableError(
            f"{where}: hoodie.table.base.file.format is {base_format}; only PARQUET is supported"
        )
    for key in ("hoodie.bootstrap.base.path",):
        if properties.get(key):
            raise TableError(f"{where}: {key}={properties[key]} is not supported")
    _check_checksum(properties, where)


def _check_checksum(properties: Mapping[str, str], where: str) -> None:
    stated = properties.get("hoodie.table.checksum")
    if stated is None:
        return
    expected = table_checksum(
        properties["hoodie.table.name"], properties.get("hoodie.database.name", "")
    )
    if stated != str(expected):
        raise TableError(
            f"{where}: hoodie.table.checksum is {stated}, but database and table name give "
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
    payload = properties.get("hoodie.compaction.payload.class")
    strategy = properties.get("hoodie.record.merge.strategy.id", "")
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
    stated = properties.get("hoodie.record.merge.strategy.id", "")
    by_payload = PAYLOAD_STRATEGY if properties.get("hoodie.compaction.payload.class") else ""
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
