"""Two queries into one table, and a batch writer beside a stream, with optimistic concurrency control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from serde_lab.errors import ConcurrentWrite, OptionError, WriteConflict
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.streams.stream_writer import MicroBatch
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import keep_checkpoints
from tests.faults.small_table import (
    COW,
    MOR,
    SCHEMA,
    Row,
    batches,
    check_file_groups,
    check_readers,
    prepare,
    seen_after,
    upsert,
)
from tests.faults.test_optimistic_writers import OPTIMISTIC, SHORT_WAIT, Between
from tests.streams.small_stream import SHORT_TIMELINE, SmallStream, stated_batches

ONE: list[Row] = [("p", "a", 1, "one"), ("p", "b", 1, "one")]
TWO: list[Row] = [("q", "a", 1, "two"), ("q", "b", 1, "two")]


def send(
    stream: SmallStream, number: int, rows: Sequence[Row], between: Callable[[], object]
) -> None:
    """A batch of the stream; `between`: done once its data is in place."""
    with stream.writer().begin(MicroBatch(stream.query, number), SCHEMA) as prepared:
        assert prepared is not None
        parts = batches(rows) if rows else []
        prepared.commit(Between(parts, between))
        prepared.serve()


def two_streams(folder: Path, table_type: str) -> tuple[SmallStream, SmallStream]:
    options = {**OPTIMISTIC, **SHORT_TIMELINE}
    one = SmallStream.of(folder, identifier="one", options=options, table_type=table_type)
    two = SmallStream.of(
        folder, query="two", identifier="two", options=options, table_type=table_type
    )
    return one, two


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_two_queries_write_to_disjoint_file_groups_at_once(table_type: str, tmp_path: Path) -> None:
    one, two = two_streams(tmp_path, table_type)
    now = seen_after(seen_after({}, ONE), TWO)
    for number in range(6):
        first = [(p, k, number, f"one {number}") for p, k, _, _ in ONE]
        second = [(p, k, number, f"two {number}") for p, k, _, _ in TWO]
        # in turns the first or the second begins, and is the last to commit
        if number % 2:
            send(one, number, first, lambda n=number, rows=second: two.send(n, rows))
        else:
            send(two, number, second, lambda n=number, rows=first: one.send(n, rows))
        now = seen_after(seen_after(now, first), second)
        check_readers(one.storage, now)
    assert one.last is not None
    assert two.last is not None
    assert (one.last.batch, two.last.batch) == (5, 5)
    # what was sent again is known
    assert one.send(5, ONE) is None
    check_readers(one.storage, now)
    check_file_groups(one.storage)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_of_two_batches_for_one_file_group_one_is_refused_and_sent_again(
    table_type: str, tmp_path: Path
) -> None:
    one, two = two_streams(tmp_path, table_type)
    overlap: list[Row] = [("p", "a", 5, "two")]
    with pytest.raises(
        WriteConflict, match=r"instant \d+ \(upsert\) of another writer has stored bucket"
    ):
        send(one, 0, ONE, lambda: two.send(0, overlap))
    check_readers(one.storage, seen_after({}, overlap))
    assert one.last is None
    one.send(0, ONE)
    check_readers(one.storage, {**seen_after({}, ONE), ("p", "a"): (5, "two")})


def test_a_batch_writer_beside_a_stream(tmp_path: Path) -> None:
    one, _ = two_streams(tmp_path, COW)
    one.send(0, ONE)
    now = seen_after({}, ONE)

    def write(rows: Sequence[Row], options: dict[str, str]) -> None:
        upsert(Storage.open(tmp_path), rows, COW, None, options)

    send(one, 1, [("p", "a", 2, "stream")], lambda: write(TWO, OPTIMISTIC))
    now = seen_after(seen_after(now, TWO), [("p", "a", 2, "stream")])
    check_readers(one.storage, now)
    with pytest.raises(WriteConflict, match="bucket"):
        send(one, 2, [("q", "a", 3, "stream")], lambda: write(TWO, OPTIMISTIC))
    check_readers(one.storage, now)

    def refused() -> None:
        with pytest.raises(ConcurrentWrite, match="is being written by process"):
            write(TWO, {})

    send(one, 2, [("q", "a", 3, "stream")], refused)
    check_readers(one.storage, seen_after(now, [("q", "a", 3, "stream")]))


@pytest.mark.parametrize("rows", [ONE, []], ids=["rows", "empty"])
@pytest.mark.parametrize("operation", ["upsert", "insert"])
def test_a_batch_that_an_earlier_driver_of_the_query_still_writes_is_stored_once(
    operation: str, rows: list[Row], tmp_path: Path
) -> None:
    """Without a bucket index its inserts go to other file groups, so only the batch's number tells."""
    index = {
        "hoodie.bucket.index.num.buckets": None,
        "hoodie.index.type": "BLOOM",
        "serde_lab.seed": None,
    }
    stream = SmallStream.of(tmp_path, operation=operation, options={**OPTIMISTIC, **index})
    stream.send(0, [("z", "z", 0, "z")])
    with pytest.raises(WriteConflict):
        send(stream, 1, rows, lambda: stream.send(1, rows))
    check_readers(stream.storage, seen_after({}, [("z", "z", 0, "z"), *rows]))
    assert stream.send(1, rows) is None
    assert len(stated_batches(stream.storage)) == 2


