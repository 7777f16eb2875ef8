"""A Spark session that can be measured: job groups, event log, Python workers of their own.

Owns the mechanics of one measured window in Spark. Must not know arms, scenarios or tables.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow.parquet as pq

from serde_lab.measure.event_log import EventLogReader, event_log_file
from serde_lab.measure.slots import Interval
from serde_lab.measure.spark_tasks import SparkHistory
from serde_lab.pipeline.spark.exchange import warm_workers
from serde_lab.pipeline.warm_up import DEFAULT_FRAMING
from serde_lab.serde.interface import SerdeOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_CELL_VARIABLE = "SERDE_LAB_CELL"
_DRAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured around one call: its interval, its wall time, and its Spark jobs."""

    interval: Interval
    wall_ns: int
    history: SparkHistory


class Bench:
    """One Spark session with its event log, on `slots` task slots."""

    def __init__(self, spark: SparkSession, event_logs: Path, slots: int) -> None:
        self.spark, self.slots = spark, slots
        self._context = spark.sparkContext
        self._log = EventLogReader(event_log_file(event_logs, self._context.applicationId))
        self._daemons: set[int] = set()

    def fresh_workers(
        self,
        cell: str,
        strategy: str = "",
        serde: SerdeOptions = DEFAULT_FRAMING,
        rows: int = 2_000,
    ) -> float:
        """Python workers that no earlier cell used, started and warmed; seconds that this took.

        `strategy` and `serde`: what they will work with. `rows`: about how many a task of theirs will
        have.

        Spark keeps workers by their environment: a variable of the cell's own makes it start others.
        """
        self.end_workers()
        self._context.environment[_CELL_VARIABLE] = cell
        began = time.perf_counter()
        workers = warm_workers(self.spark, self.slots, strategy, serde, rows)
        elapsed = time.perf_counter() - began
        if (self._context.master or "").startswith("local"):
            self._daemons = {worker["daemon"] for worker in workers}
        return elapsed

    def end_workers(self) -> None:
        """End the last cell's worker daemons, which Spark would keep for the life of the session."""
        for pid in self._daemons - {os.getpid()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        self._daemons = set()

    def collect_garbage(self) -> None:
        """Have the driver's JVM collect its garbage now."""
        jvm = self._context._jvm
        assert jvm is not None
        jvm.System.gc()

    def measured(
        self, group: str, call: Callable[[], T], own_jobs_only: bool = True
    ) -> tuple[T, Window]:
        """Call under a job group of its own; everything that Spark did for it.

        `own_jobs_only=False` takes all that Spark did meanwhile: for callers whose jobs leave the group.
        """
        self._context.setJobGroup(group, group)
        begin_epoch_ns, begin_ns = time.time_ns(), time.perf_counter_ns()
        result = call()
        wall_ns = time.perf_counter_ns() - begin_ns
        self._context.setJobGroup("", "")
        self._context._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)
        ran = self._log.read()
        history = (
            ran.of_group(group)
            if own_jobs_only
            # Spark's times are whole milliseconds
            else ran.between(begin_epoch_ns // 1_000_000, (begin_epoch_ns + wall_ns) / 1e6 + 1)
        )
        interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
        return result, Window(interval, wall_ns, history)

    def source(self, files: Sequence[Path]) -> DataFrame:
        """The rows of parquet files, one input partition a file, in the order given.

        Spark sorts the files of one scan by size; a union keeps their order, on which ties of the
        ordering value depend.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(pq.read_schema(files[0]).remove_metadata())
        read = self.spark.read.schema(schema)
        return reduce(lambda left, right: left.union(right), [read.parquet(str(f)) for f in files])
