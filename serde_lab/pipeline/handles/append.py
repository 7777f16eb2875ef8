"""Appends records to a file group's log, on merge-on-read: upserts and deletes, and inserts into buckets.

It does not read stored rows, so every row counts as an update, as under Hudi's bucket index. There are two
exceptions: for records that leave out columns it checks which keys are stored, and on top of Apache Hudi's
logs whether a key is stored twice. Source: org.apache.hudi.io.HoodieAppendHandle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.merging.survivors import Deletes, Indices
from serde_lab.pipeline.exchange.routing import Task
from serde_lab.pipeline.handles.handle import Combined, WriteHandle, refuse_markers
from serde_lab.pipeline.plan import StoredFileGroup
from serde_lab.records.operation import Operation
from serde_lab.records.schema import RECORD_KEY
from serde_lab.serde.interface import Records
from serde_lab.table.files.log_file import LogTarget, LogWriter
from serde_lab.table.files.log_records import check_positions
from serde_lab.table.timeline.commit_metadata import WriteStat


class AppendHandle(WriteHandle):
    """Writes the new log files of one existing file group."""

    def __init__(self, task: Task, partition_path: str, stored: StoredFileGroup) -> None:
        super().__init__(task)
        plan = task.plan
        self._rows = 0
        if plan.partial is not None:
            with task.timeline.phase("read_base"):
                slice_ = plan.partial.slice_of(partition_path, stored.file_id)
                found = pa.Table.from_batches(plan.partial.batches(slice_), plan.partial.schema)
                self._stored_keys = found.column(RECORD_KEY).combine_chunks()
        if plan.index is not None and stored.base_path is not None and stored.newest_log:
            with task.timeline.phase("read_base"):
                check_positions(
                    plan.storage, stored.base_path, stored.base_instant, stored.newest_log
                )
        base_name = "" if stored.base_path is None else stored.base_path.rpartition("/")[2]
        with task.timeline.phase("write"):
            self._writer = LogWriter(
                plan.storage,
                task.writing(plan.spans),
                table_name=plan.table.name,
                table_version=plan.table.version,
                data_schema=plan.file_columns,
                target=LogTarget(
                    partition_path,
                    stored.file_id,
                    stored.base_instant,
                    base_name,
                    stored.log_version,
                    stored.log_version if plan.batch else 0,
                ),
                format=plan.log_format,
            )

    def write(self, records: Records) -> None:
        """Append `records`, one per key, or delete their keys by commit time. An insert appends all its
        rows; readers merge them like any others in a log.
        """
        timeline, plan = self.task.timeline, self.task.plan
        if self.combiner is not None:
            self._write_combined(self.combined(records))
            return
        if plan.operation is Operation.INSERT:
            refuse_markers(plan, records)
            self._append(records, None)
            return
        candidates = self.precombined(records)
        deletes = candidates.deletes
        if plan.operation is Operation.DELETE:
            with timeline.phase("write"):
                self._writer.delete(candidates.keys.values)
            return
        with timeline.phase("precombine"):
            surviving = None if deletes is None else np.flatnonzero(~deletes.marked)
            rows = candidates.rows(surviving)
        self._append(records, rows)
        if deletes is not None:
            with timeline.phase("write"):
                self._delete(candidates.keys.values, candidates.ordering, deletes)

    def _append(self, records: Records, rows: Indices | None) -> None:
        plan = self.task.plan
        for keys, data in self.converted(records, rows, "precombine"):
            with self.task.timeline.phase("write"):
                if plan.partial is None:
                    self._writer.append(keys, data)
                    self._rows += data.num_rows
                else:
                    self._append_partial(keys, data)

    def _append_partial(self, keys: pa.Array, data: pa.RecordBatch) -> None:
        """Rows of stored keys keep the stored values of missing columns; rows of new keys get null."""
        is_stored = pc.is_in(keys, value_set=self._stored_keys)
        self._writer.append_partial(keys.filter(is_stored), data.filter(is_stored))
        is_new = pc.invert(is_stored)
        self._writer.append(keys.filter(is_new), data.filter(is_new))
        self._rows += pc.sum(is_stored).as_py() or 0

    def _write_combined(self, combined: Combined) -> None:
        with self.task.timeline.phase("write"):
            is_row, keys = combined.row >= 0, combined.keys.values
            of_rows = keys.filter(pa.array(is_row))
        converted = self.converted_rows(of_rows, combined.rows, combined.row[is_row], "write")
        for written, data in converted:
            with self.task.timeline.phase("write"):
                self._writer.append(written, data)
                self._rows += data.num_rows
        with self.task.timeline.phase("write"):
            self._delete(keys, combined.ordering, Deletes(~is_row, combined.always))

    def _delete(self, keys: pa.Array, ordering: Sequence[pa.Array], deletes: Deletes) -> None:
        """Write delete blocks for the marked rows: with their ordering values, or by commit time."""
        by_value = pa.array(deletes.marked & ~deletes.always)
        self._writer.delete(keys.filter(by_value), [v.filter(by_value) for v in ordering])
        self._writer.delete(keys.filter(pa.array(deletes.marked & deletes.always)))

    def finish(self) -> Iterator[WriteStat]:
        with self.task.timeline.phase("write"):
            stats = self._writer.close(updates=self._rows)
        yield from stats
