"""Checks of `hoodie.properties`, of checksum files, and of the timeline with its instants."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from serde_lab.table.config import PROPERTIES_PATH, VERSIONS_READ
from serde_lab.table.config_properties import CHECKSUM
from serde_lab.table.properties import table_checksum
from serde_lab.table.storage.data_files import list_markers
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY
from serde_lab.table.validation.finding import Kind, TableFinding
from serde_lab.table.validation.inspection import Inspection

_KEYS = "hoodie.table.recordkey.fields"
# key -> effect of its absence; a table with generated keys has no key fields
_REQUIRED = {
    "hoodie.table.name": "Apache Hudi fails",
    "hoodie.table.type": "a merge-on-read table is read as copy-on-write, without its logs",
    "hoodie.table.version": "Apache Hudi takes the table for an old one",
    "hoodie.timeline.layout.version": "Apache Hudi finds no table",
    _KEYS: "upserts by Apache Hudi fail",
    CHECKSUM: "other properties may be missing, too",
}


def check_properties(table: Inspection) -> Iterator[TableFinding]:
    properties = table.properties
    if table.is_cut:
        yield Kind.PROPERTY_MISSING.at(
            PROPERTIES_PATH, "its last line has no end, so that properties may be missing"
        )
    for key, effect in _REQUIRED.items():
        if not properties.get(key) and not (key == _KEYS and table.makes_keys_up):
            yield Kind.PROPERTY_MISSING.at(PROPERTIES_PATH, f"{key} is missing: {effect}")
    yield from _partition_fields(table)
    yield from _merge_mode(table)
    yield from _versions(table)
    stated = properties.get(CHECKSUM)
    if stated is not None and properties.get("hoodie.table.name"):
        expected = table_checksum(
            properties["hoodie.table.name"], properties.get("hoodie.database.name", "")
        )
        if stated != str(expected):
            yield Kind.CHECKSUM_WRONG.at(
                PROPERTIES_PATH,
                f"{CHECKSUM} is {stated}, database and table name give {expected}",
            )
    yield from _stale_crc(table)


def _partition_fields(table: Inspection) -> Iterator[TableFinding]:
    if table.properties.get("hoodie.table.partition.fields"):
        return
    folders = sorted({f.partition_path for f in table.files.data_files if f.partition_path})
    if folders:
        yield Kind.PROPERTY_MISSING.at(
            PROPERTIES_PATH,
            "hoodie.table.partition.fields is missing, and data lies in folders such as "
            f"{folders[0]}: readers see no rows and report no error",
        )


def _merge_mode(table: Inspection) -> Iterator[TableFinding]:
    version = table.properties.get("hoodie.table.version")
    if version == "9" and not table.properties.get("hoodie.record.merge.mode"):
        yield Kind.PROPERTY_MISSING.at(
            PROPERTIES_PATH, "hoodie.record.merge.mode is missing: Apache Hudi fails on merging"
        )


def _versions(table: Inspection) -> Iterator[TableFinding]:
    properties = table.properties
    version = properties.get("hoodie.table.version")
    layout = properties.get("hoodie.timeline.layout.version")
    kind = properties.get("hoodie.table.type")
    if kind and kind not in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        yield Kind.PROPERTY_WRONG.at(PROPERTIES_PATH, f"hoodie.table.type is {kind}")
    elif kind == "COPY_ON_WRITE" and table.files.log_files:
        yield Kind.PROPERTY_WRONG.at(
            PROPERTIES_PATH,
            f"hoodie.table.type is COPY_ON_WRITE, and there are {len(table.files.log_files)} log "
            "files, which readers then leave out",
        )
    if version and version not in {str(v) for v in VERSIONS_READ}:
        yield Kind.PROPERTY_WRONG.at(
            PROPERTIES_PATH, f"hoodie.table.version is {version}; 6, 8 and 9 are in use"
        )
    elif version and layout and layout != ("1" if version == "6" else "2"):
        yield Kind.PROPERTY_WRONG.at(
            PROPERTIES_PATH,
            f"hoodie.timeline.layout.version is {layout} on a table of version {version}: readers "
            "look for instants where there are none and see no rows",
        )
    for key, value in properties.items():
        if key in _FLAGS and value not in ("true", "false"):
            yield Kind.PROPERTY_WRONG.at(
                PROPERTIES_PATH,
                f"{key} is {value}, and not true or false: filters on a partition column fail",
            )


_FLAGS = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.populate.meta.fields",
)


def _stale_crc(table: Inspection) -> Iterator[TableFinding]:
    """Check Hadoop's checksum files: `crc\\0`, bytes per chunk, then a CRC-32 per chunk."""
    folders = (".hoodie", table.timeline.folder, *table.files.partitions)
    for folder in dict.fromkeys(folders):
        _, files = table.storage.list_folder(folder)
        sizes = {file.name: file for file in files}
        for file in files:
            if not (file.name.startswith(".") and file.name.endswith(".crc")):
                continue
            beside = sizes.get(file.name[1:-4])
            if beside is None:
                continue
            if not _crc_holds(table.storage.get(file.path), table.storage.get(beside.path)):
                yield Kind.STALE_CRC.at(file.path, f"it is not the checksum of {beside.name}")


