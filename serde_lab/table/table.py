"""A Hudi table: its storage, its config, and the way to its timeline and its files.

Owns making and opening a table and dropping its metadata table; must not know strategies or Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from serde_lab.avro.schema import avro_to_arrow
from serde_lab.errors import TableError
from serde_lab.table.config import (
    INDEX_DEFINITIONS_PATH,
    METADATA_PARTITIONS,
    PROPERTIES_PATH,
    TableConfig,
)
from serde_lab.table.config_checks import check_creatable
from serde_lab.table.config_properties import from_properties, to_properties
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.files.file_names import in_partition
from serde_lab.table.files.file_system_view import (
    FileSystemView,
    list_table_files,
    replaced_file_groups,
    visibility_of,
)
from serde_lab.table.files.meta_columns import data_schema
from serde_lab.table.files.partition_metadata import FILE_NAME as PARTITION_METADATA
from serde_lab.table.index.partition_buckets import HashingConfig, save_hashing_config
from serde_lab.table.properties import format_properties, parse_properties
from serde_lab.table.storage.lock import LOCK_FOLDER
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from serde_lab.table.timeline.timeline import Instant, Timeline

_EMPTY_FOLDERS = (
    ".hoodie/.aux/.bootstrap/.fileids",
    ".hoodie/.aux/.bootstrap/.partitions",
    ".hoodie/.schema",
    ".hoodie/.temp",
)


class HoodieTable:
    """One table. Holds no state of its own: every question goes to the storage."""

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self.storage, self.config = storage, config

    @classmethod
    def exists(cls, storage: Storage) -> bool:
        """Whether there is a table in the storage's folder."""
        return storage.exists(PROPERTIES_PATH)

    @classmethod
    def create(cls, storage: Storage, config: TableConfig) -> HoodieTable:
        """Make an empty table. Raises OptionError for an impossible one, TableError if there is one."""
        check_creatable(config)
        for folder in (*_EMPTY_FOLDERS, config.timeline_folder, config.history_folder):
            storage.make_folder(folder)
        if config.bucket_expressions and not cls.exists(storage):
            # before the table is there: whoever sees it sees its rules
            rules = HashingConfig(config.bucket_expressions, config.bucket_count or 1)
            save_hashing_config(storage, rules)
        text = _properties_text(config, "Properties saved on")
        if not storage.put_new(PROPERTIES_PATH, text.encode()):
            raise TableError(f"{storage.url}: there is a table already")
        return cls(storage, config)

    @classmethod
    def open(cls, storage: Storage) -> HoodieTable:
        """Open what is there. Raises TableError if it is no table, or of a kind that is refused."""
        content = storage.get_if_present(PROPERTIES_PATH)
        where = storage.describe(PROPERTIES_PATH)
        if content is None:
            raise TableError(f"{storage.url}: is no Hudi table; {PROPERTIES_PATH} is missing")
        properties = parse_properties(content.decode(errors="replace"))
        return cls(storage, from_properties(properties, where))

    @classmethod
    def open_or_create(cls, storage: Storage, config: TableConfig) -> HoodieTable:
        """Open the table, or make it as `config` says if there is none."""
        return cls.open(storage) if cls.exists(storage) else cls.create(storage, config)

    def remove_unused(self) -> bool:
        """Take back what `create` made, if nobody ever wrote to the table; says whether it did.

        The caller holds the table, whose lock stays. Killed anywhere, there is no table any more.
        """
        files = list_table_files(self.storage)
        undone = all(i.is_completed and i.action == "rollback" for i in self.timeline().instants())
        if files.data_files or not undone:
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

    def merging_by(self, merger_classes: Sequence[str]) -> HoodieTable:
        """The same table for one that merges by `merger_classes`, which the table does not store."""
        return HoodieTable(self.storage, replace(self.config, merger_classes=tuple(merger_classes)))

    def timeline(self) -> Timeline:
        """The active timeline."""
        return Timeline(self.storage, self.config)

    def view(self, as_of: str | None = None, own_instant: str | None = None) -> FileSystemView:
        """The files as they are now, or as they were when nothing after `as_of` had completed.

        With `own_instant` those of this pending instant count already, for its own writer.

        `as_of` is a completion time; in table version 6, which stores none, an instant time.
        """
        timeline = self.timeline()
        instants = timeline.instants()
        visibility = visibility_of(instants, as_of)
        if own_instant is not None:
            done = {**visibility.completion_times, own_instant: own_instant}
            visibility = replace(visibility, completion_times=done)
        # the timeline is read before the files: a commit in between stays invisible as a whole
        files = list_table_files(self.storage)
        replaced = replaced_file_groups(timeline, visibility, instants)
        return FileSystemView(self.config, files, visibility, replaced)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """What a completed write says of itself."""
        timeline = self.timeline()
        return CommitMetadata.from_bytes(
            timeline.read(instant), self.storage.describe(timeline.path(instant))
        )

    def data_schema(self) -> pa.Schema | None:
        """The data columns as the latest commit that states them has them; None for an empty table.

        Where no commit states a schema, that of the newest base file.
        """
        for instant in reversed(self.timeline().completed()):
            text = self.commit_metadata(instant).extra_metadata.get(SCHEMA_KEY)
            if text:
                return data_schema(avro_to_arrow(_parsed(text, instant.time)))
        bases = self.view().latest_base_files()
        if not bases:
            return None
        return data_schema(BaseFileReader(self.storage, max(bases).path).schema)

    def drop_metadata_table(self) -> HoodieTable:
        """Remove Hudi's metadata table, whose readers would not see what we write; the table anew.

        The rows stay as they are: readers list the files again. Killed anywhere, the table reads right,
        and a second call removes what is left.
        """
        properties = self._stored_properties()
        stated = [k for k in properties if _is_of_metadata_table(k)]
        if stated:
            # Hadoop's checksum of the old text would make every read of the new one fail
            self.storage.delete(".hoodie/.hoodie.properties.crc")
            kept = {key: value for key, value in properties.items() if key not in stated}
            text = format_properties(kept, _comments("Updated at"))
            # first of all: once nothing names it, nobody reads a metadata table half removed
            self.storage.replace(PROPERTIES_PATH, text.encode())
        for folder in (".hoodie/metadata", ".hoodie/.index_defs"):
            self.storage.delete_folder(folder)
        return HoodieTable.open(self.storage)

    def _stored_properties(self) -> dict[str, str]:
        return parse_properties(self.storage.get(PROPERTIES_PATH).decode(errors="replace"))


def _is_of_metadata_table(key: str) -> bool:
    return key.startswith(METADATA_PARTITIONS) or key == INDEX_DEFINITIONS_PATH


def _parsed(text: str, instant: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError as exc:
        raise TableError(f"instant {instant}: its schema is no JSON: {exc}") from exc
    if not isinstance(schema, dict):
        raise TableError(f"instant {instant}: its schema is no Avro record")
    return schema


def _properties_text(config: TableConfig, verb: str) -> str:
    return format_properties(to_properties(config), _comments(verb))


def _comments(verb: str) -> tuple[str, str]:
    now = datetime.now(UTC)
    return f"{verb} {now.isoformat()}", f"{now:%a %b %d %H:%M:%S} UTC {now:%Y}"
