"""A full disk, a storage that refuses or answers late, ctrl-C: one sentence, nothing half visible, and
the next write puts it right."""

from __future__ import annotations

import errno
import resource
from multiprocessing.connection import Connection
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from obstore.exceptions import AlreadyExistsError

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.faults.killed_driver import CONTEXT, do
from tests.faults.scripted_storage import Mode, ScriptedStorage
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    check_file_groups,
    check_readers,
    make,
    prepare,
    seen_after,
    upsert,
)
from tests.faults.test_killed_driver import COURSES, Course, case_name

pytestmark = pytest.mark.slow

COMMIT, DELTACOMMIT, COMPACTION, ROLLBACK, _ = COURSES
NEXT = [("p", "a", 50, "next")]


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def scripted(
    folder: Path, number: int, fault: BaseException, mode: Mode = "once"
) -> ScriptedStorage:
    storage = ScriptedStorage.open(folder)
    storage.number, storage.fault, storage.mode = number, fault, mode
    return storage


def check_next_write(folder: Path, table_type: str) -> None:
    """It sees nothing of what failed before it, and leaves nothing of it."""
    storage = Storage.open(folder)
    committed = {i.time for i in HoodieTable.open(storage).timeline().completed()}
    upsert(storage, NEXT, table_type)
    check_readers(storage, seen_after(KEPT, NEXT))
    check_file_groups(storage)
    table = HoodieTable.open(storage)
    assert table.timeline().pending() == ()
    new = max(i.time for i in table.timeline().completed())
    files = list_table_files(storage).data_files
    assert {file.instant for file in files} == committed | {new}


REFUSED = [
    (course, number, mode)
    for course, modes in (
        (COMMIT, ("once", "full", "down")),
        (DELTACOMMIT, ("full",)),
        (COMPACTION, ("full",)),
    )
    for number in range(course.completed_at + 1)
    for mode in modes
    # a commit is tried several times
    if (number, mode) != (course.completed_at, "once")
]


@pytest.mark.parametrize(("course", "number", "mode"), REFUSED, ids=lambda v: named(v))
def test_a_put_is_refused(course: Course, number: int, mode: Mode, tmp_path: Path) -> None:
    make(tmp_path, course.table_type)
    storage = scripted(tmp_path, number, no_space(), mode)
    with pytest.raises(StorageError) as raised:
        do(course.work, storage, course.table_type)
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{tmp_path}/")
    assert sentence.endswith("No space left on device")
    assert tuple(storage.steps[:number]) == course.steps[:number]
    good = Storage.open(tmp_path)
    check_readers(good, KEPT)
    if mode == "once":
        # rolled back at once, since the storage let us
        assert HoodieTable.open(good).timeline().pending() == ()
    check_next_write(tmp_path, course.table_type)


def test_a_commit_that_is_refused_once_is_tried_again(tmp_path: Path) -> None:
    make(tmp_path)
    storage = scripted(tmp_path, COMMIT.completed_at, no_space())
    upsert(storage, DEAD)
    assert storage.raised
    check_readers(Storage.open(tmp_path), seen_after(KEPT, DEAD))


def named(value: object) -> str:
    return case_name(value) if isinstance(value, Course) else str(value)


@pytest.mark.parametrize("number", range(len(COMMIT.steps)))
def test_an_answer_is_lost(number: int, tmp_path: Path) -> None:
    make(tmp_path)
    storage = scripted(tmp_path, number, TimeoutError("operation timed out"), "late")
    seen = KEPT
    if number < COMMIT.completed_at:
        with pytest.raises(StorageError, match="operation timed out"):
            upsert(storage, DEAD)
    else:
        # what is on the storage counts, not what was heard of it
        commit = upsert(storage, DEAD)
        assert commit.instant in {i.time for i in HoodieTable.open(storage).timeline().completed()}
        seen = seen_after(KEPT, DEAD)
    assert storage.raised
    good = Storage.open(tmp_path)
    check_readers(good, seen)
    upsert(good, NEXT)
    check_readers(good, seen_after(seen, NEXT))
    check_file_groups(good)


@pytest.mark.parametrize("number", range(len(COMMIT.steps[: COMMIT.completed_at + 1])))
def test_a_put_is_tried_again_by_the_connection(number: int, tmp_path: Path) -> None:
    """Of a put whose answer was lost, the second attempt says that the file exists."""
    make(tmp_path)
    storage = scripted(tmp_path, number, AlreadyExistsError("exists"), "late")
    seen = KEPT
    if COMMIT.steps[number] in ("+commit.requested", "+inflight"):
        # so does a file of another writer: a writer that cannot be sure does not touch it
        with pytest.raises(ConcurrentWrite):
            upsert(storage, DEAD)
    else:
        upsert(storage, DEAD)
        seen = seen_after(KEPT, DEAD)
    good = Storage.open(tmp_path)
    check_readers(good, seen)
    upsert(good, NEXT)
    check_readers(good, seen_after(seen, NEXT))