def _crc_holds(checksums: bytes, content: bytes) -> bool:
    if checksums[:4] != b"crc\x00" or len(checksums) < 8:
        return False
    (chunk,) = struct.unpack_from(">i", checksums, 4)
    if chunk <= 0:
        return False
    parts = [content[i : i + chunk] for i in range(0, len(content), chunk)]
    stated = checksums[8:]
    expected = b"".join(struct.pack(">I", zlib.crc32(part)) for part in parts)
    return stated == expected


_OLD_NAME = re.compile(r"^\d{14,17}\.(commit|deltacommit|replacecommit)$")


def check_timeline(table: Inspection) -> Iterator[TableFinding]:
    # reading both fills `unreadable`
    commits, _ = table.commits, table.history
    for path, why in table.unreadable.items():
        yield Kind.COMMIT_UNREADABLE.at(path, why)
    yield from _misnamed(table)
    yield from _disorder(table)
    yield from _pending(table)
    written = [m for m in commits.values() if m.write_stats]
    if written and not any(m.extra_metadata.get(SCHEMA_KEY) for m in written):
        yield Kind.SCHEMA_MISSING.at(
            table.timeline.folder,
            f"none of {len(written)} commits on the timeline states the table's schema",
        )
    yield from _metadata_table(table)


def _misnamed(table: Inspection) -> Iterator[TableFinding]:
    if table.layout_version == 1:
        return
    for file in table.storage.list_folder(table.timeline.folder)[1]:
        if _OLD_NAME.match(file.name):
            yield Kind.COMMIT_MISNAMED.at(file.path, "it is completed and names no completion time")


def _disorder(table: Inspection) -> Iterator[TableFinding]:
    for instant in table.writes:
        if instant.completion_time and instant.completion_time < instant.time:
            yield Kind.INSTANT_DISORDER.at(
                table.timeline.path(instant),
                f"it completed at {instant.completion_time}, before it was requested",
            )
    times = [instant.time for instant in table.writes]
    for time in sorted({time for time in times if times.count(time) > 1}):
        yield Kind.INSTANT_DISORDER.at(
            f"{table.timeline.folder}/{time}", "more than one completed instant has this time"
        )


def _pending(table: Inspection) -> Iterator[TableFinding]:
    for instant in table.instants:
        if instant.is_completed:
            continue
        path = table.timeline.path(instant)
        yield Kind.PENDING_INSTANT.at(path, f"{instant.action} is {instant.state}")
        if not instant.is_write:
            continue
        marked = {marker.path for marker in list_markers(table.storage, instant.time)}
        for file in table.files.data_files:
            if file.instant != instant.time or file.path in marked:
                continue
            if table.layout_version == 1 and file in table.files.log_files:
                continue  # there, a log's name has the base file's instant
            yield Kind.PENDING_WITHOUT_MARKERS.at(
                file.path, f"instant {instant.time} is {instant.state} and has no marker for it"
            )


def _metadata_table(table: Inspection) -> Iterator[TableFinding]:
    """Find commits for which the metadata table lacks a deltacommit of the same time.

    It has none for the commits before it was built; building it has times of zeros and a number.
    """
    if table.config is None or not table.config.metadata_partitions:
        return
    layout = ".hoodie/timeline" if table.layout_version == 2 else ".hoodie"
    folder = f".hoodie/metadata/{layout}"
    names = [f.name for f in table.storage.list_folder(folder)[1]]
    done = {
        name[:17]
        for name in names
        if "." in name and not name.endswith((".requested", ".inflight", ".crc"))
    }
    if not done:
        yield Kind.METADATA_TABLE_STALE.at(
            ".hoodie/metadata",
            f"hoodie.table.metadata.partitions is {', '.join(table.config.metadata_partitions)}, and "
            "there is no such table",
        )
        return
    first = min((time for time in done if not time.startswith("0")), default="")
    for instant in table.writes:
        if instant.time >= first and instant.time not in done:
            yield Kind.METADATA_TABLE_STALE.at(
                table.timeline.path(instant), "the metadata table does not know this commit"
            )
