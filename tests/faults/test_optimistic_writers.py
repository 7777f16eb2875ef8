"""Writers with optimistic concurrency control: disjoint writes commit, of two that overlap one is refused
with the other's instant, and nobody touches a live writer's files, whoever dies at whatever step.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest

from serde_lab.errors import ConcurrentWrite, OptionError, WriteConflict
from serde_lab.pipeline.commit.conflicts import ConflictRules
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.commit.table_services import archive_now, clean_now, compact, roll_back_now
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.write import PreparedWrite, table_to_write
from serde_lab.records.operation import Operation
from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.index.bucket_index import bucket_of_file_id
from serde_lab.table.storage.lock import HEARTBEATS, Holder, TableLock
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import archive as archiving
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant
from tests.faults.killed_driver import CONTEXT, DeadlyStorage, KillPoint, StepStorage
from tests.faults.small_table import (
    COW,
    KEPT,
    MOR,
    OPTIONS,
    Row,
    batches,
    check_file_groups,
    check_readers,
    make,
    prepare,
    read_by_hudi_rs,
    residue,
    seen_after,
    seen_by_us,
    upsert,
)
from tests.faults.test_killed_driver import Course, case_name

pytestmark = pytest.mark.slow

OPTIMISTIC = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
}
SHORT_WAIT = {**OPTIMISTIC, "hoodie.write.lock.wait_time_ms": "50"}
BLOOM = {"hoodie.bucket.index.num.buckets": None, "hoodie.index.type": "BLOOM"}
STATE = {
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.index.type": "FLINK_STATE",
    "serde_lab.topology": "state",
}
GLOBAL = {"hoodie.bucket.index.num.buckets": None, "hoodie.index.type": "GLOBAL_BLOOM"}
OURS: Sequence[Row] = [("q", "e", 5, "ours"), ("q", "f", 5, "ours")]
THEIRS: Sequence[Row] = [("p", "a", 7, "theirs"), ("r", "g", 7, "theirs")]
OVERLAP: Sequence[Row] = [("p", "a", 8, "overlap")]
Options = Mapping[str, str | None]


class Between(InProcessExchange):
    """Does something else once the data of a write is in place, before the write looks for conflicts."""

    def __init__(self, rows: list[pa.RecordBatch], act: Callable[[], object]) -> None:
        super().__init__([rows])
        self.act = act

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        stats = super().run(plan)
        self.act()
        return stats


def write(
    storage: Storage,
    rows: Sequence[Row],
    table_type: str = COW,
    options: Options = MappingProxyType({}),
    between: Callable[[], object] = lambda: None,
) -> Commit:
    exchange = Between(batches(rows), between)
    return upsert(storage, rows, table_type, exchange, {**OPTIMISTIC, **options})


def nothing_is_left(storage: Storage, of_the_dead: bool = False) -> None:
    """No write is pending, and nothing of one that failed is there; `of_the_dead`: one may have died once it
    was committed."""
    table = HoodieTable.open(storage)
    assert table.timeline().pending() == ()
    committed = {instant.time for instant in table.timeline().completed()}
    committed |= {time for time, _ in table.archived_timeline().times()}
    assert {f.instant for f in list_table_files(storage).data_files} <= committed
    if not of_the_dead:
        assert storage.list_files(HEARTBEATS) == []
        assert storage.list_files(".hoodie/.temp") == []
    check_file_groups(storage)


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("ours_first", [True, False], ids=["first-commits", "second-commits"])
def test_writes_to_disjoint_file_groups_both_commit(
    table_type: str, ours_first: bool, tmp_path: Path
) -> None:
    """Both are begun before either commits; then they commit in either order."""
    storage = make(tmp_path, table_type)
    if ours_first:
        # theirs begins last and commits first
        write(storage, OURS, table_type, between=lambda: write(storage, THEIRS, table_type))
    else:
        both_begun, ours_done = threading.Event(), threading.Event()
        failed: list[BaseException] = []

        def theirs() -> None:
            def wait() -> None:
                both_begun.set()
                ours_done.wait(30)

            try:
                write(Storage.open(tmp_path), THEIRS, table_type, between=wait)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=theirs)

        def begin_theirs() -> None:
            thread.start()
            assert both_begun.wait(30)

        write(storage, OURS, table_type, between=begin_theirs)
        ours_done.set()
        thread.join(30)
        assert failed == []
    check_readers(storage, seen_after(seen_after(KEPT, OURS), THEIRS))
    nothing_is_left(storage)


def test_buckets_of_one_partition_are_different_file_groups(tmp_path: Path) -> None:
    storage = make(tmp_path)
    # which of the keys are in which bucket, by the files that their updates touch
    touched = {k: write(storage, [("p", k, 3, "x")]).stats[0].fileId for k in "abcd"}
    buckets = {k: bucket_of_file_id(file_id) for k, file_id in touched.items()}
    one = next(k for k in "abcd" if buckets[k] == 0)
    other = next(k for k in "abcd" if buckets[k] == 1)
    mine: list[Row] = [("p", one, 5, "mine")]
    yours: list[Row] = [("p", other, 6, "yours")]
    before = seen_by_us(storage)
    write(storage, mine, between=lambda: write(storage, yours))
    check_readers(storage, seen_after(seen_after(before, mine), yours))
    with pytest.raises(
        WriteConflict, match=r"has stored bucket 0 of partition 'p' since our instant"
    ):
        write(storage, mine, between=lambda: write(storage, mine))


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("index", [{}, BLOOM, STATE], ids=["bucket", "bloom", "state"])
def test_of_two_overlapping_writes_one_is_refused_and_undone(
    index: Options, table_type: str, tmp_path: Path
) -> None:
    storage = make(tmp_path, table_type, index)
    other: list[str] = []

    def overlap() -> None:
        other.append(write(storage, OVERLAP, table_type, index).instant)

    with pytest.raises(WriteConflict, match="of another writer has stored") as refused:
        write(storage, THEIRS, table_type, index, overlap)
    assert f"instant {other[0]} (upsert)" in str(refused.value)
    check_readers(storage, seen_after(KEPT, OVERLAP))
    nothing_is_left(storage)
    write(storage, THEIRS, table_type, index)
    # the earlier row of a has the higher ordering value
    check_readers(storage, {**seen_after(KEPT, THEIRS), ("p", "a"): (8, "overlap")})


@pytest.mark.parametrize("operation", ["insert", "upsert"])
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_two_inserts_into_one_new_bucket_conflict(
    operation: str, table_type: str, tmp_path: Path
) -> None:
    storage = make(tmp_path, table_type)
    how = {"hoodie.datasource.write.operation": operation, "serde_lab.seed": None}
    new: list[Row] = [("new", "a", 1, "first")]
    late: list[Row] = [("new", "a", 2, "late")]
    with pytest.raises(WriteConflict, match=r"bucket . of partition 'new'"):
        write(storage, late, table_type, how, lambda: write(storage, new, table_type, how))
    check_readers(storage, seen_after(KEPT, new))
    nothing_is_left(storage)


@pytest.mark.parametrize("index", [BLOOM, GLOBAL], ids=["bloom", "global"])
def test_a_key_that_two_writes_add_is_stored_once(index: Options, tmp_path: Path) -> None:
    """Both look the key up and miss it, and would put it into file groups of their own."""
    storage = make(tmp_path, COW, index)
    theirs: list[Row] = [("q", "new", 1, "theirs")]
    ours: list[Row] = [("q" if index is BLOOM else "r", "new", 2, "ours")]
    apart = {**index, "serde_lab.seed": None}
    with pytest.raises(WriteConflict, match="new keys"):
        write(storage, ours, COW, apart, lambda: write(storage, theirs, COW, apart))
    check_readers(storage, seen_after(KEPT, theirs))
    # updates of other file groups, and new keys of other partitions under an index that is not global
    if index is BLOOM:
        elsewhere: list[Row] = [("z", "new", 3, "elsewhere")]
        theirs = [("q", "newer", 3, "theirs")]
        write(storage, elsewhere, COW, apart, lambda: write(storage, theirs, COW, apart))
        assert ("z", "new") in seen_by_us(storage)
        assert ("q", "newer") in seen_by_us(storage)


def test_replaced_file_groups_conflict_with_writes_to_them(tmp_path: Path) -> None:
    storage = make(tmp_path)
    removal = {
        "hoodie.datasource.write.operation": "delete_partition",
        "hoodie.datasource.write.partitions.to.delete": "p",
    }

    def remove() -> None:
        upsert(storage, (), COW, InProcessExchange([]), {**OPTIMISTIC, **removal})

    write(storage, OURS)
    with pytest.raises(WriteConflict, match=r"\(delete_partition\).*bucket . of partition 'p'"):
        write(storage, OVERLAP, between=remove)
    check_readers(storage, seen_after({}, OURS))
    made = make(tmp_path / "other")
    overwrite = {"hoodie.datasource.write.operation": "insert_overwrite"}
    with pytest.raises(WriteConflict, match=r"\(upsert\).*bucket . of partition 'p'"):
        write(made, THEIRS, COW, overwrite, lambda: write(made, OVERLAP))
    check_readers(made, seen_after(KEPT, OVERLAP))
    nothing_is_left(made)


def test_what_an_overwrite_replaces_is_settled_when_nobody_else_can_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a key of both would be stored twice: in a new file group each."""
    storage = make(tmp_path, COW, BLOOM)
    settles = PreparedWrite._replaced

    def beside_another(prepared: PreparedWrite, stats: tuple[WriteStat, ...]) -> object:
        if prepared.options.operation is Operation.INSERT_OVERWRITE:
            with pytest.raises(ConcurrentWrite, match="is being written by process"):
                write(storage, [("p", "new", 2, "theirs")], COW, {**BLOOM, **SHORT_WAIT})
        return settles(prepared, stats)

    monkeypatch.setattr(PreparedWrite, "_replaced", beside_another)
    overwrite = {**BLOOM, "hoodie.datasource.write.operation": "insert_overwrite"}
    write(storage, [("p", "new", 1, "ours")], COW, overwrite)
    found = seen_by_us(storage)
    assert {key: row for key, row in found.items() if key[0] == "p"} == {("p", "new"): (1, "ours")}


