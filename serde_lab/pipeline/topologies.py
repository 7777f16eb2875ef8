"""Defines the chains of stages and hops that write records.

The exchanges run a topology stage by stage, and its diagram is printed from it. Sources: RFC-24, RFC-84
and the operator pipelines of Hudi's Flink writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from serde_lab.pipeline.assign.index_lookup import SentIndex, StoredKeys, base_file_lookup
from serde_lab.pipeline.assign.stages import (
    Lookup,
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
    of (position, frame), and yields batches of ROUTED, or write stats if no hop follows.
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


def _assigning(lookup: Lookup | None, does: str) -> Stage:
    return Stage("assign", does, partial(assign_stage, lookup=lookup))


_BY_INDEX_RECORDS = _assigning(SentIndex, "looked up in index records, given file groups")
_BY_FOOTERS = _assigning(base_file_lookup, "looked up in base files' footers, given file groups")

# RFC-84's upsert with the state index: each record is shuffled twice
_STATE = Topology(
    "state",
    "the stored keys are sent as index records to the tasks that assign file groups",
    (MAP, _BY_INDEX_RECORDS, REDUCE),
    (BY_KEY, BY_FILE_GROUP),
    index_joins=0,
)
# RFC-84's bulk insert: the tasks that read rows also write the files
_BULK = Topology("bulk", "no record is made, and no row is moved", (WRITE_ROWS,))

TOPOLOGIES: Mapping[str, Topology] = {
    topology.name: topology
    for topology in (
        # RFC-84's upsert with the simple bucket index: each record is shuffled once
        Topology(
            "bucket",
            "the hash of its key is a record's file group",
            (MAP, REDUCE),
            (BY_BUCKET,),
        ),
        # Hudi's consistent hashing: buckets can split and merge
        Topology(
            "consistent",
            "the ring of its partition determines a record's file group, and nothing is looked up",
            (MAP, _assigning(None, "given file groups by the partition's ring"), REDUCE),
            (BY_KEY, BY_FILE_GROUP),
        ),
        _STATE,
        # RFC-24's step 4: no state to load, since the index is in the files
        Topology(
            "bloom",
            "the tasks that assign file groups look into the base files' key ranges and Bloom filters",
            (MAP, _BY_FOOTERS, REDUCE),
            (BY_KEY, BY_FILE_GROUP),
        ),
        # RFC-24's starting point
        Topology(
            "legacy",
            "one task passes all records on, and one writes all of a partition",
            (MAP, GENERATOR, WRITE_PARTITION),
            (TO_ONE, BY_PARTITION),
        ),
        # RFC-24's step 1: a coordinator begins instants, which removes the single-task bottleneck
        Topology(
            "step1", "one task writes all of a partition", (MAP, WRITE_PARTITION), (BY_PARTITION,)
        ),
        # RFC-24's step 2: separate stages assign and write, so writing scales with the file groups
        replace(_STATE, name="step2", about="assigners and writers are tasks of their own"),
        # RFC-24's step 3: a writing task holds no more than its buffer, and a retried one forms the same
        # mini-batches
        replace(
            _STATE,
            name="step3",
            about="as step2, and writers write as soon as a file group or their buffer is full",
            stages=(MAP, _BY_INDEX_RECORDS, REDUCE_IN_BATCHES),
            hops=(BY_KEY, BY_FILE_GROUP_IN_ORDER),
        ),
        # RFC-24's pipeline without a coordinator; its commit sink is the driver, as in every topology here
        Topology(
            "compatible",
            "a single task begins instants, followed by assigners and writers",
            (MAP, GENERATOR, _BY_INDEX_RECORDS, REDUCE),
            (TO_ONE, BY_KEY, BY_FILE_GROUP),
            index_joins=1,
        ),
        Topology(
            "prepped",
            "records come with their file groups, and nothing is looked up",
            (replace(MAP, does="keys, partition paths and places, rows to records"), REDUCE),
            (BY_FILE_GROUP,),
        ),
        _BULK,
        Topology(
            "bulk_partition_sort",
            "no record is made; every task sorts its rows",
            (WRITE_SORTED_ROWS,),
        ),
        Topology(
            "bulk_global_sort",
            "no record is made; rows are sorted as the engine's own columns",
            (WRITE_ROWS,),
            arrives_sorted=True,
        ),
        # RFC-84's append mode: inserts that skip the key lookup and the shuffle
        replace(_BULK, name="append"),
        # writes that only remove file groups
        Topology("nothing", "no record is read or written", ()),
    )
}
"""Every topology by its name."""


def topology_of(plan: WritePlan) -> Topology:
    return TOPOLOGIES[plan.topology]
