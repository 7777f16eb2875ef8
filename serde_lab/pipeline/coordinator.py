"""The coordinator of RFC-24, on the driver: one instant from requested to completed.

Owns the order of a commit: requested, inflight, a marker for each file, data, the check that our own
inflight still stands, completed, markers away; and the rollback of what an earlier writer of ours left
pending. Must not know how data is written, nor pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from serde_lab.table.cleaning import finish_pending_cleans
from serde_lab.table.commit_metadata import SCHEMA_KEY, CommitMetadata, WriteStat
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
        """Records that replaced a stored one; on merge-on-read, all of a file group that was there."""
        return sum(stat.numUpdateWrites for stat in self.stats)

    @property
    def rows_deleted(self) -> int:
        """Stored rows that a copy-on-write table lost; on merge-on-read, keys that logs say are gone."""
        return sum(stat.numDeletes for stat in self.stats)


class Coordinator:
    """Begins and completes the instants of one table, one at a time."""

    def __init__(self, table: HoodieTable) -> None:
        self.table = table

    def recover(self) -> None:
        """Finish pending cleans, and roll back every other thing that is pending.

        There is one writer at a time, so that the writer of whatever is pending is gone.
        """
        finish_pending_cleans(self.table)
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
        """Make the instant's files visible; `schema` is the table's in Avro, "" where it is not known.

        Raises ConcurrentWrite if someone rolled the instant back.
        """
        written = tuple(sorted(stats, key=lambda stat: stat.path))
        stated = {SCHEMA_KEY: schema} if schema else {}
        metadata = CommitMetadata(operation.upper(), written, stated)
        content = metadata.to_bytes(self.table.config.layout_version)
        done = self.table.timeline().create_completed(instant, content)
        delete_markers(self.table.storage, instant.time)
        return Commit(
            instant.time, done.completion_time or instant.time, done.action, operation, written
        )
