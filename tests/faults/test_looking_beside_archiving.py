"""What is read while the timeline is archived, and behind a savepoint that archiving has passed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from serde_lab.errors import TableError
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.timeline import Instant
from tests.faults.small_table import COW, MOR, Seen, check_readers, seen_by_us, upsert
from tests.faults.test_optimistic_writers import write
from tests.table.savepoints import restore, restore_now


def make(storage: Storage, table_type: str) -> Seen:
    """A table of seven writes, each to a partition of its own."""
    for number in range(7):
        upsert(storage, [(f"p{number}", "k", number, "x")], table_type)
    return {(f"p{number}", "k"): (number, "x") for number in range(7)}


def saved(storage: Storage) -> None:
    """The first write gets a savepoint, and archiving passes it (hoodie.archive.beyond.savepoint)."""
    table = HoodieTable.open(storage)
    timeline = table.timeline()
    first = timeline.instants()[0]
    kept = {file.path: storage.get(file.path) for file in storage.list_folder(timeline.folder)[1]}
    kept = {path: content for path, content in kept.items() if first.time in path}
    assert archive(table, 2, 3) is not None
    for path, content in kept.items():
        storage.put_new(path, content)
    savepoint = Instant(first.time, "savepoint", "completed", timeline.new_time())
    storage.put_new(timeline.path(savepoint))


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_archived_behind_a_savepoint(table_type: str, tmp_path: Path) -> None:
    """Apache Hudi 1.2.0 and hudi-rs lose what was archived."""
    storage = Storage.open(tmp_path)
    rows = make(storage, table_type)
    table = HoodieTable.open(storage)
    second = table.timeline().instants()[1]
    saved(storage)
    assert seen_by_us(storage) == rows
    # what a writer began in between and never committed stays invisible
    path = max(f.path for f in table.view().files.data_files if f.instant == second.time)
    orphan = second.time[:-1] + str((int(second.time[-1]) + 1) % 10)
    storage.put_new(path.replace(second.time, orphan).replace("p1/", "p9/"), storage.get(path))
    assert seen_by_us(storage) == rows


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_restored_to_a_savepoint_that_archiving_has_passed(table_type: str, tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    rows = make(storage, table_type)
    upsert(storage, [("p0", "k", 7, "y")], table_type)
    saved(storage)
    restore_now(HoodieTable.open(storage))
    left = {("p0", "k"): rows["p0", "k"]}
    check_readers(storage, left)
    timeline = HoodieTable.open(storage).timeline()
    (restored,) = (i for i in timeline.instants() if i.action == "restore")
    path = timeline.path(replace(restored, state="requested"))
    plan = storage.get(path)
    storage.replace(path, b"")
    with pytest.raises(TableError, match=r"restore.requested: is not a readable Avro file"):
        seen_by_us(storage)
    storage.replace(path, plan)
    upsert(storage, [("p0", "l", 0, "z")], table_type)
    left |= {("p0", "l"): (0, "z")}
    check_readers(storage, left)
    # once the savepoint is gone, archiving passes the files, too
    timeline = HoodieTable.open(storage).timeline()
    for instant in timeline.instants():
        if instant.action == "savepoint":
            timeline.delete(instant)
    for number in range(4):
        upsert(storage, [("p0", "m", number, "")], table_type)
    assert archive(HoodieTable.open(storage), 1, 2) is not None
    check_readers(storage, left | {("p0", "m"): (3, "")})


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_write_that_completed_before_the_savepointed_one_stays(
    table_type: str, tmp_path: Path
) -> None:
    """It began later, so its time is one that the restore takes back: archiving removed its files."""
    storage = Storage.open(tmp_path)
    write(storage, [("p0", "k", 1, "first")], table_type=table_type)

    def quick() -> None:
        write(storage, [("p2", "k", 3, "quick")], table_type=table_type)

    slow = write(storage, [("p1", "k", 2, "slow")], table_type=table_type, between=quick)
    upsert(storage, [("p3", "k", 4, "undone")], table_type)
    restore(HoodieTable.open(storage), slow.instant)
    left = {("p1", "k"): (2, "slow"), ("p2", "k"): (3, "quick")}
    check_readers(storage, left | {("p0", "k"): (1, "first")})
    for number in range(5, 11):
        upsert(storage, [("p0", "k", number, "later")], table_type)
        archive(HoodieTable.open(storage), 1, 2)
        check_readers(storage, left | {("p0", "k"): (number, "later")})


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_of_version_6_restored_to_a_savepoint(table_type: str, tmp_path: Path) -> None:
    """Files of archived writes behind it are refused: nobody knows whether they were committed. After the
    restore none of them counts."""
    storage = Storage.open(tmp_path)
    version = {"hoodie.write.table.version": "6"}
    for number in range(4):
        upsert(storage, [(f"p{number}", "k", number, "x")], table_type, options=version)
    timeline = HoodieTable.open(storage).timeline()
    first, *archived, _ = timeline.instants()
    storage.put_new(timeline.path(replace(first, action="savepoint")))
    for instant in timeline.files():
        if instant.time in {one.time for one in archived}:
            timeline.delete(instant)
    with pytest.raises(TableError, match="lies behind the savepoint"):
        seen_by_us(storage)
    restore_now(HoodieTable.open(storage))
    upsert(storage, [("p0", "l", 0, "z")], table_type, options=version)
    check_readers(storage, {("p0", "k"): (0, "x"), ("p0", "l"): (0, "z")})


class TornListing(Storage):
    """Somebody archives while the timeline is listed: of three archived instants only the second is seen."""

    archived = False

    def list_names(self, folder: str) -> list[str]:
        names = super().list_names(folder)
        if self.archived or not folder.endswith("timeline"):
            return names
        self.archived = True
        times = sorted({name[:17] for name in names})
        archive(HoodieTable.open(Storage.open(self.url)), 4, 5)
        gone = {times[0], times[2]}
        return [name for name in names if name[:17] not in gone]


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_the_timeline_is_archived_while_it_is_listed(table_type: str, tmp_path: Path) -> None:
    rows = make(Storage.open(tmp_path), table_type)
    storage = TornListing.open(tmp_path)
    assert seen_by_us(storage) == rows
    assert storage.archived
