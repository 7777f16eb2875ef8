"""The archived timeline of layout 2, and archiving, which moves old instants there from the active timeline.

Every reader counts instants older than the active timeline as committed, so archiving makes visible
whatever it passes: files that no instant committed are removed first, and a replaced file group must be
cleaned before the replacing instant is archived. So must a log whose base file was begun while it was
written. The last checkpoint of each stream stays on the active timeline. If an archiving dies, the next one
finishes it: instants leave the active timeline only once the history has them, oldest first, so that the
active timeline never has a gap. Sources: TimelineArchiverV2,
org.apache.hudi.client.timeline.versioning.v2.LSMTimelineWriter and
org.apache.hudi.common.table.timeline.LSMTimeline.

The history is instants in Parquet files, listed by a manifest:

    <first instant>_<last instant>_<layer>.parquet    rows of HoodieLSMTimelineInstant
    manifest_<n>                                      the Parquet files that count, as JSON
    _version_                                         the newest n

A manifest is written before `_version_` points to it, so that readers see either the old or the new state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.avro.codec import hudi_schema
from serde_lab.errors import OptionError, TableError
from serde_lab.records.buffers import parquet_errors
from serde_lab.table.files.file_system_view import TableFiles, list_table_files, visibility_of
from serde_lab.table.index.hashing_metadata import confirm_hashing_metadata
from serde_lab.table.services.replacing import REPLACE_COMMIT
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import keep_checkpoints
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, CommitMetadata, Instant, Timeline

FILES_PER_LAYER = 10
"""This many files of one layer are merged into one of the next (Hudi's default)."""
MANIFESTS_KEPT = 3

_NAME = re.compile(r"^(\d+)_(\d+)_(\d+)\.parquet$")
_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_AVRO = json.dumps(hudi_schema("HoodieLSMTimelineInstant"))


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """One archived action. `metadata`: content of its completed file; `plan`: of its requested file."""

    time: str
    completion_time: str | None
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None


class LsmHistory:
    """The history folder of one table."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def instants(self) -> list[ArchivedInstant]:
        """All archived instants, by time; one entry per instant and action."""
        found: dict[tuple[str, str], ArchivedInstant] = {}
        for name in self._files():
            for row in self._read(name).to_pylist():
                instant = ArchivedInstant(
                    row["instantTime"],
                    row["completionTime"],
                    row["action"],
                    row["metadata"],
                    row["plan"],
                )
                found[(instant.time, instant.action)] = instant
        return [found[key] for key in sorted(found)]

    def times(self, among: Collection[str] | None = None) -> set[tuple[str, str]]:
        """(time, action) of all archived instants, without reading their metadata.

        With `among`, files whose names say that they hold none of these times are not read.
        """
        names = self._files()
        if among is not None:
            names = [n for n in names if any(_parts(n)[0] <= t <= _parts(n)[1] for t in among)]
        return {
            (row["instantTime"], row["action"])
            for name in names
            for row in self._read(name, ["instantTime", "action"]).to_pylist()
        }

    def add(self, instants: Sequence[ArchivedInstant]) -> None:
        """Append instants, in order of time, and merge small files into larger ones."""
        if not instants:
            return
        ordered = sorted(instants, key=lambda instant: (instant.time, instant.action))
        self._add_file(_table(ordered), (ordered[0].time, ordered[-1].time, 0), [])
        layer = 0
        while self._merge_layer(layer):
            layer += 1
        self._drop_old_manifests()

    def _merge_layer(self, layer: int) -> bool:
        names = [name for name in self._files() if _parts(name)[2] == layer]
        if len(names) < FILES_PER_LAYER:
            return False
        oldest = sorted(names)[:FILES_PER_LAYER]
        rows = pa.concat_tables([self._read(name) for name in oldest])
        first = min(_parts(name)[0] for name in oldest)
        last = max(_parts(name)[1] for name in oldest)
        self._add_file(rows, (first, last, layer + 1), oldest)
        return True

    def _add_file(self, rows: pa.Table, parts: tuple[str, str, int], instead: list[str]) -> None:
        name = "{}_{}_{}.parquet".format(*parts)
        out = pa.BufferOutputStream()
        with pq.ParquetWriter(out, _SCHEMA, compression="gzip", compression_level=6) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"parquet.avro.schema": _AVRO})
        content = out.getvalue()
        # a file of this name that is in no manifest was left by an archiving that died
        self._storage.replace(f"{self._folder}/{name}", content)
        version = self._version()
        entries = [e for e in self._manifest(version) if e["fileName"] not in (name, *instead)]
        entries.append({"fileName": name, "fileLen": content.size})
        text = json.dumps({"files": entries}, indent=2)
        self._storage.replace(f"{self._folder}/manifest_{version + 1}", text.encode())
        self._storage.replace(f"{self._folder}/_version_", str(version + 1).encode())

    def _drop_old_manifests(self) -> None:
        newest = self._version()
        kept: set[str] = set()
        manifests = sorted(self._manifest_versions())
        for version in manifests[-MANIFESTS_KEPT:]:
            kept.update(entry["fileName"] for entry in self._manifest(version))
        for version in manifests[:-MANIFESTS_KEPT]:
            if version != newest:
                self._storage.delete(f"{self._folder}/manifest_{version}")
        for file in self._storage.list_folder(self._folder)[1]:
            if _NAME.match(file.name) and file.name not in kept:
                self._storage.delete(file.path)

    def _files(self) -> list[str]:
        return [entry["fileName"] for entry in self._manifest(self._version())]

    def _version(self) -> int:
        """The newest manifest's number, 0 if there is none."""
        content = self._storage.get_if_present(f"{self._folder}/_version_")
        if content is not None and content.strip().isdigit():
            return int(content)
        return max(self._manifest_versions(), default=0)

    def _manifest_versions(self) -> list[int]:
        names = [f.name for f in self._storage.list_folder(self._folder)[1]]
        numbers = [n.removeprefix("manifest_") for n in names if n.startswith("manifest_")]
        return [int(number) for number in numbers if number.isdigit()]

    def _manifest(self, version: int) -> list[dict[str, Any]]:
        if version < 1:
            return []
        path = f"{self._folder}/manifest_{version}"
        try:
            files = json.loads(self._storage.get(path))["files"]
        except (ValueError, KeyError, TypeError) as exc:
            raise TableError(f"{self._storage.describe(path)}: is not a manifest: {exc}") from exc
        return list(files)

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        path = f"{self._folder}/{name}"
        with parquet_errors(self._storage.describe(path), TableError):
            table = pq.read_table(self._storage.open_input(path), columns=columns)
        if columns is not None:
            return table
        return table.select(_SCHEMA.names).cast(_SCHEMA)


def _table(instants: Sequence[ArchivedInstant]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "instantTime": i.time,
                "completionTime": i.completion_time,
                "action": i.action,
                "metadata": i.metadata,
                "plan": i.plan,
                "version": 1,
            }
            for i in instants
        ],
        schema=_SCHEMA,
    )


