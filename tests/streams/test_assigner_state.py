"""Assigners that keep a state between micro-batches: the same table, and fewer files read to find keys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.pipeline.assign import index_lookup
from serde_lab.pipeline.assign.index_lookup import FILES_READ
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.plan import WritePlan
from serde_lab.streams.stream_writer import MicroBatch
from serde_lab.table.index.assigner_state import AssignerState, covering_state
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import WriteStat
from tests.faults.small_table import (
    COW,
    MOR,
    SCHEMA,
    Row,
    Seen,
    batches,
    check_file_groups,
    check_readers,
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


class CountedStream(SmallStream):
    """Counts the files that lookups read."""

    def put(self, number: int, rows: Sequence[Row]) -> int:
        exchange = InProcessExchange([batches(rows)])
        writer = self.living or self.writer()
        with writer.begin(MicroBatch(self.query, number), SCHEMA) as write:
            assert write is not None
            write.commit(exchange)
        return exchange.counters()[FILES_READ]


def stream_in(folder: Path, state: bool = True, **more: Any) -> CountedStream:
    given = {**BLOOM, "serde_lab.assigner_state": str(state).lower(), **more}
    return CountedStream(Storage.open(folder), options=given)


def fresh(number: int) -> list[Row]:
    return [("pq"[n % 2], f"{n}-{number}", 1, "fresh") for n in range(12)]


def states(stream: SmallStream) -> set[str]:
    """The folders of states that are there."""
    files = stream.storage.list_files(".hoodie/.aux/serde_lab_state")
    return {file.folder.rpartition("/")[2] for file in files}


def test_a_state_spares_the_files_of_earlier_batches(tmp_path: Path) -> None:
    kept, none = stream_in(tmp_path / "kept"), stream_in(tmp_path / "none", state=False)
    now, counts = Seen(), dict[str, list[int]](kept=[], none=[])
    for number in range(5):
        rows = [*fresh(number), *(("pq"[n % 2], f"{n}-0", number + 2, "again") for n in range(12))]
        counts["kept"].append(kept.put(number, rows))
        counts["none"].append(none.put(number, rows))
        now = seen_after(now, rows)
        check_readers(kept.storage, now)
        check_readers(none.storage, now)
        assert states(kept) == {covering_state(HoodieTable.open(kept.storage))}
    assert sum(counts["kept"]) == 0
    assert all(count > 0 for count in counts["none"][1:])
    assert states(none) == set()
    check_file_groups(kept.storage)


@pytest.mark.parametrize("cached", [True, False])
def test_a_state_begins_on_a_table_that_is_there(cached: bool, tmp_path: Path) -> None:
    """Files are read on a miss, each once, until the state alone answers."""
    stream, now = stream_in(tmp_path, state=False), Seen()
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


@pytest.mark.parametrize("other", ["write", "other tasks", "without state"])
def test_a_state_that_does_not_cover_the_table_is_thrown_away(other: str, tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    assert stream.put(0, fresh(0)) == 0
    rows: list[Row] = [("p", "0-1", 5, "other"), ("p", "0-0", 5, "other")]
    now = seen_after(seen_after({}, fresh(0)), rows)
    if other == "write":
        upsert(stream.storage, rows, COW, options=BLOOM)
        assert covering_state(HoodieTable.open(stream.storage)) == ""
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


@pytest.mark.parametrize("per_commit", [1, 4])
def test_the_state_of_a_batch_that_failed_counts_for_nothing(
    per_commit: int, tmp_path: Path
) -> None:
    stream = stream_in(tmp_path, **{"serde_lab.stream.batches_per_commit": per_commit})
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


@pytest.mark.parametrize("per_commit", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_random_courses_give_the_rows_of_a_dict(seed: int, per_commit: int, tmp_path: Path) -> None:
    chance, now = random.Random(seed), Seen()
    shared = {"serde_lab.stream.batches_per_commit": per_commit}
    stream = stream_in(tmp_path, **shared, **{"hoodie.parquet.small.file.limit": "1000000"})
    stream.start()
    number, deleted = 0, 0
    for _ in range(14):
        at = chance.random()
        if at < 0.15:
            rows = [("p", f"{chance.randint(0, 30)}", number + 100, "other")]
            upsert(stream.storage, rows, COW, options=BLOOM)
        elif at < 0.3 and now:
            keys = chance.sample(sorted(now), 1)
            gone = stream_in(tmp_path)
            gone.query = gone.identifier = "gone"
            gone.operation = "delete"
            if gone.send(deleted, pa.table({"p": [keys[0][0]], "k": [keys[0][1]]})):
                deleted += 1
                del now[keys[0]]
            continue
        else:
            if at < 0.4:
                index_lookup._STATES.clear()
            if at > 0.9:
                stream.start()
            drawn = {(chance.choice("pq"), str(chance.randint(0, 30))) for _ in range(6)}
            rows = [(p, k, number + 100, str(number)) for p, k in sorted(drawn)]
            stream.put(number, rows)
            number += 1
        now = seen_after(now, rows)
    stream.start().flush()
    check_readers(stream.storage, now)
    check_file_groups(stream.storage)


@pytest.mark.parametrize(
    ("options", "table_type"),
    [
        ({}, MOR),
        ({"hoodie.index.type": "GLOBAL_BLOOM"}, COW),
        ({"serde_lab.topology": "state"}, COW),
    ],
)
def test_a_state_that_could_be_wrong_is_refused(
    options: dict[str, str], table_type: str, tmp_path: Path
) -> None:
    stream = stream_in(tmp_path, **options)
    stream.table_type = table_type
    with pytest.raises(OptionError, match=r"serde_lab\.assigner_state is true, which needs"):
        stream.put(0, fresh(0))


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    AssignerState(pa.array(["k"]), pa.array(["f"]), ["g"]).save(storage, "1-0", 0, 2)
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
