"""Cleaning: removes file slices that no kept commit needs any more, and records it in a `.clean` instant.

It keeps all files of kept commits, those that a savepoint lists, and the newest slice of every file group.
Source: CleanPlanner with the policy KEEP_LATEST_COMMITS.

If a clean dies, the next one finishes it from its plan: deleting twice does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from serde_lab.avro.codec import hudi_schema, read_single, write_single
from serde_lab.errors import OptionError, TableError
from serde_lab.table.files.file_system_view import FileSlice, FileSystemView
from serde_lab.table.services.replacing import REPLACE_COMMIT
from serde_lab.table.storage.data_files import in_partition
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant

CLEAN = "clean"
POLICY = "KEEP_LATEST_COMMITS"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What one clean removed, by path, and the oldest commit whose files it kept."""

    earliest_kept: str
    deleted_files: tuple[str, ...]


def clean(table: HoodieTable, commits_kept: int) -> Cleaned | None:
    """Remove the files that only commits before the last `commits_kept` need; None if there are none.

    The caller holds the table's lock. Raises OptionError for fewer than one commit.
    """
    if commits_kept < 1:
        raise OptionError(f"hoodie.clean.commits.retained is {commits_kept}; 1 is the least")
    timeline = table.timeline()
    instants = timeline.instants()
    if any(i.action == CLEAN and not i.is_completed for i in instants):
        finish_pending_cleans(table)
        instants = timeline.instants()
    kept = _earliest_kept(instants, commits_kept)
    if kept is None:
        return None
    begun = min((i.time for i in instants if not i.is_completed), default=None)
    paths = _removable(table.view(), kept.time, begun)
    if paths:
        saved = _saved(table, instants)
        paths = [path for path in paths if path not in saved]
    if not paths:
        return None
    newest = max(i.time for i in timeline.completed())
    requested = timeline.create_requested(
        timeline.new_instant(CLEAN), _plan_bytes(table, kept, newest, paths)
    )
    # before layout 2 the inflight file repeats the plan
    content = timeline.read(requested) if timeline.layout_version == 1 else b""
    return _execute(table, timeline.create_inflight(requested, content))


def finish_pending_cleans(table: HoodieTable) -> tuple[Cleaned, ...]:
    """Finish every clean that was planned and not completed, ours or another writer's.

    One whose plan is empty has deleted nothing, and is removed: its writer died before the plan was there.
    """
    done = []
    timeline = table.timeline()
    for pending in timeline.pending():
        if pending.action != CLEAN:
            continue
        requested = replace(pending, state="requested")
        plan = timeline.read(requested)
        if not plan:
            timeline.delete_pending(pending)
            continue
        if pending.state == "requested":
            content = plan if timeline.layout_version == 1 else b""
            pending = timeline.create_inflight(pending, content)
        done.append(_execute(table, pending))
    return tuple(done)


def earliest_kept_by(table: HoodieTable, clean: Instant) -> str:
    """The earliest write whose files are all there in spite of `clean`, which may be pending.

    A clean that keeps versions of files, as Apache Hudi's can, states none; then only the latest is sure.
    One without a plan has deleted nothing: "".
    """
    timeline = table.timeline()
    if not clean.is_completed:
        # it may delete at any moment, or have died after it did
        clean = replace(clean, state="requested")
    content = timeline.read(clean)
    if not content and not clean.is_completed:
        return ""
    stated = read_single(content, table.storage.describe(timeline.path(clean)))
    kept = stated.get("earliestCommitToRetain") or _earliest_planned(stated)
    return str(kept or stated.get("lastCompletedCommitTimestamp") or "")


def _earliest_planned(plan: dict[str, Any]) -> str:
    return (plan.get("earliestInstantToRetain") or {}).get("timestamp") or ""


def _earliest_kept(instants: Iterable[Instant], commits_kept: int) -> Instant | None:
    """The first of the last `commits_kept` commits; earlier if a savepoint or a pending instant is older."""
    known = tuple(instants)
    writes = [i for i in known if i.is_completed and i.is_write]
    if len(writes) <= commits_kept:
        return None
    earliest = writes[len(writes) - commits_kept]
    pinned = [i.time for i in known if i.action == "savepoint"]
    pinned += [i.time for i in known if not i.is_completed]
    # what it replaced stays, so Apache Hudi must not take it for cleaned
    pinned += [
        i.time
        for i in writes
        if i.action == REPLACE_COMMIT and i.time < earliest.time <= (i.completion_time or i.time)
    ]
    if pinned and min(pinned) < earliest.time:
        before = [i for i in writes if i.time <= min(pinned)]
        return before[-1] if before else None
    return earliest