def test_a_single_writer_is_refused_beside_an_optimistic_one_by_name(tmp_path: Path) -> None:
    storage = make(tmp_path, MOR)
    table = HoodieTable.open(storage)
    who = rf"is being written by process {os.getpid()} on \S+ \(upsert, since .*whose instant \d+ is pending"

    def others() -> None:
        for act in (
            lambda: upsert(storage, OVERLAP, MOR),
            lambda: compact(table),
            lambda: clean_now(table, 1),
            lambda: archive_now(table, 1, 2),
            lambda: roll_back_now(table),
        ):
            with pytest.raises(ConcurrentWrite, match=who):
                act()

    write(storage, OURS, MOR, between=others)
    check_readers(storage, seen_after(KEPT, OURS))
    nothing_is_left(storage)


def test_an_optimistic_writer_waits_for_a_single_one_and_is_refused_by_name(tmp_path: Path) -> None:
    storage = make(tmp_path)
    who = rf"is being written by process {os.getpid()} on \S+ \(long work, since "
    lock = TableLock(storage, "long work")
    with lock, pytest.raises(ConcurrentWrite, match=who):
        write(storage, OURS, COW, SHORT_WAIT)
    lock.__enter__()
    timer = threading.Timer(0.3, lock.__exit__, (None, None, None))
    timer.start()
    write(storage, OURS)
    # the lock that it has to take again to commit
    stack = TableLock(storage, "long work")
    with pytest.raises(ConcurrentWrite, match=who):
        write(storage, THEIRS, COW, SHORT_WAIT, lambda: stack.__enter__())
    stack.__exit__()
    check_readers(storage, seen_after(KEPT, OURS))
    # what it could not undo, the next writer does
    upsert(storage, OVERLAP)
    nothing_is_left(storage)


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_compaction_beside_a_writer_loses_nothing(overlaps: bool, tmp_path: Path) -> None:
    """Logs that were begun before the compaction and completed after it count on top of it."""
    storage = make(tmp_path, MOR)
    services = {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "1",
    }
    elsewhere: list[Row] = [("r", "g", 7, "elsewhere")]
    ours: list[Row] = [("p", k, 9, "ours") for k in "abcd"]
    compacted: list[bool] = []

    def serve() -> None:
        options = {**OPTIMISTIC, **services}
        prepared = prepare(storage, MOR, options)
        with prepared.hold():
            prepared.commit(InProcessExchange([batches(ours if overlaps else elsewhere)]))
            compacted.append(prepared.serve().compacted is not None)

    if overlaps:
        with pytest.raises(WriteConflict):
            write(storage, ours, MOR, between=serve)
        check_readers(storage, seen_after(KEPT, ours))
    else:
        write(storage, ours, MOR, between=serve)
        check_readers(storage, seen_after(seen_after(KEPT, ours), elsewhere))
    assert compacted == [True]
    nothing_is_left(storage)


