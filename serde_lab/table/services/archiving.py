"""Archiving: moving old instants from the active timeline to the history, so that it stays short.

Owns which instants may go and in which order their files do; must not know how the history is stored
(`lsm_history`). What is older than the active timeline counts as committed for every reader, so that
archiving makes visible whatever it passes: a file that no instant committed is removed before, and a
replaced file group must have been cleaned before the instant that replaced it goes. Source:
TimelineArchiverV2.

An archiving that dies is taken up by the next one: instants leave the active timeline only once the
history has them, oldest first, so that the active timeline never has a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from serde_lab.errors import OptionError, TableError
from serde_lab.table.files.file_system_view import TableFiles, list_table_files, visibility_of
from serde_lab.table.index.hashing_metadata import confirm_hashing_metadata
from serde_lab.table.services.replacing import REPLACE_COMMIT
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.timeline.lsm_history import ArchivedInstant, LsmHistory
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, Instant, Timeline

# pending names under which a completed instant's other files stand
_PENDING_NAMES = {
    "commit": ("commit", "compaction"),
    "deltacommit": ("deltacommit", "logcompaction"),
    "replacecommit": ("replacecommit", "clustering"),
}
# services that go with the commits around them; others (savepoints, indexing) stay
_FOLLOWERS = frozenset({"clean", "rollback"})


@dataclass(frozen=True, slots=True)
class Archived:
    """What one archiving moved, and which uncommitted files it removed so that none becomes visible."""

    instants: tuple[Instant, ...]
    removed_files: tuple[str, ...]


def archive(table: HoodieTable, commits_min: int, commits_max: int) -> Archived | None:
    """If more than `commits_max` writes are on the active timeline, leave the last `commits_min`.

    None if there was nothing to do. The caller holds the table. Raises OptionError for bounds that do
    not fit, TableError for table version 6, whose history is of another form.
    """
    if not 1 <= commits_min <= commits_max:
        raise OptionError(
            f"hoodie.keep.min.commits is {commits_min} and hoodie.keep.max.commits {commits_max}; "
            "they must be at least 1 and in this order"
        )
    if table.config.layout_version == 1:
        raise TableError(
            f"table {table.config.name} is of version {table.config.version}, whose timeline is not "
            "archived"
        )
    timeline = table.timeline()
    history = history_of(table)
    _finish(timeline, history)
    instants = timeline.instants()
    files = list_table_files(table.storage)
    going = _going(timeline, instants, files, commits_min, commits_max)
    if not going:
        return None
    removed = _remove_uncommitted(table, instants, going, files, history)
    history.add([_archived(timeline, instant) for instant in going])
    # a resizing that died after it completed has not noted that its rings are in force
    confirm_hashing_metadata(table.storage, {i.time for i in going if i.action == REPLACE_COMMIT})
    _leave(timeline, going)
    return Archived(tuple(going), removed)


def history_of(table: HoodieTable) -> LsmHistory:
    """The archived timeline of a table of layout 2."""
    return LsmHistory(table.storage, table.config.history_folder)


def _going(
    timeline: Timeline,
    instants: Sequence[Instant],
    files: TableFiles,
    commits_min: int,
    commits_max: int,
) -> list[Instant]:
    """The oldest writes, as many as may go, and the services among them, by time."""
    writes = [i for i in instants if i.is_completed and i.action in WRITE_ACTIONS]
    if len(writes) <= commits_max:
        return []
    # whatever is unfinished or pinned ends what may go: the timeline must not get a hole
    bounds = [i.time for i in instants if not i.is_completed or i.action == "savepoint"]
    present = {(f.partition_path, f.file_id) for f in files.data_files}
    chosen: list[Instant] = []
    for write in writes[: len(writes) - commits_min]:
        if bounds and write.time >= min(bounds):
            break
        if write.action == REPLACE_COMMIT and _replaced(timeline, write) & present:
            break
        chosen.append(write)
    if not chosen:
        return []
    newest = chosen[-1].time
    followers = [
        i for i in instants if i.is_completed and i.action in _FOLLOWERS and i.time < newest
    ]
    return sorted([*chosen, *followers], key=lambda i: (i.time, i.action))


def _replaced(timeline: Timeline, instant: Instant) -> set[tuple[str, str]]:
    metadata = CommitMetadata.from_bytes(timeline.read(instant), timeline.path(instant))
    return {
        (partition, file_id)
        for partition, ids in (metadata.replaced_file_ids or {}).items()
        for file_id in ids
    }


def _remove_uncommitted(
    table: HoodieTable,
    instants: Sequence[Instant],
    going: Sequence[Instant],
    files: TableFiles,
    history: LsmHistory,
) -> tuple[str, ...]:
    """Delete data files of instants that nobody committed and that archiving is about to pass.

    Files older than the whole active timeline are left alone: who committed them can be unknown.
    """
    gone = set(going)
    # readers will take for committed whatever is older than the first write that stays: also what
    # lies between it and the last one that goes
    start = visibility_of(i for i in instants if i not in gone).start
    first = min(i.time for i in instants)
    known = {i.time for i in instants} | {time for time, _ in history.times()}
    removed = [
        file.path
        for file in files.data_files
        if first <= file.instant < start and file.instant not in known
    ]
    for path in removed:
        table.storage.delete(path)
    return tuple(sorted(removed))


def _archived(timeline: Timeline, instant: Instant) -> ArchivedInstant:
    plan = None
    for pending in _PENDING_NAMES.get(instant.action, (instant.action,)):
        requested = Instant(instant.time, pending, "requested")
        content = timeline.read_if_present(requested)
        if content:
            plan = content
    return ArchivedInstant(
        instant.time, instant.completion_time, instant.action, timeline.read(instant), plan
    )


def _finish(timeline: Timeline, history: LsmHistory) -> None:
    """Remove from the active timeline what the history has: an archiving died in between."""
    archived = history.times()
    left = [i for i in timeline.instants() if i.is_completed and (i.time, i.action) in archived]
    _leave(timeline, left)


def _leave(timeline: Timeline, going: Sequence[Instant]) -> None:
    for instant in sorted(going, key=lambda i: (i.time, i.action)):
        # the pending files first: alone they would look like a write that never completed
        for pending in _PENDING_NAMES.get(instant.action, (instant.action,)):
            begun = replace(instant, action=pending, completion_time=None)
            timeline.delete(replace(begun, state="inflight"))
            timeline.delete(replace(begun, state="requested"))
        timeline.delete(instant)
