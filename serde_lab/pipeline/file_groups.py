"""The file groups of a reduce task: records are taken apart by group, and each group gets a handle.

Owns which handle a group gets: a base file where there is none yet and on copy-on-write, the group's
log on merge-on-read, nothing where a delete finds no group. Must not know frames or Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from serde_lab.errors import LabError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.append_handle import AppendHandle
from serde_lab.pipeline.base_file_handle import BaseFileHandle
from serde_lab.pipeline.plan import Operation, WritePlan
from serde_lab.pipeline.routing import buckets_of, targets_of
from serde_lab.pipeline.write_handle import Task, WriteHandle, WriteStatus
from serde_lab.records.schema import PARTITION_PATH
from serde_lab.serde.interface import Records
from serde_lab.table.bucket_index import bucket_file_id


class FileGroupWriter:
    """The file groups of one reduce task; `convert_out` as in Task."""

    def __init__(
        self,
        plan: WritePlan,
        partition: int,
        timeline: TaskTimeline,
        convert_out: str = "to_arrow",
    ) -> None:
        self.plan, self.partition, self.timeline = plan, partition, timeline
        self._task = Task(plan, partition, timeline, convert_out)
        self._open: dict[tuple[str, int], WriteHandle] = {}
        self._done: list[WriteStatus] = []

    def write(self, records: Records) -> None:
        """Merge and write one shard's records, which stand in input order."""
        with self.timeline.phase("group"):
            parts = self._by_group(records)
        for key, part in parts:
            handle = self._open.get(key) or self._handle(*key)
            if handle is None:
                continue
            handle.write(part)
            if self.plan.shards == 1:
                # no later shard has records of this group: its buffers need not wait for the others
                self._done += handle.finish()
            else:
                self._open[key] = handle

    def finish(self) -> Iterator[WriteStatus]:
        """Close what is open; one status a file."""
        yield from self._done
        for handle in self._open.values():
            yield from handle.finish()

    def _handle(self, partition_path: str, bucket: int) -> WriteHandle | None:
        plan = self.plan
        stored = plan.groups.get((partition_path, bucket))
        if stored is None:
            if plan.operation is Operation.DELETE:
                return None
            # without keys every write has file groups of its own
            seed = plan.seed ^ int(plan.instant) if plan.table.is_keyless else plan.seed
            file_id = bucket_file_id(bucket, partition_path, seed)
            return BaseFileHandle(self._task, partition_path, file_id, None)
        if plan.table.is_mor:
            return AppendHandle(self._task, partition_path, stored)
        return BaseFileHandle(self._task, partition_path, stored.file_id, stored)

    def _by_group(self, records: Records) -> list[tuple[tuple[str, int], Records]]:
        plan = self.plan
        if not plan.schema.partition and plan.targets >= plan.buckets:
            # one bucket a task: nothing to take apart
            return [(("", self.partition), records)] if len(records) else []
        paths = records.column(PARTITION_PATH) if plan.schema.partition else None
        if plan.table.is_keyless:
            buckets = np.full(len(records), self.partition, np.int32)
            targets = buckets
        else:
            buckets = buckets_of(records.record_keys(), plan.table)
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
