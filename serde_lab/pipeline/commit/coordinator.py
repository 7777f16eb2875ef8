"""RFC-24's coordinator, on the driver: takes one instant from requested to completed.

Only one writer holds the table; it first repairs what a dead writer left. A commit goes in this order:
requested, inflight, a marker for each file, data, a check that the table is still held and that our
inflight file still exists, completed, markers removed. Several micro-batches may share an instant: between
them it stays pending, and `flush` completes it.

A writer holds the table from the first of these steps to the last. With optimistic concurrency control it
holds the table up to inflight, and again from the check on, which then also looks for conflicts; between the
two a heartbeat protects its instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from serde_lab.errors import ConcurrentWrite, LabError, StorageError
from serde_lab.pipeline.commit.conflicts import OptimisticLocking, TableAtBegin
from serde_lab.table.services.replacing import REPLACE_COMMIT, Replaced, requested_content
from serde_lab.table.services.rollback import Recovered, recover
from serde_lab.table.storage.data_files import delete_markers, list_markers
from serde_lab.table.storage.lock import Heartbeat, LockSettings, TableLock
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import SharedInstant, delete_manifests, store_batch
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant

COMMIT_TRIES = 3
"""How often a commit is tried on a failing storage before the write is rolled back."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A completed write: its instant time, its completion time, and what it wrote."""

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
        """Records that replaced a stored one; on merge-on-read, all records for existing file groups."""
        return sum(stat.numUpdateWrites for stat in self.stats)

    @property
    def rows_deleted(self) -> int:
        """Stored rows removed from a copy-on-write table; on merge-on-read, keys deleted in logs."""
        return sum(stat.numDeletes for stat in self.stats)


