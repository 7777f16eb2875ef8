"""Spark's streaming queries: sources, triggers, restarts from the checkpoint, killed drivers, refusals."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

import serde_lab
from serde_lab.errors import OptionError, StorageError, TableError
from serde_lab.pipeline.assign.index_lookup import FILES_READ
from serde_lab.streams.query import WrittenBatch
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import QUERY_KEY, shared_instant
from tests.faults.small_table import (
    COW,
    MOR,
    Row,
    Seen,
    check_file_groups,
    check_readers,
    read_by_us,
    seen_after,
    seen_by_us,
)
from tests.pipeline.lab_table import STRATEGIES
from tests.streams.file_stream import COLUMNS, FileStream, Moment, run_and_die, run_and_end
from tests.streams.small_stream import metadata_of_commits, stated_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIRST: Sequence[Row] = [("p", "a", 1, "first"), ("p", "b", 1, "first"), ("q", "c", 1, "first")]
SECOND: Sequence[Row] = [("p", "a", 2, "second"), ("q", "d", 2, "second")]
THIRD: Sequence[Row] = [("q", "e", 3, "third")]
ALL = (FIRST, SECOND, THIRD)
_PATIENCE_S = 300


def seen(*parts: Sequence[Row]) -> Seen:
    now: Seen = {}
    for rows in parts:
        now = seen_after(now, rows)
    return now


def batches_stated(*numbers: int) -> list[str]:
    return [f'{{"default_single_writer": "{number}"}}' for number in numbers]


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_query_goes_on_from_its_checkpoint(
    table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = FileStream(tmp_path, table_type)
    stream.add(FIRST, SECOND)
    first = stream.run(spark)
    assert stated_batches(stream.storage) == batches_stated(0, 1)
    check_readers(stream.storage, seen(FIRST, SECOND))
    key = metadata_of_commits(stream.storage)[-1].extra_metadata[QUERY_KEY]
    assert json.loads(key)["default_single_writer"]["query"] == str(first.id)
    # nothing new
    stream.run(spark)
    assert stated_batches(stream.storage) == batches_stated(0, 1)
    stream.add(THIRD, [])
    assert stream.run(spark).id == first.id
    assert stated_batches(stream.storage) == batches_stated(0, 1, 2, 3)
    check_readers(stream.storage, seen(*ALL))
    # stored, but Spark does not know
    stream.forget(3)
    stream.add([("p", "a", 9, "last")])
    stream.run(spark)
    assert stated_batches(stream.storage) == batches_stated(0, 1, 2, 3, 4)
    check_readers(stream.storage, seen(*ALL, [("p", "a", 9, "last")]))


def test_a_watched_query_tells_what_each_batch_did(spark: SparkSession, tmp_path: Path) -> None:
    stream, told = FileStream(tmp_path, MOR), list[WrittenBatch]()
    stream.add(FIRST, SECOND)
    given = {
        "hoodie__compact__inline": "true",
        "hoodie__compact__inline__max__delta__commits": "2",
    }
    stream.run(spark, told.append, **given)
    stream.forget(1)
    stream.run(spark, told.append, **given)
    # the second batch is stored, and so not written again
    assert [batch.number for batch in told] == [0, 1]
    inserted = [batch.commit and batch.commit.rows_inserted for batch in told]
    assert inserted == [len(FIRST), len(SECOND) - 1]
    assert [batch.served.compacted is not None for batch in told] == [False, True]
    stages = [{one.report.stage for one in batch.tasks} for batch in told]
    assert stages == [{"map", "reduce"}, {"map", "reduce", "compact"}]
    for batch in told:
        assert list(batch.driver.phases) == [
            "prepare", "begin", "plan", "execute", "commit", "serve"
        ]  # fmt: skip


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_assigners_keep_a_state_between_batches(
    table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    counts = {}
    for state in ("true", "false"):
        stream, told = FileStream(tmp_path / state, table_type), list[WrittenBatch]()
        parts = [[("p", f"k{k}", number, "x") for k in range(6)] for number in range(3)]
        stream.add(*parts)
        given = {
            "hoodie__index__type": "BLOOM",
            "hoodie__bucket__index__num__buckets": None,
            "serde_lab__assigner_state": state,
        }
        stream.run(spark, told.append, **given)
        check_readers(stream.storage, seen(parts[-1]))
        check_file_groups(stream.storage)
        counts[state] = [
            sum(one.report.counters.get(FILES_READ, 0) for one in batch.tasks) for batch in told
        ]
    assert counts["true"] == [0, 0, 0]
    assert min(counts["false"][1:]) > 0


@pytest.mark.parametrize("strategy", sorted({*STRATEGIES, "pickle_columns"} - {"arrow"}))
def test_a_query_by_each_strategy(strategy: str, spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path, MOR)
    stream.add(FIRST, SECOND)
    stream.run(spark, serde_lab__strategy=strategy)
    check_readers(stream.storage, seen(FIRST, SECOND))


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_a_query_that_appends(operation: str, spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    stream.add(FIRST, THIRD)
    given = {
        "hoodie__datasource__write__operation": operation,
        "hoodie__index__type": "FLINK_STATE",
        "hoodie__bucket__index__num__buckets": None,
    }
    stream.run(spark, **given)
    stream.forget(1)
    stream.run(spark, **given)
    check_readers(stream.storage, seen(FIRST, THIRD))


def waiting(stream: FileStream) -> int:
    """Batches that are stored and not committed yet."""
    shared = shared_instant(HoodieTable.open(stream.storage))
    return 0 if shared is None else shared.batches


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_batches_share_a_commit_until_the_query_ends(
    table_type: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = FileStream(tmp_path, table_type)
    stream.add(*ALL)
    two = {"serde_lab__stream__batches_per_commit": 2}
    stream.run(spark, **two)
    assert stated_batches(stream.storage) == batches_stated(1, 2)
    check_readers(stream.storage, seen(*ALL))
    # a batch that was stored, and whose driver died before the commit
    last = [("p", "a", 9, "last")]
    stream.add(last)
    write = serde_lab.batch_writer(stream.storage.url, stream.options(**two))
    query = stream.frame(spark).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()
    assert waiting(stream) == 1
    check_readers(stream.storage, seen(*ALL))
    # nothing new, and still it is committed
    stream.run(spark, **two)
    assert stated_batches(stream.storage) == batches_stated(1, 2, 3)
    check_readers(stream.storage, seen(*ALL, last))
    stream.add(FIRST, [("q", "c", 10, "beyond")])
    query = stream.start(spark, **two)
    assert isinstance(query, StreamingQuery)
    query.processAllAvailable()
    query.stop()
    assert waiting(stream) == 0
    check_readers(stream.storage, seen(*ALL, last, [("q", "c", 10, "beyond")]))
    check_file_groups(stream.storage)


def test_a_program_ends_after_the_last_commit_of_its_query(tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    stream.add(*ALL)
    program = get_context("spawn").Process(target=run_and_end, args=(stream,))
    program.start()
    program.join(_PATIENCE_S)
    assert program.exitcode == 0
    assert waiting(stream) == 0
    check_readers(stream.storage, seen(*ALL))


def test_time_commits_without_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path, MOR)
    stream.add(FIRST)
    interval = {"serde_lab.stream.commit_interval_ms": 1500}
    query = serde_lab.write_stream(
        stream.frame(spark),
        stream.storage.url,
        stream.options() | interval,
        str(stream.checkpoint),
        processing_time="1 hour",
    )
    try:
        for _ in range(_PATIENCE_S * 10):
            if HoodieTable.exists(stream.storage) and stated_batches(stream.storage):
                break
            time.sleep(0.1)
        assert query.isActive
        check_readers(stream.storage, seen(FIRST))
    finally:
        query.stop()
    assert stated_batches(stream.storage) == batches_stated(0)


def test_a_query_that_deletes(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    stream.add(FIRST)
    stream.run(spark)
    gone = FileStream(tmp_path / "gone")
    gone.add([("p", "a", 0, "")])
    query = serde_lab.write_stream(
        gone.frame(spark).select("p", "k"),
        stream.storage.url,
        stream.options(
            hoodie__datasource__write__operation="delete",
            hoodie__datasource__write__streaming__checkpoint__identifier="gone",
        ),
        checkpoint=str(gone.checkpoint),
        once=True,
        query_name="gone",
    )
    query.awaitTermination()
    assert query.name == "gone"
    check_readers(stream.storage, seen(FIRST[1:]))


def test_rate_rows_at_a_processing_time(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    frame = rows.selectExpr(
        *("'p' p", "cast(value % 7 as string) k", "value ts", "cast(value as string) v")
    )
    stream = FileStream(tmp_path)
    query = serde_lab.write_stream(
        frame,
        stream.storage.url,
        stream.options(),
        str(stream.checkpoint),
        processing_time="100 milliseconds",
    )
    try:
        for _ in range(600):
            if query.exception() is not None:
                raise AssertionError(str(query.exception()))
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= 3:
                break
            query.awaitTermination(1)
    finally:
        query.stop()
    found = seen_by_us(stream.storage)
    assert len(found) == 7
    # the newest value of each key is among the last seven rows
    newest = max(ts for ts, _ in found.values())
    assert sorted(ts for ts, _ in found.values()) == list(range(newest - 6, newest + 1))
    check_file_groups(stream.storage)


@pytest.mark.parametrize(
    "moment", ["before the commit", "after the commit", "the JVM before the commit"]
)
def test_a_driver_is_killed_and_the_query_starts_again(
    moment: Moment, spark: SparkSession, tmp_path: Path
) -> None:
    stream = FileStream(tmp_path, MOR)
    stream.add(*ALL)
    driver = get_context("spawn").Process(target=run_and_die, args=(stream, 1, moment))
    driver.start()
    driver.join(_PATIENCE_S)
    assert driver.exitcode == -signal.SIGKILL
    stored = ALL[:1] if moment == "before the commit" else ALL[:2]
    check_readers(stream.storage, seen(*stored))
    assert not (stream.checkpoint / "commits" / "1").exists()

    stream.run(spark)
    assert stated_batches(stream.storage) == batches_stated(0, 1, 2)
    check_readers(stream.storage, seen(*ALL))
    check_file_groups(stream.storage)


def test_two_queries_write_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    name = "hoodie.datasource.write.streaming.checkpoint.identifier"
    url, now, queries = FileStream(tmp_path).storage.url, Seen(), []
    for key in "ab":
        stream = FileStream(tmp_path / key)
        parts = [[("p", key, number, key)] for number in range(3)]
        stream.add(*parts)
        now = seen_after(now, parts[-1])
        options = {**stream.options(), name: key}
        queries.append(
            serde_lab.write_stream(
                stream.frame(spark), url, options, str(stream.checkpoint), available_now=True
            )
        )
    for query in queries:
        query.awaitTermination()
    found = stated_batches(FileStream(tmp_path).storage)
    assert sorted(map(str, found)) == [f'{{"{key}": "{n}"}}' for key in "ab" for n in range(3)]
    check_readers(FileStream(tmp_path).storage, now)
    check_file_groups(FileStream(tmp_path).storage)


def test_a_schema_that_grows_between_restarts(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    stream.add(FIRST)
    stream.run(spark)
    stream.add(THIRD)
    wider = stream.frame(spark, f"{COLUMNS}, more int")
    options, checkpoint = stream.options(), str(stream.checkpoint)
    serde_lab.write_stream(
        wider, stream.storage.url, options, checkpoint, available_now=True
    ).awaitTermination()
    assert "more" in read_by_us(stream.storage).column_names
    check_readers(stream.storage, seen(FIRST, THIRD))


def test_a_writer_without_a_query_counts_batches(spark: SparkSession, tmp_path: Path) -> None:
    def frame(rows: Sequence[Row]) -> DataFrame:
        return spark.createDataFrame(list(rows), COLUMNS)

    stream = FileStream(tmp_path)
    write = serde_lab.batch_writer(stream.storage.url, stream.options())
    write(frame(FIRST), 0)
    write(frame(SECOND), 0)
    check_readers(stream.storage, seen(FIRST))
    write(frame(SECOND), 1)
    assert stated_batches(stream.storage) == batches_stated(0, 1)
    check_readers(stream.storage, seen(FIRST, SECOND))


Given = Callable[["DataFrame", int], None]


def run_foreach_batch(stream: FileStream, spark: SparkSession, function: Given) -> str:
    """A query of a program's own over all files; what it ended with, "" if it went well."""
    query = stream.frame(spark).writeStream.foreachBatch(function).trigger(availableNow=True)
    try:
        query.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()
    except StreamingQueryException as error:
        return str(error)
    return ""


