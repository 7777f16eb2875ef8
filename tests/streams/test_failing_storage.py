"""A storage that refuses, goes down or loses answers under a stream's batch: Spark sends it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from serde_lab.errors import StorageError
from serde_lab.table.storage.storage import Storage
from tests.faults.scripted_storage import Mode, ScriptedStorage
from tests.faults.small_table import (
    COW,
    DEAD,
    FIRST,
    MOR,
    SECOND,
    Seen,
    check_file_groups,
    check_readers,
    seen_after,
)
from tests.faults.test_killed_driver import COURSES
from tests.streams.small_stream import NO_SERVICES, SmallStream
from tests.table.conftest import s3_options as s3_options

pytestmark = pytest.mark.slow

COMMIT = COURSES[0]
KEPT = seen_after(seen_after({}, FIRST), SECOND)


def stream_in(storage: Storage, table_type: str = COW, query: str = "one") -> SmallStream:
    return SmallStream(
        storage, query, identifier=query, options=dict(NO_SERVICES), table_type=table_type
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with two batches."""
    folder = tmp_path_factory.mktemp("stream")
    stream = stream_in(Storage.open(folder))
    stream.send(0, FIRST)
    stream.send(1, SECOND)
    return folder


@pytest.mark.parametrize("mode", ["once", "down", "late"])
@pytest.mark.parametrize("number", range(len(COMMIT.steps)))
def test_a_batch_on_a_failing_storage_is_stored_once(
    number: int, mode: Mode, table: Path, tmp_path: Path
) -> None:
    shutil.copytree(table, tmp_path, dirs_exist_ok=True)
    storage = ScriptedStorage.open(tmp_path)
    storage.number, storage.mode = number, mode
    storage.fault = TimeoutError("operation timed out")
    try:
        stream_in(storage).send(2, DEAD)
        failed = False
    except StorageError:
        failed = True
    assert storage.raised
    # markers are left to the next writer
    assert failed or number >= COMMIT.completed_at
    good = stream_in(Storage.open(tmp_path))
    before = KEPT if failed else seen_after(KEPT, DEAD)
    check_readers(good.storage, before)
    assert (good.send(2, DEAD) is not None) is failed
    assert good.send(2, DEAD) is None
    check_readers(good.storage, seen_after(KEPT, DEAD))
    check_file_groups(good.storage)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_two_streams_into_an_object_store(table_type: str, s3_options: dict[str, str]) -> None:
    lake = Storage.open(f"s3://lake/streams-{table_type}", **s3_options)
    now: Seen = {}
    for number in range(3):
        for query in ("one", "two"):
            rows = [("p", query, number, query), ("q", f"{query} {number}", 0, "fresh")]
            assert stream_in(lake, table_type, query).send(number, rows) is not None
            assert stream_in(lake, table_type, query).send(number, rows) is None
            now = seen_after(now, rows)
        check_readers(lake, now)
