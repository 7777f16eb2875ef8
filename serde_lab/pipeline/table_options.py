"""The options that say what a table is, and their agreement with the table that is there.

Owns the way from Hudi's option names to a TableConfig. Must not know what else a write is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serde_lab.errors import OptionError
from serde_lab.pipeline.option_reader import OptionReader
from serde_lab.table.config import TableConfig

MEANING: Mapping[str, str] = {
    "hoodie.table.name": "the table's name; needed when the table is made",
    "hoodie.datasource.write.recordkey.field": "record key columns, by commas",
    "hoodie.datasource.write.partitionpath.field": "partition columns, by commas; empty for none",
    "hoodie.datasource.write.precombine.field": "the ordering column",
    "hoodie.table.ordering.fields": "the ordering column, by its newer name",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE or MERGE_ON_READ",
    "hoodie.datasource.write.hive_style_partitioning": "true: folders are named field=value",
    "hoodie.datasource.write.partitionpath.urlencode": "true: folder names are escaped",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": "buckets of each partition",
    "hoodie.bucket.index.hash.field": "record key columns that the bucket hash takes",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING",
    "hoodie.write.table.version": "9 or 6",
    "hoodie.metadata.enable": "false",
}


def table_config(reader: OptionReader, stored: TableConfig | None) -> TableConfig:
    """The table as `reader` states it; what it leaves open comes from `stored`, if there is a table.

    Raises OptionError where the two disagree, or where a new table lacks what it needs.
    """
    reader.only("hoodie.index.type", ("BUCKET",))
    reader.only("hoodie.index.bucket.engine", ("SIMPLE",))
    reader.only("hoodie.metadata.enable", ("false",))
    given = _given(reader)
    if stored is None:
        return _new_table(given)
    index = {}
    if stored.bucket_count is None:
        # Hudi stores no facts of the bucket index: whoever writes must know them
        index = {key: given.pop(key) for key in ("bucket_count", "bucket_fields") if key in given}
        if "bucket_count" not in index:
            raise OptionError(
                "hoodie.bucket.index.num.buckets is missing; the table does not state its buckets"
            )
    for key, value in given.items():
        have = getattr(stored, key)
        if have != value:
            raise OptionError(
                f"the table at hand has {key.replace('_', ' ')} {have!r}, and this write says {value!r}"
            )
    return replace(stored, **index)


def _given(reader: OptionReader) -> dict[str, Any]:
    older = "hoodie.datasource.write.precombine.field"
    ordering = _names(reader, "hoodie.table.ordering.fields") or _names(reader, older)
    stated: dict[str, Any] = {
        "name": reader.text("hoodie.table.name", "") or None,
        "record_key_fields": _names(reader, "hoodie.datasource.write.recordkey.field"),
        "table_type": reader.choice(
            "hoodie.datasource.write.table.type", ("COPY_ON_WRITE", "MERGE_ON_READ")
        ),
        "version": reader.number("hoodie.write.table.version", 0) or None,
        "partition_fields": _names(reader, "hoodie.datasource.write.partitionpath.field"),
        "ordering_fields": ordering,
        "merge_mode": reader.choice(
            "hoodie.write.record.merge.mode", ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
        ),
        "bucket_count": reader.number("hoodie.bucket.index.num.buckets", 0) or None,
        "bucket_fields": reader.names("hoodie.bucket.index.hash.field") or None,
        "hive_style": reader.flag("hoodie.datasource.write.hive_style_partitioning"),
        "url_encode": reader.flag("hoodie.datasource.write.partitionpath.urlencode"),
    }
    return {key: value for key, value in stated.items() if value is not None}


def _names(reader: OptionReader, key: str) -> tuple[str, ...] | None:
    """None where it was not given: an empty list says that the table has no such columns."""
    return reader.names(key) if reader.given(key) else None


def _new_table(given: dict[str, Any]) -> TableConfig:
    for key, option in (
        ("name", "hoodie.table.name"),
        ("record_key_fields", "hoodie.datasource.write.recordkey.field"),
    ):
        if key not in given:
            raise OptionError(f"{option} is missing; the table is made by this write")
    given.setdefault("bucket_count", 8)
    config = TableConfig(**given)
    config.check_creatable()
    return config
