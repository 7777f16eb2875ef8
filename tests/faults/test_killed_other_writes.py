"""SIGKILL of the driver after every step of a replacecommit, of a record's move to another partition, of
mini-batches, and of the rollback of a replacecommit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from serde_lab.pipeline.commit.table_services import clean_now
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.validation import validate_table
from tests.faults.killed_driver import KillPoint, StepStorage, do, kill
from tests.faults.other_writes import AFTER, BEFORE, OtherWork, index_of, make_for, other_write
from tests.faults.small_table import (
    COW,
    MOR,
    check_after_archiving,
    check_file_groups,
    check_readers,
    residue,
    seen_after,
    upsert,
)
from tests.faults.test_killed_driver import Course, Died, DiesBeforeCompletion, case_name

pytestmark = pytest.mark.slow

BASE, LOG = ("+marker", "+base file"), ("+marker", "+log file")
NEW = ("+partition metadata", *BASE)
REPLACE = ("+replacecommit.requested", "+replacecommit.inflight")
ROLLBACK = ("+rollback.requested", "+rollback.inflight")
NEXT = [("p", "a", 50, "next")]

_WORKS: Sequence[tuple[OtherWork, str, tuple[str, ...]]] = (
    ("overwrite", COW, (*REPLACE, *BASE, *NEW, "+replacecommit", "-marker", "-marker")),
    (
        "overwrite by state",
        MOR,
        (*REPLACE, *BASE, *BASE, "+replacecommit", "-marker", "-marker"),
    ),
    ("overwrite table", COW, (*REPLACE, *BASE, "+replacecommit", "-marker")),
    ("delete partition", COW, (*REPLACE, "+replacecommit")),
    ("delete partition", MOR, (*REPLACE, "+replacecommit")),
    (
        "move",
        COW,
        ("+commit.requested", "+inflight", *BASE, *BASE, "+commit", "-marker", "-marker"),
    ),
    (
        "move",
        MOR,
        (
            *("+deltacommit.requested", "+deltacommit.inflight", *LOG, *LOG),
            *("+deltacommit", "-marker", "-marker"),
        ),
    ),
    (
        "mini-batches",
        COW,
        (
            *("+commit.requested", "+inflight", *BASE),
            *(3 * (*BASE, "-base file")),
            *("+commit", *(4 * ("-marker",))),
        ),
    ),
)
COURSES: dict[Course, OtherWork] = {
    Course(f"{work}, {'cow' if table_type == COW else 'mor'}", work, table_type, steps): work
    for work, table_type, steps in _WORKS
}
ROLLED_BACK = Course(
    "rollback of a replacecommit",
    "recover",
    COW,
    (
        *(*ROLLBACK, "-replacecommit.inflight", "-base file", "-base file"),
        *("-replacecommit.requested", "+rollback", "-marker", "-marker"),
    ),
)
CASES = [
    (course, point)
    for course in (*COURSES, ROLLED_BACK)
    for point in course.points
    # one marker that is gone is as good as another
    if point.number <= course.completed_at + 1
]


def work_of(course: Course) -> OtherWork:
    """The write that is killed, or that was before."""
    return COURSES.get(course, "overwrite")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[Course, Path]:
    """The table before each kind of work."""
    made: dict[Course, Path] = {}
    for course in (*COURSES, ROLLED_BACK):
        made[course] = tmp_path_factory.mktemp("table")
        make_for(work_of(course), made[course], course.table_type)
    with pytest.raises(Died):
        other_write("overwrite", DiesBeforeCompletion.open(made[ROLLED_BACK]), COW)
    return made


@pytest.mark.parametrize("course", [*COURSES, ROLLED_BACK], ids=case_name)
def test_a_driver_of_another_write_that_lives_makes_these_steps(
    course: Course, tables: dict[Course, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course], tmp_path, dirs_exist_ok=True)
    storage = StepStorage.open(tmp_path)
    do(course.work, storage, course.table_type)
    assert tuple(storage.steps) == course.steps
    check_readers(storage, BEFORE if course is ROLLED_BACK else AFTER[work_of(course)])


@pytest.mark.parametrize(("course", "point"), CASES, ids=case_name)
def test_a_driver_of_another_write_is_killed(
    course: Course, point: KillPoint, tables: dict[Course, Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course], tmp_path, dirs_exist_ok=True)
    storage = Storage.open(tmp_path)
    before = HoodieTable.open(storage).timeline().pending()
    mark = kill(course.work, tmp_path, course.table_type, point)
    assert mark == course.steps[point.number]

    # nobody has touched the table since
    done = point.number >= course.completed_at and not point.halfway
    now = AFTER[work_of(course)] if done and course is not ROLLED_BACK else BEFORE
    check_readers(storage, now)
    assert {f.name for f in validate_table(storage, deep=True).findings} <= {"pending-instant"}

    # the next write recovers
    dead = (before or HoodieTable.open(storage).timeline().instants()[-1:])[0].time
    options = index_of(work_of(course))
    upsert(storage, NEXT, course.table_type, options=options)
    if done and ("q", "a") in now:
        # the key came from q, where it is under a global index
        now = {place: value for place, value in now.items() if place != ("q", "a")}
    now = seen_after(now, NEXT)
    check_readers(storage, now)
    check_file_groups(storage)
    if done:
        # what was replaced goes with cleaning
        clean_now(HoodieTable.open(storage), 1)
        check_readers(storage, now)
        check_file_groups(storage)
        return
    left = residue(storage, dead)
    assert (left.pending, left.data_files) == ((), ())
    if point.number == course.completed_at - 1:
        # all of its files were there
        check_after_archiving(storage, course.table_type, now, dead, options)
