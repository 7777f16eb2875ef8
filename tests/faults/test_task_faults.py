"""Tasks that fail on real Spark after they wrote: retried, killed, undead.

A lost shuffle is the cluster's test: in local mode Spark 3.5 takes its only block manager from the
driver then, whose heartbeats fail from that moment on, and the JVM ends itself ten minutes later.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.storage.storage import Storage
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    batches,
    check_file_groups,
    check_readers,
    make,
    residue,
    seen_after,
    upsert,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serde_lab.pipeline.spark.exchange import SparkExchange

pytestmark = pytest.mark.spark
_PATIENCE_S = 900

Fault = Callable[[Any, list[pa.RecordBatch]], None]
"""What becomes of a task that wrote its files and has not said so yet, with its input."""


class FaultyTask:
    """Writes like `task`, notes which files stood then, and meets its fault, once a partition."""

    def __init__(self, task: Any, notes: Path, fault: Fault) -> None:
        self.task, self.notes, self.fault = task, notes, fault

    def __call__(self, arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        held = list(arrived)
        out = list(self.task(held))
        found = [pickle.loads(status).path for b in out for status in b.column(0).to_pylist()]
        stand = [path for path in found if self.task.plan.storage.exists(path)]
        earlier = len(list(self.notes.glob(f"{context.partitionId()}-*")))
        (self.notes / f"{context.partitionId()}-{earlier}").write_text("\n".join(stand))
        if not earlier and found:
            self.fault(self.task, held)
        yield from out


def raises(task: Any, held: list[pa.RecordBatch]) -> None:
    raise RuntimeError("the task fails after it wrote")


def is_killed(task: Any, held: list[pa.RecordBatch]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_ZOMBIE = """
import pickle, sys
from serde_lab.errors import LabError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.routing import Task
from serde_lab.pipeline.stages import reduce_stage
task, go, done = sys.argv[1:]
plan, partition, held = pickle.load(open(task, "rb"))
open(go).readline()
try:
    outcome = f"{len(list(reduce_stage(Task(plan, partition, TaskTimeline('reduce')), held)))} files"
except LabError as error:
    outcome = type(error).__name__
open(done, "w").write(outcome + "\\n")
"""


class LeavesAZombie:
    """The attempt fails, and a separate process writes the same on request."""

    def __init__(self, folder: Path, script: str) -> None:
        self.folder, self.script = folder, script

    def __call__(self, task: Any, held: list[pa.RecordBatch]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        whole = self.folder / f"task-{context.partitionId()}"
        whole.write_bytes(pickle.dumps((task.plan, context.partitionId(), held)))
        # of tasks that come here at once, one
        with suppress(FileExistsError):
            (self.folder / "one").open("x").close()
            subprocess.Popen(
                [
                    *(sys.executable, "-c", self.script),
                    *(str(whole), str(self.folder / "go"), str(self.folder / "done")),
                ]
            )
        raise RuntimeError("the attempt is lost, and lives on")


def faulty_exchange(spark: SparkSession, notes: Path, fault: Fault) -> SparkExchange:
    from pyspark import cloudpickle

    from serde_lab.pipeline.spark.exchange import SparkExchange

    # workers know nothing of the tests
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    notes.mkdir()

    class FaultyExchange(SparkExchange):
        def _collect(self, moved: Any, task: Any, reports: Any) -> Any:
            return super()._collect(moved, FaultyTask(task, notes, fault), reports)

    rows = pa.Table.from_batches(batches(DEAD))
    return FaultyExchange(spark.createDataFrame(rows.to_pandas()).repartition(2))


def check_attempts(notes: Path, storage: Storage, instant: str) -> None:
    """Each task that wrote did so twice, and both times aimed at the files that stand."""
    written: set[str] = set()
    for first in notes.glob("*-0"):
        paths = first.read_text()
        if paths:
            later = list(notes.glob(first.name.removesuffix("0") + "[1-9]"))
            assert later, f"task {first.name} was not tried again"
            assert {note.read_text() for note in later} == {paths}
            written |= set(paths.splitlines())
    assert written
    assert written == set(residue(storage, instant).data_files)


@pytest.mark.parametrize(
    ("fault", "table_type"),
    [(raises, COW), (raises, MOR), (is_killed, COW)],
    ids=["raises", "raises-merge-on-read", "is-killed"],
)
def test_a_task_that_fails_after_writing_is_retried(
    fault: Fault, table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    storage = make(tmp_path / "table", table_type)
    exchange = faulty_exchange(spark, tmp_path / "notes", fault)
    commit = upsert(storage, DEAD, table_type, exchange)
    check_attempts(tmp_path / "notes", storage, commit.instant)
    assert len(residue(storage, commit.instant).data_files) == len(commit.stats) == 3
    check_file_groups(storage)
    check_readers(storage, seen_after(KEPT, DEAD))


def test_a_zombie_attempt_writes_after_completion(spark: SparkSession, tmp_path: Path) -> None:
    storage = make(tmp_path / "table")
    lair = tmp_path / "zombie"
    lair.mkdir()
    for name in ("go", "done"):
        os.mkfifo(lair / name)
    # open for both directions, which waits for nobody
    go, done = os.open(lair / "go", os.O_RDWR), os.open(lair / "done", os.O_RDWR)
    try:
        exchange = faulty_exchange(spark, tmp_path / "notes", LeavesAZombie(lair, _ZOMBIE))
        commit = upsert(storage, DEAD, COW, exchange)
        before = list_table_files(storage)
        os.write(go, b"go\n")
        assert select.select([done], [], [], _PATIENCE_S)[0], "the zombie never came"
        assert os.read(done, 100) in (b"1 files\n", b"2 files\n")
    finally:
        os.close(go)
        os.close(done)
    assert list_table_files(storage) == before  # sizes too
    assert len(residue(storage, commit.instant).data_files) == 3
    check_readers(storage, seen_after(KEPT, DEAD))