def _saved(table: HoodieTable, instants: Iterable[Instant]) -> set[str]:
    """The files that savepoints list: a restore needs them, whatever commits they belong to."""
    found: set[str] = set()
    timeline = table.timeline()
    for one in instants:
        if one.action != "savepoint" or not one.is_completed:
            continue
        stated = read_single(timeline.read(one), table.storage.describe(timeline.path(one)))
        for partition, listed in (stated.get("partitionMetadata") or {}).items():
            names = listed.get("savepointDataFile") or ()
            found |= {in_partition(partition, name) for name in names}
    return found


def _removable(view: FileSystemView, earliest: str, begun: str | None) -> list[str]:
    """Files that neither the commits from `earliest` on need, nor a write that is pending since `begun`."""

    def was_seen(slice_: FileSlice) -> bool:
        # a write that began earlier may have completed after the pending one had looked at the table
        completed = view.visibility.completion_of(slice_.base_instant)
        return begun is None or (completed is not None and completed <= begun)

    paths: list[str] = []
    for slices in view.file_groups():
        needed = [i for i, s in enumerate(slices) if s.base_instant <= earliest and was_seen(s)]
        # the newest slice that the earliest kept commit saw, and all after it, stay
        for slice_ in slices[: needed[-1] if needed else 0]:
            paths += slice_.paths
    return sorted({*paths, *view.replaced_before(earliest)})


def _plan_bytes(table: HoodieTable, kept: Instant, newest: str, paths: list[str]) -> bytes:
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        entry = {"filePath": table.storage.describe(path), "isBootstrapBaseFile": False}
        by_partition.setdefault(path.rpartition("/")[0], []).append(entry)
    return write_single(
        hudi_schema("HoodieCleanerPlan"),
        {
            "earliestInstantToRetain": {
                "timestamp": kept.time,
                "action": kept.action,
                "state": "COMPLETED",
            },
            "lastCompletedCommitTimestamp": newest,
            "policy": POLICY,
            "filesToBeDeletedPerPartition": None,
            "version": 2,
            "filePathsToBeDeletedPerPartition": by_partition,
            "partitionsToBeDeleted": [],
        },
    )


def _execute(table: HoodieTable, inflight: Instant) -> Cleaned:
    started = time.perf_counter_ns()
    timeline = table.timeline()
    where = table.storage.describe(timeline.path(replace(inflight, state="requested")))
    plan = read_single(timeline.read(replace(inflight, state="requested")), where)
    partitions: dict[str, dict[str, Any]] = {}
    deleted: list[str] = []
    # a savepoint may have been made since the clean was planned
    saved = _saved(table, timeline.instants())
    for partition, planned in sorted(_planned(plan, where).items()):
        paths = [path for path in planned if path not in saved]
        for path in paths:
            table.storage.delete(path)
            deleted.append(path)
        full = [table.storage.describe(path) for path in paths]
        partitions[partition] = {
            "partitionPath": partition,
            "policy": plan.get("policy") or POLICY,
            "deletePathPatterns": full,
            "successDeleteFiles": full,
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        }
    earliest = _earliest_planned(plan)
    metadata = {
        "startCleanTime": inflight.time,
        "timeTakenInMillis": (time.perf_counter_ns() - started) // 1_000_000,
        "totalFilesDeleted": len(deleted),
        "earliestCommitToRetain": earliest,
        "lastCompletedCommitTimestamp": plan.get("lastCompletedCommitTimestamp") or "",
        "partitionMetadata": partitions,
        "version": 2,
        "bootstrapPartitionMetadata": {},
    }
    timeline.create_completed(inflight, write_single(hudi_schema("HoodieCleanMetadata"), metadata))
    return Cleaned(earliest, tuple(deleted))


def _planned(plan: dict[str, Any], where: str) -> dict[str, list[str]]:
    """Paths by partition. A plan states full paths; only their file names are trusted."""
    if plan.get("partitionsToBeDeleted"):
        raise TableError(f"{where}: plans to delete whole partitions, which is not supported")
    found: dict[str, list[str]] = {}
    for partition, entries in (plan.get("filePathsToBeDeletedPerPartition") or {}).items():
        names = [entry["filePath"].rpartition("/")[2] for entry in entries if entry["filePath"]]
        found[partition] = [in_partition(partition, name) for name in names]
    for partition, names in (plan.get("filesToBeDeletedPerPartition") or {}).items():
        found.setdefault(partition, []).extend(
            in_partition(partition, name.rpartition("/")[2]) for name in names
        )
    return found
