"""Measures a stream: one query that writes a scenario's micro-batches, by the lab or by Apache Hudi's sink.

Both sides have the same source, Spark's file source over the same files, and the same trigger. The seconds of
a batch are Spark's own for both (`triggerExecution` of its progress), and so are those inside the sink
(`addBatch`). When instants and services began and ended is read from the timeline afterwards, for both. What
fills the time inside the sink is known of the lab's own writes only.
"""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from serde_lab.errors import LabError
from serde_lab.lab.cells.bench import Bench, Window, stage_labels
from serde_lab.lab.cells.cell import (
    CellJob,
    CellResult,
    MeasurableCell,
    frame_counts,
    measure_of,
    schema_of,
    table_bytes,
)
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.cells.spark_cells import OnSpark
from serde_lab.lab.checks.stored_batches import (
    TimedBatch,
    batch_samples,
    by_batch,
    reader_samples,
    timed_instants,
)
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.lab.lab_reader import Readers
from serde_lab.lab.plan import batch_rows, hops_of, options_of, serde_options
from serde_lab.measure.commit import CommitMeasure
from serde_lab.measure.metrics import DRIVER_PREFIX, Sample
from serde_lab.measure.timeline import TaskReport
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.pipeline.read import open_table
from serde_lab.pipeline.spark.exchange import setting
from serde_lab.pipeline.spark.worker import reason_in
from serde_lab.scenario.hudi_options import tasks_of_buckets
from serde_lab.scenario.sections import Stream
from serde_lab.streams.query import WrittenBatch, write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_KEPT_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"
_FRAMES_OF = 3
"""The number of micro-batches of which frames are kept for a referee."""
_EMPTY_JOBS = 20
"""The most empty jobs at each end of a stream."""
_BLOCK = 10
"""The most batches in a row with readers beside them, or without."""
_MODIFIED_S = 1_700_000_000


class StreamsOnSpark(OnSpark):
    """The engine whose cells are streaming queries in the Spark session of `bench`."""

    def cell(self, job: CellJob) -> MeasurableCell:
        kind = LabStreamCell if job.arm.peer is None else HudiStreamCell
        return kind(self.bench, job)


