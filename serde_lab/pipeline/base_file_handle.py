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
from serde_lab.pipeline.write_handle import Candidates, Task, WriteHandle, WriteStatus
from serde_lab.records.key_hash import HashedKeys
from serde_lab.records.merging import Indices, merge
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
        self._stored: pa.Table | None = None
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
            deletes = plan.operation is Operation.DELETE
            ordering = () if deletes else plan.schema.ordering
            with task.timeline.phase("read_base"):
                self._reader = BaseFileReader(plan.storage, previous)
                # with shards, memory does not hold all stored rows, and a delete may not want them
                whole = plan.shards == 1 and not deletes
                columns = [RECORD_KEY, *ordering, *(self._reader.carried_columns if whole else ())]
                table = self._reader.read(list(dict.fromkeys(columns)))
                self._stored = table if whole else None
                stored_keys = table.column(RECORD_KEY).combine_chunks()
                self._stored_ordering = [table.column(name).combine_chunks() for name in ordering]
            with task.timeline.phase("merge"):
                self._stored_keys = HashedKeys.of(stored_keys)
                self._kept = np.ones(len(self._stored_keys), np.bool_)

    def write(self, records: Records) -> None:
        """Merge `records` and write those that stand; of deletes, only forget what they name."""
        if self.task.plan.operation is Operation.DELETE:
            self._delete(records)
            return
        if self.task.plan.operation is not Operation.BULK_INSERT:
            candidates = self.precombined(records)
            with self.task.timeline.phase("merge"):
                records = candidates.gathered(self._merged(candidates))
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
            gone = pc.is_in(self._stored_keys.values, value_set=records.record_keys())
            rows = gone.to_numpy(zero_copy_only=False)
            self._deletes += int((self._kept & rows).sum())
            self._kept &= ~rows

    def _merged(self, candidates: Candidates) -> Indices | None:
        """Which candidates stand against what is stored, None for all of them."""
        if self._reader is None:
            return None
        outcome = merge(
            self._stored_keys,
            self._stored_ordering,
            candidates.keys,
            candidates.ordering,
            self.task.plan.merge_mode,
        )
        self._kept &= outcome.stored_kept
        self._updates += outcome.updates
        return outcome.incoming

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
        if self._stored is not None:
            yield from self._stored.to_batches()
            return
        batches = iter(self._reader.batches(self._reader.carried_columns))
        while True:
            with self.task.timeline.phase("read_base"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
