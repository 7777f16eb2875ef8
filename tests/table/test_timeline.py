"""Instants: their names in both layouts, times that only grow, and create-only steps."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from serde_lab.errors import ConcurrentWrite
from serde_lab.table.config import TableConfig
from serde_lab.table.config_properties import from_properties, to_properties
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import (
    Instant,
    Timeline,
    following_time,
    format_instant_time,
    instant_name,
    parse_instant_name,
    parse_instant_time,
)

COW = TableConfig("t", ("id",))
MOR = TableConfig("t", ("id",), table_type="MERGE_ON_READ")
OLD = TableConfig("t", ("id",), version=6)
T1, T2 = "20240101000000000", "20240101000001500"


def timeline(storage: Storage, config: TableConfig = COW, at: str = T1) -> Timeline:
    return Timeline(storage, config, now=lambda: parse_instant_time(at))


@pytest.mark.parametrize(
    ("instant", "layout", "name"),
    [
        (Instant(T1, "commit", "requested"), 2, f"{T1}.commit.requested"),
        (Instant(T1, "commit", "inflight"), 2, f"{T1}.inflight"),
        (Instant(T1, "commit", "completed", T2), 2, f"{T1}_{T2}.commit"),
        (Instant(T1, "deltacommit", "inflight"), 2, f"{T1}.deltacommit.inflight"),
        (Instant(T1, "compaction", "inflight"), 2, f"{T1}.compaction.inflight"),
        (Instant(T1, "rollback", "completed", T2), 2, f"{T1}_{T2}.rollback"),
        (Instant(T1, "commit", "requested"), 1, f"{T1}.commit.requested"),
        (Instant(T1, "commit", "inflight"), 1, f"{T1}.inflight"),
        (Instant(T1, "commit", "completed", T1), 1, f"{T1}.commit"),
        (
            Instant("20240101000000", "clean", "completed", "20240101000000"),
            1,
            "20240101000000.clean",
        ),
    ],
)
def test_names(instant: Instant, layout: int, name: str) -> None:
    assert instant_name(instant, layout) == name
    assert parse_instant_name(name, layout) == instant


@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize(
    "name", ["hoodie.properties", f".{T1}.commit.crc", "history", f"{T1}.commit.tmp.x", "_SUCCESS"]
)
def test_other_files_are_no_instants(name: str, layout: int) -> None:
    assert parse_instant_name(name, layout) is None


def test_a_completed_compaction_is_a_commit() -> None:
    done = Instant(T1, "compaction", "completed", T2)
    assert instant_name(done, 2) == f"{T1}_{T2}.commit"


@pytest.mark.parametrize("config", [COW, MOR, OLD], ids=["cow", "mor", "version-6"])
def test_a_write_from_requested_to_completed(storage: Storage, config: TableConfig) -> None:
    line = timeline(storage, config)
    instant = line.new_instant(config.write_action)
    assert instant.time == T1
    line.create_requested(instant)
    assert [i.state for i in line.pending()] == ["requested"]
    inflight = line.create_inflight(instant)
    assert line.pending() == (inflight,)
    assert line.completed() == ()
    done = line.create_completed(inflight, b"content")
    assert line.pending() == ()
    assert line.completed() == (done,)
    assert line.read(done) == b"content"
    # the clock stands still, times do not
    assert done.completion_time == (T1 if config.version == 6 else following_time(T1))
    assert line.new_time() > done.completion_time
    names = {f.name for f in storage.list_files()}
    assert len(names) == 3


def test_times_grow_whatever_the_clock_says(local: Storage) -> None:
    line = timeline(local, at=T2)
    for _ in range(3):
        line.create_requested(line.new_instant("commit"))
    earlier = timeline(local, at=T1)
    assert earlier.new_time() > max(i.time for i in line.instants())


def test_a_time_can_be_taken_once(storage: Storage) -> None:
    line = timeline(storage)
    instant = line.new_instant("commit")
    line.create_requested(instant)
    with pytest.raises(ConcurrentWrite, match=f"instant {T1} was taken by another writer"):
        line.create_requested(instant)
    line.create_inflight(instant)
    with pytest.raises(ConcurrentWrite, match="already inflight"):
        line.create_inflight(instant)


def test_what_was_rolled_back_cannot_complete(storage: Storage) -> None:
    line = timeline(storage)
    instant = line.create_inflight(line.create_requested(line.new_instant("commit")))
    line.delete(instant)
    with pytest.raises(ConcurrentWrite, match=f"rolled back our instant {T1}"):
        line.create_completed(instant, b"")
    assert line.completed() == ()


def test_times_are_moments() -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, 999000, UTC)
    assert format_instant_time(moment) == "20240229235959999"
    assert parse_instant_time("20240229235959999") == moment
    assert parse_instant_time("20240229235959") == moment.replace(microsecond=0)
    assert following_time("20240229235959999") == "20240301000000000"


def test_times_are_in_the_zone_that_the_table_states(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Hudi's own tables say LOCAL: its times there must not fall behind ours."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        here = replace(COW, extra={"hoodie.table.timeline.timezone": "LOCAL"})
        assert timeline(local, here, "20240701000000000").new_time() == "20240630200000000"
        assert timeline(local, COW, "20240701000000000").new_time() == "20240701000000000"
        stated = to_properties(COW)
        del stated["hoodie.table.timeline.timezone"]
        unstated = from_properties(stated, "hoodie.properties")
        assert timeline(local, unstated, "20240701000000000").new_time() == "20240630200000000"
    finally:
        monkeypatch.undo()
        time.tzset()
