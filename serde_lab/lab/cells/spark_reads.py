"""Times reads and compactions in Spark, by strategies and by Apache Hudi.

A timed read ends in Spark's own sink for every arm: one row with the number of rows and a hash over all their
columns, computed where the rows arrive in the JVM. Strategies merge in Python as their own records; Apache
Hudi reads and compacts the same table with the record type of the arm.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from serde_lab.lab.cells.bench import Bench, Window, stage_labels
from serde_lab.lab.cells.cell import CellJob, Digest, measure_of
from serde_lab.lab.cells.in_process_reads import record_form
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.cells.read_cells import Asked, TableOperator, Timed
from serde_lab.lab.plan import Write, timed_options
from serde_lab.measure.metrics import Sample
from serde_lab.measure.timeline import AttemptReport
from serde_lab.peers.apache_hudi import dates_of_any_year
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.read import open_table, plan_read
from serde_lab.pipeline.spark.exchange import on_purpose
from serde_lab.pipeline.spark.tables import compactor_on, frame_of, merged_slices
from serde_lab.pipeline.spark.worker import Reports, ReportsParam
from serde_lab.records.operation import Operation
from serde_lab.records.schema import META_NAMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class _SparkOperator(TableOperator):
    """An arm that reads the table as a DataFrame of the session of `bench`."""

    own_jobs_only = True
    """Whether all its jobs are in the job group of the thread that calls."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(job)
        self.bench, self.slots = bench, bench.slots

    @abstractmethod
    def rows(self, asked: Asked, reports: Reports | None = None) -> DataFrame:
        """The data columns of the rows; tasks of Python add their reports to `reports`."""

    def first_row(self, asked: Asked) -> None:
        with on_purpose():
            self.rows(asked).limit(1).collect()

    def read(self, group: str, asked: Asked) -> tuple[Digest, Timed]:
        reports: Reports = self.bench.spark.sparkContext.accumulator([], ReportsParam())
        with on_purpose():
            digest, window = self.bench.measured(
                group, lambda: digest_of(self.rows(asked, reports)), self.own_jobs_only
            )
        return digest, self._timed(window, list(reports.value))

    def keep(self, asked: Asked, folder: Path) -> Digest:
        spark = self.bench.spark
        with on_purpose():
            rows = self.rows(asked)
            with dates_of_any_year(spark):
                rows.write.parquet(str(folder))
            return digest_of(spark.read.schema(rows.schema).parquet(str(folder)))

    def _timed(self, window: Window, reports: Sequence[AttemptReport]) -> Timed:
        labels = None if self.own_jobs_only else stage_labels(window.history)
        return Timed(window.wall_ns, measure_of(window, self.slots, reports, labels=labels))


class StrategyOperator(_SparkOperator):
    """A strategy: its tasks merge slices as its own records."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(bench, job)
        self.form = record_form(job.arm)

    def start(self) -> Iterator[Sample]:
        job, form = self.job, self.form
        batches = (*job.inputs.setups, *job.inputs.commits)
        rows = max((c.rows // max(1, len(c.files)) for c in batches), default=0)
        yield from self.bench.fresh_workers(job.name, form.strategy, form.options, rows)
        # each worker reads one slice, so that none imports the reader under the clock
        plan = plan_read(open_table(job.table), Asked(job.table).options(form))
        with on_purpose():
            merged_slices(self.bench.spark, plan, plan.slices[: self.slots]).count()

    def rows(self, asked: Asked, reports: Reports | None = None) -> DataFrame:
        plan = plan_read(open_table(asked.table), asked.options(self.form))
        return frame_of(self.bench.spark, plan, reports)

    def compact(self, group: str) -> Timed:
        job = self.job
        files = timed_options(job.scenario, job.arm, Write(Operation.UPSERT)).file_format
        reports: list[AttemptReport] = []
        compactor = compactor_on(self.bench.spark, reports)
        with on_purpose():
            _, window = self.bench.measured(
                group, lambda: compact(open_table(job.table), compactor, files, self.form)
            )
        return self._timed(window, reports)


_OF_WRITES = ("hoodie.datasource.", "hoodie.index.", "hoodie.bucket.", "hoodie.table.")
"""Beginnings of options that a write has and a compaction does not."""


class HudiOperator(_SparkOperator):
    """A peer: Apache Hudi reads and compacts the table with the record type of the arm."""

    own_jobs_only = False

    def start(self) -> Iterator[Sample]:
        self.bench.end_workers()
        yield from self.bench.start_samples()

    def rows(self, asked: Asked, reports: Reports | None = None) -> DataFrame:
        options = self._options() | {"hoodie.datasource.query.type": "snapshot"}
        if asked.begin:
            options |= {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": asked.begin,
            }
        found = self.bench.spark.read.format("hudi").options(**options).load(str(asked.table))
        return found.select(*(f"`{n}`" for n in found.columns if n not in META_NAMES))

    def compact(self, group: str) -> Timed:
        # options are one text here, which takes no commas; the table knows its keys and its index
        options = {
            key: value
            for key, value in self._options().items()
            if value and "," not in value and not key.startswith(_OF_WRITES)
        }
        options["hoodie.compact.inline.max.delta.commits"] = "1"
        listed = ",".join(f"{key}={value}" for key, value in options.items())
        statement = (
            f"CALL run_compaction(op => 'scheduleandexecute', path => '{self.job.table}',"
            f" options => '{listed}')"
        )
        with on_purpose():
            _, window = self.bench.measured(
                group, lambda: self.bench.spark.sql(statement).collect(), self.own_jobs_only
            )
        return self._timed(window, [])

    def _options(self) -> dict[str, str]:
        return options_of_peer(self.job.scenario, self.job.arm, 1)


def digest_of(rows: DataFrame) -> Digest:
    """The number of `rows`, and the exclusive or of hashes over all their columns."""
    hashed = F.xxhash64(*(_hashable(field.name, field.dataType) for field in rows.schema))
    found = rows.select(hashed.alias("hash")).agg(
        F.count(F.lit(1)).alias("rows"), F.expr("bit_xor(hash)").alias("hash")
    )
    (one,) = found.collect()
    return Digest(one["rows"], one["hash"] or 0)


def _hashable(name: str, kind: DataType) -> Column:
    """The column, or its text as JSON: Spark hashes no maps."""
    column = F.col(f"`{name}`")
    return F.to_json(F.struct(column)) if _has_map(kind) else column


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, MapType)
