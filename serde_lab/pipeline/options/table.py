"""Turns the options that describe a table into a TableConfig, and checks them against the stored table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from serde_lab.errors import OptionError
from serde_lab.merging.merger import COMMIT_TIME_STRATEGY, EVENT_TIME_STRATEGY, PAYLOAD_STRATEGY
from serde_lab.merging.rules import DEBEZIUM_UNAVAILABLE
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.records import partition_time
from serde_lab.table.config import KEY_GENERATOR_CLASSES, TableConfig, check_creatable
from serde_lab.table.config_properties import split_kinds
from serde_lab.table.index.index_kind import BUCKET, BUCKET_ENGINES, INDEX_TYPES, IndexKind

_OPERATION = "hoodie.datasource.write.operation"
# operations that do not look up keys, so they need no record key
_APPENDING = ("insert", "bulk_insert")
INDEX_FIELDS = tuple(field.name for field in fields(IndexKind))
"""The fields of TableConfig about the index. Hudi stores them nowhere; only the lab's tables state them."""
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING, OLDER_ORDERING = (
    "hoodie.table.ordering.fields",
    "hoodie.datasource.write.precombine.field",
)
GENERATOR = "hoodie.datasource.write.keygenerator.type"
GENERATOR_CLASS = "hoodie.datasource.write.keygenerator.class"

MEANING: Mapping[str, str] = {
    "hoodie.table.name": "the table's name; required when the write creates the table",
    "hoodie.datasource.write.recordkey.field": (
        "record key columns, separated by commas; without any, keys are generated and rows only inserted"
    ),
    PARTITION: (
        "partition columns, separated by commas; empty for none; with key generator CUSTOM each has its kind,"
        " as in a:SIMPLE,b:TIMESTAMP"
    ),
    OLDER_ORDERING: f"older name of {ORDERING}",
    ORDERING: "ordering columns, separated by commas",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE or MERGE_ON_READ (COPY_ON_WRITE)",
    "hoodie.datasource.write.hive_style_partitioning": "true: folders are named field=value (false)",
    "hoodie.datasource.write.partitionpath.urlencode": "true: folder names are escaped (false)",
    "hoodie.index.type": (
        "BUCKET, or an index that assigns file groups to inserts: BLOOM, SIMPLE, GLOBAL_BLOOM,"
        " GLOBAL_SIMPLE, INMEMORY or FLINK_STATE (BUCKET)"
    ),
    "index.global.enabled": "false: INMEMORY and FLINK_STATE look for a key in its partition only (true)",
    "hoodie.index.bucket.engine": "SIMPLE or CONSISTENT_HASHING (SIMPLE)",
    "hoodie.bucket.index.num.buckets": "number of buckets of each partition that no rule names (8)",
    "hoodie.bucket.index.partition.expressions": "buckets by partition: PATTERN,BUCKETS;PATTERN,BUCKETS",
    "hoodie.bucket.index.partition.rule.type": "regex, the kind of those patterns",
    "hoodie.bucket.index.hash.field": "record key columns that are hashed for the bucket (all)",
    "hoodie.write.record.merge.mode": (
        "EVENT_TIME_ORDERING, COMMIT_TIME_ORDERING or CUSTOM (the first; without ordering columns the second)"
    ),
    "hoodie.write.record.merge.strategy.id": "UUID of the merge strategy; it is stored in the table",
    "hoodie.write.record.merge.custom.implementation.classes": (
        "mergers for this write as package.module:Class, separated by commas; the first one that implements"
        " the table's merge strategy is used"
    ),
    "hoodie.datasource.write.payload.class": "one of Hudi's payload classes, or package.module:Class",
    "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS or FILL_UNAVAILABLE",
    "hoodie.write.partial.update.unavailable.value": "text that FILL_UNAVAILABLE treats as a missing value",
    "hoodie.payload.delete.field": "column that marks deletes: a row is a delete if it contains the marker",
    "hoodie.payload.delete.marker": "the marker in that column",
    "hoodie.write.table.version": "9 or 6 (9)",
    GENERATOR: (
        "SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP or CUSTOM; the first three are inferred from the columns"
    ),
    GENERATOR_CLASS: "the key generator, as the name of Hudi's class",
    **partition_time.MEANING,
    "hoodie.metadata.enable": "false; the lab writes no metadata table",
}


