"""Writes a base file: a file group's first one, or its next version on copy-on-write.

Each shard is merged with the stored base file by itself; stored rows that nothing replaced are copied at
the end. Sources: org.apache.hudi.io.HoodieCreateHandle, HoodieWriteMergeHandle.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.merging.merger import Rows, enveloped, together
from serde_lab.merging.survivors import Indices, match, merge, not_older
from serde_lab.pipeline.exchange.routing import Task
from serde_lab.pipeline.handles.handle import Candidates, Combined, WriteHandle, refuse_markers
from serde_lab.pipeline.plan import StoredFileGroup
from serde_lab.records.buffers import HashedKeys, one_batch
from serde_lab.records.conversion import conform, fit
from serde_lab.records.operation import Operation
from serde_lab.records.schema import RECORD_KEY, column_of, columns_of, values_in
from serde_lab.serde.interface import Records
from serde_lab.table.files.base_file import BaseFileReader, BaseFileWriter
from serde_lab.table.timeline.commit_metadata import WriteStat


class BaseFileHandle(WriteHandle):
    """Merges the records of one file group with its stored base file, if any, into a new base file."""

    def __init__(
        self, task: Task, partition_path: str, file_id: str, stored: StoredFileGroup | None
    ) -> None:
        super().__init__(task)
        plan = task.plan
        self._columns, self._partition_path = plan.file_columns, partition_path
        self._updates = self._deletes = 0
        self._reader: BaseFileReader | None = None
        self._stored: pa.Table | None = None
        previous = None if stored is None else stored.base_path
        with task.timeline.phase("write"):
            self._writer = BaseFileWriter(
                plan.storage,
                task.writing(plan.spans or plan.mini_batches is not None),
                # rows of a new file group have no stored values to keep, so missing columns become null
                data_schema=self._columns,
                partition_path=partition_path,
                file_id=file_id,
                previous=previous,
                format=plan.base_file_format,
            )
        if previous is not None:
            deletes = plan.operation is Operation.DELETE
            ordering = () if deletes else plan.table.merge_ordering
            compared_columns = columns_of(ordering)
            with task.timeline.phase("read_base"):
                self._reader = BaseFileReader(plan.storage, previous)
                # with shards, not all stored rows fit into memory; and a delete may not need them
                whole = plan.shards == 1 and not deletes
                columns = [
                    RECORD_KEY,
                    *compared_columns,
                    *(self._reader.carried_columns if whole else ()),
                ]
                table = self._reader.read(list(dict.fromkeys(columns)))
                self._stored = table if whole else None
                stored_keys = table.column(RECORD_KEY).combine_chunks()
                kinds = plan.schema.data
                compared = {
                    name: fit(table.column(name).combine_chunks(), kinds.field(name).type)
                    for name in compared_columns
                }
                self._stored_ordering = [
                    values_in(compared[column_of(path)], path) for path in ordering
                ]
            with task.timeline.phase("merge"):
                self._stored_keys = HashedKeys.of(stored_keys)
                self._kept = np.ones(len(self._stored_keys), np.bool_)

    def write(self, records: Records) -> None:
        """Merge `records` with the stored rows and write the winners; a delete only drops stored keys."""
        if self.task.plan.operation is Operation.DELETE:
            self._delete(records)
            return
        if self.combiner is not None:
            self._write_combined(self.combined(records))
            return
        rows = None
        if self.task.plan.operation.merges:
            candidates = self.precombined(records)
            with self.task.timeline.phase("merge"):
                rows = candidates.rows(self._merged(candidates))
            del candidates
        else:
            refuse_markers(self.task.plan, records)
        for keys, data in self.converted(records, rows, "merge"):
            with self.task.timeline.phase("write"):
                self._writer.append(keys, conform(data, self._columns, self._writer.path))

    def _delete(self, records: Records) -> None:
        """Drop the keys whatever their ordering values: a delete without a row decides by commit time."""
        with self.task.timeline.phase("merge"):
            gone = pc.is_in(self._stored_keys.values, value_set=records.record_keys())
            rows = gone.to_numpy(zero_copy_only=False)
            self._deletes += int((self._kept & rows).sum())
            self._kept &= ~rows

    def _merged(self, candidates: Candidates) -> Indices | None:
        """Which candidates win against the stored rows; None means all of them."""
        if self._reader is None:
            deletes = candidates.deletes
            return None if deletes is None else np.flatnonzero(~deletes.marked)
        outcome = merge(
            self._stored_keys,
            self._stored_ordering,
            candidates.keys,
            candidates.ordering,
            self.task.plan.merge_mode,
            candidates.deletes,
        )
        self._kept &= outcome.stored_kept
        self._updates += outcome.updates
        self._deletes += outcome.deletes
        return outcome.incoming

    def _write_combined(self, combined: Combined) -> None:
        """Combine each incoming row with the stored row of its key; rows of new keys are appended."""
        timeline, combiner = self.task.timeline, self.combiner
        assert combiner is not None
        is_row = combined.row >= 0
        if self._reader is None:
            with timeline.phase("write"):
                keys = combined.keys.values.filter(pa.array(is_row))
            self._append(keys, combined.rows, combined.row[is_row], "write")
            return
        with timeline.phase("merge"):
            found = match(self._stored_keys, combined.keys)
            hits = np.flatnonzero(found >= 0)
            wins = np.ones(len(hits), np.bool_)
            if combined.ordering:
                at = pa.array(found[hits])
                older = [values.take(at) for values in self._stored_ordering]
                wins = combined.always[hits] | not_older(
                    older, [values.take(pa.array(hits)) for values in combined.ordering]
                )
            two = is_row[hits]
            if self.task.plan.merge_rules.deletes_late:
                wins |= ~two
            gone = found[hits[wins & ~two]]
            self._kept[gone] = False
            self._deletes += len(gone)
            pairs, stored_rows = hits[two], found[hits[two]]
        stored = self._stored_rows(stored_rows)
        with timeline.phase(combiner.phase):
            newer = combined.rows.take(combined.row[pairs])
        older = self._older(stored)
        with timeline.phase(combiner.phase):
            merged = combiner.combine(older, newer, wins[two])
        with timeline.phase("merge"):
            deleted, older_kept = merged.deleted, merged.older_kept
            gone_too = np.zeros(len(pairs), np.bool_) if deleted is None else deleted
            changed = ~gone_too if older_kept is None else ~gone_too & ~older_kept
            self._kept[stored_rows[gone_too | changed]] = False
            self._deletes += int(gone_too.sum())
            self._updates += int(changed.sum())
            written = np.flatnonzero(changed)
            new = np.flatnonzero(is_row & (found < 0))
            rows = together([combined.rows, merged.rows])
            at = np.concatenate([combined.row[new], len(combined.rows) + written])
            keys = combined.keys.values.take(pa.array(np.concatenate([new, pairs[written]])))
        self._append(keys, rows, at, "merge")

    def _older(self, stored: pa.RecordBatch) -> Rows:
        """Stored rows as the combiner takes them; their file may predate some of the columns."""
        data = self.task.plan.schema.data
        if self.serde is None:
            with self.task.timeline.phase("merge"):
                return conform(stored, data, self._writer.path)
        with self.task.timeline.phase("from_arrow"):
            columns = pa.schema([pa.field(RECORD_KEY, pa.string()), *data])
            rows = conform(stored, columns, self._writer.path)
            schema = self.serde.schema.batch_schema
            return self.serde.from_arrow(enveloped(rows, schema, self._partition_path))

    def _append(self, keys: pa.Array, rows: Rows, at: Indices, phase: str) -> None:
        for written, data in self.converted_rows(keys, rows, at, phase):
            with self.task.timeline.phase("write"):
                self._writer.append(written, data)

    def _stored_rows(self, numbers: Indices) -> pa.RecordBatch:
        """Stored rows by row number, in the columns that are copied."""
        assert self._reader is not None
        if self._stored is not None:
            with self.task.timeline.phase("merge"):
                return one_batch(self._stored.take(pa.array(numbers)))
        with self.task.timeline.phase("read_base"):
            # not all rows fit into memory: search for the wanted ones batch by batch
            order = np.argsort(numbers, kind="stable")
            columns = self._reader.carried_columns
            if not self._reader.rows:  # all were deleted
                return one_batch(self._reader.read(columns))
            wanted, start, parts = numbers[order], 0, []
            for batch in self._reader.batches(columns):
                first, last = np.searchsorted(wanted, [start, start + batch.num_rows])
                parts.append(batch.take(pa.array(wanted[first:last] - start)))
                start += batch.num_rows
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
            return one_batch(pa.Table.from_batches(parts).take(pa.array(back)))

    def finish(self) -> Iterator[WriteStat]:
        """Copy the remaining stored rows, one row group at a time, and close the file.

        A delete that matched no key here leaves the file group unchanged.
        """
        timeline = self.task.timeline
        if self.task.plan.operation is Operation.DELETE and not self._deletes:
            return
        start = 0
        for stored in self._carried():
            mask = self._kept[start : start + stored.num_rows]
            start += stored.num_rows
            with timeline.phase("merge"):
                surviving = stored if mask.all() else stored.filter(pa.array(mask))
            with timeline.phase("write"):
                self._writer.append_carried(surviving)
        with timeline.phase("write"):
            stat = self._writer.close(updates=self._updates, deletes=self._deletes)
        yield stat

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
