"""What a validation reads of a table that may be damaged: properties, timeline, history and files, each
once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from serde_lab.errors import LabError, TableError
from serde_lab.records.schema import COMMIT_TIME, RECORD_KEY
from serde_lab.table.config import PROPERTIES_PATH, TableConfig
from serde_lab.table.config_properties import from_properties
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.files.file_system_view import (
    FileSystemView,
    TableFiles,
    Visibility,
    list_table_files,
    visibility_of,
)
from serde_lab.table.index.consistent_hashing import HashingRing, load_hashing_metadata
from serde_lab.table.index.index_kind import CONSISTENT_HASHING
from serde_lab.table.properties import is_cut, parse_properties
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.timeline.lsm_timeline import LsmTimeline
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, Instant, Timeline


@dataclass
class Inspection:
    """One table as found. `config` is None if the properties do not describe a supported table."""

    storage: Storage
    properties: Mapping[str, str]
    config: TableConfig | None
    refusal: str | None
    """Why there is no config, as a sentence."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Completed instant files and parts of the history that cannot be read: path -> why."""
    unreadable_rings: dict[str, str] = field(default_factory=dict)
    """Partitions of consistent hashing without a ring: partition -> why."""
    is_cut: bool = False
    """Whether the end of the properties file is missing."""

    @classmethod
    def of(cls, storage: Storage) -> Inspection | None:
        """Open a table; None if the folder has no properties file."""
        content = storage.get_if_present(PROPERTIES_PATH)
        if content is None:
            return None
        properties = parse_properties(content.decode(errors="replace"))
        where = storage.describe(PROPERTIES_PATH)
        try:
            config = from_properties(properties, where)
            return cls(storage, properties, config, None, is_cut=is_cut(content))
        except TableError as exc:
            return cls(storage, properties, None, exc.message, is_cut=is_cut(content))

    @property
    def layout_version(self) -> int:
        """The stated version, or else the one that the folders suggest."""
        if self.config is not None:
            return self.config.layout_version
        folders, _ = self.storage.list_folder(".hoodie")
        return 2 if ".hoodie/timeline" in folders else 1

    @cached_property
    def timeline(self) -> Timeline:
        config = self.config or TableConfig(
            "unknown", ("unknown",), version=9 if self.layout_version == 2 else 6
        )
        return Timeline(self.storage, config)

    @cached_property
    def instants(self) -> tuple[Instant, ...]:
        return self.timeline.instants()

    @cached_property
    def files(self) -> TableFiles:
        return list_table_files(self.storage)

    @cached_property
    def visibility(self) -> Visibility:
        return visibility_of(self.instants)

    @cached_property
    def writes(self) -> tuple[Instant, ...]:
        """Completed writes, by time."""
        return tuple(i for i in self.instants if i.is_completed and i.is_write)

    @cached_property
    def commits(self) -> dict[Instant, CommitMetadata]:
        """The metadata of completed writes; unreadable ones go to `unreadable`."""
        found = {}
        for instant in self.writes:
            path = self.timeline.path(instant)
            try:
                found[instant] = CommitMetadata.from_bytes(self.timeline.read(instant), path)
            except LabError as exc:
                self.unreadable[path] = exc.message
        return found

    @cached_property
    def base_stats(self) -> dict[str, WriteStat]:
        """What the commits state of each base file, by path."""
        stats = (stat for metadata in self.commits.values() for stat in metadata.write_stats)
        return {stat.path: stat for stat in stats if not stat.is_log}

    @cached_property
    def history(self) -> set[str] | None:
        """Times of archived instants; None if they cannot be read (another form, or damaged)."""
        folder = self.timeline.history_folder
        if self.layout_version == 1:
            return None if self.storage.list_folder(folder)[1] else set()
        try:
            return {time for time, _ in LsmTimeline(self.storage, folder).times()}
        except LabError as exc:
            self.unreadable[folder] = exc.message
            return None

    def archived(self) -> tuple[dict[str, CommitMetadata], dict[str, str]]:
        """The metadata of archived writes, by time, and why some cannot be read, by place.

        There is none if a restore may have undone some of the writes.
        """
        if self.layout_version == 1 or not self.history:
            return {}, {}
        folder = self.timeline.history_folder
        try:
            instants = LsmTimeline(self.storage, folder).instants()
        except LabError as exc:
            return {}, {folder: exc.message}
        if "restore" in {one.action for one in self.instants} | {one.action for one in instants}:
            return {}, {}
        found: dict[str, CommitMetadata] = {}
        unreadable: dict[str, str] = {}
        for one in instants:
            if one.action in WRITE_ACTIONS and one.metadata:
                where = f"{folder}: instant {one.time}"
                try:
                    found[one.time] = CommitMetadata.from_bytes(one.metadata, where)
                except LabError as exc:
                    unreadable[where] = exc.message
        return found, unreadable

    @cached_property
    def replaced(self) -> dict[tuple[str, str], str]:
        """Replaced file groups: (partition, file id) -> completion time of the replacing instant."""
        return {
            group: instant.completion_time or instant.time
            for instant, metadata in self.commits.items()
            for group in metadata.replaced_file_groups
        }

    @cached_property
    def rings(self) -> dict[str, HashingRing]:
        """The rings of consistent hashing by partition path; partitions without one go to
        `unreadable_rings`."""
        found: dict[str, HashingRing] = {}
        if self.config is None or self.view is None:
            return found
        if self.config.bucket_engine != CONSISTENT_HASHING:
            return found
        table = HoodieTable(self.storage, self.config)
        for partition in self.view.partitions:
            try:
                loaded = load_hashing_metadata(table, [partition])
            except LabError as exc:
                self.unreadable_rings[partition or "."] = exc.message
                continue
            if partition in loaded:
                found[partition] = loaded[partition].ring()
            else:
                self.unreadable_rings[partition or "."] = "no ring is in force"
        return found

    @cached_property
    def makes_keys_up(self) -> bool:
        """Whether the newest base file's record keys are generated from row positions in a write (commit
        time, partition, row), as in a table without key columns."""
        written = sorted(self.files.base_files, key=lambda base: base.instant)
        for base in reversed(written):
            try:
                reader = BaseFileReader(self.storage, base.path)
                first = next(reader.batches([COMMIT_TIME, RECORD_KEY], 1), None)
            except TableError:
                continue
            if first is not None and first.num_rows:
                time, key = (
                    first.column(COMMIT_TIME)[0].as_py(),
                    first.column(RECORD_KEY)[0].as_py(),
                )
                return re.fullmatch(rf"{re.escape(str(time))}_\d+_\d+", str(key)) is not None
        return False

    @cached_property
    def view(self) -> FileSystemView | None:
        """The visible file slices; None if two base files of one group and instant make them undecidable."""
        if self.config is None:
            return None
        replaced = [(*group, time) for group, time in self.replaced.items()]
        try:
            return FileSystemView(self.config, self.files, self.visibility, replaced, self.instants)
        except TableError:
            return None
