"""SIGKILL of the driver after every step of two batches that share an instant, and of their commit."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from serde_lab.errors import StorageError
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import MANIFESTS, newest_checkpoint
from tests.faults.killed_driver import CONTEXT, DeadlyStorage, KillPoint, StepStorage
from tests.faults.scripted_storage import Mode, ScriptedStorage
from tests.faults.small_table import (
    COW,
    FIRST,
    MOR,
    SECOND,
    Row,
    Seen,
    check_file_groups,
    check_readers,
    residue,
    seen_after,
    seen_by_us,
)
from tests.faults.test_killed_driver import BASE, LOG, NEW, case_name
from tests.streams.small_stream import NO_SERVICES, SmallStream

pytestmark = pytest.mark.slow

KEPT = seen_after(seen_after({}, FIRST), SECOND)
THIRD: list[Row] = [("p", "a", 9, "third"), ("q", "e", 9, "third")]
FOURTH: list[Row] = [("p", "a", 10, "fourth"), ("q", "e", 10, "fourth")]
PARTS = {2: THIRD, 3: FOURTH}


@dataclass(frozen=True, slots=True)
class Course:
    """The steps of the batches 2 and 3, and of their commit."""

    name: str
    table_type: str
    steps: tuple[str, ...]

    def stored_at(self, batch: int) -> int:
        """The step of the batch's manifest."""
        return [n for n, step in enumerate(self.steps) if step == "+manifest"][batch - 2]

    @property
    def completed_at(self) -> int:
        return next(n for n, step in enumerate(self.steps) if step in ("+commit", "+deltacommit"))

    @property
    def points(self) -> list[KillPoint]:
        """After each step, and halfway through each file that makes something count."""
        looked_for = {"+manifest", "+commit", "+deltacommit"}
        halfway = [n for n, step in enumerate(self.steps) if step in looked_for]
        after = [KillPoint(number) for number in range(len(self.steps))]
        return after + [KillPoint(number, halfway=True) for number in halfway]


REPLACED = ("-base file", "-marker")
COURSES = (
    Course(
        "commit",
        COW,
        (
            *("+commit.requested", "+inflight", *BASE, *NEW, "+manifest"),
            *(*BASE, *BASE, "+manifest", *REPLACED, *REPLACED, "-manifest"),
            *("+commit", "-marker", "-marker", "-manifest"),
        ),
    ),
    Course(
        "deltacommit",
        MOR,
        (
            *("+deltacommit.requested", "+deltacommit.inflight", *LOG, *NEW, "+manifest"),
            *(*LOG, *LOG, "+manifest", "-manifest"),
            *("+deltacommit", "-marker", "-marker", "-marker", "-marker", "-manifest"),
        ),
    ),
)
CASES = [(course, point) for course in COURSES for point in course.points]


def stream_in(storage: Storage, table_type: str) -> SmallStream:
    options = {**NO_SERVICES, "serde_lab.stream.batches_per_commit": "2"}
    stream = SmallStream(storage, table_type=table_type, options=options)
    stream.start()
    return stream


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table with two batches in one commit, by table type."""
    made = {}
    for table_type in (COW, MOR):
        made[table_type] = tmp_path_factory.mktemp("stream")
        stream = stream_in(Storage.open(made[table_type]), table_type)
        stream.send(0, FIRST)
        stream.send(1, SECOND)
    return made


def send_both(storage: Storage, table_type: str) -> None:
    stream = stream_in(storage, table_type)
    for number, rows in PARTS.items():
        stream.send(number, rows)


def _send_and_die(mark: Connection, folder: Path, table_type: str, point: KillPoint) -> None:
    storage = DeadlyStorage.open(folder)
    storage.point, storage.mark = point, mark
    send_both(storage, table_type)
    mark.send("survived")


def kill_batches(folder: Path, table_type: str, point: KillPoint) -> str:
    """Send the batches in a child that dies at `point`; the step that it reported before it died."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(target=_send_and_die, args=(theirs, folder, table_type, point))
    child.start()
    theirs.close()
    mark = str(ours.recv())
    child.join()
    assert child.exitcode == -signal.SIGKILL, (mark, child.exitcode)
    return mark


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.name)
def test_batches_that_live_make_these_steps(
    course: Course, tables: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type], tmp_path, dirs_exist_ok=True)
    storage = StepStorage.open(tmp_path)
    send_both(storage, course.table_type)
    assert tuple(storage.steps) == course.steps


