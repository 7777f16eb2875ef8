"""The exchange over Spark's shuffle, which the driver builds stage by stage.

Spark sees only opaque frames; with `position` a reduce task restores the input order and receives its
shards in turn.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ByteType, ShortType

from serde_lab.errors import LabError, OptionError
from serde_lab.measure.timeline import AttemptReport
from serde_lab.pipeline.assign.stages import bootstrap_tasks
from serde_lab.pipeline.exchange.in_process import Exchange, summed
from serde_lab.pipeline.exchange.routing import salts
from serde_lab.pipeline.options.write import Shuffle
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.source.files import SourceFiles, known_files
from serde_lab.pipeline.spark.dataframe import (
    columns_handed_over,
    computes_keys,
    handed_over,
    java_bucket,
    path_and_key,
    plain_files,
)
from serde_lab.pipeline.spark.shuffle import (
    RESULTS,
    DataFrameInput,
    RddInput,
    StageInput,
    obstacle_to_bytes,
)
from serde_lab.pipeline.spark.worker import (
    BOOTSTRAP_STAGE,
    COLUMNS_STAGE,
    ReportsParam,
    SparkTask,
    WarmUp,
    carried_error,
    reason_in,
)
from serde_lab.pipeline.topologies import topology_of
from serde_lab.pipeline.warm_up import DEFAULT_FRAMING
from serde_lab.records.schema import POSITION, SALT
from serde_lab.serde.interface import SerdeOptions
from serde_lab.table.timeline.commit_metadata import WriteStat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SHUFFLE_TASKS = "spark.sql.shuffle.partitions"
"""How many tasks follow a shuffle of Spark SQL, unless the query says it."""
_WIDE_OFFSETS = "spark.sql.execution.arrow.useLargeVarTypes"
"""Whether Spark sends text and bytes with offsets of 64 bits; those of frames have 32."""
_FEW_FRAMES = 16


class SparkExchange(Exchange):
    """Hops of opaque frames over Spark's shuffle; `source` has the data columns.

    `reports` collects the task reports, one for every attempt that finished. `own_reader`: if the source
    is a plain scan (`spark.dataframe`), tasks read its files themselves, and the JVM sends no rows.
    `shuffle`: the form in which frames cross. A write whose frames cannot cross as the bytes of an RDD has
    DataFrames, and `obstacle` says why.
    """

    obstacle = ""

    def __init__(
        self, source: DataFrame, own_reader: bool = True, shuffle: Shuffle = "dataframe"
    ) -> None:
        self.source = source
        self.spark = source.sparkSession
        self.own_reader, self.shuffle = own_reader, shuffle
        self.reports: list[AttemptReport] = []

    def frames(self, plan: WritePlan, reports: Any) -> DataFrame:
        """The output of the first stage with salts, as the first hop shuffles it."""
        files = self._files(plan)
        first = DataFrameInput(self._input(plan, files))
        return first.salted(topology_of(plan).hops[0], plan, self.first_task(plan, reports, files))

    def _files(self, plan: WritePlan) -> SourceFiles | None:
        topology = topology_of(plan)
        if topology.arrives_sorted or not topology.stages:
            return None
        return self._readable_files(plan.source_schema)

    def _readable_files(self, schema: pa.Schema) -> SourceFiles | None:
        """The source's files, if tasks may read them themselves."""
        return plain_files(self.source, schema) if self.own_reader else None

    def _input(self, plan: WritePlan, files: SourceFiles | None) -> DataFrame:
        """The input of the first stage's tasks: the source's rows, or only the task numbers."""
        if files is None:
            if not topology_of(plan).arrives_sorted:
                return handed_over(self.source, plan.source_schema)
            order = path_and_key(self.source, plan)
            columns = columns_handed_over(self.source, plan.source_schema)
            ranges = self.source.repartitionByRange(plan.targets, *order)
            return ranges.sortWithinPartitions(*order).select(*columns.values())
        return DataFrameInput.numbers(self.spark, len(files.partitions)).rows

    def first_task(self, plan: WritePlan, reports: Any, files: SourceFiles | None) -> SparkTask:
        """The task of the first stage; with `files`, each reads its own."""
        return SparkTask(plan, 0, reports, files, self._batch_rows)

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        reports = self.spark.sparkContext.accumulator([], ReportsParam())
        topology, files = topology_of(plan), self._files(plan)
        if not topology.stages:
            return ()
        moved = self._stage_input(plan, files)
        task = self.first_task(plan, reports, files)
        for number, hop in enumerate(topology.hops, start=1):
            beside = None
            if number - 1 == topology.index_joins and (senders := bootstrap_tasks(plan)):
                beside = senders, SparkTask(plan, BOOTSTRAP_STAGE, reports)
            moved = moved.over(hop, plan, task, beside)
            task = SparkTask(plan, number, reports)
        if files is None:
            return self._collect(moved, task, reports)
        # Python receives only frames, so a batch needs fewer of them than of rows
        with batches_of(self.spark, _frames_at_once(plan, self._batch_rows)):
            return self._collect(moved, task, reports)

    def _stage_input(self, plan: WritePlan, files: SourceFiles | None) -> StageInput:
        """The input of the first stage, in the form in which all frames cross."""
        if self.shuffle == "rdd" and topology_of(plan).hops:
            self.obstacle = obstacle_to_bytes(self.spark.sparkContext, plan, files is not None)
            if files is not None and not self.obstacle:
                return RddInput.numbers(self.spark, len(files.partitions))
        return DataFrameInput(self._input(plan, files))

    @property
    def _batch_rows(self) -> int:
        return int(self.spark.conf.get(BATCH_ROWS) or "10000")

    def counters(self) -> Counter[str]:
        return summed(one.report.counters for one in self.reports)

    def _collect(self, moved: StageInput, task: SparkTask, reports: Any) -> tuple[WriteStat, ...]:
        with on_purpose(), setting(self.spark, _WIDE_OFFSETS, "false"):
            results = moved.results(task)
        self.reports = list(reports.value)
        return tuple(pickle.loads(result) for result in results)


