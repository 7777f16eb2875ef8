"""Writes and reads folders of ordered Parquet parts with equal row counts and a manifest.

The files are `part-00000.parquet …` and `_manifest.json`, which is written last. A folder without its
manifest is unfinished. `PartFolder.begin` first writes a marker file, so that its leftovers
can be distinguished from foreign files, which are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import UsageError
from serde_lab.files import write_whole
from serde_lab.inputs.content_hash import ContentHash, combined
from serde_lab.inputs.draws import share_of

FORMAT_VERSION = 1
MANIFEST = "_manifest.json"
"""The name starts with an underscore, so that Spark and pyarrow do not read the file as data."""
UNFINISHED = "_unfinished.json"
ROWS_PER_GROUP = 1 << 17


class OnProgress(Protocol):
    """Called with a task's name, how much is done and the total, in one unit (rows, bytes).

    A task's last call has `done == total`. Calls come a few times per second, never once per row.
    """

    def __call__(self, task: str, done: int, total: int) -> None: ...


def silent(task: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a folder; `content` is the checksum of its rows, not of its bytes."""

    name: str
    rows: int
    file_bytes: int
    content: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished folder holds; `request` is the request that made it."""

    request: Mapping[str, Any]
    rows: int
    content: str
    parts: tuple[Part, ...]
    notes: Mapping[str, Any]

    def files(self, folder: Path) -> list[Path]:
        """The parts in order."""
        return [folder / part.name for part in self.parts]


class PartFolder:
    """One folder of parts: absent, unfinished or finished."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def manifest(self) -> Manifest | None:
        """The folder's manifest, or None if the folder is unfinished or has lost a part since."""
        try:
            found = json.loads((self.folder / MANIFEST).read_text())
            if found["format_version"] != FORMAT_VERSION:
                return None
            parts = tuple(Part(**part) for part in found["parts"])
            manifest = Manifest(
                request=found["asked"],
                rows=found["rows"],
                content=found["content"],
                parts=parts,
                notes=found["notes"],
            )
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None
        for part in parts:
            file = self.folder / part.name
            if not file.is_file() or file.stat().st_size != part.file_bytes:
                return None
        return manifest

    def is_unfinished(self) -> bool:
        """Whether this program began the folder and did not finish it, or the folder lost a part since."""
        ours = (self.folder / UNFINISHED).exists() or (self.folder / MANIFEST).exists()
        return ours and self.manifest() is None

    def begin(self) -> None:
        """Empty the folder and mark it unfinished. Raises UsageError if it holds other files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in self.folder.iterdir())
        foreign = [name for name in there if not _is_ours(name)]
        ours = not there or UNFINISHED in there or MANIFEST in there
        if foreign or not ours:
            name = foreign[0] if foreign else there[0]
            raise UsageError(
                f"{self.folder}: contains the foreign file {name!r}, expected an empty folder",
                "name another folder",
            )
        # write the marker before deleting the manifest, so that the parts always count as ours
        _write_json(self.folder / UNFINISHED, {"format_version": FORMAT_VERSION})
        for name in there:
            if name != UNFINISHED:
                (self.folder / name).unlink()

    def finish(
        self, request: Mapping[str, Any], parts: Iterable[Part], notes: Mapping[str, Any]
    ) -> Manifest:
        """Write the manifest, atomically and last."""
        parts = tuple(parts)
        content = combined(part.content for part in parts)
        manifest = Manifest(request, sum(part.rows for part in parts), content, parts, notes)
        _write_json(
            self.folder / MANIFEST,
            {
                "format_version": FORMAT_VERSION,
                "asked": dict(request),
                "rows": manifest.rows,
                "content": content,
                "parts": [asdict(part) for part in parts],
                "notes": dict(notes),
            },
        )
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        return manifest


class PartWriter:
    """A context manager that writes one part, row group by row group, and hashes its rows."""

    def __init__(self, folder: Path, number: int, schema: pa.Schema) -> None:
        self._file = folder / f"part-{number:05d}.parquet"
        self._writer = pq.ParquetWriter(
            self._file, schema, compression="snappy", store_decimal_as_integer=True
        )
        self._content = ContentHash(schema)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
        self._content.update(rows)

    def close(self) -> Part:
        """Finish the file and return its description."""
        self._writer.close()
        return Part(
            name=self._file.name,
            rows=self._content.rows,
            file_bytes=self._file.stat().st_size,
            content=self._content.hexdigest(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer.is_open:
            self._writer.close()


def write_parts(
    folder: Path, tables: Iterable[pa.Table], schema: pa.Schema, rows: int, parts: int
) -> Iterator[Part]:
    """Write the rows of `tables`, in order, as `parts` files whose row counts differ by one at most.

    `rows` is the number of rows that `tables` have together. Yields each part when it is finished; a part
    may be empty. Holds one table in memory at a time.
    """
    stream = iter(tables)
    rest: pa.Table = schema.empty_table()
    for number in range(parts):
        first, stop = share_of(rows, number, parts)
        wanted = stop - first
        with PartWriter(folder, number, schema) as writer:
            while wanted:
                if not len(rest):
                    rest = next(stream)
                    continue
                piece = rest.slice(0, wanted)
                rest = rest.slice(len(piece))
                writer.write(piece)
                wanted -= len(piece)
            part = writer.close()
        yield part


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    write_whole(file, text.encode())


def _is_ours(name: str) -> bool:
    return (
        name in (MANIFEST, UNFINISHED)
        or (name.startswith("part-") and name.endswith(".parquet"))
        or (name.startswith((f".{MANIFEST}", f".{UNFINISHED}")))
    )
