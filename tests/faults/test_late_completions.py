"""The put of a completed file that is given up and lands later: no row is lost, none comes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.pipeline.commit.table_services import resize_buckets_now
from serde_lab.table.files.file_system_view import late_completions
from serde_lab.table.services.bucket_resizing import ResizeRules
from serde_lab.table.services.rollback import recover
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.timeline import Instant
from tests.faults.killed_driver import StepStorage
from tests.faults.small_table import COW, MOR, check_readers, read_by_hudi_rs, seen_by_us, upsert
from tests.streams.small_stream import NO_SERVICES, SmallStream

ONE = [("p", "b", 2, "one"), ("q", "c", 2, "one")]
CONSISTENT = {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}


class Refusing(StepStorage):
    """While it is `away` it refuses completed files, and keeps the last one to land later."""

    away = False
    kept: tuple[str, bytes] = ("", b"")

    def begins(self, step: str, path: str, data: Any) -> None:
        name = path.rpartition("/")[2]
        if self.away and name.endswith("commit") and "_" in name:
            self.kept = (path, bytes(data))
            raise StorageError("the storage is away")

    def land(self) -> None:
        self.put_new(*self.kept)


def late(storage: Storage) -> tuple[Instant, ...]:
    timeline = HoodieTable.open(storage).timeline()
    return late_completions(timeline, timeline.files())


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_batch_whose_commit_lands_after_its_rollback_is_written_again(
    table_type: str, tmp_path: Path
) -> None:
    storage = Refusing.open(tmp_path)
    stream = SmallStream(storage, table_type=table_type, options=dict(NO_SERVICES))
    stream.send(0, [("p", "a", 1, "zero")])
    storage.away = True
    with pytest.raises(StorageError, match="away"):
        stream.send(1, ONE)
    storage.away = False
    storage.land()
    assert len(late(storage)) == 1
    assert stream.send(1, ONE) is not None
    assert stream.send(1, ONE) is None
    stream.send(2, [("p", "d", 3, "two")])
    assert late(storage) == ()
    right = {("p", "a"): (1, "zero"), ("p", "b"): (2, "one"), ("q", "c"): (2, "one")}
    check_readers(storage, {**right, ("p", "d"): (3, "two")})


def test_a_second_completed_file_of_an_instant_goes(tmp_path: Path) -> None:
    storage = Refusing.open(tmp_path)
    options = {**NO_SERVICES, "serde_lab.stream.batches_per_commit": 2}
    stream = SmallStream(storage, options=options)
    stream.start()
    stream.send(0, [("p0", "a", 1, "0")])
    storage.away = True
    with pytest.raises(StorageError, match="away"):
        stream.send(1, [("p1", "a", 1, "1")])
    storage.away = False
    stream.start()
    assert stream.living is not None
    flushed = stream.living.flush()
    assert flushed is not None
    storage.land()
    timeline = HoodieTable.open(storage).timeline()
    assert [i.completion_time for i in timeline.completed()] == [flushed.completion]
    for number in range(2, 8):
        upsert(storage, [(f"p{number}", "a", 1, str(number))])
    archive(HoodieTable.open(storage), 2, 3)
    assert len(seen_by_us(storage)) == read_by_hudi_rs(storage).num_rows == 8


def test_an_overwrite_that_lands_after_its_rollback_replaces_nothing(tmp_path: Path) -> None:
    storage = Refusing.open(tmp_path)
    before = {("p", "a"): (1, "before"), ("q", "b"): (1, "before")}
    upsert(storage, [("p", "a", 1, "before"), ("q", "b", 1, "before")])
    storage.away = True
    overwrite = {"hoodie.datasource.write.operation": "insert_overwrite_table"}
    with pytest.raises(StorageError, match="away"):
        upsert(storage, [("p", "c", 2, "lost")], options=overwrite)
    storage.away = False
    storage.land()
    assert len(late(storage)) == 1
    assert seen_by_us(storage) == before
    upsert(storage, [("p", "d", 3, "after")])
    assert late(storage) == ()
    check_readers(storage, {**before, ("p", "d"): (3, "after")})


class RolledBackMeanwhile(Storage):
    """Another writer rolls back just before the completed file lands."""

    def _put(self, path: str, data: Any, mode: Any) -> None:
        if path.endswith(".replacecommit"):
            recover(HoodieTable.open(Storage.open(self.url)))
        super()._put(path, data, mode)


def test_a_resizing_that_lands_after_its_rollback_is_taken_back(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    rows = [("p", f"k{number}", number, "x") for number in range(20)]
    upsert(storage, rows, options=CONSISTENT)
    table = HoodieTable.open(RolledBackMeanwhile.open(tmp_path))
    with pytest.raises(ConcurrentWrite, match="rolled back our instant"):
        resize_buckets_now(table, ResizeRules(split_above_bytes=1, merge_below_bytes=0))
    check_readers(storage, {("p", key): (ts, value) for _, key, ts, value in rows})
    upsert(storage, [("p", "k0", 99, "y")], options=CONSISTENT)
    assert seen_by_us(storage)["p", "k0"] == (99, "y")
