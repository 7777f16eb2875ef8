"""Data files as storage holds them: their names, the markers that announce them, and how they are placed.

A file is placed in one step, after its marker. The rules follow from how Hudi treats leftover files: a file
without a marker survives the rollback of its instant and silently becomes visible once archiving has passed
it, and two files of one file group and instant break a table. Sources: org.apache.hudi.common.fs.FSUtils,
org.apache.hudi.table.marker (DirectWriteMarkers; MARKERS files, which the marker server writes, are read).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

from serde_lab.errors import ConcurrentWrite, StorageError, TableError
from serde_lab.table.properties import format_properties
from serde_lab.table.storage.storage import Bytes, Storage

_BASE = re.compile(r"^([^._][^_]*)_([^_.]*)_(\d{14,17})\.parquet$")
_LOG = re.compile(r"^\.([^._]+)_(\d{14,17})\.log\.(\d+)(?:_(\d+-\d+-\d+))?$")

MarkerKind = Literal["CREATE", "MERGE", "APPEND"]


STAGE = 1
"""The stage in write tokens of the lab, whatever number Spark gave the stage in its session."""


def write_token(task_partition: int, number: int = 0) -> str:
    """`<task partition>-<stage>-<number>`.

    Where Apache Hudi has the task attempt, the lab numbers the files that a task writes one after another for
    a file group. So all attempts of a task write the same names, and retries add no second file.
    """
    return f"{task_partition}-{STAGE}-{number}"


def is_of_the_lab(write_token: str) -> bool:
    """Whether the lab made the token: a write of Apache Hudi on Spark has several stages before its last."""
    return write_token.split("-")[1:2] == [str(STAGE)]


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """`<file id>_<write token>_<instant>.parquet`."""

    file_id: str
    write_token: str
    instant: str

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant}.parquet"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        match = _BASE.match(name)
        return None if match is None else cls(match[1], match[2], match[3])


@dataclass(frozen=True, slots=True)
class LogFileName:
    """`.<file id>_<instant>.log.<version>_<write token>`.

    From table version 8 on, `instant` is the deltacommit's; before, the base file's.
    """

    file_id: str
    instant: str
    version: int
    write_token: str

    def __str__(self) -> str:
        return f".{self.file_id}_{self.instant}.log.{self.version}_{self.write_token}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        match = _LOG.match(name)
        return None if match is None else cls(match[1], match[2], int(match[3]), match[4] or "")


def in_partition(partition_path: str, name: str) -> str:
    """A file's path relative to the table; the partition "" is the table's own folder."""
    return f"{partition_path}/{name}" if partition_path else name


TEMP_FOLDER = ".hoodie/.temp"

CREATE: MarkerKind = "CREATE"
"""For a new file group's base file, and for every log file from table version 8 on."""
MERGE: MarkerKind = "MERGE"
"""For a new version of a base file."""
APPEND: MarkerKind = "APPEND"
"""For a log file before table version 8; Hudi refuses it from version 8 on."""


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """The note that an instant is about to write `path` (relative to the table)."""

    path: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path}.marker.{self.kind}"


def create_marker(storage: Storage, instant: str, path: str, kind: MarkerKind) -> None:
    """Create the marker of data file `path`, before the file is written."""
    # a second attempt of a task finds the first one's marker, which says the same
    storage.put_new(f"{marker_folder(instant)}/{Marker(path, kind)}")


def list_markers(storage: Storage, instant: str) -> list[Marker]:
    """The instant's markers, by path; Apache Hudi's own MARKERS files are read too."""
    folder = marker_folder(instant)
    found: set[Marker] = set()
    for file in storage.list_files(folder):
        inside = file.path[len(folder) + 1 :]
        if inside == "MARKERS.type":
            continue
        if inside.startswith("MARKERS"):
            lines = storage.get(file.path).decode().splitlines()
            found.update(_marker_of(line.strip(), file.path) for line in lines if line.strip())
        elif not inside.endswith(".crc"):
            found.add(_marker_of(inside, file.path))
    return sorted(found)


def delete_marker(storage: Storage, instant: str, marker: Marker) -> None:
    """Remove one marker, after its data file; no error if there is none."""
    storage.delete(f"{marker_folder(instant)}/{marker}")


def delete_markers(storage: Storage, instant: str) -> None:
    """Remove the instant's markers; no error if there are none."""
    storage.delete_folder(marker_folder(instant))


def marker_folder(instant: str) -> str:
    return f"{TEMP_FOLDER}/{instant}"


