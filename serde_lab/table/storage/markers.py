"""Markers: notes of the data files that an instant is about to write, so that they can be undone.

A data file without a marker survives the rollback of its instant and silently becomes visible once archiving
has passed it. Source: org.apache.hudi.table.marker (DirectWriteMarkers; the server's MARKERS files are read).
"""

from __future__ import annotations

from dataclasses import dataclass

from serde_lab.errors import TableError
from serde_lab.table.files.file_names import MarkerKind
from serde_lab.table.storage.storage import Storage

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


def create_marker(storage: Storage, instant: str, path: str, kind: MarkerKind) -> None:
    """Create the marker of data file `path`, before the file is written."""
    # a second attempt of a task finds the first one's marker, which says the same
    storage.put_new(f"{marker_folder(instant)}/{path}.marker.{kind}")


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
            found.update(_parse(line.strip(), file.path) for line in lines if line.strip())
        elif not inside.endswith(".crc"):
            found.add(_parse(inside, file.path))
    return sorted(found)


def delete_markers(storage: Storage, instant: str) -> None:
    """Remove the instant's markers; no error if there are none."""
    storage.delete_folder(marker_folder(instant))


def marker_folder(instant: str) -> str:
    return f"{TEMP_FOLDER}/{instant}"


def _parse(text: str, where: str) -> Marker:
    path, sign, kind = text.rpartition(".marker.")
    if not sign:
        raise TableError(f"{where}: {text!r} is no marker; expected <data file>.marker.<kind>")
    return Marker(path, kind)
