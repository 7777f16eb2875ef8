"""The exchange between two stages, and the one that needs no Spark.

Owns the interface that both exchanges have and `inprocess`: milliseconds instead of seconds, for
hypothesis, codec work and most tests. Must not import pyspark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.measure.timeline import TaskReport, TaskTimeline
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.stages import map_stage, reduce_stage
from serde_lab.pipeline.write_handle import WriteStatus


class Exchange(ABC):
    """Carries the source of one write through both stages of its hop."""

    @abstractmethod
    def run(self, plan: WritePlan) -> tuple[WriteStatus, ...]:
        """Map, exchange, reduce; one status a file written. Raises whatever a stage raised on purpose."""

    def counters(self) -> Counter[str]:
        """What the tasks of the last run counted; empty where an exchange does not keep it."""
        return Counter()


class InProcessExchange(Exchange):
    """Both stages in this process, one partition after the other.

    `partitions`: the source's input partitions, each an iterable of batches of the data columns.
    `reports`: what the tasks of the last run said of themselves.
    """

    def __init__(self, partitions: Sequence[Iterable[pa.RecordBatch]]) -> None:
        self.partitions = partitions
        self.reports: list[TaskReport] = []

    def run(self, plan: WritePlan) -> tuple[WriteStatus, ...]:
        reports = self.reports = []
        arrived: dict[int, list[pa.RecordBatch]] = {target: [] for target in range(plan.targets)}
        for number, batches in enumerate(self.partitions):
            timeline = TaskTimeline("map")
            for routed in map_stage(plan, number, batches, timeline):
                for target, part in by_target(routed):
                    arrived[target].append(part)
            reports.append(timeline.report())
        statuses: list[WriteStatus] = []
        for target, parts in arrived.items():
            timeline = TaskTimeline("reduce")
            # Spark sorts by position where a task has shards; the shard is in its upper bits
            parts = _sorted(parts) if plan.shards > 1 else parts
            statuses += reduce_stage(plan, target, parts, timeline)
            reports.append(timeline.report())
        return tuple(statuses)

    def counters(self) -> Counter[str]:
        return summed(report.counters for report in self.reports)


def summed(counted: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The counters of several tasks as one."""
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


def _sorted(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if not parts:
        return parts
    together = pa.concat_batches(parts)
    return [together.sort_by("position")]


def parquet_partitions(
    files: Sequence[Path], columns: Sequence[str], rows: int = 10_000
) -> list[Iterator[pa.RecordBatch]]:
    """One input partition a file, in the order given, as the Spark source reads them."""

    def read(file: Path) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(file) as source:
            yield from source.iter_batches(batch_size=rows, columns=list(columns))

    return [read(file) for file in files]
