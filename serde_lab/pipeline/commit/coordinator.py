"""The coordinator of RFC-24, on the driver: one instant from requested to completed.

Owns who may write at all (one writer holds the table, and puts right first what a dead one left), and
the order of a commit: requested, inflight, a marker for each file, data, the check that the table is
still held and our own inflight still stands, completed, markers away. Must not know how data is
written, nor pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from serde_lab.errors import ConcurrentWrite, LabError, StorageError
from serde_lab.table.services.recovery import recover
from serde_lab.table.services.replacing import REPLACE_COMMIT, Replaced, requested_content
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.storage.markers import delete_markers, list_markers
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant

COMMIT_TRIES = 3
"""How often a commit is tried on a storage that fails, before the write is rolled back."""


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
    """Begins and completes the instants of one table, one at a time, while it holds the table."""

    def __init__(self, table: HoodieTable) -> None:
        self.table = table
        self._lock: TableLock | None = None

    @contextmanager
    def hold(self, purpose: str) -> Iterator[bool]:
        """Keep other writers out of the table, and put right what an earlier one left behind.

        May be nested; yields whether this is the outermost hold. Raises ConcurrentWrite, naming the
        other writer and its purpose, if there is one.
        """
        if self._lock is not None:
            yield False
            return
        with TableLock(self.table.storage, purpose) as lock:
            # one writer at a time: the writer of whatever is pending is gone
            recover(self.table)
            self._lock = lock
            try:
                yield True
            finally:
                self._lock = None

    def check(self) -> None:
        """Raises ConcurrentWrite if the table is not ours any more: asked before an instant completes."""
        if self._lock is not None:
            self._lock.check()

    def give_up(self, cause: BaseException, takes_table: bool = False) -> None:
        """Roll back at once what `cause` ended, as far as the storage lets us; the next writer does
        the rest. `takes_table`: and remove the table, if nothing was ever written to it.

        Not where another writer is the cause: what is pending then is that writer's.
        """
        if isinstance(cause, ConcurrentWrite):
            return
        with suppress(LabError):  # `cause` is what the caller must hear of
            self.check()
            recover(self.table)
            if takes_table:
                self.table.remove_unused()

    def begin(self, operation: str, replaces: bool = False) -> Instant:
        """Requested and inflight, on storage, before any data; `replaces`: by a replacecommit."""
        timeline = self.table.timeline()
        instant = timeline.new_instant(
            REPLACE_COMMIT if replaces else self.table.config.write_action
        )
        planned = requested_content(operation) if replaces else b""
        requested = timeline.create_requested(instant, planned)
        metadata = CommitMetadata(operation.upper())
        content = metadata.to_bytes(self.table.config.layout_version)
        return timeline.create_inflight(requested, content)

    def complete(
        self,
        instant: Instant,
        operation: str,
        stats: Iterable[WriteStat],
        schema: str,
        replaced: Replaced | None = None,
    ) -> Commit:
        """Make the instant's files visible; `schema` is the table's in Avro, "" where it is not known.

        `replaced`: the file groups that give way to them. A storage that fails is asked several times.
        Raises ConcurrentWrite if someone rolled the instant back or took the table.
        """
        written = tuple(sorted(stats, key=lambda stat: stat.path))
        stated = {SCHEMA_KEY: schema} if schema else {}
        metadata = CommitMetadata(operation.upper(), written, stated, replaced_file_ids=replaced)
        content = metadata.to_bytes(self.table.config.layout_version)
        self._remove_others(instant, written)
        done = self._completed(instant, content)
        with suppress(StorageError):  # the commit stands, and markers left behind do no harm
            # an attempt that saw the instant inflight may have come in between
            self._remove_others(instant, written)
            delete_markers(self.table.storage, instant.time)
        return Commit(
            instant.time, done.completion_time or instant.time, done.action, operation, written
        )

    def _remove_others(self, instant: Instant, written: tuple[WriteStat, ...]) -> None:
        """Remove files that attempts of no avail left: readers would take them for the instant's.

        Source: org.apache.hudi.table.HoodieTable#finalizeWrite.
        """
        storage, named = self.table.storage, {stat.path for stat in written}
        for marker in list_markers(storage, instant.time):
            if marker.path not in named and storage.exists(marker.path):
                storage.delete(marker.path)

    def _completed(self, instant: Instant, content: bytes) -> Instant:
        """The instant on storage as completed. RFC-24: the coordinator tries several times."""
        for tried in range(1, COMMIT_TRIES + 1):
            self.check()
            try:
                return self.table.timeline().create_completed(instant, content)
            except (ConcurrentWrite, StorageError) as error:
                landed = self._landed(instant, content)
                if landed is not None:
                    return landed
                if isinstance(error, ConcurrentWrite) or tried == COMMIT_TRIES:
                    raise
        raise AssertionError("every try returns or raises")

    def _landed(self, instant: Instant, content: bytes) -> Instant | None:
        """The completed instant, if the storage took it and then failed to say so; else None.

        Of a put that is tried again after its answer was lost, the second says that the file exists.
        """
        timeline = self.table.timeline()
        with suppress(StorageError):
            for found in timeline.instants():
                if found.is_completed and found.time == instant.time:
                    return found if timeline.read(found) == content else None
        return None
