"""A driver of its own process on a cluster, whose reduce tasks meet a fault after they wrote.

The test sends it the writes and their tables. It answers with the commit, and with what Spark's event log
has of the attempts. Executors know nothing of the tests: what they run of this module travels by value.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.table.storage.storage import Storage
from tests.faults.small_table import DEAD, batches, upsert
from tests.spark_cluster import CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serde_lab.measure.event_log import EventLogReader

OPTIONS = {"hoodie.upsert.shuffle.parallelism": "4"}
"""More reduce tasks than slots: some begin after the fault, and must fetch what it took away."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A write that met a fault, by Spark's event log."""

    commit: Commit
    failed_attempts: int
    speculative_attempts: int
    stage_attempts: int
    """The most that any stage of the write needed."""
    executors_lost: int


class FaultyTask:
    """Writes like `task`; the first attempt that wrote leaves its mark and meets its fault."""

    def __init__(self, task: Any, folder: Path, fault: Callable[[Path], None]) -> None:
        self.task, self.folder, self.fault = task, folder, fault

    def __call__(self, arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        out = list(self.task(arrived))
        written = [pickle.loads(status).path for b in out for status in b.column(0).to_pylist()]
        stand = [path for path in written if self.task.plan.storage.exists(path)]
        name = f"wrote-{context.partitionId()}-{context.taskAttemptId()}"
        (self.folder / name).write_text("\n".join(stand))
        if stand:
            try:
                (self.folder / "fault").open("x").close()
            except FileExistsError:
                pass
            else:
                self.fault(self.folder)
        yield from out


class SlowTask:
    """The first attempt of one task waits for its twin: before it writes, so that both write at once,
    or after, so that the twin finds the file, and then for ever. Of two that write at once none is done
    before both have reported what they wrote, since Spark kills the one that comes second."""

    def __init__(self, task: Any, folder: Path, before: bool) -> None:
        self.task, self.folder, self.before = task, folder, before

    def __call__(self, arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        held = list(arrived)
        mine = self.folder / f"slow-{context.partitionId()}"
        told = mine.with_name(f"{mine.name}-told")
        first = bool(held) and not context.attemptNumber()
        if first:
            try:
                (self.folder / "slow").symlink_to(mine.name)
            except FileExistsError:
                first = False
        twin = not first and mine.exists() and context.attemptNumber() > 0
        if first:
            os.mkfifo(told)
            os.mkfifo(mine)
        if not self.before and first:
            self._write(held, "first")
        # a pipe opens once both ends do
        if first or twin:
            mine.open("r" if first else "w").close()
        if not self.before and first:
            mine.open().close()
        out = self._write(held, "first" if first else "twin" if twin else "other")
        if self.before and (first or twin):
            told.open("r" if first else "w").close()
        yield from out

    def _write(self, held: list[pa.RecordBatch], who: str) -> list[pa.RecordBatch]:
        out = list(self.task(held))
        written = [pickle.loads(status).path for b in out for status in b.column(0).to_pylist()]
        if who != "other":
            (self.folder / f"wrote-{who}").write_text("\n".join(written))
        return out


def kills_its_executor(folder: Path) -> None:
    """Its daemon's parent is the executor's JVM."""
    os.kill(_parent_of(os.getppid()), signal.SIGKILL)
    _wait_for_the_end(folder)


def kills_its_worker(folder: Path) -> None:
    os.kill(_parent_of(_parent_of(os.getppid())), signal.SIGKILL)
    _wait_for_the_end(folder)


def _parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def _wait_for_the_end(folder: Path) -> None:
    # nobody opens the other end: the task goes down with its executor
    os.mkfifo(folder / "end")
    (folder / "end").open().close()


FAULTS: dict[str, Callable[[Any, Path], Any]] = {
    "executor": lambda task, folder: FaultyTask(task, folder, kills_its_executor),
    "worker": lambda task, folder: FaultyTask(task, folder, kills_its_worker),
    "twin at once": lambda task, folder: SlowTask(task, folder, before=True),
    "twin after": lambda task, folder: SlowTask(task, folder, before=False),
}


def drive(line: Connection, master: str, folder: Path) -> None:
    """The driver's process: one write for each `(fault, table, table type, notes, executors)` that
    arrives, with so many executors that have nothing to do."""
    from pyspark import cloudpickle

    from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
    from serde_lab.measure.event_log import EventLogReader, event_log_file

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = SessionSettings(
        master=master,
        driver_memory="1g",
        event_log_folder=str(folder),
        conf=CONF
        | {
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.quantile": "0.3",
            "spark.cores.max": "2",
            # each executor has a part of every shuffle, wherever the rows of its tasks are
            "spark.locality.wait": "0",
        },
    )
    spark = start_session(settings)
    log = EventLogReader(event_log_file(folder, spark.sparkContext.applicationId))
    try:
        line.send("ready")
        while (asked := line.recv()) is not None:
            try:
                line.send(_write(spark, log, *asked))
            except Exception as error:
                line.send(error)
    finally:
        stop_session(spark)


def _write(
    spark: SparkSession,
    log: EventLogReader,
    fault: str,
    table: Path,
    table_type: str,
    notes: Path,
    executors: int,
) -> Outcome:
    from serde_lab.pipeline.spark.exchange import SparkExchange

    # what an earlier fault took away is back, and who was beaten by a twin has let go of the slot
    while _idle_executors(spark) < executors:
        time.sleep(0.05)

    class FaultyExchange(SparkExchange):
        def _collect(self, moved: Any, task: Any, reports: Any) -> Any:
            return super()._collect(moved, FAULTS[fault](task, notes), reports)

    begun, lost = _history(spark, log)
    rows = pa.Table.from_batches(batches(DEAD))
    frame = spark.createDataFrame(rows.to_pandas()).repartition(2)
    commit = upsert(Storage.open(table), DEAD, table_type, FaultyExchange(frame), OPTIONS)
    done, lost_then = _history(spark, log)
    known = {stage.stage_id for stage in begun.stages}
    stages = [stage for stage in done.stages if stage.stage_id not in known]
    attempts = [task for task in done.attempts if task.stage_id not in known]
    return Outcome(
        commit,
        failed_attempts=sum(not task.successful for task in attempts),
        speculative_attempts=sum(task.speculative for task in attempts),
        stage_attempts=max(stage.attempt for stage in stages) + 1,
        executors_lost=lost_then - lost,
    )


def _idle_executors(spark: SparkSession) -> int:
    # one of those that it tells of is the driver
    known = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(not executor.numRunningTasks() for executor in known) - 1


def _history(spark: SparkSession, log: EventLogReader) -> tuple[Any, int]:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[attr-defined]
    return log.read(), log.path.read_text().count('"SparkListenerExecutorRemoved"')
