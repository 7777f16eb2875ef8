"""`serde_lab.write` and `serde_lab.read`: a Hudi table written from a Spark DataFrame, and read as one.

Spark itself reads file slices that need no merging; Python workers read the others, and compact slices, one
task per slice.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from serde_lab.errors import LabError, SchemaError, SetupError, WriteConflict
from serde_lab.measure.timeline import AttemptReport, TaskTimeline
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.commit.table_services import Compactor
from serde_lab.pipeline.options.write import WriteOptions, parse_options
from serde_lab.pipeline.read import open_table, parse_read_options, plan_read
from serde_lab.pipeline.spark.dataframe import computes_keys, holds_separators, sent_schema
from serde_lab.pipeline.spark.exchange import (
    ColumnsExchange,
    SparkExchange,
    batches_of,
    on_purpose,
    stored_columns,
)
from serde_lab.pipeline.spark.shuffle import RESULTS
from serde_lab.pipeline.spark.worker import (
    Reports,
    ReportsParam,
    carried,
    check_workers,
    numbers_in,
    report_of,
    results,
)
from serde_lab.pipeline.write import PreparedWrite, table_to_write
from serde_lab.records.operation import Operation
from serde_lab.records.schema import COMMIT_TIME, microsecond_schema, storage_type
from serde_lab.table.config import TIMELINE_ZONE, TableConfig
from serde_lab.table.files.base_file import BaseFileReader, with_meta_columns
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.services.compaction import CompactionPlan, compact_slice
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.commit_metadata import WriteStat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(df: DataFrame, path: str, options: Mapping[str, Any]) -> Commit:
    """Write `df` to the Hudi table at `path` (a folder or a URL); returns the commit.

    Meta columns that a read returned are left out, as by Apache Hudi; only upsert_prepped takes them.

    Table services run after the commit, which remains if one of them raises: cleaning and archiving unless
    the options turn them off, and compaction if `hoodie.compact.inline` is true.

    `options` are Hudi's own names and `serde_lab.…` (`serde_lab.pipeline.options.write` lists them all).
    Raises SetupError if the workers' Python lacks packages, or the session's time zone does not fit the
    table's, OptionError for an option that is unknown or invalid, SchemaError and DataError for data that the
    table cannot hold, TableError for a table that cannot be written safely, ConcurrentWrite if another writer
    is active, WriteConflict if this write is optimistic and conflicts with another one; nothing is committed
    then. Warns (PortabilityWarning) of anything that some version of Hudi cannot read or continue to write.
    """
    check_workers(df.sparkSession)
    storage = Storage.open(path)
    for tried in count():
        stored = table_to_write(storage)
        parsed = parse_options(options, None if stored is None else stored.config)
        prepared = PreparedWrite.of(storage, arrow_schema(df), parsed)
        with prepared.hold():
            try:
                with batches_of(df.sparkSession, parsed.max_records_per_batch):
                    commit = prepared.commit(exchange_for(df, parsed))
            except WriteConflict:
                if tried >= parsed.conflict_retries:
                    raise
                continue
            prepared.serve(compactor_on(df.sparkSession))
            return commit
    raise AssertionError("every try returns, raises or goes on")


def exchange_for(df: DataFrame, options: WriteOptions) -> SparkExchange:
    """How Spark carries the records of a write. Raises what `check_zone` raises."""
    check_zone(df.sparkSession, options.table)
    bulk = options.operation is Operation.BULK_INSERT and options.topology == "bucket"
    table = options.table
    by_columns = bulk and computes_keys(df, table) and not holds_separators(df, table)
    kind = ColumnsExchange if by_columns else SparkExchange
    reads_files = options.source_reader == "auto"
    return kind(stored_columns(df), own_reader=reads_files, shuffle=options.shuffle)


def check_zone(spark: SparkSession, table: TableConfig) -> None:
    """Raise SetupError if Apache Hudi in this session would name instants in another time zone than the lab.

    In a table whose instants are in the machine's own zone, a later write could then have an earlier time.
    """
    if table.extra.get(TIMELINE_ZONE) != "LOCAL":
        return
    now, jvm = datetime.now().astimezone(), spark.sparkContext._jvm
    assert jvm is not None
    zone = jvm.java.util.TimeZone.getDefault()
    if timedelta(milliseconds=zone.getOffset(round(now.timestamp() * 1000))) != now.utcoffset():
        raise SetupError(
            f"instants of {table.name} are in the machine's time zone ({TIMELINE_ZONE}), which is"
            f" {zone.getID()} for this session's JVM and {now.tzname()} for this program",
            hint=f"start the program with TZ={zone.getID()}, or the JVM without user.timezone",
        )


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The Arrow schema in which Spark sends `df`. Raises SchemaError naming column and type."""
    for field in df.schema:
        try:
            to_arrow_schema(StructType([field]))
        except Exception as exc:
            # the error types differ between pyspark releases
            raise SchemaError(
                f"column {field.name!r} is of Spark type {field.dataType.simpleString()},"
                " which has no Arrow form"
            ) from exc
    return sent_schema(df.schema)


COMPACT_STAGE = "compact"


class SliceCompactions:
    """Runs the compaction tasks whose numbers arrive; one result per task, and a report of its time."""

    def __init__(self, plan: CompactionPlan, reports: Reports) -> None:
        self.plan, self.reports = plan, reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timeline = TaskTimeline(COMPACT_STAGE)
        written = []
        try:
            for number in numbers_in(timeline.source(batches)):
                written.append(pickle.dumps(compact_slice(self.plan, number, timeline)))
        except LabError as exc:
            raise RuntimeError(carried(exc)) from exc
        yield from timeline.sink([results(written)])
        self.reports.add([report_of(timeline)])