@pytest.mark.parametrize("index", [BLOOM, {**BLOOM, "hoodie.index.type": "SIMPLE"}])
def test_a_key_that_a_compaction_took_away_is_not_logged_beside_it(
    index: Options, tmp_path: Path
) -> None:
    """The write found it in the old base file. In a log alone, the next write would not find it."""
    storage = make(tmp_path, MOR, index)
    delete = {**index, "hoodie.datasource.write.operation": "delete"}
    upsert(storage, [("p", "a", 8, "")], MOR, options=delete)
    gone = {key: value for key, value in KEPT.items() if key != ("p", "a")}
    services = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    elsewhere: list[Row] = [("r", "g", 7, "elsewhere")]

    def serve() -> None:
        prepared = prepare(storage, MOR, {**OPTIMISTIC, **index, **services})
        with prepared.hold():
            prepared.commit(InProcessExchange([batches(elsewhere)]))
            assert prepared.serve().compacted is not None

    ours: list[Row] = [("p", "a", 9, "ours")]
    with pytest.raises(WriteConflict, match="without its deleted keys"):
        write(storage, ours, MOR, index, between=serve)
    later: list[Row] = [("p", "a", 10, "later")]
    write(storage, ours, MOR, index)
    write(storage, later, MOR, index)
    check_readers(storage, seen_after(seen_after(gone, elsewhere), later))