@pytest.mark.parametrize("writers", [1, 2])
def test_a_batch_of_two_dataframes_is_refused(
    writers: int, spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of the second one would be taken for stored ones."""
    stream = FileStream(tmp_path)
    stream.add(FIRST, SECOND)

    def halves(df: DataFrame, number: int) -> None:
        table = Path(stream.storage.url)
        spelled = (str(table), f"{table.parent}/../{table.parent.name}/{table.name}")[:writers]
        made = [serde_lab.batch_writer(path, stream.options()) for path in spelled]
        made[0](df.where("p = 'p'"), number)
        made[-1](df.where("p <> 'p'"), number)

    for _ in range(2):  # the first half is stored by now, and still the second one is refused
        assert "batch 0 of query" in (said := run_foreach_batch(stream, spark, halves))
        assert "came with two DataFrames, and the table has the rows of the first one alone" in said
    check_readers(stream.storage, seen(FIRST[:2]))


def test_a_batch_may_be_given_again(spark: SparkSession, tmp_path: Path) -> None:
    """The same rows, as a program gives them that tries its whole function again; and two tables."""
    stream, other = FileStream(tmp_path), FileStream(tmp_path / "other")
    stream.add(FIRST, SECOND)
    one, two = (serde_lab.batch_writer(s.storage.url, s.options()) for s in (stream, other))
    tried = []

    def write(df: DataFrame, number: int) -> None:
        for _ in range(2):
            one(df.where("p = 'p'"), number)
            two(df.where("p <> 'p'").persist(), number)
        tried.append(number)

    assert run_foreach_batch(stream, spark, write) == ""
    assert tried == [0, 1]
    # stored, but Spark does not know; a new run gives new DataFrames
    stream.forget(1)
    assert run_foreach_batch(stream, spark, write) == ""
    assert tried == [0, 1, 1]
    check_readers(stream.storage, seen([*FIRST[:2], *SECOND[:1]]))
    check_readers(other.storage, seen([*FIRST[2:], *SECOND[1:]]))


def test_a_batch_that_another_run_stored_is_refused_unless_it_is_the_runs_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Runs with copies of one checkpoint folder number their batches alike, but the rows are others."""
    stream = FileStream(tmp_path)
    write = serde_lab.batch_writer(stream.storage.url, stream.options())
    one, two = str(uuid4()), str(uuid4())

    def give(run: str, number: int, rows: Sequence[Row]) -> None:
        names = "spark.jobGroup.id", "sql.streaming.queryId", "streaming.sql.batchId"
        for name, value in zip(names, (run, "query", str(number)), strict=True):
            spark.sparkContext.setLocalProperty(name, value)
        try:
            write(spark.createDataFrame(list(rows), COLUMNS), number)
        finally:
            for name in names:
                spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]

    give(one, 0, FIRST)
    give(one, 1, SECOND)
    # it may be that Spark does not know that the batch was stored before the run
    give(two, 1, THIRD)
    give(two, 2, THIRD)
    for _ in range(2):
        said = "batch 2 of query query is refused: since this run of the query gave batch 1, another run"
        with pytest.raises(OptionError, match=said):
            give(one, 2, [("p", "f", 4, "lost")])
    give(two, 3, [("p", "a", 5, "last")])
    check_readers(stream.storage, seen(*ALL, [("p", "a", 5, "last")]))