@pytest.mark.parametrize("number", range(COMMIT.completed_at + 1, len(COMMIT.steps)))
def test_markers_that_cannot_be_removed_fail_no_commit(number: int, tmp_path: Path) -> None:
    make(tmp_path)
    upsert(scripted(tmp_path, number, PermissionError("denied"), "down"), DEAD)
    good = Storage.open(tmp_path)
    check_readers(good, seen_after(KEPT, DEAD))
    upsert(good, NEXT)
    check_readers(good, seen_after(seen_after(KEPT, DEAD), NEXT))


@pytest.mark.parametrize("number", range(len(ROLLBACK.steps)))
def test_a_rollback_is_refused(number: int, tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(StorageError):
        upsert(scripted(tmp_path, COMMIT.completed_at, no_space(), "full"), DEAD)
    good = Storage.open(tmp_path)
    assert HoodieTable.open(good).timeline().pending()
    with pytest.raises(StorageError, match="denied"):
        upsert(scripted(tmp_path, number, PermissionError("denied")), DEAD)
    check_readers(good, KEPT)
    check_next_write(tmp_path, COW)


INTERRUPTED = [(c, n) for c in (COMMIT, COMPACTION) for n in range(c.completed_at + 1)]


@pytest.mark.parametrize(("course", "number"), INTERRUPTED, ids=lambda v: named(v))
def test_ctrl_c_rolls_back_and_lets_go_of_the_table(
    course: Course, number: int, tmp_path: Path
) -> None:
    make(tmp_path, course.table_type)
    with pytest.raises(KeyboardInterrupt):
        do(course.work, scripted(tmp_path, number, KeyboardInterrupt()), course.table_type)
    good = Storage.open(tmp_path)
    assert HoodieTable.open(good).timeline().pending() == ()
    check_readers(good, KEPT)
    check_next_write(tmp_path, course.table_type)


def _write_small_files_only(results: Connection, folder: Path, limit_bytes: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        upsert(Storage.open(folder), [("p", "a", 9, "dead"), ("p", "b", 9, token_hex(1 << 17))])
    except StorageError as error:
        results.send(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    # the same process can go on where the disk is free again
    upsert(Storage.open(folder), NEXT)
    results.send("went on")


@pytest.mark.parametrize(("limit_bytes", "refused"), [(0, "serde_lab.lock"), (1 << 16, ".parquet")])
def test_the_system_takes_no_more(limit_bytes: int, refused: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the operating system itself refuses."""
    make(tmp_path)
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(target=_write_small_files_only, args=(theirs, tmp_path, limit_bytes))
    child.start()
    theirs.close()
    sentence = ours.recv()
    assert refused in sentence
    assert "\n" not in sentence
    assert ours.recv() == "went on"
    child.join()
    check_readers(Storage.open(tmp_path), seen_after(KEPT, NEXT))


def test_a_table_that_cannot_be_made_can_be_made_later(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No space left"):
        prepare(scripted(tmp_path, 0, no_space(), "full"), MOR)
    upsert(Storage.open(tmp_path), NEXT, MOR)
    check_readers(Storage.open(tmp_path), seen_after({}, NEXT))


class Unsure(Storage):
    """The answer to the first commit's put is lost, and so is that to the next listing."""

    lost = 0

    def _put(self, path: str, data: Any, mode: Any) -> None:
        super()._put(path, data, mode)
        if path.endswith(".commit") and not self.lost:
            self.lost = 1
            raise TimeoutError("the answer is lost")

    def list_names(self, folder: str) -> list[str]:
        if self.lost == 1:
            self.lost = 2
            raise StorageError("the listing is refused")
        return super().list_names(folder)


def test_all_tries_of_a_commit_make_one_file(tmp_path: Path) -> None:
    """A second one would outlive the first one's archiving, and hide what was archived since."""
    storage = make(tmp_path)
    unsure = Unsure.open(tmp_path)
    upsert(unsure, NEXT)
    assert unsure.lost == 2
    timeline = HoodieTable.open(storage).timeline()
    last = timeline.completed()[-1]
    names = storage.list_names(timeline.folder)
    assert len([name for name in names if name.startswith(f"{last.time}_")]) == 1
    check_readers(storage, seen_after(KEPT, NEXT))


class LandsLate(Storage):
    """Another writer rolls the instant back just before its completed file lands."""

    def _put(self, path: str, data: Any, mode: Any) -> None:
        if path.endswith(".commit"):
            for place in self.list_files(path.rpartition("/")[0]):
                if place.path.endswith(".inflight") and path.rpartition("/")[2][:17] in place.path:
                    super()._delete(place.path)
        super()._put(path, data, mode)


def test_a_commit_that_lands_after_its_instant_was_rolled_back_is_taken_back(
    tmp_path: Path,
) -> None:
    storage = make(tmp_path)
    with pytest.raises(ConcurrentWrite, match="rolled back our instant"):
        upsert(LandsLate.open(tmp_path), NEXT)
    check_readers(storage, KEPT)
    check_next_write(tmp_path, COW)
