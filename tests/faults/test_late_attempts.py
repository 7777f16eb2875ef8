"""Attempts that come too late: a second one while the first one's files stand, a zombie that writes
after completion, after a rollback, after archiving, and in the middle of a rollback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.pipeline.commit.coordinator import Coordinator
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.table.services.rollback import recover
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY, WriteStat
from tests.faults.killed_driver import StepStorage
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    Row,
    batches,
    check_after_archiving,
    check_file_groups,
    check_readers,
    make,
    residue,
    seen_after,
    upsert,
)

NEXT = [("p", "a", 50, "next")]
TYPES = pytest.mark.parametrize("table_type", [COW, MOR])


class Attempts(InProcessExchange):
    """Keeps the plan of a write, whose tasks are run `attempts` times, and again later."""

    plan: WritePlan

    def __init__(
        self,
        rows: Sequence[Row],
        then: Callable[[], object] = lambda: None,
        attempts: int = 1,
    ) -> None:
        super().__init__([batches(rows)])
        self.rows, self.then, self.attempts = rows, then, attempts

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        self.plan = plan
        done = [super(Attempts, self).run(plan) for _ in range(self.attempts)]
        assert all(stats == done[0] for stats in done)
        self.then()
        return done[-1]

    def again(self, storage: Storage | None = None) -> tuple[WriteStat, ...]:
        """All tasks of the write once more."""
        plan = self.plan if storage is None else replace(self.plan, storage=storage)
        return InProcessExchange([batches(self.rows)]).run(plan)


def data_files(storage: Storage) -> dict[str, int]:
    """Every data file with the time of its last change."""
    inside = (f for f in storage.list_files() if not f.path.startswith(".hoodie/"))
    return {f.path: f.modified_epoch_ms for f in inside if f.name != ".hoodie_partition_metadata"}


def roll_back(storage: Storage) -> None:
    recover(HoodieTable.open(storage))


def fail() -> None:
    raise StorageError("the disk is full")


@TYPES
def test_several_attempts_leave_one_file_a_group(table_type: str, tmp_path: Path) -> None:
    storage = make(tmp_path, table_type)
    commit = upsert(storage, DEAD, table_type, Attempts(DEAD, attempts=3))
    assert len(residue(storage, commit.instant).data_files) == len(commit.stats)
    check_file_groups(storage)
    check_readers(storage, seen_after(KEPT, DEAD))


@TYPES
def test_a_zombie_after_completion_changes_nothing(table_type: str, tmp_path: Path) -> None:
    storage = make(tmp_path, table_type)
    attempts = Attempts(DEAD)
    upsert(storage, DEAD, table_type, attempts)
    before = data_files(storage)
    attempts.again()
    assert data_files(storage) == before
    check_file_groups(storage)
    upsert(storage, NEXT, table_type)
    check_readers(storage, seen_after(seen_after(KEPT, DEAD), NEXT))


@TYPES
def test_a_zombie_after_a_rollback_is_refused(table_type: str, tmp_path: Path) -> None:
    storage = make(tmp_path, table_type)
    attempts = Attempts(DEAD, fail)
    with pytest.raises(StorageError, match="full"):
        upsert(storage, DEAD, table_type, attempts)
    before = data_files(storage)
    with pytest.raises(ConcurrentWrite, match="not inflight any more"):
        attempts.again()
    assert data_files(storage) == before
    check_after_archiving(storage, table_type, KEPT, attempts.plan.instant)


@TYPES
def test_a_zombie_after_archiving_is_refused(table_type: str, tmp_path: Path) -> None:
    storage = make(tmp_path, table_type)
    attempts = Attempts(DEAD)
    upsert(storage, DEAD, table_type, attempts)
    for number in range(4):
        upsert(storage, [("p", "a", 50 + number, "next")], table_type)
    archived = archive(HoodieTable.open(storage), 2, 3)
    assert archived is not None
    assert attempts.plan.instant in {i.time for i in archived.instants}
    before = data_files(storage)
    with pytest.raises(ConcurrentWrite, match="not inflight any more"):
        attempts.again()
    assert data_files(storage) == before
    check_readers(storage, {**seen_after(KEPT, DEAD), ("p", "a"): (53, "next")})


class DiesAfterALog(StepStorage):
    """Ends an attempt before its second log file."""

    def begins(self, step: str, path: str, data: Any) -> None:
        if step == "+log file" and step in self.steps:
            raise StorageError("the executor is lost")


class Retried(InProcessExchange):
    """The first attempt ends after a log file; the second gets its rows as `again` says."""

    def __init__(self, again: Sequence[Row]) -> None:
        super().__init__([batches(again)])

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        lost = replace(plan, storage=DiesAfterALog.open(plan.storage.url))
        with pytest.raises(StorageError, match="is lost"):
            InProcessExchange([batches(DEAD)]).run(lost)
        return super().run(plan)


@pytest.mark.parametrize("logs", ["one", "several"])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_retry_splits_its_rows_into_the_same_logs_or_is_refused(
    in_order: bool, logs: str, tmp_path: Path
) -> None:
    """Each of several logs has the rows that came first, so that a row that comes later is lost."""
    options = {"hoodie.bucket.index.num.buckets": "1" if logs == "several" else "2"}
    if logs == "several":
        options |= {"hoodie.logfile.data.block.max.size": "1", "hoodie.logfile.max.size": "1"}
    storage = make(tmp_path, MOR, options)
    again = Retried(DEAD if in_order else [*reversed(DEAD)])
    if in_order or logs == "one":
        upsert(storage, DEAD, MOR, again, options)
        check_readers(storage, seen_after(KEPT, DEAD))
    else:
        with pytest.raises(StorageError, match="had their rows in different orders"):
            upsert(storage, DEAD, MOR, again, options)
        check_readers(storage, KEPT)


class RolledBackBetween(StepStorage):
    """A rollback, whole, between an attempt's look at its instant and its first file."""

    act: Callable[[], None]

    def begins(self, step: str, path: str, data: Any) -> None:
        if step in ("+base file", "+log file"):
            self.act()