class StreamCell(MeasurableCell):
    """A cell that measures one streaming query from its first micro-batch to its last."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        assert job.scenario.stream is not None
        self.bench, self.job, self.stream = bench, job, job.scenario.stream

    def measure(self) -> CellResult:
        """Warm up on a copy of the table, then measure the stream. Raises LabError if the query fails."""
        bench, commits = self.bench, self.job.inputs.commits
        samples = list(self.start())
        self._warm_up(commits[: self.stream.warmup_batches])
        bench.collect_garbage()
        empty_s = self._empty_jobs()
        with self.readers() as readers:
            query, window = bench.measured(
                self.job.name, lambda: self._run(commits, self.job.table), own_jobs_only=False
            )
            reads, readers_cpu_s = readers.finish()
        batches = [found for one in query.recentProgress if (found := TimedBatch.of(one))]
        if len(batches) != len(commits):
            raise LabError(f"the query wrote {len(batches)} micro-batches, expected {len(commits)}")
        table = open_table(self.job.table)
        for batch, commit, instants in zip(
            batches, commits, by_batch(batches, timed_instants(table)), strict=True
        ):
            samples += batch_samples(batch, commit.rows, instants)
        samples += self.parts(window)
        samples += reader_samples(batches, reads)
        if reads:
            samples.append(Sample(f"{DRIVER_PREFIX}readers_cpu_s", readers_cpu_s))
        # half of them before the stream and half after it, so that neither a warm nor a tired session counts
        for number, seconds in enumerate(empty_s + self._empty_jobs(), start=1):
            samples.append(Sample(f"{DRIVER_PREFIX}empty_job_s", seconds, number))
        samples.append(Sample("seconds", sum(one.interval.length_ns for one in batches) / 1e9))
        samples.append(Sample("slots", bench.slots))
        samples.append(Sample("table_bytes", table_bytes(table)))
        return replace(self.result(tuple(samples)), reads_beside=tuple(reads))

    @abstractmethod
    def start(self) -> Iterator[Sample]:
        """Prepare for the query; yields what this measured."""

    @abstractmethod
    def query(self, source: DataFrame, table: Path, checkpoint: Path) -> StreamingQuery:
        """Start the query that writes `source` to the table."""

    @abstractmethod
    def parts(self, window: Window) -> Iterator[Sample]:
        """What fills the time of the whole stream, and of its batches as far as it is known."""

    def result(self, samples: tuple[Sample, ...]) -> CellResult:
        return CellResult(samples, self.job.table)

    def cause(self, text: str) -> str:
        """The reason in the text of a query's failure."""
        return reason_in(text)

    def readers(self) -> Readers:
        """Who reads the table meanwhile; nobody does beside a peer."""
        return Readers(0, self.job.table, "")

    def _empty_jobs(self) -> list[float]:
        """The seconds of empty jobs of the shape of a batch, in this session; none for a peer."""
        return []

    def _warm_up(self, commits: Sequence[CommitInput]) -> None:
        if not commits:
            return
        table = self.job.table
        copy = table.with_name(f"{table.name}-warm-up")
        if table.exists():
            shutil.copytree(table, copy)
        self._run(commits, copy)
        shutil.rmtree(copy)

    def _run(self, commits: Sequence[CommitInput], table: Path) -> StreamingQuery:
        """The query over the files of `commits`, run to its end."""
        spark = self.bench.spark
        folder = source_folder(table.parent.parent / f"source-{len(commits)}", commits)
        schema = from_arrow_schema(schema_of(commits[0]))
        files = sum(len(commit.files) for commit in commits) // len(commits)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        checkpoint = table.with_name(f"{table.name}-checkpoint")
        try:
            with setting(spark, _KEPT_PROGRESS, len(commits) + 10):
                query = self.query(reader.parquet(str(folder)), table, checkpoint)
                try:
                    if self.stream.trigger == "available_now":
                        query.awaitTermination()
                    else:
                        query.processAllAvailable()
                finally:
                    query.stop()
        except (Py4JError, PySparkException) as exc:
            raise LabError(f"the query ended: {self.cause(str(exc))}") from exc
        return query


