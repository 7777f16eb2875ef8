"""A stream of Parquet files, one a batch, into the small table; and one whose driver dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

import serde_lab
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.streams.query import BatchWriter, Watch
from serde_lab.table.storage.storage import Storage
from tests.faults.small_table import COW, OPTIONS, Row, batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

COLUMNS = "p string, k string, ts bigint, v string"
Moment = Literal["before the commit", "after the commit", "the JVM before the commit"]


@dataclass(frozen=True, slots=True)
class FileStream:
    """`folder` holds the source's files, the table, and Spark's checkpoint; `jars`: of a killed session.

    `table`: where the table is instead, with the options of its store, if they are not in the environment.
    """

    folder: Path
    table_type: str = COW
    jars: tuple[str, ...] = ()
    table: str = ""
    store: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def storage(self) -> Storage:
        return Storage.open(self.table or self.folder / "table", **self.store)

    def options(self, **own: object) -> dict[str, Any]:
        """`own`: names with `__` for dots; None takes an option back."""
        given: dict[str, Any] = {k.replace("__", "."): v for k, v in own.items()}
        given = {**OPTIONS, "hoodie.datasource.write.table.type": self.table_type, **given}
        return {name: value for name, value in given.items() if value is not None}

    def add(self, *parts: Sequence[Row]) -> None:
        """Files of the source, each newer than the one before; an empty one has no rows."""
        self.source.mkdir(parents=True, exist_ok=True)
        for rows in parts:
            number = len(list(self.source.iterdir()))
            made = self.folder / f"{number:03}.parquet"
            schema = pa.schema([("p", "string"), ("k", "string"), ("ts", "int64"), ("v", "string")])
            table = pa.Table.from_batches(batches(rows) if rows else [], schema)
            pq.write_table(table, made)
            os.utime(made, (1_700_000_000 + number, 1_700_000_000 + number))
            made.rename(self.source / made.name)

    def frame(self, spark: SparkSession, columns: str = COLUMNS) -> DataFrame:
        reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.source))

    def start(
        self, spark: SparkSession, watch: Watch | None = None, **own: object
    ) -> StreamingQuery:
        """A query over the files that are there."""
        return serde_lab.write_stream(
            self.frame(spark),
            self.storage.url,
            self.options(**own),
            str(self.checkpoint),
            available_now=True,
            watch=watch,
        )

    def run(self, spark: SparkSession, watch: Watch | None = None, **own: object) -> StreamingQuery:
        """The same, to its end."""
        query = self.start(spark, watch, **own)
        query.awaitTermination()
        return query

    def forget(self, batch: int) -> None:
        """Take from Spark that a batch succeeded."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()


class DyingWriter(BatchWriter):
    """Kills its process, or its JVM and then its process, at one moment of one batch."""

    def __init__(self, path: str, options: dict[str, Any], batch: int, moment: Moment) -> None:
        super().__init__(path, options)
        self.batch, self.moment = batch, moment

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if batch_id == self.batch and self.moment == "before the commit":
            Coordinator.complete = _die  # type: ignore[method-assign,assignment]
        if batch_id == self.batch and self.moment == "the JVM before the commit":
            self._outlive_the_jvm(df, batch_id)
        super().__call__(df, batch_id)
        if batch_id == self.batch:
            _die()

    def _outlive_the_jvm(self, df: DataFrame, batch_id: int) -> None:
        """The commit needs no JVM; Spark cannot be told of it any more."""
        complete, jvm = Coordinator.complete, df.sparkSession.sparkContext._gateway.proc.pid

        def without_a_jvm(*args: Any) -> Commit:
            os.kill(jvm, signal.SIGKILL)
            return complete(*args)

        Coordinator.complete = without_a_jvm  # type: ignore[method-assign]
        try:
            super().__call__(df, batch_id)
        finally:
            _die()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(stream: FileStream, batch: int, moment: Moment) -> None:
    """In a process of its own: a session, and a query that its driver's death ends."""
    from serde_lab.lab.session.session import SessionSettings, start_session

    spark = start_session(SessionSettings(cores=2, driver_memory="1g", jars=stream.jars))
    writer = DyingWriter(stream.storage.url, stream.options(), batch, moment)
    started = stream.frame(spark).writeStream.foreachBatch(writer)
    started = started.option("checkpointLocation", str(stream.checkpoint))
    with suppress(Exception):  # without a JVM, the wait ends before the batch's own thread does
        started.trigger(availableNow=True).start().awaitTermination()
    time.sleep(60)


def run_and_end(stream: FileStream) -> None:
    """In a process of its own: a program that ends with the query, and asks Spark alone about it."""
    from serde_lab.lab.session.session import SessionSettings, start_session

    spark = start_session(SessionSettings(cores=2, driver_memory="1g"))
    stream.start(spark, serde_lab__stream__batches_per_commit=9)
    spark.streams.awaitAnyTermination()
