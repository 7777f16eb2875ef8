"""Instants that several micro-batches of a stream share, as in RFC-24's step 3.

Such an instant stays pending between its batches. Each batch leaves a manifest before it counts as stored:

    .hoodie/.aux/serde_lab/<instant>/<number>.json     `number` counts the instant's batches from 0

A manifest is the commit as it would be after that batch: Hudi's commit metadata as JSON, with every file that
remains, and with the stream's checkpoint. So the newest manifest counts, and the others may go. Files that it
does not name are of a batch that died, or were replaced by a later batch. Manifests do not stand beside the
instant's markers, since Apache Hudi takes every file there for a marker.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.table.storage.data_files import delete_marker, list_markers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, CommitMetadata, Instant

MANIFESTS = ".hoodie/.aux/serde_lab"
"""The folder with one folder of manifests for each pending instant."""
_JSON = 1  # the layout whose commit metadata is JSON


@dataclass(frozen=True, slots=True)
class SharedInstant:
    """A pending instant with the batches that are stored in it. `metadata`: the commit that it becomes."""

    instant: Instant
    batches: int
    metadata: CommitMetadata

    @property
    def file_bytes(self) -> int:
        """Bytes of the files that wait for the commit."""
        return sum(stat.fileSizeInBytes for stat in self.metadata.write_stats)

    @property
    def paths(self) -> frozenset[str]:
        """The files that the commit will have."""
        return frozenset(stat.path for stat in self.metadata.write_stats)


def shared_instant(table: HoodieTable) -> SharedInstant | None:
    """The table's pending instant with stored batches; None if there is none."""
    for pending in table.timeline().pending():
        found = read_manifest(table, pending)
        if found is not None:
            return found
    return None


def read_manifest(table: HoodieTable, pending: Instant) -> SharedInstant | None:
    """What the newest manifest of a pending instant says; None if it has none."""
    if pending.state != "inflight" or pending.completed_action not in WRITE_ACTIONS:
        return None
    storage, folder = table.storage, _folder(pending.time)
    while True:
        numbers = [int(file.name.partition(".")[0]) for file in storage.list_files(folder)]
        if not numbers:
            return None
        path = _path(pending.time, max(numbers))
        content = storage.get_if_present(path)
        # without the table's lock, a newer one may have replaced it since the listing
        if content is not None:
            metadata = CommitMetadata.from_bytes(content, storage.describe(path))
            return SharedInstant(pending, max(numbers) + 1, metadata)


def store_batch(
    table: HoodieTable, instant: Instant, number: int, metadata: CommitMetadata
) -> SharedInstant:
    """Write the manifest of the instant's batch `number`: from now on the batch is stored.

    Files that it no longer names are removed. The caller holds the table. Raises ConcurrentWrite if somebody
    rolled the instant back.
    """
    storage, content = table.storage, metadata.to_bytes(_JSON)
    table.timeline().check_inflight(instant)
    if number == 0:
        _sweep(table)
    path = _path(instant.time, number)
    if not storage.put_new(path, content) and storage.get(path) != content:
        # the same content: the answer to our own put was lost, and the put was repeated
        raise ConcurrentWrite(
            f"{storage.describe(path)}: another writer stored a batch in our instant {instant.time}"
        )
    shared = SharedInstant(instant, number + 1, metadata)
    with suppress(StorageError):  # the batch is stored; the next one removes what is left
        remove_unnamed(table, shared)
        if number:
            storage.delete(_path(instant.time, number - 1))
    return shared


def remove_unnamed(table: HoodieTable, shared: SharedInstant) -> tuple[str, ...]:
    """Remove the instant's files that its manifest does not name; returns their paths."""
    removed, named = [], shared.paths
    for marker in list_markers(table.storage, shared.instant.time):
        if marker.path not in named:
            table.storage.delete(marker.path)
            delete_marker(table.storage, shared.instant.time, marker)
            removed.append(marker.path)
    return tuple(removed)


def delete_manifests(storage: Storage, instant: str) -> None:
    """Remove the manifests of an instant that completed; no error if there are none."""
    storage.delete_folder(_folder(instant))


def _sweep(table: HoodieTable) -> None:
    """Remove the manifests of instants that are no longer pending."""
    pending = {instant.time for instant in table.timeline().pending()}
    for folder in table.storage.list_folder(MANIFESTS)[0]:
        if folder.rpartition("/")[2] not in pending:
            table.storage.delete_folder(folder)


def _folder(instant: str) -> str:
    return f"{MANIFESTS}/{instant}"


def _path(instant: str, number: int) -> str:
    return f"{_folder(instant)}/{number}.json"
