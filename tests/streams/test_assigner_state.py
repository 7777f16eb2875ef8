"""Assigners that keep a state between micro-batches: the same table, and fewer files read to find keys."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.pipeline.assign import index_lookup
from serde_lab.pipeline.assign.index_lookup import FILES_READ
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.records.schema import RECORD_KEY
from serde_lab.streams.stream_writer import MicroBatch
from serde_lab.table.config import PROPERTIES_PATH
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.index.assigner_state import AssignerState, StateNames
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import WriteStat
from tests.faults.killed_driver import CONTEXT, DeadlyStorage, KillPoint, StepStorage
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
    seen_after,
    upsert,
)
from tests.streams.small_stream import NO_SERVICES, SmallStream

BLOOM: dict[str, Any] = {
    "hoodie.index.type": "BLOOM",
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.upsert.shuffle.parallelism": "3",
    # every batch of new keys makes new file groups
    "hoodie.parquet.small.file.limit": "0",
    **NO_SERVICES,
}


ONE_TASK = {"hoodie.upsert.shuffle.parallelism": "1"}


class CountedStream(SmallStream):
    """Counts the files that lookups read."""

    def put(self, number: int, rows: Sequence[Row]) -> int:
        exchange = InProcessExchange([batches(rows)])
        writer = self.living or self.writer()
        with writer.begin(MicroBatch(self.query, number), SCHEMA) as write:
            assert write is not None
            write.commit(exchange)
        return exchange.counters()[FILES_READ]


def stream_in(
    folder: Path, state: bool = True, table_type: str = COW, **more: Any
) -> CountedStream:
    given = {**BLOOM, "serde_lab.assigner_state": str(state).lower(), **more}
    return CountedStream(Storage.open(folder), options=given, table_type=table_type)


def covering_state(stream: CountedStream) -> str:
    """The folder of the states that the next write would begin with; "" if none covers the table."""
    return StateNames.of(HoodieTable.open(stream.storage), "next", 0).before


def fresh(number: int) -> list[Row]:
    return [("pq"[n % 2], f"{n}-{number}", 1, "fresh") for n in range(12)]


def states(stream: SmallStream) -> set[str]:
    """The folders of states that are there."""
    files = stream.storage.list_files(".hoodie/.aux/serde_lab_state")
    return {file.folder.rpartition("/")[2] for file in files}


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_state_spares_the_files_of_earlier_batches(table_type: str, tmp_path: Path) -> None:
    kept = stream_in(tmp_path / "kept", table_type=table_type)
    none = stream_in(tmp_path / "none", state=False, table_type=table_type)
    now, counts = Seen(), dict[str, list[int]](kept=[], none=[])
    for number in range(5):
        rows = [*fresh(number), *(("pq"[n % 2], f"{n}-0", number + 2, "again") for n in range(12))]
        counts["kept"].append(kept.put(number, rows))
        counts["none"].append(none.put(number, rows))
        now = seen_after(now, rows)
        check_readers(kept.storage, now)
        check_readers(none.storage, now)
        assert states(kept) == {covering_state(kept)}
    assert sum(counts["kept"]) == 0
    assert all(count > 0 for count in counts["none"][1:])
    assert states(none) == set()
    check_file_groups(kept.storage)


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("cached", [True, False])
def test_a_state_begins_on_a_table_that_is_there(
    cached: bool, table_type: str, tmp_path: Path
) -> None:
    """Files are read on a miss, each once, until the state alone answers."""
    stream, now = stream_in(tmp_path, state=False, table_type=table_type), Seen()
    for number in range(3):
        stream.put(number, fresh(number))
        now = seen_after(now, fresh(number))
    stream.options["serde_lab.assigner_state"] = "true"
    counts = []
    for number in range(3, 7):
        if not cached:
            index_lookup._STATES.clear()
        rows = [(p, k, number, "again") for p, k, _, _ in fresh(number % 3)]
        counts.append(stream.put(number, rows))
        now = seen_after(now, rows)
        check_readers(stream.storage, now)
    assert counts[0] > 0
    assert counts[3] == 0
    # three tasks, and the files of three batches
    assert sum(counts) <= 3 * len(HoodieTable.open(stream.storage).view().latest_base_files())


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("other", ["write", "other tasks", "without state"])
def test_a_state_that_does_not_cover_the_table_is_thrown_away(
    other: str, table_type: str, tmp_path: Path
) -> None:
    stream = stream_in(tmp_path, table_type=table_type)
    assert stream.put(0, fresh(0)) == 0
    rows: list[Row] = [("p", "0-1", 5, "other"), ("p", "0-0", 5, "other")]
    now = seen_after(seen_after({}, fresh(0)), rows)
    if other == "write":
        upsert(stream.storage, rows, table_type, options=BLOOM)
        assert covering_state(stream) == ""
    elif other == "without state":
        stream.options["serde_lab.assigner_state"] = "false"
        stream.put(1, rows)
        stream.options["serde_lab.assigner_state"] = "true"
    else:
        stream.put(1, rows)
        stream.options["hoodie.upsert.shuffle.parallelism"] = "2"
    number = 1 if other == "write" else 2
    rows = [(p, k, 9, "ours") for p, k, _, _ in [*fresh(0), *fresh(1)]]
    assert stream.put(number, rows) > 0
    check_readers(stream.storage, seen_after(now, rows))
    check_file_groups(stream.storage)


class Fails(InProcessExchange):
    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        super().run(plan)
        raise OSError("the driver dies")


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("per_commit", [1, 4])
def test_the_state_of_a_batch_that_failed_counts_for_nothing(
    per_commit: int, table_type: str, tmp_path: Path
) -> None:
    shared = {"serde_lab.stream.batches_per_commit": per_commit}
    stream = stream_in(tmp_path, table_type=table_type, **shared)
    stream.start()
    stream.put(0, fresh(0))
    stream.put(1, fresh(1))
    assert stream.living is not None
    with stream.living.begin(MicroBatch("one", 2), SCHEMA) as write:
        assert write is not None
        with pytest.raises(OSError, match="the driver dies"):
            write.commit(Fails([batches(fresh(2))]))
    rows = [*fresh(2), *((p, k, 7, "again") for p, k, _, _ in fresh(1))]
    assert stream.put(2, rows) == 0
    stream.living.flush()
    now = seen_after(seen_after(seen_after({}, fresh(0)), fresh(1)), rows)
    check_readers(stream.storage, now)
    check_file_groups(stream.storage)


# a row whose v is "gone" deletes its key
MARKED = {"hoodie.payload.delete.field": "v", "hoodie.payload.delete.marker": "gone"}


def check_keys_of_logs(storage: Storage) -> None:
    """A key is in a log only if the group's base file has it: writers without a state look there alone."""
    plan = plan_snapshot(HoodieTable.open(storage))
    for slice_ in plan.slices:
        if slice_.log_files:
            assert slice_.base_file is not None
            stored = BaseFileReader(storage, slice_.base_file.path).read([RECORD_KEY])
            base = set(stored.column(RECORD_KEY).to_pylist())
            assert base >= set(plan.keys_in_logs(slice_).to_pylist())


