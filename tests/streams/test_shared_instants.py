"""Micro-batches that share an instant: durable one by one, visible together, stored once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import ConcurrentWrite, LabError, OptionError, StorageError, TableError
from serde_lab.pipeline.commit.table_services import roll_back_now
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.streams.stream_writer import MicroBatch
from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import checkpoints as module
from serde_lab.table.timeline.checkpoints import MANIFESTS, Checkpoint, shared_instant
from serde_lab.table.timeline.commit_metadata import WriteStat
from serde_lab.table.validation.diagnosis import validate_table
from tests.faults.killed_driver import StepStorage
from tests.faults.small_table import (
    COW,
    MOR,
    SCHEMA,
    Row,
    Seen,
    batches,
    check_file_groups,
    check_readers,
    compact_all,
    read_by_us,
    seen_after,
    seen_by_us,
    upsert,
)
from tests.streams.small_stream import NO_SERVICES, SmallStream, stated_batches

PER_COMMIT = "serde_lab.stream.batches_per_commit"
INTERVAL = "serde_lab.stream.commit_interval_ms"
BYTES = "serde_lab.stream.commit_bytes"
FIRST: Sequence[Row] = [("p", "a", 5, "first"), ("p", "b", 5, "first"), ("q", "c", 5, "first")]
PARTS: Sequence[Sequence[Row]] = (
    FIRST,
    [("p", "a", 6, "second"), ("p", "b", 4, "late"), ("q", "d", 1, "second")],
    [("p", "a", 6, "third"), ("r", "e", 1, "third")],
    [("p", "a", 5, "late"), ("r", "e", 2, "fourth"), ("q", "d", 0, "late")],
    [],
    [("p", "b", 9, "sixth"), ("s", "f", 1, "sixth")],
)
"""Batches with rows of one key in several, some of them late."""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "cow": (COW, {}),
    "mor": (MOR, {}),
    "mor, version 6": (MOR, {"hoodie.write.table.version": "6"}),
    "cow, commit time": (COW, {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}),
    "mor, commit time": (MOR, {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}),
    "state": (MOR, {"hoodie.index.type": "FLINK_STATE", "serde_lab.topology": "state"}),
    "bloom": (COW, {"hoodie.index.type": "BLOOM", "serde_lab.topology": "bloom"}),
    "step3": (COW, {"hoodie.index.type": "SIMPLE", "serde_lab.topology": "step3"}),
    "step3, mor": (MOR, {"hoodie.index.type": "SIMPLE", "serde_lab.topology": "step3"}),
}
APPEND = {"hoodie.index.type": "SIMPLE", "serde_lab.topology": "append", "serde_lab.seed": None}


def stream_in(folder: Path | Storage, kind: str = "cow", **limits: Any) -> SmallStream:
    """A stream in one process; `limits` without their common prefix."""
    table_type, options = (COW, APPEND) if kind == "append" else KINDS[kind]
    given = {f"serde_lab.stream.{name}": value for name, value in limits.items()}
    if "serde_lab.topology" in options:
        given |= {"hoodie.bucket.index.num.buckets": None, "serde_lab.rows_per_frame": "1"}
    storage = folder if isinstance(folder, Storage) else Storage.open(folder)
    stream = SmallStream(
        storage,
        operation="insert" if kind == "append" else "upsert",
        table_type=table_type,
        options={**NO_SERVICES, **options, **given},
    )
    stream.start()
    return stream


def commits(stream: SmallStream) -> int:
    return len(HoodieTable.open(stream.storage).timeline().completed())


def pending(stream: SmallStream) -> int:
    """The batches that wait for their commit."""
    shared = shared_instant(HoodieTable.open(stream.storage))
    return 0 if shared is None else shared.batches


@pytest.mark.parametrize("kind", KINDS)
def test_shared_commits_give_the_rows_of_single_ones(kind: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path / "shared", kind, batches_per_commit=3)
    single = stream_in(tmp_path / "single", kind)
    for number, rows in enumerate(PARTS):
        seen = seen_by_us(stream.storage) if number > 2 else {}
        commit = stream.send(number, rows)
        assert (commit is not None) is (number in (2, 5))
        assert single.send(number, rows) is not None
        assert stream.send(number, [("p", "a", 99, "doubled")]) is None
        if commit is None:
            assert pending(stream) == number % 3 + 1
            if number > 2:
                check_readers(stream.storage, seen)
        else:
            check_readers(stream.storage, seen_by_us(single.storage))
    assert pending(stream) == 0
    assert stated_batches(stream.storage) == [
        f'{{"default_single_writer": "{number}"}}' for number in (2, 5)
    ]
    check_file_groups(stream.storage)
    assert validate_table(stream.storage, deep=True).findings == ()
    assert stream.storage.list_files(MANIFESTS) == []


@pytest.mark.parametrize("kind", ["cow, commit time", "mor, commit time"])
def test_the_last_of_many_batches_wins(kind: str, tmp_path: Path) -> None:
    """Names of log files put a twelfth batch behind the second, as numbers and not as text."""
    stream = stream_in(tmp_path, kind, batches_per_commit=13)
    stream.send(0, FIRST)
    for number in range(1, 13):
        stream.send(number, [("p", "a", 50 - number, str(number))])
    assert pending(stream) == 0
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), [("p", "a", 38, "12")]))


def test_an_instant_is_full_by_its_bytes(tmp_path: Path) -> None:
    one = stream_in(tmp_path / "one").send(0, FIRST)
    assert one is not None
    size = sum(stat.fileSizeInBytes for stat in one.stats)
    stream = stream_in(tmp_path / "many", "mor", commit_bytes=size + 500)
    assert stream.send(0, FIRST) is None
    assert stream.send(1, PARTS[1]) is not None
    assert commits(stream) == 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_instant_is_over_in_time_with_or_without_a_batch(tmp_path: Path) -> None:
    stream, clock = stream_in(tmp_path, "mor", commit_interval_ms=2000), Clock()
    writer = stream.start(clock=clock)
    assert writer.seconds_left is None
    assert stream.send(0, FIRST) is None
    assert writer.seconds_left == 2.0
    clock.now = 1.5
    assert stream.send(1, PARTS[1]) is None
    assert writer.seconds_left == 0.5
    assert writer.flush_if_due() is None
    assert pending(stream) == 2
    clock.now = 2.0
    assert writer.flush_if_due() is not None
    assert writer.seconds_left is None
    assert stream.send(2, PARTS[2]) is None
    clock.now = 4.5
    assert stream.send(3, PARTS[3]) is not None
    assert [commits(stream), pending(stream)] == [2, 0]
    assert writer.flush() is None


def test_a_commit_that_failed_is_still_due(tmp_path: Path) -> None:
    stream, clock = stream_in(tmp_path, "mor", commit_interval_ms=2000), Clock()
    stream.options["hoodie.write.lock.wait_time_ms"] = "0"
    writer = stream.start(clock=clock)
    assert stream.send(0, FIRST) is None
    clock.now = 3.0
    with TableLock(stream.storage, "compact"), pytest.raises(ConcurrentWrite, match="compact"):
        writer.flush_if_due()
    assert writer.seconds_left == -1.0
    assert pending(stream) == 1
    assert writer.flush_if_due() is not None
    assert writer.seconds_left is None
    check_readers(stream.storage, seen_after({}, FIRST))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_restart_commits_what_is_pending_and_goes_on(kind: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path, kind, batches_per_commit=10)
    now: Seen = {}
    for number, rows in enumerate((FIRST, PARTS[1][:1])):
        stream.send(number, rows)
        now = seen_after(now, rows)
    assert stream.last == Checkpoint(1, "one", "upsert")
    # whoever looks for the last batch finds it, and a stored one is not written again
    stream.start()
    assert stream.send(1, [("p", "a", 99, "doubled")]) is None
    assert (commits(stream), pending(stream)) == (1, 0)
    check_readers(stream.storage, now)
    stream.send(2, [("p", "a", 7, "third")])
    stream.start()
    with pytest.raises(TableError, match="the last one in the table is batch 2"):
        stream.send(4, FIRST)
    with pytest.raises(OptionError, match="belongs to query one, which stored batch 2"):
        SmallStream(stream.storage, "two").send(3, FIRST)
    stream.send(3, [("p", "a", 8, "fourth")])
    assert (commits(stream), pending(stream)) == (2, 1)
    assert stream.writer().flush() is not None
    check_readers(stream.storage, seen_after(now, [("p", "a", 8, "fourth")]))
    check_file_groups(stream.storage)


@pytest.mark.parametrize("other", ["write", "compact", "roll back", "stream"])
def test_another_writer_commits_what_is_pending(other: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path, "mor", batches_per_commit=10)
    now: Seen = {}
    for number, rows in enumerate((FIRST, [("p", "a", 6, "second")])):
        stream.send(number, rows)
        now = seen_after(now, rows)
    rows = [("p", "b", 6, "other")]
    if other == "write":
        upsert(stream.storage, rows, MOR)
    elif other == "stream":
        second = SmallStream(stream.storage, "two", "two", table_type=MOR, options=NO_SERVICES)
        second.send(0, rows)
    elif other == "compact":
        assert compact_all(stream.storage) is not None
    else:
        done = roll_back_now(HoodieTable.open(stream.storage))
        assert [one.batches for one in done.shared] == [2]
        assert done.rolled_back == ()
    if other in ("write", "stream"):
        now = seen_after(now, rows)
    assert pending(stream) == 0
    check_readers(stream.storage, now)
    assert stream.send(2, [("p", "a", 7, "third")]) is None
    assert pending(stream) == 1
    assert stream.start().flush() is not None
    check_readers(stream.storage, seen_after(now, [("p", "a", 7, "third")]))
    check_file_groups(stream.storage)


class FailingExchange(InProcessExchange):
    """Fails when its tasks are done, and can run them again later."""

    plan: WritePlan

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        self.plan = plan
        super().run(plan)
        raise LabError("the driver lost the tasks' answers")


def fail_batch(stream: SmallStream, number: int, rows: Sequence[Row]) -> FailingExchange:
    """A batch whose tasks write and whose driver then fails."""
    exchange = FailingExchange([batches(rows)])
    assert stream.living is not None
    with stream.living.begin(MicroBatch(stream.query, number), SCHEMA) as write:
        assert write is not None
        with pytest.raises(LabError, match="lost the tasks' answers"):
            write.commit(exchange)
    return exchange


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_batch_that_fails_takes_no_earlier_one_with_it(kind: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path, kind, batches_per_commit=10)
    stream.send(0, FIRST)
    assert stream.living is not None
    exchange = fail_batch(stream, 1, [("p", "a", 6, "failed"), ("s", "z", 6, "failed")])
    assert pending(stream) == 1
    rows = [("p", "a", 7, "second")]
    stream.send(1, rows)
    assert (commits(stream), pending(stream)) == (1, 1)
    check_readers(stream.storage, seen_after({}, FIRST))
    # a task of the failed batch comes late
    with pytest.raises(ConcurrentWrite, match="completed while a task was still writing"):
        InProcessExchange.run(exchange, exchange.plan)
    check_readers(stream.storage, seen_after({}, FIRST))
    stream.living.flush()
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), rows))
    check_file_groups(stream.storage)


@pytest.mark.parametrize("kind", ["append", "mor"])
def test_files_of_a_dead_batch_without_their_markers_count_for_nothing(
    kind: str, tmp_path: Path
) -> None:
    """As when somebody empties the folder of markers, which is named .temp."""
    stream = stream_in(tmp_path, kind, batches_per_commit=10)
    stream.send(0, FIRST[:2])
    stream.start().flush()
    stream.send(1, FIRST[2:] if kind == "append" else PARTS[1])
    before = seen_by_us(stream.storage)
    shared = shared_instant(HoodieTable.open(stream.storage))
    assert shared is not None
    for path in shared.paths:
        folder, _, name = path.rpartition("/")
        file_id = name.removeprefix(".").partition("_")[0]
        dead = name.replace(file_id, file_id[:-1] + ("1" if file_id[-1] == "0" else "0"))
        stream.storage.put_new(f"{folder}/{dead}", stream.storage.get(path))
    stream.storage.delete_folder(".hoodie/.temp")
    check_readers(stream.storage, before)
    stream.start().flush()
    check_readers(
        stream.storage,
        seen_after(before, FIRST[2:] if kind == "append" else PARTS[1][:1] + PARTS[1][2:]),
    )


class RefusedManifest(StepStorage):
    """Refuses the manifest of the second batch, and keeps it."""

    kept: tuple[str, bytes] | None = None

    def begins(self, step: str, path: str, data: Any) -> None:
        if path.endswith("/1.json") and self.kept is None:
            self.kept = path, bytes(data)
            raise StorageError("the storage is away")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_manifest_that_lands_after_its_batch_was_given_up_counts_for_nothing(
    kind: str, tmp_path: Path
) -> None:
    storage = RefusedManifest.open(tmp_path)
    stream = stream_in(storage, kind, batches_per_commit=10)
    stream.send(0, FIRST)
    with pytest.raises(StorageError):
        stream.send(1, [("p", "a", 6, "late"), ("s", "z", 6, "late")])
    assert storage.kept is not None
    storage.put_new(*storage.kept)
    assert (pending(stream), stream.last) == (1, Checkpoint(0, "one", "upsert"))
    stream.send(1, [("p", "a", 7, "again")])
    assert (commits(stream), pending(stream)) == (1, 1)
    assert stream.start().flush() is not None
    check_file_groups(storage)
    check_readers(storage, seen_after(seen_after({}, FIRST), [("p", "a", 7, "again")]))


def test_a_late_task_of_an_appended_batch_that_failed_doubles_nothing(tmp_path: Path) -> None:
    stream = stream_in(tmp_path, "append", batches_per_commit=10)
    stream.send(0, [("p", "a", 1, "zero")])
    assert stream.living is not None
    exchange = fail_batch(stream, 1, [("p", "b", 1, "one")])
    stream.send(1, [("p", "b", 1, "one")])
    with pytest.raises(ConcurrentWrite, match="completed while a task was still writing"):
        InProcessExchange.run(exchange, exchange.plan)
    stream.living.flush()
    assert sorted(read_by_us(stream.storage)["k"].to_pylist()) == ["a", "b"]


def test_a_file_that_could_not_be_removed_is_removed_by_the_next_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two base files of a file group in one instant would break the table."""
    stream = stream_in(tmp_path, batches_per_commit=3)
    stream.send(0, FIRST)

    def refused(*_: object) -> None:
        raise StorageError("the storage is away")

    monkeypatch.setattr(module, "remove_unnamed", refused)
    stream.send(1, [("p", "a", 6, "second")])
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        check_file_groups(stream.storage)
    assert stream.send(2, [("p", "a", 7, "third")]) is not None
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), [("p", "a", 7, "third")]))
    check_file_groups(stream.storage)


