"""A table in an object store (moto's S3 server): written, read, compacted, cleaned, archived, killed and
recovered like one in a folder, and held against a second writer by a lease that names its holder."""

from __future__ import annotations

import itertools
import os
from multiprocessing.connection import Connection

import pytest

from serde_lab.cli.app import main
from serde_lab.errors import ConcurrentWrite
from serde_lab.pipeline.commit.table_services import archive_now, clean_now
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.validation import validate_table
from tests.faults.killed_driver import CONTEXT, KillPoint, StepStorage, do, kill
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    Row,
    check_after_archiving,
    check_file_groups,
    check_readers,
    compact_all,
    make,
    residue,
    seen_after,
    upsert,
)
from tests.faults.test_killed_driver import COURSES, Course, case_name

pytestmark = pytest.mark.slow

NEXT: list[Row] = [("p", "a", 50, "next")]
_names = itertools.count()


@pytest.fixture
def lake(s3_options: dict[str, str]) -> Storage:
    """A place in a bucket where nothing is yet."""
    return Storage.open(f"s3://lake/faults{next(_names)}", **s3_options)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_table_lives_through_all_its_services(lake: Storage, table_type: str) -> None:
    make(lake, table_type)
    check_readers(lake, KEPT)
    upsert(lake, DEAD, table_type)
    now = seen_after(KEPT, DEAD)
    check_readers(lake, now)
    if table_type == MOR:
        compacted = compact_all(lake)
        assert compacted is not None
        assert len(compacted.stats) == 2
        check_readers(lake, now)
    upsert(lake, NEXT, table_type, options={"serde_lab.strategy": "avro"})
    now = seen_after(now, NEXT)
    deleted: list[Row] = [("p", "b", 60, "")]
    upsert(lake, deleted, table_type, options={"hoodie.datasource.write.operation": "delete"})
    del now["p", "b"]
    check_readers(lake, now)
    table = HoodieTable.open(lake)
    assert clean_now(table, 1) is not None
    assert archive_now(table, 1, 2) is not None
    check_readers(lake, now)
    check_file_groups(lake)
    assert validate_table(lake, deep=True).findings == ()


@pytest.mark.parametrize("course", COURSES, ids=case_name)
def test_a_driver_makes_the_steps_that_it_makes_in_a_folder(course: Course, lake: Storage) -> None:
    make(lake, course.table_type)
    if course.work == "recover":
        upsert_course = COURSES[0 if course.table_type == COW else 1]
        kill("upsert", lake, course.table_type, KillPoint(upsert_course.completed_at - 1))
    storage = StepStorage(lake.url, lake.options)
    do(course.work, storage, course.table_type)
    assert tuple(storage.steps) == course.steps


POINTS = [
    (course, KillPoint(number))
    for course in COURSES[:3]
    for number in (1, course.completed_at - 1, course.completed_at)
]


@pytest.mark.parametrize(("course", "point"), POINTS, ids=case_name)
def test_a_killed_writer_of_a_bucket(course: Course, point: KillPoint, lake: Storage) -> None:
    make(lake, course.table_type)
    mark = kill(course.work, lake, course.table_type, point)
    assert mark == course.steps[point.number]
    done = point.number == course.completed_at
    now = seen_after(KEPT, DEAD) if done and course.work == "upsert" else KEPT
    check_readers(lake, now)
    dead = HoodieTable.open(lake).timeline().instants()[-1].time
    # its lease still runs, and nobody holds it: a process of this machine that is gone
    upsert(lake, NEXT, course.table_type)
    now = seen_after(now, NEXT)
    check_readers(lake, now)
    check_file_groups(lake)
    if not done:
        left = residue(lake, dead)
        assert (left.pending, left.data_files, left.markers) == ((), (), ())
    check_after_archiving(lake, course.table_type, now, dead)


class _WaitingStorage(StepStorage):
    """Says that it is about to complete, and waits for an answer."""

    line: Connection

    def begins(self, step: str, path: str, data: object) -> None:
        if step == "+commit":
            self.line.send(os.getpid())
            self.line.recv()


def _write_and_wait(line: Connection, place: Storage) -> None:
    storage = _WaitingStorage(place.url, place.options)
    storage.line = line
    upsert(storage, DEAD)
    line.send("committed")


def test_the_second_of_two_writers_of_a_bucket_is_refused(lake: Storage) -> None:
    make(lake)
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=_write_and_wait, args=(theirs, lake))
    child.start()
    pid = ours.recv()
    with pytest.raises(ConcurrentWrite, match=rf"written by process {pid} on \S+ \(upsert, since"):
        upsert(lake, NEXT)
    check_readers(lake, KEPT)
    ours.send("go on")
    assert ours.recv() == "committed"
    child.join()
    check_readers(lake, seen_after(KEPT, DEAD))
    upsert(lake, NEXT)
    check_readers(lake, seen_after(seen_after(KEPT, DEAD), NEXT))


def test_the_doctor_looks_into_a_bucket(
    lake: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(lake, MOR)
    for key, value in lake.options.items():
        monkeypatch.setenv(f"AWS_{key.upper()}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert main(["validate", lake.url, "--deep", "--format", "json"]) == 0
    assert '"hudi-rs": 4' in capsys.readouterr().out