class FilesExchange(SparkExchange):
    """Hops over Spark's shuffle whose source is known files, one input partition each, in this order.

    Tasks read the files themselves if Arrow gives the rows that Spark would give; otherwise Spark reads them.
    """

    def __init__(
        self, spark: SparkSession, paths: Sequence[Path], shuffle: Shuffle = "dataframe"
    ) -> None:
        self.spark, self.paths, self.shuffle = spark, paths, shuffle
        self.reports = []

    @cached_property
    def source(self) -> DataFrame:  # type: ignore[override]
        """The same rows as Spark reads them; made only where Spark has to."""
        return stored_columns(scan_of_files(self.spark, self.paths))

    def _readable_files(self, schema: pa.Schema) -> SourceFiles | None:
        return known_files([str(path) for path in self.paths], schema)


class ColumnsExchange(SparkExchange):
    """A hop that shuffles Spark's own columns as UnsafeRow: no HoodieRecord, no strategy.

    The JVM computes the bucket hash, so rows reach Python only to be written. Used by bulk_insert and by
    the control `spark_native`.
    """

    def run(self, plan: WritePlan) -> tuple[WriteStat, ...]:
        if not computes_keys(self.source, plan.table):
            raise OptionError(
                f"Spark's own columns do not give the record keys or the folders of the table"
                f" {plan.table.name}: only Python makes the text of some types, of times, of escaped values"
                " and of fields in structs"
            )
        reports = self.spark.sparkContext.accumulator([], ReportsParam())
        salt_of = F.array(*[F.lit(int(salt)) for salt in salts(plan.targets)])
        target = java_bucket(self.source, plan)
        moved = (
            self.source.select(
                *columns_handed_over(self.source, plan.source_schema).values(),
                F.monotonically_increasing_id().alias(POSITION),
                F.element_at(salt_of, target + 1).alias(SALT),
            )
            .repartition(plan.targets, SALT)
            .drop(SALT)
        )
        task = SparkTask(plan, COLUMNS_STAGE, reports)
        return self._collect(DataFrameInput(moved), task, reports)


def scan_of_files(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """The rows of Parquet files, one input partition per file, in the given order.

    Spark sorts the files of one scan by size. A union keeps their order, which decides between equal
    ordering values.
    """
    schema = from_arrow_schema(pq.read_schema(paths[0]).remove_metadata())
    scan = spark.read.schema(schema)
    return reduce(lambda left, right: left.union(right), [scan.parquet(str(p)) for p in paths])


def stored_columns(df: DataFrame) -> DataFrame:
    """`df` with byte and short columns, which Hudi tables do not have, widened to int."""
    narrow = {f.name for f in df.schema if isinstance(f.dataType, ByteType | ShortType)}
    for name in narrow:
        df = df.withColumn(name, df[name].cast("int"))
    return df


def _frames_at_once(plan: WritePlan, rows: int) -> int:
    """Frames per Arrow batch: `rows` if each holds one record, otherwise a few.

    Spark gathers a batch before it sends any of it, in vectors that double as they grow.
    """
    per_frame = plan.records.options.rows_per_frame
    return max(1, min(rows, _FEW_FRAMES)) if per_frame != 1 else rows


_HELD: dict[tuple[int, str], tuple[str, dict[object, str]]] = {}
"""By session and setting: its value before, and the values that writes hold now, the newest last."""
_CHANGING = threading.Lock()


@contextmanager
def setting(spark: SparkSession, name: str, value: int | str) -> Iterator[None]:
    """Give one of Spark SQL's settings another value, and restore it afterwards.

    Writes in several threads of a session may overlap: the last one to end restores what the first found.
    """
    key, mine = (int(spark._jsparkSession.hashCode()), name), object()
    with _CHANGING:
        # Spark's default if nobody has set it
        before, held = _HELD.setdefault(key, (str(spark.conf.get(name)), {}))
        spark.conf.set(name, str(value))
        held[mine] = str(value)
    try:
        yield
    finally:
        with _CHANGING:
            del held[mine]
            if not held:
                del _HELD[key]
            spark.conf.set(name, next(reversed(held.values()), before))


def batches_of(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """Limit the Arrow batches between Spark and Python to `rows`, and restore the setting afterwards."""
    return setting(spark, BATCH_ROWS, rows)


_FEWER_ROWS = (
    "a column of one Arrow batch has more than 2 GiB: set serde_lab.max_records_per_batch lower"
)


@contextmanager
def on_purpose() -> Iterator[None]:
    """Re-raises a task's own error instead of Spark's stack around it."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        # its text is available only while the JVM lives
        text = str(error)
        hint = _FEWER_ROWS if "OversizedAllocationException" in text else None
        failed = LabError(f"a Spark job failed: {reason_in(text)}", hint)
        raise carried_error(text) or failed from error


def warm_workers(
    spark: SparkSession,
    workers: int,
    strategy: str = "",
    serde: SerdeOptions = DEFAULT_FRAMING,
    rows: int = 2_000,
) -> list[dict[str, int]]:
    """Start and warm one Python worker per slot; returns their process ids and their daemons'.

    `strategy` and `serde`: what they will work with. `rows`: roughly how many rows their tasks will have.
    """
    warm_up = WarmUp(strategy, serde, rows)
    found = spark.range(0, workers, 1, workers).mapInArrow(warm_up, RESULTS).collect()
    return [json.loads(bytes(row.result)) for row in found]
