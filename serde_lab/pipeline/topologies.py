"""Defines the chains of stages and hops that write records, one function per topology.

The exchanges run a topology stage by stage, and its diagram is printed from it. Sources: RFC-24, RFC-84
and the operator pipelines of Hudi's Flink writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from serde_lab.pipeline.assign.index_lookup import (
    BaseFileBlooms,
    IndexLookup,
    SentIndex,
    StoredKeys,
)
from serde_lab.pipeline.assign.stages import (
    assign_and_write_stage,
    assign_stage,
    bootstrap_stage,
    relay_stage,
)
from serde_lab.pipeline.exchange.routing import (
    BY_BUCKET,
    BY_FILE_GROUP,
    BY_FILE_GROUP_IN_ORDER,
    BY_KEY,
    BY_PARTITION,
    TO_ONE,
    Hop,
    Task,
)
from serde_lab.pipeline.handles.file_groups import mini_batch_stage
from serde_lab.pipeline.handles.row_writer import write_rows_stage, write_sorted_rows_stage
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.stages import map_stage, reduce_columns_stage, reduce_stage

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Stage:
    """What the tasks of one kind do.

    `label` names the stage in phases and reports. `work` takes a task's input, batches of the source or
    of (position, frame), and yields batches of ROUTED, or write statuses if no hop follows.
    """

    label: str
    does: str
    work: Callable[[Task, Batches], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Topology:
    """`stages` with a hop between each two of them.

    `index_joins` numbers the hop that also carries index records of the stored keys.
    """

    name: str
    about: str
    stages: tuple[Stage, ...]
    hops: tuple[Hop, ...] = ()
    index_joins: int | None = None
    arrives_sorted: bool = False
    """Before the first stage, the engine sorts the source's own columns and distributes them."""

    def hop_after(self, stage: int) -> Hop | None:
        """The hop after stage number `stage`; None after the last one."""
        return self.hops[stage] if stage < len(self.hops) else None

    def steps(self) -> Iterator[tuple[str, str]]:
        """Stages and hops in order: a stage's label with what it does, "" with the description of a hop."""
        if self.arrives_sorted:
            yield "", "==> the engine's own columns, sorted by partition path and key ==>"
        for number, stage in enumerate(self.stages):
            yield stage.label, stage.does
            hop = self.hop_after(number)
            if hop is not None:
                also = f" beside {BOOTSTRAP.does}" if number == self.index_joins else ""
                yield "", f"==> {hop.words} ==>{also}"

    def diagram(self) -> str:
        """Stages and hops as text, one per line."""
        steps = list(self.steps())
        width = max((len(label) for label, _ in steps), default=0)
        return "\n".join(
            [
                f"{self.name}: {self.about}",
                *(f"  {label:<{width}}  {text}" for label, text in steps),
            ]
        )


MAP = Stage("map", "keys and partition paths, rows to records", map_stage)
REDUCE = Stage("reduce", "one record per key, merged with the stored rows, written", reduce_stage)
COLUMNS = Stage(
    "reduce", "rows that crossed as the engine's own columns are written", reduce_columns_stage
)


BOOTSTRAP = Stage("bootstrap", "index records of the stored keys", bootstrap_stage)
GENERATOR = Stage("generator", "records pass the task that begins instants", relay_stage)
WRITE_PARTITION = Stage(
    "reduce",
    "stored keys looked up, file groups assigned, merged and written, one after the other",
    partial(assign_and_write_stage, lookup=StoredKeys),
)
REDUCE_IN_BATCHES = Stage(
    "reduce",
    "merged and written in mini-batches, of the largest file group first",
    mini_batch_stage,
)


WRITE_ROWS = Stage("write", "keys and partition paths, rows to base files", write_rows_stage)
WRITE_SORTED_ROWS = Stage(
    "write", "keys and partition paths, rows sorted, then to base files", write_sorted_rows_stage
)


def _assigning(lookup: type[IndexLookup] | None, what: str) -> Stage:
    work = partial(assign_stage, lookup=lookup)
    return Stage("assign", f"looked up in {what}, given file groups", work)


def bucket() -> Topology:
    """RFC-84's upsert with the simple bucket index: each record is shuffled once, and nothing is looked
    up.
    """
    return Topology(
        "bucket", "the hash of its key is a record's file group", (MAP, REDUCE), (BY_BUCKET,)
    )


