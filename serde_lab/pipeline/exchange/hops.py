"""Defines the hops of topologies, each with the key that distributes records to the next tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.pipeline.exchange.routing import buckets_of, buckets_of_batch, targets_of
from serde_lab.pipeline.plan import WritePlan
from serde_lab.records.key_hash import hash64
from serde_lab.records.schema import FILE_ID, PARTITION_PATH, RECORD_KEY
from serde_lab.serde.interface import Records

Targets = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records to be sent, with the columns that decide their target.

    `envelope` gives envelope columns by name: it is a batch, or records in their own representation.
    `data` is the source's batch if available. `partition` is the sending task's.
    """

    envelope: pa.RecordBatch | Records
    partition: int
    data: pa.RecordBatch | None = None

    def keys(self) -> pa.StringArray:
        """Record keys."""
        return self.envelope.column(RECORD_KEY)

    def paths(self) -> pa.StringArray:
        """Partition paths."""
        return self.envelope.column(PARTITION_PATH)

    def file_ids(self) -> pa.StringArray:
        """File ids, "" for records without a file group yet."""
        return self.envelope.column(FILE_ID)


@dataclass(frozen=True, slots=True)
class Hop:
    """One shuffle between two stages.

    `by` describes its key in words. `place` gives the task of each record, out of `tasks` many. `single`:
    there is one task, whatever the parallelism. `in_order`: frames arrive sorted by position.
    """

    by: str
    place: Callable[[WritePlan, Outgoing], Targets]
    single: bool = False
    in_order: bool = False

    def is_sorted(self, plan: WritePlan) -> bool:
        """Whether frames are sorted by position: for `in_order`, or to receive shard after shard."""
        return self.in_order or plan.shards > 1

    @property
    def words(self) -> str:
        """A description of the hop."""
        return "to a single task" if self.single else f"by {self.by}"

    def tasks(self, plan: WritePlan) -> int:
        """The number of tasks in the next stage."""
        return 1 if self.single else plan.targets

    def destinations(
        self, plan: WritePlan, going: Outgoing
    ) -> tuple[Targets, npt.NDArray[np.int64] | None]:
        """Task and shard of each record; shard is None if there is only one."""
        target = self.place(plan, going)
        if plan.shards == 1:
            return target, None
        shard = (hash64(going.keys()) % np.uint64(plan.shards)).astype(np.int64)
        return target, shard


def task_of_text(text: pa.StringArray, tasks: int) -> Targets:
    """The task of each text, the same in every process; `text` should have few distinct values."""
    encoded = text.dictionary_encode()
    of_distinct = (hash64(encoded.dictionary) % np.uint64(tasks)).astype(np.int32)
    return of_distinct[encoded.indices.to_numpy()]


def _by_bucket(plan: WritePlan, going: Outgoing) -> Targets:
    paths = going.paths() if plan.schema.partition else None
    if plan.table.is_keyless:
        # rows with the same partition path and input partition stay together, which keeps files few
        buckets = np.full(len(going.envelope), going.partition % plan.targets, np.int32)
    elif going.data is not None:
        buckets = buckets_of_batch(going.keys(), going.data, plan.table, paths)
    else:
        buckets = buckets_of(going.keys(), plan.table, paths)
    return targets_of(buckets, paths, plan.buckets_in, plan.targets)


def _by_key(plan: WritePlan, going: Outgoing) -> Targets:
    # use the upper half: the remainder of the same hash decides the shard
    high = hash64(going.keys()) >> np.uint64(32)
    return (high % np.uint64(plan.targets)).astype(np.int32)


def _by_partition(plan: WritePlan, going: Outgoing) -> Targets:
    return task_of_text(going.paths(), plan.targets)


def _by_file_group(plan: WritePlan, going: Outgoing) -> Targets:
    return task_of_text(going.file_ids(), plan.targets)


def _to_one(plan: WritePlan, going: Outgoing) -> Targets:
    return np.zeros(len(going.envelope), np.int32)


BY_BUCKET = Hop("bucket", _by_bucket)
BY_KEY = Hop("record key", _by_key)
BY_PARTITION = Hop("partition path", _by_partition)
BY_FILE_GROUP = Hop("file group", _by_file_group)
BY_FILE_GROUP_IN_ORDER = replace(BY_FILE_GROUP, in_order=True)
TO_ONE = Hop("", _to_one, single=True)
