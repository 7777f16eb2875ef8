"""Attempts that come twice or too late where file groups are assigned: the same ids, the same files, and
none of the files that an instant wrote on its way and took away again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import WriteStat
from tests.faults.killed_driver import StepStorage
from tests.faults.other_writes import (
    AFTER,
    BEFORE,
    OPERATION,
    ROWS,
    STATE,
    STEP3,
    OtherWork,
    index_of,
    make_for,
    other_write,
)
from tests.faults.small_table import (
    COW,
    MOR,
    SCHEMA,
    batches,
    check_file_groups,
    check_readers,
    prepare,
    residue,
    seen_after,
    upsert,
)
from tests.faults.test_late_attempts import Attempts, data_files, fail
from tests.faults.test_misbehaving_storage import no_space
from tests.pipeline.lab_table import commit_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

WORKS: Sequence[tuple[OtherWork, str]] = [
    ("overwrite by state", COW),
    ("overwrite", MOR),
    ("move", COW),
    ("move", MOR),
    ("mini-batches", COW),
    ("mini-batches", MOR),
]
EACH = pytest.mark.parametrize(("work", "table_type"), WORKS)
NEXT = [("p", "c", 50, "next")]


@EACH
def test_several_attempts_of_assigners_agree(
    work: OtherWork, table_type: str, tmp_path: Path
) -> None:
    storage = make_for(work, tmp_path, table_type)
    other_write(work, storage, table_type, Attempts(ROWS[work], attempts=3))
    check_file_groups(storage)
    check_readers(storage, AFTER[work])


@EACH
def test_a_zombie_of_assigners_after_completion_changes_nothing(
    work: OtherWork, table_type: str, tmp_path: Path
) -> None:
    storage = make_for(work, tmp_path, table_type)
    attempts = Attempts(ROWS[work])
    other_write(work, storage, table_type, attempts)
    before = data_files(storage)
    # whose files gave way to others, learns that it comes too late
    with contextlib.suppress(ConcurrentWrite):
        attempts.again()
    assert data_files(storage) == before
    upsert(storage, NEXT, table_type, options=index_of(work))
    check_file_groups(storage)
    check_readers(storage, seen_after(AFTER[work], NEXT))


@EACH
def test_a_zombie_of_assigners_after_a_rollback_is_refused(
    work: OtherWork, table_type: str, tmp_path: Path
) -> None:
    storage = make_for(work, tmp_path, table_type)
    attempts = Attempts(ROWS[work], fail)
    with pytest.raises(StorageError, match="full"):
        other_write(work, storage, table_type, attempts)
    before = data_files(storage)
    with pytest.raises(ConcurrentWrite, match="not inflight any more"):
        attempts.again()
    assert data_files(storage) == before
    check_readers(storage, BEFORE)


class _DiesAtADelete(StepStorage):
    def begins(self, step: str, path: str, data: Any) -> None:
        if step == "-base file":
            raise StorageError("the zombie dies")


def test_an_attempt_of_mini_batches_that_dies_between_them_is_never_seen(tmp_path: Path) -> None:
    """The file of a first mini-batch gave way to the second one's, and came back."""
    storage = make_for("mini-batches", tmp_path, COW)

    def speculate() -> None:
        with pytest.raises(StorageError, match="dies"):
            attempts.again(_DiesAtADelete.open(tmp_path))

    attempts = Attempts(ROWS["mini-batches"], speculate)
    other_write("mini-batches", storage, COW, attempts)
    check_readers(storage, AFTER["mini-batches"])
    check_file_groups(storage)
    upsert(storage, NEXT, COW, options=STEP3)
    check_readers(storage, seen_after(AFTER["mini-batches"], NEXT))


class _DiesAtAFile(StepStorage):
    """With the executor, so that what the task received is made again."""

    def begins(self, step: str, path: str, data: Any) -> None:
        if step in ("+base file", "+log file") and step in self.steps:
            raise StorageError("the executor dies")


class _InOtherOrder(InProcessExchange):
    """The first attempt writes one file, and the second has the rows in another order, as a source with a
    shuffle gives them."""

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        dying = replace(plan, storage=_DiesAtAFile.open(plan.storage.url))
        with pytest.raises(StorageError, match="dies"):
            super().run(dying)
        (rows,) = (pa.Table.from_batches(one) for one in self.partitions)
        backwards = rows.take(pa.array(range(len(rows))[::-1]))
        return InProcessExchange([backwards.to_batches()]).run(plan)


_TWO_ROWS_A_FILE = {
    "hoodie.copyonwrite.insert.auto.split": "false",
    "hoodie.copyonwrite.insert.split.size": "2",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.insert.shuffle.parallelism": "1",
}


@pytest.mark.parametrize("operation", ["upsert", "insert", "insert_overwrite"])
@pytest.mark.parametrize("topology", ["state", "bloom", "step1", "legacy"])
def test_attempts_with_rows_in_another_order_lose_and_double_none(
    topology: str, operation: str, tmp_path: Path
) -> None:
    index = {"state": "FLINK_STATE", "bloom": "BLOOM"}.get(topology, "SIMPLE")
    options = {**STATE, "serde_lab.topology": topology, "hoodie.index.type": index}
    options |= {**_TWO_ROWS_A_FILE, OPERATION: operation}
    rows = [("p", k, 9, "dead") for k in "abcdefg"]
    storage = Storage.open(tmp_path)
    upsert(storage, rows, COW, _InOtherOrder([batches(rows)]), options)
    check_readers(storage, seen_after({}, rows))
    check_file_groups(storage)


