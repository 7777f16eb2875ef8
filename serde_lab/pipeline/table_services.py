"""What follows a write, as its options ask: compaction, then cleaning, then archiving.

Owns when each service is due and their order; each of them is its own instant, and the write before
stands whatever becomes of them. Must not import pyspark.
"""

from __future__ import annotations

from dataclasses import dataclass

from serde_lab.pipeline.compaction import Compactor, compact_held, deltacommits_to_compact
from serde_lab.pipeline.coordinator import Commit, Coordinator
from serde_lab.pipeline.service_options import ServiceOptions
from serde_lab.table.archiving import Archived, archive
from serde_lab.table.base_file import BaseFileFormat
from serde_lab.table.cleaning import Cleaned, clean


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