def _parts(name: str) -> tuple[str, str, int]:
    match = _NAME.match(name)
    if match is None:
        raise TableError(f"{name}: is not a history file's name")
    return match[1], match[2], int(match[3])


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
    """If more than `commits_max` writes are on the active timeline, archive all but the last `commits_min`.

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
    history = history_of(table)
    instants = _finish(timeline, history)
    writes = [i for i in instants if i.is_completed and i.action in WRITE_ACTIONS]
    if len(writes) <= commits_max:
        return None
    files = list_table_files(table.storage)
    going = _going(timeline, instants, files, writes[: len(writes) - commits_min])
    if not going:
        return None
    keep_checkpoints(table, going)
    removed = _remove_uncommitted(table, instants, going, files, history)
    history.add([_archived(timeline, instant) for instant in going])
    # a resizing that died after it completed has not recorded that its rings are in force
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
    oldest: Sequence[Instant],
) -> list[Instant]:
    """Those of the `oldest` writes that may be archived, and the services among them, by time."""
    # archiving stops at any unfinished or savepointed instant: the timeline must not get a gap
    bounds = [i.time for i in instants if not i.is_completed or i.action == "savepoint"]
    present = {(f.partition_path, f.file_id) for f in files.data_files}
    chosen: list[Instant] = []
    for write in oldest:
        # and at what completed since: a pending write must find it when it looks for conflicts
        if bounds and max(write.time, write.completion_time or "") >= min(bounds):
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

    Only the active timeline says when a write completed: readers would take a log of an archived one for
    older than that base file, and cleaning would remove it with the rows in it.
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
    """Delete data files of uncommitted instants that archiving is about to pass.

    Files older than the whole active timeline stay: it can be unknown who committed them.
    """
    gone = set(going)
    # readers will count everything older than the first remaining write as committed, including what lies
    # between it and the last archived write
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


def _finish(timeline: Timeline, history: LsmHistory) -> list[Instant]:
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
            begun = replace(instant, action=pending, completion_time=None)
            timeline.delete(replace(begun, state="inflight"))
            timeline.delete(replace(begun, state="requested"))
        timeline.delete(instant)