@pytest.mark.parametrize("kept", [1, 2])
def test_a_checkpoint_folder_that_was_set_back_is_refused_in_a_query_of_ones_own(
    kept: int, spark: SparkSession, tmp_path: Path
) -> None:
    """Its batches have the numbers of stored ones, but rows that the table lacks."""
    stream = FileStream(tmp_path)
    write = serde_lab.batch_writer(stream.storage.url, stream.options())
    for rows in ALL:
        stream.add(rows)
        assert run_foreach_batch(stream, spark, write) == ""
        if (number := len(list(stream.source.iterdir()))) == kept:
            shutil.copytree(stream.checkpoint, tmp_path / "copy")
    shutil.copytree(stream.checkpoint, tmp_path / "newest")
    shutil.rmtree(stream.checkpoint)
    (tmp_path / "copy").rename(stream.checkpoint)
    for file in sorted(stream.source.iterdir())[kept:]:
        file.unlink()
    stream.add(*[[("q", f"lost {n}", 1, "x")] for n in range(number - kept)])
    for _ in range(2):  # the first batch of a run may be one that was stored before the run
        said = run_foreach_batch(stream, spark, write)
        assert f"batch {kept} of query" in said
        assert "the table holds batch 2 of the same query, and Spark chose the rows of" in said
    with pytest.raises(OptionError, match=f"batch {kept} .* Spark chose the rows of this one anew"):
        stream.start(spark)
    check_readers(stream.storage, seen(*ALL))
    # the newest folder goes on, also if Spark does not know that its last batch is stored
    shutil.rmtree(stream.checkpoint)
    (tmp_path / "newest").rename(stream.checkpoint)
    stream.forget(2)
    assert run_foreach_batch(stream, spark, write) == ""
    assert stated_batches(stream.storage)[:3] == batches_stated(0, 1, 2)


