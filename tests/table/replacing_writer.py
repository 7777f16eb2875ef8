"""insert_overwrite and delete_partition on top of the plain writer: new file groups instead of old ones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.services.replacing import (
    Replaced,
    replaced_by_delete_partition,
    replaced_by_insert_overwrite,
    replaced_by_insert_overwrite_table,
    requested_content,
)
from serde_lab.table.storage.data_files import Writing, delete_markers
from serde_lab.table.timeline.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant
from tests.table.made_up_tables import PlainWriter, Row, avro_schema, batch_of


def begin(writer: PlainWriter, operation: str) -> Instant:
    timeline = writer.table.timeline()
    instant = timeline.new_instant("replacecommit")
    requested = timeline.create_requested(instant, requested_content(operation))
    content = CommitMetadata(operation.upper()).to_bytes(writer.config.layout_version)
    return timeline.create_inflight(requested, content)


def new_groups(writer: PlainWriter, instant: Instant, rows: Sequence[Row]) -> list[WriteStat]:
    """The rows as one new file group a partition."""
    stats = []
    for number, partition in enumerate(sorted({r["value"] for r in rows})):
        drawn = uuid.uuid5(uuid.NAMESPACE_URL, f"{instant.time}/{partition}")
        base = BaseFileWriter(
            writer.storage,
            Writing(instant.time, f"{number}-1-0"),
            data_schema=writer.schema,
            partition_path=partition,
            file_id=f"{drawn}-0",
        )
        batch = batch_of([r for r in rows if r["value"] == partition], writer.schema)
        base.append(batch.column("id"), batch)
        stats.append(base.close())
    return stats


def complete(
    writer: PlainWriter, instant: Instant, operation: str, stats: list[WriteStat], gone: Replaced
) -> Instant:
    metadata = CommitMetadata(
        operation.upper(),
        tuple(stats),
        {"schema": avro_schema(writer.schema, writer.config.name)},
        replaced_file_ids=gone,
    )
    content = metadata.to_bytes(writer.config.layout_version)
    done = writer.table.timeline().create_completed(instant, content)
    delete_markers(writer.storage, instant.time)
    return done


def insert_overwrite(writer: PlainWriter, *rows: Row, whole_table: bool = False) -> Instant:
    operation = "insert_overwrite_table" if whole_table else "insert_overwrite"
    view = writer.table.view()
    instant = begin(writer, operation)
    stats = new_groups(writer, instant, rows)
    gone = (
        replaced_by_insert_overwrite_table(view)
        if whole_table
        else replaced_by_insert_overwrite(view, [s.partitionPath for s in stats])
    )
    return complete(writer, instant, operation, stats, gone)


def delete_partition(writer: PlainWriter, *partitions: str) -> Instant:
    gone = replaced_by_delete_partition(writer.table.view(), partitions)
    return complete(writer, begin(writer, "delete_partition"), "delete_partition", [], gone)
