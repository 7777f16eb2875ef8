"""Two writers at once: the second is refused with the first one's name, and neither harms the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

from serde_lab.errors import ConcurrentWrite, SchemaError, StorageError
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.table.services.rollback import rollback_pending
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import WriteStat
from tests.faults.killed_driver import CONTEXT, StepStorage, Work, do
from tests.faults.small_table import (
    COW,
    DEAD,
    KEPT,
    MOR,
    batches,
    check_readers,
    make,
    prepare,
    seen_after,
    upsert,
)

NEXT = [("p", "a", 50, "next")]


class Meanwhile(InProcessExchange):
    """Does something else once the data of a write is in place, before the write completes."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__([batches(DEAD)])
        self.act = act

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        stats = super().run(plan)
        self.act()
        return stats


@pytest.mark.parametrize("second", ["upsert", "compact", "recover"])
def test_the_second_writer_is_refused_and_the_first_completes(second: Work, tmp_path: Path) -> None:
    storage = make(tmp_path, MOR)

    def write_too() -> None:
        who = rf"is being written by process {os.getpid()} on \S+ \(upsert, since "
        with pytest.raises(ConcurrentWrite, match=who):
            do(second, Storage.open(tmp_path), MOR)

    upsert(storage, DEAD, MOR, Meanwhile(write_too))
    check_readers(storage, seen_after(KEPT, DEAD))
    upsert(storage, NEXT, MOR)


class _WaitingStorage(StepStorage):
    """Says that it is about to complete, and waits for ever."""

    line: Connection

    def begins(self, step: str, path: str, data: object) -> None:
        if step == "+commit":
            self.line.send(os.getpid())
            self.line.recv()


def _write_and_wait(line: Connection, folder: Path) -> None:
    storage = _WaitingStorage.open(folder)
    storage.line = line
    upsert(storage, DEAD)


def test_another_process_holds_the_table_until_it_dies(tmp_path: Path) -> None:
    storage = make(tmp_path)
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=_write_and_wait, args=(theirs, tmp_path))
    child.start()
    pid = ours.recv()
    with pytest.raises(ConcurrentWrite, match=rf"written by process {pid} on "):
        upsert(storage, NEXT)
    check_readers(storage, KEPT)
    child.kill()
    child.join()
    upsert(storage, NEXT)
    check_readers(storage, seen_after(KEPT, NEXT))


def test_who_rolled_us_back_is_left_alone(tmp_path: Path) -> None:
    """Apache Hudi does not know our lock: it rolls back whatever is pending, then begins its own."""
    storage = make(tmp_path)
    theirs: list[str] = []

    def take_over() -> None:
        table = HoodieTable.open(storage)
        rollback_pending(table)
        timeline = table.timeline()
        begun = timeline.create_requested(timeline.new_instant("commit"))
        theirs.append(timeline.create_inflight(begun).time)

    with pytest.raises(ConcurrentWrite, match="another writer rolled back our instant"):
        upsert(storage, DEAD, COW, Meanwhile(take_over))
    assert [i.time for i in HoodieTable.open(storage).timeline().pending()] == theirs
    check_readers(storage, KEPT)


def test_a_lost_lease_completes_nothing_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make(tmp_path)

    def lost(self: TableLock) -> None:
        raise ConcurrentWrite("our lease on the table ran out")

    def lose() -> None:
        monkeypatch.setattr(TableLock, "check", lost)

    with pytest.raises(ConcurrentWrite, match="lease"):
        upsert(storage, DEAD, COW, Meanwhile(lose))
    # what is pending may be the other writer's by now
    assert len(HoodieTable.open(storage).timeline().pending()) == 1
    check_readers(storage, KEPT)
    monkeypatch.undo()
    upsert(storage, NEXT)
    check_readers(storage, seen_after(KEPT, NEXT))


@pytest.mark.parametrize("error", [StorageError("full"), ZeroDivisionError(), SystemExit()])
def test_whatever_ends_a_write_lets_go_of_the_table(error: BaseException, tmp_path: Path) -> None:
    storage = make(tmp_path)

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        upsert(storage, DEAD, COW, Meanwhile(fail))
    check_readers(storage, KEPT)
    upsert(storage, NEXT)
    check_readers(storage, seen_after(KEPT, NEXT))


def test_a_held_table_stays_held_between_commit_and_services(tmp_path: Path) -> None:
    storage = make(tmp_path, MOR)
    options = {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "1",
    }
    prepared = prepare(storage, MOR, options)
    with prepared.hold():
        prepared.commit(InProcessExchange([batches(NEXT)]))
        with pytest.raises(ConcurrentWrite):
            upsert(Storage.open(tmp_path), DEAD, MOR)
        assert prepared.serve().compacted is not None
    check_readers(storage, seen_after(KEPT, NEXT))
    upsert(storage, DEAD, MOR)


def test_the_second_of_two_first_writers_keeps_to_the_first_ones_columns(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    late = prepare(storage)
    other = replace(
        late, schema=replace(late.schema, data=late.schema.data.set(3, pa.field("v", pa.int64())))
    )
    upsert(storage, NEXT)
    with pytest.raises(SchemaError, match="'v'"):
        other.commit(InProcessExchange([]))
    check_readers(storage, seen_after({}, NEXT))
