"""The archived timeline of layout 2: the instants that archiving took from the active timeline, and those
of them that a restore has undone.

It is instants in Parquet files, listed by a manifest:

    <first instant>_<last instant>_<layer>.parquet    rows of HoodieLSMTimelineInstant
    manifest_<n>                                      the Parquet files that count, as JSON
    _version_                                         the newest n

A manifest is written before `_version_` points to it, so that readers see either the old or the new state.
Sources: org.apache.hudi.client.timeline.versioning.v2.LSMTimelineWriter and
org.apache.hudi.common.table.timeline.LSMTimeline.

In layout 1 it is log files of Avro blocks, `.commits_.archive.<number>_1-0-1`, each of whose rows is one
state of an instant. Source: org.apache.hudi.client.timeline.versioning.v1.TimelineArchiverV1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.avro.codec import hudi_schema, read_single
from serde_lab.errors import TableError
from serde_lab.records.buffers import parquet_errors, rows_of
from serde_lab.table.files.log_block import Damage, Header, decode_avro, parse_blocks
from serde_lab.table.files.parquet import parquet_file
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, Instant, Timeline

FILES_PER_LAYER = 10
"""This many files of one layer are merged into one of the next (Hudi's default)."""
MANIFESTS_KEPT = 3

_LOG = ".commits_.archive."
_COMMITS = ("hoodieCommitMetadata", "hoodieReplaceCommitMetadata")
_NAME = re.compile(r"^(\d+)_(\d+)_(\d+)\.parquet$")
_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_AVRO = json.dumps(hudi_schema("HoodieLSMTimelineInstant"))


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """One archived action. `metadata`: content of its completed file; `plan`: of its requested file."""

    time: str
    completion_time: str | None
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None


class LsmTimeline:
    """The history folder of one table."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def instants(self) -> list[ArchivedInstant]:
        """All archived instants, by time; one entry per instant and action."""
        found: dict[tuple[str, str], ArchivedInstant] = {}
        for name in self._files(None):
            for row in self._read(name).to_pylist():
                instant = ArchivedInstant(
                    row["instantTime"],
                    row["completionTime"],
                    row["action"],
                    row["metadata"],
                    row["plan"],
                )
                found[(instant.time, instant.action)] = instant
        return [found[key] for key in sorted(found)]

    def times(self, among: Collection[str] | None = None) -> set[tuple[str, str]]:
        """(time, action) of all archived instants, without reading their metadata.

        With `among`, files whose names say that they hold none of these times are not read.
        """
        return {
            (row["instantTime"], row["action"])
            for name in self._files(among)
            for row in self._read(name, ["instantTime", "action"]).to_pylist()
        }

    def completions(self, among: Collection[str] | None = None) -> dict[str, str]:
        """When the archived writes among these instants completed; by default all archived writes."""
        return {
            row["instantTime"]: row["completionTime"]
            for name in self._files(among)
            for row in self._read(name, ["instantTime", "completionTime", "action"]).to_pylist()
            if (among is None or row["instantTime"] in among)
            and row["action"] in WRITE_ACTIONS
            and row["completionTime"]
        }

    def add(self, instants: Sequence[ArchivedInstant]) -> None:
        """Append instants, in order of time, and merge small files into larger ones."""
        if not instants:
            return
        ordered = sorted(instants, key=lambda instant: (instant.time, instant.action))
        self._add_file(_table(ordered), (ordered[0].time, ordered[-1].time, 0), [])
        layer = 0
        while self._merge_layer(layer):
            layer += 1
        self._drop_old_manifests()

    def _merge_layer(self, layer: int) -> bool:
        names = [name for name in self._files(None) if _parts(name)[2] == layer]
        if len(names) < FILES_PER_LAYER:
            return False
        oldest = sorted(names)[:FILES_PER_LAYER]
        rows = pa.concat_tables([self._read(name) for name in oldest])
        first = min(_parts(name)[0] for name in oldest)
        last = max(_parts(name)[1] for name in oldest)
        self._add_file(rows, (first, last, layer + 1), oldest)
        return True

    def _add_file(self, rows: pa.Table, parts: tuple[str, str, int], instead: list[str]) -> None:
        name = "{}_{}_{}.parquet".format(*parts)
        out = pa.BufferOutputStream()
        with pq.ParquetWriter(
            out, _SCHEMA, compression="gzip", compression_level=6, write_page_checksum=True
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"parquet.avro.schema": _AVRO})
        content = out.getvalue()
        # a file of this name that is in no manifest was left by an archiving that died
        self._storage.replace(f"{self._folder}/{name}", content)
        version = self._version()
        entries = [e for e in self._manifest(version) if e["fileName"] not in (name, *instead)]
        entries.append({"fileName": name, "fileLen": content.size})
        text = json.dumps({"files": entries}, indent=2)
        self._storage.replace(f"{self._folder}/manifest_{version + 1}", text.encode())
        self._storage.replace(f"{self._folder}/_version_", str(version + 1).encode())

    def _drop_old_manifests(self) -> None:
        newest = self._version()
        kept: set[str] = set()
        manifests = sorted(self._manifest_versions())
        for version in manifests[-MANIFESTS_KEPT:]:
            kept.update(entry["fileName"] for entry in self._manifest(version))
        for version in manifests[:-MANIFESTS_KEPT]:
            if version != newest:
                self._storage.delete(f"{self._folder}/manifest_{version}")
        for file in self._storage.list_folder(self._folder)[1]:
            if _NAME.match(file.name) and file.name not in kept:
                self._storage.delete(file.path)

    def _files(self, among: Collection[str] | None) -> list[str]:
        """The Parquet files that count; with `among`, those whose names span one of these times."""
        names = [entry["fileName"] for entry in self._manifest(self._version())]
        if among is None:
            return names
        return [n for n in names if any(_parts(n)[0] <= time <= _parts(n)[1] for time in among)]

    def _version(self) -> int:
        """The newest manifest's number, 0 if there is none."""
        content = self._storage.get_if_present(f"{self._folder}/_version_")
        if content is not None and content.strip().isdigit():
            return int(content)
        return max(self._manifest_versions(), default=0)

    def _manifest_versions(self) -> list[int]:
        names = [f.name for f in self._storage.list_folder(self._folder)[1]]
        numbers = [n.removeprefix("manifest_") for n in names if n.startswith("manifest_")]
        return [int(number) for number in numbers if number.isdigit()]

    def _manifest(self, version: int) -> list[dict[str, Any]]:
        if version < 1:
            return []
        path = f"{self._folder}/manifest_{version}"
        try:
            files = json.loads(self._storage.get(path))["files"]
            for one in files:
                _parts(one["fileName"])
        except (ValueError, KeyError, TypeError, TableError) as exc:
            raise TableError(f"{self._storage.describe(path)}: is not a manifest: {exc}") from exc
        return list(files)

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        path = f"{self._folder}/{name}"
        with parquet_errors(self._storage.describe(path), TableError):
            table = rows_of(parquet_file(self._storage.open_input(path)), columns)
        if columns is not None:
            return table
        return table.select(_SCHEMA.names).cast(_SCHEMA)


@dataclass(frozen=True, slots=True)
class Undone:
    """What restores have undone: everything between a savepoint and the restore to it.

    Apache Hudi takes away what is on the active timeline. Writes that had been archived behind the savepoint
    (hoodie.archive.beyond.savepoint) stay in the history, and their files in the table. A write that began
    after the savepointed one and completed before it is not undone, whenever it is archived.
    """

    spans: tuple[tuple[str, str, str], ...] = ()
    """The instant time of a savepoint and of a restore, and when the savepointed write completed."""

    @classmethod
    def by_restores(
        cls, timeline: Timeline, instants: Iterable[Instant], history: LsmTimeline | None = None
    ) -> Undone:
        """What the restores among `instants` have undone. `history`: of layout 2, which has completion
        times."""
        known = tuple(instants)
        spans = []
        for one in known:
            if one.action != "restore" or not one.is_completed:
                continue
            requested = replace(one, state="requested")
            content = timeline.read_if_present(requested)
            if content is None or (not content and history is None):
                continue  # before layout 2 releases of Hudi wrote an empty one
            plan = read_single(content, timeline.path(requested))
            if saved := plan.get("savepointToRestoreTimestamp"):
                spans.append((str(saved), one.time))
        done = {i.time: i.completion_time for i in known if i.is_completed and i.is_write}
        if history is not None and spans:
            done = {**history.completions({saved for saved, _ in spans}), **done}
        return cls(tuple((saved, restored, done.get(saved) or saved) for saved, restored in spans))

    def has(self, instant: str, completion: str | None = None) -> bool:
        """Whether this write was undone, if it is not on the active timeline.

        `completion`: when it completed; None if that is not known.
        """
        return any(
            saved < instant < restored and (completion is None or completion > completed)
            for saved, restored, completed in self.spans
        )


def archived_in_layout_1(storage: Storage, folder: str, key: str) -> Iterator[ArchivedInstant]:
    """The archived writes whose extra metadata has `key`; of their `metadata`, only that.

    Raises TableError for a damaged file, which may have had others.
    """
    for file in storage.list_files(folder):
        if not file.name.startswith(_LOG):
            continue
        where = storage.describe(file.path)
        for block in parse_blocks(pa.py_buffer(storage.get(file.path))):
            if isinstance(block, Damage):
                raise TableError(f"{where}: at byte {block.offset}, {block.problem}")
            # rows have every file of a write, which need not be decoded
            if key.encode() not in block.content.to_pybytes():
                continue
            for row in decode_avro(block.content, block.header[Header.SCHEMA], where).to_pylist():
                if row.get("actionState") not in (None, "COMPLETED"):
                    continue
                stated = [row[name]["extraMetadata"] for name in _COMMITS if row.get(name)]
                for extra in map(dict, filter(None, stated)):
                    if key in extra:
                        metadata = json.dumps({"extraMetadata": extra}).encode()
                        yield ArchivedInstant(row["commitTime"], None, "commit", metadata)


def _table(instants: Sequence[ArchivedInstant]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "instantTime": i.time,
                "completionTime": i.completion_time,
                "action": i.action,
                "metadata": i.metadata,
                "plan": i.plan,
                "version": 1,
            }
            for i in instants
        ],
        schema=_SCHEMA,
    )


def _parts(name: str) -> tuple[str, str, int]:
    match = _NAME.match(name)
    if match is None:
        raise TableError(f"{name}: is not a history file's name")
    return match[1], match[2], int(match[3])
