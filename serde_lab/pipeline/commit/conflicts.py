"""Optimistic concurrency control: what others have committed since a write began, and whether it conflicts.

Two writes conflict if they touch the same file group: they change it, make it or replace it. With a bucket
index, the bucket identifies the file group, since two writers give a new bucket two file ids. Three rules
are stricter than Apache Hudi's:

- Without a bucket index, a write that looked its keys up conflicts with one that also adds keys to one of its
  partitions, or anywhere if the index is global: both may have added the same key.
- Two writes conflict if they store the same batch of a stream.
- Two writes conflict if each changed the table's columns, differently. A write that changes them also
  conflicts with one that began later and has committed: readers take the columns of the one that began last.

A compaction changes no rows, and logs that complete after it belong to its base files. So it conflicts only
with a write that makes base files, or that looked for keys in base files alone and logs rows to a file group
whose new base file lacks deleted keys: their rows would not be found again. Sources:
org.apache.hudi.client.transaction (SimpleConcurrentFileWritesConflictResolutionStrategy and its subclass for
the bucket index).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from serde_lab.errors import WriteConflict
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.pipeline.source.schema import misread_in_logs
from serde_lab.table.index.bucket_index import bucket_of_file_id
from serde_lab.table.index.index_kind import COVERS_LOGS
from serde_lab.table.storage.lock import LockSettings
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable, stated_columns
from serde_lab.table.timeline.checkpoints import checkpoints_in
from serde_lab.table.timeline.commit_metadata import (
    NO_PREVIOUS_COMMIT,
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
)
from serde_lab.table.timeline.timeline import Instant

_COMPACT = "COMPACT"


@dataclass(frozen=True, slots=True)
class ConflictRules:
    """What a write's conflicts depend on.

    `by_bucket`: a key's bucket is its file group. `looks_up`: the write has looked for its keys in the table.
    `is_global`: in all partitions. `logs_add_keys`: the index covers logs, so that new keys may go there.
    """

    by_bucket: bool
    looks_up: bool = True
    is_global: bool = False
    logs_add_keys: bool = False

    def clash(self, ours: CommitMetadata, theirs: CommitMetadata, where: str) -> str | None:
        """What both commits change, in words; None if they do not conflict. `where`: names theirs."""
        compacts = theirs.operation_type == _COMPACT
        mine = self._groups(ours, without_logs=compacts)
        for partition, group in sorted(mine & self._groups(theirs)):
            kind = "bucket" if self.by_bucket else "file group"
            return f"{kind} {group} of partition {partition!r}"
        if compacts and self.looks_up and not self.by_bucket and not self.logs_add_keys:
            shrunk = {(s.partitionPath, s.fileId) for s in theirs.write_stats if s.numDeletes}
            for partition, group in sorted(shrunk & self._groups(ours)):
                return f"file group {group} of partition {partition!r} without its deleted keys"
        if self.looks_up and not self.by_bucket and not compacts:
            for partition in sorted(self._grown(ours) & self._grown(theirs)):
                return f"new keys in partition {partition!r}" if partition else "new keys"
        stored = checkpoints_in(theirs, where)
        for identifier, mine_last in sorted(checkpoints_in(ours, "this write").items()):
            # a lower number is an earlier batch, which an archiving has stated again
            if identifier in stored and stored[identifier].batch >= mine_last.batch:
                return f"batch {stored[identifier].batch} of the stream {identifier}"
        return None

    def _groups(self, metadata: CommitMetadata, without_logs: bool = False) -> set[tuple[str, str]]:
        """(partition path, bucket or file id) of all file groups that a commit touches."""
        written = {
            (stat.partitionPath, stat.fileId)
            for stat in metadata.write_stats
            if not (without_logs and stat.is_log)
        }
        touched = written | metadata.replaced_file_groups
        return {(partition, self._group(file_id)) for partition, file_id in touched}

    def _group(self, file_id: str) -> str:
        return str(bucket_of_file_id(file_id)) if self.by_bucket else file_id

    def _grown(self, metadata: CommitMetadata) -> set[str]:
        """The partitions to which a commit may have added keys; "" stands for all under a global index."""
        grown = {stat.partitionPath for stat in metadata.write_stats if self._adds_keys(stat)}
        return {""} if grown and self.is_global else grown

    def _adds_keys(self, stat: WriteStat) -> bool:
        if stat.is_log:
            return self.logs_add_keys
        return stat.numInserts > 0 or stat.prevCommit == NO_PREVIOUS_COMMIT


@dataclass(frozen=True, slots=True)
class OptimisticLocking:
    """How a writer with optimistic concurrency control locks, and what conflicts with its write."""

    lock: LockSettings
    rules: ConflictRules

    @classmethod
    def of(cls, options: WriteOptions, storage: Storage) -> OptimisticLocking | None:
        """None for a single writer. Raises OptionError for a lock that does not fit the storage."""
        concurrency, table = options.concurrency, options.table
        if concurrency is None:
            return None
        concurrency.check_storage(storage)
        rules = ConflictRules(
            by_bucket=options.topology == "bucket" and not table.is_keyless,
            looks_up=options.operation.looks_up,
            is_global=table.index_is_global,
            logs_add_keys=table.index_type in COVERS_LOGS,
        )
        return cls(concurrency.lock, rules)


@dataclass(frozen=True, slots=True)
class TableAtBegin:
    """The table when an optimistic write began to look at it: completed writes, and the data columns."""

    completed: frozenset[tuple[str, str]]
    columns: pa.Schema | None

    @classmethod
    def now(cls, table: HoodieTable) -> TableAtBegin:
        """The caller holds the table's lock."""
        completed = table.timeline().completed()
        return cls(frozenset(_name(instant) for instant in completed), table.data_schema())

    def check(
        self, table: HoodieTable, rules: ConflictRules, instant: Instant, ours: CommitMetadata
    ) -> None:
        """Raises WriteConflict naming the first commit since then that conflicts with `ours`.

        `instant` is ours. The caller holds the table's lock.
        """
        for other in table.timeline().completed():
            if _name(other) in self.completed:
                continue
            theirs = table.commit_metadata(other)
            clash = rules.clash(ours, theirs, f"{table.storage.url}: instant {other.time}")
            if clash is not None:
                operation = theirs.operation_type.lower()
                raise WriteConflict(
                    f"{table.storage.url}: instant {other.time} ({operation}) of another writer has stored"
                    f" {clash} since our instant {instant.time} began; ours is rolled back",
                    hint="write again",
                )

    def after(self, own: Instant) -> TableAtBegin:
        """The same for the next write of this writer, whose instant `own` has completed."""
        return replace(self, completed=self.completed | {_name(own)})

    def schema_to_state(self, table: HoodieTable, schema: str, instant: Instant) -> str:
        """The Avro schema that our commit states: `schema`, or a later one if ours changes no columns or
        found none ("").

        Raises WriteConflict in three cases: another commit since then and ours changed the columns,
        differently; ours changes them, and a write that began later has committed; one of the two changed
        columns that other readers would then misread in partial rows that the other has logged.
        """
        last, theirs = table.schema_statement() or ("", "")
        if not schema:
            # hudi-rs cannot read a table whose last write states no columns and has no files
            return theirs
        ours = stated_columns(schema, "our schema")
        columns = stated_columns(theirs, f"instant {last}: its schema") if theirs else self.columns
        stated, now = schema, ours
        if columns not in (ours, self.columns):
            if ours != self.columns:
                raise WriteConflict(
                    f"{table.storage.url}: instant {last} of another writer has given the table other"
                    f" columns since our instant {instant.time} began, which changes them, too; ours is"
                    " rolled back",
                    hint="write again",
                )
            stated, now = theirs, columns
        if self.columns is None:
            return stated
        for name, why in misread_in_logs(table, self.columns, now, instant.time).items():
            became = "became wider" if name in self.columns.names else "came to mark deletes"
            raise WriteConflict(
                f"{table.storage.url}: column {name!r} {became} since our instant {instant.time} began, and"
                f" {why}; ours is rolled back",
                hint="compact the table, and write again",
            )
        if ours != self.columns == columns:
            self._check_began_last(table, instant)
        return stated

    def _check_began_last(self, table: HoodieTable, instant: Instant) -> None:
        for other in table.timeline().completed():
            if (
                other.time > instant.time
                and SCHEMA_KEY in table.commit_metadata(other).extra_metadata
            ):
                raise WriteConflict(
                    f"{table.storage.url}: instant {other.time} of another writer began after our instant"
                    f" {instant.time}, which changes the table's columns, and has committed: readers would"
                    " take its columns; ours is rolled back",
                    hint="write again",
                )


def _name(instant: Instant) -> tuple[str, str]:
    return instant.time, instant.action
