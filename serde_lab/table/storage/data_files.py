"""Placing of a data file: its marker first, then all its bytes at once.

The rules follow from how Hudi treats leftovers: a file without a marker is never removed, and two files of
one file group and instant break a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.table.files.file_names import MarkerKind
from serde_lab.table.files.partition_metadata import create_partition_metadata
from serde_lab.table.storage.markers import create_marker
from serde_lab.table.storage.storage import Bytes, Storage


@dataclass(frozen=True, slots=True)
class Writing:
    """The instant that a worker writes for, as the driver states it.

    `inflight_path` is the instant's inflight file: while it exists, the instant was neither rolled back nor
    archived. None: nobody rolls it back (a test, or a tool that runs alone). `may_give_way`: another file of
    the instant may replace this worker's file, which is then removed; a late attempt must not write it again.
    """

    instant: str
    inflight_path: str | None
    may_give_way: bool = False


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
    the instant is no longer inflight.
    """
    _check_inflight(storage, writing)
    create_partition_metadata(storage, partition_path, writing.instant)
    create_marker(storage, writing.instant, path, kind)
    if not storage.put_new(path, data):
        size = storage.size_bytes(path)
        if size is None:
            raise StorageError(f"{storage.describe(path)}: vanished while it was being written")
        return size
    try:
        # a rollback may have run between the check above and the put
        _check_inflight(storage, writing)
        if writing.may_give_way:
            _check_incomplete(storage, writing)
    except ConcurrentWrite:
        storage.delete(path)
        raise
    return memoryview(data).nbytes


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
    for file in storage.list_folder(folder)[1]:
        pending = file.name.endswith((".requested", ".inflight"))
        if file.name.startswith(writing.instant) and not pending:
            raise ConcurrentWrite(
                f"{storage.url}: instant {writing.instant} completed while a task was still writing"
            )
