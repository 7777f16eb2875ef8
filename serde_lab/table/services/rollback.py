"""Rollback: undoes an instant that was begun and never completed, and records it in a `.rollback` instant.

The caller holds the table's lock, so the writer of a pending instant is dead unless its heartbeat says
otherwise. The instants of live writers are left alone.

The order lets the next rollback finish one that died: plan, inflight, data files, the failed instant's own
files, completed, markers. Files are found by the instant's markers and by the instant in their names, which
also finds files of a writer without markers. A replacecommit's new rings and bucket rules are removed too.

An instant in which micro-batches are stored is never rolled back: only the files of the unfinished batch are
removed, and the caller commits the others.

A completed file may also land after its instant was rolled back; `recover` removes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from serde_lab.avro.codec import hudi_schema, read_single, write_single
from serde_lab.errors import ConcurrentWrite, TableError
from serde_lab.table.files.file_system_view import TableFiles, late_completions, list_table_files
from serde_lab.table.files.log_block import LogBlock, parse_blocks
from serde_lab.table.index.consistent_hashing import delete_index_files
from serde_lab.table.services.cleaning import Cleaned, finish_pending_cleans
from serde_lab.table.storage.data_files import (
    BaseFileName,
    LogFileName,
    delete_markers,
    in_partition,
    list_markers,
)
from serde_lab.table.storage.lock import live_writers, remove_heartbeat
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import (
    SharedInstant,
    read_manifest,
    remove_late_manifests,
    remove_unnamed,
)
from serde_lab.table.timeline.timeline import Instant, Timeline, latest

ROLLBACK = "rollback"
_SCHEDULED = frozenset({"compaction", "logcompaction"})
_SERVICES = frozenset({"clean", "indexing", "restore", "savepoint"})


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What one rollback undid."""

    instant: str
    action: str
    deleted_files: tuple[str, ...]


def rollback_pending(table: HoodieTable) -> tuple[RolledBack, ...]:
    """Roll back every pending write, and finish every pending rollback. Oldest first.

    Instants with stored micro-batches and those of live writers stay as they are.

    Raises TableError for a pending instant of a kind that cannot be undone here.
    """
    undone = []
    for pending in table.timeline().pending():
        if pending.action == ROLLBACK:
            undone += _resume(table, pending)
    left = table.timeline().pending()
    alive = live_writers(table.storage, (pending.time for pending in left))
    for pending in left:
        if pending.time in alive:
            continue
        if pending.action in _SCHEDULED and _has_logs(table, pending):
            # they carry the instant of its base file, which would never exist
            raise TableError(
                f"{table.storage.url}: {pending.action} is pending at {pending.time} on a table of "
                f"version {table.config.version}; only Apache Hudi can finish it"
            )
        if read_manifest(table, pending) is not None:
            continue
        if pending.is_write:
            undone.append(rollback_instant(table, pending))
        elif pending.action in _SERVICES - {"clean"}:
            raise TableError(
                f"{table.storage.url}: {pending.action} of another writer is pending at "
                f"{pending.time}; only that writer can finish it"
            )
    return tuple(undone)


def _remove_late_completions(table: HoodieTable) -> None:
    """Remove instants that completed after their rollback, and all but the last completed file of any."""
    timeline = table.timeline()
    files = timeline.files()
    counts = set(latest(files))
    superseded = [one for one in files if one.is_completed and one not in counts]
    for gone in (*superseded, *late_completions(timeline, files)):
        timeline.delete(gone)


def _has_logs(table: HoodieTable, compaction: Instant) -> bool:
    """Whether logs before table version 8 were written on the base files of a pending compaction."""
    logs = list_table_files(table.storage).log_files if table.config.layout_version == 1 else ()
    return any(log.instant == compaction.time for log in logs)


def rollback_instant(table: HoodieTable, failed: Instant) -> RolledBack:
    """Undo one pending instant; this adds a `.rollback` instant to the timeline."""
    timeline = table.timeline()
    files = files_of(table, failed.time)
    rollback = timeline.new_instant(ROLLBACK)
    rollback = timeline.create_requested(rollback, _plan(table.storage, failed, files))
    rollback = timeline.create_inflight(rollback)
    return _execute(table, timeline, rollback, failed.time, failed.action, files)


