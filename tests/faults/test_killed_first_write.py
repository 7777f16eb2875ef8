"""SIGKILL of the driver after every step of a table's first write: the next one may ask for another table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serde_lab.errors import ConcurrentWrite, OptionError, StorageError
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import WriteStat
from tests.faults.killed_driver import KillPoint, StepStorage, do, kill
from tests.faults.small_table import (
    COW,
    DEAD,
    FIRST,
    MOR,
    batches,
    check_readers,
    prepare,
    seen_after,
    upsert,
)

pytestmark = pytest.mark.slow

NEW = ("+partition metadata", "+marker", "+base file")
FILES = (*NEW, *NEW, "+marker", "+base file")
CREATED = ("+serde_lab_first_write", "+hoodie.properties")
NO_MARKERS = ("-marker", "-marker", "-marker", "-serde_lab_first_write")
STEPS = {
    COW: (*CREATED, "+commit.requested", "+inflight", *FILES, "+commit", *NO_MARKERS),
    MOR: (
        *(*CREATED, "+deltacommit.requested", "+deltacommit.inflight"),
        *(*FILES, "+deltacommit", *NO_MARKERS),
    ),
}
OTHER = {COW: MOR, MOR: COW}
CORRECTED = {"hoodie.bucket.index.num.buckets": "8"}
CASES = [(kind, number) for kind, steps in STEPS.items() for number in range(len(steps))]


@pytest.mark.parametrize("kind", STEPS)
def test_a_driver_that_lives_makes_these_steps(kind: str, tmp_path: Path) -> None:
    storage = StepStorage.open(tmp_path)
    do("upsert", storage, kind)
    assert tuple(storage.steps) == STEPS[kind]


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_first_write_is_killed(kind: str, number: int, tmp_path: Path) -> None:
    mark = kill("upsert", tmp_path, kind, KillPoint(number))
    assert mark == STEPS[kind][number]
    storage = Storage.open(tmp_path)
    if number < STEPS[kind].index("-marker") - 1:
        upsert(storage, FIRST, OTHER[kind], options=CORRECTED)
        check_readers(storage, seen_after({}, FIRST))
        table = HoodieTable.open(storage)
        assert (table.config.bucket_count, table.config.table_type) == (8, OTHER[kind])
        assert not table.is_unfinished
    else:
        with pytest.raises(OptionError, match="bucket"):
            upsert(storage, FIRST, kind, options=CORRECTED)
        check_readers(storage, seen_after({}, DEAD))


def test_a_table_that_was_made_apart_stays(tmp_path: Path) -> None:
    """It has no commit either, but somebody wanted it as it is."""
    storage = Storage.open(tmp_path)
    HoodieTable.create(storage, prepare(Storage.open(tmp_path / "other")).options.table)
    with pytest.raises(OptionError, match="bucket"):
        upsert(storage, FIRST, options=CORRECTED)


@pytest.mark.parametrize("corrected", [True, False])
def test_two_first_writes_at_once(corrected: bool, tmp_path: Path) -> None:
    """The later one replaces the table, and the earlier one is refused if it would no longer be its own."""
    storage = Storage.open(tmp_path)
    earlier = prepare(storage)
    upsert(storage, FIRST, options=CORRECTED if corrected else {})
    if corrected:
        with pytest.raises(ConcurrentWrite, match="removed the table or made it anew"):
            earlier.commit(InProcessExchange([batches(DEAD)]))
    else:
        earlier.commit(InProcessExchange([batches(DEAD)]))
    check_readers(storage, seen_after({}, FIRST if corrected else [*FIRST, *DEAD]))


def test_the_empty_table_of_somebody_else_stays_where_a_first_writer_died(tmp_path: Path) -> None:
    kill("upsert", tmp_path, COW, KillPoint(0, "after"))
    storage = Storage.open(tmp_path)
    assert not HoodieTable.exists(storage)
    somebody = prepare(Storage.open(tmp_path / "elsewhere"), MOR).coordinator.table.config
    HoodieTable.create(storage, somebody)
    with pytest.raises(OptionError, match="COPY_ON_WRITE"):
        upsert(storage, FIRST)
    assert HoodieTable.open(storage).config.is_mor


def test_the_table_of_a_first_write_that_is_alive_stays(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    earlier = prepare(storage)
    with earlier.hold():
        with pytest.raises(ConcurrentWrite, match="is being written by"):
            upsert(Storage.open(tmp_path), FIRST)
        earlier.commit(InProcessExchange([batches(DEAD)]))
    check_readers(storage, seen_after({}, DEAD))


class Fails(InProcessExchange):
    """A first write that fails; before, another writer opens its table."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__([batches(DEAD)])
        self.act = act

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        self.act()
        raise StorageError("the first write fails")


@pytest.mark.parametrize("anew", [True, False])
def test_a_write_does_not_go_into_a_table_that_its_first_writer_removed(
    anew: bool, tmp_path: Path
) -> None:
    storage = Storage.open(tmp_path)
    late: list[PreparedWrite] = []
    first = prepare(storage)
    with pytest.raises(StorageError, match="the first write fails"):
        first.commit(Fails(lambda: late.append(prepare(storage))))
    if anew:
        upsert(storage, FIRST, options=CORRECTED)
    with pytest.raises(ConcurrentWrite, match="removed the table or made it anew"):
        late[0].commit(InProcessExchange([batches(DEAD)]))
    assert HoodieTable.exists(storage) is anew
    if anew:
        check_readers(storage, seen_after({}, FIRST))
