"""Splits the records of a writing task by file group, and gives each group a handle.

The group follows from the bucket, or from the file id that records carry or that an assigner in the same
task found. The handle writes a base file for a new group and on copy-on-write, and appends to the group's
log on merge-on-read. A delete skips groups that do not exist.

RFC-24's step 3 limits a task's buffer and writes in mini-batches: a file group is flushed when its buffer is
full, and when all buffers together are full, the largest is flushed first. A second flush rewrites a base
file, merged with the first one, as Hudi's FlinkMergeHandle does; a log is appended to. Source:
org.apache.hudi.sink.StreamWriteFunction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, LabError
from serde_lab.pipeline.assign.assigner import Located
from serde_lab.pipeline.exchange.frames import FrameReceiver, slices, total_bytes
from serde_lab.pipeline.exchange.routing import Task, buckets_of, targets_of
from serde_lab.pipeline.handles.append import AppendHandle
from serde_lab.pipeline.handles.base_file import BaseFileHandle
from serde_lab.pipeline.handles.handle import WriteHandle, summed_stat
from serde_lab.pipeline.options.topology import MiniBatches
from serde_lab.pipeline.plan import StoredFileGroup, WritePlan
from serde_lab.records.operation import Operation
from serde_lab.records.schema import FILE_ID, INSERT, OPERATION, PARTITION_PATH
from serde_lab.serde.interface import Records
from serde_lab.table.index.bucket_index import bucket_file_id
from serde_lab.table.timeline.commit_metadata import WriteStat

GroupKey = tuple[str, int | str]
"""Partition path, and bucket or file id."""


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """The records of one file group, in input order.

    `operations`: insert or update for each record, as an assigner in this task found; None if the records
    carry it themselves.
    """

    key: GroupKey
    records: Records
    operations: pa.StringArray | None = None

    @property
    def has_inserts(self) -> bool:
        operations = self.records.column(OPERATION) if self.operations is None else self.operations
        return bool(pc.any(pc.equal(operations, INSERT)).as_py())


class ByBucket:
    """Each bucket of a partition is a file group."""

    def __init__(self, plan: WritePlan, partition: int) -> None:
        self.plan, self.partition = plan, partition

    def new_file_id(self, key: GroupKey) -> str:
        plan = self.plan
        path, bucket = key
        assert isinstance(bucket, int)
        # without keys every batch makes its own file groups; and the id of a replaced group must never be
        # used again
        own = plan.table.is_keyless or plan.operation.replaces or plan.fresh_file_ids
        drawn = plan.seed ^ int(plan.instant) ^ plan.batch << 64
        return bucket_file_id(bucket, path, drawn if own else plan.seed)

    def parts(self, records: Records, located: Located | None = None) -> list[GroupRecords]:
        """One part per file group. Raises LabError for a record that belongs to another task."""
        assert located is None, "a bucket follows from the key alone"
        plan = self.plan
        if not plan.schema.partition and plan.targets >= plan.buckets:
            # the task has only one bucket, so there is nothing to split
            return [GroupRecords(("", self.partition), records)] if len(records) else []
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
            GroupRecords((distinct[one // most], one % most), records.take(rows))
            for one, rows in _lanes(path_codes * most + buckets)
        ]


class ByFileId:
    """Each file id is a file group; an assigner set it in the records or passes it beside them."""

    def new_file_id(self, key: GroupKey) -> str:
        return str(key[1])

    def parts(self, records: Records, located: Located | None = None) -> list[GroupRecords]:
        """One part per file group. `located`: the file groups of `records` that carry none themselves.

        Raises LabError for a record that belongs to no file group.
        """
        if located is None:
            names, of_path = records.column(FILE_ID), records.column(PARTITION_PATH)
            operations = None
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
            GroupRecords(
                (distinct[one // len(ids)], ids[one % len(ids)]),
                records.take(rows),
                None if operations is None else operations.take(pa.array(rows)),
            )
            for one, rows in _lanes(lane)
        ]


Grouping = ByBucket | ByFileId


class FileGroupWriter:
    """Writes the file groups of one task."""

    def __init__(self, task: Task) -> None:
        plan = task.plan
        self.plan, self.timeline, self._task = plan, task.timeline, task
        self._grouping: Grouping = (
            ByBucket(plan, task.partition)
            if plan.index is None and not plan.located
            else ByFileId()
        )
        self._open: dict[GroupKey, WriteHandle] = {}
        self._done: list[WriteStat] = []

    def write(self, records: Records, located: Located | None = None) -> None:
        """Merge and write the records of one shard, given in input order.

        `located`: their file groups, if they were assigned in this task and the records carry none.
        """
        with self.timeline.phase("group"):
            parts = self._grouping.parts(records, located)
            parts.reverse()
        while parts:
            part = parts.pop()
            handle = self._open.get(part.key) or handle_of(self._task, self._grouping, part)
            if handle is not None:
                handle.write(part.records)
                if self.plan.shards == 1:
                    # no later shard has records of this group
                    self._done += handle.finish()
                else:
                    self._open[part.key] = handle
            with self.timeline.phase("release"):
                del part, handle

    def finish(self) -> Iterator[WriteStat]:
        yield from self._done
        for handle in self._open.values():
            yield from handle.finish()


def handle_of(task: Task, grouping: Grouping, part: GroupRecords) -> WriteHandle | None:
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
                f"record key {part.records.record_keys()[0].as_py()!r} is given the file group"
                f" {key[1]!r} of partition {key[0]!r}, which the table {plan.table.name} does not have"
            )
        return BaseFileHandle(task, key[0], grouping.new_file_id(key), None)
    if plan.table.is_mor and not _is_rewritten(plan, stored, part):
        return AppendHandle(task, key[0], stored)
    return BaseFileHandle(task, key[0], stored.file_id, stored)


def _is_rewritten(plan: WritePlan, stored: StoredFileGroup, part: GroupRecords) -> bool:
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


FLUSHES = "flushes"
"""Counter of mini-batches written."""


def mini_batch_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Turn batches of (position, frame), ordered by position, into write stats."""
    bound, limits = task.bind(), task.plan.mini_batches
    assert limits is not None
    writer = MiniBatchWriter(task, limits)
    # the wait for a piece is timed here
    receiver = FrameReceiver(replace(task, timed=True), bound)
    step = max(1, limits.bucket_bytes // 2)
    for batch in task.source(batches):
        for piece in slices(batch, batch.column("frame"), step):
            size = total_bytes(piece.column("frame"))
            for arrived in receiver.arrivals([piece]):
                if arrived.records is not None:
                    writer.take(arrived.records, size)
                with task.timeline.phase("release"):
                    arrived.records = None
    yield from task.timeline.sink(writer.finish())


@dataclass(slots=True)
class _Buffer:
    """The records that wait for one file group, and the files already written for it."""

    waiting: list[Records] = field(default_factory=list)
    size_bytes: int = 0
    log: WriteHandle | None = None
    written: list[WriteStat] = field(default_factory=list)


class MiniBatchWriter:
    """Buffers and writes the file groups of one task."""

    def __init__(self, task: Task, limits: MiniBatches) -> None:
        self.plan, self.limits, self.timeline = task.plan, limits, task.timeline
        self._task = task
        self._grouping = ByFileId()
        self._buffers: dict[GroupKey, _Buffer] = {}

    def take(self, records: Records, frame_bytes: int) -> None:
        """Buffer `records`, which arrived in `frame_bytes` bytes, and flush full buffers."""
        with self.timeline.phase("group"):
            row_bytes = frame_bytes / max(1, len(records))
            for part in self._grouping.parts(records):
                buffer = self._buffers.setdefault(part.key, _Buffer())
                buffer.waiting.append(part.records)
                buffer.size_bytes += round(row_bytes * len(part.records))
        for key, buffer in self._buffers.items():
            if buffer.size_bytes > self.limits.bucket_bytes:
                self._flush(key, buffer)
        while (
            sum(buffer.size_bytes for buffer in self._buffers.values()) > self.limits.buffer_bytes
        ):
            self._flush(*max(self._buffers.items(), key=lambda item: item[1].size_bytes))

    def finish(self) -> Iterator[WriteStat]:
        for key, buffer in self._buffers.items():
            if buffer.waiting:
                self._flush(key, buffer, is_last=True)
            if buffer.log is not None:
                yield from buffer.log.finish()
            elif buffer.written:
                yield summed_stat(buffer.written)

    def _flush(self, key: GroupKey, buffer: _Buffer, is_last: bool = False) -> None:
        with self.timeline.phase("group"):
            waiting = buffer.waiting
            records = type(waiting[0]).concatenate(waiting) if len(waiting) > 1 else waiting[0]
            buffer.waiting, buffer.size_bytes = [], 0
        self.timeline.add(FLUSHES)
        if buffer.log is not None:
            buffer.log.write(records)
            return
        # the first of several mini-batches has the rows that came first, and so have those on top of it
        split = bool(buffer.written) or not is_last
        handle = self._handle(key, records, buffer.written, split)
        if handle is None:
            return
        handle.write(records)
        if not isinstance(handle, BaseFileHandle):
            buffer.log = handle
            return
        for stat in handle.finish():
            if buffer.written:
                with self.timeline.phase("write"):
                    self.plan.storage.delete(buffer.written[-1].path)
            buffer.written.append(stat)

    def _handle(
        self, key: GroupKey, records: Records, written: list[WriteStat], split: bool
    ) -> WriteHandle | None:
        task = replace(self._task, split_by_order=split)
        if not written:
            return handle_of(task, self._grouping, GroupRecords(key, records))
        # the file of the previous flush is now the stored base file
        rows = sum(stat.numInserts + stat.numUpdateWrites for stat in written)
        task = replace(task, flush=len(written), rows_before=rows)
        last = written[-1]
        stored = StoredFileGroup(last.fileId, last.path, self.plan.instant)
        return BaseFileHandle(task, key[0], last.fileId, stored)
