"""A Hudi table: creating and opening it, its timeline, its files, and removal of its metadata table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from serde_lab.avro.schema import avro_to_arrow
from serde_lab.errors import TableError
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.config import (
    INDEX_DEFINITIONS_PATH,
    METADATA_PARTITIONS,
    PROPERTIES_PATH,
    TableConfig,
    check_creatable,
)
from serde_lab.table.config_properties import CHECKSUM, from_properties, to_properties
from serde_lab.table.files.base_file import BaseFileReader, data_schema
from serde_lab.table.files.file_system_view import (
    FileSystemView,
    Visibility,
    check_no_gap,
    instants_to_look_up,
    late_completions,
    list_table_files,
    replaced_file_groups,
    visibility_of,
)
from serde_lab.table.index.index_kind import HashingConfig, save_hashing_config
from serde_lab.table.properties import format_properties, is_cut, parse_properties
from serde_lab.table.storage.data_files import PARTITION_METADATA, in_partition
from serde_lab.table.storage.lock import LOCK_FOLDER, live_writers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.commit_metadata import (
    SCHEMA_KEY,
    CommitMetadata,
    WriteStat,
    json_object,
)
from serde_lab.table.timeline.lsm_timeline import LsmTimeline, Undone
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, Instant, Timeline, latest, were_removed

_EMPTY_FOLDERS = (
    ".hoodie/.aux/.bootstrap/.fileids",
    ".hoodie/.aux/.bootstrap/.partitions",
    ".hoodie/.schema",
    ".hoodie/.temp",
)
_SERVICES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})
_NUMBERED_SCHEMA = "latest_schema"
_BACKUP_PATH = f"{PROPERTIES_PATH}.backup"
_CREATE_SCHEMA = "hoodie.table.create.schema"
_FIRST_WRITE = ".hoodie/.aux/serde_lab_first_write"
"""The properties that a first write gives the table; the file is there until that write has completed."""


class HoodieTable:
    """One table. It caches nothing: every call reads the storage."""

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self.storage, self.config = storage, config

    @classmethod
    def exists(cls, storage: Storage) -> bool:
        return storage.exists(PROPERTIES_PATH)

    @classmethod
    def create(
        cls, storage: Storage, config: TableConfig, for_first_write: bool = False
    ) -> HoodieTable:
        """Create an empty table; `for_first_write`: it is unfinished until `first_write_completed`.

        Raises OptionError if it is impossible, TableError if there is one already, or one that has lost its
        properties: its rows would count in the new table, which may have other keys and file groups.
        """
        check_creatable(config)
        _check_not_lost(storage)
        for folder in (*_EMPTY_FOLDERS, config.timeline_folder, config.history_folder):
            storage.make_folder(folder)
        if config.bucket_expressions and not cls.exists(storage):
            # written before the table exists, so that nobody sees the table without its rules
            rules = HashingConfig(config.bucket_expressions, config.bucket_count or 1)
            save_hashing_config(storage, rules)
        text = format_properties(to_properties(config), _comments("Properties saved on")).encode()
        if for_first_write and not cls.exists(storage) and not storage.put_new(_FIRST_WRITE, text):
            # of a first writer that died before it made the table
            storage.replace(_FIRST_WRITE, text)
        if not storage.put_new(PROPERTIES_PATH, text):
            raise TableError(f"{storage.url}: there already is a table")
        return cls(storage, config)

    @classmethod
    def open(cls, storage: Storage) -> HoodieTable:
        """Open an existing table. Raises TableError if there is none, or if its kind is refused."""
        table = cls.open_if_present(storage)
        if table is None:
            raise TableError(f"{storage.url}: is not a Hudi table; {PROPERTIES_PATH} is missing")
        return table

    @classmethod
    def open_if_present(cls, storage: Storage) -> HoodieTable | None:
        """The table in the storage's folder, if there is one. Raises TableError if its kind is refused."""
        content = storage.get_if_present(PROPERTIES_PATH)
        if content is None:
            return None
        return cls(storage, _config_in(content, storage.describe(PROPERTIES_PATH)))

    @property
    def is_unfinished(self) -> bool:
        """Whether neither the write that made the table nor any other one has completed.

        A table that somebody else made where a first writer of ours died has other properties, and counts as
        finished.
        """
        made = self.storage.get_if_present(_FIRST_WRITE)
        if not made or self._was_written():
            return False
        ours = _config_in(made, self.storage.describe(_FIRST_WRITE))
        return to_properties(ours) == to_properties(self.config)

    def first_write_completed(self) -> None:
        """From now on the table stays, whatever happens to a write."""
        self.storage.delete(_FIRST_WRITE)

    @property
    def is_stored(self) -> bool:
        """Whether the storage still has this table, with the same properties."""
        stored = HoodieTable.open_if_present(self.storage)
        return stored is not None and to_properties(stored.config) == to_properties(self.config)

    def _was_written(self) -> bool:
        return any(i.is_completed and i.action != "rollback" for i in self.timeline().instants())

    def remove_unused(self) -> bool:
        """Undo `create` if nobody has written to the table; returns whether it was undone.

        The caller holds the table's lock, which takes the last folders along when it is released. If the
        process dies midway, no table is left.
        """
        files = list_table_files(self.storage)
        if files.data_files or self.timeline().pending() or self._was_written():
            return False
        self.storage.delete(PROPERTIES_PATH)
        for partition in files.partitions:
            self.storage.delete(in_partition(partition, PARTITION_METADATA))
        folders, left = self.storage.list_folder(".hoodie")
        for folder in folders:
            if folder != LOCK_FOLDER:
                self.storage.delete_folder(folder)
        for file in left:
            self.storage.delete(file.path)
        return True

    def merging_by(
        self, merger_classes: Sequence[str], records: StrategyRecords | None = None
    ) -> HoodieTable:
        """The same table with `merger_classes`, which the table does not store.

        `records`: those that the mergers of a read or compaction can be given; None: Arrow's.
        """
        config = replace(
            self.config,
            merger_classes=tuple(merger_classes),
            merger_records=records or StrategyRecords(),
        )
        return HoodieTable(self.storage, config)

    def check_nothing_pending(self, service: str, besides_live_writers: bool = False) -> None:
        """Raises TableError if an instant is pending, for which the service must wait."""
        pending = self.timeline().pending()
        if besides_live_writers:
            alive = live_writers(self.storage, (instant.time for instant in pending))
            pending = tuple(instant for instant in pending if instant.time not in alive)
        if pending:
            raise TableError(
                f"{self.storage.url}: {pending[0].action} {pending[0].time} is pending; "
                f"{service} must wait until it is completed or rolled back"
            )

    def timeline(self) -> Timeline:
        return Timeline(self.storage, self.config)

    def archived_timeline(self) -> LsmTimeline:
        """The archived timeline of a table of layout 2."""
        return LsmTimeline(self.storage, self.config.history_folder)

    def view(
        self,
        as_of: str | None = None,
        own_instant: str | None = None,
        requested_by: str | None = None,
    ) -> FileSystemView:
        """The files now, or when nothing after `as_of` had completed, or without those of instants requested
        after `requested_by`.

        With `own_instant`, files of this pending instant count already; its own writer needs them.

        `as_of` is a completion time; in table version 6, which stores none, an instant time.
        """
        timeline = self.timeline()
        instants = _counting(timeline)
        # the timeline is read before the files, so a commit in between stays invisible as a whole
        files = list_table_files(self.storage)
        while were_removed(instants, now := _counting(timeline)):
            instants, files = now, list_table_files(self.storage)
        visibility = visibility_of(instants, as_of, requested_by)
        if own_instant is not None:
            done = {**visibility.completion_times, own_instant: own_instant}
            visibility = replace(visibility, completion_times=done)
        if self.config.layout_version == 1:
            undone = Undone.by_restores(timeline, instants)
            check_no_gap(files, instants, visibility, undone)
        elif silent := instants_to_look_up(files, visibility):
            history = self.archived_timeline()
            undone = Undone.by_restores(timeline, instants, history)
            archived = history.completions(silent)
            kept = {time: done for time, done in archived.items() if not undone.has(time, done)}
            done = {**kept, **visibility.completion_times}
            visibility = replace(visibility, completion_times=done)
        replaced = replaced_file_groups(timeline, visibility, instants)
        view = FileSystemView(self.config, files, visibility, replaced, instants)
        if empty := view.empty_logs():
            self._check_lost(empty, visibility)
        return view

    def _check_lost(self, empty_logs: frozenset[str], visibility: Visibility) -> None:
        """Raise TableError for a log without bytes if a visible write states that it has some.

        Readers take it for a log without rows. Apache Hudi may leave such files where a task failed.
        """
        for time, stat in self._stated_files():
            if stat.path not in empty_logs or not stat.fileSizeInBytes:
                continue
            if visibility.completion_of(time) is not None:
                raise TableError(
                    f"{self.storage.describe(stat.path)}: is empty, and instant {time} wrote"
                    f" {stat.fileSizeInBytes} bytes to it; Hudi's readers would skip its rows silently",
                    hint="bring the file back, or remove it to give its rows up",
                )

    def _stated_files(self) -> Iterator[tuple[str, WriteStat]]:
        """What completed writes state of their files, with their times; archived ones from version 8 on."""
        for instant in self.timeline().completed():
            for stat in self.commit_metadata(instant).write_stats:
                yield instant.time, stat
        if self.config.layout_version == 1:
            return
        for one in self.archived_timeline().instants():
            if one.action in WRITE_ACTIONS and one.metadata:
                where = f"{self.storage.url}: archived instant {one.time}"
                for stat in CommitMetadata.from_bytes(one.metadata, where).write_stats:
                    yield one.time, stat

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        timeline = self.timeline()
        return CommitMetadata.from_bytes(
            timeline.read(instant), self.storage.describe(timeline.path(instant))
        )

    def data_schema(
        self, requested_by: str = "", view: FileSystemView | None = None
    ) -> pa.Schema | None:
        """The data columns by the latest write that states a schema; None for an empty table.

        With `requested_by`, by the latest such write that was requested until then, if there is one. If no
        write states a schema, the columns with which SQL made the table, or else those of the newest base
        file. Who reads the files of a `view` gives it: columns of a later write may have other types. Raises
        as `schema_statement`.
        """
        instants = None if view is None else view.instants
        stated = self.schema_statement(requested_by, instants)
        if stated is None and requested_by:
            stated = self.schema_statement("", instants)
        if stated is not None:
            instant, text = stated
            return stated_columns(text, f"instant {instant}: its schema")
        created = self.config.extra.get(_CREATE_SCHEMA)
        if created:
            return stated_columns(created, f"{PROPERTIES_PATH}: {_CREATE_SCHEMA}")
        bases = (view or self.view()).latest_base_files()
        if not bases:
            return None
        return data_schema(BaseFileReader(self.storage, max(bases).path).schema)

    def schema_statement(
        self, requested_by: str = "", instants: Iterable[Instant] | None = None
    ) -> tuple[str, str] | None:
        """The time of the completed write that states a schema and began last, and that Avro schema; None if
        none does.

        With `requested_by`, of those that were requested by that time. Of `instants`, by default those of the
        active timeline now. Raises TableError for a table of Hudi's schema on read, whose columns are known
        by numbers: they may have been renamed. Source: TableSchemaResolver, and hudi-rs.
        """
        stated: tuple[str, str] | None = None
        timeline = self.timeline()
        known = timeline.instants() if instants is None else instants
        writes = sorted(one for one in known if one.is_completed and one.is_write)
        numbered = timeline.numbered_schemas(writes, requested_by)
        for instant in reversed(writes):
            if requested_by and instant.time > requested_by:
                continue
            metadata = self.commit_metadata(instant)
            if numbered or metadata.extra_metadata.get(_NUMBERED_SCHEMA):
                raise TableError(
                    f"{self.storage.url}: instant {max(numbered, default=instant.time)} was written with"
                    " hoodie.schema.on.read.enable, so columns may have been renamed; the lab knows them by"
                    " name only"
                )
            text = metadata.extra_metadata.get(SCHEMA_KEY)
            if not text:
                continue
            # a service states the columns from when it began; a write may have added one since
            by_service = metadata.operation_type in _SERVICES
            if stated is None or not by_service:
                stated = instant.time, text
            if not by_service:
                break
        return stated

    def drop_metadata_table(self) -> HoodieTable:
        """Remove Hudi's metadata table, whose readers would miss our writes; returns the table reopened.

        The rows stay: readers list the files again. If the process dies midway, the table still reads right,
        and a second call removes the rest.
        """
        properties = parse_properties(self.storage.get(PROPERTIES_PATH).decode(errors="replace"))
        stated = [k for k in properties if k.startswith(METADATA_PARTITIONS)]
        stated += {INDEX_DEFINITIONS_PATH} & properties.keys()
        if stated:
            # Hadoop's checksum of the old text would make every read of the new text fail
            self.storage.delete(".hoodie/.hoodie.properties.crc")
            kept = {key: value for key, value in properties.items() if key not in stated}
            text = format_properties(kept, _comments("Updated at"))
            # first of all: once no property names it, nobody reads a half-removed metadata table
            self.storage.replace(PROPERTIES_PATH, text.encode())
        for folder in (".hoodie/metadata", ".hoodie/.index_defs"):
            self.storage.delete_folder(folder)
        return HoodieTable.open(self.storage)