def compactor_on(spark: SparkSession, reports: list[AttemptReport] | None = None) -> Compactor:
    """A compactor that runs on Spark, and adds the reports of its tasks to `reports`."""

    def run(plan: CompactionPlan) -> tuple[WriteStat, ...]:
        count = len(plan.reads.slices)
        tasks = spark.range(0, count, 1, count)
        found = spark.sparkContext.accumulator([], ReportsParam())
        with on_purpose():
            rows = tasks.mapInArrow(SliceCompactions(plan, found), RESULTS).collect()
        if reports is not None:
            reports.extend(found.value)
        return tuple(pickle.loads(row.result) for row in rows)

    return run


# read values as stored, whatever calendar the session assumes for files of unknown writers; and all rows,
# even if the session skips damaged and missing files. Parquet's reader takes -0.0 and 0.0 for two values
# where it filters by a column's dictionary, by its Bloom filter, or row by row (which Apache Hudi's reads
# switch on in a session); Spark filters the rows itself, by its own rule
_AS_STORED = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
    "parquet.filter.record-level.enabled": "false",
}
# rows of one batch given to Spark, which makes one vector of it
_BATCH_ROWS = 16 * 1024
_PATTERN = frozenset("*?[]{}\\")


def read(spark: SparkSession, path: str, options: Mapping[str, Any] | None = None) -> DataFrame:
    """The Hudi table at `path` (a folder or a URL) as a DataFrame of its data columns.

    `options` are Hudi's own names and `serde_lab.…` (`serde_lab.pipeline.read` lists them all); the default
    is a snapshot read. This call decides which files are read; the rows are read when an action runs.
    Raises TableError if there is no table or its kind is not supported, OptionError for an option that is
    unknown or invalid or a time whose files are gone, SetupError if the workers' Python lacks packages.
    """
    return frame_of(spark, plan_read(open_table(path), parse_read_options(options or {})))


def frame_of(spark: SparkSession, plan: ReadPlan, reports: Reports | None = None) -> DataFrame:
    """The rows of `plan` as a DataFrame; tasks that merge slices add their reports to `reports`."""
    alone = [slice_ for slice_ in plan.slices if _spark_reads(plan, slice_)]
    narrower = _narrower_instants(plan, alone)
    plain = tuple(slice_ for slice_ in alone if slice_.base_instant not in narrower)
    others = tuple(slice_ for slice_ in plan.slices if slice_ not in plain)
    if not plain and not others:
        return spark.createDataFrame([], spark_schema(plan.schema))
    frames = []
    if plain:
        frames.append(_base_files(spark, plan, plain))
    if others:
        check_workers(spark)
        frames.append(merged_slices(spark, plan, others, reports))
    return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def _spark_reads(plan: ReadPlan, slice_: FileSlice) -> bool:
    """Whether the slice needs no merging, and Spark's own reader can open the file."""
    if slice_.base_file is None or (slice_.log_files and not plan.read_optimised):
        return False
    path = plan.storage.describe(slice_.base_file.path)
    # Spark expands patterns in paths, and a partition value may look like one
    return plan.storage.is_local and not _PATTERN.intersection(path)


def _narrower_instants(plan: ReadPlan, slices: Iterable[FileSlice]) -> set[str]:
    """Instants whose base files have narrower columns than the table, which Spark's reader refuses.

    One footer per instant is enough: all files of a write have one schema.
    """
    first = {s.base_instant: s.base_file.path for s in slices if s.base_file is not None}
    wanted = {field.name: storage_type(field.type) for field in plan.schema}
    return {
        instant
        for instant, path in first.items()
        if any(
            storage_type(field.type) != wanted[field.name]
            for field in BaseFileReader(plan.storage, path).schema
            if field.name in wanted
        )
    }


def _base_files(spark: SparkSession, plan: ReadPlan, slices: tuple[FileSlice, ...]) -> DataFrame:
    paths = [plan.storage.describe(s.base_file.path) for s in slices if s.base_file is not None]
    stored = spark_schema(with_meta_columns(plan.data_schema))
    rows = spark.read.options(**_AS_STORED).schema(stored).parquet(*paths)
    if plan.commit_times is not None:
        rows = rows.where(F.col(COMMIT_TIME).isin(*sorted(plan.commit_times)))
    return rows.select(*(f"`{name}`" for name in plan.schema.names))


READ_STAGE = "read"


class SliceReads:
    """Reads and merges the slices whose numbers arrive, and reports the time that this took."""

    def __init__(self, plan: ReadPlan, reports: Reports | None = None) -> None:
        self.plan, self.reports = plan, reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        timeline = TaskTimeline(READ_STAGE)
        yield from timeline.sink(self._rows(timeline, batches))
        if self.reports is not None:
            self.reports.add([report_of(timeline)])

    def _rows(
        self, timeline: TaskTimeline, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        wanted = microsecond_schema(self.plan.schema)
        for number in numbers_in(timeline.source(batches)):
            for whole in self.plan.batches(self.plan.slices[number], timeline):
                batch = whole if whole.schema.equals(wanted) else whole.cast(wanted)
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    yield batch.slice(start, _BATCH_ROWS)


def merged_slices(
    spark: SparkSession,
    plan: ReadPlan,
    slices: tuple[FileSlice, ...],
    reports: Reports | None = None,
) -> DataFrame:
    """The rows of `slices` of `plan`, each slice read and merged in a task of its own."""
    reads = SliceReads(replace(plan, slices=slices), reports)
    count = len(slices)
    return spark.range(0, count, 1, count).mapInArrow(reads, spark_schema(plan.schema))


def spark_schema(schema: pa.Schema) -> StructType:
    """`schema` in Spark's types; timestamps without zone stay so, and no session time zone shifts them."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