def test_an_earlier_batch_that_archiving_states_again_is_no_conflict(tmp_path: Path) -> None:
    one, two = two_streams(tmp_path, COW)
    one.send(0, ONE)
    now = seen_after({}, ONE)

    two.send(0, [("q", "b", 2, "x")])
    later: list[Row] = [("p", "a", 2, "one again")]

    def archive_one() -> None:
        assert keep_checkpoints(table, table.timeline().completed()) is not None

    table = HoodieTable.open(one.storage)
    send(one, 1, later, archive_one)
    now = seen_after(seen_after(now, later), [("q", "b", 2, "x")])
    check_readers(one.storage, now)


def test_pending_shared_batches_are_committed_before_an_optimistic_write(tmp_path: Path) -> None:
    shared = SmallStream.of(tmp_path, options={"serde_lab.stream.batches_per_commit": 9})
    shared.start()
    assert shared.send(0, ONE) is None
    upsert(Storage.open(tmp_path), TWO, COW, None, OPTIMISTIC)
    check_readers(shared.storage, seen_after(seen_after({}, ONE), TWO))

    def refused() -> None:
        shared.living = shared.writer(clock=iter(range(0, 10**9, 10**4)).__next__)
        with pytest.raises(ConcurrentWrite, match="the batch waited 60000 ms"):
            shared.send(1, ONE)

    exchange = Between(batches(TWO), refused)
    upsert(Storage.open(tmp_path), TWO, COW, exchange, OPTIMISTIC)
    assert HoodieTable.open(shared.storage).timeline().pending() == ()


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_shared_batches_stored_between_two_steps_of_an_optimistic_write_conflict_with_it(
    table_type: str, tmp_path: Path
) -> None:
    """The write has looked at the table and begun no instant yet, so the stream may go on."""
    options = {"serde_lab.stream.batches_per_commit": 9}
    shared = SmallStream.of(tmp_path, options=options, table_type=table_type)
    shared.start()
    shared.send(0, TWO)
    storage = Storage.open(tmp_path)
    write = prepare(storage, table_type, OPTIMISTIC)
    later: list[Row] = [("p", k, 50, "stream") for k in "abcd"]
    with write.hold():
        assert shared.send(1, later) is None
        with pytest.raises(WriteConflict, match="of another writer has stored bucket"):
            write.commit(InProcessExchange([batches([("p", k, 40, "batch") for k in "abcd"])]))
    check_readers(storage, seen_after(seen_after({}, TWO), later))
    assert HoodieTable.open(storage).timeline().pending() == ()


def test_the_options_of_an_optimistic_stream(tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match="batches that share a commit need the table for themselves"
    ):
        SmallStream.of(
            tmp_path, options={**OPTIMISTIC, "serde_lab.stream.batches_per_commit": 2}
        ).writer()
    stream = SmallStream.of(tmp_path, options=dict(SHORT_WAIT))
    with stream.writer().begin(MicroBatch("one", 0), SCHEMA) as prepared:
        assert prepared is not None
        assert prepared.options.concurrency is not None
        assert prepared.options.concurrency.lock.wait_ms == 50
        prepared.commit(InProcessExchange([batches(ONE)]))