def test_a_compaction_conflicts_with_base_files_of_its_groups_alone() -> None:
    rules = ConflictRules(by_bucket=False)
    base = WriteStat(fileId="f", path="p/f_0-1-0_1.parquet", partitionPath="p", prevCommit="1")
    log = WriteStat(fileId="f", path="p/.f_2.log.1_0-1-0", partitionPath="p", logFiles=("x",))
    compaction = CommitMetadata("COMPACT", (base,), compacted=True)
    assert rules.clash(CommitMetadata("UPSERT", (log,)), compaction, "") is None
    assert rules.clash(CommitMetadata("UPSERT", (base,)), compaction, "") is not None
    # whoever else makes a base file has read the logs of the group without ours
    assert rules.clash(CommitMetadata("UPSERT", (log,)), CommitMetadata("UPSERT", (base,)), "")


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_cleaning_and_archiving_beside_a_writer_leave_it_what_it_needs(
    table_type: str, tmp_path: Path
) -> None:
    """Also a conflict with a commit that began earlier, completed meanwhile and would be archived."""
    storage = make(tmp_path, table_type)
    short = {
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    earlier_begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def earlier() -> None:
        def wait() -> None:
            earlier_begun.set()
            go_on.wait(30)

        write(Storage.open(tmp_path), OVERLAP, table_type, between=wait)
        done.set()

    thread = threading.Thread(target=earlier)
    thread.start()
    assert earlier_begun.wait(30)

    def later() -> None:
        go_on.set()
        assert done.wait(30)
        for number in range(6):
            prepared = prepare(storage, table_type, {**OPTIMISTIC, **short})
            with prepared.hold():
                rows: list[Row] = [("z", "z", number, str(number))]
                prepared.commit(InProcessExchange([batches(rows)]))
                prepared.serve()

    with pytest.raises(WriteConflict, match=r"bucket . of partition 'p'"):
        write(storage, THEIRS, table_type, between=later)
    thread.join()
    expected = seen_after(seen_after(KEPT, OVERLAP), [("z", "z", 5, "5")])
    check_readers(storage, expected)
    archive(HoodieTable.open(storage), 2, 3)
    check_readers(storage, expected)
    nothing_is_left(storage)


def test_a_slice_that_a_pending_write_reads_is_not_cleaned(tmp_path: Path) -> None:
    """A write that began before ours replaces the slice after we have looked at it."""
    storage = make(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def earlier() -> None:
        def wait() -> None:
            begun.set()
            go_on.wait(30)

        write(Storage.open(tmp_path), [("p", k, 4, "earlier") for k in "abcd"], between=wait)

    thread = threading.Thread(target=earlier)
    thread.start()
    assert begun.wait(30)
    before = {f.path for f in HoodieTable.open(storage).view().latest_base_files()}

    def clean() -> None:
        go_on.set()
        thread.join(30)
        prepared = prepare(storage, COW, {**OPTIMISTIC, "hoodie.clean.commits.retained": "1"})
        with prepared.hold():
            prepared.commit(InProcessExchange([batches([("z", "z", 1, "z")])]))
            prepared.serve()
        assert all(storage.exists(path) for path in before)

    write(storage, OURS, between=clean)
    nothing_is_left(storage)


def write_wider(
    storage: Storage, column: str, between: Callable[[], object] = lambda: None
) -> Commit:
    """A row with a column more."""
    rows = pa.table({"p": ["wide"], "k": ["w"], "ts": [1], "v": ["wide"], column: [1]})
    return write_table(
        storage, rows, between, {"hoodie.write.set.null.for.missing.columns": "true"}
    )


def write_table(
    storage: Storage, rows: pa.Table, between: Callable[[], object], options: Mapping[str, str]
) -> Commit:
    """Rows of any columns."""
    stored = table_to_write(storage)
    given = {**OPTIONS, **OPTIMISTIC, **options}
    parsed = parse_options(given, None if stored is None else stored.config)
    prepared = PreparedWrite.of(storage, rows.schema, parsed)
    return prepared.commit(Between(rows.to_batches(), between))


def test_a_delete_that_found_no_columns_states_those_of_another_writer(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    table = HoodieTable.create(storage, parse_options(OPTIONS).table)
    gone = pa.table({"p": ["nowhere"], "k": ["none"]})
    options = {**OPTIONS, **OPTIMISTIC, "hoodie.datasource.write.operation": "delete"}
    prepared = PreparedWrite.of(storage, gone.schema, parse_options(options, table.config))
    with prepared.hold():
        write(storage, OURS)
        prepared.commit(InProcessExchange([gone.to_batches()]))
    check_readers(storage, seen_after({}, OURS))


def test_a_column_that_another_writer_adds_meanwhile_stays(tmp_path: Path) -> None:
    storage = make(tmp_path)
    write(storage, OURS, between=lambda: write_wider(storage, "extra"))
    table = HoodieTable.open(storage)
    schema = table.data_schema()
    assert schema is not None
    assert schema.names[-1] == "extra"
    check_readers(storage, {**seen_after(KEPT, OURS), ("wide", "w"): (1, "wide")})
    with pytest.raises(WriteConflict, match="other columns since our instant"):
        write_wider(storage, "one", lambda: write_wider(storage, "two"))
    nothing_is_left(storage)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_columns_change_by_the_write_that_began_last(table_type: str, tmp_path: Path) -> None:
    """Apache Hudi and hudi-rs take the columns of the write that began last, whenever it completed."""
    storage = make(tmp_path, table_type)
    with pytest.raises(
        WriteConflict, match=r"began after our instant .* changes the table's columns"
    ):
        write_wider(storage, "extra", lambda: write(storage, OURS, table_type))
    nothing_is_left(storage)
    write_wider(storage, "extra")
    check_readers(storage, {**seen_after(KEPT, OURS), ("wide", "w"): (1, "wide")})
    assert read_by_hudi_rs(storage).column("extra").drop_null().to_pylist() == [1]


def write_number(
    storage: Storage, key: str, number: pa.Array, between: Callable[[], object], **options: str
) -> Commit:
    rows = pa.table({"p": [key], "k": [key], "ts": [5], "v": ["new"], "n": number})
    if "serde_lab.partial_updates" in options:
        rows = rows.drop_columns(["v"])
    return write_table(
        storage, rows, between, {"hoodie.datasource.write.table.type": MOR, **options}
    )


@pytest.mark.parametrize("first", ["wider", "partial"])
def test_a_column_does_not_become_wider_beside_partial_updates_of_it(
    first: str, tmp_path: Path
) -> None:
    storage = Storage.open(tmp_path)
    narrow, wide = pa.array([7], pa.int32()), pa.array([1 << 40], pa.int64())

    def partial(between: Callable[[], object] = lambda: None) -> Commit:
        options = {"serde_lab.partial_updates": "true"}
        return write_number(storage, "a", narrow, between, **options)

    def wider(between: Callable[[], object] = lambda: None) -> Commit:
        return write_number(storage, "b", wide, between)

    for key in "ab":
        write_number(storage, key, narrow, lambda: None)
    with pytest.raises(WriteConflict, match="'n' became wider since our instant"):
        wider(partial) if first == "partial" else partial(wider)
    schema = HoodieTable.open(storage).data_schema()
    assert schema is not None
    assert schema.field("n").type == (pa.int32() if first == "partial" else pa.int64())
    nothing_is_left(storage)


BASE, LOG = ("+marker", "+base file"), ("+marker", "+log file")
NEW = ("+partition metadata", *BASE)
COURSES = (
    Course(
        "optimistic commit",
        "upsert",
        COW,
        (
            *("+heartbeat", "+commit.requested", "+inflight", *BASE, *NEW, "+commit"),
            *("-marker", "-marker", "-heartbeat"),
        ),
    ),
    Course(
        "optimistic deltacommit",
        "upsert",
        MOR,
        (
            *("+heartbeat", "+deltacommit.requested", "+deltacommit.inflight", *LOG, *NEW),
            *("+deltacommit", "-marker", "-marker", "-heartbeat"),
        ),
    ),
)
CASES = [(course, point) for course in COURSES for point in course.points]


@pytest.mark.parametrize("course", COURSES, ids=case_name)
def test_an_optimistic_driver_makes_these_steps(course: Course, tmp_path: Path) -> None:
    make(tmp_path, course.table_type)
    storage = StepStorage(str(tmp_path))
    write(storage, THEIRS, course.table_type)
    assert tuple(storage.steps) == course.steps


def _write_and_die(mark: Connection, place: str, table_type: str, point: KillPoint) -> None:
    storage = DeadlyStorage(place)
    storage.point, storage.mark = point, mark
    write(storage, THEIRS, table_type)
    mark.send("survived")


def _died(what: Callable[..., None], *arguments: object) -> str:
    """The step after which a process that does this was killed."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(target=what, args=(theirs, *arguments))
    child.start()
    theirs.close()
    step = str(ours.recv())
    child.join()
    assert child.exitcode == -signal.SIGKILL, step
    return step


@pytest.mark.parametrize(("course", "point"), CASES, ids=case_name)
def test_an_optimistic_writer_is_killed_beside_a_live_one(
    course: Course, point: KillPoint, tmp_path: Path
) -> None:
    """A third one undoes the dead writer's instant while the live one's is pending."""
    storage, kind = make(tmp_path, course.table_type), course.table_type
    third: list[Row] = [("r", "g", 9, "third"), ("p", "b", 9, "third")]
    seen = dict(KEPT)

    def beside() -> None:
        assert _died(_write_and_die, str(tmp_path), kind, point) == course.steps[point.number]
        survives = point.number + (not point.halfway) > course.completed_at
        seen.update(seen_after(seen, THEIRS) if survives else {})
        check_readers(storage, seen)
        write(storage, third, kind)
        seen.update(seen_after(seen, third))
        check_readers(storage, seen)

    write(storage, OURS, kind, between=beside)
    seen.update(seen_after(seen, OURS))
    check_readers(storage, seen)
    last: list[Row] = [("q", "e", 20, "after")]
    write(storage, last, kind)
    check_readers(storage, seen_after(seen, last))
    nothing_is_left(storage, of_the_dead=True)


REFUSED = Course(
    "refused optimistic commit",
    "upsert",
    COW,
    (
        *("+heartbeat", "+commit.requested", "+inflight", *BASE, *NEW, "-heartbeat"),
        *("+rollback.requested", "+rollback.inflight", "-inflight", "-base file", "-base file"),
        *("-commit.requested", "+rollback", "-marker", "-marker"),
    ),
)


def _write_and_be_refused(storage: Storage) -> None:
    """The other write has another storage, which counts no steps."""
    theirs: list[Row] = [("p", "a", 7, "refused"), ("s", "h", 7, "refused")]
    write(storage, theirs, between=lambda: write(Storage.open(storage.url), OVERLAP))


def _be_refused_and_die(mark: Connection, place: str, point: KillPoint) -> None:
    storage = DeadlyStorage(place)
    storage.point, storage.mark = point, mark
    _write_and_be_refused(storage)


def test_a_refused_driver_makes_these_steps(tmp_path: Path) -> None:
    make(tmp_path)
    storage = StepStorage(str(tmp_path))
    with pytest.raises(WriteConflict):
        _write_and_be_refused(storage)
    assert tuple(storage.steps) == REFUSED.steps


@pytest.mark.parametrize(("course", "point"), [(REFUSED, p) for p in REFUSED.points], ids=case_name)
def test_a_refused_writer_is_killed_while_it_undoes_its_write(
    course: Course, point: KillPoint, tmp_path: Path
) -> None:
    storage, seen = make(tmp_path), dict(KEPT)

    def beside() -> None:
        step = _died(_be_refused_and_die, str(tmp_path), point)
        assert step == course.steps[point.number]
        # the other one writes once the data of the refused one is there
        last_data = course.steps.index("-heartbeat") - 1
        if point.number > last_data:
            seen.update(seen_after(seen, OVERLAP))
        check_readers(storage, seen)
        third: list[Row] = [("r", "g", 9, "third")]
        write(storage, third)
        seen.update(seen_after(seen, third))
        check_readers(storage, seen)

    write(storage, OURS, between=beside)
    check_readers(storage, seen_after(seen, OURS))
    nothing_is_left(storage, of_the_dead=True)


def _beat(storage: Storage, instant: str, seconds: float, host: str = "another-host") -> None:
    holder = Holder(host, 1, "2026-01-01 00:00:00 UTC", "upsert", time.time() + seconds)
    storage.replace(f"{HEARTBEATS}/{instant}", holder.to_bytes())


def test_a_writer_on_another_host_lives_as_long_as_its_heartbeat(tmp_path: Path) -> None:
    storage = make(tmp_path)
    instant = Coordinator(HoodieTable.open(storage)).begin("upsert").time
    _beat(storage, instant, 60)
    with pytest.raises(ConcurrentWrite, match="written by process 1 on another-host"):
        upsert(storage, OVERLAP)
    write(storage, OURS)
    assert residue(storage, instant).pending == (instant,)
    _beat(storage, instant, -1)
    write(storage, OVERLAP)
    assert residue(storage, instant).pending == ()
    check_readers(storage, seen_after(seen_after(KEPT, OURS), OVERLAP))
    nothing_is_left(storage)


def test_a_heartbeat_of_hudi_counts_by_its_age(tmp_path: Path) -> None:
    storage = make(tmp_path)
    instant = Coordinator(HoodieTable.open(storage)).begin("upsert").time
    storage.replace(f"{HEARTBEATS}/{instant}", b"")
    with pytest.raises(
        ConcurrentWrite, match=r"written by Apache Hudi, whose heartbeat is \d+ s old"
    ):
        upsert(storage, OVERLAP)
    old = time.time() - 1000
    os.utime(tmp_path / HEARTBEATS / instant, (old, old))
    upsert(storage, OVERLAP)
    check_readers(storage, seen_after(KEPT, OVERLAP))
    nothing_is_left(storage)


def test_a_writer_that_was_taken_for_dead_commits_nothing(tmp_path: Path) -> None:
    """Its process stood still for longer than its heartbeat counts, and others went on."""
    storage = make(tmp_path)

    def stand_still() -> None:
        (beat,) = storage.list_files(HEARTBEATS)
        _beat(storage, beat.name, -1, socket.gethostname())
        write(storage, [("q", "e", 1, "went on")], options={"serde_lab.seed": "9"})

    with pytest.raises(ConcurrentWrite, match="another writer rolled back our instant"):
        write(storage, [("r", "g", 5, "late")], between=stand_still)
    check_readers(storage, seen_after(KEPT, [("q", "e", 1, "went on")]))
    nothing_is_left(storage)


def test_a_heartbeat_is_renewed_while_the_write_goes_on(tmp_path: Path) -> None:
    storage = make(tmp_path)
    often = {"hoodie.client.heartbeat.interval_in_ms": "20"}
    seen: list[float] = []

    def watch() -> None:
        (beat,) = storage.list_files(HEARTBEATS)
        for _ in range(2):
            seen.append(json.loads(storage.get(beat.path))["valid_until_epoch_s"])
            time.sleep(0.3)

    write(storage, OURS, options=often, between=watch)
    assert seen[1] > seen[0]
    nothing_is_left(storage)


def test_a_process_that_cannot_be_seen_is_not_taken_for_dead(tmp_path: Path) -> None:
    """It has the number of none of ours: it is in another container on this host."""
    storage = make(tmp_path)
    instant = Coordinator(HoodieTable.open(storage)).begin("upsert").time
    holder = Holder.here("upsert").valid_for(60)
    unseen = replace(holder, pid=2**22 - 1, processes="pid:[elsewhere]")
    storage.replace(f"{HEARTBEATS}/{instant}", unseen.to_bytes())
    with pytest.raises(ConcurrentWrite, match="is being written by process 4194303"):
        upsert(storage, OVERLAP)
    storage.replace(
        f"{HEARTBEATS}/{instant}", replace(unseen, processes=holder.processes).to_bytes()
    )
    upsert(storage, OVERLAP)
    check_readers(storage, seen_after(KEPT, OVERLAP))


def test_two_commits_in_one_hold_do_not_conflict_with_each_other(tmp_path: Path) -> None:
    storage = make(tmp_path)
    prepared = prepare(storage, COW, OPTIMISTIC)
    with prepared.hold():
        prepared.commit(InProcessExchange([batches(OURS)]))
        prepared.commit(InProcessExchange([batches([("q", "e", 6, "again")])]))
    check_readers(storage, {**seen_after(KEPT, OURS), ("q", "e"): (6, "again")})
    nothing_is_left(storage)


def test_two_first_writers_share_the_table_that_one_of_them_makes(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    write(storage, OURS, between=lambda: write(storage, THEIRS))
    check_readers(storage, seen_after(seen_after({}, OURS), THEIRS))
    nothing_is_left(storage)


def test_a_first_writer_that_fails_leaves_the_table_to_the_others(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)

    def then_fail() -> None:
        write(storage, THEIRS)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(storage, OURS, between=then_fail)
    check_readers(storage, seen_after({}, THEIRS))
    nothing_is_left(storage)


def _served(storage: Storage, rows: Sequence[Row], services: Options) -> None:
    prepared = prepare(storage, MOR, {**OPTIMISTIC, **services})
    with prepared.hold():
        prepared.commit(InProcessExchange([batches(rows)]))
        prepared.serve()


COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
TIDY = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
NEWER: Sequence[Row] = [(p, k, ts + 10, "newer") for p, k, ts, _ in OURS]


def compacted_beside_a_log(folder: Path) -> tuple[Storage, Instant, Instant]:
    """A table whose logs are compacted while another one is written; the write and the compaction."""
    storage = make(folder, MOR)
    for _ in range(2):  # the second one goes to logs, so that there is something to compact
        write(storage, OURS, MOR)
    write(storage, NEWER, MOR, between=lambda: _served(storage, THEIRS, COMPACTING))
    done = HoodieTable.open(storage).timeline().completed()
    (beside,) = (instant for instant in done if instant.action == "commit")
    (written,) = (i for i in done if i.time < beside.time < (i.completion_time or ""))
    return storage, written, beside


def test_a_log_stays_on_the_base_file_that_was_begun_beside_it_after_archiving(
    tmp_path: Path,
) -> None:
    """Once its instant is archived, only the history knows that it completed after that file was begun, and
    hudi-rs does not look there."""
    storage, written, _ = compacted_beside_a_log(tmp_path)
    expected = seen_after(seen_after(KEPT, OURS), NEWER)
    later: list[Row] = []
    for turn in range(6):
        later = [(p, k, ts + 20 + turn, "later") for p, k, ts, _ in THEIRS]
        _served(storage, later, TIDY)
        check_readers(storage, seen_after(expected, later))
    assert written.time in {i.time for i in HoodieTable.open(storage).timeline().completed()}
    # the next compaction takes the log into a base file, and then all of it may go
    _served(storage, later, COMPACTING)
    for _ in range(6):
        _served(storage, later, TIDY)
    check_readers(storage, seen_after(expected, later))
    assert written.time not in {i.time for i in HoodieTable.open(storage).timeline().completed()}
    nothing_is_left(storage)


def test_a_log_that_another_writer_archived_stays_on_the_base_file_that_was_begun_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Hudi archives such an instant, and looks up in the history when it completed."""
    monkeypatch.setattr(archiving, "_lies_by_completion", lambda *_: False)
    storage, written, beside = compacted_beside_a_log(tmp_path)
    for turn in range(6):
        later = [(p, k, ts + 20 + turn, "later") for p, k, ts, _ in THEIRS]
        _served(storage, later, TIDY)
        expected = seen_after(seen_after(seen_after(KEPT, OURS), NEWER), later)
        assert seen_by_us(storage) == expected
    assert written.time not in {i.time for i in HoodieTable.open(storage).timeline().completed()}
    lies = {
        slice_.base_instant
        for slice_ in HoodieTable.open(storage).view().file_slices()
        if any(log.instant == written.time for log in slice_.log_files)
    }
    assert lies == {beside.time}


def _work(line: Connection, place: str, number: int, seed: int, table_type: str) -> None:
    """Write own keys, some into shared file groups; say which writes were stored."""
    chance = random.Random(seed)
    storage = Storage.open(place)
    services = {
        "hoodie.compact.inline": "true" if table_type == MOR else None,
        "hoodie.compact.inline.max.delta.commits": "3" if table_type == MOR else None,
        "hoodie.clean.commits.retained": "2",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "6",
        "serde_lab.seed": None,
        "hoodie.write.lock.wait_time_ms": "120000",
    }
    for turn in range(8):
        partitions = {f"own {number}", chance.choice(["s", "t", f"own {number}"])}
        rows: list[Row] = [
            (p, f"w{number} {chance.randrange(4)}", turn, f"{number}.{turn}") for p in partitions
        ]
        line.send(("begun", rows))
        try:
            prepared = prepare(storage, table_type, {**OPTIMISTIC, **services})
            with prepared.hold():
                prepared.commit(InProcessExchange([batches(rows)]))
                line.send(("stored", rows))
                prepared.serve()
        except WriteConflict:
            line.send(("refused", rows))
    line.send(("done", []))


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_many_processes_write_at_once_and_one_is_killed(table_type: str, tmp_path: Path) -> None:
    """Every stored row is there, none that was refused is; of the killed one's last write all or nothing."""
    storage = make(tmp_path, table_type)
    expected = dict(KEPT)
    children = []
    for number in range(3):
        ours, theirs = CONTEXT.Pipe(duplex=False)
        child = CONTEXT.Process(
            target=_work, args=(theirs, str(tmp_path), number, number, table_type)
        )
        child.start()
        theirs.close()
        children.append((child, ours))
    outcomes = []
    open_writes: list[Row] = []
    victim, said = children[0]
    for _ in range(7):
        outcomes.append((0, *said.recv()))
    victim.kill()
    victim.join()
    for number, (_, line) in enumerate(children):
        while True:
            try:
                outcome, rows = line.recv()
            except EOFError:
                break
            outcomes.append((number, outcome, rows))
    counted = {"stored": 0, "refused": 0}
    for number, outcome, rows in outcomes:
        if outcome == "begun":
            open_writes = rows if number == 0 else open_writes
        elif outcome in counted:
            counted[outcome] += 1
            open_writes = [] if number == 0 else open_writes
            if outcome == "stored":
                expected = seen_after(expected, rows)
    for child, _ in children[1:]:
        child.join()
        assert child.exitcode == 0
    assert sum(outcome == "done" for _, outcome, _ in outcomes) == 2
    # the killed one may have completed its last write without a word
    whole = seen_after(expected, open_writes)
    found = seen_by_us(storage)
    assert found in (expected, whole)
    check_readers(storage, found)
    write(storage, OVERLAP, table_type)
    check_readers(storage, seen_after(found, OVERLAP))
    assert counted["stored"] > 8
    assert HoodieTable.open(storage).timeline().pending() == ()
    check_file_groups(storage)
    shutil.rmtree(tmp_path)


def test_the_same_in_an_object_store(s3_options: dict[str, str]) -> None:
    in_store = {
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
        )
    }
    storage = Storage.open(f"s3://lake/optimistic{os.getpid()}", **s3_options)
    make(storage)
    write(storage, OURS, COW, in_store, lambda: write(storage, THEIRS, COW, in_store))
    now = seen_after(seen_after(KEPT, OURS), THEIRS)
    check_readers(storage, now)
    with pytest.raises(WriteConflict):
        write(storage, THEIRS, COW, in_store, lambda: write(storage, OVERLAP, COW, in_store))
    check_readers(storage, seen_after(now, OVERLAP))
    nothing_is_left(storage)


BAD: dict[str, tuple[Options, str]] = {
    "no provider": ({"hoodie.write.lock.provider": None}, "hoodie.write.lock.provider is ''"),
    "zookeeper": (
        {
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
        },
        "expected one of .*FileSystemBasedLockProvider",
    ),
    "of stores": (
        {
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
        },
        "is local",
    ),
    "eager": ({"hoodie.clean.failed.writes.policy": "EAGER"}, "expected LAZY"),
    "older name": ({"hoodie.cleaner.policy.failed.writes": "NEVER"}, "expected LAZY"),
    "mode": (
        {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
        "SINGLE_WRITER or",
    ),
    "single": ({"hoodie.write.concurrency.mode": None}, "is for OPTIMISTIC_CONCURRENCY_CONTROL"),
    "lazy single": (
        {
            "hoodie.write.concurrency.mode": "SINGLE_WRITER",
            "hoodie.write.lock.provider": None,
            "hoodie.clean.failed.writes.policy": "LAZY",
        },
        "expected EAGER",
    ),
    "version 6": ({"hoodie.write.table.version": "6"}, "is of version 6"),
    "rings": (
        {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
        "has consistent hashing",
    ),
    "state": (
        {**BLOOM, "serde_lab.topology": "bloom", "serde_lab.assigner_state": "true"},
        "lets other writers add keys",
    ),
    "wait": ({"hoodie.write.lock.wait_time_ms": "soon"}, "expected an integer"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_by_name(case: str, tmp_path: Path) -> None:
    options, sentence = BAD[case]
    mor = MOR if case == "rings" else COW
    with pytest.raises(OptionError, match=sentence):
        write(Storage.open(tmp_path), OURS, mor, options)
    assert not HoodieTable.exists(Storage.open(tmp_path))
