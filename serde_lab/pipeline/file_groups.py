"""The write handle: precombine, merge with what is stored, and write, one file group at a time.

Owns how a reduce task turns records into base files: records are taken apart by file group, each group
is merged shard by shard, and rows that nothing replaced are carried over at the end. Must not know
frames or Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import LabError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.plan import Operation, StoredFileGroup, WritePlan
from serde_lab.pipeline.routing import buckets_of, targets_of
from serde_lab.records.merging import Merge, merge, precombine
from serde_lab.records.schema import ENVELOPE, PARTITION_PATH, RECORD_KEY
from serde_lab.serde.interface import Records
from serde_lab.table.base_file import BaseFileReader, BaseFileWriter
from serde_lab.table.bucket_index import bucket_file_id
from serde_lab.table.commit_metadata import WriteStat
from serde_lab.table.file_names import write_token

WriteStatus = WriteStat

_STAGE = 1  # in write tokens: the reduce stage, whatever number Spark gave it in this session


class FileGroupWriter:
    """The file groups of one reduce task.

    `convert_out` names the phase of converting records out; a hop without a strategy has no such verb.
    """

    def __init__(
        self,
        plan: WritePlan,
        partition: int,
        timeline: TaskTimeline,
        convert_out: str = "to_arrow",
    ) -> None:
        self.plan, self.partition, self.timeline = plan, partition, timeline
        self._convert_out = convert_out
        self._groups: dict[tuple[str, int], _FileGroup] = {}

    def write(self, records: Records) -> None:
        """Merge and write one shard's records, which stand in input order."""
        with self.timeline.phase("group"):
            parts = self._by_group(records)
        for key, part in parts:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _FileGroup(
                    self.plan, self.partition, *key, self.timeline, self._convert_out
                )
            group.upsert(part)

    def finish(self) -> Iterator[WriteStatus]:
        """Carry over what nothing replaced, and close each file; one status a file group."""
        for group in self._groups.values():
            yield group.finish()

    def _by_group(self, records: Records) -> list[tuple[tuple[str, int], Records]]:
        plan = self.plan
        if not plan.schema.partition and plan.targets >= plan.buckets:
            # one bucket a task: nothing to take apart
            return [(("", self.partition), records)] if len(records) else []
        buckets = buckets_of(records.record_keys(), plan.table)
        paths = records.column(PARTITION_PATH) if plan.schema.partition else None
        targets = targets_of(buckets, paths, plan.buckets, plan.targets)
        if (targets != self.partition).any():
            row = int(np.flatnonzero(targets != self.partition)[0])
            raise LabError(
                f"internal error: record key {records.record_keys()[row].as_py()!r} belongs to reduce"
                f" partition {targets[row]} and arrived in {self.partition}"
            )
        path_codes: npt.NDArray[np.int64] = np.zeros(len(records), np.int64)
        distinct = [""]
        if paths is not None:
            encoded = paths.dictionary_encode()
            distinct = encoded.dictionary.to_pylist()
            path_codes = encoded.indices.to_numpy().astype(np.int64)
        lane = path_codes * plan.buckets + buckets
        order = np.argsort(lane, kind="stable")
        edges = np.flatnonzero(np.diff(lane[order])) + 1
        return [
            (
                (distinct[int(lane[rows[0]]) // plan.buckets], int(lane[rows[0]]) % plan.buckets),
                records.take(rows),
            )
            for rows in np.split(order, edges)
            if len(rows)
        ]


class _FileGroup:
    """One file group: what is stored, what replaces it, and the new base file."""

    def __init__(
        self,
        plan: WritePlan,
        partition: int,
        partition_path: str,
        bucket: int,
        timeline: TaskTimeline,
        convert_out: str,
    ) -> None:
        self.plan, self.timeline, self._convert_out = plan, timeline, convert_out
        self.stored: StoredFileGroup | None = plan.groups.get((partition_path, bucket))
        file_id = (
            self.stored.file_id
            if self.stored is not None
            else bucket_file_id(bucket, partition_path, plan.seed)
        )
        self.updates = 0
        self._reader: BaseFileReader | None = None
        with timeline.phase("write"):
            self.writer = BaseFileWriter(
                plan.storage,
                data_schema=plan.schema.data,
                partition_path=partition_path,
                file_id=file_id,
                write_token=write_token(partition, _STAGE),
                instant=plan.instant,
                previous=None if self.stored is None else self.stored.base_path,
                format=plan.base_file_format,
                task_partition=partition,
                inflight_path=plan.inflight_path,
            )
        if self.stored is not None:
            with timeline.phase("read_base"):
                self._reader = BaseFileReader(plan.storage, self.stored.base_path)
                keys_and_ordering = self._reader.read([RECORD_KEY, *plan.schema.ordering])
                self._stored_keys = keys_and_ordering.column(0).combine_chunks()
                self._stored_ordering = [
                    column.combine_chunks() for column in keys_and_ordering.columns[1:]
                ]
                self._kept = np.ones(len(self._stored_keys), np.bool_)

    def upsert(self, records: Records) -> None:
        """Merge `records` (input order) and write those that stand."""
        if self.plan.operation is not Operation.BULK_INSERT:
            with self.timeline.phase("precombine"):
                survivors = precombine(records.record_keys(), records.ordering_values())
                if survivors is not None:
                    records = records.take(survivors)
        if self.stored is not None:
            with self.timeline.phase("merge"):
                outcome = self._merge(records)
                if len(outcome.incoming) < len(records):
                    records = records.take(outcome.incoming)
                self._kept &= outcome.stored_kept
                self.updates += outcome.updates
        with self.timeline.phase(self._convert_out):
            batch = records.to_arrow()
        with self.timeline.phase("write"):
            data = pa.RecordBatch.from_arrays(
                batch.columns[len(ENVELOPE) :], schema=self.plan.schema.data
            )
            self.writer.append(batch.column(0), data)

    def _merge(self, records: Records) -> Merge:
        return merge(
            self._stored_keys,
            self._stored_ordering,
            records.record_keys(),
            records.ordering_values(),
            self.plan.merge_mode,
        )

    def finish(self) -> WriteStatus:
        """Carry over the stored rows that stand, a row group at a time, and close the file."""
        if self._reader is not None:
            start = 0
            for stored in self._carried():
                mask = self._kept[start : start + stored.num_rows]
                start += stored.num_rows
                with self.timeline.phase("merge"):
                    standing = stored if mask.all() else stored.filter(pa.array(mask))
                with self.timeline.phase("write"):
                    self.writer.append_carried(standing)
        with self.timeline.phase("write"):
            return self.writer.close(updates=self.updates)

    def _carried(self) -> Iterator[pa.RecordBatch]:
        assert self._reader is not None
        if not self._kept.any():
            return
        batches = iter(self._reader.batches())
        while True:
            with self.timeline.phase("read_base"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
