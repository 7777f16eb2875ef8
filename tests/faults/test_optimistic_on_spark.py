"""Optimistic writers on Spark: writes from two threads, a conflict that is tried again, and Apache Hudi as
the reader of what they leave, and as the table's next writer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import serde_lab
from serde_lab.errors import WriteConflict
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.table.storage.storage import Storage
from tests.faults.looks import look
from tests.faults.small_table import (
    COW,
    KEPT,
    MOR,
    OPTIONS,
    SCHEMA,
    Row,
    Seen,
    check_readers,
    make,
    seen_after,
    upsert,
)
from tests.faults.test_optimistic_writers import OPTIMISTIC, OURS, OVERLAP, THEIRS, write
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot
from tests.streams.file_stream import COLUMNS, FileStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]


def by_spark(
    spark: SparkSession, place: Path, rows: list[Row], table_type: str, **own: object
) -> Commit:
    given = {name.replace("__", "."): str(value) for name, value in own.items()}
    options = {**OPTIONS, **OPTIMISTIC, "hoodie.datasource.write.table.type": table_type, **given}
    return serde_lab.write(spark.createDataFrame(rows, COLUMNS), str(place), options)


def look_with_hudi(spark: SparkSession, place: Path, expected: Seen) -> None:
    check_readers(Storage.open(place), expected)
    with HudiSnapshot(spark, str(place)) as snapshot:
        look("Apache Hudi", snapshot.table(), SCHEMA.names, expected)


class Once:
    """In the first commit, before it looks for conflicts: `act`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        complete, left = Coordinator.complete, [act]

        def after_it(*args: Any, **named: Any) -> Commit:
            if left:
                left.pop()()
            return complete(*args, **named)

        monkeypatch.setattr(Coordinator, "complete", after_it)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_hudi_reads_and_extends_what_optimistic_writers_left(
    table_type: str, tmp_path: Path, hudi_session: SparkSession
) -> None:
    storage = make(tmp_path, table_type)
    elsewhere: list[Row] = [("r", "g", 7, "elsewhere")]
    ours: list[Row] = [("p", k, 9, "ours") for k in "abcd"]
    services = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}

    def beside() -> None:
        # on merge-on-read with a compaction of the file groups into whose logs ours writes
        by_spark(
            hudi_session,
            tmp_path,
            elsewhere,
            table_type,
            **({k.replace(".", "__"): v for k, v in services.items()} if table_type == MOR else {}),
        )

    write(storage, ours, table_type, between=beside)
    now = seen_after(seen_after(KEPT, ours), elsewhere)
    look_with_hudi(hudi_session, tmp_path, now)
    with pytest.raises(WriteConflict):
        write(storage, ours, table_type, between=lambda: write(storage, OVERLAP, table_type))
    now["p", "a"] = (9, "ours")
    look_with_hudi(hudi_session, tmp_path, now)
    rows: list[Row] = [("p", "a", 20, "hudi"), ("s", "h", 20, "hudi")]
    table = HudiTable("t", ("k",), ("ts",), ("p",), table_type, buckets=2)
    frame = hudi_session.createDataFrame(rows, COLUMNS)
    hudi = frame.write.format("hudi").options(**write_options(table, HudiWrite()))
    hudi.mode("append").save(str(tmp_path))
    look_with_hudi(hudi_session, tmp_path, seen_after(now, rows))


def test_two_threads_write_at_once(tmp_path: Path, hudi_session: SparkSession) -> None:
    make(tmp_path)
    failed: list[BaseException] = []

    def theirs() -> None:
        try:
            for _ in range(3):
                by_spark(hudi_session, tmp_path, list(THEIRS), COW)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=theirs)
    thread.start()
    for _ in range(3):
        by_spark(hudi_session, tmp_path, list(OURS), COW)
    thread.join()
    assert failed == []
    check_readers(Storage.open(tmp_path), seen_after(seen_after(KEPT, OURS), THEIRS))


def test_a_conflict_is_tried_again_as_often_as_asked(
    tmp_path: Path, hudi_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make(tmp_path)

    def overlap() -> None:
        upsert(Storage.open(tmp_path), OVERLAP, COW, None, OPTIMISTIC)

    Once(monkeypatch, overlap)
    with pytest.raises(WriteConflict, match="bucket"):
        by_spark(hudi_session, tmp_path, list(THEIRS), COW)
    now = seen_after(KEPT, OVERLAP)
    check_readers(storage, now)
    Once(monkeypatch, overlap)
    retries = {"hoodie__write__num__retries__on__conflict__failures": 1}
    by_spark(hudi_session, tmp_path, list(THEIRS), COW, **retries)
    now = {**seen_after(now, THEIRS), ("p", "a"): (8, "overlap")}
    check_readers(storage, now)


def test_a_batch_of_a_query_is_tried_again(
    tmp_path: Path, hudi_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FileStream(tmp_path)
    stream.add([("p", "a", 1, "stream")])
    own = {name.replace(".", "__"): value for name, value in OPTIMISTIC.items()}
    own["hoodie__write__num__retries__on__conflict__failures"] = "1"
    stream.run(hudi_session, **own)
    stream.add([("p", "a", 9, "stream"), ("q", "b", 9, "stream")])
    Once(monkeypatch, lambda: upsert(stream.storage, OVERLAP, COW, None, OPTIMISTIC))
    stream.run(hudi_session, **own)
    check_readers(stream.storage, {("p", "a"): (9, "stream"), ("q", "b"): (9, "stream")})
