"""Splitting and merging buckets of consistent hashing by the size of their file groups.

`resizes_of`, a pure function, chooses the buckets; each resize of a plan is work for one task. Source:
org.apache.hudi.table.action.cluster.strategy.BaseConsistentHashingBucketClusteringPlanStrategy,
HoodieSparkConsistentBucketIndex#updateLocation. Hudi's strategy also rewrites every other bucket to sort it;
here those stay as they are.

To readers it is a clustering: `<t>.clustering.requested` with the plan, `.clustering.inflight` (before table
version 8 `replacecommit` in both), new base files, the new rings, then `<t>_<c>.replacecommit` that replaces
the old file groups. Rows keep commit time and sequence number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from serde_lab.errors import ConcurrentWrite, OptionError, TableError
from serde_lab.records.schema import RECORD_KEY
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.file_sizing import new_file_id
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.index.consistent_hashing import (
    HashingMetadata,
    HashingNode,
    HashingRing,
    confirm_hashing_metadata,
    delete_index_files,
    load_hashing_metadata,
    save_hashing_metadata,
)
from serde_lab.table.index.index_kind import CONSISTENT_HASHING
from serde_lab.table.index.key_places import check_keys_of_others
from serde_lab.table.read_plan import FileSliceReader, ReadPlan
from serde_lab.table.services.replacing import REPLACE_COMMIT, requested_content
from serde_lab.table.storage.data_files import Writing, delete_markers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant

CLUSTERING = "clustering"


@dataclass(frozen=True, slots=True)
class ResizeRules:
    """When a bucket is split or merged. Defaults: Hudi's thresholds 2.0 and 0.2 of 120 MiB."""

    split_above_bytes: int = 240 << 20
    merge_below_bytes: int = 24 << 20
    min_buckets: int = 1
    """hoodie.bucket.index.min.num.buckets, per partition."""
    max_buckets: int = 1 << 20
    """hoodie.bucket.index.max.num.buckets, per partition."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_buckets <= self.max_buckets:
            raise OptionError(
                f"hoodie.bucket.index.min.num.buckets is {self.min_buckets} and .max.num.buckets"
                f" {self.max_buckets}; they must be at least 1 and in this order"
            )


@dataclass(frozen=True, slots=True)
class Resize:
    """File groups of one partition to replace; `children` are the changes to the ring's nodes."""

    slices: tuple[FileSlice, ...]
    children: tuple[HashingNode, ...]

    @property
    def partition_path(self) -> str:
        return self.slices[0].partition_path

    @property
    def kept(self) -> tuple[HashingNode, ...]:
        """The nodes that replace the old ones."""
        return tuple(node for node in self.children if node.tag == "REPLACE")


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """One planned resizing; picklable. Each resize is carried out independently of the others."""

    instant: str
    action: str
    inflight_path: str
    reads: ReadPlan
    resizes: tuple[Resize, ...]
    rings: Mapping[str, HashingMetadata]
    """The rings before the resizing, by partition path."""


def resizes_of(
    metadata: HashingMetadata, slices: Sequence[FileSlice], rules: ResizeRules, seed: str
) -> list[Resize]:
    """Choose which of a partition's latest slices to split and which to merge: first split the large ones, as
    long as there may be more buckets, then merge runs of small neighbours. `seed` makes the new file ids.

    Raises TableError for a file group that is on no node.
    """
    ring = metadata.ring()
    numbers = {slice_.file_id: _number(ring, slice_) for slice_ in slices}
    path = metadata.partition_path
    ids = (new_file_id(seed, path, number).removesuffix("-0") for number in count(1))
    resizes, left = [], []
    slots = rules.max_buckets - len(ring.nodes)
    split = 0
    for slice_ in slices:
        children = None
        if slice_.base_bytes + slice_.log_bytes > rules.split_above_bytes and split < slots:
            children = ring.split(numbers[slice_.file_id], (next(ids), next(ids)))
        if children is None:
            left.append(slice_)
        else:
            split += 1
            resizes.append(Resize((slice_,), children))
    left.sort(key=lambda slice_: numbers[slice_.file_id])
    slots = len(ring.nodes) - rules.min_buckets + split
    for run in _small_neighbours(ring, left, rules.merge_below_bytes, slots):
        merged = ring.merge([numbers[s.file_id] for s in run], next(ids))
        resizes.append(Resize(tuple(run), merged))
    return resizes


def schedule_resizing(table: HoodieTable, rules: ResizeRules) -> ResizePlan | None:
    """Plan the resizing of all partitions; None if there is nothing to do. On return the plan is on the
    timeline, inflight.

    The caller holds the table's lock: no write may be pending. Raises TableError if one is, and for a table
    with another index.
    """
    if table.config.bucket_engine != CONSISTENT_HASHING:
        raise TableError(
            f"table {table.config.name} is not written with consistent hashing; its buckets are fixed"
        )
    table.check_nothing_pending("resizing")
    view = table.view()
    schema = table.data_schema(view=view)
    check_keys_of_others(table, view.latest_file_slices())
    rings = load_hashing_metadata(table, view.partitions)
    timeline = table.timeline()
    action = CLUSTERING if table.config.layout_version == 2 else REPLACE_COMMIT
    instant = timeline.new_instant(action)
    resizes = tuple(
        resize
        for path, metadata in rings.items()
        for resize in resizes_of(metadata, view.latest_file_slices(path), rules, instant.time)
    )
    if not resizes or schema is None:
        return None
    groups = [(r.slices, r.children, rings[r.partition_path].sequence) for r in resizes]
    timeline.create_requested(instant, clustering_content(table.storage, groups))
    inflight = timeline.create_inflight(instant)
    touched = {r.partition_path for r in resizes}
    slices = tuple(slice_ for resize in resizes for slice_ in resize.slices)
    return ResizePlan(
        instant.time,
        action,
        timeline.path(inflight),
        ReadPlan(table.storage, table.config, schema, slices, view.visibility),
        resizes,
        {path: rings[path] for path in sorted(touched)},
    )


