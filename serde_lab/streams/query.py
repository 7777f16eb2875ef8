"""`serde_lab.batch_writer` and `serde_lab.write_stream`: a Hudi table written by a Spark streaming query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serde_lab.errors import OptionError
from serde_lab.measure.timeline import AttemptReport, TaskReport, TaskTimeline
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.commit.table_services import Served
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.spark.tables import arrow_schema, batches_of, compactor_on, exchange_for
from serde_lab.pipeline.spark.worker import check_workers
from serde_lab.pipeline.write import table_to_write
from serde_lab.streams.checkpoint_folder import CheckpointFolder
from serde_lab.streams.exactly_once import MicroBatch, is_stored, name_of
from serde_lab.streams.options import IDENTIFIER, StreamOptions, parse_stream_options
from serde_lab.streams.stream_writer import StreamWriter
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import newest_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_QUERY_ID = "sql.streaming.queryId"
_NOT_REPLAYED = ("socket",)
"""Spark's sources that cannot send a batch again after a failure."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What one micro-batch did: its commit, the services after it, and how long its parts took.

    `tasks` are the reports of its Spark tasks, those of a compaction included. `driver` has the driver's
    phases: `prepare` (the table is opened, locked and repaired, and the batch looked up), `begin`, `plan`,
    `execute`, `commit`, `serve`.
    """

    number: int
    commit: Commit
    served: Served
    tasks: tuple[AttemptReport, ...]
    driver: TaskReport


Watch = Callable[[WrittenBatch], None]


class BatchWriter:
    """Writes the micro-batches that `foreachBatch` gives it; `batch_writer` makes one.

    `watch` is told of every batch that was written, once its services are done.
    """

    def __init__(self, path: str, options: Mapping[str, Any], watch: Watch | None = None) -> None:
        self._writer = StreamWriter(Storage.open(path), parse_stream_options(options))
        self._watch = watch

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Commit the batch, unless the table holds it already, and run the services that the options ask for.

        Raises what `serde_lab.write`
        raises, and OptionError or TableError for a batch that cannot be stored exactly once.
        """
        spark = df.sparkSession
        check_workers(spark)
        query = spark.sparkContext.getLocalProperty(_QUERY_ID) or ""
        batch = MicroBatch(query, batch_id)
        clock = TaskTimeline("driver")
        with ExitStack() as held:
            with clock.phase("prepare"):
                prepared = held.enter_context(self._writer.begin(batch, arrow_schema(df)))
            if prepared is None:
                return
            options = prepared.options
            exchange = exchange_for(df, options)
            with batches_of(spark, options.max_records_per_batch):
                commit = prepared.commit(exchange, timeline=clock)
            serving: list[AttemptReport] = []
            with clock.phase("serve"):
                served = prepared.serve(compactor_on(spark, serving))
        if self._watch is not None:
            tasks = (*exchange.reports, *serving)
            self._watch(WrittenBatch(batch_id, commit, served, tasks, clock.report()))


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

    `checkpoint`: the query's own folder, in which Spark keeps its progress. `processing_time` (as in
    "10 seconds"), `available_now` and `once` are Spark's triggers; without one, batches follow each other at
    once. `options`: see `batch_writer`. `watch` is told of every batch that was written. Raises, before the
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
    _check_replayed(df)
    parsed = parse_stream_options(options)
    storage = Storage.open(path)
    table = table_to_write(storage)
    parse_options(parsed.write, None if table is None else table.config)
    folder = CheckpointFolder.read(df.sparkSession, checkpoint)
    _check_checkpoint(folder, checkpoint, table, parsed)
    stream = df.writeStream.foreachBatch(BatchWriter(path, options, watch))
    stream = stream.option("checkpointLocation", checkpoint)
    if query_name is not None:
        stream = stream.queryName(query_name)
    if trigger:
        stream = stream.trigger(**trigger)
    return stream.start()


def _check_replayed(df: DataFrame) -> None:
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.getClass().getSimpleName().startswith("StreamingRelation"):
            continue
        name = str(leaf.sourceName())
        if name in _NOT_REPLAYED:
            raise OptionError(
                f"the source {name} cannot send rows again after a failure, so none of its batches could be"
                " stored exactly once"
            )
        if name == "kafka" and str(leaf.extraOptions().get("failOnDataLoss")).lower() == "false":
            raise OptionError(
                "the source kafka has failOnDataLoss=false, so it would leave out records that the broker has"
                " deleted before they were stored",
                hint="leave the option out; to begin behind such records, start another query",
            )


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
    is_stored(MicroBatch(folder.query, folder.next_batch), options, last)
    if last is not None and folder.planned < last.batch:
        raise OptionError(
            f"the checkpoint folder {name} ends at batch {folder.planned}, but the table holds batch"
            f" {last.batch} of the same query: the folder was set back, and new batches would be taken for"
            " stored ones",
            hint="use the newer folder, or a new one with another identifier",
        )
