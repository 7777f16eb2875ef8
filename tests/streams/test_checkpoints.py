"""The form in which commits name batches, and that archiving forgets none."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.table.files.log_block import BlockType, Header, frame_block
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import archive as archive_module
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.checkpoints import (
    QUERY_KEY,
    SINK_KEY,
    Checkpoint,
    checkpoints_in,
    extra_metadata,
    keep_checkpoints,
)
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.validation.diagnosis import validate_table
from tests.faults.small_table import COW, MOR, Seen, check_readers, seen_after, upsert
from tests.streams.small_stream import NO_SERVICES, SHORT_TIMELINE, SmallStream, stated_batches
from tests.table.savepoints import restore, save


def test_the_form_is_that_of_hudi_beside_a_key_of_our_own() -> None:
    both = {"a": Checkpoint(3, "q", "insert", 7), "b": Checkpoint(5)}
    stated = extra_metadata(both)
    assert json.loads(stated[SINK_KEY]) == {"a": "3", "b": "5"}
    assert json.loads(stated[QUERY_KEY]) == {
        "a": {"query": "q", "operation": "insert", "planned_ms": 7}
    }
    assert checkpoints_in(CommitMetadata("UPSERT", (), stated), "here") == both
    assert extra_metadata({"b": Checkpoint(5)}) == {SINK_KEY: '{"b": "5"}'}
    assert checkpoints_in(CommitMetadata("UPSERT"), "here") == {}


@pytest.mark.parametrize("value", ["5", "no JSON", "[1]", '{"a": "x"}', '{"a": -1}', '{"a": null}'])
def test_another_form_is_refused_by_name(value: str) -> None:
    with pytest.raises(TableError, match=f"^here: {SINK_KEY} "):
        checkpoints_in(CommitMetadata("UPSERT", (), {SINK_KEY: value}), "here")


def test_the_newest_batch_of_each_identifier_counts(tmp_path: Path) -> None:
    first = SmallStream.of(tmp_path, options=NO_SERVICES)
    second = SmallStream.of(tmp_path, query="two", identifier="b", options=NO_SERVICES)
    first.send(0, [("p", "a", 1, "x")])
    assert second.last is None
    second.send(0, [("p", "b", 1, "x")])
    first.send(1, [("p", "a", 2, "y")])
    upsert(first.storage, [("p", "c", 1, "no stream")])
    assert first.last == Checkpoint(1, "one", "upsert")
    assert second.last == Checkpoint(0, "two", "upsert")
    assert stated_batches(first.storage) == [
        *('{"default_single_writer": "0"}', '{"b": "0"}', '{"default_single_writer": "1"}', None)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_archiving_keeps_the_last_batch_of_a_query_that_paused(
    table_type: str, tmp_path: Path
) -> None:
    given = {"options": SHORT_TIMELINE, "table_type": table_type}
    paused = SmallStream.of(tmp_path, query="two", identifier="paused", **given)
    other = SmallStream.of(tmp_path, **given)
    rows = [("p", "b", 1, "paused")]
    assert paused.send(0, rows) is not None
    first = min(i.time for i in HoodieTable.open(paused.storage).timeline().completed())
    now: Seen = seen_after({}, rows)
    for number in range(12):
        rows = [("p", "a", number, "going on")]
        other.send(number, rows)
        now = seen_after(now, rows)
        assert paused.last == Checkpoint(0, "two", "upsert")
        check_readers(paused.storage, now)
    assert validate_table(paused.storage, deep=True).findings == ()
    timeline = HoodieTable.open(paused.storage).timeline()
    assert min(i.time for i in timeline.completed()) > first
    assert paused.send(0, [("p", "b", 1, "doubled")]) is None
    assert paused.send(1, [("p", "b", 2, "later")]) is not None
    assert paused.last == Checkpoint(1, "two", "upsert")
    check_readers(paused.storage, seen_after(now, [("p", "b", 2, "later")]))


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_archiving_keeps_the_last_batch_for_a_restore_to_a_savepoint(
    table_type: str, tmp_path: Path
) -> None:
    """A commit that restates it comes after the savepoint, and the restore undoes it."""
    given = {"options": NO_SERVICES, "table_type": table_type, "operation": "insert"}
    stream = SmallStream.of(tmp_path, **given)
    for number in range(3):
        stream.send(number, [("p", f"{number}", 1, "batch")])
    upsert(stream.storage, [("q", "a", 1, "saved")], table_type)
    timeline = HoodieTable.open(stream.storage).timeline()
    saved = timeline.completed()[-1]
    stream.storage.put_new(timeline.path(replace(saved, action="savepoint")))
    for number in range(2, 6):
        upsert(stream.storage, [("q", "a", number, "undone")], table_type)
    assert archive(HoodieTable.open(stream.storage), 1, 2) is not None
    restore(HoodieTable.open(stream.storage), saved.time)
    assert stream.last == Checkpoint(2, "one", "insert")
    assert stream.send(2, [("p", "2", 1, "doubled")]) is None
    assert stream.send(3, [("p", "3", 1, "batch")]) is not None
    rows = {("p", f"{number}"): (1, "batch") for number in range(4)}
    check_readers(stream.storage, rows | {("q", "a"): (1, "saved")})


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("last", [0, 2])
def test_a_batch_that_another_writer_archived_is_not_stored_again(
    last: int, table_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Hudi's archiving restates no batch."""
    monkeypatch.setattr(archive_module, "keep_checkpoints", lambda *_: None)
    given = {"options": NO_SERVICES, "table_type": table_type, "operation": "insert"}
    stream, now = SmallStream.of(tmp_path, **given), Seen()
    for number in range(last + 1):
        stream.send(number, [("p", f"{number}", 1, "batch")])
        now = seen_after(now, [("p", f"{number}", 1, "batch")])
    for number in range(4):
        upsert(stream.storage, [("q", "a", number, "other")], table_type)
    table = HoodieTable.open(stream.storage)
    assert archive(table, 1, 2) is not None
    assert set(stated_batches(stream.storage)) == {None}
    now = seen_after(now, [("q", "a", 3, "other")])
    assert stream.last == Checkpoint(last, "one", "insert")
    assert stream.send(last, [("p", f"{last}", 1, "batch")]) is None
    with pytest.raises(OptionError, match="belongs to query one"):
        SmallStream.of(tmp_path, query="two", **given).send(0, [("p", "0", 1, "other query")])
    check_readers(stream.storage, now)
    rows = [("p", "next", 1, "batch")]
    assert stream.send(last + 1, rows) is not None
    check_readers(stream.storage, seen_after(now, rows))