def files_of(table: HoodieTable, instant: str) -> tuple[str, ...]:
    """Paths of all data files that an instant wrote or was about to write.

    Raises TableError for a log file that holds blocks of other instants too (before table version 8).
    """
    files = list_table_files(table.storage)
    found = _named_after(table, instant, files)
    for path in {marker.path for marker in list_markers(table.storage, instant)}:
        base = BaseFileName.parse(path.rpartition("/")[2])
        if base is not None and base.instant != instant:
            # until 0.15 Apache Hudi marks the base file to whose log it appends
            _check_no_block(table.storage, files, path, base, instant)
            continue
        if table.config.layout_version == 1:
            _check_own_log(table.storage, path, instant)
        found.add(path)
    return tuple(sorted(found))


def _named_after(table: HoodieTable, instant: str, files: TableFiles | None = None) -> set[str]:
    """Paths of the data files whose names have the instant that wrote them."""
    files = files or list_table_files(table.storage)
    # before layout 2 a log file's name has the base file's instant, and it holds other instants' blocks too
    own = files.data_files if table.config.layout_version == 2 else files.base_files
    return {file.path for file in own if file.instant == instant}


def _check_own_log(storage: Storage, path: str, instant: str) -> None:
    if LogFileName.parse(path.rpartition("/")[2]) is None:
        return
    for other in _instants_of_blocks(storage, path) - {instant}:
        raise TableError(
            f"{storage.describe(path)}: instant {instant} appended to it and never completed, and "
            f"it holds a block of instant {other} too; only Apache Hudi can undo that"
        )


def _check_no_block(
    storage: Storage, files: TableFiles, path: str, base: BaseFileName, instant: str
) -> None:
    """Raise TableError if `instant` appended to a log of the base file at `path`."""
    group = (path.rpartition("/")[0], base.file_id, base.instant)
    for log in files.log_files:
        mine = (log.partition_path, log.file_id, log.instant) == group
        if mine and instant in _instants_of_blocks(storage, log.path):
            raise TableError(
                f"{storage.describe(log.path)}: instant {instant} appended to it and never completed;"
                " only Apache Hudi can undo that"
            )


def _instants_of_blocks(storage: Storage, path: str) -> set[str]:
    blocks = parse_blocks(pa.py_buffer(storage.get_if_present(path) or b""))
    return {block.instant for block in blocks if isinstance(block, LogBlock)}


def _resume(table: HoodieTable, rollback: Instant) -> list[RolledBack]:
    """Finish a rollback that died, from its plan."""
    timeline = table.timeline()
    requested = replace(rollback, state="requested")
    where = table.storage.describe(timeline.path(requested))
    content = timeline.read(requested)
    if not content:
        # it had not begun: the failed instant still exists, for a new rollback
        timeline.delete_pending(rollback)
        return []
    plan = read_single(content, where)
    target = plan.get("instantToRollback") or {}
    failed, action = target.get("commitTime"), target.get("action")
    if not failed or not action:
        raise TableError(f"{where}: names no instant to roll back")
    if any(i.is_completed and i.time == failed for i in timeline.instants()):
        if table.storage.exists(timeline.path(Instant(failed, action, "inflight"))):
            # it completed before anything of it was deleted
            timeline.delete_pending(rollback)
            return []
        raise TableError(
            f"{where}: rolls back instant {failed}, which completed; only the writer that planned "
            "it can finish it"
        )
    requests = plan.get("RollbackRequests") or ()
    if table.config.layout_version == 1 and any(r.get("logBlocksToBeDeleted") for r in requests):
        raise TableError(
            f"{where}: hides blocks of instant {failed} in log files; only Apache Hudi can finish it"
        )
    planned = {
        in_partition(request["partitionPath"], path.rpartition("/")[2])
        for request in requests
        for path in request.get("filesToBeDeleted") or ()
    }
    if rollback.state == "requested":
        rollback = timeline.create_inflight(rollback)
    files = tuple(sorted(planned | set(files_of(table, failed))))
    return [_execute(table, timeline, rollback, failed, action, files)]


