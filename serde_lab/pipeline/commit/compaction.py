"""Runs a compaction: every file slice with logs becomes a base file, one task per slice.

`serde_lab.table.services.compaction` plans it and writes the files; any engine can run the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from serde_lab.errors import LabError
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.handles.handle import WriteStatus
from serde_lab.pipeline.source.schema import avro_schema
from serde_lab.table.files.base_file import BaseFileFormat
from serde_lab.table.files.file_names import write_token
from serde_lab.table.services.compaction import (
    CompactionPlan,
    compact_slice,
    complete_compaction,
    schedule_compaction,
)
from serde_lab.table.table import HoodieTable

_STAGE = 1


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """The tasks of a planned compaction; picklable. Task numbers are those of the plan's slices."""

    plan: CompactionPlan
    format: BaseFileFormat = field(default_factory=BaseFileFormat)

    def __len__(self) -> int:
        return len(self.plan.slices)

    def run(self, task: int) -> WriteStatus:
        """Run one task; a second attempt changes nothing."""
        token = write_token(task, _STAGE)
        return compact_slice(self.plan, self.plan.slices[task], token, self.format)


Compactor = Callable[[CompactionWork], tuple[WriteStatus, ...]]
"""Runs all tasks of a compaction on some engine; returns one status per task."""


def compact_in_process(work: CompactionWork) -> tuple[WriteStatus, ...]:
    """Run all tasks in this process, one after another."""
    return tuple(work.run(task) for task in range(len(work)))


def compact(
    table: HoodieTable,
    compactor: Compactor = compact_in_process,
    format: BaseFileFormat | None = None,
) -> Commit | None:
    """Compact every file slice of a merge-on-read table that has logs; None if none has.

    Raises ConcurrentWrite if another writer holds the table, or rolled the compaction back. A compaction
    that fails while the driver is alive is rolled back at once, and the table reads as before.
    """
    table.config.check_writable()
    coordinator = Coordinator(table)
    with coordinator.hold("compact"):
        return compact_held(coordinator, compactor, format)


def compact_held(
    coordinator: Coordinator, compactor: Compactor, format: BaseFileFormat | None = None
) -> Commit | None:
    """Like `compact`, for a caller who holds the table."""
    table = coordinator.table
    try:
        plan = schedule_compaction(table)
        if plan is None:
            return None
        schema = json.dumps(avro_schema(plan.data_schema, table.config.name))
        statuses = compactor(CompactionWork(plan, format or BaseFileFormat()))
        coordinator.check()
        done = complete_compaction(table, plan, statuses, schema)
    except (LabError, KeyboardInterrupt) as error:
        coordinator.give_up(error)
        raise
    written = tuple(sorted(statuses, key=lambda status: status.path))
    completion = done.completion_time or plan.instant
    return Commit(plan.instant, completion, done.action, "compact", written)


def deltacommits_to_compact(table: HoodieTable) -> int:
    """The number of deltacommits completed since the last compaction, or in all if there was none."""
    completed = table.timeline().completed()
    compacted = max((i.time for i in completed if i.action == "commit"), default="")
    return sum(i.action == "deltacommit" and i.time > compacted for i in completed)
