"""`serde_lab.batch_writer` and `serde_lab.write_stream`: a Hudi table written by a Spark streaming query."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any
from uuid import UUID

from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery

from serde_lab.errors import LabError, OptionError, StorageError, WriteConflict
from serde_lab.measure.timeline import AttemptReport, TaskReport, TaskTimeline
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.commit.table_services import Compactor, Served, compact_in_process
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.spark.dataframe import check_replayed
from serde_lab.pipeline.spark.exchange import batches_of
from serde_lab.pipeline.spark.tables import arrow_schema, compactor_on, exchange_for
from serde_lab.pipeline.spark.worker import check_workers
from serde_lab.pipeline.write import table_to_write
from serde_lab.streams.options import IDENTIFIER, StreamOptions, parse_stream_options
from serde_lab.streams.stream_writer import MicroBatch, StreamWriter, is_stored, name_of
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import newest_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of the thread in which Spark runs a batch. Each start of a query is a run, whose id is the
job group. Sources: StreamExecution and MicroBatchExecution of Spark 3.5."""
_RETRY_SECONDS = 1.0
_LOG_VERSION = 1
"""FileStreamSourceLog.VERSION of Spark 3.5."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What one micro-batch did: its commit, the services after it, and how long its parts took.

    `commit` is None if a later batch commits the instant that both share; it then states the rows of both.
    `tasks` are the reports of its Spark tasks, those of a compaction included. `driver` has the driver's
    phases: `prepare` (the table is opened, locked and repaired, and the batch looked up), `begin`, `plan`,
    `execute`, `commit`, `serve`.
    """

    number: int
    commit: Commit | None
    served: Served
    tasks: tuple[AttemptReport, ...]
    driver: TaskReport


Watch = Callable[[WrittenBatch], None]

_GIVEN: dict[tuple[str, str, str], tuple[MicroBatch, DataFrame | None]] = {}
"""By table (its real path), identifier and run: the last batch, and its rows once they are stored. A run has
one process."""


class BatchWriter:
    """Writes the micro-batches that `foreachBatch` gives it; `batch_writer` makes one.

    `watch` is called with each written batch, after its table services.
    """

    def __init__(self, path: str, options: Mapping[str, Any], watch: Watch | None = None) -> None:
        self._writer = StreamWriter(Storage.open(path), parse_stream_options(options))
        self._watch = watch
        self._spark: SparkSession | None = None
        self._timer: Timer | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Store the batch, unless the table holds it already. After a commit, run the table services, as
        `serde_lab.write` does.

        If batches share commits, the batch survives any failure when this returns, and readers see it after
        the commit. Raises what `serde_lab.write` raises, and OptionError or TableError for a batch that
        cannot be stored exactly once.
        """
        self._spark = spark = df.sparkSession
        check_workers(spark)
        local = spark.sparkContext.getLocalProperty
        query, run = local(_QUERY_ID) or "", local(_RUN_ID) or ""
        batch = MicroBatch(query, batch_id, planned_ms=_planned_ms(spark, query))
        number = local(_BATCH_ID) if batch.query else None
        if number not in (None, str(batch_id)):
            raise OptionError(
                f"the batch id is {batch_id}, but {name_of(batch.query)} is at batch {number}",
                hint="give the writer the batch id that foreachBatch gives",
            )
        key = os.path.realpath(self._writer.storage.url), self._writer.options.identifier, run
        batch = _after_earlier(key, batch)
        for tried in count():
            clock = TaskTimeline("driver")
            with ExitStack() as held:
                with clock.phase("prepare"):
                    write = held.enter_context(self._writer.begin(batch, arrow_schema(df)))
                if write is None:
                    _note(key, batch, df)
                    return
                options = write.options
                # should it fail and come once more, this try may have stored it
                batch = replace(batch, earlier=None)
                _GIVEN[key] = batch, None
                exchange = exchange_for(df, options)
                try:
                    with batches_of(spark, options.max_records_per_batch):
                        commit = write.commit(exchange, timeline=clock)
                except WriteConflict:
                    if tried >= options.conflict_retries:
                        raise
                    continue
                serving: list[AttemptReport] = []
                with clock.phase("serve"):
                    served = write.serve(compactor_on(spark, serving))
            break
        _note(key, batch, df)
        if self._watch is not None:
            tasks = (*exchange.reports, *serving)
            self._watch(WrittenBatch(batch_id, commit, served, tasks, clock.report()))
        self._set_timer()

    def flush(self) -> Commit | None:
        """Commit the batches that wait for their commit, and run the services; None if none waits.

        Call it at the end of a query of your own, and before Apache Hudi writes the table.
        """
        self._stop_timer()
        return self._writer.flush(self._compactor)

    @property
    def _compactor(self) -> Compactor:
        return compact_in_process if self._spark is None else compactor_on(self._spark)

    def _set_timer(self, least: float = 0.0) -> None:
        """Commit on time, also if no batch comes."""
        self._stop_timer()
        left = self._writer.seconds_left
        if left is not None:
            self._timer = Timer(max(left, least), self._on_time)
            self._timer.daemon = True
            self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_time(self) -> None:
        # nobody would see an error here; the next batch or flush meets its cause again, and raises it
        with suppress(LabError):
            self._writer.flush_if_due(self._compactor)
        self._set_timer(_RETRY_SECONDS)


def _after_earlier(key: tuple[str, str, str], batch: MicroBatch) -> MicroBatch:
    """The batch with the number of the one that its run gave before."""
    if not _is_run(key[-1], batch):
        return batch
    last, rows = _GIVEN.pop(key, (batch, None))
    if last != batch:
        last, rows = replace(batch, earlier=last.number), None
    _GIVEN[key] = last, rows
    for ended in list(_GIVEN)[:-100]:
        _GIVEN.pop(ended, None)
    return last


def _note(key: tuple[str, str, str], batch: MicroBatch, df: DataFrame) -> None:
    """Remember the rows of the batch, which is stored.

    Raises OptionError if the run gave other rows for this batch before: the table has only those.
    """
    _, rows = _GIVEN.get(key, (batch, None))
    if rows is not None and not df.sameSemantics(rows) and _is_run(key[-1], batch):
        raise OptionError(
            f"{batch} came with two DataFrames, and the table has the rows of the first one alone",
            hint="start another query that gives one DataFrame for each batch, such as the union of"
            f" both, or whose second writer has another {IDENTIFIER}",
        )
    _GIVEN[key] = batch, df


class FlushingQuery(StreamingQuery):
    """Spark's query, whose last batches are committed when it ends, however it ends."""

    def __init__(self, query: StreamingQuery, writer: BatchWriter) -> None:
        super().__init__(query._jsq)
        self._writer = writer
        # for a program that never asks this object how the query ended
        self._last = Thread(target=self._flush_at_the_end, name="last-commit", daemon=True)
        self._last.start()
        atexit.register(self._finish)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """As Spark's; if the query has ended when it returns, its batches are committed."""
        try:
            ended = super().awaitTermination(timeout)
        except Exception:
            with suppress(LabError):  # the query's own error matters more
                self._writer.flush()
            raise
        if not self.isActive:
            self._writer.flush()
        return ended

    def stop(self) -> None:
        """As Spark's, and commit the batches that wait for it."""
        super().stop()
        self._writer.flush()

    def _flush_at_the_end(self) -> None:
        with suppress(Exception):  # the query's own error is for whoever asks the query
            super().awaitTermination()
        with suppress(LabError):  # the query's next start commits the batches
            self._writer.flush()
        atexit.unregister(self._finish)

    def _finish(self) -> None:
        """Let a program end only after the last commit of a query that has ended before it."""
        if not self.isActive:
            self._last.join()