@pytest.mark.parametrize("per_commit", [1, 3])
@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("small_files", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_random_courses_give_the_rows_of_a_dict(
    seed: int, small_files: bool, table_type: str, per_commit: int, tmp_path: Path
) -> None:
    chance, now = random.Random(seed), Seen()
    limit = {"hoodie.parquet.small.file.limit": "1000000" if small_files else "0"}
    shared = {"serde_lab.stream.batches_per_commit": per_commit}
    stream = stream_in(tmp_path, table_type=table_type, **shared, **limit, **MARKED)
    stream.start()
    number, deleted = 0, 0
    for _ in range(24):
        at = chance.random()
        if at < 0.1:
            rows = [("p", f"{chance.randint(0, 30)}", number + 100, "other")]
            upsert(stream.storage, rows, table_type, options={**BLOOM, **limit, **MARKED})
        elif at < 0.2 and now:
            keys = chance.sample(sorted(now), 1)
            gone = stream_in(tmp_path, table_type=table_type, **MARKED)
            gone.query = gone.identifier = "gone"
            gone.operation = "delete"
            if gone.send(deleted, pa.table({"p": [keys[0][0]], "k": [keys[0][1]]})):
                deleted += 1
                del now[keys[0]]
            continue
        elif at < 0.4 and now and table_type == MOR:
            assert stream.living is not None
            stream.living.flush()
            compact_all(stream.storage)
            continue
        else:
            if at < 0.5:
                index_lookup._STATES.clear()
            if at > 0.9:
                stream.start()
            drawn = {(chance.choice("pq"), str(chance.randint(0, 30))) for _ in range(6)}
            says = [str(number), str(number), "gone"]
            rows = [(p, k, number + 100, chance.choice(says)) for p, k in sorted(drawn)]
            stream.put(number, rows)
            number += 1
        now = {at: row for at, row in seen_after(now, rows).items() if row[1] != "gone"}
        if table_type == MOR:
            check_keys_of_logs(stream.storage)
    stream.start().flush()
    check_readers(stream.storage, now)
    check_file_groups(stream.storage)


def test_compaction_leaves_a_state_as_it_is_unless_it_drops_keys(tmp_path: Path) -> None:
    stream = stream_in(tmp_path, table_type=MOR, **MARKED, **ONE_TASK)
    rows: list[Row] = [("p", k, 1, "fresh") for k in "abc"]
    stream.put(0, rows)
    assert stream.put(1, [(p, k, 2, "again") for p, k, _, _ in rows]) == 0
    compact_all(stream.storage)
    assert covering_state(stream) != ""
    assert stream.put(2, [(p, k, 3, "again") for p, k, _, _ in rows]) == 0
    stream.put(3, [("p", "a", 4, "gone"), ("p", "b", 4, "gone")])
    # the file is read again for b, and the base file still has a
    assert stream.put(4, [("p", "b", 5, "back")]) == 1
    compact_all(stream.storage)
    # now it does not, so a needs a base file
    stream.put(5, [("p", "a", 6, "back"), ("p", "c", 6, "again")])
    check_keys_of_logs(stream.storage)
    now = {("p", "a"): (6, "back"), ("p", "b"): (5, "back"), ("p", "c"): (6, "again")}
    check_readers(stream.storage, now)


def make_with_keys_in_logs(storage: Storage, *parts: Sequence[Row]) -> None:
    """A table as an index of merge-on-read makes it that covers logs, from now on with the index BLOOM."""
    own = {"hoodie.index.type": "FLINK_STATE", "hoodie.parquet.small.file.limit": "1000000"}
    for rows in parts:
        upsert(storage, rows, MOR, options={**BLOOM, **own})
    text = storage.get(PROPERTIES_PATH).decode()
    assert "=FLINK_STATE" in text
    storage.replace(PROPERTIES_PATH, text.replace("=FLINK_STATE", "=BLOOM").encode())
    with pytest.raises(AssertionError):
        check_keys_of_logs(storage)


@pytest.mark.parametrize("cached", [True, False])
def test_keys_that_only_logs_have_are_found(cached: bool, tmp_path: Path) -> None:
    """Another index of merge-on-read puts new keys into logs, which base files know nothing of."""
    stream, now = stream_in(tmp_path, table_type=MOR), Seen()
    make_with_keys_in_logs(stream.storage, *map(fresh, range(3)))
    for number in range(3):
        now = seen_after(now, fresh(number))
    counts = []
    for number in range(4):
        if not cached:
            index_lookup._STATES.clear()
        rows = [(p, k, number + 5, "again") for p, k, _, _ in fresh(number)]
        counts.append(stream.put(number, rows))
        now = seen_after(now, rows)
        check_readers(stream.storage, now)
    assert counts[0] > 0
    assert counts[3] == 0


def test_logs_that_nobody_read_are_looked_for_in_base_files_once_compacted(tmp_path: Path) -> None:
    stream = stream_in(tmp_path, table_type=MOR, **ONE_TASK)
    make_with_keys_in_logs(stream.storage, fresh(0), fresh(1))
    # all these are in base files
    rows = [(p, k, 6, "again") for p, k, _, _ in fresh(0)]
    stream.put(0, rows)
    state = covering_state(stream)
    found = AssignerState.load(stream.storage, state, 0, 1)
    assert found is not None
    assert found.unseen_logs - found.unseen
    now = seen_after(seen_after({}, fresh(1)), rows)
    compact_all(stream.storage)
    rows = [(p, k, 7, "again") for p, k, _, _ in fresh(1)]
    assert stream.put(1, rows) > 0
    check_readers(stream.storage, seen_after(now, rows))


AGAIN: list[Row] = [
    *((p, k, 2, "again") for p, k, _, _ in fresh(0)[:4]),
    (*fresh(0)[5][:2], 2, "gone"),
    *fresh(1)[:4],
]


def of_kills(storage: Storage) -> CountedStream:
    given = {**BLOOM, **ONE_TASK, **MARKED, "serde_lab.assigner_state": "true"}
    return CountedStream(storage, options=given, table_type=MOR)


def _send_and_die(mark: Connection, folder: Path, number: int) -> None:
    storage = DeadlyStorage.open(folder)
    storage.point, storage.mark = KillPoint(number), mark
    of_kills(storage).send(1, AGAIN)
    mark.send("survived")


@pytest.mark.slow
def test_a_driver_that_is_killed_after_any_step_leaves_a_state_that_is_right(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made"
    of_kills(Storage.open(made)).send(0, fresh(0))
    shutil.copytree(made, tmp_path / "lives")
    lives = StepStorage.open(tmp_path / "lives")
    of_kills(lives).send(1, AGAIN)
    assert len(lives.steps) > 12
    now = seen_after(seen_after({}, fresh(0)), AGAIN)
    del now[fresh(0)[5][:2]]
    for number, step in enumerate(lives.steps):
        folder = tmp_path / str(number)
        shutil.copytree(made, folder)
        ours, theirs = CONTEXT.Pipe(duplex=False)
        child = CONTEXT.Process(target=_send_and_die, args=(theirs, folder, number))
        child.start()
        assert ours.recv() == step
        child.join()
        stream = of_kills(Storage.open(folder))
        stream.send(1, AGAIN)
        check_readers(stream.storage, now)
        rows = [(p, k, 3, "later") for p, k, _, _ in [*fresh(0), *fresh(1)]]
        stream.send(2, rows)
        check_readers(stream.storage, seen_after(now, rows))
        check_file_groups(stream.storage)
        check_keys_of_logs(stream.storage)


class BesideAnother(InProcessExchange):
    """While the batch is written, another writer completes a commit."""

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        stats = super().run(plan)
        timeline = HoodieTable.open(plan.storage).timeline()
        other = timeline.create_requested(timeline.new_instant("commit"))
        timeline.create_completed(timeline.create_inflight(other), b"")
        return stats


def test_a_state_does_not_cover_a_commit_beside_its_own(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    stream.put(0, fresh(0))
    with stream.writer().begin(MicroBatch("one", 1), SCHEMA) as write:
        assert write is not None
        write.commit(BesideAnother([batches(fresh(1))]))
    assert states(stream) != set()
    assert covering_state(stream) == ""


@pytest.mark.parametrize(
    ("options", "table_type"),
    [
        ({"hoodie.index.type": "GLOBAL_BLOOM"}, COW),
        ({"serde_lab.topology": "state"}, COW),
        ({"serde_lab.topology": "state"}, MOR),
    ],
)
def test_a_state_that_could_be_wrong_is_refused(
    options: dict[str, str], table_type: str, tmp_path: Path
) -> None:
    stream = stream_in(tmp_path, table_type=table_type, **options)
    with pytest.raises(OptionError, match=r"serde_lab\.assigner_state is true, which needs"):
        stream.put(0, fresh(0))


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    AssignerState(pa.array(["k"]), pa.array(["f"]), frozenset({"g"})).save(storage, "1-0", 0, 2)
    found = AssignerState.load(storage, "1-0", 0, 2)
    assert found is not None
    assert (found.keys.to_pylist(), found.file_ids.to_pylist(), found.unseen) == (
        ["k"],
        ["f"],
        {"g"},
    )
    assert AssignerState.load(storage, "1-0", 1, 2) is None
    storage.replace(".hoodie/.aux/serde_lab_state/1-0/0-of-2.parquet", b"no Parquet")
    with pytest.raises(TableError, match=r"0-of-2\.parquet: is no state of an assigner"):
        AssignerState.load(storage, "1-0", 0, 2)
