"""What is read while the timeline is archived, and behind a savepoint that archiving has passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.timeline import Instant
from tests.faults.small_table import COW, MOR, Seen, seen_by_us, upsert


def make(storage: Storage, table_type: str) -> Seen:
    """A table of seven writes, each to a partition of its own."""
    for number in range(7):
        upsert(storage, [(f"p{number}", "k", number, "x")], table_type)
    return {(f"p{number}", "k"): (number, "x") for number in range(7)}


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_archived_behind_a_savepoint(table_type: str, tmp_path: Path) -> None:
    """As hoodie.archive.beyond.savepoint leaves it; Apache Hudi 1.2.0 and hudi-rs lose what was archived."""
    storage = Storage.open(tmp_path)
    rows = make(storage, table_type)
    table = HoodieTable.open(storage)
    timeline = table.timeline()
    first, second = timeline.instants()[:2]
    kept = {file.path: storage.get(file.path) for file in storage.list_folder(timeline.folder)[1]}
    kept = {path: content for path, content in kept.items() if first.time in path}
    assert archive(table, 2, 3) is not None
    for path, content in kept.items():
        storage.put_new(path, content)
    savepoint = Instant(first.time, "savepoint", "completed", timeline.new_time())
    storage.put_new(timeline.path(savepoint))
    assert seen_by_us(storage) == rows
    # what a writer began in between and never committed stays invisible
    path = max(f.path for f in table.view().files.data_files if f.instant == second.time)
    orphan = second.time[:-1] + str((int(second.time[-1]) + 1) % 10)
    storage.put_new(path.replace(second.time, orphan).replace("p1/", "p9/"), storage.get(path))
    assert seen_by_us(storage) == rows


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
