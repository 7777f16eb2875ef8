"""The coordinator of RFC-24, on the driver: one instant from requested to completed.

Owns the order of a commit: requested, inflight, a marker for each file, data, the check that our own
inflight still stands, completed, markers away; and the rollback of what an earlier writer of ours left
pending. Must not know how data is written, nor pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from serde_lab.table.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.markers import delete_markers
from serde_lab.table.rollback import rollback_pending
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import Instant


@dataclass(frozen=True, slots=True)
class Commit:
    """A completed write: its instant time, when it completed, and what it wrote."""

    instant: str
    completion: str
    action: str
    operation: str
    stats: tuple[WriteStat, ...]

    @property
    def rows_inserted(self) -> int:
        """Records of new keys."""
        return sum(stat.numInserts for stat in self.stats)

    @property
    def rows_updated(self) -> int:
        """Records that replaced a stored one."""
        return sum(stat.numUpdateWrites for stat in self.stats)


class Coordinator:
    """Begins and completes the instants of one table, one at a time."""

    def __init__(self, table: HoodieTable) -> None:
        self.table = table

    def recover(self) -> None:
        """Roll back what is pending: there is one writer at a time, so that its writer is gone."""
        rollback_pending(self.table)

    def begin(self, operation: str) -> Instant:
        """Requested and inflight, on storage, before any data."""
        timeline = self.table.timeline()
        instant = timeline.new_instant(self.table.config.write_action)
        requested = timeline.create_requested(instant)
        metadata = CommitMetadata(operation.upper())
        content = metadata.to_bytes(self.table.config.layout_version)
        return timeline.create_inflight(requested, content)

    def complete(
        self, instant: Instant, operation: str, stats: Iterable[WriteStat], schema: str
    ) -> Commit:
        """Make the instant's files visible. Raises ConcurrentWrite if someone rolled it back."""
        written = tuple(sorted(stats, key=lambda stat: stat.path))
        metadata = CommitMetadata(operation.upper(), written, {"schema": schema})
        content = metadata.to_bytes(self.table.config.layout_version)
        done = self.table.timeline().create_completed(instant, content)
        delete_markers(self.table.storage, instant.time)
        return Commit(
            instant.time, done.completion_time or instant.time, done.action, operation, written
        )