def test_a_first_batch_that_fails_leaves_no_table(tmp_path: Path) -> None:
    stream = stream_in(tmp_path, batches_per_commit=10)
    with pytest.raises(LabError):
        stream.send(0, [("p", None, 1, "no key")])  # type: ignore[list-item]
    assert not HoodieTable.exists(stream.storage)
    assert stream.send(0, FIRST) is None
    assert pending(stream) == 1


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_batch_of_other_columns_begins_an_instant(kind: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path, kind, batches_per_commit=10)
    stream.options["hoodie.write.set.null.for.missing.columns"] = "true"
    stream.start()
    stream.send(0, FIRST)
    grown = pa.table({"p": ["p"], "k": ["a"], "ts": [6], "v": ["x"], "more": [7]})
    assert stream.send(1, grown) is None
    assert (commits(stream), pending(stream)) == (1, 1)
    assert stream.send(2, [("p", "b", 6, "third")]) is None
    assert (commits(stream), pending(stream)) == (2, 1)
    assert stream.send(3, grown) is None
    assert pending(stream) == 2
    # a writer that knows only the committed columns
    stream.start()
    assert stream.send(4, [("p", "b", 7, "fifth")]) is None
    assert stream.start().flush() is not None
    rows = {row["k"]: (row["v"], row["more"]) for row in read_by_us(stream.storage).to_pylist()}
    assert rows == {"a": ("x", 7), "b": ("fifth", None), "c": ("first", None)}


