"""Decides the task that receives each record: the hops of topologies, and the salts that Spark needs.

`repartition(n, col)` places a row at pmod(murmur3(col), n), not at col: eight targets would share five
partitions. The hop therefore sends a salt, the smallest int that Spark's hash maps to the wanted
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DataError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.timed_serde import TimedSerde
from serde_lab.pipeline.plan import WritePlan
from serde_lab.records.buffers import hash64, rotate_left
from serde_lab.records.schema import FILE_ID, PARTITION_PATH, RECORD_KEY, values_at
from serde_lab.serde.interface import BoundSerde, Records
from serde_lab.table.config import TableConfig
from serde_lab.table.index.bucket_index import bucket_ids, bucket_ids_of_integers, task_of_bucket
from serde_lab.table.storage.data_files import Writing, write_token

_SEED = np.uint32(42)  # of Spark's Murmur3Hash
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3_int(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Spark's `hash` of an int column: Murmur3_x86_32.hashInt with seed 42; shape (n,)."""
    with np.errstate(over="ignore"):
        k = rotate_left(values.astype(np.uint32) * _C1, 15) * _C2
        h = rotate_left(_SEED ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h.view(np.int32)


@lru_cache(maxsize=64)
def salts(partitions: int) -> npt.NDArray[np.int32]:
    """The salt of each reduce partition, shape (partitions,): the smallest int from 0 that maps to it."""
    found = np.full(partitions, -1, np.int32)
    start = 0
    while (found < 0).any():
        # about n * ln(n) ints hit all of n partitions
        candidates = np.arange(start, start + 16 * partitions + 64, dtype=np.int32)
        partition, first = np.unique(murmur3_int(candidates) % partitions, return_index=True)
        new = found[partition] < 0
        found[partition[new]] = candidates[first[new]]
        start = int(candidates[-1]) + 1
    found.flags.writeable = False
    return found


_PARTITION_BITS, _ROW_BITS = 22, 33
POSITION_BITS = _PARTITION_BITS + _ROW_BITS


def position_of(partition: int, rows_before: int) -> int:
    """The input position of a frame's first record, by which frames that arrive in any order are sorted.

    The input partition is in the upper 22 of 55 bits, the row within it in the lower 33. Raises DataError if
    either is larger.
    """
    if partition >> _PARTITION_BITS or rows_before >> _ROW_BITS:
        raise DataError(
            f"row {rows_before:,} of input partition {partition:,} has no position: an input has at most"
            f" {1 << _PARTITION_BITS:,} partitions, each of at most {1 << _ROW_BITS:,} rows",
            hint="repartition the source",
        )
    return (partition << _ROW_BITS) | rows_before


def buckets_of(
    keys: pa.Array, table: TableConfig, paths: pa.Array | None = None
) -> npt.NDArray[np.int32]:
    """The bucket of each record key, shape (n,); `paths`: partition paths, if the table is partitioned."""
    counts = _bucket_counts(table, paths)
    return bucket_ids(keys, table.record_key_fields, table.bucket_fields, counts)


def _bucket_counts(table: TableConfig, paths: pa.Array | None) -> int | npt.NDArray[np.int32]:
    """The bucket count of each record's partition; a single number if all partitions have the same."""
    if not table.bucket_expressions or paths is None:
        return table.bucket_count or 1
    encoded = paths.dictionary_encode()
    counts = [table.buckets_of(path) for path in encoded.dictionary.to_pylist()]
    return np.array(counts, np.int32)[encoded.indices.to_numpy()]


def buckets_of_batch(
    keys: pa.Array, data: pa.RecordBatch, table: TableConfig, paths: pa.Array | None = None
) -> npt.NDArray[np.int32]:
    """The bucket of each record, from its key fields in `data` if they are plain integers."""
    fields = table.record_key_fields
    columns = {name: values_at(data, name) for name in fields}
    hashed = [columns[name] for name in fields if name in table.bucket_fields]
    plain = all(pa.types.is_integer(c.type) and not c.null_count for c in columns.values())
    if not hashed or not plain or not (table.bare_keys or len(fields) > 1):
        return buckets_of(keys, table, paths)
    counts = _bucket_counts(table, paths)
    return bucket_ids_of_integers([c.to_numpy() for c in hashed], counts)


def targets_of(
    buckets: npt.NDArray[np.int32],
    paths: pa.Array | None,
    buckets_in: Callable[[str], int],
    targets: int,
) -> npt.NDArray[np.int32]:
    """The reduce partition of each record; `paths` are its partition paths, None if there are none.

    `buckets_in` gives the number of buckets of a partition.
    """
    if paths is None:
        return (buckets % targets).astype(np.int32)
    encoded = paths.dictionary_encode()
    firsts = [
        task_of_bucket(path, 0, buckets_in(path), targets)
        for path in encoded.dictionary.to_pylist()
    ]
    first = np.array(firsts, np.int64)[encoded.indices.to_numpy()]
    return ((first + buckets) % targets).astype(np.int32)


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
        return self.envelope.column(RECORD_KEY)

    def paths(self) -> pa.StringArray:
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


# file name numbers reserved for one batch; the next batch starts above them
_FLUSHES = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a stage: everything that its steps share.

    `partition` numbers it among the tasks of its stage. `hop` follows the stage, None after the last one.
    `timed`: the task's input times itself. For tasks that write: `convert_out` names the phase in which
    records become Arrow, since a hop without a strategy has no such verb. `flush` numbers the base files
    that the task writes one after another for a file group, and `rows_before` counts the rows in the
    earlier ones. `split_by_order`: the order of the task's rows says which of them a base file has.
    """

    plan: WritePlan
    partition: int
    timeline: TaskTimeline
    hop: Hop | None = None
    timed: bool = False
    convert_out: str = "to_arrow"
    flush: int = 0
    rows_before: int = 0
    split_by_order: bool = False

    @property
    def next_hop(self) -> Hop:
        """The hop after a stage that is not the last."""
        assert self.hop is not None
        return self.hop

    @property
    def first_row(self) -> int:
        """The first number of its rows; no two batches of an instant share one."""
        return (self.plan.batch << 40) + self.rows_before

    def writing(self, may_be_replaced: bool) -> Writing:
        """What the writer of one of the task's files needs to know; `may_be_replaced` as in Writing."""
        plan = self.plan
        return Writing(
            plan.instant,
            # names the task and not its attempt, so all attempts write the same file names
            write_token(self.partition, plan.batch * _FLUSHES + self.flush),
            plan.inflight_path,
            self.partition,
            self.first_row,
            may_be_replaced,
            self.split_by_order,
        )

    def bind(self) -> BoundSerde:
        """The strategy of the write, bound to the schema of its records, which are timed."""
        with self.timeline.phase("bind"):
            return TimedSerde(self.plan.bind(), self.timeline)

    def source(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The task's input; the wait for it is timed unless the input times itself."""
        return batches if self.timed else self.timeline.source(batches)


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


def task_of_keys(keys: pa.StringArray, tasks: int) -> Targets:
    """The task behind a hop by record key that receives each key."""
    # use the upper half: the remainder of the same hash decides the shard
    return ((hash64(keys) >> np.uint64(32)) % np.uint64(tasks)).astype(np.int32)


BY_BUCKET = Hop("bucket", _by_bucket)
BY_KEY = Hop("record key", lambda plan, going: task_of_keys(going.keys(), plan.targets))
BY_PARTITION = Hop("partition path", lambda plan, going: task_of_text(going.paths(), plan.targets))
BY_FILE_GROUP = Hop("file group", lambda plan, going: task_of_text(going.file_ids(), plan.targets))
BY_FILE_GROUP_IN_ORDER = replace(BY_FILE_GROUP, in_order=True)
TO_ONE = Hop("", lambda plan, going: np.zeros(len(going.envelope), np.int32), single=True)