def carry_out(plan: ResizePlan, resize: Resize, write_token: str) -> list[WriteStat]:
    """Write the new file groups of one resize; a node without rows gets none yet.

    Raises TableError for a row that belongs to none of them: it was in the wrong file group.
    """
    reads, config = plan.reads, plan.reads.config
    ring = plan.rings[resize.partition_path].changed(resize.children, plan.instant).ring()
    writers = {
        ring.number_of(node.file_id): BaseFileWriter(
            reads.storage,
            Writing(plan.instant, write_token, plan.inflight_path),
            data_schema=reads.data_schema,
            partition_path=resize.partition_path,
            file_id=node.file_id,
        )
        for node in resize.kept
    }
    rows = dict.fromkeys(writers, 0)
    for slice_ in resize.slices:
        for batch in FileSliceReader(reads, slice_).batches():
            keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
            numbers = ring.nodes_of(keys, config.record_key_fields, config.bucket_fields)
            for number in np.unique(numbers).tolist():
                if number not in writers:
                    key = keys[int(np.flatnonzero(numbers == number)[0])].as_py()
                    raise TableError(
                        f"{reads.storage.url}: file group {slice_.file_id} holds the record key {key!r},"
                        " which belongs to another hashing node"
                    )
                own = batch.filter(pa.array(numbers == number))
                writers[number].append_carried(own)
                rows[number] += own.num_rows
    stats = [writer.close() for number, writer in writers.items() if rows[number]]
    return [replace(stat, numInserts=stat.numWrites) for stat in stats]


def complete_resizing(
    table: HoodieTable, plan: ResizePlan, stats: Iterable[WriteStat], schema: str
) -> Instant:
    """Put the new rings in force and replace the old file groups. `schema`: the table's Avro schema.

    Raises ConcurrentWrite if the resizing was rolled back meanwhile.
    """
    timeline = table.timeline()
    inflight = Instant(plan.instant, plan.action, "inflight")
    timeline.check_inflight(inflight)
    gone: dict[str, tuple[str, ...]] = {}
    for path, metadata in plan.rings.items():
        own = [r for r in plan.resizes if r.partition_path == path]
        children = [node for r in own for node in r.children]
        save_hashing_metadata(table.storage, metadata.changed(children, plan.instant))
        gone[path] = tuple(s.file_id for r in own for s in r.slices)
    metadata_of_commit = CommitMetadata(
        "CLUSTER", tuple(stats), {"schema": schema}, replaced_file_ids=gone
    )
    content = metadata_of_commit.to_bytes(table.config.layout_version)
    try:
        done = timeline.create_completed(inflight, content)
    except ConcurrentWrite:
        if not any(i.is_completed and i.time == plan.instant for i in timeline.instants()):
            delete_index_files(table.storage, plan.instant)
        raise
    confirm_hashing_metadata(table.storage, [plan.instant])
    delete_markers(table.storage, plan.instant)
    return done


def _number(ring: HashingRing, slice_: FileSlice) -> int:
    number = ring.number_of(slice_.file_id)
    if number is None:
        raise TableError(
            f"file group {slice_.file_id} of partition {slice_.partition_path!r} belongs to no hashing node"
        )
    return number


def _small_neighbours(
    ring: HashingRing, slices: Sequence[FileSlice], limit_bytes: int, slots: int
) -> list[list[FileSlice]]:
    """Runs of at least two slices, in ring order, to merge into one slice each. A run grows from a small
    slice backwards, then forwards, as long as both its slices together and the next one are small.
    `slots`: how many buckets may be removed."""
    slice_count = len(slices)
    numbers = [_number(ring, slice_) for slice_ in slices]
    sizes = [slice_.base_bytes + slice_.log_bytes for slice_ in slices]
    taken = [False] * slice_count
    runs = []
    for start in range(slice_count):
        if taken[start] or sizes[start] > limit_bytes:
            continue
        ends, total = [start, start], sizes[start]
        for side, beside in enumerate((ring.former, ring.latter)):
            while slots > 0 and total <= limit_bytes:
                at = (ends[side] + (1 if side else -1)) % slice_count
                follows = beside(numbers[ends[side]]) == numbers[at]
                if taken[at] or not follows or sizes[at] > limit_bytes or at == ends[1 - side]:
                    break
                total += sizes[at]
                ends[side] = at
                slots -= 1
        places = [(ends[0] + n) % slice_count for n in range((ends[1] - ends[0]) % slice_count + 1)]
        if len(places) > 1:
            for place in places:
                taken[place] = True
            runs.append([slices[place] for place in places])
    return runs


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
    return requested_content("cluster", plan)


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
    base = slice_.base_path
    return {
        "dataFilePath": "" if base is None else storage.describe(base),
        "deltaFilePaths": [storage.describe(log.path) for log in slice_.log_files],
        "fileId": slice_.file_id,
        "partitionPath": slice_.partition_path,
        "bootstrapFilePath": "",
        "version": 1,
    }