def test_attempts_of_mini_batches_with_rows_in_another_order_are_refused(tmp_path: Path) -> None:
    """The file of the first mini-batch has the rows that came first."""
    storage = make_for("mini-batches", tmp_path, COW)
    exchange = _InOtherOrder([batches(ROWS["mini-batches"])])
    with pytest.raises(StorageError, match="had their rows in different orders"):
        other_write("mini-batches", storage, COW, exchange)
    check_readers(storage, BEFORE)


class _ActsBeforeCompletion(StepStorage):
    act: Callable[[], None]

    def begins(self, step: str, path: str, data: Any) -> None:
        if step == "+commit":
            self.act()


@pytest.mark.parametrize("when", ["before the second batch", "before completion", "after it"])
def test_a_zombie_of_the_first_batch_of_an_instant_is_never_seen(when: str, tmp_path: Path) -> None:
    """Its base file gave way to that of the second batch, and would come back."""
    storage = make_for("move", tmp_path, COW)
    first = Attempts([("p", "a", 20, "first batch"), ("p", "b", 20, "first batch")])

    def zombie() -> None:
        with contextlib.suppress(ConcurrentWrite):
            first.again(storage)

    class Second(Attempts):
        def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
            if when == "before the second batch":
                zombie()
            return super().run(plan)

    second = Second([("p", "a", 21, "second batch"), ("p", "c", 21, "second batch")])
    between = _ActsBeforeCompletion.open(tmp_path)
    between.act = zombie if when == "before completion" else lambda: None
    commit_batches(prepare(between, COW, STATE), [first, second])
    if when == "after it":
        zombie()
    expected = seen_after(seen_after(BEFORE, first.rows), second.rows)
    check_readers(storage, expected)
    check_file_groups(storage)
    upsert(storage, NEXT, COW, options=STATE)
    check_readers(storage, seen_after(expected, NEXT))


class _RefusesCompletion(StepStorage):
    """So many times."""

    times: int
    refused = 0

    def begins(self, step: str, path: str, data: Any) -> None:
        completes = step in ("+commit", "+deltacommit", "+replacecommit")
        if completes and self.refused < self.times:
            self.refused += 1
            raise no_space()


@pytest.mark.parametrize("times", [2, 3])
@EACH
def test_a_commit_that_is_refused_is_tried_again_and_then_rolled_back(
    work: OtherWork, table_type: str, times: int, tmp_path: Path
) -> None:
    storage = make_for(work, tmp_path, table_type)
    stubborn = _RefusesCompletion.open(tmp_path)
    stubborn.times = times
    if times == 2:
        other_write(work, stubborn, table_type)
        now = AFTER[work]
    else:
        with pytest.raises(StorageError, match="No space left on device"):
            other_write(work, stubborn, table_type)
        now = BEFORE
        dead = max(i.time for i in HoodieTable.open(storage).timeline().completed())
        assert residue(storage, dead).pending == ()
    assert stubborn.refused == times
    check_readers(storage, now)
    upsert(storage, NEXT, table_type, options=index_of(work))
    check_readers(storage, seen_after(now, NEXT))
    check_file_groups(storage)


class FailsOnce:
    """A task that does all its work, notes what came of it, and fails, the first time."""

    def __init__(self, task: Any, notes: Path) -> None:
        self.task, self.notes = task, notes

    def __call__(self, arrived: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        out = list(self.task(arrived))
        what = sha256()
        for line in sorted(str(batch.to_pylist()) for batch in out):
            what.update(line.encode())
        place = f"{self.task.stage}-{context.partitionId()}"
        earlier = len(list(self.notes.glob(f"{place}-*")))
        rows = sum(batch.num_rows for batch in out)
        (self.notes / f"{place}-{earlier}").write_text(f"{rows} {what.hexdigest()}")
        if not earlier:
            raise RuntimeError("the task fails after it did its work")
        yield from out


@pytest.mark.spark
@pytest.mark.parametrize(
    ("table_type", "options"),
    [(MOR, STATE), (COW, STEP3)],
    ids=["state, mor", "step3, cow"],
)
def test_every_task_of_every_stage_fails_once(
    table_type: str,
    options: dict[str, str | None],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Index bootstrap, map, assigners and writers: what the second attempt does is what the first did."""
    from pyspark import cloudpickle

    from serde_lab.pipeline.spark import exchange as spark_exchange

    # workers know nothing of the tests
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    storage = make_for("move", tmp_path / "table", table_type)
    given = {**options, "hoodie.upsert.shuffle.parallelism": "2"}
    rows = [("pq"[n % 2], f"k{n}", 9, "dead") for n in range(40)]
    rows += [("q", "a", 9, "dead"), ("p", "b", 9, "dead"), ("q", "c", 0, "late")]
    notes = tmp_path / "notes"
    notes.mkdir()
    task_of = spark_exchange.SparkTask
    monkeypatch.setattr(spark_exchange, "SparkTask", lambda *a: FailsOnce(task_of(*a), notes))
    frame = spark.createDataFrame(pa.Table.from_batches(batches(rows)).to_pandas())
    source = frame.repartition(2).select(*SCHEMA.names)
    upsert(storage, rows, table_type, spark_exchange.SparkExchange(source), given)
    monkeypatch.undo()

    stages = set()
    for first in notes.glob("*-0"):
        said = first.read_text()
        later = list(notes.glob(first.name.removesuffix("0") + "[1-9]"))
        assert {note.read_text() for note in later} == {said}, first.name
        if not said.startswith("0 "):
            stages.add(first.name.split("-")[0] or "bootstrap")
    assert len(stages) == 4
    expected = {place: value for place, value in BEFORE.items() if place != ("p", "a")}
    expected = seen_after(expected, [row for row in rows if row[3] == "dead"])
    check_file_groups(storage)
    check_readers(storage, expected)
