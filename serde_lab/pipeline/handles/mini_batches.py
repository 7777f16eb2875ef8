"""RFC-24's step 3: a writing task with a limited buffer, which writes in mini-batches.

A file group is flushed when its buffer is full. When all buffers together are full, the largest is
flushed first. A second flush rewrites a base file, merged with the first one, as Hudi's FlinkMergeHandle
does; a log is appended to. Source: org.apache.hudi.sink.StreamWriteFunction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.frame_receiver import FrameReceiver
from serde_lab.pipeline.exchange.frame_sender import frames_in, total_bytes
from serde_lab.pipeline.handles.base_file import BaseFileHandle
from serde_lab.pipeline.handles.file_groups import ByFileId, GroupKey, Part, handle_of
from serde_lab.pipeline.handles.handle import Task, WriteHandle, WriteStatus, together
from serde_lab.pipeline.plan import MiniBatches, StoredFileGroup, WritePlan
from serde_lab.serde.interface import Records

FLUSHES = "flushes"
"""Counter of mini-batches written."""


def mini_batch_stage(
    plan: WritePlan, partition: int, batches: Iterable[pa.RecordBatch], timeline: TaskTimeline
) -> Iterator[WriteStatus]:
    """Turn batches of (position, frame), ordered by position, into write statuses."""
    with timeline.phase("bind"):
        bound = plan.bind()
    assert plan.mini_batches is not None
    writer = MiniBatchWriter(plan, plan.mini_batches, partition, timeline)
    receiver = FrameReceiver(plan, bound, timeline)
    step = max(1, plan.mini_batches.bucket_bytes // 2)
    for piece in _pieces(timeline.source(batches), step):
        size = total_bytes(piece.column("frame"))
        for arrived in receiver.arrivals([piece], timed=True):
            if arrived.records is not None:
                writer.take(arrived.records, size)
            with timeline.phase("release"):
                arrived.records = None
    yield from timeline.sink(writer.finish())


def _pieces(batches: Iterable[pa.RecordBatch], step: int) -> Iterator[pa.RecordBatch]:
    """The frames in pieces of about `step` bytes, at least one frame each."""
    for batch in batches:
        if batch.num_rows:
            rows = frames_in(batch.column("frame"), step)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


@dataclass(slots=True)
class _Buffer:
    """The records that wait for one file group, and the files already written for it."""

    waiting: list[Records] = field(default_factory=list)
    size_bytes: int = 0
    log: WriteHandle | None = None
    written: list[WriteStatus] = field(default_factory=list)


class MiniBatchWriter:
    """Buffers and writes the file groups of one task."""

    def __init__(
        self, plan: WritePlan, limits: MiniBatches, partition: int, timeline: TaskTimeline
    ) -> None:
        self.plan, self.limits, self.timeline = plan, limits, timeline
        self._task = Task(plan, partition, timeline)
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

    def finish(self) -> Iterator[WriteStatus]:
        """Flush the rest; one status per file."""
        for key, buffer in self._buffers.items():
            if buffer.waiting:
                self._flush(key, buffer)
            if buffer.log is not None:
                yield from buffer.log.finish()
            elif buffer.written:
                yield together(buffer.written)

    def _flush(self, key: GroupKey, buffer: _Buffer) -> None:
        with self.timeline.phase("group"):
            waiting = buffer.waiting
            records = type(waiting[0]).concatenate(waiting) if len(waiting) > 1 else waiting[0]
            buffer.waiting, buffer.size_bytes = [], 0
        self.timeline.add(FLUSHES)
        if buffer.log is not None:
            buffer.log.write(records)
            return
        handle = self._handle(key, records, buffer.written)
        if handle is None:
            return
        handle.write(records)
        if not isinstance(handle, BaseFileHandle):
            buffer.log = handle
            return
        for status in handle.finish():
            if buffer.written:
                with self.timeline.phase("write"):
                    self.plan.storage.delete(buffer.written[-1].path)
            buffer.written.append(status)

    def _handle(
        self, key: GroupKey, records: Records, written: list[WriteStatus]
    ) -> WriteHandle | None:
        if not written:
            return handle_of(self._task, self._grouping, Part(key, records))
        # the file of the previous flush is now the stored base file
        rows = sum(status.numInserts + status.numUpdateWrites for status in written)
        task = replace(self._task, flush=len(written), rows_before=rows)
        last = written[-1]
        stored = StoredFileGroup(last.fileId, last.path, self.plan.instant)
        return BaseFileHandle(task, key[0], last.fileId, stored)
