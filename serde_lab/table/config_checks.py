"""Checks of a new table's configuration; each refusal names the option at fault."""

from __future__ import annotations

import re

from serde_lab.errors import OptionError
from serde_lab.merging.rules import DeleteMarkers
from serde_lab.merging.survivors import MergeMode
from serde_lab.records.partition_time import TimeRule
from serde_lab.table.config import TableConfig, inferred_key_generator
from serde_lab.table.config_properties import MERGE_PROPERTY, PARTIAL_UPDATE, UNAVAILABLE
from serde_lab.table.table_kind import KEY_GENERATOR_CLASSES

VERSIONS_CREATED = (6, 9)


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
    config.index.check()
    if config.index_type and config.is_keyless:
        raise OptionError(
            f"hoodie.index.type is {config.index_type}, but the table has no record key",
            hint="set hoodie.datasource.write.recordkey.field",
        )


def _check_key_generator(config: TableConfig) -> None:
    """Source: HoodieSparkKeyGeneratorFactory, and the checks in each key generator's constructor."""
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
    if config.version == 6 and (config.partial_update_mode or config.delete_field):
        raise OptionError("partial updates and hoodie.payload.delete.field need table version 9")
    # the constructor refuses a field without marker, or a marker without field
    DeleteMarkers(config.delete_field, config.delete_marker)
