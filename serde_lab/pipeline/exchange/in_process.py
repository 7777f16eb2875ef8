"""Defines the exchange interface, which carries batches between stages, and an exchange in one process.

The in-process exchange takes milliseconds instead of seconds; hypothesis tests, codec work and most tests
use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_lab.measure.timeline import TaskReport, TaskTimeline
from serde_lab.pipeline.assign.stages import bootstrap_tasks
from serde_lab.pipeline.exchange.routing import Hop, Task
from serde_lab.pipeline.handles.row_writer import sorted_ranges
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.topologies import BOOTSTRAP, Stage, topology_of
from serde_lab.records.buffers import file_batches
from serde_lab.table.timeline.commit_metadata import WriteStat


class Exchange(ABC):
    """Carries the source of one write through the stages of its topology."""

    @abstractmethod
    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        """Run all stages and hops; one stat per written file. Raises the errors that stages raise."""

    def counters(self) -> Counter[str]:
        """The counters of the last run's tasks; empty if the exchange keeps none."""
        return Counter()


class InProcessExchange(Exchange):
    """Runs all stages in this process, one task after another.

    `partitions`: the source's input partitions, each an iterable of batches of the data columns.
    `reports`: the task reports of the last run.
    """

    def __init__(self, partitions: Sequence[Iterable[pa.RecordBatch]]) -> None:
        self.partitions = partitions
        self.reports: list[TaskReport] = []

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        self.reports = []
        topology = topology_of(plan)
        if not topology.stages:
            return ()
        inputs: Iterable[Iterable[pa.RecordBatch]] = self.partitions
        if topology.arrives_sorted:
            inputs = sorted_ranges(plan, inputs)
        for number, hop in enumerate(topology.hops):
            arrived: list[list[pa.RecordBatch]] = [[] for _ in range(hop.tasks(plan))]
            sent = self._stage(plan, topology.stages[number], hop, inputs)
            if number == topology.index_joins:
                # the input of each task is its number
                numbers = [[pa.record_batch({"id": [n]})] for n in range(bootstrap_tasks(plan))]
                sent = chain(sent, self._stage(plan, BOOTSTRAP, hop, numbers))
            for routed in sent:
                for target, part in by_target(routed):
                    arrived[target].append(part)
            # sorted as in Spark; the upper bits of a position hold the shard
            inputs = [
                [pa.concat_batches(parts).sort_by("position")]
                if parts and hop.is_sorted(plan)
                else parts
                for parts in arrived
            ]
        return tuple(self._stage(plan, topology.stages[-1], None, inputs))

    def _stage(
        self,
        plan: WritePlan,
        stage: Stage,
        hop: Hop | None,
        inputs: Iterable[Iterable[pa.RecordBatch]],
    ) -> Iterator[Any]:
        """The outputs of a stage's tasks, in turn."""
        for number, batches in enumerate(inputs):
            timeline = TaskTimeline(stage.label)
            yield from stage.work(Task(plan, number, timeline, hop), batches)
            self.reports.append(timeline.report())

    def counters(self) -> Counter[str]:
        return summed(report.counters for report in self.reports)


def summed(counted: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The counters of several tasks, added up."""
    total: Counter[str] = Counter()
    for one in counted:
        total.update(one)
    return total


def by_target(routed: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The routed frames of each target, in order."""
    targets = routed.column("target").to_numpy()
    for target in sorted(set(targets.tolist())):
        chosen = pa.array((targets == target).nonzero()[0])
        yield target, routed.select(["position", "frame"]).take(chosen)


def parquet_partitions(
    files: Sequence[Path], columns: Sequence[str], rows: int = 10_000
) -> list[Iterator[pa.RecordBatch]]:
    """One input partition per file, in the given order, as the Spark source reads them."""
    return [file_batches(file, columns, rows) for file in files]
