"""Compaction: merges file slices with log files into new base files.

Each operation of a plan is work for one task. Source: org.apache.hudi.table.action.compact.

Order: plan as `<t>.compaction.requested`, `.compaction.inflight`, files with their markers, then
`<t>_<c>.commit`. Rows keep commit time and sequence number and get the new file's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from serde_lab.avro.codec import hudi_schema, write_single
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.files.parquet import BaseFileFormat
from serde_lab.table.index.key_places import check_keys_of_others
from serde_lab.table.read_plan import FileSliceReader, ReadPlan
from serde_lab.table.storage.data_files import Writing, delete_markers, write_token
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant

COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """One planned compaction; picklable. Each slice that it reads becomes one base file, independently of
    the others, with the same bytes whatever records they are merged as.
    """

    instant: str
    inflight_path: str
    reads: ReadPlan
    format: BaseFileFormat | None = None


def schedule_compaction(
    table: HoodieTable,
    format: BaseFileFormat | None = None,
    records: StrategyRecords | None = None,
) -> CompactionPlan | None:
    """Plan the compaction of every slice with log files; None if there is none. On return the plan is on the
    timeline, inflight.

    The caller holds the table's lock. A live writer's instant may be pending: logs that it completes later
    belong to the new base files. Raises TableError if anything else is pending, OptionError if no given
    merger implements the table's merge strategy.
    """
    table.check_nothing_pending("compaction", besides_live_writers=True)
    view = table.view()
    slices = tuple(s for s in view.latest_file_slices() if s.log_files)
    schema = table.data_schema(view=view)
    if not slices or schema is None:
        return None
    check_keys_of_others(table, slices)
    if records is not None:
        table = table.merging_by(table.config.merger_classes, records)
    table.config.merge_rules.check_merger()
    timeline = table.timeline()
    instant = timeline.new_instant(COMPACTION)
    timeline.create_requested(instant, _plan_bytes(slices))
    inflight = timeline.create_inflight(instant)
    reads = ReadPlan(table.storage, table.config, schema, slices, view.visibility, records=records)
    return CompactionPlan(instant.time, timeline.path(inflight), reads, format)


def compact_slice(
    plan: CompactionPlan, task: int, timeline: TaskTimeline | None = None
) -> WriteStat:
    """Merge the plan's slice number `task` into a new base file; a second attempt changes nothing.

    `timeline` times the steps.
    """
    timeline = timeline or TaskTimeline("compact")
    slice_ = plan.reads.slices[task]
    reader = FileSliceReader(plan.reads, slice_, timeline)
    with timeline.phase("write"):
        writer = BaseFileWriter(
            plan.reads.storage,
            Writing(plan.instant, write_token(task), plan.inflight_path),
            data_schema=plan.reads.data_schema,
            partition_path=slice_.partition_path,
            file_id=slice_.file_id,
            previous=slice_.base_path,
            format=plan.format,
        )
    for batch in reader.batches():
        with timeline.phase("write"):
            writer.append_carried(batch)
    with timeline.phase("write"):
        stat = writer.close(deletes=reader.count.deleted)
    log = reader.count.log
    return replace(
        stat,
        prevCommit=slice_.base_instant if slice_.base_file is not None else NO_PREVIOUS_COMMIT,
        numUpdateWrites=reader.count.updated,
        numInserts=reader.count.inserted,
        totalLogRecords=log.records,
        totalLogFiles=log.files,
        totalLogFilesCompacted=log.files,
        totalLogBlocks=log.blocks,
        totalLogSizeCompacted=log.size_bytes,
        totalUpdatedRecordsCompacted=reader.count.updated,
    )


def complete_compaction(
    table: HoodieTable, plan: CompactionPlan, stats: Iterable[WriteStat], schema: str
) -> Instant:
    """Make the new base files visible. `schema`: the table's Avro schema as a commit states it.

    Raises ConcurrentWrite if the compaction was rolled back meanwhile.
    """
    metadata = CommitMetadata("COMPACT", tuple(stats), {"schema": schema}, compacted=True)
    content = metadata.to_bytes(table.config.layout_version)
    done = table.timeline().create_completed(Instant(plan.instant, COMPACTION, "inflight"), content)
    delete_markers(table.storage, plan.instant)
    return done


def _plan_bytes(slices: tuple[FileSlice, ...]) -> bytes:
    return write_single(
        hudi_schema("HoodieCompactionPlan"),
        {
            "operations": [_operation(slice_) for slice_ in slices],
            "extraMetadata": {},
            "version": 2,
            "strategy": None,
            "preserveHoodieMetadata": False,
            "missingSchedulePartitions": [],
        },
    )


def _operation(slice_: FileSlice) -> dict[str, Any]:
    base_bytes, log_bytes, mib = slice_.base_bytes, slice_.log_bytes, 1 << 20
    return {
        "baseInstantTime": slice_.base_instant,
        # file names only, from plan version 2 on; the partition has its own field
        "deltaFilePaths": [log.path.rpartition("/")[2] for log in slice_.log_files],
        "dataFilePath": slice_.base_path and slice_.base_path.rpartition("/")[2],
        "fileId": slice_.file_id,
        "partitionPath": slice_.partition_path,
        "metrics": {
            "TOTAL_LOG_FILES": float(len(slice_.log_files)),
            "TOTAL_LOG_FILES_SIZE": float(log_bytes),
            "TOTAL_IO_READ_MB": float((log_bytes + base_bytes) // mib),
            "TOTAL_IO_WRITE_MB": float(base_bytes // mib),
            "TOTAL_IO_MB": float((log_bytes + 2 * base_bytes) // mib),
        },
        "bootstrapFilePath": None,
    }
