"""The checkpoints of streams, and the instants that several micro-batches of a stream share.

A stream's commit names its batch in the extra metadata, in the form of Apache Hudi's own streaming sink, so
that the lab and Hudi can take over from each other. A second key, which Hudi ignores, names the query:

    _hudi_streaming_sink_checkpoint    {"<identifier>": "<batch id>"}
    _serde_lab_streaming_query         {"<identifier>": {"query": "<id>", "operation": "<operation>", …}}

A commit may name several identifiers. Sources: HoodieStreamingSink and
CommitUtils#getValidCheckpointForCurrentWriter of Apache Hudi 1.2.0.

A shared instant, as in RFC-24's step 3, stays pending between its batches. Each batch leaves a manifest
before it counts as stored:

    .hoodie/.aux/serde_lab/<instant>/<number>.json     `number` counts the instant's batches from 0

A manifest is the commit as it would be after that batch: Hudi's commit metadata as JSON, with every file that
remains, and with the stream's checkpoint. So the newest manifest counts, and the others may go. (One that
landed after its batch was given up names files that are gone, and counts for nothing.) Files that the newest
one does not name are of a batch that died, or were replaced by a later batch. Manifests do not stand beside
the instant's markers, since Apache Hudi takes every file there for a marker.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from serde_lab.errors import ConcurrentWrite, StorageError, TableError
from serde_lab.table.storage.data_files import delete_marker, list_markers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from serde_lab.table.timeline.lsm_timeline import (
    ArchivedInstant,
    Undone,
    archived_in_layout_1,
)
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, Instant

MANIFESTS = ".hoodie/.aux/serde_lab"
"""The folder with one folder of manifests for each pending instant."""
_JSON = 1  # the layout whose commit metadata is JSON


@dataclass(frozen=True, slots=True)
class SharedInstant:
    """A pending instant with the batches that are stored in it. `metadata`: the commit that it becomes."""

    instant: Instant
    batches: int
    metadata: CommitMetadata

    @property
    def file_bytes(self) -> int:
        """Bytes of the files that wait for the commit."""
        return sum(stat.fileSizeInBytes for stat in self.metadata.write_stats)

    @property
    def paths(self) -> frozenset[str]:
        """The files that the commit will have."""
        return frozenset(stat.path for stat in self.metadata.write_stats)


def shared_instant(table: HoodieTable) -> SharedInstant | None:
    """The table's pending instant with stored batches; None if there is none."""
    for pending in table.timeline().pending():
        found = read_manifest(table, pending)
        if found is not None:
            return found
    return None


def read_manifest(table: HoodieTable, pending: Instant) -> SharedInstant | None:
    """What the newest manifest of a pending instant says; None if it has none."""
    if pending.state != "inflight" or not pending.is_write:
        return None
    storage = table.storage
    while True:
        numbers = _numbers(storage, pending.time)
        for number in numbers:
            path = _path(pending.time, number)
            content = storage.get_if_present(path)
            if content is None:
                break  # without the table's lock, a newer one may have replaced it since the listing
            metadata = CommitMetadata.from_bytes(content, storage.describe(path))
            shared = SharedInstant(pending, number + 1, metadata)
            # a batch that is stored removes the manifest before its own: this one may have landed late
            if number == numbers[-1] or all(storage.exists(path) for path in shared.paths):
                return shared
        else:
            return None


def store_batch(
    table: HoodieTable, instant: Instant, number: int, metadata: CommitMetadata
) -> SharedInstant:
    """Write the manifest of the instant's batch `number`: from now on the batch is stored.

    Files that it no longer names are removed. The caller holds the table. Raises ConcurrentWrite if somebody
    rolled the instant back.
    """
    storage, content = table.storage, metadata.to_bytes(_JSON)
    table.timeline().check_inflight(instant)
    if number == 0:
        _sweep(table)
    path = _path(instant.time, number)
    if not storage.put_new(path, content) and storage.get(path) != content:
        # the same content: the answer to our own put was lost, and the put was repeated
        raise ConcurrentWrite(
            f"{storage.describe(path)}: another writer stored a batch in our instant {instant.time}"
        )
    shared = SharedInstant(instant, number + 1, metadata)
    with suppress(StorageError):  # the batch is stored; the next one removes what is left
        remove_unnamed(table, shared)
        if number:
            storage.delete(_path(instant.time, number - 1))
    return shared