class LabStreamCell(StreamCell):
    """A strategy: `serde_lab.write_stream` writes the stream."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(bench, job)
        self._told: list[WrittenBatch] = []
        self._drawn: Sequence[int] = ()
        self._beside: Readers | None = None

    def start(self) -> Iterator[Sample]:
        job, rows = self.job, max(commit.rows for commit in self.job.inputs.commits)
        strategy = job.arm.strategy or ""
        yield from self.bench.fresh_workers(job.name, strategy, serde_options(job.arm), rows)

    def query(self, source: DataFrame, table: Path, checkpoint: Path) -> StreamingQuery:
        self._told.clear()
        job, numbers = self.job, range(self.stream.batches)
        # by the operating system's chance, as the frames themselves
        self._drawn = SystemRandom().sample(numbers, min(_FRAMES_OF, len(numbers)))
        write = job.sizes.write(job.inputs.commits[0])
        options = options_of(job.scenario, job.arm, write)
        options["serde_lab.max_records_per_batch"] = batch_rows(write.row_bytes)
        return write_stream(
            source,
            str(table),
            options,
            str(checkpoint),
            watch=self._hear,
            **lab_trigger(self.stream),
        )

    def _hear(self, batch: WrittenBatch) -> None:
        """Keep the report of a batch, and its frames if they were drawn."""
        tasks = batch.tasks
        if batch.number not in self._drawn:
            tasks = tuple(replace(one, report=replace(one.report, kept=())) for one in tasks)
        self._told.append(replace(batch, tasks=tasks))
        self._let_read(batch.number + 1)

    def readers(self) -> Readers:
        ordering = self.job.inputs.record_schema.ordering
        count = self.stream.readers
        self._beside = Readers(count, self.job.table, ordering[0] if count else "")
        return self._beside

    def _let_read(self, number: int) -> None:
        """Let readers read during every second block of batches, so that both kinds are spread alike."""
        if self._beside is None:
            return
        block = max(1, min(_BLOCK, self.stream.batches // 4))
        if number // block % 2:
            self._beside.go()
        else:
            self._beside.pause()

    def parts(self, window: Window) -> Iterator[Sample]:
        for batch in self._told:
            for phase, time in batch.driver.phases.items():
                yield Sample(f"{DRIVER_PREFIX}{phase}_s", time.wall_ns / 1e9, batch.number + 1)
            files = 0 if batch.commit is None else len(batch.commit.stats)
            yield Sample("files", files, batch.number + 1)
        tasks = [task for batch in self._told for task in batch.tasks]
        driver = as_one_report([batch.driver for batch in self._told])
        yield from whole(measure_of(window, self.bench.slots, tasks, driver=driver))
        yield Sample("hops", hops_of(self.job.scenario, self.job.arm))

    def result(self, samples: tuple[Sample, ...]) -> CellResult:
        counted = [task.report.counters for batch in self._told for task in batch.tasks]
        return CellResult(
            samples,
            self.job.table,
            **frame_counts(counted),
            frames=tuple(
                frame for batch in self._told for task in batch.tasks for frame in task.report.kept
            ),
        )

    def _empty_jobs(self) -> list[float]:
        scenario, arm = self.job.scenario, self.job.arm
        files, tasks = len(self.job.inputs.commits[0].files), tasks_of_buckets(scenario, arm)
        hops = hops_of(scenario, arm)
        # the first one compiles what the others use
        jobs = 1 + min(_EMPTY_JOBS, self.stream.batches // 2)
        return [self.bench.empty_job_s(files, tasks, hops) for _ in range(jobs)][1:]


class HudiStreamCell(StreamCell):
    """A peer: Apache Hudi's sink writes the stream."""

    def start(self) -> Iterator[Sample]:
        self.bench.end_workers()
        yield from self.bench.start_samples()

    def query(self, source: DataFrame, table: Path, checkpoint: Path) -> StreamingQuery:
        options = options_of_peer(self.job.scenario, self.job.arm, 1)
        writer = source.writeStream.format("hudi").options(**options).outputMode("append")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if self.stream.trigger == "available_now":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime="0 seconds")
        return writer.start(str(table))

    def parts(self, window: Window) -> Iterator[Sample]:
        yield from whole(measure_of(window, self.bench.slots, labels=stage_labels(window.history)))

    def cause(self, text: str) -> str:
        return f"Apache Hudi cannot write: {root_cause(text)}"


def lab_trigger(stream: Stream) -> dict[str, Any]:
    """The trigger as `write_stream` takes it."""
    if stream.trigger == "available_now":
        return {"available_now": True}
    return {"processing_time": "0 seconds"}


def source_folder(folder: Path, commits: Sequence[CommitInput]) -> Path:
    """A folder with the files of `commits`, which Spark's file source takes in this order; made once.

    The order is that of the files' times, so they are copies, each a second newer than the one before.
    """
    if not folder.exists():
        made = folder.with_name(f"{folder.name}-unfinished")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        files = [file for commit in commits for file in commit.files]
        for number, file in enumerate(files):
            copy = made / f"{number:06}.parquet"
            shutil.copyfile(file, copy)
            os.utime(copy, (_MODIFIED_S + number, _MODIFIED_S + number))
        made.rename(folder)
    return folder


def whole(measure: CommitMeasure) -> Iterator[Sample]:
    """The samples of a measure of the whole stream; the driver's phases and rows are there by batch."""
    for sample in measure.samples(1):
        if sample.metric != "rows" and not sample.metric.startswith(DRIVER_PREFIX):
            yield replace(sample, commit=None)


def as_one_report(reports: Sequence[TaskReport]) -> TaskReport:
    """One report with the phases of all, from the first one's beginning to the last one's end."""
    first, phases = reports[0], dict(reports[0].phases)
    for report in reports[1:]:
        for name, time in report.phases.items():
            known = phases.get(name)
            phases[name] = (
                time
                if known is None
                else replace(
                    time,
                    wall_ns=known.wall_ns + time.wall_ns,
                    cpu_ns=known.cpu_ns + time.cpu_ns,
                    calls=known.calls + time.calls,
                )
            )
    return replace(first, phases=phases, ended_epoch_ns=reports[-1].ended_epoch_ns)
