"""The table's files as readers see them: file groups, their slices, and which are visible when.

The timeline decides visibility. Source: org.apache.hudi.common.table.view.AbstractTableFileSystemView, and
the observed behaviour of Hudi 1.2.0 and hudi-rs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from serde_lab.avro.codec import read_single
from serde_lab.errors import TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.storage.data_files import (
    PARTITION_METADATA_FORMS,
    BaseFileName,
    LogFileName,
    is_of_the_lab,
)
from serde_lab.table.storage.storage import Storage, StoredFile
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.timeline.lsm_timeline import Undone
from serde_lab.table.timeline.timeline import Instant, Timeline, latest


@dataclass(frozen=True, slots=True, order=True)
class BaseFile:
    """A base file that was listed. `path` is relative to the table."""

    instant: str
    file_id: str
    partition_path: str
    path: str
    size_bytes: int
    write_token: str


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """A log file that was listed. `instant` is the deltacommit's; before version 8, the base file's."""

    instant: str
    version: int
    write_token: str
    file_id: str
    partition_path: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A base file and the log files on top of it, oldest first; either may be missing."""

    partition_path: str
    file_id: str
    base_instant: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = ()

    @property
    def base_path(self) -> str | None:
        return None if self.base_file is None else self.base_file.path

    @property
    def base_is_of_others(self) -> bool:
        """Whether another writer than the lab wrote its base file."""
        return self.base_file is not None and not is_of_the_lab(self.base_file.write_token)

    @property
    def base_bytes(self) -> int:
        return 0 if self.base_file is None else self.base_file.size_bytes

    @property
    def log_bytes(self) -> int:
        return sum(log.size_bytes for log in self.log_files)

    @property
    def paths(self) -> tuple[str, ...]:
        """The base file, then the log files."""
        logs = (log.path for log in self.log_files)
        return (*logs,) if self.base_path is None else (self.base_path, *logs)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """All files of a table outside `.hoodie`, by kind."""

    base_files: tuple[BaseFile, ...]
    log_files: tuple[LogFile, ...]
    partitions: tuple[str, ...]
    """Folders with partition metadata."""
    others: tuple[StoredFile, ...]
    """Other files in data folders."""

    @property
    def data_files(self) -> tuple[BaseFile | LogFile, ...]:
        return (*self.base_files, *self.log_files)


@dataclass(frozen=True, slots=True)
class Visibility:
    """Which instants' files count. Instants older than the active timeline count as committed: every
    reader assumes that archiving removed them."""

    completion_times: dict[str, str]
    """Of completed instants on the active timeline, and of archived ones where it matters."""
    start: str
    pending: frozenset[str] = frozenset()
    as_of: str | None = None
    """A completion time (in layout 1 an instant time); later instants do not count."""
    requested_by: str | None = None
    """Instants requested later do not count."""
    compacting: frozenset[str] = frozenset()
    """Pending compactions."""

    def completion_of(self, instant: str) -> str | None:
        """When the instant completed, or None if its files do not count."""
        if self.requested_by is not None and instant > self.requested_by:
            return None
        known = self.completion_times.get(instant)
        if known is None:
            if instant in self.pending or not instant < self.start:
                return None
            known = instant
        return None if self.as_of is not None and known > self.as_of else known