def table_config(reader: OptionReader, stored: TableConfig | None) -> TableConfig:
    """The table as `reader` states it, completed from `stored` if the table exists.

    Raises OptionError if the two disagree, or if a new table lacks what it needs.
    """
    reader.only("hoodie.bucket.index.partition.rule.type", ("regex",))
    reader.only("hoodie.metadata.enable", ("false",))
    given = _given(reader) | _partition(reader, stored)
    classes = reader.names("hoodie.write.record.merge.custom.implementation.classes")
    times = {key: str(reader.options[key]) for key in partition_time.MEANING if reader.given(key)}
    if stored is None:
        given["extra"] = _of_time(times, given)
        if reader.text(_OPERATION, "upsert") in _APPENDING:
            given.setdefault("record_key_fields", ())
        return _hashing_keys(replace(_new_table(given), merger_classes=classes))
    _settle_strategy(given, stored)
    stored = _completed(stored, given, times)
    for key, value in times.items():
        if stored.extra.get(key) != value:
            raise OptionError(
                f"{key} is {value!r}, but the existing table has {stored.extra.get(key)!r}"
            )
    for key, value in given.items():
        have = getattr(stored, key)
        if have != value:
            have = str(have) if isinstance(have, str) else have
            raise OptionError(
                f"this write states {key.replace('_', ' ')} {value!r}, but the existing table has {have!r}"
            )
    return _hashing_keys(replace(stored, merger_classes=classes))


def _hashing_keys(table: TableConfig) -> TableConfig:
    """`table`. Raises OptionError if its bucket index hashes a field that is none of the key's."""
    for name in table.bucket_fields if table.bucket_count is not None else ():
        if name not in table.record_key_fields:
            raise OptionError(
                f"hoodie.bucket.index.hash.field has {name!r}, which is not in the record key,"
                f" {', '.join(table.record_key_fields)}"
            )
    return table


def _completed(stored: TableConfig, given: dict[str, Any], times: Mapping[str, str]) -> TableConfig:
    """Complete `stored` with facts that Hudi does not store but writers need; removes them from `given`."""
    if not stored.index_type and not stored.is_keyless:
        index = {key: given.pop(key) for key in INDEX_FIELDS if key in given}
        if index.setdefault("index_type", BUCKET) == BUCKET and "bucket_count" not in index:
            raise OptionError(
                "hoodie.bucket.index.num.buckets is missing, and Hudi does not store it in the table"
            )
        stored = replace(stored, **index)
        stored.check_index()
    if stored.key_generator == "CUSTOM" and stored.partition_fields and not stored.partition_kinds:
        kinds = given.pop("partition_kinds", ())
        if not kinds:
            raise OptionError(
                f"{PARTITION} is missing, and the table does not store the kinds of its partition fields",
                hint="a:SIMPLE,b:TIMESTAMP",
            )
        stored = replace(stored, partition_kinds=kinds)
    if stored.time_fields and stored.time_rule is None:
        stored = replace(stored, extra={**stored.extra, **times})
        # raises an error that names a missing property
        partition_time.TimeRule.from_properties(stored.extra)
    return stored


def _given(reader: OptionReader) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "name": reader.text("hoodie.table.name", "") or None,
        "record_key_fields": _names(reader, "hoodie.datasource.write.recordkey.field"),
        "table_type": reader.choice(
            "hoodie.datasource.write.table.type", ("COPY_ON_WRITE", "MERGE_ON_READ")
        ),
        "version": reader.number("hoodie.write.table.version", 0, least=1) or None,
        "ordering_fields": _names(
            reader, reader.of_two_names(ORDERING, OLDER_ORDERING, reader.names)
        ),
        "merge_mode": reader.choice(
            "hoodie.write.record.merge.mode",
            ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"),
        ),
        "merge_strategy_id": reader.text("hoodie.write.record.merge.strategy.id", "") or None,
        "payload_class": reader.text("hoodie.datasource.write.payload.class", "") or None,
        "partial_update_mode": reader.choice(
            "hoodie.table.partial.update.mode", ("IGNORE_DEFAULTS", "FILL_UNAVAILABLE")
        ),
        "unavailable_value": (
            reader.exact("hoodie.write.partial.update.unavailable.value") or None
        ),
        "delete_field": reader.text("hoodie.payload.delete.field", "") or None,
        "delete_marker": reader.exact("hoodie.payload.delete.marker") or None,
        "index_type": reader.choice("hoodie.index.type", INDEX_TYPES),
        "index_global": reader.flag("index.global.enabled"),
        "bucket_engine": reader.choice("hoodie.index.bucket.engine", BUCKET_ENGINES),
        "bucket_expressions": (reader.exact("hoodie.bucket.index.partition.expressions") or None),
        "bucket_count": reader.number("hoodie.bucket.index.num.buckets", 0, least=1) or None,
        "bucket_fields": reader.names("hoodie.bucket.index.hash.field") or None,
        "key_generator": _key_generator(reader),
        "hive_style": reader.flag("hoodie.datasource.write.hive_style_partitioning"),
        "url_encode": reader.flag("hoodie.datasource.write.partitionpath.urlencode"),
    }
    return {key: value for key, value in stated.items() if value is not None}