def remove_late_manifests(table: HoodieTable, shared: SharedInstant) -> None:
    """Remove the manifests of batches that were given up before they landed; the caller holds the table."""
    for number in _numbers(table.storage, shared.instant.time):
        if number >= shared.batches:
            table.storage.delete(_path(shared.instant.time, number))


def remove_unnamed(table: HoodieTable, shared: SharedInstant) -> tuple[str, ...]:
    """Remove the instant's files that its manifest does not name; returns their paths."""
    removed, named = [], shared.paths
    for marker in list_markers(table.storage, shared.instant.time):
        if marker.path not in named:
            table.storage.delete(marker.path)
            delete_marker(table.storage, shared.instant.time, marker)
            removed.append(marker.path)
    return tuple(removed)


def delete_manifests(storage: Storage, instant: str) -> None:
    """Remove the manifests of an instant that completed; no error if there are none."""
    storage.delete_folder(_folder(instant))


def _sweep(table: HoodieTable) -> None:
    """Remove the manifests of instants that are no longer pending."""
    pending = {instant.time for instant in table.timeline().pending()}
    for folder in table.storage.list_folder(MANIFESTS)[0]:
        if folder.rpartition("/")[2] not in pending:
            table.storage.delete_folder(folder)


def _folder(instant: str) -> str:
    return f"{MANIFESTS}/{instant}"


def _numbers(storage: Storage, instant: str) -> list[int]:
    """The numbers of the instant's manifests, the newest first."""
    names = (file.name.partition(".") for file in storage.list_files(_folder(instant)))
    # a copy of a manifest under another name is none
    found = (number for number, _, form in names if number.isdecimal() and form == "json")
    return sorted(map(int, found), reverse=True)


def _path(instant: str, number: int) -> str:
    return f"{_folder(instant)}/{number}.json"


SINK_KEY = "_hudi_streaming_sink_checkpoint"
"""Key of the extra metadata that Apache Hudi's streaming sink also writes and reads."""
QUERY_KEY = "_serde_lab_streaming_query"
"""Key of the extra metadata that names the query of each identifier; only the lab writes it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last stored micro-batch of an identifier.

    `query`: Spark's id of the query that wrote it, "" for a batch written outside of a query, None if
    Apache Hudi's sink wrote it, which names no query. `operation`: what the query does with its rows.
    `planned_ms`: when Spark chose the batch's rows, None if that is not known.
    """

    batch: int
    query: str | None = None
    operation: str | None = None
    planned_ms: int | None = None


def extra_metadata(checkpoints: Mapping[str, Checkpoint]) -> dict[str, str]:
    """The extra metadata of a commit that stores `checkpoints`, by identifier."""
    batches = {identifier: str(one.batch) for identifier, one in checkpoints.items()}
    queries = {
        identifier: {"query": one.query, "operation": one.operation}
        | ({} if one.planned_ms is None else {"planned_ms": one.planned_ms})
        for identifier, one in checkpoints.items()
        if one.query is not None
    }
    stated = {SINK_KEY: json.dumps(batches)}
    return {**stated, QUERY_KEY: json.dumps(queries)} if queries else stated


def checkpoints_in(metadata: CommitMetadata, where: str) -> dict[str, Checkpoint]:
    """The checkpoints of a commit by identifier; empty for a commit of no stream.

    Raises TableError naming `where` if a value is not in the form that Apache Hudi 1.x writes.
    """
    batches = _object(metadata, SINK_KEY, where)
    queries = _object(metadata, QUERY_KEY, where)
    found = {}
    for identifier, batch in batches.items():
        if not str(batch).isdecimal():
            raise TableError(f"{where}: {SINK_KEY} names batch {batch!r}, expected a number")
        found[identifier] = _checkpoint(int(batch), queries.get(identifier))
    return found


def newest_checkpoint(
    table: HoodieTable, identifier: str, but: Collection[Instant] = ()
) -> Checkpoint | None:
    """The identifier's last stored batch: in a pending instant, on the active timeline, or archived; None if
    it has none. Completed instants of `but` do not count.
    """
    # the pending instant comes first: if it completes meanwhile, the timeline has its batches
    shared = shared_instant(table)
    if shared is not None:
        where = f"{table.storage.url}: the pending instant {shared.instant.time}"
        found = checkpoints_in(shared.metadata, where).get(identifier)
        if found is not None:
            return found
    for instant in reversed(table.timeline().completed()):
        if instant in but:
            continue
        found = _stored_in(table, instant).get(identifier)
        if found is not None:
            return found
    return _archived_checkpoint(table, identifier)


