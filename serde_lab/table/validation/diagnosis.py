"""Diagnoses a table: runs every check in turn, on a table that may be damaged in any way. Read-only.

The checks of the listed files are here: committed ones are present, others absent, names valid. They open no
data file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from serde_lab.errors import LabError
from serde_lab.table.config import PROPERTIES_PATH
from serde_lab.table.files.base_file import BaseFileReader, data_schema
from serde_lab.table.index.index_kind import CONSISTENT_HASHING
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.validation.data_checks import RowCheck, check_contents
from serde_lab.table.validation.finding import Kind, Severity, TableFinding
from serde_lab.table.validation.inspection import Inspection
from serde_lab.table.validation.metadata_checks import check_properties, check_timeline

OWN_READER = "serde_lab"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings for one table. `rows`: row counts of those readers that were asked and could
    read."""

    table: str
    deep: bool
    findings: tuple[TableFinding, ...]
    rows: Mapping[str, int]

    @property
    def rows_at_stake(self) -> bool:
        """Whether any finding means that rows could be lost or wrong: exit status 4."""
        return any(f.severity is Severity.ROWS for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "deep": self.deep,
            "sound": not self.rows_at_stake,
            "rows": dict(self.rows),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def validate_table(
    storage: Storage,
    deep: bool = False,
    readers: Mapping[str, Callable[[str], int]] | None = None,
) -> Diagnosis:
    """Check a table of version 6, 8 or 9 of any writer. `deep` reads every row.

    `readers`: other readers by name; each counts the rows of the table at a URL. Raises StorageError if the
    storage itself refuses.
    """
    table = Inspection.of(storage)
    if table is None:
        nothing = Kind.NOT_A_TABLE.at(storage.url, f"{PROPERTIES_PATH} is missing")
        return Diagnosis(storage.url, deep, (nothing,), {})
    findings = [
        *check_properties(table),
        *check_timeline(table),
        *check_files(table),
        *(check_archived(table) if deep else ()),
        *check_contents(table, deep),
    ]
    rows: dict[str, int] = {}
    if table.refusal is not None and not any(f.severity is Severity.ROWS for f in findings):
        findings.append(Kind.UNSUPPORTED_TABLE.at(PROPERTIES_PATH, table.refusal))
    schema, why = _schema(table)
    if why:
        findings.append(Kind.UNSUPPORTED_TABLE.at(".", f"its columns cannot be read: {why}"))
    if deep and schema is not None:
        check = RowCheck(table, schema)
        findings += check.check()
        if not any(f.kind is Kind.ROWS_UNREADABLE for f in findings):
            rows[OWN_READER] = check.rows
    findings += _ask(storage, readers or {}, rows)
    order = list(Severity)
    findings.sort(key=lambda f: (order.index(f.severity), f.name, f.where))
    return Diagnosis(storage.url, deep, tuple(findings), rows)


def _schema(table: Inspection) -> tuple[pa.Schema | None, str]:
    """The table's data columns, from its commits or else from the newest readable base file; and why they
    cannot be read from its commits, "" if they can."""
    if table.config is None or table.view is None:
        return None, ""
    try:
        return HoodieTable(table.storage, table.config).data_schema(view=table.view), ""
    except LabError as exc:
        why = exc.message
    for base in sorted(table.view.latest_base_files(), reverse=True):
        try:
            return data_schema(BaseFileReader(table.storage, base.path).schema), why
        except LabError:
            continue
    return None, why


def _ask(
    storage: Storage, readers: Mapping[str, Callable[[str], int]], rows: dict[str, int]
) -> list[TableFinding]:
    """Let other readers count the rows; adds to `rows`."""
    findings = []
    for name, count in readers.items():
        try:
            rows[name] = count(storage.url)
        except LabError as exc:
            findings.append(Kind.ROWS_UNREADABLE.at(name, exc.message))
    if len(set(rows.values())) > 1:
        counted = ", ".join(f"{name} {number}" for name, number in rows.items())
        findings.append(Kind.READERS_DISAGREE.at(".", f"rows: {counted}"))
    return findings


def check_files(table: Inspection) -> Iterator[TableFinding]:
    yield from _partitions(table)
    yield from _uncommitted(table)
    commits = {instant.time: metadata for instant, metadata in table.commits.items()}
    yield from _committed(table, commits, table.replaced.keys())
    yield from _replaced(table)
    yield from _doubled(table)
    yield from _stray(table)
    yield from _log_only(table)
    yield from _buckets(table)


def _partitions(table: Inspection) -> Iterator[TableFinding]:
    known = set(table.files.partitions)
    holding = {file.partition_path for file in table.files.data_files}
    for partition in sorted(holding - known):
        yield Kind.PARTITION_METADATA_MISSING.at(
            partition or ".", ".hoodie_partition_metadata is missing, and there are data files"
        )


def _uncommitted(table: Inspection) -> Iterator[TableFinding]:
    visibility, history = table.visibility, table.history
    committed = set(visibility.completion_times)
    for file in table.files.data_files:
        if file.instant in committed or file.instant in visibility.pending:
            continue
        if not file.instant < visibility.start:
            yield Kind.ORPHAN_FILE.at(file.path, f"no instant {file.instant} is on the timeline")
        elif history is not None and file.instant not in history:
            yield Kind.ORPHAN_VISIBLE.at(
                file.path,
                f"instant {file.instant} is older than the timeline and not in its history",
            )


def check_archived(table: Inspection) -> Iterator[TableFinding]:
    """The files of archived commits, whose metadata is read from the history."""
    archived, unreadable = table.archived()
    for where, why in unreadable.items():
        yield Kind.COMMIT_UNREADABLE.at(where, why)
    replaced = {group for one in archived.values() for group in one.replaced_file_groups}
    yield from _committed(table, archived, replaced | table.replaced.keys())


def _committed(
    table: Inspection, commits: Mapping[str, CommitMetadata], replaced: Set[tuple[str, str]]
) -> Iterator[TableFinding]:
    """Files that a commit names and its readers still need, but that are missing or differ in size."""
    sizes = {file.path: file.size_bytes for file in table.files.data_files}
    # files of formats that this project does not know exist all the same
    sizes |= {file.path: file.size_bytes for file in table.files.others}
    newest_base: dict[tuple[str, str], str] = defaultdict(str)
    for base in table.files.base_files:
        if table.visibility.completion_of(base.instant) is not None:
            group = (base.partition_path, base.file_id)
            newest_base[group] = max(newest_base[group], base.instant)
    for time, metadata in commits.items():
        for stat in metadata.write_stats:
            group = (stat.partitionPath, stat.fileId)
            size = sizes.get(stat.path)
            if size is not None:
                if stat.fileSizeInBytes and size != stat.fileSizeInBytes:
                    yield Kind.FILE_SIZE_DIFFERS.at(
                        stat.path,
                        f"it has {size} bytes; instant {time} wrote {stat.fileSizeInBytes}",
                    )
            elif stat.path and group not in replaced and newest_base[group] <= time:
                # files older than the group's newest base file may have been cleaned
                yield Kind.FILE_MISSING.at(
                    stat.path, f"instant {time} wrote {stat.numWrites} rows to it"
                )


def _replaced(table: Inspection) -> Iterator[TableFinding]:
    """Files written to a file group after it was replaced, or by the replacing instant itself."""
    for instant, metadata in table.commits.items():
        completed = instant.completion_time or instant.time
        for stat in metadata.write_stats:
            when = table.replaced.get((stat.partitionPath, stat.fileId))
            if when is not None and completed >= when:
                yield Kind.REPLACED_GROUP_WRITTEN.at(
                    stat.path,
                    f"its file group was replaced at {when}, and instant {instant.time} wrote "
                    f"{stat.numWrites} rows to it",
                )


def _doubled(table: Inspection) -> Iterator[TableFinding]:
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for base in table.files.base_files:
        groups[base.partition_path, base.file_id, base.instant].append(base.path)
    for (_, _, instant), paths in sorted(groups.items()):
        # a pending instant may have two for a while, before one replaces the other; no reader sees them yet
        if len(paths) > 1 and instant not in table.visibility.pending:
            yield Kind.BASE_FILE_DOUBLED.at(
                paths[0], f"{paths[1]} is of the same file group and instant {instant}"
            )


def _stray(table: Inspection) -> Iterator[TableFinding]:
    for file in table.files.others:
        if file.name.endswith(".parquet") and not file.name.startswith("."):
            yield Kind.STRAY_PARQUET.at(
                file.path, "its name ends in .parquet and does not have Hudi's form"
            )


def _log_only(table: Inspection) -> Iterator[TableFinding]:
    bucketed = table.config is not None and table.config.bucket_count is not None
    if table.view is None or bucketed:
        return
    for slice_ in table.view.latest_file_slices():
        if slice_.base_file is None:
            yield Kind.LOG_ONLY_GROUP.at(
                slice_.log_files[0].path, f"file group {slice_.file_id} has no base file"
            )


def _buckets(table: Inspection) -> Iterator[TableFinding]:
    """Only for tables that state a bucket index; others may have any file ids."""
    config = table.config
    if config is None or config.bucket_count is None or table.view is None:
        return
    rings = table.rings
    for where, why in table.unreadable_rings.items():
        yield Kind.HASHING_METADATA_WRONG.at(where, why)
    seen: dict[tuple[str, int], str] = {}
    for slice_ in table.view.latest_file_slices():
        place = f"{slice_.partition_path or '.'}: {slice_.file_id}"
        if config.bucket_engine == CONSISTENT_HASHING:
            ring = rings.get(slice_.partition_path)
            if ring is not None and ring.number_of(slice_.file_id) is None:
                yield Kind.BUCKET_WRONG.at(place, "the file id belongs to no hashing node")
            continue
        bucket, count = slice_.file_id[:8], config.buckets_of(slice_.partition_path) or 0
        if not bucket.isdigit() or not 0 <= int(bucket) < count:
            yield Kind.BUCKET_WRONG.at(place, f"the file id names no bucket below {count}")
            continue
        other = seen.setdefault((slice_.partition_path, int(bucket)), slice_.file_id)
        if other != slice_.file_id:
            yield Kind.BUCKET_DOUBLED.at(place, f"{other} is of bucket {int(bucket)} too")
