"""SIGKILL of the driver after every step of a stream's batch, and what Spark's next attempt makes of it."""

from __future__ import annotations

import shutil
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from serde_lab.errors import TableError
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.faults.killed_driver import CONTEXT, DeadlyStorage, KillPoint, StepStorage
from tests.faults.small_table import (
    COW,
    DEAD,
    FIRST,
    MOR,
    SECOND,
    check_after_archiving,
    check_file_groups,
    check_readers,
    residue,
    seen_after,
)
from tests.faults.test_killed_driver import COURSES, Course, case_name
from tests.streams.small_stream import NO_SERVICES, SmallStream

pytestmark = pytest.mark.slow

BATCHES = COURSES[:2]
CASES = [(course, point) for course in BATCHES for point in course.points]
KEPT = seen_after(seen_after({}, FIRST), SECOND)


def stream_in(storage: Storage, table_type: str) -> SmallStream:
    return SmallStream(storage, table_type=table_type, options=dict(NO_SERVICES))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table with two batches, by table type."""
    made = {}
    for table_type in (COW, MOR):
        made[table_type] = tmp_path_factory.mktemp("stream")
        stream = stream_in(Storage.open(made[table_type]), table_type)
        stream.send(0, FIRST)
        stream.send(1, SECOND)
    return made


def _send_and_die(mark: Connection, folder: Path, table_type: str, point: KillPoint) -> None:
    storage = DeadlyStorage.open(folder)
    storage.point, storage.mark = point, mark
    stream_in(storage, table_type).send(2, DEAD)
    mark.send("survived")


def kill_batch(folder: Path, table_type: str, point: KillPoint) -> str:
    """Send the batch in a child that dies at `point`; the step that it reported before it died."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(target=_send_and_die, args=(theirs, folder, table_type, point))
    child.start()
    theirs.close()
    mark = str(ours.recv())
    child.join()
    assert child.exitcode == -signal.SIGKILL, (mark, child.exitcode)
    return mark


@pytest.mark.parametrize("course", BATCHES, ids=case_name)
def test_a_batch_that_lives_makes_these_steps(
    course: Course, tables: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type], tmp_path, dirs_exist_ok=True)
    storage = StepStorage.open(tmp_path)
    stream_in(storage, course.table_type).send(2, DEAD)
    assert tuple(storage.steps) == course.steps


@pytest.mark.parametrize(("course", "point"), CASES, ids=case_name)
def test_a_killed_batch_is_stored_once(
    course: Course, point: KillPoint, tables: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type], tmp_path, dirs_exist_ok=True)
    storage = Storage.open(tmp_path)
    assert kill_batch(tmp_path, course.table_type, point) == course.steps[point.number]
    done = point.number >= course.completed_at and not point.halfway
    check_readers(storage, seen_after(KEPT, DEAD) if done else KEPT)
    begun = HoodieTable.open(storage).timeline().instants()[-1].time

    # Spark does not know of it, and sends it again
    stream = stream_in(storage, course.table_type)
    assert (stream.send(2, DEAD) is None) is done
    now = seen_after(KEPT, DEAD)
    check_readers(storage, now)
    rows = [("p", "a", 50, "next")]
    assert stream.send(3, rows) is not None
    now = seen_after(now, rows)
    check_readers(storage, now)
    check_file_groups(storage)
    if not done:
        left = residue(storage, begun)
        assert (left.pending, left.data_files, left.markers) == ((), (), ())
    check_after_archiving(storage, course.table_type, now, begun)


@pytest.mark.parametrize("course", BATCHES, ids=case_name)
def test_a_batch_that_spark_notes_without_a_commit_is_missed(
    course: Course, tables: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type], tmp_path, dirs_exist_ok=True)
    kill_batch(tmp_path, course.table_type, KillPoint(course.completed_at - 1))
    stream = stream_in(Storage.open(tmp_path), course.table_type)
    with pytest.raises(TableError, match="the last one in the table is batch 1, so batch 2 is"):
        stream.send(3, [("p", "a", 50, "next")])
    check_readers(stream.storage, KEPT)
