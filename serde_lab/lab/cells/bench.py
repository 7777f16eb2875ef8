"""Measures calls in a Spark session: by job group, by event log, with fresh Python workers for each cell."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serde_lab.measure.event_log import EventLogReader, SparkHistory, event_log_file
from serde_lab.measure.metrics import Sample
from serde_lab.measure.process_tree import (
    TreeUse,
    adopt_orphans,
    end_processes,
    started_by,
    tree_use,
)
from serde_lab.measure.slots import Interval
from serde_lab.pipeline.spark.exchange import batches_of, scan_of_files, warm_workers
from serde_lab.pipeline.warm_up import DEFAULT_FRAMING
from serde_lab.serde.interface import SerdeOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_CELL_VARIABLE = "SERDE_LAB_CELL"
_DRAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Window:
    """The measurements around one call: its interval, its wall time, its Spark jobs, and what all processes
    used, which is known on one machine only (else None)."""

    interval: Interval
    wall_ns: int
    history: SparkHistory
    tree: TreeUse | None


class Bench:
    """A Spark session with its event log, on `slots` task slots; it took `session_start_s` to start."""

    def __init__(
        self,
        spark: SparkSession,
        event_logs: Path,
        slots: int,
        session_start_s: float | None = None,
    ) -> None:
        self.spark, self.slots, self.session_start_s = spark, slots, session_start_s
        self._context = spark.sparkContext
        self._log = EventLogReader(event_log_file(event_logs, self._context.applicationId))
        self._daemons: set[int] = set()
        self._cells = count(1)
        self._local = (self._context.master or "").startswith("local")
        self._jvm: int | None = None
        if self._local:
            jvm = self._context._jvm
            assert jvm is not None
            self._jvm = int(jvm.java.lang.ProcessHandle.current().pid())
            # for the whole session: a strategy may start processes before the clock does
            adopt_orphans(True)

    @property
    def jvm(self) -> int | None:
        """The process id of the session's JVM; None on a cluster."""
        return self._jvm

    def fresh_workers(
        self,
        cell: str,
        strategy: str = "",
        serde: SerdeOptions = DEFAULT_FRAMING,
        rows: int = 2_000,
    ) -> Iterator[Sample]:
        """Start and warm up Python workers that no earlier cell used; yields the seconds this took, and those
        of the session's start.

        `strategy` and `serde` are those that the workers will use. `rows` is the approximate number of
        rows in one of their tasks.

        Spark reuses workers with the same environment, so an environment variable that differs for each
        cell makes it start new ones.
        """
        self.end_workers()
        # numbered, since a session may have several cells of one name, as the gate's self-test does
        self._context.environment[_CELL_VARIABLE] = f"{next(self._cells)} {cell}"
        began = time.perf_counter()
        workers = warm_workers(self.spark, self.slots, strategy, serde, rows)
        elapsed = time.perf_counter() - began
        if self._local:
            self._daemons = {worker["daemon"] for worker in workers}
        yield Sample("worker_start_s", elapsed)
        yield from self.start_samples()

    def start_samples(self) -> Iterator[Sample]:
        """The start of the session, which the clock of every cell leaves out."""
        if self.session_start_s is not None:
            yield Sample("session_start_s", self.session_start_s)

    def end_workers(self) -> None:
        """End the last cell's worker daemons, which Spark would keep for the whole session, and what they
        or a strategy started."""
        if self._local:
            daemons = self._daemons - {os.getpid()}
            end_processes(daemons, started_by(daemons, _CELL_VARIABLE))
            # otherwise Spark would hand the next task to a worker that is gone
            self._context.environment.pop(_CELL_VARIABLE, None)
        self._daemons = set()

    def collect_garbage(self) -> None:
        """Make the driver's JVM collect its garbage now."""
        jvm = self._context._jvm
        assert jvm is not None
        jvm.System.gc()

    def measured(
        self, group: str, call: Callable[[], T], own_jobs_only: bool = True
    ) -> tuple[T, Window]:
        """Call under a separate job group; returns the result and what Spark did for it.

        `own_jobs_only=False` includes every job that ran meanwhile: for callers whose jobs leave the group.
        """
        self._context.setJobGroup(group, group)
        with tree_use(jvm=self._jvm) as tree:
            begin_epoch_ns, begin_ns = time.time_ns(), time.perf_counter_ns()
            result = call()
            wall_ns = time.perf_counter_ns() - begin_ns
        self._context.setJobGroup("", "")
        self._context._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)
        # of this call alone: the session may have had a cell of this name before. Spark's times are whole
        # milliseconds
        ran = self._log.read().between(
            begin_epoch_ns // 1_000_000, (begin_epoch_ns + wall_ns) / 1e6 + 1
        )
        history = ran.of_group(group) if own_jobs_only else ran
        interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
        return result, Window(interval, wall_ns, history, tree.use if self._local else None)

    def empty_job_s(self, tasks: int, after_hop: int, hops: int) -> float:
        """The seconds of a job of the shape of a write that does nothing: identity in Python, and shuffles.

        `tasks` first tasks, and `after_hop` behind each of `hops` shuffles. It begins with the numbers of
        its first tasks, and what is left of them is collected.
        """
        began = time.perf_counter()
        numbers = self.spark.range(0, tasks, 1, tasks)
        moved = numbers.mapInArrow(_unchanged, numbers.schema)
        for _ in range(hops):
            moved = moved.repartition(after_hop, "id").mapInArrow(_unchanged, numbers.schema)
        moved.collect()
        return time.perf_counter() - began

    def batches_of(self, rows: int) -> AbstractContextManager[None]:
        """While open, Spark hands at most `rows` rows at a time to Python."""
        return batches_of(self.spark, rows)

    def source(self, files: Sequence[Path]) -> DataFrame:
        """The rows of Parquet files, one input partition per file, in the given order."""
        return scan_of_files(self.spark, files)


_JOB_DESCRIPTION = "spark.job.description"


def stage_labels(history: SparkHistory) -> dict[int, str]:
    """Names for a peer's stages: the purpose that it gives for the job, and Spark's name of the stage.

    "SparkUpsertCommitActionExecutor:Building workload profile:lab" with the stage "countByKey at
    HoodieJavaPairRDD.java:115" gives "building_workload_profile/countByKey".
    """
    names = {stage.stage_id: stage.name.split(" at ")[0] for stage in history.stages}
    labels: dict[int, str] = {}
    for job in sorted(history.jobs, key=lambda job: job.job_id):
        purpose = _purpose(job.properties.get(_JOB_DESCRIPTION, ""))
        for stage_id in job.stage_ids & names.keys():
            labels.setdefault(stage_id, f"{purpose}/{names[stage_id]}")
    return labels


def _purpose(description: str) -> str:
    parts = description.split(":")
    purpose = parts[1] if len(parts) > 1 else parts[0]
    return re.sub(r"\W+", "_", purpose.strip().lower()).strip("_") or "job"


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
