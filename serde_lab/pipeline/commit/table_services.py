"""Runs table services, after a write as its options ask, or on demand: compaction, cleaning, archiving.

After a write they run in this order, each when it is due. Each is an instant of its own; if one fails, the
write stays committed. A compaction turns every file slice with logs into a base file, one task per slice:
`serde_lab.table.services.compaction` plans it and writes the files; any engine can run the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from serde_lab.errors import LabError
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.options.service import ServiceOptions
from serde_lab.pipeline.source.schema import avro_schema
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.files.parquet import BaseFileFormat
from serde_lab.table.services.bucket_resizing import (
    ResizeRules,
    carry_out,
    complete_resizing,
    schedule_resizing,
)
from serde_lab.table.services.cleaning import Cleaned, clean
from serde_lab.table.services.compaction import (
    CompactionPlan,
    compact_slice,
    complete_compaction,
    schedule_compaction,
)
from serde_lab.table.services.rollback import Recovered
from serde_lab.table.storage.data_files import write_token
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import Archived, archive
from serde_lab.table.timeline.commit_metadata import WriteStat
from serde_lab.table.timeline.timeline import Instant

Compactor = Callable[[CompactionPlan], tuple[WriteStat, ...]]
"""Runs all tasks of a compaction on some engine, one for each slice; returns one stat per task."""


def compact_in_process(plan: CompactionPlan) -> tuple[WriteStat, ...]:
    """Run all tasks in this process, one after another."""
    return tuple(compact_slice(plan, task) for task in range(len(plan.reads.slices)))


def compact(
    table: HoodieTable,
    compactor: Compactor = compact_in_process,
    format: BaseFileFormat | None = None,
    records: StrategyRecords | None = None,
) -> Commit | None:
    """Compact every file slice of a merge-on-read table that has logs; None if none has.

    Slices are merged as records of `records`, by default on Arrow. Raises ConcurrentWrite if another writer
    holds the table, or rolled the compaction back. A compaction that fails while the driver is alive is
    rolled back at once, and the table reads as before.
    """
    table.config.check_writable()
    coordinator = Coordinator(table)
    with coordinator.hold("compact"):
        return compact_held(coordinator, compactor, format, records)


def compact_held(
    coordinator: Coordinator,
    compactor: Compactor,
    format: BaseFileFormat | None = None,
    records: StrategyRecords | None = None,
) -> Commit | None:
    """Like `compact`, for a caller who holds the table."""
    table = coordinator.table
    try:
        plan = schedule_compaction(table, format=format, records=records)
        if plan is None:
            return None
        schema = json.dumps(avro_schema(plan.reads.data_schema, table.config.name))
        stats = compactor(plan)
        coordinator.check()
        done = complete_compaction(table, plan, stats, schema)
    except (LabError, KeyboardInterrupt) as error:
        coordinator.give_up(error)
        raise
    written = tuple(sorted(stats, key=lambda stat: stat.path))
    completion = done.completion_time or plan.instant
    return Commit(plan.instant, completion, done.action, "compact", written)


def deltacommits_to_compact(table: HoodieTable) -> int:
    """The number of deltacommits completed since the last compaction, or in all if there was none."""
    completed = table.timeline().completed()
    compacted = max((i.time for i in completed if i.action == "commit"), default="")
    return sum(i.action == "deltacommit" and i.time > compacted for i in completed)


@dataclass(frozen=True, slots=True)
class Served:
    """What the services did; None for each that was not asked for or had nothing to do."""

    compacted: Commit | None = None
    cleaned: Cleaned | None = None
    archived: Archived | None = None


def serve(
    coordinator: Coordinator, options: ServiceOptions, compactor: Compactor, format: BaseFileFormat
) -> Served:
    """Run the services that are due; the caller holds the table.

    Raises whatever a service raises; the services before it remain done.
    """
    table = coordinator.table
    compacted = None
    if options.compact and deltacommits_to_compact(table) >= options.compact_after:
        compacted = compact_held(coordinator, compactor, format)
    cleaned = clean(table, options.commits_retained) if options.clean else None
    archived = archive(table, options.keep_min, options.keep_max) if options.archive else None
    return Served(compacted, cleaned, archived)


def clean_now(table: HoodieTable, commits_retained: int) -> Cleaned | None:
    """Remove the file slices that only commits before the last `commits_retained` need; None if none are.

    Raises ConcurrentWrite naming another writer, OptionError if no commit would be retained.
    """
    with _held(table, "clean"):
        return clean(table, commits_retained)


def archive_now(table: HoodieTable, keep_min: int, keep_max: int) -> Archived | None:
    """Keep `keep_min` commits on the active timeline if there are more than `keep_max`; None if not.

    Raises ConcurrentWrite naming another writer, OptionError for contradictory bounds, TableError for a
    table version whose timeline is not archived.
    """
    with _held(table, "archive"):
        return archive(table, keep_min, keep_max)


def resize_buckets_now(table: HoodieTable, rules: ResizeRules) -> Instant | None:
    """Split and merge the buckets of consistent hashing by size; None if none needs it.

    Raises ConcurrentWrite naming another writer, TableError for a table with another index.
    """
    table.config.check_writable()
    coordinator = Coordinator(table)
    with coordinator.hold("resize buckets"):
        plan = schedule_resizing(table, rules)
        if plan is None:
            return None
        try:
            stats = [
                stat
                for number, resize in enumerate(plan.resizes)
                for stat in carry_out(plan, resize, write_token(number))
            ]
            coordinator.check()
            schema = json.dumps(avro_schema(plan.reads.data_schema, table.config.name))
            return complete_resizing(table, plan, stats, schema)
        except (LabError, KeyboardInterrupt) as error:
            coordinator.give_up(error)
            raise


def roll_back_now(table: HoodieTable) -> Recovered:
    """Undo what dead writers left pending, and finish their cleans; returns what was done.

    Instants in which micro-batches are stored are committed. Raises ConcurrentWrite naming an active writer,
    TableError for an instant that only its own writer can finish.
    """
    table.config.check_writable()
    coordinator = Coordinator(table)
    with coordinator.hold("rollback"):
        return coordinator.recovered


def drop_metadata_table_now(table: HoodieTable) -> HoodieTable:
    """Remove the metadata table that Apache Hudi built, if any; returns the table without it.

    The rows stay. Readers list files again, and Apache Hudi builds a new metadata table at its next write
    that uses one. Raises ConcurrentWrite naming another writer.
    """
    with TableLock(table.storage, "drop metadata table"):
        return table.drop_metadata_table()


def _held(table: HoodieTable, purpose: str) -> AbstractContextManager[bool]:
    # a metadata table would still list the files removed here
    table.config.check_writable()
    return Coordinator(table).hold(purpose)
