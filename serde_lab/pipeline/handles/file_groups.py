"""Splits the records of a writing task by file group, and gives each group a handle.

The group follows from the bucket, or from the file id that records carry or that an assigner in the same
task found. The handle writes a base file for a new group and on copy-on-write, and appends to the group's
log on merge-on-read. A delete skips groups that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, LabError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.assign.assigner import Located
from serde_lab.pipeline.exchange.routing import buckets_of, targets_of
from serde_lab.pipeline.handles.append import AppendHandle
from serde_lab.pipeline.handles.base_file import BaseFileHandle
from serde_lab.pipeline.handles.handle import Task, WriteHandle, WriteStatus
from serde_lab.pipeline.plan import Operation, StoredFileGroup, WritePlan
from serde_lab.records.schema import FILE_ID, INSERT, OPERATION, PARTITION_PATH
from serde_lab.serde.interface import Records
from serde_lab.table.index.bucket_index import bucket_file_id

GroupKey = tuple[str, int | str]
"""Partition path, and bucket or file id."""


@dataclass(frozen=True, slots=True)
class Part:
    """The records of one file group, in input order.

    `operations`: insert or update for each record, as an assigner in this task found; None if the records
    carry it themselves.
    """

    key: GroupKey
    records: Records
    operations: pa.StringArray | None = None

    @property
    def has_inserts(self) -> bool:
        told = self.records.column(OPERATION) if self.operations is None else self.operations
        return bool(pc.any(pc.equal(told, INSERT)).as_py())


class Grouping(Protocol):
    """Splits the records of a writing task by file group."""

    def parts(self, records: Records, located: Located | None = None) -> list[Part]:
        """One part per file group. `located`: the file groups of `records` that carry none themselves.

        Raises LabError for a record that belongs to another task, or to no file group.
        """
        ...

    def new_file_id(self, key: GroupKey) -> str:
        """The file id of a new file group."""
        ...


class ByBucket:
    """Each bucket of a partition is a file group."""

    def __init__(self, plan: WritePlan, partition: int) -> None:
        self.plan, self.partition = plan, partition

    def new_file_id(self, key: GroupKey) -> str:
        plan = self.plan
        path, bucket = key
        assert isinstance(bucket, int)
        # without keys every write makes its own file groups; and the id of a replaced group must never be
        # used again
        own = plan.table.is_keyless or plan.operation.replaces or plan.fresh_file_ids
        return bucket_file_id(bucket, path, plan.seed ^ int(plan.instant) if own else plan.seed)

    def parts(self, records: Records, located: Located | None = None) -> list[Part]:
        assert located is None, "a bucket is told by the key alone"
        plan = self.plan
        if not plan.schema.partition and plan.targets >= plan.buckets:
            # the task has only one bucket, so there is nothing to split
            return [Part(("", self.partition), records)] if len(records) else []
        paths = records.column(PARTITION_PATH) if plan.schema.partition else None
        if plan.table.is_keyless:
            buckets = np.full(len(records), self.partition, np.int32)
            targets = buckets
        else:
            buckets = buckets_of(records.record_keys(), plan.table, paths)
            targets = targets_of(buckets, paths, plan.buckets_in, plan.targets)
        if (targets != self.partition).any():
            row = int(np.flatnonzero(targets != self.partition)[0])
            raise LabError(
                f"internal error: record key {records.record_keys()[row].as_py()!r} belongs to reduce"
                f" partition {targets[row]} and arrived in {self.partition}"
            )
        path_codes, distinct = _codes(paths, len(records))
        most = int(buckets.max(initial=0)) + 1
        return [
            Part((distinct[one // most], one % most), records.take(rows))
            for one, rows in _lanes(path_codes * most + buckets)
        ]


class ByFileId:
    """Each file id is a file group; an assigner set it in the records or passes it beside them."""

    def new_file_id(self, key: GroupKey) -> str:
        return str(key[1])

    def parts(self, records: Records, located: Located | None = None) -> list[Part]:
        if located is None:
            names, of_path, operations = (
                records.column(FILE_ID),
                records.column(PARTITION_PATH),
                None,
            )
        else:
            names, of_path, operations = located.file_ids, located.paths, located.operations
        file_ids, ids = _codes(names, len(records))
        if "" in ids:
            row = int(np.flatnonzero(file_ids == ids.index(""))[0])
            raise LabError(
                f"internal error: record key {records.record_keys()[row].as_py()!r} arrived at a"
                " writer, and no file group was found for it"
            )
        paths, distinct = _codes(of_path, len(records))
        lane = paths * len(ids) + file_ids
        return [
            Part(
                (distinct[one // len(ids)], ids[one % len(ids)]),
                records.take(rows),
                None if operations is None else operations.take(pa.array(rows)),
            )
            for one, rows in _lanes(lane)
        ]


class FileGroupWriter:
    """Writes the file groups of one task; `convert_out` as in Task."""

    def __init__(
        self,
        plan: WritePlan,
        partition: int,
        timeline: TaskTimeline,
        convert_out: str = "to_arrow",
    ) -> None:
        self.plan, self.timeline = plan, timeline
        self._grouping: Grouping = (
            ByBucket(plan, partition) if plan.index is None and not plan.located else ByFileId()
        )
        self._task = Task(plan, partition, timeline, convert_out)
        self._open: dict[GroupKey, WriteHandle] = {}
        self._done: list[WriteStatus] = []

    def write(self, records: Records, located: Located | None = None) -> None:
        """Merge and write the records of one shard, given in input order.

        `located`: their file groups, if they were assigned in this task and the records carry none.
        """
        with self.timeline.phase("group"):
            parts = self._grouping.parts(records, located)
        for part in parts:
            handle = self._open.get(part.key) or handle_of(self._task, self._grouping, part)
            if handle is None:
                continue
            handle.write(part.records)
            if self.plan.shards == 1:
                # no later shard has records of this group, so its buffers can be freed now
                self._done += handle.finish()
            else:
                self._open[part.key] = handle

    def finish(self) -> Iterator[WriteStatus]:
        """Close the open handles; one status per file."""
        yield from self._done
        for handle in self._open.values():
            yield from handle.finish()


def handle_of(task: Task, grouping: Grouping, part: Part) -> WriteHandle | None:
    """The handle for the group of `part`, its first records; None for a delete if the group does not
    exist.
    """
    plan, key = task.plan, part.key
    stored = plan.groups.get(key)
    if stored is None:
        if plan.operation is Operation.DELETE:
            return None
        if plan.located:
            raise DataError(
                f"record key {part.records.record_keys()[0].as_py()!r} is said to be in file group"
                f" {key[1]!r} of partition {key[0]!r}, which the table {plan.table.name} does not have"
            )
        return BaseFileHandle(task, key[0], grouping.new_file_id(key), None)
    if plan.table.is_mor and not _is_rewritten(plan, stored, part):
        return AppendHandle(task, key[0], stored)
    return BaseFileHandle(task, key[0], stored.file_id, stored)


def _is_rewritten(plan: WritePlan, stored: StoredFileGroup, part: Part) -> bool:
    """Whether inserts go to a base file, because the index does not read the group's logs.

    Source: AbstractSparkDeltaCommitActionExecutor#handleUpdate.
    """
    index = plan.index
    if index is None or index.covers_logs or plan.operation is Operation.DELETE:
        return False
    return stored.log_version == 0 and part.has_inserts


def _codes(values: pa.Array | None, rows: int) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Each value as a number, and the list of distinct values that the numbers index."""
    if values is None:
        return np.zeros(rows, np.int64), [""]
    encoded = values.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _lanes(lane: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each distinct number with the row numbers that have it, in order."""
    if not len(lane):
        return
    order = np.argsort(lane, kind="stable")
    edges = np.flatnonzero(np.diff(lane[order])) + 1
    for rows in np.split(order, edges):
        yield int(lane[rows[0]]), rows