def state() -> Topology:
    """RFC-84's upsert with the state index: each record is shuffled twice."""
    return Topology(
        "state",
        "the stored keys are sent as index records to the tasks that assign file groups",
        (MAP, _assigning(SentIndex, "index records"), REDUCE),
        (BY_KEY, BY_FILE_GROUP),
        index_joins=0,
    )


def bloom() -> Topology:
    """RFC-24's step 4: no state to load, since the index is in the files."""
    return Topology(
        "bloom",
        "the tasks that assign file groups look into the base files' key ranges and Bloom filters",
        (MAP, _assigning(BaseFileBlooms, "base files' footers"), REDUCE),
        (BY_KEY, BY_FILE_GROUP),
    )


def consistent() -> Topology:
    """Hudi's consistent hashing: buckets can split and merge, so a ring maps each key to its file group."""
    work = _assigning(None, "")
    return Topology(
        "consistent",
        "the ring of its partition determines a record's file group, and nothing is looked up",
        (MAP, replace(work, does="given file groups by the partition's ring"), REDUCE),
        (BY_KEY, BY_FILE_GROUP),
    )


def legacy() -> Topology:
    """RFC-24's starting point."""
    return Topology(
        "legacy",
        "one task passes all records on, and one writes all of a partition",
        (MAP, GENERATOR, WRITE_PARTITION),
        (TO_ONE, BY_PARTITION),
    )


def step1() -> Topology:
    """RFC-24's step 1: a coordinator begins instants, which removes the single-task bottleneck."""
    return Topology(
        "step1", "one task writes all of a partition", (MAP, WRITE_PARTITION), (BY_PARTITION,)
    )


def step2() -> Topology:
    """RFC-24's step 2: separate stages assign and write, so writing scales with the file groups."""
    return replace(state(), name="step2", about="assigners and writers are tasks of their own")


def step3() -> Topology:
    """RFC-24's step 3: a writing task holds no more than its buffer."""
    assign = step2().stages[1]
    return replace(
        step2(),
        name="step3",
        about="as step2, and writers write as soon as a file group or their buffer is full",
        stages=(MAP, assign, REDUCE_IN_BATCHES),
        # a retried task must form the same mini-batches
        hops=(BY_KEY, BY_FILE_GROUP_IN_ORDER),
    )


def compatible() -> Topology:
    """RFC-24's pipeline without a coordinator; its commit sink is the driver, as in every topology here."""
    return Topology(
        "compatible",
        "a single task begins instants, followed by assigners and writers",
        (MAP, GENERATOR, _assigning(SentIndex, "index records"), REDUCE),
        (TO_ONE, BY_KEY, BY_FILE_GROUP),
        index_joins=1,
    )


def prepped() -> Topology:
    """upsert_prepped: the source names the file group of each record."""
    return Topology(
        "prepped",
        "records come with their file groups, and nothing is looked up",
        (replace(MAP, does="keys, partition paths and places, rows to records"), REDUCE),
        (BY_FILE_GROUP,),
    )


def bulk() -> Topology:
    """RFC-84's bulk insert: the tasks that read rows also write the files."""
    return Topology("bulk", "no record is made, and no row is moved", (WRITE_ROWS,))


def bulk_partition_sort() -> Topology:
    """bulk_insert with each task's rows sorted by partition path and key."""
    return Topology(
        "bulk_partition_sort", "no record is made; every task sorts its rows", (WRITE_SORTED_ROWS,)
    )


def bulk_global_sort() -> Topology:
    """bulk_insert with all rows sorted by partition path and key."""
    return Topology(
        "bulk_global_sort",
        "no record is made; rows are sorted as the engine's own columns",
        (WRITE_ROWS,),
        arrives_sorted=True,
    )


def append() -> Topology:
    """RFC-84's append mode: inserts that skip the key lookup and the shuffle."""
    return replace(bulk(), name="append")


def nothing() -> Topology:
    """Writes that only remove file groups."""
    return Topology("nothing", "no record is read or written", ())


TOPOLOGIES: Mapping[str, Callable[[], Topology]] = {
    function.__name__: function
    for function in (
        *(bucket, consistent, state, bloom, legacy, step1, step2, step3, compatible, prepped),
        *(bulk, bulk_partition_sort, bulk_global_sort, append, nothing),
    )
}
"""Every topology by its name."""


def topology_of(plan: WritePlan) -> Topology:
    """The topology of `plan`."""
    return TOPOLOGIES[plan.topology]()
