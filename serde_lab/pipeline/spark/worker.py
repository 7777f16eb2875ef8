"""Spark's Python workers: runs the stages inside them, times them, and checks their interpreter.

It makes a stage the function that `mapInArrow` or an RDD calls, and sets up the worker process. Workers
import it by reference, so that only the plan is pickled. Spark starts the interpreter that PYSPARK_PYTHON
names, or `python3`, whichever one runs the driver.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import zipimport
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from serde_lab.errors import LabError, SetupError
from serde_lab.measure.timeline import THREADS_LEFT, AttemptReport, TaskTimeline
from serde_lab.pipeline.exchange.routing import Hop, Task
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.source.files import SourceFiles
from serde_lab.pipeline.topologies import BOOTSTRAP, COLUMNS, Stage, topology_of
from serde_lab.records.buffers import with_all_offsets
from serde_lab.serde.interface import SerdeOptions

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


# pyspark.worker invalidates import caches at each task; zipimport then re-reads pyspark.zip and the
# spark-core jar in pure Python
zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]

# one thread per task, so that a phase's CPU is its own and tasks do not slow each other
pa.set_cpu_count(1)
pa.set_io_thread_count(1)

_RESULTS = pa.schema([pa.field("result", pa.binary(), nullable=False)])
_MARK = "<<serde_lab>>"
COLUMNS_STAGE = -1
"""Number of the stage behind a hop of Spark's own columns; it is in no topology."""
BOOTSTRAP_STAGE = -2
"""Number of the stage that sends index records, beside a topology's chain."""


@cache
def settle() -> None:
    """Exempt everything imported so far from garbage collection, once per worker.

    pyspark's daemon collects garbage after every task, before the worker takes the next one, and would look
    at every object of our imports each time.
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
    """One stage as a function from batches to batches; it reports its timeline at the end.

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
        # the task's own thread is the only one unless a strategy started others, before this task or in it
        others = len(sys._current_frames()) - 1
        if others:
            timeline.add(THREADS_LEFT, others)
        partition = _context().partitionId()
        if self.files is not None:
            # Spark does not reuse a worker that leaves input unread
            for _ in timeline.source(batches):
                pass
            batches = self.files.batches(partition, self.batch_rows, timeline)
        else:
            batches = map(with_all_offsets, batches)
        task = Task(self.plan, partition, timeline, hop, timed=self.files is not None)
        yield from self._output(stage, task, batches)
        self.reports.add([report_of(timeline)])

    def _place(self) -> tuple[Stage, Hop | None]:
        topology = topology_of(self.plan)
        if self.stage == COLUMNS_STAGE:
            return COLUMNS, None
        if self.stage == BOOTSTRAP_STAGE:
            assert topology.index_joins is not None
            return BOOTSTRAP, topology.hops[topology.index_joins]
        return topology.stages[self.stage], topology.hop_after(self.stage)

    def _output(
        self, stage: Stage, task: Task, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        if task.hop is not None:
            yield from stage.work(task, batches)
            return
        written = [pickle.dumps(stat) for stat in stage.work(task, batches)]
        yield from task.timeline.sink([results(written)])


def results(found: Sequence[bytes]) -> pa.RecordBatch:
    """What a task yields if no hop follows, as one column for `shuffle.RESULTS`."""
    return pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], schema=_RESULTS)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # always there inside a task
    return context


def report_of(timeline: TaskTimeline) -> AttemptReport:
    """The report of the task that runs here, with the ids of its attempt."""
    context = _context()
    return AttemptReport(
        stage_id=context.stageId(),
        partition=context.partitionId(),
        task_id=context.taskAttemptId(),
        attempt=context.attemptNumber(),
        report=timeline.report(),
    )


class FrameCounter:
    """The reduce side of a hop that only counts frames: one result per task."""

    def __init__(self, plan: WritePlan, reports: Reports) -> None:
        self.plan, self.reports = plan, reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timeline = TaskTimeline("reduce")
        frames = frame_bytes = 0
        for batch in timeline.source(batches):
            with timeline.phase("sniff"):
                frames += batch.num_rows
                frame_bytes += batch.column("frame").nbytes
        timeline.add("frames_sniffed", frames)
        counted = json.dumps({"frames": frames, "frame_bytes": frame_bytes}).encode()
        yield from timeline.sink([results([counted])])
        self.reports.add([report_of(timeline)])


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