class FileSystemView:
    """The table's files at one moment, from a listing and a timeline read at that moment.

    `instants`: those of the active timeline then.
    """

    def __init__(
        self,
        config: TableConfig,
        files: TableFiles,
        visibility: Visibility,
        replaced: Iterable[tuple[str, str, str]] = (),
        instants: tuple[Instant, ...] = (),
    ) -> None:
        self.config, self.files, self.visibility = config, files, visibility
        self.instants = instants
        # (partition, file id) -> completion time of the replacing instant
        self._replaced = {(partition, file_id): time for partition, file_id, time in replaced}
        # partition -> the slices of each of its file groups, by file id
        self._groups: dict[str, list[list[FileSlice]]] = {}
        for (partition, _), slices in sorted(self._build().items()):
            self._groups.setdefault(partition, []).append(slices)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Paths of partitions with visible data, sorted; "" in a table without partitions."""
        return tuple(self._groups)

    def latest_file_slices(self, partition_path: str | None = None) -> tuple[FileSlice, ...]:
        """The newest slice of every file group, of one partition or of all, by partition and file id."""
        return tuple(slices[-1] for slices in self.file_groups(partition_path))

    def latest_base_files(self, partition_path: str | None = None) -> tuple[BaseFile, ...]:
        """The newest base file of each file group that has one, as a read-optimised reader takes them."""
        found = []
        for slices in self.file_groups(partition_path):
            bases = [s.base_file for s in slices if s.base_file is not None]
            found += bases[-1:]
        return tuple(found)

    def file_slices(self) -> tuple[FileSlice, ...]:
        """All slices of all file groups, older ones too, oldest first within a group."""
        return tuple(chain.from_iterable(self.file_groups()))

    def file_groups(self, partition_path: str | None = None) -> Iterable[Sequence[FileSlice]]:
        """The file groups of one partition or of all, by partition and file id: each one's slices, oldest
        first."""
        if partition_path is None:
            return chain.from_iterable(self._groups.values())
        return self._groups.get(partition_path, ())

    def empty_logs(self) -> frozenset[str]:
        """Paths of the logs without bytes, of the newest slices."""
        empty = {log.path for log in self.files.log_files if not log.size_bytes}
        newest = self.latest_file_slices() if empty else ()
        return frozenset(path for one in newest for path in one.paths if path in empty)

    @property
    def replaced_file_groups(self) -> frozenset[tuple[str, str]]:
        """(partition path, file id) of replaced groups. Readers ignore what is written under these ids
        again, as long as the replacing instant is on the active timeline."""
        return frozenset(self._replaced)

    def replaced_before(self, instant: str) -> tuple[str, ...]:
        """Paths of files whose group was replaced by an instant that completed before `instant`."""
        return tuple(
            file.path
            for file in self.files.data_files
            if self._replaced.get((file.partition_path, file.file_id), instant) < instant
        )

    def _build(self) -> dict[tuple[str, str], list[FileSlice]]:
        groups: dict[tuple[str, str], _FileGroup] = {}
        for base in sorted(self.files.base_files):
            if self._counts(base.partition_path, base.file_id, base.instant):
                group = groups.setdefault((base.partition_path, base.file_id), _FileGroup())
                if group.bases and group.bases[-1].instant == base.instant:
                    raise TableError(
                        f"file group {base.file_id} of partition {base.partition_path!r} has two "
                        f"base files of instant {base.instant}: {group.bases[-1].path} and "
                        f"{base.path}"
                    )
                group.bases.append(base)
        # Apache Hudi merges logs in the order in which their writes began (HoodieLogFile.LogFileComparator)
        for log in sorted(self.files.log_files):
            if self._counts_log(log):
                groups.setdefault((log.partition_path, log.file_id), _FileGroup()).logs.append(log)
        return {
            key: group.slices(*key, self.config.layout_version, self.visibility)
            for key, group in groups.items()
        }

    def _counts(self, partition_path: str, file_id: str, instant: str) -> bool:
        # readers look at the id: a replaced group stays hidden, whatever is written to it later
        replaced = (partition_path, file_id) in self._replaced
        return not replaced and self.visibility.completion_of(instant) is not None

    def _counts_log(self, log: LogFile) -> bool:
        if self.config.layout_version == 1 and log.instant in self.visibility.compacting:
            # the name carries the instant of the base file to come; each block has its own
            return (log.partition_path, log.file_id) not in self._replaced
        return self._counts(log.partition_path, log.file_id, log.instant)


@dataclass(slots=True)
class _FileGroup:
    bases: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)

    def slices(
        self, partition_path: str, file_id: str, layout_version: int, visibility: Visibility
    ) -> list[FileSlice]:
        """The slices, oldest first. From version 8 on a log belongs to the newest base file whose instant
        is not after the log's completion; before, to the base file whose instant is in the log's name.
        """
        logs: dict[str, list[LogFile]] = {}
        for log in self.logs:
            moment = log.instant
            if layout_version == 2:
                moment = visibility.completion_of(log.instant) or log.instant
            owners = [b.instant for b in self.bases if b.instant <= moment]
            logs.setdefault(owners[-1] if owners else "", []).append(log)

        slices = []
        if "" in logs:
            first = tuple(logs[""])
            slices.append(FileSlice(partition_path, file_id, first[0].instant, None, first))
        for base in self.bases:
            on_top = tuple(logs.get(base.instant, ()))
            slices.append(FileSlice(partition_path, file_id, base.instant, base, on_top))
        return slices


def list_table_files(storage: Storage) -> TableFiles:
    """List all files outside `.hoodie`, by kind."""
    folders, files = storage.list_folder()
    for folder in folders:
        if folder != ".hoodie":
            files = files + storage.list_files(folder)
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    partitions: set[str] = set()
    others: list[StoredFile] = []
    for file in files:
        base, log = BaseFileName.parse(file.name), LogFileName.parse(file.name)
        where = (file.folder, file.path, file.size_bytes)
        if base is not None:
            bases.append(BaseFile(base.instant, base.file_id, *where, base.write_token))
        elif log is not None:
            logs.append(LogFile(log.instant, log.version, log.write_token, log.file_id, *where))
        elif file.name in PARTITION_METADATA_FORMS:
            partitions.add(file.folder)
        else:
            others.append(file)
    return TableFiles(tuple(bases), tuple(logs), tuple(sorted(partitions)), tuple(others))


def instants_to_look_up(files: TableFiles, visibility: Visibility) -> set[str]:
    """The instants of files that the active timeline lacks, if it matters whether and when they completed.

    There are two kinds. Logs that are older than the timeline and than their group's newest base file: the
    time of completion says on which base file they lie. And files that are not older than the timeline:
    archiving went past a savepoint, or ran while the timeline was listed.
    """
    newest: dict[tuple[str, str], str] = {}
    for base in files.base_files:
        group = base.partition_path, base.file_id
        newest[group] = max(base.instant, newest.get(group, ""))
    silent = {
        log.instant
        for log in files.log_files
        if log.instant < min(visibility.start, newest.get((log.partition_path, log.file_id), ""))
    }
    silent |= {file.instant for file in files.data_files if visibility.start <= file.instant}
    return silent - visibility.completion_times.keys() - visibility.pending


def check_no_gap(
    files: TableFiles, instants: Iterable[Instant], visibility: Visibility, undone: Undone
) -> None:
    """Raise TableError for a file behind a savepoint if its instant is not on the active timeline.

    Archiving past savepoints (hoodie.archive.beyond.savepoint) leaves such files, and so does a writer that
    died. Apache Hudi 1.2.0 and hudi-rs 0.5.0 leave their rows out in either case. What a restore has undone
    does not count.
    """
    known = tuple(instants)
    kept = {one.time for one in known if one.action == "savepoint"}
    writes = {one.time for one in known if one.is_write}
    if visibility.start not in kept:
        return
    end = min(writes - kept, default=max(writes))
    for file in files.data_files:
        if undone.has(file.instant):
            continue
        if visibility.start < file.instant < end and file.instant not in writes:
            raise TableError(
                f"{file.path}: instant {file.instant} lies behind the savepoint {visibility.start} and is"
                " not on the active timeline; in a table of version 6 the lab cannot tell whether it was"
                " committed"
            )


def visibility_of(
    instants: Iterable[Instant], as_of: str | None = None, requested_by: str | None = None
) -> Visibility:
    """The visibility that the instants of the active timeline imply."""
    known = tuple(instants)
    done = [i for i in known if i.is_completed and i.is_write]
    # a savepointed write, too: Apache Hudi looks for the first one among writes alone
    writes = (i.time for i in known if i.is_write)
    return Visibility(
        completion_times={i.time: i.completion_time or i.time for i in done},
        start=min(writes, default=""),
        pending=frozenset(i.time for i in known if not i.is_completed),
        as_of=as_of,
        requested_by=requested_by,
        compacting=frozenset(
            i.time for i in known if not i.is_completed and i.action == "compaction"
        ),
    )


def replaced_file_groups(
    timeline: Timeline, visibility: Visibility, instants: Iterable[Instant]
) -> list[tuple[str, str, str]]:
    """(partition, file id, completion time) of every file group that a visible replacecommit replaced."""
    found = []
    for instant in instants:
        if not instant.is_completed or instant.action != "replacecommit":
            continue
        completion = visibility.completion_of(instant.time)
        if completion is None:
            continue
        metadata = CommitMetadata.from_bytes(timeline.read(instant), timeline.path(instant))
        found += [(*group, completion) for group in metadata.replaced_file_groups]
    return found


def late_completions(timeline: Timeline, files: Sequence[Instant]) -> tuple[Instant, ...]:
    """Instants that completed after they were rolled back: their data is gone. `files`: all of the timeline.

    A storage may carry out the put of a completed file long after the writer gave it up. Nothing else of such
    an instant is on the timeline, and a rollback names it.
    """
    begun = {one.time for one in files if not one.is_completed}
    done = [one for one in latest(files) if one.is_completed]
    found = [one for one in done if one.is_write and one.time not in begun]
    rollbacks = [one for one in done if one.action == "rollback"] if found else []
    undone = {time for one in rollbacks for time in _undone_by(timeline, one)}
    return tuple(one for one in found if one.time in undone)


def _undone_by(timeline: Timeline, rollback: Instant) -> list[str]:
    content = timeline.read_if_present(rollback)
    if not content:
        return []
    return list(read_single(content, timeline.path(rollback)).get("commitsRollback") or ())