def batch_writer(path: str, options: Mapping[str, Any]) -> BatchWriter:
    """A function for `foreachBatch` that writes each micro-batch to the table at `path` exactly once.

        df.writeStream.foreachBatch(batch_writer(path, options)).option("checkpointLocation", …).start()

    `options` are those of `serde_lab.write`, and those of a stream (`serde_lab.streams.options`). The
    operation is upsert, insert, bulk_insert or delete. Outside of a query, batch ids alone tell batches
    apart. Raises OptionError for an invalid option of the stream; those of the write are checked at each
    batch.
    """
    return BatchWriter(path, options)


def write_stream(
    df: DataFrame,
    path: str,
    options: Mapping[str, Any],
    checkpoint: str,
    *,
    processing_time: str | None = None,
    available_now: bool = False,
    once: bool = False,
    query_name: str | None = None,
    watch: Watch | None = None,
) -> StreamingQuery:
    """Start a query that writes the streaming DataFrame `df` to the table at `path`; returns Spark's query.

    If batches share commits (`serde_lab.stream.batches_per_commit`), the last ones are committed when the
    query ends, and those that an earlier run left are committed before it starts.

    `checkpoint`: the query's own folder, in which Spark keeps its progress. `processing_time` (as in
    "10 seconds"), `available_now` and `once` are Spark's triggers; without one, batches follow each other at
    once. `options`: see `batch_writer`. `watch` is called with each written batch. Raises, before the
    query starts, OptionError and TableError for what cannot be stored exactly once: a source that cannot be
    replayed, an identifier of another query, a checkpoint folder of another table. What goes wrong later ends
    the query with the same sentences.
    """
    if not df.isStreaming:
        raise OptionError("the DataFrame is not a streaming one", hint="use serde_lab.write")
    triggers: dict[str, Any] = {
        "processingTime": processing_time,
        "availableNow": available_now or None,
        "once": once or None,
    }
    trigger = {name: value for name, value in triggers.items() if value is not None}
    if len(trigger) > 1:
        raise OptionError("a query takes one of processing_time, available_now and once")
    check_workers(df.sparkSession)
    check_replayed(df)
    parsed = parse_stream_options(options)
    table = table_to_write(Storage.open(path))
    parse_options(parsed.write, None if table is None else table.config)
    folder = CheckpointFolder.read(df.sparkSession, checkpoint)
    _check_checkpoint(folder, checkpoint, table, parsed)
    writer = BatchWriter(path, options, watch)
    writer.flush()
    stream = df.writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint)
    if query_name is not None:
        stream = stream.queryName(query_name)
    if trigger:
        stream = stream.trigger(**trigger)
    query = stream.start()
    return FlushingQuery(query, writer) if parsed.shares else query


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """What the checkpoint folder of a Spark query knows.

    `planned`: the last batch whose rows are fixed, `committed`: the last one that succeeded; -1 if there is
    none. `planned_ms`: when the rows were fixed. `query`: the query's id, "" if no query has used the folder.
    """

    query: str = ""
    planned: int = -1
    committed: int = -1
    planned_ms: int | None = None

    @property
    def next_batch(self) -> MicroBatch:
        """What Spark sends first when the query starts."""
        number = max(self.planned, self.committed + 1, 0)
        planned_ms = self.planned_ms if number == self.planned else None
        return MicroBatch(self.query, number, planned_ms=planned_ms)

    @classmethod
    def read(cls, spark: SparkSession, folder: str) -> CheckpointFolder:
        """Read what all queries have, whatever their sources, by Spark's own classes; nothing changes.

        Raises StorageError if the file that names the query or its last plan cannot be read.
        """
        jvm, session = spark.sparkContext._jvm, spark._jsparkSession
        assert jvm is not None
        streaming = jvm.org.apache.spark.sql.execution.streaming
        path = jvm.org.apache.hadoop.fs.Path(folder, "metadata")
        file = "metadata"
        try:
            metadata = streaming.StreamMetadata.read(path, session.sessionState().newHadoopConf())
            if not metadata.isDefined():
                return cls()
            file = "with the newest plan, in offsets,"
            plan = streaming.OffsetSeqLog(session, f"{folder}/offsets").getLatest()
        except Py4JJavaError as exc:
            why = str(exc.java_exception.getMessage()).partition("\n")[0]
            raise StorageError(
                f"the checkpoint folder {folder}: its file {file} cannot be read: {why}"
            ) from exc
        done = streaming.CommitLog(session, f"{folder}/commits").getLatestBatchId()
        planned, at = -1, None
        if plan.isDefined():
            planned, at = int(plan.get()._1()), plan.get()._2().metadata()
        planned_ms = int(at.get().batchTimestampMs()) if at and at.isDefined() else None
        committed = int(done.get()) if done.isDefined() else -1
        return cls(str(metadata.get().id()), planned, committed, planned_ms)


