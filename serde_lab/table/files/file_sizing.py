"""Sizing of base files: how large a record is, how many fit, and which file group takes each insert.

Inserts fill small files first, then the partition's new file until it is full, then another new one. Sources:
org.apache.hudi.estimator.AverageRecordSizeEstimator, getSmallFiles of UpsertPartitioner,
SparkUpsertDeltaCommitPartitioner, WriteProfile and DeltaWriteProfile, and
org.apache.hudi.sink.partitioner.BucketAssigner. (UpsertPartitioner#assignInserts fills the same files in the
same order but spreads the records over them by key hash.)

Several tasks assign at the same time without coordination: each uses only small files and new ids that belong
to it, so that a file group has one writer.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import OptionError
from serde_lab.records.buffers import rows_by_value
from serde_lab.table.files.file_system_view import FileSystemView
from serde_lab.table.storage.data_files import BaseFileName
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

    def rows_per_new_file(self, record_bytes: int) -> int:
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
    ratio = sizing.log_compression_ratio
    sized = [SmallFile(s.file_id, s.base_bytes + int(s.log_bytes * ratio)) for s in slices]
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
            stats = tuple(s for s in stats if BaseFileName.parse(s.path.rpartition("/")[2]))
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


@dataclass(frozen=True, slots=True)
class InsertRun:
    """Consecutive inserts of a partition that go to one file group."""

    file_id: str
    rows: int


@dataclass(slots=True)
class _OpenGroup:
    """A file group that still takes inserts."""

    file_id: str
    room: int


@dataclass(slots=True)
class _Filling:
    """The file groups of one partition that take inserts, the current one first."""

    open: deque[_OpenGroup]
    drawn: int = 0


class BucketAssigner:
    """Assigns the inserts of one task, partition by partition.

    `small_files`: by partition path, from `file_sizing.small_files`; those of other tasks are not used.
    `task_of` maps a file id to the task that writes it. `seed` makes new file ids: equal seeds give equal
    ids, whatever the order of partitions, so it must differ between the writes of a table. `record_bytes`:
    see `average_record_bytes`.
    """

    def __init__(
        self,
        sizing: FileSizing,
        record_bytes: int,
        small_files: Mapping[str, Sequence[SmallFile]],
        *,
        seed: str,
        task: int = 0,
        task_of: Callable[[str], int] = lambda file_id: 0,
    ) -> None:
        self._sizing, self._record_bytes = sizing, record_bytes
        self._small_files, self._seed = small_files, seed
        self._task, self._task_of = task, task_of
        self._filling: dict[str, _Filling] = {}
        self._new: dict[str, str] = {}

    @property
    def new_file_ids(self) -> Collection[str]:
        """The ids of the file groups that this task created, in order of creation; inserts with any other id
        join a stored file group."""
        return self._new.keys()

    def assign(self, partition_path: str, rows: int) -> list[InsertRun]:
        """The file groups of the partition's next `rows` inserts, in their order."""
        filling = self._filling.get(partition_path)
        if filling is None:
            filling = self._filling[partition_path] = self._begin(partition_path)
        runs = []
        while rows > 0:
            while filling.open and not filling.open[0].room:
                filling.open.popleft()
            if not filling.open:
                room = self._sizing.rows_per_new_file(self._record_bytes)
                filling.open.append(_OpenGroup(self._draw(partition_path, filling), room))
            current = filling.open[0]
            taken = min(rows, current.room)
            current.room -= taken
            rows -= taken
            runs.append(InsertRun(current.file_id, taken))
        return runs

    def assign_rows(self, paths: pa.Array | None, keys: pa.Array) -> pa.DictionaryArray:
        """The file id of the insert of each of `keys`, as a dictionary array in their order.

        `paths`: their partition paths; None in a table without partitions. Where inserts go to several file
        groups, their keys say which go where, whatever the order in which they come: a task that is tried
        again may see them in another one, while some of its first attempt's files stand.
        """
        rows = len(keys)
        at_paths = [("", np.arange(rows))] if paths is None else rows_by_value(paths)
        return _spread([(at, self.assign(path, len(at))) for path, at in at_paths], keys)

    def _begin(self, partition_path: str) -> _Filling:
        return _Filling(
            deque(
                _OpenGroup(file.file_id, file.room(self._sizing, self._record_bytes))
                for file in self._small_files.get(partition_path, ())
                if self._task_of(file.file_id) == self._task
            )
        )

    def _draw(self, partition_path: str, filling: _Filling) -> str:
        """The next new id that belongs to this task. Source: BucketAssigner#createFileIdOfThisTask."""
        while True:
            drawn = new_file_id(self._seed, partition_path, filling.drawn)
            filling.drawn += 1
            if self._task_of(drawn) == self._task:
                self._new[drawn] = partition_path
                return drawn


def new_file_id(seed: str, partition_path: str, number: int) -> str:
    """The id of a new file group: a UUID of version 4 derived from the arguments, then `-0`."""
    drawn = uuid.uuid5(uuid.NAMESPACE_URL, f"{seed}/{partition_path}/{number}")
    return f"{uuid.UUID(bytes=drawn.bytes, version=4)}-0"


def _spread(
    parts: Iterable[tuple[npt.NDArray[np.int64], Sequence[InsertRun]]], keys: pa.Array
) -> pa.DictionaryArray:
    """The file ids of runs as one array, in the order of the batch."""
    ids: dict[str, int] = {}
    codes = np.zeros(len(keys), np.int32)
    for places, runs in parts:
        numbers = [ids.setdefault(run.file_id, len(ids)) for run in runs]
        of_places = np.repeat(np.array(numbers, np.int32), [run.rows for run in runs])
        if len(runs) > 1:
            # equal keys have one rank and stay together, since nothing says in which order they come
            ranks = pc.rank(keys.take(pa.array(places)), tiebreaker="min").to_numpy()
            of_places = of_places[ranks.astype(np.int64) - 1]
        codes[places] = of_places
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(ids), pa.string()))
