"""Rollback: nothing of a write that never completed stays, whenever its writer died."""

from __future__ import annotations

import io
from collections.abc import Callable

import fastavro
import pytest

from serde_lab.avro.codec import hudi_schema, write_single
from serde_lab.errors import ConcurrentWrite, StorageError, TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.services.rollback import rollback_pending
from serde_lab.table.storage.data_files import create_marker, delete_markers, list_markers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import Instant
from tests.table.made_up_tables import (
    SMALL,
    LogAppender,
    PlainWriter,
    Row,
    hudi_rs_rows,
    our_rows,
    without_meta,
)

CONFIG = TableConfig("trips", ("id",), partition_fields=("value",), ordering_fields=("ts",))


def row(key: str, ts: int, region: str = "r") -> Row:
    return {"id": key, "ts": ts, "value": region}


@pytest.fixture
def writer(storage: Storage) -> PlainWriter:
    made = PlainWriter(storage, CONFIG, SMALL)
    made.upsert([row("a", 1), row("b", 1)])
    return made


def data_files(storage: Storage) -> list[str]:
    return [f.path for f in storage.list_files() if f.name.endswith(".parquet")]


def died_after_requested(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    timeline.create_requested(timeline.new_instant("commit"))


def died_after_inflight(writer: PlainWriter) -> None:
    writer.begin()


def died_after_data(writer: PlainWriter) -> None:
    writer.write(writer.begin(), [row("a", 2), row("c", 1, "s")])


def died_without_markers(writer: PlainWriter) -> None:
    instant = writer.begin()
    writer.write(instant, [row("a", 2), row("c", 1, "s")])
    delete_markers(writer.storage, instant.time)


def died_requested_with_data(writer: PlainWriter) -> None:
    instant = writer.begin()
    writer.write(instant, [row("a", 2)])
    writer.table.timeline().delete(instant)


def died_with_a_marker_and_no_file(writer: PlainWriter) -> None:
    instant = writer.begin()
    for stat in writer.write(instant, [row("a", 2)]):
        writer.storage.delete(stat.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "died",
    [
        died_after_requested,
        died_after_inflight,
        died_after_data,
        died_without_markers,
        died_requested_with_data,
        died_with_a_marker_and_no_file,
    ],
)
def test_a_dead_write_leaves_nothing(
    writer: PlainWriter, died: Callable[[PlainWriter], None]
) -> None:
    before = data_files(writer.storage)
    died(writer)
    assert without_meta(hudi_rs_rows(writer.storage)) == [row("a", 1), row("b", 1)]
    failed = writer.table.timeline().pending()[0]
    undone = rollback_pending(writer.table)
    assert [u.instant for u in undone] == [failed.time]
    assert data_files(writer.storage) == before
    assert list_markers(writer.storage, failed.time) == []
    timeline = writer.table.timeline()
    assert timeline.pending() == ()
    assert [i.action for i in timeline.instants()] == ["commit", "rollback"]
    assert rollback_pending(writer.table) == ()
    writer.upsert([row("a", 3)])
    assert without_meta(hudi_rs_rows(writer.storage)) == [row("a", 3), row("b", 1)]


def test_a_rollback_says_what_it_did(local: Storage) -> None:
    writer = PlainWriter(local, CONFIG, SMALL)
    writer.upsert([row("a", 1)])
    died_after_data(writer)
    failed = writer.table.timeline().pending()[0]
    (undone,) = rollback_pending(writer.table)
    timeline = writer.table.timeline()
    done = timeline.instants()[-1]
    (metadata,) = fastavro.reader(io.BytesIO(timeline.read(done)))
    assert metadata["commitsRollback"] == [failed.time]
    assert metadata["instantsRollback"] == [{"commitTime": failed.time, "action": "commit"}]
    assert metadata["totalFilesDeleted"] == 2 == len(undone.deleted_files)
    assert sorted(metadata["partitionMetadata"]) == ["r", "s"]
    requested = Instant(done.time, "rollback", "requested")
    (plan,) = fastavro.reader(io.BytesIO(timeline.read(requested)))
    assert plan["instantToRollback"] == {"commitTime": failed.time, "action": "commit"}
    planned = [f for r in plan["RollbackRequests"] for f in r["filesToBeDeleted"]]
    assert sorted(planned) == sorted(local.describe(path) for path in undone.deleted_files)


class DiesOnTheWay(Storage):
    """Lets some deletes and creates through, then fails each one, as if the process had died."""

    left = 0

    def _spend(self) -> None:
        if self.left <= 0:
            raise OSError("the process is dead")
        self.left -= 1

    def _put(self, path: str, data: object, mode: object) -> None:
        self._spend()
        super()._put(path, data, mode)  # type: ignore[arg-type]

    def _delete(self, path: str) -> None:
        self._spend()
        super()._delete(path)


def test_a_rollback_that_dies_is_taken_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    steps = 0
    finished = False
    while not finished:
        folder = tmp_path_factory.mktemp("lake")
        writer = PlainWriter(Storage.open(folder), CONFIG, SMALL)
        writer.upsert([row("a", 1)])
        before = data_files(writer.storage)
        died_after_data(writer)
        dying = DiesOnTheWay.open(folder)
        dying.left = steps
        try:
            rollback_pending(type(writer.table)(dying, CONFIG))
            finished = True
        except StorageError as exc:
            if "the process is dead" not in str(exc):
                raise
        steps += 1
        assert without_meta(hudi_rs_rows(writer.storage)) == [row("a", 1)]
        rollback_pending(writer.table)
        timeline = writer.table.timeline()
        assert timeline.pending() == ()
        assert [i.action for i in timeline.instants()] == ["commit", "rollback"]
        assert data_files(writer.storage) == before
    assert steps > 6


def test_a_worker_that_outlives_its_instant_is_refused(storage: Storage) -> None:
    writer = PlainWriter(storage, CONFIG, SMALL)
    instant = writer.begin()
    rollback_pending(writer.table)
    with pytest.raises(ConcurrentWrite, match=f"instant {instant.time} is not inflight any more"):
        writer.write(instant, [row("a", 1)])
    assert data_files(storage) == []
    assert list_markers(storage, instant.time) == []


def test_of_two_attempts_of_a_task_one_file_stays(storage: Storage) -> None:
    writer = PlainWriter(storage, CONFIG, SMALL)
    instant = writer.begin()
    first = writer.write(instant, [row("a", 1)])
    again = writer.write(instant, [row("a", 1)])
    assert again == first
    writer.complete(instant, again)
    content = storage.get(first[0].path)
    zombie = writer.write(instant, [row("a", 99)])
    assert [s.path for s in zombie] == [s.path for s in first]
    assert storage.get(first[0].path) == content
    assert without_meta(hudi_rs_rows(storage)) == [row("a", 1)]


def test_a_service_of_another_writer_is_not_undone(local: Storage) -> None:
    writer = PlainWriter(local, CONFIG, SMALL)
    timeline = writer.table.timeline()
    timeline.create_requested(timeline.new_instant("indexing"))
    with pytest.raises(TableError, match="indexing of another writer is pending"):
        rollback_pending(writer.table)


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("marked", [True, False], ids=["markers", "no markers"])
def test_a_dead_deltacommit_leaves_no_log(local: Storage, version: int, marked: bool) -> None:
    config = TableConfig(
        "trips", ("id",), table_type="MERGE_ON_READ", version=version, ordering_fields=("ts",)
    )
    writer = PlainWriter(local, config, SMALL)
    writer.upsert([row("a", 1), row("b", 1)])
    LogAppender(writer).rows(row("a", 2)).commit()
    before = [f.path for f in local.list_files() if ".log." in f.name]
    dead = LogAppender(writer).rows(row("a", 3), row("c", 1)).deletes("b")
    dead.stats()
    if not marked:
        delete_markers(local, dead.instant.time)
    rollback_pending(writer.table)
    after = [f.path for f in local.list_files() if ".log." in f.name]
    # before version 8 a log's name does not show who wrote it: only markers do
    assert after == before or (version == 6 and not marked)
    expected = [row("a", 2), row("b", 1)]
    assert without_meta(hudi_rs_rows(local)) == expected
    assert without_meta(our_rows(writer.table)) == expected


@pytest.mark.parametrize("appended", [True, False])
def test_a_marker_of_the_base_file_that_was_appended_to_removes_no_base_file(
    appended: bool, local: Storage
) -> None:
    """As Apache Hudi 0.14 marks an append."""
    config = TableConfig("trips", ("id",), table_type="MERGE_ON_READ", version=6)
    writer = PlainWriter(local, config, SMALL)
    writer.upsert([row("a", 1)])
    dead = LogAppender(writer)
    if appended:
        dead.rows(row("a", 2)).stats()
    delete_markers(local, dead.instant.time)
    (base,) = [f.path for f in local.list_files() if f.name.endswith(".parquet")]
    create_marker(local, dead.instant.time, base, "APPEND")
    if appended:
        with pytest.raises(TableError, match=f"instant {dead.instant.time} appended to it"):
            rollback_pending(writer.table)
    else:
        rollback_pending(writer.table)
    assert without_meta(our_rows(writer.table)) == [row("a", 1)]


def test_a_rollback_of_apache_hudi_that_hides_blocks_is_left_to_it(local: Storage) -> None:
    config = TableConfig("trips", ("id",), table_type="MERGE_ON_READ", version=6)
    writer = PlainWriter(local, config, SMALL)
    writer.upsert([row("a", 1)])
    failed = writer.begin("deltacommit")
    plan = {
        "instantToRollback": {"commitTime": failed.time, "action": "deltacommit"},
        "RollbackRequests": [
            {
                "partitionPath": "",
                "fileId": "f",
                "latestBaseInstant": "",
                "filesToBeDeleted": [],
                "logBlocksToBeDeleted": {".f_1.log.1_0-1-0": 10},
            }
        ],
    }
    timeline = writer.table.timeline()
    rollback = timeline.new_instant("rollback")
    timeline.create_requested(rollback, write_single(hudi_schema("HoodieRollbackPlan"), plan))
    with pytest.raises(TableError, match="only Apache Hudi can finish it"):
        rollback_pending(writer.table)
    assert failed.time in {one.time for one in writer.table.timeline().pending()}


def test_a_log_that_others_wrote_to_is_not_removed(local: Storage) -> None:
    config = TableConfig("trips", ("id",), table_type="MERGE_ON_READ", version=6)
    writer = PlainWriter(local, config, SMALL)
    writer.upsert([row("a", 1)])
    first = LogAppender(writer).rows(row("a", 2))
    (stat,) = first.stats()
    writer.complete(first.instant, [stat])
    dead = writer.begin("deltacommit")
    create_marker(local, dead.time, stat.path, "APPEND")
    with pytest.raises(TableError, match=rf"holds a block of instant {first.instant.time} too"):
        rollback_pending(writer.table)
    assert without_meta(our_rows(writer.table)) == [row("a", 2)]
