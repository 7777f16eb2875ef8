"""Batches through the write pipeline without Spark: stored once, by every operation and strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from serde_lab.errors import ConcurrentWrite, LabError, OptionError, SchemaError, TableError
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.streams.options import StreamOptions
from serde_lab.streams.stream_writer import MicroBatch, is_stored
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import Checkpoint
from serde_lab.table.timeline.timeline import Timeline
from tests.faults.small_table import (
    COW,
    MOR,
    SCHEMA,
    Row,
    Seen,
    batches,
    check_file_groups,
    check_readers,
    read_by_us,
    seen_after,
    upsert,
)
from tests.pipeline.lab_table import STRATEGIES
from tests.streams.small_stream import NO_SERVICES, SmallStream, metadata_of_commits, stated_batches

FIRST: Sequence[Row] = [("p", "a", 1, "first"), ("p", "b", 1, "first"), ("q", "c", 1, "first")]
SECOND: Sequence[Row] = [("p", "a", 2, "second"), ("q", "d", 2, "second")]
FRESH: Sequence[Row] = [("p", "e", 3, "third"), ("q", "f", 3, "third")]


def in_no_bucket(stream: SmallStream) -> SmallStream:
    """Without the bucket index, where rows that are inserted twice are there twice."""
    stream.options |= {
        "hoodie.index.type": "FLINK_STATE",
        "hoodie.bucket.index.num.buckets": None,
    }
    return stream


@pytest.mark.parametrize("strategy", [*STRATEGIES, "pickle_columns"])
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_each_strategy_stores_each_batch_once(
    strategy: str, table_type: str, tmp_path: Path
) -> None:
    stream = SmallStream.of(
        tmp_path, options={"serde_lab.strategy": strategy}, table_type=table_type
    )
    now: Seen = {}
    for number, rows in enumerate((FIRST, SECOND, FRESH)):
        commit = stream.send(number, rows)
        assert commit is not None
        assert commit.rows_inserted + commit.rows_updated == len(rows)
        before = HoodieTable.open(stream.storage).timeline().instants()
        # as after a driver that died before Spark noted the batch
        assert stream.send(number, [("p", "a", 99, "doubled")]) is None
        assert HoodieTable.open(stream.storage).timeline().instants() == before
        now = seen_after(now, rows)
        check_readers(stream.storage, now)
    check_file_groups(stream.storage)


TOPOLOGIES = {
    "state": "FLINK_STATE",
    "bloom": "BLOOM",
    "legacy": "SIMPLE",
    "step1": "SIMPLE",
    "step2": "SIMPLE",
    "step3": "INMEMORY",
    "compatible": "GLOBAL_SIMPLE",
}
"""An index for each topology that assigns file groups."""


@pytest.mark.parametrize("topology", [*TOPOLOGIES, "consistent"])
def test_each_topology_stores_each_batch_once(topology: str, tmp_path: Path) -> None:
    index = {
        "hoodie.index.type": TOPOLOGIES.get(topology),
        "hoodie.bucket.index.num.buckets": None,
        "serde_lab.topology": topology,
        "serde_lab.rows_per_frame": "1",
    }
    if topology == "consistent":
        index = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
    stream = SmallStream.of(tmp_path, options=index, table_type=MOR)
    now: Seen = {}
    for number, rows in enumerate((FIRST, SECOND, FRESH)):
        assert stream.send(number, rows) is not None
        assert stream.send(number, [("p", "a", 99, "doubled")]) is None
        now = seen_after(now, rows)
    check_readers(stream.storage, now)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_rows_that_are_only_appended_are_there_once(
    operation: str, table_type: str, tmp_path: Path
) -> None:
    given = {"operation": operation, "table_type": table_type}
    stream = in_no_bucket(SmallStream.of(tmp_path, **given))
    for number, rows in enumerate((FIRST, FRESH)):
        assert stream.send(number, rows) is not None
        assert stream.send(number, rows) is None
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), FRESH))


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_stream_of_deletes(table_type: str, tmp_path: Path) -> None:
    SmallStream.of(tmp_path, table_type=table_type).send(0, FIRST)
    deletes = SmallStream.of(
        tmp_path, query="two", identifier="gone", operation="delete", table_type=table_type
    )
    keys = pa.table({"p": ["p"], "k": ["a"]})
    assert deletes.send(0, keys) is not None
    upsert(deletes.storage, [("p", "a", 5, "came back")], table_type)
    assert deletes.send(0, keys) is None
    now = seen_after(seen_after({}, FIRST), [("p", "a", 5, "came back")])
    check_readers(deletes.storage, now)


def test_a_batch_of_no_row_and_of_one_row(tmp_path: Path) -> None:
    stream = SmallStream.of(tmp_path)
    assert stream.send(0, []) is not None
    assert read_by_us(stream.storage).num_rows == 0
    assert stream.send(1, [("p", "a", 1, "x")]) is not None
    empty = stream.send(2, [])
    assert empty is not None
    assert empty.stats == ()
    assert stream.send(2, [("p", "a", 9, "doubled")]) is None
    check_readers(stream.storage, {("p", "a"): (1, "x")})
    assert [one.extra_metadata["schema"] != "" for one in metadata_of_commits(stream.storage)] == (
        [True] * 3
    )


def test_a_schema_that_grows_between_batches(tmp_path: Path) -> None:
    stream = SmallStream.of(tmp_path)
    stream.send(0, FIRST)
    grown = pa.table({"p": ["p"], "k": ["a"], "ts": [2], "v": ["x"], "more": [7]})
    assert stream.send(1, grown) is not None
    with pytest.raises(SchemaError, match="more"):
        stream.send(2, SECOND)
    stream.options["hoodie.write.set.null.for.missing.columns"] = "true"
    assert stream.send(2, SECOND) is not None
    # what is stored needs no columns
    del stream.options["hoodie.write.set.null.for.missing.columns"]
    assert stream.send(2, SECOND) is None
    rows = {row["k"]: row["more"] for row in read_by_us(stream.storage).to_pylist()}
    assert rows == {"a": None, "b": None, "c": None, "d": None}


def test_a_batch_that_fails_is_undone_and_sent_again(tmp_path: Path) -> None:
    stream = SmallStream.of(tmp_path)
    with pytest.raises(LabError):
        stream.send(0, [("p", None, 1, "no key")])  # type: ignore[list-item]
    assert not HoodieTable.exists(stream.storage)
    stream.send(0, FIRST)
    with pytest.raises(LabError):
        stream.send(1, [*SECOND, ("p", None, 1, "no key")])  # type: ignore[list-item]
    check_readers(stream.storage, seen_after({}, FIRST))
    assert stream.send(1, SECOND) is not None
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), SECOND))


def test_a_refused_batch_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="comes first to this table"):
        SmallStream.of(tmp_path).send(3, FIRST)
    assert not HoodieTable.exists(Storage.open(tmp_path))
    stream = SmallStream.of(tmp_path)
    with pytest.raises(OptionError, match="the batch id is -1"):
        stream.send(-1, FIRST)
    stream.send(0, FIRST)
    before = HoodieTable.open(stream.storage).timeline().instants()
    with pytest.raises(OptionError, match="belongs to query one, which stored batch 0"):
        SmallStream.of(tmp_path, query="two").send(0, SECOND)
    with pytest.raises(TableError, match="batches 1 to 2 are missing"):
        stream.send(3, SECOND)
    with pytest.raises(OptionError, match="began with upsert"):
        SmallStream.of(tmp_path, operation="bulk_insert").send(1, SECOND)
    with pytest.raises(TableError, match="holds no batch of the identifier renamed"):
        SmallStream.of(tmp_path, identifier="renamed").send(1, SECOND)
    assert HoodieTable.open(stream.storage).timeline().instants() == before
    check_readers(stream.storage, seen_after({}, FIRST))


def test_two_queries_write_in_turns(tmp_path: Path) -> None:
    first, second = (
        SmallStream.of(tmp_path, query=name, identifier=name, options=NO_SERVICES)
        for name in ("one", "two")
    )
    now: Seen = {}
    for number in range(3):
        for stream, key in ((first, "a"), (second, "b")):
            rows = [("p", key, number, stream.query)]
            assert stream.send(number, rows) is not None
            assert stream.send(number, rows) is None
            now = seen_after(now, rows)
    check_readers(first.storage, now)
    assert stated_batches(first.storage)[-2:] == ['{"one": "2"}', '{"two": "2"}']


class Time:
    """A clock that moves when somebody waits; at `busy_until` the other writer is done."""

    def __init__(self, lock: TableLock, busy_until: float) -> None:
        self.now, self.lock, self.busy_until = 0.0, lock, busy_until

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.busy_until:
            self.lock.__exit__(None, None, None)
            self.busy_until = float("inf")


@pytest.mark.parametrize(("busy", "refused"), [(1.0, False), (3.0, True)])
def test_a_batch_waits_for_another_writer(busy: float, refused: bool, tmp_path: Path) -> None:
    stream = SmallStream.of(tmp_path, options={"hoodie.write.lock.wait_time_ms": "2000"})
    stream.send(0, FIRST)
    lock = TableLock(stream.storage, "compact")
    lock.__enter__()
    time = Time(lock, busy)
    writer = stream.writer(clock=time.clock, pause=time.pause)
    batch = MicroBatch("one", 1)
    if refused:
        said = r"by process \d+ on \S+ \(compact, since .*waited 2000 ms"
        with pytest.raises(ConcurrentWrite, match=said), writer.begin(batch, SCHEMA):
            pass
        lock.__exit__(None, None, None)
        return
    with writer.begin(batch, SCHEMA) as prepared:
        assert prepared is not None
        prepared.commit(InProcessExchange([batches(SECOND)]))
    assert busy <= time.now <= 2.0
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), SECOND))


def test_services_run_between_batches(tmp_path: Path) -> None:
    options = {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
    }
    stream = SmallStream.of(tmp_path, options=options, table_type=MOR)
    now: Seen = {}
    for number in range(9):
        rows = [("p", "ab"[number % 2], number, str(number))]
        assert stream.send(number, rows) is not None
        now = seen_after(now, rows)
        check_readers(stream.storage, now)
    timeline: Timeline = HoodieTable.open(stream.storage).timeline()
    actions = {instant.action for instant in timeline.instants()}
    assert {"commit", "deltacommit", "clean"} <= actions
    assert len(timeline.completed()) <= 6
    assert stream.send(8, [("p", "a", 99, "doubled")]) is None


@pytest.mark.parametrize(
    ("number", "planned_ms", "stored"),
    [(5, 10, True), (5, None, True), (4, None, True), (5, 11, None), (4, 10, None), (6, 11, False)],
)
def test_a_stored_number_is_the_stored_batch_if_spark_planned_it_then(
    number: int, planned_ms: int | None, stored: bool | None
) -> None:
    batch = MicroBatch("q", number, planned_ms=planned_ms)
    last = Checkpoint(5, "q", "upsert", 10)
    if stored is None:
        with pytest.raises(OptionError, match="Spark chose the rows of this one anew"):
            is_stored(batch, StreamOptions({}), last)
    else:
        assert is_stored(batch, StreamOptions({}), last) is stored
        assert is_stored(batch, StreamOptions({}), Checkpoint(5, "q", "upsert")) is stored
