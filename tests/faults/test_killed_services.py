"""SIGKILL of the driver after every step of a clean and of an archiving.

Neither may change what a reader sees; what was left is taken up by the next writer, no instant is lost
between timeline and history, and the doctor finds nothing but what is pending.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from serde_lab.pipeline.commit.table_services import archive_now, clean_now
from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant
from serde_lab.table.validation import validate_table
from tests.faults.killed_driver import KillPoint, StepStorage, do, kill
from tests.faults.small_table import (
    COW,
    KEPT,
    MOR,
    Row,
    check_file_groups,
    check_readers,
    compact_all,
    make,
    seen_after,
    upsert,
)
from tests.faults.test_killed_driver import Course, case_name

pytestmark = pytest.mark.slow

LATER: list[list[Row]] = [
    [("p", key, 3 + number, f"later {number}") for key in "abc"] for number in range(3)
]
NOW = seen_after(KEPT, LATER[-1])
NEXT: list[Row] = [("p", "a", 50, "next")]

CLEAN = ("+clean.requested", "+clean.inflight")
HISTORY = ("+history file", "+history manifest", "+history version")
COMMIT = ("-inflight", "-commit.requested", "-commit")
DELTACOMMIT = ("-deltacommit.inflight", "-deltacommit.requested", "-deltacommit")

COURSES = (
    Course("clean", "clean", COW, (*CLEAN, *["-base file"] * 8, "+clean")),
    Course("clean of logs", "clean", MOR, (*CLEAN, *["-log file"] * 8, *["-base file"] * 2, "+clean")),
    Course("archiving", "archive", COW, (*HISTORY, *COMMIT, *COMMIT)),
    Course("archiving of logs", "archive", MOR, (*HISTORY, *DELTACOMMIT, *DELTACOMMIT)),
)  # fmt: skip
CASES = [
    (course, KillPoint(number, halfway))
    for course in COURSES
    for number, step in enumerate(course.steps)
    for halfway in (False, True)
    if step.startswith("+") or not halfway
]


def instants(table: HoodieTable) -> list[tuple[str, str]]:
    """Completed ones by time and action, on the timeline or in the history."""
    active = {(i.time, i.action) for i in table.timeline().completed()}
    return sorted(active | table.archived_timeline().times())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """The table before each service, by service and table type; an archiving is not the first one."""
    made: dict[tuple[str, str], Path] = {}
    for table_type in (COW, MOR):
        folder = tmp_path_factory.mktemp("table")
        storage = make(folder, table_type)
        for rows in LATER:
            upsert(storage, rows, table_type)
        to_clean = tmp_path_factory.mktemp("to-clean")
        shutil.copytree(folder, to_clean, dirs_exist_ok=True)
        if table_type == MOR:
            compact_all(Storage.open(to_clean))
        archive_now(HoodieTable.open(storage), 3, 4)
        made["archive", table_type], made["clean", table_type] = folder, to_clean
    return made


def check_sound(storage: Storage) -> None:
    """The doctor reads every row, and finds at most what is pending."""
    findings = validate_table(storage, deep=True).findings
    assert {finding.name for finding in findings} <= {"pending-instant"}


@pytest.mark.parametrize("course", COURSES, ids=case_name)
def test_a_service_that_lives_makes_these_steps(
    course: Course, tables: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.work, course.table_type], tmp_path, dirs_exist_ok=True)
    storage = StepStorage.open(tmp_path)
    do(course.work, storage, course.table_type)
    assert tuple(storage.steps) == course.steps


@pytest.mark.parametrize(("course", "point"), CASES, ids=case_name)
def test_a_service_is_killed(
    course: Course, point: KillPoint, tables: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    shutil.copytree(tables[course.work, course.table_type], tmp_path, dirs_exist_ok=True)
    storage = Storage.open(tmp_path)
    table = HoodieTable.open(storage)
    before = instants(table)
    mark = kill(course.work, tmp_path, course.table_type, point)
    assert mark == course.steps[point.number]

    check_readers(storage, NOW)
    check_sound(storage)
    assert _writes(instants(table)) == _writes(before)

    # the next writer takes up what was left, and both services do their work in full
    upsert(storage, NEXT, course.table_type)
    now = seen_after(NOW, NEXT)
    assert table.timeline().pending() == ()
    check_readers(storage, now)
    clean_now(table, 1)
    archive_now(table, 1, 1)
    assert len(_written(table.timeline().completed())) == 1
    assert set(_writes(before)) < set(_writes(instants(table)))
    check_readers(storage, now)
    check_file_groups(storage)
    check_sound(storage)
    if course.table_type == COW:
        # of each file group the newest file, and of the one just written the one before
        assert len(list_table_files(storage).base_files) == 2


def _writes(known: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in known if one[1] in ("commit", "deltacommit")]


def _written(completed: tuple[Instant, ...]) -> list[Instant]:
    return [i for i in completed if i.action in ("commit", "deltacommit")]