@pytest.mark.parametrize("kind", ["cow", "mor", "bloom"])
def test_deletes_share_an_instant(kind: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path, kind)
    stream.send(0, FIRST)
    gone = stream_in(stream.storage, kind, batches_per_commit=2)
    gone.query = gone.identifier = "gone"
    gone.operation = "delete"
    gone.start()
    assert gone.send(0, pa.table({"p": ["p"], "k": ["a"]})) is None
    check_readers(stream.storage, seen_after({}, FIRST))
    assert gone.send(1, pa.table({"p": ["q", "q"], "k": ["c", "none"]})) is not None
    check_readers(stream.storage, seen_after({}, FIRST[1:2]))


def test_services_wait_for_the_commit(tmp_path: Path) -> None:
    stream = stream_in(tmp_path, "mor", batches_per_commit=2)
    stream.options |= {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1",
        "hoodie.archive.automatic": "true",
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
    }
    stream.start()
    now: Seen = {}
    for number in range(13):
        rows = [("p", "ab"[number % 2], number, str(number))]
        now = seen_after(now, rows)
        if stream.send(number, rows) is not None:
            check_readers(stream.storage, now)
    assert stream.start().flush() is not None
    check_readers(stream.storage, now)
    timeline = HoodieTable.open(stream.storage).timeline()
    assert {"commit", "deltacommit", "clean"} <= {one.action for one in timeline.instants()}
    assert len(timeline.completed()) <= 6
    assert stream.send(12, [("p", "a", 99, "doubled")]) is None
    assert validate_table(stream.storage, deep=True).findings == ()