def go_on(storage: Storage, table_type: str, stored: int, seen: Seen) -> None:
    """Spark starts again, and knows of neither batch. `stored`: the last batch whose manifest is there;
    `seen`: what is committed."""
    now = seen_after(seen_after(KEPT, THIRD), FOURTH)
    check_readers(storage, seen)
    stream = stream_in(storage, table_type)
    begun = HoodieTable.open(storage).timeline().instants()[-1]
    last = stream.last
    assert last is not None
    assert last.batch == stored
    if stored == 3:
        # Spark sends the last batch again
        assert stream.send(3, [("p", "a", 99, "doubled")]) is None
        check_readers(storage, now)
    elif stored == 2:
        assert stream.send(3, FOURTH) is None
        check_readers(storage, seen_after(KEPT, THIRD))
    else:
        assert stream.send(2, THIRD) is None
        check_readers(storage, KEPT)
        assert stream.send(3, FOURTH) is not None
        check_readers(storage, now)
        left = residue(storage, begun.time)
        assert begun.is_completed or (left.data_files, left.markers) == ((), ())
    for number in (4, 5):
        rows = [("p", "a", 50 + number, "next")]
        stream.send(number, rows)
        now = seen_after(now, rows)
    stream.start().flush()
    check_readers(storage, now)
    check_file_groups(storage)
    assert storage.list_files(MANIFESTS) == []
    assert HoodieTable.open(storage).timeline().pending() == ()


@pytest.mark.parametrize(
    ("course", "point"),
    CASES,
    ids=lambda value: value.name if isinstance(value, Course) else case_name(value),
)
def test_killed_batches_that_share_an_instant_are_stored_once(
    course: Course, point: KillPoint, tables: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type], tmp_path, dirs_exist_ok=True)
    assert kill_batches(tmp_path, course.table_type, point) == course.steps[point.number]

    def done(step: int) -> bool:
        return point.number >= step and not (point.halfway and point.number == step)

    stored = max([1, *(batch for batch in PARTS if done(course.stored_at(batch)))])
    seen = seen_after(seen_after(KEPT, THIRD), FOURTH) if done(course.completed_at) else KEPT
    go_on(Storage.open(tmp_path), course.table_type, stored, seen)


@pytest.mark.parametrize(
    ("number", "mode"),
    [(n, ("late", "down", "once")[n % 3]) for n in range(len(COURSES[0].steps))],
)
def test_batches_that_share_an_instant_on_a_failing_storage_are_stored_once(
    number: int, mode: Mode, tables: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[COW], tmp_path, dirs_exist_ok=True)
    storage = ScriptedStorage.open(tmp_path)
    storage.number, storage.mode = number, mode
    storage.fault = TimeoutError("operation timed out")
    try:
        send_both(storage, COW)
        failed = False
    except StorageError:
        failed = True
    assert storage.raised
    # what is left behind a manifest or a commit is for the next writer
    harmless = {"-base file", "-marker", "-manifest"}
    assert failed or COURSES[0].steps[number] in harmless or mode != "down"
    good = Storage.open(tmp_path)
    last = newest_checkpoint(HoodieTable.open(good), "default_single_writer")
    assert last is not None
    assert failed or last.batch == 3
    seen = seen_by_us(good)
    assert seen in (KEPT, seen_after(KEPT, THIRD), seen_after(seen_after(KEPT, THIRD), FOURTH))
    go_on(good, COW, last.batch, seen)
