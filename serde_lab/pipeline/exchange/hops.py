"""By what records are shared out to the tasks of the next stage: the hops that topologies are made of.

Owns the keys of hops and the placing of records by them. Must not know stages, frames or Spark.
"""

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
    """Records on their way: what tells where they go.

    `envelope` gives envelope columns by name: a batch, or records on their own representation. `data`
    is the source's batch where it is at hand. `partition` is the sending task's.
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
        """File ids, "" where no file group has been found."""
        return self.envelope.column(FILE_ID)


@dataclass(frozen=True, slots=True)
class Hop:
    """One crossing between two stages.

    `by` says in words what its key is. `place` gives the task of each record out of as many as `tasks`
    says that there are; `single`: there is one task, whatever the parallelism. `in_order`: frames come
    in the order of their positions.
    """

    by: str
    place: Callable[[WritePlan, Outgoing], Targets]
    single: bool = False
    in_order: bool = False

    def is_sorted(self, plan: WritePlan) -> bool:
        """Whether frames are sorted by position: for their order, or since shards come in turn."""
        return self.in_order or plan.shards > 1

    @property
    def words(self) -> str:
        """What it does, in words."""
        return "to a single task" if self.single else f"by {self.by}"

    def tasks(self, plan: WritePlan) -> int:
        """Tasks of the stage that it leads to."""
        return 1 if self.single else plan.targets

    def destinations(
        self, plan: WritePlan, going: Outgoing
    ) -> tuple[Targets, npt.NDArray[np.int64] | None]:
        """Task and shard of each record; no shard where there is only one."""
        target = self.place(plan, going)
        if plan.shards == 1:
            return target, None
        shard = (hash64(going.keys()) % np.uint64(plan.shards)).astype(np.int64)
        return target, shard


def task_of_text(text: pa.StringArray, tasks: int) -> Targets:
    """The task of each text, the same in every process; `text` holds few different ones."""
    encoded = text.dictionary_encode()
    of_distinct = (hash64(encoded.dictionary) % np.uint64(tasks)).astype(np.int32)
    return of_distinct[encoded.indices.to_numpy()]


def _by_bucket(plan: WritePlan, going: Outgoing) -> Targets:
    paths = going.paths() if plan.schema.partition else None
    if plan.table.is_keyless:
        # rows of one partition path and one input partition stay together: few files
        buckets = np.full(len(going.envelope), going.partition % plan.targets, np.int32)
    elif going.data is not None:
        buckets = buckets_of_batch(going.keys(), going.data, plan.table, paths)
    else:
        buckets = buckets_of(going.keys(), plan.table, paths)
    return targets_of(buckets, paths, plan.buckets_in, plan.targets)


def _by_key(plan: WritePlan, going: Outgoing) -> Targets:
    # the upper half: shards are told by the remainder of the same hash
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
