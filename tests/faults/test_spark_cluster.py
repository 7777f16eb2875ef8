"""A real cluster, a master and two workers: an executor or a worker is lost after a task wrote, its
shuffle with it, and a slow task gets a twin. Each file group has one file, and the rows are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from serde_lab.table.storage.storage import Storage
from serde_lab.table.validation.diagnosis import validate_table
from tests.faults.cluster_driver import Outcome, drive
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    check_file_groups,
    check_readers,
    make,
    residue,
    seen_after,
    upsert,
)
from tests.spark_cluster import SparkCluster, spark_cluster

pytestmark = pytest.mark.spark
_PATIENCE_S = 900
"""No write takes so long but one that waits for what will never come."""

Write = Callable[[str, Path, str], Outcome]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def write(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Write]:
    """Has the cluster's driver write DEAD to a table, under a fault."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    logs = tmp_path_factory.mktemp("event-log")
    driver = context.Process(target=drive, args=(theirs, cluster.url, logs))
    driver.start()
    theirs.close()
    assert ours.recv() == "ready"

    def write(fault: str, table: Path, table_type: str) -> Outcome:
        notes = table.with_name("notes")
        notes.mkdir()
        executors = sum(worker.process.poll() is None for worker in cluster.workers)
        ours.send((fault, table, table_type, notes, executors))
        assert ours.poll(_PATIENCE_S), f"no end, after {sorted(n.name for n in notes.iterdir())}"
        outcome = ours.recv()
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Outcome)
        return outcome

    try:
        yield write
    finally:
        ours.send(None)
        driver.join(_PATIENCE_S)
        if driver.exitcode is None:
            driver.kill()


def check_table(storage: Storage, outcome: Outcome, table_type: str) -> None:
    """One file a file group and instant, the right rows, nothing that the doctor finds, and a table
    that can be gone on with."""
    assert len(residue(storage, outcome.commit.instant).data_files) == 3
    assert len(outcome.commit.stats) == 3
    check_file_groups(storage)
    now = seen_after(KEPT, DEAD)
    check_readers(storage, now)
    assert validate_table(storage, deep=True).findings == ()
    rows = [("p", "a", 50, "next")]
    upsert(storage, rows, table_type)
    check_readers(storage, seen_after(now, rows))


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("fault", ["twin at once", "twin after"])
def test_a_slow_task_gets_a_speculative_twin(
    fault: str, table_type: str, write: Write, tmp_path: Path
) -> None:
    storage = make(tmp_path / "table", table_type)
    outcome = write(fault, tmp_path / "table", table_type)
    assert outcome.speculative_attempts >= 1
    first = (tmp_path / "notes/wrote-first").read_text()
    assert first
    assert (tmp_path / "notes/wrote-twin").read_text() == first
    check_table(storage, outcome, table_type)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_an_executor_is_killed_and_stages_are_retried(
    table_type: str, write: Write, tmp_path: Path
) -> None:
    storage = make(tmp_path / "table", table_type)
    outcome = write("executor", tmp_path / "table", table_type)
    check_lost(tmp_path / "notes", outcome)
    check_table(storage, outcome, table_type)


def test_a_worker_is_killed(write: Write, cluster: SparkCluster, tmp_path: Path) -> None:
    storage = make(tmp_path / "table")
    outcome = write("worker", tmp_path / "table", COW)
    check_lost(tmp_path / "notes", outcome)
    assert sorted(w.process.poll() is None for w in cluster.workers) == [False, True]
    check_table(storage, outcome, COW)


def check_lost(notes: Path, outcome: Outcome) -> None:
    """The fault was reached; the task that wrote wrote again, once the shuffle was made again."""
    assert (notes / "fault").exists()
    assert (notes / "end").exists()
    assert outcome.executors_lost == 1
    assert outcome.failed_attempts >= 1
    assert outcome.stage_attempts >= 2
    wrote: dict[str, set[str]] = {}
    again = 0
    for note in notes.glob("wrote-*"):
        if note.read_text():
            partition = note.name.split("-")[1]
            again += partition in wrote
            wrote.setdefault(partition, set()).add(note.read_text())
    assert again, "no task that wrote was tried again"
    assert all(len(paths) == 1 for paths in wrote.values()), "attempts aimed at different files"