def _marker_of(text: str, where: str) -> Marker:
    path, sign, kind = text.rpartition(".marker.")
    if not sign:
        raise TableError(f"{where}: {text!r} is not a marker; expected <data file>.marker.<kind>")
    return Marker(path, kind)


PARTITION_METADATA = ".hoodie_partition_metadata"
PARTITION_METADATA_FORMS = (PARTITION_METADATA, f"{PARTITION_METADATA}.parquet")
"""Its names: Apache Hudi writes the second with hoodie.partition.metafile.use.base.format, and reads both."""


def create_partition_metadata(storage: Storage, partition_path: str, instant: str) -> None:
    """Make the folder a partition, first written by `instant`; no effect if it is one already."""
    path = in_partition(partition_path, PARTITION_METADATA)
    if storage.exists(path):
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    text = format_properties(
        {"commitTime": instant, "partitionDepth": str(depth)},
        ("partition metadata", f"{datetime.now(UTC):%a %b %d %H:%M:%S} UTC {datetime.now(UTC):%Y}"),
    )
    storage.put_new(path, text.encode())


@dataclass(frozen=True, slots=True)
class Writing:
    """The instant that a worker writes for, and the task that it writes in.

    `write_token` is part of the names of the files, `task_partition` of the sequence numbers of the rows,
    which begin at `rows_before`. `inflight_path` is the instant's inflight file: while it exists, the instant
    was neither rolled back nor archived. None: nobody rolls it back (a test, or a tool that runs alone).
    `may_be_replaced`: this worker's file may be removed before the instant completes, since another file of
    the instant replaces it or its batch is given up; a late attempt must not write it again.
    `split_by_order`: which rows this file has depends on the order in which the task saw them.
    """

    instant: str
    write_token: str
    inflight_path: str | None = None
    task_partition: int = 0
    rows_before: int = 0
    may_be_replaced: bool = False
    split_by_order: bool = False


def place_data_file(
    storage: Storage,
    writing: Writing,
    partition_path: str,
    path: str,
    kind: MarkerKind,
    data: Bytes,
) -> int:
    """Put `data` at `path`; returns the size of the file there in bytes.

    Of several attempts at one path the first wins and the others change nothing, even long after the instant
    completed: attempts of one task write the same rows. Raises ConcurrentWrite, and leaves no file behind, if
    the instant is no longer inflight. Raises StorageError if the file there is another write's, or if the
    rows are split by their order and the attempts differ: some rows of this task would be lost or doubled.
    """
    _check_inflight(storage, writing)
    create_partition_metadata(storage, partition_path, writing.instant)
    create_marker(storage, writing.instant, path, kind)
    if not storage.put_new(path, data):
        size = storage.size_bytes(path)
        if size is None:
            raise StorageError(f"{storage.describe(path)}: vanished while it was being written")
        if not _is_ours(storage, writing, path, kind):
            raise StorageError(
                f"{storage.describe(path)}: a late task of another write has put its log there"
            )
        if writing.split_by_order and storage.get(path) != bytes(data):
            raise StorageError(
                f"{storage.describe(path)}: two attempts of a task had their rows in different orders",
                hint="store or sort the source first: a shuffle in it gives its rows in any order",
            )
        return size
    try:
        # a rollback may have run between the check above and the put
        _check_inflight(storage, writing)
        if writing.may_be_replaced:
            _check_incomplete(storage, writing)
    except ConcurrentWrite:
        if _is_ours(storage, writing, path, kind):
            storage.delete(path)
        raise
    return memoryview(data).nbytes


def _is_ours(storage: Storage, writing: Writing, path: str, kind: MarkerKind) -> bool:
    """Whether a file was written for this instant: logs before version 8 say so in their blocks alone."""
    if kind != APPEND:
        return True
    content = storage.get_if_present(path)
    return content is not None and writing.instant.encode() in content


def _check_inflight(storage: Storage, writing: Writing) -> None:
    if writing.inflight_path is not None and not storage.exists(writing.inflight_path):
        raise ConcurrentWrite(
            f"{storage.url}: instant {writing.instant} is not inflight any more; "
            "it was rolled back while a task was still writing"
        )


def _check_incomplete(storage: Storage, writing: Writing) -> None:
    """Refuse a file that is new although its instant completed: it had been removed for another one."""
    if writing.inflight_path is None:
        return
    folder = writing.inflight_path.rpartition("/")[0]
    for name in storage.list_names(folder):
        pending = name.endswith((".requested", ".inflight"))
        if name.startswith(writing.instant) and not pending:
            raise ConcurrentWrite(
                f"{storage.url}: instant {writing.instant} completed while a task was still writing"
            )
