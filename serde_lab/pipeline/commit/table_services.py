"""Table services: what follows a write, as its options ask, and the same by hand.

Owns when each service is due after a write and their order: compaction, then cleaning, then archiving.
Each of them is its own instant, and the write before stands whatever becomes of them. Must not import
pyspark.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass

from serde_lab.errors import LabError
from serde_lab.pipeline.commit.compaction import Compactor, compact_held, deltacommits_to_compact
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.options.service import ServiceOptions
from serde_lab.pipeline.source.schema import avro_schema
from serde_lab.table.files.base_file import BaseFileFormat
from serde_lab.table.files.file_names import write_token
from serde_lab.table.services.archiving import Archived, archive
from serde_lab.table.services.bucket_resizing import (
    ResizeRules,
    carry_out,
    complete_resizing,
    schedule_resizing,
)
from serde_lab.table.services.cleaning import Cleaned, clean
from serde_lab.table.services.recovery import Recovered, recover
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant


@dataclass(frozen=True, slots=True)
class Served:
    """What the services did; None for each that was not asked for, or had nothing to do."""

    compacted: Commit | None = None
    cleaned: Cleaned | None = None
    archived: Archived | None = None


def serve(
    coordinator: Coordinator, options: ServiceOptions, compactor: Compactor, format: BaseFileFormat
) -> Served:
    """Run what is due; the caller holds the table. Raises whatever a service raises; those before it
    stand."""
    table = coordinator.table
    compacted = None
    if options.compact and deltacommits_to_compact(table) >= options.compact_after:
        compacted = compact_held(coordinator, compactor, format)
    cleaned = clean(table, options.commits_retained) if options.clean else None
    archived = archive(table, options.keep_min, options.keep_max) if options.archive else None
    return Served(compacted, cleaned, archived)


def clean_now(table: HoodieTable, commits_retained: int) -> Cleaned | None:
    """Remove the file slices that only commits before the last `commits_retained` need; None if there
    are none. Raises ConcurrentWrite naming another writer, OptionError for no commit retained."""
    with _held(table, "clean"):
        return clean(table, commits_retained)


def archive_now(table: HoodieTable, keep_min: int, keep_max: int) -> Archived | None:
    """Leave `keep_min` commits on the active timeline if there are more than `keep_max`; None if not.

    Raises ConcurrentWrite naming another writer, OptionError for bounds that do not fit, TableError for
    a table version whose timeline is not archived.
    """
    with _held(table, "archive"):
        return archive(table, keep_min, keep_max)


def resize_buckets_now(
    table: HoodieTable, rules: ResizeRules, format: BaseFileFormat | None = None
) -> Instant | None:
    """Split and merge buckets of consistent hashing by their sizes; None if all of them fit.

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
                for stat in carry_out(plan, resize, write_token(number, 1), format)
            ]
            coordinator.check()
            schema = json.dumps(avro_schema(plan.data_schema, table.config.name))
            return complete_resizing(table, plan, stats, schema)
        except (LabError, KeyboardInterrupt) as error:
            coordinator.give_up(error)
            raise


def roll_back_now(table: HoodieTable) -> Recovered:
    """Undo what writers that are gone left pending, and finish their cleans; says what that was.

    Raises ConcurrentWrite naming a writer that is at work, TableError for what only its own writer can
    finish.
    """
    table.config.check_writable()
    with TableLock(table.storage, "rollback"):
        return recover(table)


def drop_metadata_table_now(table: HoodieTable) -> HoodieTable:
    """Remove the metadata table that Apache Hudi built, if there is one; the table as it then is.

    Its rows stay. Readers list the files again, and Apache Hudi builds a new one at its next write that
    wants one. Raises ConcurrentWrite naming another writer.
    """
    with TableLock(table.storage, "drop metadata table"):
        return table.drop_metadata_table()


def _held(table: HoodieTable, purpose: str) -> AbstractContextManager[bool]:
    # a metadata table would go on listing what is removed here
    table.config.check_writable()
    return Coordinator(table).hold(purpose)