def _key_generator(reader: OptionReader) -> str | None:
    """The key generator by type or class; both may be set if they agree."""
    by_type = reader.choice(GENERATOR, tuple(KEY_GENERATOR_CLASSES))
    if not reader.given(GENERATOR_CLASS):
        return by_type
    name = reader.text(GENERATOR_CLASS, "")
    by_class = {value: key for key, value in KEY_GENERATOR_CLASSES.items()}.get(name)
    if by_class is None or by_type not in (None, by_class):
        expected = KEY_GENERATOR_CLASSES.get(by_type or "") or ", ".join(
            KEY_GENERATOR_CLASSES.values()
        )
        raise OptionError(f"{GENERATOR_CLASS} is {name!r}, expected {expected}")
    return by_class


def _partition(reader: OptionReader, stored: TableConfig | None) -> dict[str, Any]:
    """The partition fields, split into fields and kinds under the key generator CUSTOM."""
    names = _names(reader, PARTITION)
    if names is None:
        return {}
    generator = _key_generator(reader) or ("" if stored is None else stored.key_generator)
    if generator == "CUSTOM":
        fields, kinds = split_kinds(names, PARTITION, OptionError)
        return {"partition_fields": fields, "partition_kinds": kinds}
    for name in names:
        if ":" in name:
            raise OptionError(
                f"{PARTITION} has {name!r}: only the key generator CUSTOM has kinds of fields",
                hint=f"{GENERATOR}=CUSTOM",
            )
    return {"partition_fields": names}


