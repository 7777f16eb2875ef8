"""SIGKILL of the driver after every step of a commit, a compaction and a rollback.

Each kill point is proven reached by the step that the child reports; that the points are all there are
is held by the steps of a driver that nobody kills.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import archive
from tests.faults.killed_driver import KillPoint, StepStorage, Work, do, kill
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    Seen,
    check_after_archiving,
    check_file_groups,
    check_readers,
    make,
    residue,
    seen_after,
    seen_by_us,
    upsert,
)

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Course:
    """A piece of a driver's work, step by step. A recovery's table has a dead write behind it."""

    name: str
    work: Work
    table_type: str
    steps: tuple[str, ...]

    @property
    def completed_at(self) -> int:
        """The step from which on readers see the work; a recovery's never shows."""
        completed = {"+commit", "+deltacommit", "+replacecommit"}
        return next((n for n, s in enumerate(self.steps) if s in completed), len(self.steps))

    @property
    def points(self) -> list[KillPoint]:
        """After each step, and halfway through each file that readers look for."""
        after = [KillPoint(number) for number in range(len(self.steps))]
        instants = {"+commit", "+deltacommit", "+replacecommit", "+rollback"}
        looked_for = {"+base file", "+log file", *instants}
        halfway = [
            KillPoint(number, halfway=True)
            for number, step in enumerate(self.steps)
            if step in looked_for
        ]
        return after + halfway


BASE, LOG = ("+marker", "+base file"), ("+marker", "+log file")
NEW = ("+partition metadata", *BASE)
NO_MARKERS = ("-marker", "-marker", "-marker")
ROLLBACK = ("+rollback.requested", "+rollback.inflight")

COURSES = (
    Course(
        "commit",
        "upsert",
        COW,
        ("+commit.requested", "+inflight", *BASE, *NEW, *BASE, "+commit", *NO_MARKERS),
    ),
    Course(
        "deltacommit",
        "upsert",
        MOR,
        (
            *("+deltacommit.requested", "+deltacommit.inflight"),
            *(*LOG, *NEW, *LOG, "+deltacommit", *NO_MARKERS),
        ),
    ),
    Course(
        "compaction",
        "compact",
        MOR,
        (
            *("+compaction.requested", "+compaction.inflight"),
            *(*BASE, *BASE, "+commit", "-marker", "-marker"),
        ),
    ),
    Course(
        "rollback",
        "recover",
        COW,
        (
            *(*ROLLBACK, "-inflight", "-base file", "-base file", "-base file"),
            *("-commit.requested", "+rollback", *NO_MARKERS),
        ),
    ),
    Course(
        "rollback of a deltacommit",
        "recover",
        MOR,
        (
            *(*ROLLBACK, "-deltacommit.inflight", "-log file", "-log file", "-base file"),
            *("-deltacommit.requested", "+rollback", *NO_MARKERS),
        ),
    ),
)
CASES = [(course, point) for course in COURSES for point in course.points]


def case_name(value: object) -> str:
    if isinstance(value, Course):
        return value.name.replace(" ", "-")
    assert isinstance(value, KillPoint)
    return f"{value.number}{'-halfway' if value.halfway else ''}"


class Died(BaseException):
    """The end of a driver, where a whole process would be too much."""


class DiesBeforeCompletion(StepStorage):
    def begins(self, step: str, path: str, data: object) -> None:
        if step in ("+commit", "+deltacommit", "+replacecommit"):
            raise Died


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Work], Path]:
    """The table before each kind of work, by table type."""
    made: dict[tuple[str, Work], Path] = {}
    for table_type in (COW, MOR):
        folder = tmp_path_factory.mktemp("table")
        make(folder, table_type)
        made[table_type, "upsert"] = made[table_type, "compact"] = folder
        dead = tmp_path_factory.mktemp("dead")
        shutil.copytree(folder, dead, dirs_exist_ok=True)
        with pytest.raises(Died):
            upsert(DiesBeforeCompletion.open(dead), DEAD, table_type)
        made[table_type, "recover"] = dead
    return made


@pytest.mark.parametrize("course", COURSES, ids=case_name)
def test_a_driver_that_lives_makes_these_steps(
    course: Course, tables: dict[tuple[str, Work], Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type, course.work], tmp_path, dirs_exist_ok=True)
    storage = StepStorage.open(tmp_path)
    do(course.work, storage, course.table_type)
    assert tuple(storage.steps) == course.steps


@pytest.mark.parametrize(("course", "point"), CASES, ids=case_name)
def test_a_driver_is_killed(
    course: Course, point: KillPoint, tables: dict[tuple[str, Work], Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.table_type, course.work], tmp_path, dirs_exist_ok=True)
    storage = Storage.open(tmp_path)
    before = HoodieTable.open(storage).timeline().instants()
    mark = kill(course.work, tmp_path, course.table_type, point)
    assert mark == course.steps[point.number]

    # nobody has touched the table since
    done = point.number >= course.completed_at and not point.halfway
    now: Seen = seen_after(KEPT, DEAD) if done and course.work == "upsert" else KEPT
    check_readers(storage, now)

    # the next write recovers; it touches one file group of three
    pending = [i for i in before if not i.is_completed]
    dead = (pending or HoodieTable.open(storage).timeline().instants()[-1:])[0].time
    rows = [("p", "a", 50, "next")]
    upsert(storage, rows, course.table_type)
    now = seen_after(now, rows)
    check_readers(storage, now)
    check_file_groups(storage)
    if not done:
        left = residue(storage, dead)
        assert (left.pending, left.data_files) == ((), ())
        # markers whose rollback completed before its writer died
        assert not left.markers or course.work == "recover"
    check_after_archiving(storage, course.table_type, now, dead)


def test_an_uncommitted_file_that_archiving_passes_would_be_seen(
    tables: dict[tuple[str, Work], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the check above is for: a dead write's files, without its instant."""
    shutil.copytree(tables[COW, "recover"], tmp_path, dirs_exist_ok=True)
    storage = Storage.open(tmp_path)
    timeline = HoodieTable.open(storage).timeline()
    (dead,) = timeline.pending()
    for path in (".inflight", ".commit.requested"):
        storage.delete(f"{timeline.folder}/{dead.time}{path}")
    monkeypatch.setattr(archive, "_remove_uncommitted", lambda *_: ())
    with pytest.raises(AssertionError):
        check_after_archiving(storage, COW, KEPT, dead.time)
    assert "dead" in {value for _, value in seen_by_us(storage).values()}