def _archived_checkpoint(table: HoodieTable, identifier: str) -> Checkpoint | None:
    """The identifier's last batch in the archived timeline: Apache Hudi's archiving restates none."""
    active, history = table.timeline(), None
    archived: Iterable[ArchivedInstant]
    if table.config.layout_version == 1:
        archived = archived_in_layout_1(table.storage, table.config.history_folder, SINK_KEY)
    else:
        history = table.archived_timeline()
        archived = history.instants()
    undone = Undone.by_restores(active, active.instants(), history)
    found: dict[str, Checkpoint] = {}
    for one in archived:
        done, content = one.completion_time or one.time, one.metadata or b""
        stream = one.action in WRITE_ACTIONS and SINK_KEY.encode() in content
        if not stream or undone.has(one.time, done):
            continue
        where = f"{table.storage.url}: archived instant {one.time}"
        stored = checkpoints_in(CommitMetadata.from_bytes(content, where), where)
        if identifier in stored:
            found[done] = stored[identifier]
    return found[max(found)] if found else None


def keep_checkpoints(table: HoodieTable, leaving: Collection[Instant]) -> Instant | None:
    """Restate the checkpoints that would leave the active timeline with `leaving`, in a new commit.

    The commit has no files. None if the remaining commits name newer batches of every identifier. The
    caller holds the table's lock. Without this, a query that paused would find its batches forgotten.
    """
    completed = table.timeline().completed()
    if not any(_stored_in(table, instant) for instant in completed if instant in leaving):
        return None
    newest = _newest_of_each(table, completed)
    lost = {name: one for name, (instant, one) in newest.items() if instant in leaving}
    return _empty_commit(table, extra_metadata(lost)) if lost else None


def last_batches_at(table: HoodieTable, savepoint: str) -> set[str]:
    """The times of the writes that name the last batch of an identifier once the table is restored to this
    savepoint."""
    completed = table.timeline().completed()
    saved = [place for place, instant in enumerate(completed) if instant.time == savepoint]
    left = completed[: saved[-1] + 1] if saved else ()
    return {instant.time for instant, _ in _newest_of_each(table, left).values()}


def _newest_of_each(
    table: HoodieTable, completed: Iterable[Instant]
) -> dict[str, tuple[Instant, Checkpoint]]:
    """The last checkpoint of each identifier, and the write that names it."""
    newest: dict[str, tuple[Instant, Checkpoint]] = {}
    for instant in completed:
        stored = _stored_in(table, instant)
        newest.update({identifier: (instant, one) for identifier, one in stored.items()})
    return newest


def _empty_commit(table: HoodieTable, stated: Mapping[str, str]) -> Instant:
    """A commit without files; it states the table's schema, since readers take the newest one."""
    timeline, layout = table.timeline(), table.config.layout_version
    _, schema = table.schema_statement() or ("", "")
    given = {**stated, SCHEMA_KEY: schema} if schema else dict(stated)
    requested = timeline.create_requested(timeline.new_instant(table.config.write_action))
    inflight = timeline.create_inflight(requested, CommitMetadata("UPSERT").to_bytes(layout))
    content = CommitMetadata("UPSERT", (), given).to_bytes(layout)
    return timeline.create_completed(inflight, content)


def _stored_in(table: HoodieTable, instant: Instant) -> dict[str, Checkpoint]:
    where = table.storage.describe(table.timeline().path(instant))
    return checkpoints_in(table.commit_metadata(instant), where)


def _checkpoint(batch: int, query: object) -> Checkpoint:
    if not isinstance(query, dict):
        return Checkpoint(batch)
    operation, planned_ms = query.get("operation"), query.get("planned_ms")
    return Checkpoint(
        batch,
        str(query.get("query", "")),
        None if operation is None else str(operation),
        planned_ms if isinstance(planned_ms, int) else None,
    )


def _object(metadata: CommitMetadata, key: str, where: str) -> dict[str, Any]:
    text = metadata.extra_metadata.get(key)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TableError(f"{where}: {key} is {text!r}, expected a JSON object by identifier")
    return found
