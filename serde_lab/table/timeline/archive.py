"""Archiving, which moves old instants from the active timeline to the history of layout 2.

Every reader counts instants older than the active timeline as committed, so archiving makes visible
whatever it passes: files that no instant committed are removed first, and a replaced file group must be
cleaned before the replacing instant is archived. So must a log whose base file was begun while it was
written. The last checkpoint of each stream stays on the active timeline, and so does the write that states
the table's columns: later ones may state none. Both hold for each savepoint, too, since a restore takes
away what came later. If an archiving dies, the next one finishes it: instants leave the active timeline only
once the history has them, oldest first, so that the active timeline never has a gap. Source:
TimelineArchiverV2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from serde_lab.errors import OptionError, TableError
from serde_lab.table.files.file_system_view import TableFiles, list_table_files, visibility_of
from serde_lab.table.index.consistent_hashing import confirm_hashing_metadata
from serde_lab.table.services.replacing import REPLACE_COMMIT
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import keep_checkpoints, last_batches_at
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.timeline.lsm_timeline import ArchivedInstant, LsmTimeline, Undone
from serde_lab.table.timeline.timeline import Instant, Timeline

# action of a completed instant -> actions in the names of its pending files
_PENDING_NAMES = {
    "commit": ("commit", "compaction"),
    "deltacommit": ("deltacommit", "logcompaction"),
    "replacecommit": ("replacecommit", "clustering"),
}
# services archived with the commits around them; others (savepoints, indexing) stay
_FOLLOWERS = frozenset({"clean", "rollback"})


@dataclass(frozen=True, slots=True)
class Archived:
    """What one archiving moved, and which uncommitted files it removed so that none becomes visible."""

    instants: tuple[Instant, ...]
    removed_files: tuple[str, ...]


def archive(table: HoodieTable, commits_min: int, commits_max: int) -> Archived | None:
    """If more than `commits_max` writes are on the active timeline, archive those before the last
    `commits_min`, up to the first that must stay.

    None if there was nothing to do. The caller holds the table's lock. Raises OptionError for bounds that do
    not fit, TableError for table version 6, whose history has another form.
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
    history = table.archived_timeline()
    instants = _finish(timeline, history)
    writes = [i for i in instants if i.is_completed and i.is_write]
    if len(writes) <= commits_max:
        return None
    files = list_table_files(table.storage)
    needed = _needed(table, instants)
    oldest = takewhile(lambda one: one.time not in needed, writes[: len(writes) - commits_min])
    going = _going(timeline, instants, files, tuple(oldest))
    if not going:
        return None
    keep_checkpoints(table, going)
    removed = _remove_uncommitted(table, instants, going, files, history)
    history.add([_archived(timeline, instant) for instant in going])
    # a resizing that died after it completed has not recorded that its rings are in force
    confirm_hashing_metadata(table.storage, {i.time for i in going if i.action == REPLACE_COMMIT})
    _leave(timeline, going)
    return Archived(tuple(going), removed)


def _needed(table: HoodieTable, instants: Sequence[Instant]) -> set[str]:
    """The times of the writes that state the columns, now and once the table is restored to a savepoint.

    And of those that name the last batches of streams then: they cannot be restated before the savepoint.
    """
    stated = [table.schema_statement()]
    needed: set[str] = set()
    for savepoint in {one.time for one in instants if one.action == "savepoint"}:
        stated.append(table.schema_statement(savepoint))
        needed |= last_batches_at(table, savepoint)
    return needed | {one[0] for one in stated if one is not None}


def _going(
    timeline: Timeline,
    instants: Sequence[Instant],
    files: TableFiles,
    oldest: Sequence[Instant],
) -> list[Instant]:
    """Those of the `oldest` writes that may be archived, and the services among them, by time."""
    # archiving stops at any unfinished or savepointed instant: the timeline must not get a gap
    bounds = [i.time for i in instants if not i.is_completed or i.action == "savepoint"]
    # Apache Hudi's readers take files older than the timeline for committed, a pending write's too
    written = [i for i in instants if i.is_write]
    pending = min((i.time for i in written if not i.is_completed), default="")
    first = max((i.time for i in written if i.time < pending), default="")
    present = {(f.partition_path, f.file_id) for f in files.data_files}
    chosen: list[Instant] = []
    for write in oldest:
        # and at what completed since: a pending write must find it when it looks for conflicts
        if bounds and max(write.time, write.completion_time or "") >= min(bounds):
            break
        if write.time == first:
            break
        if write.action == REPLACE_COMMIT and _replaced(timeline, write) & present:
            break
        if _lies_by_completion(write, files):
            break
        chosen.append(write)
    if not chosen:
        return []
    newest = chosen[-1].time
    followers = [
        i for i in instants if i.is_completed and i.action in _FOLLOWERS and i.time < newest
    ]
    return sorted([*chosen, *followers], key=lambda i: (i.time, i.action))


def _lies_by_completion(write: Instant, files: TableFiles) -> bool:
    """Whether a log of the write lies on a base file that was begun while the write went on.

    Not every reader looks into the history for when a write completed. hudi-rs does not: it takes a log of an
    archived write for older than that base file, and leaves its rows out.
    """
    meanwhile = {
        (base.partition_path, base.file_id)
        for base in files.base_files
        if write.time < base.instant <= (write.completion_time or write.time)
    }
    return any(
        log.instant == write.time and (log.partition_path, log.file_id) in meanwhile
        for log in files.log_files
    )


def _replaced(timeline: Timeline, instant: Instant) -> set[tuple[str, str]]:
    content, where = timeline.read(instant), timeline.path(instant)
    return CommitMetadata.from_bytes(content, where).replaced_file_groups


def _remove_uncommitted(
    table: HoodieTable,
    instants: Sequence[Instant],
    going: Sequence[Instant],
    files: TableFiles,
    history: LsmTimeline,
) -> tuple[str, ...]:
    """Delete data files of instants that archiving is about to pass, and that were not committed or that a
    restore has undone.

    Files older than the whole active timeline stay: it can be unknown who committed them.
    """
    gone = set(going)
    # readers will count everything older than the first remaining write as committed, including what lies
    # between it and the last archived write
    start = visibility_of(i for i in instants if i not in gone).start
    first = min(i.time for i in instants)
    undone = Undone.by_restores(table.timeline(), instants, history)
    completed = history.completions() if undone.spans else {}
    known = {time for time, _ in history.times() if not undone.has(time, completed.get(time))}
    known |= {i.time for i in instants}
    removed = [
        file.path
        for file in files.data_files
        if (first <= file.instant or undone.has(file.instant))
        and file.instant < start
        and file.instant not in known
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


def _finish(timeline: Timeline, history: LsmTimeline) -> list[Instant]:
    """Remove instants from the active timeline that the history already has: an archiving died in between.

    Returns the instants that remain there, by time.
    """
    instants = timeline.instants()
    done = [i for i in instants if i.is_completed]
    archived = history.times({i.time for i in done})
    left = [i for i in done if (i.time, i.action) in archived]
    _leave(timeline, left)
    return [i for i in instants if i not in left]


def _leave(timeline: Timeline, going: Sequence[Instant]) -> None:
    for instant in sorted(going, key=lambda i: (i.time, i.action)):
        # the pending files first: alone they would look like a write that never completed
        for pending in _PENDING_NAMES.get(instant.action, (instant.action,)):
            timeline.delete_pending(replace(instant, action=pending))
        timeline.delete(instant)