def _of_time(times: dict[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    """The properties of time-based folder names, which only the key generators TIMESTAMP and CUSTOM use."""
    by_time = given.get("key_generator") == "TIMESTAMP" or "TIMESTAMP" in given.get(
        "partition_kinds", ()
    )
    if times and not by_time:
        raise OptionError(
            f"{next(iter(times))} needs the key generator TIMESTAMP, or a field of kind TIMESTAMP",
            hint=f"{GENERATOR}=TIMESTAMP",
        )
    return times


def _names(reader: OptionReader, key: str) -> tuple[str, ...] | None:
    """None if it is not set; an empty list says that the table has no such columns."""
    return reader.names(key) if reader.given(key) else None


def _settle_strategy(given: dict[str, Any], stored: TableConfig) -> None:
    """Accept the strategy id that the table's mode implies; refuse any other."""
    asked = given.pop("merge_strategy_id", None)
    have = stored.merge_rules.strategy
    if asked is not None and asked != have:
        raise OptionError(
            f"hoodie.write.record.merge.strategy.id is {asked}, but the existing table has {have},"
            " which cannot change"
        )
    asked_class = given.get("payload_class")
    if asked_class is not None and stored.payload_class == "":
        # the table stores the mode that the class means; compare that instead of the class
        wanted = payload_rules(asked_class)
        for key, value in wanted.items():
            given.setdefault(key, value)
        if wanted["merge_mode"] != "CUSTOM":
            del given["payload_class"]


_DEBEZIUM_DELETE = {"delete_field": "_change_operation_type", "delete_marker": "d"}


def payload_rules(payload_class: str) -> dict[str, Any]:
    """The merge settings that a payload class means in table version 9, by TableConfig's field names.

    Source: HoodieTableConfig.inferMergingConfigsForV9TableCreation.
    """
    name = payload_class.removeprefix("org.apache.hudi.common.model.")
    known: dict[str, dict[str, Any]] = {
        "DefaultHoodieRecordPayload": {"merge_mode": "EVENT_TIME_ORDERING"},
        "EventTimeAvroPayload": {"merge_mode": "EVENT_TIME_ORDERING"},
        "OverwriteWithLatestAvroPayload": {"merge_mode": "COMMIT_TIME_ORDERING"},
        "PartialUpdateAvroPayload": {
            "merge_mode": "EVENT_TIME_ORDERING",
            "partial_update_mode": "IGNORE_DEFAULTS",
        },
        "OverwriteNonDefaultsWithLatestAvroPayload": {
            "merge_mode": "COMMIT_TIME_ORDERING",
            "partial_update_mode": "IGNORE_DEFAULTS",
        },
        "PostgresDebeziumAvroPayload": {
            "merge_mode": "EVENT_TIME_ORDERING",
            "partial_update_mode": "FILL_UNAVAILABLE",
            "unavailable_value": DEBEZIUM_UNAVAILABLE,
            **_DEBEZIUM_DELETE,
            "ordering_fields": ("_event_lsn",),
        },
        "MySqlDebeziumAvroPayload": {
            "merge_mode": "EVENT_TIME_ORDERING",
            **_DEBEZIUM_DELETE,
            "ordering_fields": ("_event_bin_file", "_event_pos"),
        },
        "AWSDmsAvroPayload": {
            "merge_mode": "COMMIT_TIME_ORDERING",
            "delete_field": "Op",
            "delete_marker": "D",
        },
    }
    return known.get(
        name.removeprefix("debezium."),
        {"merge_mode": "CUSTOM", "merge_strategy_id": PAYLOAD_STRATEGY},
    )


_STRATEGY_ID = "hoodie.write.record.merge.strategy.id"
_SETTLED = {
    "merge_mode": "hoodie.write.record.merge.mode",
    "ordering_fields": ORDERING,
    "partial_update_mode": "hoodie.table.partial.update.mode",
    "unavailable_value": "hoodie.write.partial.update.unavailable.value",
    "delete_field": "hoodie.payload.delete.field",
    "delete_marker": "hoodie.payload.delete.marker",
}


def _by_strategy(given: dict[str, Any]) -> None:
    """Set the merge mode that payload class or strategy id mean; a stated mode may not contradict it."""
    modes = {
        EVENT_TIME_STRATEGY: "EVENT_TIME_ORDERING",
        COMMIT_TIME_STRATEGY: "COMMIT_TIME_ORDERING",
    }
    wanted: dict[str, Any] = {}
    asked = given.get("merge_strategy_id")
    if given.get("payload_class"):
        wanted = payload_rules(given["payload_class"])
        if asked is not None and modes.get(asked, "CUSTOM") != wanted["merge_mode"]:
            raise OptionError(
                f"{_STRATEGY_ID} is {asked}, but {given['payload_class']} implies {wanted['merge_mode']}"
            )
        if given.get("version") == 6 and len(wanted) > 1:
            # version 6 has no merge settings besides the class itself
            wanted = {"merge_mode": "CUSTOM", "merge_strategy_id": PAYLOAD_STRATEGY}
        elif given.get("version") == 6:
            del given["payload_class"]
    elif asked is not None:
        wanted = {"merge_mode": modes.get(asked, "CUSTOM")}
    if asked in modes:
        del given["merge_strategy_id"]
    for key, value in wanted.items():
        stated = given.setdefault(key, value)
        if key in _SETTLED and stated != value:
            said, meant = (v if isinstance(v, str) else ",".join(v) for v in (stated, value))
            raise OptionError(
                f"{_SETTLED[key]} is {said}, but {given.get('payload_class') or asked} implies {meant}"
            )


def _new_table(given: dict[str, Any]) -> TableConfig:
    _by_strategy(given)
    for key, option in (
        ("name", "hoodie.table.name"),
        ("record_key_fields", "hoodie.datasource.write.recordkey.field"),
    ):
        if key not in given:
            raise OptionError(f"{option} is missing, and this write creates the table")
    if given["record_key_fields"] and given.setdefault("index_type", BUCKET) == BUCKET:
        given.setdefault("bucket_count", 8)
    config = TableConfig(**given)
    check_creatable(config)
    return config