def test_manifests_of_an_instant_that_is_gone_count_for_nothing(tmp_path: Path) -> None:
    """As after a rollback by Apache Hudi, which knows no manifests: the missing batch is named."""
    stream = stream_in(tmp_path, batches_per_commit=10)
    stream.send(0, FIRST)
    stream.start().flush()
    stream.send(1, PARTS[1])
    shared = shared_instant(HoodieTable.open(stream.storage))
    assert shared is not None
    timeline = HoodieTable.open(stream.storage).timeline()
    for path in sorted(shared.paths):
        stream.storage.delete(path)
    timeline.delete(shared.instant)
    stream.storage.delete(f"{timeline.folder}/{shared.instant.time}.commit.requested")
    with pytest.raises(TableError, match="batch 1 is missing"):
        stream.send(2, PARTS[2])
    check_readers(stream.storage, seen_after({}, FIRST))
    # from an older checkpoint it can be sent again
    assert stream.send(1, PARTS[1][:1]) is None
    assert len(stream.storage.list_files(MANIFESTS)) == 1


def test_copies_of_manifests_count_for_nothing(tmp_path: Path) -> None:
    """As an editor or a file manager makes them."""
    stream = stream_in(tmp_path, batches_per_commit=10)
    stream.send(0, FIRST)
    (manifest,) = stream.storage.list_files(MANIFESTS)
    content = stream.storage.get(manifest.path)
    for name in ("0 (copy).json", "9.json~", ".9.json.swp", "-9.json", ".json", "json", "9"):
        stream.storage.replace(f"{manifest.folder}/{name}", content)
    assert pending(stream) == 1
    stream.send(1, PARTS[1])
    stream.start().flush()
    check_readers(stream.storage, seen_by_us(stream.storage))
    assert stated_batches(stream.storage) == ['{"default_single_writer": "1"}']


@pytest.mark.parametrize("left", [0, 0.5])
def test_batches_of_a_damaged_manifest_are_kept(left: float, tmp_path: Path) -> None:
    """No write takes their files for those of an unfinished batch, and removes them."""
    stream = stream_in(tmp_path, batches_per_commit=10)
    stream.send(0, FIRST)
    (manifest,) = stream.storage.list_files(MANIFESTS)
    content = stream.storage.get(manifest.path)
    stream.storage.replace(manifest.path, content[: int(len(content) * left)])
    files = list_table_files(stream.storage)
    with pytest.raises(TableError, match=r"0\.json: is (empty|not readable)"):
        upsert(stream.storage, PARTS[1])
    assert list_table_files(stream.storage) == files
    stream.storage.replace(manifest.path, content)
    upsert(stream.storage, PARTS[1])
    check_readers(stream.storage, seen_after(seen_after({}, FIRST), [PARTS[1][0], PARTS[1][2]]))