class Coordinator:
    """Begins and completes the instants of one table, one at a time, while it holds the table.

    `optimism`: for optimistic concurrency control; None holds the table throughout. Of the outermost hold:
    `recovered` is what was repaired, `kept` the shared instant that goes on.
    """

    def __init__(self, table: HoodieTable, optimism: OptimisticLocking | None = None) -> None:
        self.table, self.optimism = table, optimism
        self.recovered = Recovered((), ())
        self.kept: SharedInstant | None = None
        self._lock: TableLock | None = None
        self._since: TableAtBegin | None = None
        self._heartbeat: Heartbeat | None = None

    @contextmanager
    def hold(self, purpose: str, keeps: str = "") -> Iterator[bool]:
        """Lock the table against other writers, and repair what an earlier one left behind.

        An instant that micro-batches share is completed, unless it is the instant `keeps`. May be nested;
        yields whether this is the outermost hold. With optimistic concurrency control the lock is let go
        again: what others commit from now on may conflict. Raises ConcurrentWrite, naming the other writer
        and its purpose, if there is one.
        """
        if self._lock is not None or self._since is not None:
            yield False
        elif self.optimism is None:
            with self._locked(purpose, keeps):
                yield True
        else:
            with self._locked(purpose):
                self._since = TableAtBegin.now(self.table)
            try:
                yield True
            finally:
                self._since = None
                self._end_heartbeat()

    def turn(self, purpose: str, repairs: bool = False) -> AbstractContextManager[None]:
        """Lock the table for one step of an optimistic writer; any other writer holds it already.

        `repairs`: also repair what dead writers left. Raises ConcurrentWrite as `hold`.
        """
        optimistic = self.optimism is not None and self._lock is None
        return self._locked(purpose, repairs=repairs) if optimistic else nullcontext()

    @contextmanager
    def _locked(self, purpose: str, keeps: str = "", repairs: bool = True) -> Iterator[None]:
        wait_ms = 0 if self.optimism is None else self.optimism.lock.wait_ms
        with TableLock(self.table.storage, purpose, wait_seconds=wait_ms / 1000) as lock:
            self._lock = lock
            try:
                if repairs:
                    self._repair(keeps)
                yield
            finally:
                self._lock = None

    def _repair(self, keeps: str) -> None:
        # we hold the lock: the writer of a pending instant without heartbeat is dead, or between two batches
        self.kept, self.recovered = None, recover(self.table)
        if self.optimism is None:
            for instant, writer in self.recovered.alive.items():
                raise ConcurrentWrite(
                    f"{self.table.storage.url}: the table is being written by {writer}, whose instant"
                    f" {instant} is pending",
                    hint="wait until it is done, and try again",
                )
        for shared in self.recovered.shared:
            if shared.instant.time == keeps:
                self.kept = shared
            else:
                self.flush(shared)

    def _end_heartbeat(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()

    def check_stored(self) -> None:
        """Raises ConcurrentWrite if the storage has no such table any more."""
        if not self.table.is_stored:
            raise ConcurrentWrite(
                f"{self.table.storage.url}: another writer removed the table or made it anew meanwhile",
                hint="write again",
            )

    def check(self) -> None:
        """Raises ConcurrentWrite if we no longer hold the table; called before an instant completes."""
        if self._lock is not None:
            self._lock.check()

    def give_up(self, cause: BaseException, takes_table: bool = False) -> None:
        """Roll back the write that `cause` ended, as far as the storage allows; the next writer does the
        rest. Earlier batches of a shared instant stay stored.

        `takes_table`: also remove the table if nothing was ever written to it. If `cause` is a
        ConcurrentWrite, a writer without heartbeats does nothing: the pending instant may be the other one's.
        """
        if isinstance(cause, ConcurrentWrite) and self.optimism is None:
            return
        with suppress(LabError):  # the caller must see `cause`
            # without a heartbeat our instant counts as a dead writer's
            self._end_heartbeat()
            with self.turn("rollback"):
                self.check()
                recover(self.table)
                if takes_table:
                    self.table.remove_unused()

    def begin(self, operation: str, replaces: bool = False) -> Instant:
        """Create the requested and inflight files before any data; `replaces`: for a replacecommit.

        An optimistic writer first completes what micro-batches have stored in a shared instant since it held
        the table: a commit like any other, with which it may conflict.
        """
        with self.turn(operation, repairs=True):
            timeline = self.table.timeline()
            instant = timeline.new_instant(
                REPLACE_COMMIT if replaces else self.table.config.write_action
            )
            if self.optimism is not None:
                self._start_heartbeat(instant, operation, self.optimism.lock)
            planned = requested_content(operation) if replaces else b""
            requested = timeline.create_requested(instant, planned)
            metadata = CommitMetadata(operation.upper())
            content = metadata.to_bytes(self.table.config.layout_version)
            return timeline.create_inflight(requested, content)

    def _start_heartbeat(self, instant: Instant, operation: str, how: LockSettings) -> None:
        self.check_stored()
        heartbeat = Heartbeat(self.table.storage, instant.time, operation, how)
        heartbeat.start()
        self._heartbeat = heartbeat

    def complete(
        self,
        instant: Instant,
        operation: str,
        stats: Iterable[WriteStat],
        schema: str,
        replaced: Callable[[], Replaced | None] = lambda: None,
        extra: Mapping[str, str] | None = None,
    ) -> Commit:
        """Make the instant's files visible; `schema` is the table's Avro schema, "" if unknown.

        `replaced` returns the file groups that the files replace; it is called once no other writer can
        commit any more. `extra`: further extra metadata of the commit. A failing storage is tried several
        times. Raises ConcurrentWrite if someone rolled the instant back or took the table, WriteConflict if
        an optimistic write conflicts with a commit since it began.
        """
        with self.turn(operation):
            if self._since is not None:
                schema = self._since.schema_to_state(self.table, schema, instant)
            metadata = commit_metadata(operation, stats, schema, replaced(), extra)
            if self._since is not None and self.optimism is not None:
                self._since.check(self.table, self.optimism.rules, instant, metadata)
            commit = self._complete(instant, metadata)
            if self._since is not None:
                self._since = self._since.after(replace(instant, action=commit.action))
        self._end_heartbeat()
        return commit

    def store_batch(
        self,
        instant: Instant,
        number: int,
        operation: str,
        stats: Iterable[WriteStat],
        schema: str,
        extra: Mapping[str, str],
    ) -> SharedInstant:
        """Store the batch `number` of the instant, which stays pending; `stats` are of all its batches.

        When this returns, the batch outlives the driver. Readers see it after `flush`. Raises as `complete`.
        """
        self.check()
        metadata = commit_metadata(operation, stats, schema, None, extra)
        return store_batch(self.table, instant, number, metadata)

    def flush(self, shared: SharedInstant) -> Commit:
        """Complete an instant that micro-batches share. Raises as `complete`."""
        commit = self._complete(shared.instant, shared.metadata)
        # the commit is done; the next shared instant removes what is left
        with suppress(StorageError):
            delete_manifests(self.table.storage, shared.instant.time)
        return commit

    def _complete(self, instant: Instant, metadata: CommitMetadata) -> Commit:
        written = metadata.write_stats
        content = metadata.to_bytes(self.table.config.layout_version)
        self._remove_others(instant, written)
        done = self._completed(instant, content)
        with suppress(StorageError):  # the commit is done; leftover markers are harmless
            # a late attempt that still saw the inflight file may have written since
            self._remove_others(instant, written)
            delete_markers(self.table.storage, instant.time)
        completion = done.completion_time or instant.time
        operation = metadata.operation_type.lower()
        return Commit(instant.time, completion, done.action, operation, written)

    def _remove_others(self, instant: Instant, written: tuple[WriteStat, ...]) -> None:
        """Remove files left by failed attempts; readers would count them as part of the commit.

        Source: org.apache.hudi.table.HoodieTable#finalizeWrite.
        """
        storage, named = self.table.storage, {stat.path for stat in written}
        for marker in list_markers(storage, instant.time):
            if marker.path not in named and storage.exists(marker.path):
                storage.delete(marker.path)

    def _completed(self, instant: Instant, content: bytes) -> Instant:
        """Complete the instant on storage. RFC-24: the coordinator tries several times.

        All tries have one completion time, and so one file: one of them may have landed unnoticed.
        """
        timeline = self.table.timeline()
        for tried in range(1, COMMIT_TRIES + 1):
            self.check()
            try:
                if instant.completion_time is None:
                    instant = replace(instant, completion_time=timeline.completion_time(instant))
                return timeline.create_completed(instant, content)
            except (ConcurrentWrite, StorageError) as error:
                landed = self._landed(instant, content)
                if landed is not None:
                    return landed
                if isinstance(error, ConcurrentWrite) or tried == COMMIT_TRIES:
                    raise
        raise AssertionError("every try returns or raises")

    def _landed(self, instant: Instant, content: bytes) -> Instant | None:
        """The completed instant if the storage wrote it but reported a failure; otherwise None.

        If the answer to a put is lost and the put is retried, the retry fails because the file exists.
        """
        timeline = self.table.timeline()
        with suppress(StorageError):
            for found in timeline.instants():
                if found.is_completed and found.time == instant.time:
                    return found if timeline.read(found) == content else None
        return None


def commit_metadata(
    operation: str,
    stats: Iterable[WriteStat],
    schema: str,
    replaced: Replaced | None,
    extra: Mapping[str, str] | None,
) -> CommitMetadata:
    """What the completed instant says; the parameters are those of `Coordinator.complete`."""
    written = tuple(sorted(stats, key=lambda stat: stat.path))
    stated = {**(extra or {}), **({SCHEMA_KEY: schema} if schema else {})}
    return CommitMetadata(operation.upper(), written, stated, replaced_file_ids=replaced)