def test_a_batch_id_of_the_programs_own_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    stream.add(FIRST, SECOND)
    write = serde_lab.batch_writer(stream.storage.url, stream.options())
    said = run_foreach_batch(stream, spark, lambda df, _: write(df, 0))
    assert "the batch id is 0, but query" in said
    assert "is at batch 1" in said
    check_readers(stream.storage, seen(FIRST))


def test_what_a_query_cannot_promise_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path / "a")
    stream.add(FIRST, SECOND)
    shutil.copytree(stream.folder, tmp_path / "b")
    stream.run(spark)
    before = HoodieTable.open(stream.storage).timeline().instants()
    frame, url, options = stream.frame(spark), stream.storage.url, stream.options()
    checkpoint = str(stream.checkpoint)

    new = str(tmp_path / "new")
    with pytest.raises(OptionError, match=f"folder {new} is new, .* stored batch 1"):
        serde_lab.write_stream(frame, url, options, new)
    other = FileStream(tmp_path / "b")
    other.run(spark)
    with pytest.raises(OptionError, match="identifier default_single_writer belongs to query"):
        serde_lab.write_stream(frame, url, options, str(other.checkpoint))
    with pytest.raises(TableError, match=r"batch 2 .* comes first to this table"):
        serde_lab.write_stream(frame, str(tmp_path / "elsewhere"), options, checkpoint)
    name = "hoodie.datasource.write.streaming.checkpoint.identifier"
    over = {"serde_lab.stream.takes_over": "true"}
    with pytest.raises(TableError, match=r"batch 2 .* comes first to this table"):
        serde_lab.write_stream(frame, str(tmp_path / "elsewhere"), options | over, checkpoint)
    with pytest.raises(TableError, match="holds no batch of the identifier renamed"):
        serde_lab.write_stream(frame, url, {**options, name: "renamed"}, checkpoint)
    insert = {"hoodie.datasource.write.operation": "insert"}
    with pytest.raises(OptionError, match=r"operation is insert, but query .* began with upsert"):
        serde_lab.write_stream(frame, url, options | insert, checkpoint)
    with pytest.raises(OptionError, match=r"'hoodie\.no\.such' is not supported"):
        serde_lab.write_stream(frame, url, {**options, "hoodie.no.such": "1"}, checkpoint)
    with pytest.raises(OptionError, match="takes one of processing_time, available_now and once"):
        serde_lab.write_stream(frame, url, options, checkpoint, once=True, available_now=True)
    rows = spark.createDataFrame(list(FIRST), COLUMNS)
    with pytest.raises(OptionError, match="not a streaming one"):
        serde_lab.write_stream(rows, url, options, checkpoint)
    socket = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 9)
    with pytest.raises(OptionError, match="the source socket cannot send rows again"):
        serde_lab.write_stream(socket.load(), url, options, checkpoint)
    plan, checksum = (stream.checkpoint / "offsets" / name for name in ("1", ".1.crc"))
    whole = plan.read_text()
    plan.write_text("")
    checksum.rename(tmp_path / "checksum")
    with pytest.raises(
        StorageError, match="its file with the newest plan, in offsets, cannot be read: "
    ):
        serde_lab.write_stream(frame, url, options, checkpoint)
    plan.write_text(whole)
    (tmp_path / "checksum").rename(checksum)
    for log in ("offsets", "commits"):
        (stream.checkpoint / log / "1").unlink()
        (stream.checkpoint / log / ".1.crc").unlink()
    with pytest.raises(OptionError, match="ends at batch 0, but the table holds batch 1"):
        serde_lab.write_stream(frame, url, options, checkpoint)
    named = stream.checkpoint / "metadata"
    for content in ("", named.read_text()[:9]):
        named.write_text(content)
        (stream.checkpoint / ".metadata.crc").unlink(missing_ok=True)
        with pytest.raises(StorageError, match="its file metadata cannot be read: "):
            serde_lab.write_stream(frame, url, options, checkpoint)
    assert HoodieTable.open(stream.storage).timeline().instants() == before


def test_a_query_says_why_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(tmp_path)
    stream.add([("p", "a", 1, "x")])
    bad = stream.frame(spark).selectExpr("p", "cast(null as string) k", "ts", "v")
    query = serde_lab.write_stream(
        bad, stream.storage.url, stream.options(), str(stream.checkpoint), available_now=True
    )
    with pytest.raises(StreamingQueryException, match="record key"):
        query.awaitTermination()
    assert not HoodieTable.exists(stream.storage)
