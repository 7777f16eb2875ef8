"""Makes empty tables of version 8 as Apache Hudi does: the lab writes to them, but makes none."""

from __future__ import annotations

from pathlib import Path

from serde_lab.merging.merger import (
    COMMIT_TIME_PAYLOAD,
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_PAYLOAD,
    EVENT_TIME_STRATEGY,
    PAYLOAD_STRATEGY,
)
from serde_lab.table.properties import format_properties, table_checksum
from tests.differential.kind import Kind

_FOLDERS = (".hoodie/.aux", ".hoodie/.schema", ".hoodie/.temp", ".hoodie/timeline/history")


def make_table(path: str, kind: Kind) -> None:
    """Make the table without rows that Apache Hudi 1.2.0 makes of version 8 before its first write."""
    for folder in _FOLDERS:
        (Path(path) / folder).mkdir(parents=True)
    text = format_properties(_properties(kind), ("made for a test", "of version 8"))
    (Path(path) / ".hoodie/hoodie.properties").write_text(text, encoding="utf-8")


def _properties(kind: Kind) -> dict[str, str]:
    table = kind.table()
    generator = "COMPLEX" if table.partition else "NON_PARTITION"
    found = {
        "hoodie.table.name": table.name,
        "hoodie.table.type": table.table_type,
        "hoodie.table.version": "8",
        "hoodie.table.initial.version": "8",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.table.timeline.timezone": "LOCAL",
        "hoodie.table.checksum": str(table_checksum(table.name, "")),
        "hoodie.table.recordkey.fields": ",".join(table.record_key),
        "hoodie.table.partition.fields": ",".join(table.partition),
        "hoodie.table.keygenerator.type": generator,
        "hoodie.datasource.write.hive_style_partitioning": str(table.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(table.url_encode).lower(),
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.archivelog.folder": "history",
        **_merging(kind),
    }
    if table.ordering:
        found["hoodie.table.ordering.fields"] = ",".join(table.ordering)
    return found


def _merging(kind: Kind) -> dict[str, str]:
    """How the table merges, in all three ways of saying so."""
    named = kind.rules.options.get("hoodie.datasource.write.payload.class", "")
    mode, strategy, payload = "COMMIT_TIME_ORDERING", COMMIT_TIME_STRATEGY, COMMIT_TIME_PAYLOAD
    if kind.by_class:
        mode, strategy = "CUSTOM", PAYLOAD_STRATEGY
    elif kind.rules.by_value:
        mode, strategy, payload = "EVENT_TIME_ORDERING", EVENT_TIME_STRATEGY, EVENT_TIME_PAYLOAD
    return {
        "hoodie.record.merge.mode": mode,
        "hoodie.record.merge.strategy.id": strategy,
        "hoodie.compaction.payload.class": named or payload,
    }