def files_taken(spark: SparkSession, folder: str, source: int = 0) -> set[str]:
    """The files that a query's file source has taken, as Hadoop's paths (`file:/data/changes/1.parquet`).

    The other files of the source's folder are the query's lag, which Spark's progress does not have for
    files. `source`: the source's number in the query.
    """
    jvm, session = spark.sparkContext._jvm, spark._jsparkSession
    assert jvm is not None
    streaming = jvm.org.apache.spark.sql.execution.streaming
    log = streaming.FileStreamSourceLog(_LOG_VERSION, session, f"{folder}/sources/{source}")
    return {str(entry.sparkPath().toPath()) for entry in log.allFiles()}


def _planned_ms(spark: SparkSession, query: str) -> int | None:
    """When Spark chose the rows of the query's batch; None outside of a query."""
    jvm = spark.sparkContext._jvm
    with suppress(ValueError):
        assert jvm is not None
        uuid = jvm.java.util.UUID.fromString(str(UUID(query)))
        running = spark._jsparkSession.sharedState().activeStreamingQueries().get(uuid)
        return running and int(running.offsetSeqMetadata().batchTimestampMs())
    return None


def _is_run(job_group: str, batch: MicroBatch) -> bool:
    """Whether a job group is the id of a query's run, and not a name that the program gave to its jobs."""
    with suppress(ValueError):
        return bool(UUID(job_group) and batch.query)
    return False


def _check_checkpoint(
    folder: CheckpointFolder, name: str, table: HoodieTable | None, options: StreamOptions
) -> None:
    """Refuse, before the query starts, what its first batch would be refused for."""
    last = None if table is None else newest_checkpoint(table, options.identifier)
    if last is not None and not folder.query:
        by = "Apache Hudi's sink" if last.query is None else name_of(last.query)
        raise OptionError(
            f"the checkpoint folder {name} is new, so its batches would begin at 0, but in this table the"
            f" identifier {options.identifier} belongs to {by}, which stored batch {last.batch}",
            hint=f"use that query's checkpoint folder, or set {IDENTIFIER} to a name of this query's own",
        )
    is_stored(folder.next_batch, options, last, bool(table and table.timeline().completed()))
    if last is not None and folder.planned < last.batch:
        raise OptionError(
            f"the checkpoint folder {name} ends at batch {folder.planned}, but the table holds batch"
            f" {last.batch} of the same query: the folder was set back, and new batches would be taken for"
            " stored ones",
            hint="use the newer folder, or a new one with another identifier",
        )
