"""Writes and reads folders of ordered Parquet parts with equal row counts, checksums and a manifest.

The files are `part-00000.parquet …` and `_manifest.json`, which is written last. A folder without its
manifest is unfinished. `PartFolder.begin` first writes a marker file, so that its leftovers can be
distinguished from foreign files, which are never touched.

The checksum of rows does not depend on the Parquet file they are stored in: it defines "the same data" across
machines. Column names, types, values, nulls and row order count; writer version, codec, row groups and
Arrow's memory layout do not.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from serde_lab.errors import UsageError
from serde_lab.files import read_json, write_whole
from serde_lab.inputs.random_choices import share_of
from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import child_fields, is_binary, is_list, is_string, plain_schema

FORMAT_VERSION = 2
MANIFEST = "_manifest.json"
"""The name starts with an underscore, so that Spark and pyarrow do not read the file as data."""
UNFINISHED = "_unfinished.json"
SPILL = "_spill"
"""A folder for temporary files of whoever makes the parts."""
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
    """One file of a folder; `content` is the checksum of its rows, `digest` that of its bytes."""

    name: str
    rows: int
    file_bytes: int
    content: str
    digest: str


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
        """The folder's manifest, or None if the folder is unfinished, or a file of it changed since.

        Every part is read, since Parquet's readers take damaged values for right ones.
        """
        try:
            found = read_json(self.folder / MANIFEST)
            stated = found.pop("digest")
            if found["format_version"] != FORMAT_VERSION or stated != _digest(_bytes_of(found)):
                return None
            parts = tuple(Part(**part) for part in found["parts"])
            manifest = Manifest(
                request=found["asked"],
                rows=found["rows"],
                content=found["content"],
                parts=parts,
                notes=found["notes"],
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError):  # no manifest of this version
            return None
        for part in parts:
            file = self.folder / part.name
            if not file.is_file() or file.stat().st_size != part.file_bytes:
                return None
            if _digest_of_file(file) != part.digest:
                return None
        return manifest

    def is_unfinished(self) -> bool:
        """Whether this program began the folder and did not finish it, or a file of it changed since."""
        ours = (self.folder / UNFINISHED).exists() or (self.folder / MANIFEST).exists()
        return ours and self.manifest() is None

    def begin(self) -> None:
        """Empty the folder and mark it unfinished. Raises UsageError if it holds other files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in self.folder.iterdir())
        foreign = [name for name in there if not _is_ours(name)]
        # a kill may also leave the marker under its temporary name, and nothing else
        ours = not there or any(_marks(name) for name in there)
        if foreign or not ours:
            name = foreign[0] if foreign else there[0]
            raise UsageError(
                f"{self.folder}: contains the foreign file {name!r}, expected an empty folder",
                "name another folder",
            )
        # write the marker before deleting the manifest, so that the parts always count as ours
        _write_json(self.folder / UNFINISHED, {"format_version": FORMAT_VERSION})
        for name in there:
            if name == SPILL:
                shutil.rmtree(self.folder / name)
            elif name != UNFINISHED:
                (self.folder / name).unlink()

    def finish(
        self, request: Mapping[str, Any], parts: Iterable[Part], notes: Mapping[str, Any]
    ) -> Manifest:
        """Write the manifest, atomically and last."""
        parts = tuple(parts)
        content = combined(part.content for part in parts)
        manifest = Manifest(request, sum(part.rows for part in parts), content, parts, notes)
        stated = {
            "format_version": FORMAT_VERSION,
            "asked": dict(request),
            "rows": manifest.rows,
            "content": content,
            "parts": [asdict(part) for part in parts],
            "notes": dict(notes),
        }
        _write_json(self.folder / MANIFEST, stated | {"digest": _digest(_bytes_of(stated))})
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
            digest=_digest_of_file(self._file),
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
    write_whole(file, _bytes_of(content) + b"\n")


def _bytes_of(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _is_ours(name: str) -> bool:
    part = name.startswith("part-") and name.endswith(".parquet")
    return part or name == SPILL or _marks(name)


def _marks(name: str) -> bool:
    """Whether a file of this name is the manifest or the marker, under its final or a temporary name."""
    return name in (MANIFEST, UNFINISHED) or name.startswith((f".{MANIFEST}", f".{UNFINISHED}"))


class ContentHash:
    """SHA-256 over rows that arrive in pieces; how the rows are cut into pieces does not change it."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = plain_schema(schema)
        self._columns = [_Column(field.type) for field in self._schema]
        self.rows = 0

    def update(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows, which have the columns of the schema in its order."""
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            for column, array in zip(self._columns, batch.columns, strict=True):
                column.update(to_plain(array))
            self.rows += len(batch)

    def hexdigest(self) -> str:
        """`sha256:` and 64 hex digits."""
        whole = hashlib.sha256(f"rows {self.rows}\n".encode())
        for field, column in zip(self._schema, self._columns, strict=True):
            # with the length in front, different schemas cannot give the same text
            whole.update(f"{len(field.name)} {field.name} {field.type}\n".encode())
            whole.update(column.digest())
        return f"sha256:{whole.hexdigest()}"


def checksum(rows: pa.Table) -> str:
    """The content checksum of a whole table."""
    content = ContentHash(rows.schema)
    content.update(rows)
    return content.hexdigest()


def combined(checksums: Iterable[str]) -> str:
    """One checksum for consecutive pieces, such as the parts of a folder."""
    return f"sha256:{hashlib.sha256(' '.join(checksums).encode()).hexdigest()}"


class _Column:
    """Hashes one column's nulls, lengths, bytes and children separately, so that cuts do not matter."""

    def __init__(self, t: pa.DataType) -> None:
        self._nulls, self._lengths, self._data = (hashlib.sha256() for _ in range(3))
        self._children = [_Column(field.type) for field in child_fields(t)]
        self._rows = 0

    def update(self, array: pa.Array) -> None:
        if array.null_count:
            nulls = np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False))
            self._nulls.update((nulls + self._rows).astype("<i8").tobytes())
        self._rows += len(array)
        t = array.type
        if pat.is_struct(t):
            for i, child in enumerate(self._children):
                child.update(array.field(i))
        elif pat.is_map(t):
            self._add_lengths(array)
            self._children[0].update(array.keys)
            self._children[1].update(array.items)
        elif is_list(t):
            self._add_lengths(array)
            self._children[0].update(array.values)
        elif is_string(t) or is_binary(t):
            self._add_lengths(array)
            if len(array):
                self._data.update(array.buffers()[2] or b"")
        elif pat.is_boolean(t):
            # one byte per value: the bits of two pieces would have to be shifted together
            bits = array.fill_null(False).to_numpy(zero_copy_only=False)
            self._data.update(bits.astype(np.uint8).tobytes())
        elif len(array):
            # the buffer may be longer than its array
            self._data.update(array.buffers()[1].slice(0, len(array) * t.bit_width // 8))

    def _add_lengths(self, array: pa.Array) -> None:
        if len(array):
            offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)
            self._lengths.update(np.diff(offsets).astype("<i4").tobytes())

    def digest(self) -> bytes:
        """The hash of the digests of nulls, lengths, bytes and children; each digest has 32 bytes."""
        pieces = [part.digest() for part in (self._nulls, self._lengths, self._data)]
        pieces += [child.digest() for child in self._children]
        return hashlib.sha256(b"".join(pieces)).digest()