def reason_in(text: str) -> str:
    """The most telling line of a Spark failure: the last of the innermost Python traceback, else that a
    worker died, else Java's innermost cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if not line.startswith(("at ", "File ", "Traceback", "Caused by"))
        and re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)
    ]
    java = [line.partition(": ")[2] for line in lines if line.startswith(("Caused by: ", ": "))]
    died = re.findall(r"Python worker (?:exited|failed).*", text)
    return (python[:1] or died[:1] or java[-1:] or lines[:1] or ["no reason was given"])[0][:500]


class WarmUp:
    """Starts and warms a worker: runs the stages on made-up `rows`, and returns the process ids."""

    def __init__(self, strategy: str, serde: SerdeOptions, rows: int) -> None:
        self.strategy, self.serde, self.rows = strategy, serde, rows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # with the driver's half of a write, which tasks do not need
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
        yield results([pids])


_checked: set[tuple[str, str]] = set()
_OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_PROBE = f"""
import importlib.util, sys
version = "%d.%d" % sys.version_info[:2]
missing = [name for name in ("pyarrow", "serde_lab") if importlib.util.find_spec(name) is None]
if version != "{_OWN_VERSION}":
    said = "which is Python " + version
else:
    said = "which has no " + " and no ".join(missing) if missing else ""
"""
_PATIENCE_S = 120


def check_workers(spark: SparkSession) -> None:
    """Raise SetupError if the session's workers run a Python that lacks what the pipeline needs.

    Workers with the driver's own interpreter pass without a check. Any other is probed once per session:
    directly on this machine, or by a one-task job on a cluster.
    """
    context = spark.sparkContext
    if _is_own(context.pythonExec):
        return
    session = (context.applicationId, context.pythonExec)
    if session in _checked:
        return
    problem = _problem_here(context) if _is_local(context) else _problem_there(context)
    if problem:
        raise SetupError(
            f"the workers of this Spark session run {context.pythonExec}, {problem}, and this program runs"
            f" {sys.executable} (Python {_OWN_VERSION})",
            hint="set PYSPARK_PYTHON to an interpreter with the same packages before the session starts,"
            f" on one machine PYSPARK_PYTHON={sys.executable}",
        )
    _checked.add(session)


def _is_own(executable: str) -> bool:
    """Whether `executable` is this interpreter; a link to it in another folder sees other packages."""
    found = shutil.which(executable)
    if found is None:
        return False
    here = Path(sys.executable)
    same_folder = Path(found).parent.resolve() == here.parent.resolve()
    return same_folder and Path(found).resolve() == here.resolve()


def _is_local(context: SparkContext) -> bool:
    return (context.master or "").startswith("local")


def _problem_here(context: SparkContext) -> str:
    """What is wrong with the workers' Python on this machine; "" if nothing is."""
    # as Spark starts its workers: found on the driver's path, in Spark's environment
    environment = {**os.environ, **context.environment}
    command = [context.pythonExec, "-c", f"{_PROBE}\nprint(said)"]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"which cannot be started ({getattr(exc, 'strerror', None) or 'no answer'})"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason was given"]
        return f"which cannot be started ({lines[-1]})"
    return done.stdout.strip()


def _problem_there(context: SparkContext) -> str:
    """The same for a cluster, probed by a job."""
    code = _PROBE

    def look(_: int) -> str:
        found: dict[str, Any] = {}
        exec(code, found)
        return str(found["said"])

    try:
        (said,) = context.parallelize([0], 1).map(look).collect()
    except Exception as exc:  # a failed start raises many kinds of errors
        return f"which cannot be started ({reason_in(str(exc))})"
    return str(said)


def numbers_in(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The task numbers in the first column of these batches."""
    for batch in batches:
        yield from batch.column(0).to_pylist()
