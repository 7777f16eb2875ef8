"""The assigner of consistent hashing: a partition's ring maps each record to its file group.

It creates the first ring of a new partition. Source:
org.apache.hudi.sink.bucket.ConsistentBucketAssignFunction.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.assign.assigner import Located
from serde_lab.pipeline.plan import Operation, WritePlan
from serde_lab.serde.interface import Records
from serde_lab.table.index.consistent_hashing import HashingRing
from serde_lab.table.index.hashing_metadata import create_initial


class RingAssigner:
    """Assigns the records of one task, shard after shard, without any lookup."""

    def __init__(self, plan: WritePlan, timeline: TaskTimeline) -> None:
        assert plan.index is not None
        self.plan, self.timeline = plan, timeline
        self._rings = {path: metadata.ring() for path, metadata in plan.index.rings.items()}

    def locate(self, records: Records, sent: Records | None) -> Located | None:
        """The records of one shard with their file groups; None if there is nothing to write."""
        plan, table = self.plan, self.plan.table
        with self.timeline.phase("assign"):
            keys, paths = records.record_keys(), records.partition_paths()
            encoded = paths.dictionary_encode()
            codes = encoded.indices.to_numpy()
            ids: list[str] = []
            numbers = np.zeros(len(records), np.int64)
            stored_ids: list[bool] = []
            for code, path in enumerate(encoded.dictionary.to_pylist()):
                ring = self._ring(path)
                if ring is None:
                    continue
                at = np.flatnonzero(codes == code)
                of_path = keys if len(at) == len(keys) else keys.take(pa.array(at))
                nodes = ring.nodes_of(of_path, table.record_key_fields, table.bucket_fields)
                numbers[at] = nodes + len(ids)
                ids += ring.file_ids
                stored_ids += [(path, file_id) in plan.groups for file_id in ring.file_ids]
            if not ids:
                return None
            file_ids = pa.array(ids, pa.string()).take(pa.array(numbers))
            stored = np.array(stored_ids)[numbers]
            return Located(records, keys, paths, file_ids, stored)

    def _ring(self, path: str) -> HashingRing | None:
        """The partition's ring; None for a delete from a partition that does not exist."""
        ring = self._rings.get(path)
        if ring is None and self.plan.operation is not Operation.DELETE:
            # any task may be the first to see the partition; all of them create the same ring
            made = create_initial(self.plan.storage, path, self.plan.table.bucket_count or 1)
            ring = self._rings[path] = made.ring()
        return ring
