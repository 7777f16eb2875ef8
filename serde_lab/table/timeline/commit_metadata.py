"""The metadata of a commit: a WriteStat for every file written, and extra metadata.

HoodieCommitMetadata and HoodieReplaceCommitMetadata are read and written as Avro (layout 2) and JSON
(layout 1). Sources: the writer schema found in tables of Hudi 1.x, and field values as Hudi 1.2.0 on Spark
writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from serde_lab.avro.codec import hudi_schema, read_single, write_single
from serde_lab.errors import TableError

SCHEMA_KEY = "schema"
"""Key of the extra metadata that holds the table's Avro schema, without meta columns."""

NO_PREVIOUS_COMMIT = "null"
"""`prevCommit` of a new file group: a string, not a null."""

COMMIT_SCHEMA = hudi_schema("HoodieCommitMetadata")
REPLACE_COMMIT_SCHEMA = hudi_schema("HoodieReplaceCommitMetadata")


@dataclass(frozen=True, slots=True)
class WriteStat:
    """Statistics of one written file, under Hudi's own field names.

    For a base file, numWrites counts all its rows, carried-over ones too. For a log file, numWrites counts
    data records and numDeletes the records of delete blocks; from table version 8 on, prevCommit is the
    commit's own instant.
    """

    fileId: str  # noqa: N815 (Hudi's names, all of them)
    path: str
    prevCommit: str = NO_PREVIOUS_COMMIT  # noqa: N815
    numWrites: int = 0  # noqa: N815
    numDeletes: int = 0  # noqa: N815
    numUpdateWrites: int = 0  # noqa: N815
    totalWriteBytes: int = 0  # noqa: N815
    totalWriteErrors: int = 0  # noqa: N815
    partitionPath: str = ""  # noqa: N815
    totalLogRecords: int = 0  # noqa: N815
    totalLogFiles: int = 0  # noqa: N815
    totalUpdatedRecordsCompacted: int = 0  # noqa: N815
    numInserts: int = 0  # noqa: N815
    totalLogBlocks: int = 0  # noqa: N815
    totalCorruptLogBlock: int = 0  # noqa: N815
    totalRollbackBlocks: int = 0  # noqa: N815
    fileSizeInBytes: int = 0  # noqa: N815
    logVersion: int | None = None  # noqa: N815
    logOffset: int | None = None  # noqa: N815
    baseFile: str | None = None  # noqa: N815
    logFiles: tuple[str, ...] | None = None  # noqa: N815
    prevBaseFile: str | None = None  # noqa: N815
    minEventTime: int | None = None  # noqa: N815
    maxEventTime: int | None = None  # noqa: N815
    totalLogFilesCompacted: int = 0  # noqa: N815
    totalLogReadTimeMs: int = 0  # noqa: N815
    totalLogSizeCompacted: int = 0  # noqa: N815

    @property
    def is_log(self) -> bool:
        return self.logFiles is not None

    def to_record(self) -> dict[str, Any]:
        """All fields of Hudi's HoodieWriteStat, as Avro and JSON take them."""
        # asdict would copy every value, which counts in a commit of thousands of files
        record = {name: getattr(self, name) for name in _STAT_FIELDS}
        if self.logFiles is not None:
            record["logFiles"] = list(self.logFiles)
        return {
            **record,
            "numUpdates": 0,
            "cdcStats": None,
            "tempPath": None,
            "runtimeStats": {"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": 0},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read a stat of any writer: unknown fields are ignored, nulls become defaults."""
        values = {k: v for k, v in record.items() if k in _STAT_FIELDS and v is not None}
        values.setdefault("fileId", "")
        values.setdefault("path", "")
        if values.get("logFiles") is not None:
            values["logFiles"] = tuple(values["logFiles"])
        if not all(isinstance(v, _STAT_FIELDS[k] or object) for k, v in values.items()):
            raise TypeError(f"a write stat has values of another kind: {values}")
        return cls(**values)


_STAT_FIELDS = {f.name: {"str": str, "int": int}.get(str(f.type)) for f in fields(WriteStat)}


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The content of a completed (or inflight) commit, deltacommit or replacecommit."""

    operation_type: str
    write_stats: tuple[WriteStat, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    compacted: bool = False
    replaced_file_ids: Mapping[str, tuple[str, ...]] | None = None
    """File groups that this commit replaces, by partition path; None unless it is a replacecommit."""

    def by_partition(self) -> dict[str, list[WriteStat]]:
        """The write stats by partition path; partitions, and the files of each, are sorted by path."""
        grouped: dict[str, list[WriteStat]] = {}
        for stat in sorted(self.write_stats, key=lambda s: (s.partitionPath, s.path)):
            grouped.setdefault(stat.partitionPath, []).append(stat)
        return grouped

    @property
    def replaced_file_groups(self) -> set[tuple[str, str]]:
        """(partition path, file id) of the file groups that this commit replaces."""
        by_partition = self.replaced_file_ids or {}
        return {(partition, name) for partition, ids in by_partition.items() for name in ids}

    def to_bytes(self, layout_version: int) -> bytes:
        """The file's content: JSON in layout 1, an Avro container in layout 2."""
        record: dict[str, Any] = {
            "partitionToWriteStats": {
                partition: [stat.to_record() for stat in stats]
                for partition, stats in self.by_partition().items()
            },
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra_metadata),
            "operationType": self.operation_type,
        }
        if self.replaced_file_ids is not None:
            record["partitionToReplaceFileIds"] = {
                partition: list(ids) for partition, ids in self.replaced_file_ids.items()
            }
        if layout_version == 1:
            return json.dumps(record, indent=2).encode()
        replaces = self.replaced_file_ids is not None
        record["version"] = None
        return write_single(REPLACE_COMMIT_SCHEMA if replaces else COMMIT_SCHEMA, record)

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """Read either form. Raises TableError naming `where`, for an empty file too.

        Apache Hudi takes an empty file for a commit without files. But no writer completes a write by one,
        and what the write replaced, its columns and its batch would be forgotten.
        """
        if not content:
            raise TableError(f"{where}: is empty, and every write states there what it did")
        is_json = content[:1] == b"{"
        record = json_object(content, f"{where}:") if is_json else read_single(content, where)
        operation, replaced = (
            record.get(k) for k in ("operationType", "partitionToReplaceFileIds")
        )
        try:
            stats = tuple(_stats(record.get("partitionToWriteStats") or {}))
            gone = None if replaced is None else {p: tuple(ids) for p, ids in replaced.items()}
            extra = dict(record.get("extraMetadata") or {})
        except (TypeError, ValueError, AttributeError) as exc:
            raise TableError(f"{where}: has a value of another kind than a commit's") from exc
        return cls(operation or "UNKNOWN", stats, extra, bool(record.get("compacted")), gone)


def _stats(by_partition: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterable[WriteStat]:
    for partition, records in by_partition.items():
        for record in records:
            yield WriteStat.from_record({"partitionPath": partition, **record})


def json_object(content: bytes | str, what: str) -> dict[str, Any]:
    """The JSON object in `content`. Raises TableError, which begins with `what`."""
    try:
        record = json.loads(content)
    except ValueError as exc:
        raise TableError(f"{what} is not readable JSON: {exc}") from exc
    if not isinstance(record, dict):
        raise TableError(f"{what} holds {type(record).__name__}; a JSON object was expected")
    return record
