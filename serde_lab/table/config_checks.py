"""Checks of a new table's configuration; each refusal names the option at fault."""

from __future__ import annotations

import re

from serde_lab.errors import OptionError
from serde_lab.merging.delete_markers import DeleteMarkers
from serde_lab.records.partition_time import TimeRule
from serde_lab.table.config import TableConfig, inferred_key_generator
from serde_lab.table.config_properties import MERGE_PROPERTY, PARTIAL_UPDATE, UNAVAILABLE
from serde_lab.table.table_kind import CUSTOM, EVENT_TIME, KEY_GENERATOR_CLASSES

VERSIONS_CREATED = (6, 9)


def check_creatable(config: TableConfig) -> None:
    """Raises OptionError, naming the option, for a table that cannot be created."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", config.name):
        raise OptionError(
            f"hoodie.table.name is {config.name!r}; letters, digits and _ are what Avro accepts"
        )
    if config.version not in VERSIONS_CREATED:
        raise OptionError(f"table version {config.version} cannot be made; known are 6 and 9")
    if config.is_keyless and config.bucket_count is not None:
        raise OptionError(
            "hoodie.bucket.index.num.buckets is given, and the table has no record key to hash",
            hint="hoodie.datasource.write.recordkey.field names it",
        )
    if config.merge_mode == EVENT_TIME and not config.ordering_fields:
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
            f"hoodie.index.type is {config.index_type}, and the table has no record key to look up",
            hint="hoodie.datasource.write.recordkey.field names it",
        )


def _check_key_generator(config: TableConfig) -> None:
    """Source: HoodieSparkKeyGeneratorFactory, and the checks in each key generator's constructor."""
    inferred = inferred_key_generator(config)
    rule = TimeRule.from_properties(config.extra) if config.time_fields else None
    if config.key_generator == "CUSTOM":
        if config.partition_fields and not config.partition_kinds:
            raise OptionError(
                f"the key generator CUSTOM is not told what {', '.join(config.partition_fields)} is",
                hint="hoodie.datasource.write.partitionpath.field=a:SIMPLE,b:TIMESTAMP",
            )
        return
    fits = {inferred}
    if rule is not None:
        fits = {"TIMESTAMP"} if inferred == "SIMPLE" else set()
    if config.key_generator not in fits:
        raise OptionError(
            f"key generator {config.key_generator} does not fit {len(config.record_key_fields)} key and"
            f" {len(config.partition_fields)} partition columns, whose own is {inferred}"
        )


def _check_merging(config: TableConfig) -> None:
    if config.merge_mode == CUSTOM and not config.merge_strategy_id:
        raise OptionError(
            "merging is CUSTOM, and nothing says which",
            hint="hoodie.write.record.merge.strategy.id or hoodie.datasource.write.payload.class",
        )
    if config.merge_mode == CUSTOM and config.partial_update_mode:
        raise OptionError(f"{PARTIAL_UPDATE} is of no use: merging is CUSTOM")
    if (config.partial_update_mode == "FILL_UNAVAILABLE") != bool(config.unavailable_value):
        raise OptionError(
            f"{MERGE_PROPERTY}{UNAVAILABLE} and {PARTIAL_UPDATE}=FILL_UNAVAILABLE go together;"
            " one of them is missing"
        )
    if config.version == 6 and (config.partial_update_mode or config.delete_field):
        raise OptionError(
            "partial updates and delete markers of the table's own need table version 9"
        )
    # the constructor refuses a marker of which half is missing
    DeleteMarkers(config.delete_field, config.delete_marker)
