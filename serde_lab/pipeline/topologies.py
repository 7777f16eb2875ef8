"""The chains of stages and hops in which records are written: one readable function each.

Owns what each topology consists of, which the exchanges carry out stage by stage, and the diagram of
it. Must not know how an exchange moves frames, nor pyspark. Sources: RFC-24, RFC-84 and the operator
pipelines of Hudi's Flink writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.hops import BY_BUCKET, Hop
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.stages import map_stage, reduce_columns_stage, reduce_stage

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class StageTask:
    """One task of a stage.

    `hop` is what follows the stage, None after the last one. `timed`: its input times itself.
    """

    plan: WritePlan
    partition: int
    timeline: TaskTimeline
    hop: Hop | None = None
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """What one kind of task does.

    `label` names it in phases and reports. `work` takes a task's input, batches of the source or of
    (position, frame), and gives batches of ROUTED, or write statuses where no hop follows.
    """

    label: str
    does: str
    work: Callable[[StageTask, Batches], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Topology:
    """`stages` with a hop between each two of them."""

    name: str
    about: str
    stages: tuple[Stage, ...]
    hops: tuple[Hop, ...] = ()

    def hop_after(self, stage: int) -> Hop | None:
        """The hop behind stage number `stage`; None behind the last one."""
        return self.hops[stage] if stage < len(self.hops) else None

    def diagram(self) -> str:
        """Stages and hops as text, one a line."""
        lines = [f"{self.name}: {self.about}"]
        width = max(len(stage.label) for stage in self.stages)
        for number, stage in enumerate(self.stages):
            lines.append(f"  {stage.label:<{width}}  {stage.does}")
            hop = self.hop_after(number)
            if hop is not None:
                lines.append(f"  {'':<{width}}  ==> by {hop.by} ==>")
        return "\n".join(lines)


def _map(task: StageTask, batches: Batches) -> Iterator[Any]:
    assert task.hop is not None
    return map_stage(task.plan, task.partition, batches, task.timeline, task.timed, task.hop)


def _reduce(task: StageTask, batches: Batches) -> Iterator[Any]:
    return reduce_stage(task.plan, task.partition, batches, task.timeline)


def _reduce_columns(task: StageTask, batches: Batches) -> Iterator[Any]:
    return reduce_columns_stage(task.plan, task.partition, batches, task.timeline)


MAP = Stage("map", "keys and partition paths, rows to records", _map)
REDUCE = Stage("reduce", "one record a key, merged with what is stored, written", _reduce)
COLUMNS = Stage(
    "reduce", "rows that crossed as the engine's own columns are written", _reduce_columns
)


def bucket() -> Topology:
    """RFC-84's upsert with the simple bucket index: a record crosses once, and nothing is looked up."""
    return Topology(
        "bucket", "the hash of its key is a record's file group", (MAP, REDUCE), (BY_BUCKET,)
    )


TOPOLOGIES: Mapping[str, Callable[[], Topology]] = {"bucket": bucket}
"""Every topology by its name."""


def topology_of(plan: WritePlan) -> Topology:
    """The topology that `plan` is written by."""
    return TOPOLOGIES[plan.topology]()
