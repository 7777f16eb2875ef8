"""Sizing of base files: which files are small, how large a record is, and how many records fit.

Source: org.apache.hudi.estimator.AverageRecordSizeEstimator, and getSmallFiles of UpsertPartitioner,
SparkUpsertDeltaCommitPartitioner, WriteProfile and DeltaWriteProfile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

from serde_lab.errors import OptionError
from serde_lab.table.files.file_names import BaseFileName
from serde_lab.table.files.file_system_view import FileSlice, FileSystemView
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata

SIZING_OPTIONS: Mapping[str, str] = {
    "hoodie.parquet.small.file.limit": "small_file_limit_bytes",
    "hoodie.parquet.max.file.size": "max_file_bytes",
    "hoodie.copyonwrite.insert.split.size": "insert_split_rows",
    "hoodie.copyonwrite.insert.auto.split": "auto_split",
    "hoodie.copyonwrite.record.size.estimate": "record_bytes_estimate",
    "hoodie.record.size.estimation.threshold": "estimation_threshold",
    "_hoodie.record.size.estimator.max.commits": "estimation_commits",
    "hoodie.record.size.estimator.average.metadata.size": "file_metadata_bytes",
    "hoodie.logfile.to.parquet.compression.ratio": "log_compression_ratio",
    "hoodie.merge.small.file.group.candidates.limit": "small_file_candidates",
}
"""Option of Hudi 1.2.0 -> the field of FileSizing that it sets."""


@dataclass(frozen=True, slots=True)
class FileSizing:
    """How a write sizes its base files; the defaults are Hudi's."""

    small_file_limit_bytes: int = 100 << 20
    """Smaller base files take inserts; with 0 none does."""
    max_file_bytes: int = 120 << 20
    insert_split_rows: int = 500_000
    """Inserts per new file, unless `auto_split` computes them from sizes."""
    auto_split: bool = True
    record_bytes_estimate: int = 1024
    """Assumed size of a record until a commit is large enough to measure it."""
    estimation_threshold: float = 1.0
    """A commit measures the record size if it wrote more than this share of the small-file limit."""
    estimation_commits: int = 5
    file_metadata_bytes: int = 0
    """Bytes per file that are not records."""
    log_compression_ratio: float = 0.35
    """Bytes in a base file per byte of a log."""
    small_file_candidates: int = 1
    """Small files of a partition that may grow in one write if the index does not cover logs."""

    def __post_init__(self) -> None:
        least = {"max_file_bytes": 1, "insert_split_rows": 1, "record_bytes_estimate": 1}
        for option, name in SIZING_OPTIONS.items():
            value = getattr(self, name)
            if value < least.get(name, 0):
                raise OptionError(f"{option} is {value}; {least.get(name, 0)} is the least")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """The sizing that Hudi's options set; other options are ignored. Raises OptionError, naming the
        option, for a bad value."""
        given: dict[str, Any] = {}
        for option, name in SIZING_OPTIONS.items():
            if option in options:
                given[name] = _parsed(option, options[option], getattr(cls(), name))
        return cls(**given)

    def rows_per_new_file(self, record_bytes: int) -> int:
        """Inserts per new file group."""
        if not self.auto_split:
            return self.insert_split_rows
        return max(1, self.max_file_bytes // max(1, record_bytes))


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file group that may take inserts, with the size that its base file has or would have."""

    file_id: str
    size_bytes: int

    def room(self, sizing: FileSizing, record_bytes: int) -> int:
        """Number of records that still fit."""
        return max(0, (sizing.max_file_bytes - self.size_bytes) // max(1, record_bytes))


def small_files(
    view: FileSystemView, partition_path: str, sizing: FileSizing, index_covers_logs: bool
) -> tuple[SmallFile, ...]:
    """The file groups of a partition that take inserts, in the order in which they are filled.

    Copy-on-write: every base file below the limit, by file id. Merge-on-read with an index that covers logs
    (state, bucket): every slice below the maximum size, where a log counts as the base file that it would
    become. Merge-on-read with another index (BLOOM): only slices without logs, the smallest few, since
    inserts then go into base files and a slice with logs cannot be rewritten.
    """
    if sizing.small_file_limit_bytes <= 0:
        return ()
    slices = view.latest_file_slices(partition_path)
    if not view.config.is_mor:
        return tuple(
            SmallFile(base.file_id, base.size_bytes)
            for base in view.latest_base_files(partition_path)
            if 0 < base.size_bytes < sizing.small_file_limit_bytes
        )
    sized = [SmallFile(s.file_id, _expected_bytes(s, sizing)) for s in slices]
    if index_covers_logs:
        return tuple(file for file in sized if file.size_bytes < sizing.max_file_bytes)
    alone = [
        file
        for file, s in zip(sized, slices, strict=True)
        if not s.log_files and file.size_bytes < sizing.small_file_limit_bytes
    ]
    alone.sort(key=lambda file: (file.size_bytes, file.file_id))
    return tuple(alone[: sizing.small_file_candidates])


def average_record_bytes(commits: Iterable[tuple[str, CommitMetadata]], sizing: FileSizing) -> int:
    """Bytes per stored record, rounded up, from the newest commit that is large enough.

    `commits`: (action, metadata), newest first. Replacecommits do not count, since records take less room in
    clustered files; of a deltacommit only base files count. If none of the newest few wrote more than the
    threshold, the options' estimate is used.
    """
    threshold = int(sizing.estimation_threshold * sizing.small_file_limit_bytes)
    counted = (entry for entry in commits if entry[0] in ("commit", "deltacommit"))
    for action, metadata in islice(counted, sizing.estimation_commits):
        stats = metadata.write_stats
        if action == "deltacommit":
            stats = tuple(s for s in stats if _is_base_file(s.path))
        written = sum(s.totalWriteBytes for s in stats) - len(stats) * sizing.file_metadata_bytes
        rows = sum(s.numWrites for s in stats)
        if written > threshold and rows > 0:
            return max(1, math.ceil(written / rows))
    return sizing.record_bytes_estimate


def table_record_bytes(table: HoodieTable, sizing: FileSizing) -> int:
    """`average_record_bytes` of a table's active timeline; reads no more commits than needed."""
    newest_first = reversed(table.timeline().completed())
    return average_record_bytes(
        (
            (instant.action, table.commit_metadata(instant))
            for instant in newest_first
            if instant.action != "replacecommit"
        ),
        sizing,
    )


def _is_base_file(path: str) -> bool:
    return BaseFileName.parse(path.rpartition("/")[2]) is not None


def _expected_bytes(slice_: FileSlice, sizing: FileSizing) -> int:
    base = 0 if slice_.base_file is None else slice_.base_file.size_bytes
    logs = sum(log.size_bytes for log in slice_.log_files)
    return base + int(logs * sizing.log_compression_ratio)


def _parsed(option: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text.strip().lower() not in ("true", "false"):
            raise OptionError(f"{option} is {text!r}; it must be true or false")
        return text.strip().lower() == "true"
    try:
        return float(text) if isinstance(default, float) else int(text)
    except ValueError as exc:
        kind = "a number" if isinstance(default, float) else "a whole number"
        raise OptionError(f"{option} is {text!r}; it must be {kind}") from exc
