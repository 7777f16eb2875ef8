"""Runs the stages inside Spark's Python workers, times them and reports.

It adapts the stages to `mapInArrow` and sets up the worker process. Workers import it by reference, so
that only the plan is pickled.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import pickle
import zipimport
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from serde_lab.errors import LabError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.hops import Hop
from serde_lab.pipeline.exchange.routing import salts
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.source.files import SourceFiles
from serde_lab.pipeline.topologies import BOOTSTRAP, COLUMNS, Stage, StageTask, topology_of
from serde_lab.serde.interface import SerdeOptions

# pyspark.worker invalidates import caches at each task; zipimport then re-reads pyspark.zip and the
# spark-core jar in pure Python: 90 ms of CPU a task on Spark 3.5
zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]

# one thread per task, so that a phase's CPU is its own and tasks do not slow each other
pa.set_cpu_count(1)
pa.set_io_thread_count(1)

STATUS_FIELD = pa.field("status", pa.binary(), nullable=False)
STATUS = pa.schema([STATUS_FIELD])
_MARK = "<<serde_lab>>"
SALTED = "salt int, position long, frame binary"
COLUMNS_STAGE = -1
"""Number of the stage behind a hop of Spark's own columns; it is in no topology."""
BOOTSTRAP_STAGE = -2
"""Number of the stage that sends index records, beside a topology's chain."""


@cache
def settle() -> None:
    """Exempt everything imported so far from garbage collection, once per worker.

    pyspark's daemon collects garbage after every task, before the worker takes the next one: 36 ms of CPU
    a task over the 81,000 objects of our imports, 0.01 ms once they are frozen.
    """
    gc.freeze()


class ReportsParam(AccumulatorParam[list[Any]]):
    """An accumulator of a list that tasks append to."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - Spark's
        value1.extend(value2)
        return value1


Reports = Accumulator[list[Any]]


class SparkTask:
    """One stage as the function that `mapInArrow` calls; it reports its timeline at the end.

    `stage` is its number in the plan's topology, or COLUMNS_STAGE or BOOTSTRAP_STAGE. With `files`, the
    task reads its own files, `batch_rows` at a time, and ignores the rows that Spark sends.
    """

    def __init__(
        self,
        plan: WritePlan,
        stage: int,
        reports: Reports,
        files: SourceFiles | None = None,
        batch_rows: int = 10_000,
    ) -> None:
        self.plan, self.stage, self.reports = plan, stage, reports
        self.files, self.batch_rows = files, batch_rows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._run(batches)
        except LabError as exc:
            raise RuntimeError(carried(exc)) from exc

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage, hop = self._place()
        timeline = TaskTimeline(stage.label)
        with timeline.phase("bind"):
            settle()
        context = TaskContext.get()
        assert context is not None  # always there inside a task
        partition = context.partitionId()
        if self.files is not None:
            # Spark does not reuse a worker that leaves input unread
            for _ in timeline.source(batches):
                pass
            batches = self.files.batches(partition, self.batch_rows, timeline)
        task = StageTask(self.plan, partition, timeline, hop, timed=self.files is not None)
        if hop is None:
            statuses = [pickle.dumps(s) for s in stage.work(task, batches)]
            out = pa.RecordBatch.from_arrays([pa.array(statuses, pa.binary())], schema=STATUS)
            yield from timeline.sink([out])
        else:
            yield from self._salted(stage, task, hop, batches)
        self.reports.add([_keyed(context, timeline)])

    def _place(self) -> tuple[Stage, Hop | None]:
        """The stage, and the hop that follows it."""
        topology = topology_of(self.plan)
        if self.stage == COLUMNS_STAGE:
            return COLUMNS, None
        if self.stage == BOOTSTRAP_STAGE:
            assert topology.index_joins is not None
            return BOOTSTRAP, topology.hops[topology.index_joins]
        return topology.stages[self.stage], topology.hop_after(self.stage)

    def _salted(
        self, stage: Stage, task: StageTask, hop: Hop, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        salt_of = pa.array(salts(hop.tasks(self.plan)))
        for routed in stage.work(task, batches):
            salt = salt_of.take(routed.column("target"))
            yield pa.RecordBatch.from_arrays(
                [salt, routed.column("position"), routed.column("frame")],
                names=["salt", "position", "frame"],
            )


def _keyed(context: TaskContext, timeline: TaskTimeline) -> str:
    """A report with the ids of its task attempt, as JSON."""
    return json.dumps(
        {
            "stage_id": context.stageId(),
            "partition": context.partitionId(),
            "task_attempt_id": context.taskAttemptId(),
            "attempt": context.attemptNumber(),
            "report": timeline.report().to_json(),
        }
    )


class FrameCounter:
    """The reduce side of a hop that only counts frames: one status per task."""

    def __init__(self, plan: WritePlan, reports: Reports) -> None:
        self.plan, self.reports = plan, reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timeline = TaskTimeline("reduce")
        context = TaskContext.get()
        assert context is not None  # always there inside a task
        frames = frame_bytes = 0
        for batch in timeline.source(batches):
            with timeline.phase("sniff"):
                frames += batch.num_rows
                frame_bytes += batch.column("frame").nbytes
        timeline.add("frames_sniffed", frames)
        status = json.dumps({"frames": frames, "frame_bytes": frame_bytes}).encode()
        out = pa.RecordBatch.from_arrays([pa.array([status], pa.binary())], schema=STATUS)
        yield from timeline.sink([out])
        self.reports.add([_keyed(context, timeline)])


def carried(error: LabError) -> str:
    """An error raised on purpose, as text that survives Spark's stack of exceptions."""
    return f"{_MARK}{base64.b64encode(pickle.dumps(error)).decode()}{_MARK}"


def carried_error(text: str) -> LabError | None:
    """The error that `carried` put into `text`; None if there is none."""
    parts = text.split(_MARK)
    if len(parts) < 3:
        return None
    error = pickle.loads(base64.b64decode(parts[1]))
    return error if isinstance(error, LabError) else None


class WarmUp:
    """Starts and warms a worker: runs the stages on made-up `rows`, and returns the process ids."""

    def __init__(self, strategy: str, serde: SerdeOptions, rows: int) -> None:
        self.strategy, self.serde, self.rows = strategy, serde, rows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        from serde_lab.pipeline.warm_up import exercise

        if self.strategy and self.rows:
            # Spark removes this folder even if the worker is killed; and an error of the strategy should
            # show up in the cell, not before it
            with suppress(Exception):
                exercise(self.strategy, self.serde, self.rows, SparkFiles.getRootDirectory())
        settle()
        for _ in batches:
            pass
        # long enough that every slot starts a worker of its own before the first one is idle again
        time.sleep(0.2)
        pids = json.dumps({"pid": os.getpid(), "daemon": os.getppid()}).encode()
        yield pa.RecordBatch.from_arrays([pa.array([pids], pa.binary())], schema=STATUS)
