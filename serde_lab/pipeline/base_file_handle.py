"""The handle that writes a base file: a file group's first one, or the next one on copy-on-write.

Owns the merge with the base file that is stored: each shard is merged by itself, and rows that nothing
replaced are carried over at the end. Must not know frames, logs or Spark. Sources:
org.apache.hudi.io.HoodieCreateHandle, HoodieWriteMergeHandle.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.pipeline.plan import Operation, StoredFileGroup
from serde_lab.pipeline.write_handle import Task, WriteHandle, WriteStatus
from serde_lab.records.merging import Merge, merge
from serde_lab.records.schema import ENVELOPE, RECORD_KEY
from serde_lab.serde.interface import Records
from serde_lab.table.base_file import BaseFileReader, BaseFileWriter


class BaseFileHandle(WriteHandle):
    """One file group: the base file that is stored, if any, what replaces its rows, and the new one."""

    def __init__(
        self, task: Task, partition_path: str, file_id: str, stored: StoredFileGroup | None
    ) -> None:
        super().__init__(task)
        plan = task.plan
        self._updates = self._deletes = 0
        self._reader: BaseFileReader | None = None
        previous = None if stored is None else stored.base_path
        with task.timeline.phase("write"):
            self._writer = BaseFileWriter(
                plan.storage,
                data_schema=plan.schema.data,
                partition_path=partition_path,
                file_id=file_id,
                write_token=task.write_token,
                instant=plan.instant,
                previous=previous,
                format=plan.base_file_format,
                task_partition=task.partition,
                inflight_path=plan.inflight_path,
            )
        if previous is not None:
            ordering = () if plan.operation is Operation.DELETE else plan.schema.ordering
            with task.timeline.phase("read_base"):
                self._reader = BaseFileReader(plan.storage, previous)
                keys_and_ordering = self._reader.read([RECORD_KEY, *ordering])
                self._stored_keys = keys_and_ordering.column(0).combine_chunks()
                self._stored_ordering = [
                    column.combine_chunks() for column in keys_and_ordering.columns[1:]
                ]
                self._kept = np.ones(len(self._stored_keys), np.bool_)

    def write(self, records: Records) -> None:
        """Merge `records` and write those that stand; of deletes, only forget what they name."""
        if self.task.plan.operation is Operation.DELETE:
            self._delete(records)
            return
        records = self.precombined(records)
        if self._reader is not None:
            with self.task.timeline.phase("merge"):
                outcome = self._merge(records)
                if len(outcome.incoming) < len(records):
                    records = records.take(outcome.incoming)
                self._kept &= outcome.stored_kept
                self._updates += outcome.updates
        with self.task.timeline.phase(self.task.convert_out):
            batch = records.to_arrow()
        with self.task.timeline.phase("write"):
            data = pa.RecordBatch.from_arrays(
                batch.columns[len(ENVELOPE) :], schema=self.task.plan.schema.data
            )
            self._writer.append(batch.column(0), data)

    def _delete(self, records: Records) -> None:
        """Whatever its ordering value: a delete without a row is one by commit time."""
        with self.task.timeline.phase("merge"):
            gone = pc.is_in(self._stored_keys, value_set=records.record_keys())
            rows = gone.to_numpy(zero_copy_only=False)
            self._deletes += int((self._kept & rows).sum())
            self._kept &= ~rows

    def _merge(self, records: Records) -> Merge:
        return merge(
            self._stored_keys,
            self._stored_ordering,
            records.record_keys(),
            records.ordering_values(),
            self.task.plan.merge_mode,
        )

    def finish(self) -> Iterator[WriteStatus]:
        """Carry over the stored rows that stand, a row group at a time, and close the file.

        A delete that met none of its keys here leaves the file group as it is.
        """
        timeline = self.task.timeline
        if self.task.plan.operation is Operation.DELETE and not self._deletes:
            return
        start = 0
        for stored in self._carried():
            mask = self._kept[start : start + stored.num_rows]
            start += stored.num_rows
            with timeline.phase("merge"):
                standing = stored if mask.all() else stored.filter(pa.array(mask))
            with timeline.phase("write"):
                self._writer.append_carried(standing)
        with timeline.phase("write"):
            status = self._writer.close(updates=self._updates, deletes=self._deletes)
        yield status

    def _carried(self) -> Iterator[pa.RecordBatch]:
        if self._reader is None or not self._kept.any():
            return
        batches = iter(self._reader.batches())
        while True:
            with self.task.timeline.phase("read_base"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
