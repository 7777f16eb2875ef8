"""A clustering plan as Hudi reads it from a requested instant: groups of slices, and their new nodes.

Source: HoodieClusteringPlan of org.apache.hudi.avro.model, and constructExtraMetadata of
BaseConsistentHashingBucketClusteringPlanStrategy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from serde_lab.avro.container import hudi_schema, write_single
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.index.consistent_hashing import HashingNode
from serde_lab.table.storage.storage import Storage

_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"

Group = tuple[Sequence[FileSlice], Sequence[HashingNode], int]
"""Slices, the nodes that replace theirs, and the sequence number of the ring before."""


def clustering_content(storage: Storage, groups: Sequence[Group]) -> bytes:
    """The content of a clustering's requested file."""
    plan = {
        "inputGroups": [_group(storage, *group) for group in groups],
        "strategy": {"strategyClassName": _STRATEGY, "strategyParams": {}, "version": 1},
        "extraMetadata": {},
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
    }
    return write_single(
        hudi_schema("HoodieRequestedReplaceMetadata"),
        {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1},
    )


def _group(
    storage: Storage, slices: Sequence[FileSlice], children: Sequence[HashingNode], sequence: int
) -> dict[str, Any]:
    return {
        "slices": [_slice(storage, slice_) for slice_ in slices],
        "metrics": {},
        "numOutputFileGroups": sum(node.tag == "REPLACE" for node in children),
        "extraMetadata": {
            "clustering.group.partition": slices[0].partition_path,
            "clustering.group.child.node": json.dumps([node.to_record() for node in children]),
            "clustering.group.sequence.no": str(sequence),
        },
        "version": 1,
    }


def _slice(storage: Storage, slice_: FileSlice) -> dict[str, Any]:
    base = slice_.base_file
    return {
        "dataFilePath": "" if base is None else storage.describe(base.path),
        "deltaFilePaths": [storage.describe(log.path) for log in slice_.log_files],
        "fileId": slice_.file_id,
        "partitionPath": slice_.partition_path,
        "bootstrapFilePath": "",
        "version": 1,
    }