class OvertakenBehind(RolledBackBetween):
    """The same just behind the attempt's first file."""

    act: Callable[[], object]

    def begins(self, step: str, path: str, data: Any) -> None:
        """Nothing."""

    def made(self, step: str) -> None:
        if step == "+log file" and self.steps.count(step) == 1:
            self.act()


@TYPES
def test_a_zombie_overtaken_by_a_rollback_takes_its_file_away(
    table_type: str, tmp_path: Path
) -> None:
    storage = make(tmp_path, table_type)
    attempts = Attempts(DEAD, fail)
    with pytest.raises(StorageError):
        upsert(storage, DEAD, table_type, attempts)
    # the tasks of a driver that died, one of which lives on
    table = HoodieTable.open(storage)
    inflight = Coordinator(table).begin("upsert")
    timeline = table.timeline()
    attempts.plan = replace(
        attempts.plan, instant=inflight.time, inflight_path=timeline.path(inflight)
    )
    overtaken = RolledBackBetween.open(tmp_path)
    overtaken.act = lambda: roll_back(storage)
    before = data_files(storage)
    with pytest.raises(ConcurrentWrite, match="not inflight any more"):
        attempts.again(overtaken)
    assert {"+base file", "+log file"} & set(overtaken.steps)
    assert data_files(storage) == before
    check_after_archiving(storage, table_type, KEPT, inflight.time)


def test_a_zombie_leaves_the_next_write_its_log_of_the_same_name(tmp_path: Path) -> None:
    """Before version 8 a log's name has the base file's instant, and not that of its own write."""
    options = {"hoodie.write.table.version": "6"}
    storage = make(tmp_path, MOR, options)
    attempts = Attempts(DEAD, fail)
    with pytest.raises(StorageError):
        upsert(storage, DEAD, MOR, attempts, options)
    table = HoodieTable.open(storage)
    inflight = Coordinator(table).begin("upsert")
    attempts.plan = replace(
        attempts.plan, instant=inflight.time, inflight_path=table.timeline().path(inflight)
    )
    overtaken = OvertakenBehind.open(tmp_path)

    def overtake() -> None:
        roll_back(storage)
        upsert(storage, NEXT, MOR, options=options)

    overtaken.act = overtake
    with pytest.raises(ConcurrentWrite, match="not inflight any more"):
        attempts.again(overtaken)
    check_readers(storage, seen_after(KEPT, NEXT))


class CommittedBefore(RolledBackBetween):
    """The writer that was taken for dead commits just before its rollback deletes the first file."""

    act: Callable[[], object]
    dies = False

    def begins(self, step: str, path: str, data: Any) -> None:
        if step == "-inflight":
            self.act()
        if step == "-rollback.inflight" and self.dies:
            raise StorageError("the storage is away")


@pytest.mark.parametrize("dies", [False, True])
def test_a_commit_within_its_own_rollback_keeps_its_rows(dies: bool, tmp_path: Path) -> None:
    storage = make(tmp_path, COW)
    attempts = Attempts(DEAD, fail)
    with pytest.raises(StorageError):
        upsert(storage, DEAD, COW, attempts)
    table = HoodieTable.open(storage)
    schema = table.commit_metadata(table.timeline().completed()[-1]).extra_metadata[SCHEMA_KEY]
    writer = Coordinator(table)
    inflight = writer.begin("upsert")
    attempts.plan = replace(
        attempts.plan, instant=inflight.time, inflight_path=table.timeline().path(inflight)
    )
    stats = attempts.again()
    rolled_back = CommittedBefore.open(tmp_path)
    rolled_back.act = lambda: writer.complete(inflight, "upsert", stats, schema)
    rolled_back.dies = dies
    says = "the storage is away" if dies else f"{inflight.time} completed while it was being"
    with pytest.raises(StorageError if dies else ConcurrentWrite, match=says):
        recover(HoodieTable.open(rolled_back))
    check_readers(storage, seen_after(KEPT, DEAD))
    upsert(storage, NEXT)
    check_readers(storage, seen_after(seen_after(KEPT, DEAD), NEXT))
    assert not HoodieTable.open(storage).timeline().pending()


@TYPES
def test_a_zombie_that_dies_with_its_file_in_place_is_never_seen(
    table_type: str, tmp_path: Path
) -> None:
    """Nothing refers to such a file any more, but archiving looks for it first."""
    storage = make(tmp_path, table_type)
    attempts = Attempts(DEAD, fail)
    with pytest.raises(StorageError):
        upsert(storage, DEAD, table_type, attempts)
    attempts.plan = replace(attempts.plan, inflight_path=None)  # looks no more
    attempts.again()
    dead = attempts.plan.instant
    assert residue(storage, dead).data_files
    check_readers(storage, KEPT)
    check_after_archiving(storage, table_type, KEPT, dead)
    assert not residue(storage, dead).data_files
