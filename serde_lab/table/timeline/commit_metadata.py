"""Metadata of completed commits: a WriteStat for every file written, and extra metadata.

HoodieCommitMetadata and HoodieReplaceCommitMetadata are read and written as Avro (layout 2) and JSON (layout
1). Source: the writer schema found in tables of Hudi 1.x; field values as Hudi 1.2.0 on Spark writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from serde_lab.avro.container import hudi_schema, read_single, write_single
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
        record = asdict(self)
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
        known = {f.name for f in fields(cls)}
        values = {k: v for k, v in record.items() if k in known and v is not None}
        values.setdefault("fileId", "")
        values.setdefault("path", "")
        if values.get("logFiles") is not None:
            values["logFiles"] = tuple(values["logFiles"])
        return cls(**values)


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
        """Read either form; an empty file is an empty commit. Raises TableError naming `where`."""
        if not content:
            return cls("UNKNOWN")
        record = _read_json(content, where) if content[:1] == b"{" else read_single(content, where)
        stats = _stats(record.get("partitionToWriteStats") or {})
        replaced = record.get("partitionToReplaceFileIds")
        return cls(
            operation_type=record.get("operationType") or "UNKNOWN",
            write_stats=tuple(stats),
            extra_metadata=record.get("extraMetadata") or {},
            compacted=bool(record.get("compacted")),
            replaced_file_ids=(
                None if replaced is None else {p: tuple(ids) for p, ids in replaced.items()}
            ),
        )


def _stats(by_partition: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterable[WriteStat]:
    for partition, records in by_partition.items():
        for record in records:
            yield WriteStat.from_record({"partitionPath": partition, **record})


def _read_json(content: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(content)
    except ValueError as exc:
        raise TableError(f"{where}: is no readable JSON: {exc}") from exc
    if not isinstance(record, dict):
        raise TableError(f"{where}: holds {type(record).__name__}; a JSON object was expected")
    return record