def test_an_archived_batch_that_a_restore_undid_is_missing(tmp_path: Path) -> None:
    """Archiving may go past a savepoint, and a restore leaves the history as it is."""
    stream = SmallStream.of(tmp_path, options=NO_SERVICES)
    upsert(stream.storage, [("p", "a", 0, "saved")])
    rows = [("p", "b", 1, "batch")]
    stream.send(0, rows)
    table = HoodieTable.open(stream.storage)
    timeline = table.timeline()
    saved, batch = timeline.completed()
    upsert(stream.storage, [("q", "a", 1, "undone")])
    save(table, saved, [])
    table.archived_timeline().add([archive_module._archived(timeline, batch)])
    archive_module._leave(timeline, [batch])
    assert stream.last == Checkpoint(0, "one", "upsert")
    restore(table, saved.time)
    assert stream.last is None
    assert stream.send(0, rows) is not None
    check_readers(stream.storage, seen_after({}, [("p", "a", 0, "saved"), *rows]))


def test_nothing_is_restated_for_batches_that_later_commits_name(tmp_path: Path) -> None:
    stream = SmallStream.of(tmp_path, options=NO_SERVICES)
    for number in range(3):
        stream.send(number, [("p", "a", number, "x")])
    table = HoodieTable.open(Storage.open(tmp_path))
    completed = table.timeline().completed()
    assert keep_checkpoints(table, completed[:2]) is None
    kept = keep_checkpoints(table, completed)
    assert kept is not None
    assert stream.last == Checkpoint(2, "one", "upsert")
    # an archiving that died here restates nothing again
    assert keep_checkpoints(table, completed) is None


def archive_in_layout_1(storage: Storage, keeps: int) -> Path:
    """Archive all writes but the last `keeps`, as Apache Hudi does in table version 6."""
    text = {"type": "map", "values": "string"}
    commit = {"type": "record", "name": "C", "fields": [{"name": "extraMetadata", "type": text}]}
    schema = {
        "type": "record",
        "name": "HoodieArchivedMetaEntry",
        "fields": [
            {"name": "commitTime", "type": "string"},
            {"name": "actionState", "type": "string"},
            {"name": "hoodieCommitMetadata", "type": ["null", commit]},
        ],
    }
    table, rows = HoodieTable.open(storage), []
    for instant in table.timeline().completed()[:-keeps]:
        extra = {"extraMetadata": table.commit_metadata(instant).extra_metadata}
        states = {"REQUESTED": None, "INFLIGHT": {"extraMetadata": {}}, "COMPLETED": extra}
        for state, metadata in states.items():
            datum = io.BytesIO()
            row = {"commitTime": instant.time, "actionState": state}
            fastavro.schemaless_writer(datum, schema, row | {"hoodieCommitMetadata": metadata})
            rows.append(struct.pack(">i", datum.tell()) + datum.getvalue())
        archive_module._leave(table.timeline(), [instant])
    content = struct.pack(">ii", 3, len(rows)) + b"".join(rows)
    path = ".hoodie/archived/.commits_.archive.1_1-0-1"
    header = {Header.INSTANT_TIME: "1", Header.SCHEMA: json.dumps(schema)}
    storage.put_new(path, frame_block(BlockType.AVRO_DATA, header, content))
    found = storage.local_path(path)
    assert found is not None
    return Path(found)


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("last", [0, 2])
def test_a_batch_that_hudi_archived_in_table_version_6_is_not_stored_again(
    last: int, table_type: str, tmp_path: Path
) -> None:
    given = {"options": NO_SERVICES | {"hoodie.write.table.version": "6"}, "operation": "insert"}
    stream = SmallStream.of(tmp_path, table_type=table_type, **given)
    beside = replace(stream, query="two", identifier="beside")
    now = Seen()
    for number in range(last + 1):
        rows = [("p", f"{number}", 1, "batch")]
        stream.send(number, rows)
        now = seen_after(now, rows)
    for number in range(3):
        rows = [("q", f"{number}", 1, "other")]
        beside.send(number, rows)
        now = seen_after(now, rows)
    archived = archive_in_layout_1(stream.storage, keeps=2)
    assert stream.last == Checkpoint(last, "one", "insert")
    assert stream.send(last, [("p", f"{last}", 1, "batch")]) is None
    check_readers(stream.storage, now)
    content = archived.read_bytes()
    archived.write_bytes(content[:-3])
    with pytest.raises(TableError, match=r"archive\.1_1-0-1: at byte 0, "):
        stream.send(last + 1, [("p", "next", 1, "batch")])
    archived.write_bytes(content)
    rows = [("p", "next", 1, "batch")]
    assert stream.send(last + 1, rows) is not None
    check_readers(stream.storage, seen_after(now, rows))