def _execute(
    table: HoodieTable,
    timeline: Timeline,
    rollback: Instant,
    failed: str,
    action: str,
    files: tuple[str, ...],
) -> RolledBack:
    started = time.perf_counter_ns()
    storage = table.storage
    # the inflight file goes first: a worker that is still alive then refuses to place a file
    inflight = Instant(failed, action, "inflight")
    untouched = storage.exists(timeline.path(inflight))
    timeline.delete(inflight)
    if any(one.is_completed and one.time == failed for one in timeline.instants()):
        if untouched:
            _leave_alone(timeline, inflight, rollback)
        raise ConcurrentWrite(
            f"{storage.url}: instant {failed} completed while it was being rolled back",
            hint="try again",
        )
    late = files_of(table, failed)
    deleted = []
    for path in sorted({*files, *late}):
        if storage.exists(path):
            storage.delete(path)
            deleted.append(path)
    if inflight.completed_action == "replacecommit":
        delete_index_files(storage, failed)
    timeline.delete(Instant(failed, action, "requested"))
    elapsed_ms = (time.perf_counter_ns() - started) // 1_000_000
    metadata = _metadata(storage, rollback, failed, action, deleted, elapsed_ms)
    timeline.create_completed(rollback, metadata)
    delete_markers(storage, failed)
    remove_heartbeat(storage, failed)
    return RolledBack(failed, action, tuple(deleted))


def _leave_alone(timeline: Timeline, inflight: Instant, rollback: Instant) -> None:
    """Take a rollback back that has deleted nothing but the inflight file.

    The writer, whom we took for dead, looks for that file once more: its commit stands if the file is there,
    otherwise it takes the commit back.
    """
    timeline.create_inflight(inflight)
    timeline.delete_pending(rollback)


def _plan(storage: Storage, failed: Instant, files: tuple[str, ...]) -> bytes:
    return write_single(
        hudi_schema("HoodieRollbackPlan"),
        {
            "instantToRollback": {"commitTime": failed.time, "action": failed.action},
            "RollbackRequests": [
                {
                    "partitionPath": path.rpartition("/")[0],
                    "fileId": "",
                    "latestBaseInstant": "",
                    "filesToBeDeleted": [storage.describe(path)],
                    "logBlocksToBeDeleted": {},
                }
                for path in files
            ],
            "version": 1,
        },
    )


def _metadata(
    storage: Storage,
    rollback: Instant,
    failed: str,
    action: str,
    deleted: list[str],
    elapsed_ms: int,
) -> bytes:
    partitions: dict[str, dict[str, Any]] = {}
    for path in deleted:
        partition = path.rpartition("/")[0]
        entry = partitions.setdefault(
            partition,
            {
                "partitionPath": partition,
                "successDeleteFiles": [],
                "failedDeleteFiles": [],
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            },
        )
        entry["successDeleteFiles"].append(storage.describe(path))
    return write_single(
        hudi_schema("HoodieRollbackMetadata"),
        {
            "startRollbackTime": rollback.time,
            "timeTakenInMillis": elapsed_ms,
            "totalFilesDeleted": len(deleted),
            "commitsRollback": [failed],
            "partitionMetadata": partitions,
            "version": 1,
            "instantsRollback": [{"commitTime": failed, "action": action}],
        },
    )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What earlier writers left behind and was repaired.

    `shared`: pending instants with stored micro-batches, which are still to be committed. `alive`: pending
    instants that were left alone, and their writers.
    """

    rolled_back: tuple[RolledBack, ...]
    cleaned: tuple[Cleaned, ...]
    shared: tuple[SharedInstant, ...] = ()
    alive: Mapping[str, str] = field(default_factory=dict)


def recover(table: HoodieTable) -> Recovered:
    """Roll back every pending write of a dead writer, finish every pending clean, and remove what completed
    after it was rolled back.

    Of an instant with stored micro-batches only the unfinished batch is undone. Raises TableError for a
    pending instant that only its own writer can finish.
    """
    _remove_late_completions(table)
    rolled_back = rollback_pending(table)
    cleaned = finish_pending_cleans(table)
    left = table.timeline().pending()
    found = (read_manifest(table, pending) for pending in left)
    shared = tuple(one for one in found if one is not None)
    for one in shared:
        remove_late_manifests(table, one)
        remove_unnamed(table, one)
        # and those whose markers were deleted: they would count once the instant is committed
        for path in _named_after(table, one.instant.time) - one.paths:
            table.storage.delete(path)
    alive = live_writers(table.storage, (pending.time for pending in left))
    return Recovered(rolled_back, cleaned, shared, alive)