def stated_columns(avro_schema: str, what: str) -> pa.Schema:
    """The data columns of a schema that a commit states. Raises TableError, which begins with `what`."""
    return data_schema(avro_to_arrow(json_object(avro_schema, what)))


def _check_not_lost(storage: Storage) -> None:
    """Raises TableError for a folder that has a table's files, but not its properties."""
    if HoodieTable.exists(storage):
        return
    # Apache Hudi has it while it rewrites the properties
    lost = _BACKUP_PATH if storage.exists(_BACKUP_PATH) else ""
    if not lost and (files := list_table_files(storage).data_files):
        lost = files[0].path
    # another first writer may have made the table meanwhile
    if lost and not HoodieTable.exists(storage):
        raise TableError(
            f"{storage.url}: {PROPERTIES_PATH} is missing, and {lost} of a table is there",
            hint=f"bring {PROPERTIES_PATH} back, or remove the whole folder",
        )


def _config_in(properties: bytes, where: str) -> TableConfig:
    if is_cut(properties):
        raise TableError(
            f"{where}: its last line has no end, so that properties may be missing",
            hint="if none is missing, end the line",
        )
    stated = parse_properties(properties.decode(errors="replace"))
    config = from_properties(stated, where)
    if CHECKSUM not in stated:
        raise TableError(
            f"{where}: {CHECKSUM} is missing, which every Hudi table has, so that others may be missing",
            hint="it is the CRC-32 of <database>.<table>",
        )
    return config


def _counting(timeline: Timeline) -> tuple[Instant, ...]:
    """The instants of the active timeline, without those that completed after they were rolled back."""
    files = timeline.files()
    late = late_completions(timeline, files)
    return tuple(instant for instant in latest(files) if instant not in late)


def _comments(verb: str) -> tuple[str, str]:
    now = datetime.now(UTC)
    return f"{verb} {now.isoformat()}", f"{now:%a %b %d %H:%M:%S} UTC {now:%Y}"
