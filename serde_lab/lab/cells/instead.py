"""What a PySpark user would write instead: an upsert of plain Parquet files, or `MERGE INTO` of another
format.

Each control on plain files reads the stored rows and the changes, keeps the best row of each key, and writes
all rows as a new version of the folder. They differ in where the rows are merged:

- `sql_merge`: in the JVM, by a full outer join in Spark SQL; no Python at all;
- `pandas_udf`: in pandas, one bucket of keys at a time (`applyInPandas`);
- `arrow_udf`: in Arrow, after a repartition by the bucket (`mapInArrow`);
- `rdd_cloudpickle`: in Python dicts, after `RDD.partitionBy`; rows cross in PySpark's own batched pickle.

None has an index, a timeline, incremental reads, or readers that see whole commits only.

The controls `delta_merge` and `iceberg_merge` run the statement that the documentation of both formats shows.
Its source has one row for each key, the one with the greatest ordering value, and a stored row stays if its
own is greater. `peers.table_formats` has the settings.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from serde_lab.lab.cells.bench import Bench
from serde_lab.lab.cells.cell import CellJob, CellResult, CommitResult, SparkCell, measure_of
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.measure.metrics import Sample
from serde_lab.peers.apache_hudi import java_errors
from serde_lab.peers.table_formats import FORMATS, ICEBERG, TableFormat, quoted
from serde_lab.pipeline.spark.exchange import SHUFFLE_TASKS, setting, stored_columns
from serde_lab.records.operation import Operation
from serde_lab.scenario.model import Files

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, DataFrameWriter


_LATER = "__later"
"""Whether a row is of the changes, not stored; it breaks ties of the ordering columns."""
_BUCKET = "__bucket"


@dataclass(frozen=True, slots=True)
class Upsert:
    """What to merge: the stored rows and the changes, whose columns are the same.

    Of rows with one key the greatest in `ordering` stays, and of equal ones the change. `unique`: no key
    occurs twice in the changes.
    """

    stored: DataFrame
    changes: DataFrame
    key: tuple[str, ...]
    ordering: tuple[str, ...]
    buckets: int
    unique: bool

    @property
    def columns(self) -> list[str]:
        return self.changes.columns

    @property
    def together(self) -> DataFrame:
        """All rows with `__later`."""
        stored = self.stored.withColumn(_LATER, F.lit(False))
        return stored.unionByName(self.changes.withColumn(_LATER, F.lit(True)))


def sql_merge(upsert: Upsert) -> DataFrame:
    """A full outer join of stored rows and changes; each row is taken whole from one side."""
    stored, changes = upsert.stored.alias("s"), upsert.changes
    if not upsert.unique:
        changes = best_of_each_key(changes, upsert.key, upsert.ordering)
    changes = changes.alias("c")
    same = [F.col(f"s.{name}") == F.col(f"c.{name}") for name in upsert.key]
    first = upsert.key[0]
    taken = F.col(f"s.{first}").isNull() | (
        F.col(f"c.{first}").isNotNull()
        & (_struct(upsert.ordering, "c.") >= _struct(upsert.ordering, "s."))
    )
    sides = [
        F.when(taken, F.col(f"c.{name}")).otherwise(F.col(f"s.{name}")).alias(name)
        for name in upsert.columns
    ]
    return stored.join(changes, same, "full_outer").select(*sides)


def pandas_udf(upsert: Upsert) -> DataFrame:
    """pandas sorts one bucket of keys at a time, and keeps the last row of each key."""
    key, order = list(upsert.key), [*upsert.ordering, _LATER]

    def merge(rows: pd.DataFrame) -> pd.DataFrame:
        kept = rows.sort_values(order, kind="stable").drop_duplicates(key, keep="last")
        return kept.drop(columns=[_LATER, _BUCKET])

    bucketed = upsert.together.withColumn(_BUCKET, _bucket(upsert))
    return bucketed.groupBy(_BUCKET).applyInPandas(merge, upsert.changes.schema)


def arrow_udf(upsert: Upsert) -> DataFrame:
    """Arrow sorts one task's rows, and keeps the last row of each key."""
    key, order = list(upsert.key), [(name, "ascending") for name in (*upsert.ordering, _LATER)]
    columns = upsert.columns

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if not found:
            return
        rows = pa.Table.from_batches(found).combine_chunks()
        rows = rows.take(pc.sort_indices(rows, order))
        places = rows.select(key).append_column("place", pa.array(range(len(rows)), pa.int64()))
        last = places.group_by(key, use_threads=False).aggregate([("place", "max")])
        yield from rows.select(columns).take(last["place_max"]).to_batches()

    routed = upsert.together.repartition(upsert.buckets, _bucket(upsert))
    return routed.mapInArrow(merge, upsert.changes.schema)


def rdd_cloudpickle(upsert: Upsert) -> DataFrame:
    """A dict keeps the best row of each key; rows cross as pairs of key and row."""
    columns = upsert.columns
    key = [columns.index(name) for name in upsert.key]
    order = [columns.index(name) for name in upsert.ordering] + [len(columns)]

    def keyed(row: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple([row[i] for i in key]), tuple(row)

    def merge(
        pairs: Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]],
    ) -> Iterator[tuple[Any, ...]]:
        best: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for name, row in pairs:
            held = best.get(name)
            if held is None or [row[i] for i in order] >= [held[i] for i in order]:
                best[name] = row
        return (row[:-1] for row in best.values())

    rows = upsert.together.rdd.map(keyed).partitionBy(upsert.buckets).mapPartitions(merge)
    session = upsert.changes.sparkSession
    return session.createDataFrame(rows, upsert.changes.schema, verifySchema=False)


WAYS: Mapping[str, Callable[[Upsert], DataFrame]] = {
    "sql_merge": sql_merge,
    "pandas_udf": pandas_udf,
    "arrow_udf": arrow_udf,
    "rdd_cloudpickle": rdd_cloudpickle,
}


class UpsertCell(SparkCell):
    """A control that upserts as a PySpark user would, without the lab's pipeline."""

    own_jobs_only = True
    """Whether all its jobs are in the job group of the thread that calls."""

    @abstractmethod
    def write(self, commit: CommitInput) -> None:
        """Write a commit; the clock runs."""

    @abstractmethod
    def stored_files(self) -> Iterable[Path]:
        """The files that a reader of the whole table reads now."""

    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        _, window = self.bench.measured(group, lambda: self.write(commit), self.own_jobs_only)
        # a user's code reports no phases: its stages are counted whole, Python's part and the JVM's
        stages = tuple(replace(stage, python=False) for stage in window.history.stages)
        measure = measure_of(
            replace(window, history=replace(window.history, stages=stages)),
            self.slots,
            labels={stage.stage_id: f"spark/{stage.name.split(' at ')[0]}" for stage in stages},
        )
        sizes = [file.stat().st_size for file in self.stored_files()]
        samples = [
            *measure.samples(number),
            Sample("rows", commit.rows, number),
            Sample("files", len(sizes), number),
            Sample("table_bytes", sum(sizes), number),
        ]
        return CommitResult(window.wall_ns, tuple(samples), rows=commit.rows)

    def changes(self, commit: CommitInput) -> DataFrame:
        """The rows of `commit`, in the types that the other arms' tables have."""
        return stored_columns(self.bench.source(commit.files))

    @property
    def unique(self) -> bool:
        """Whether no key occurs twice in a commit."""
        return all(batch.has_unique_keys for batch in self.job.scenario.batches)


class PlainTableCell(UpsertCell):
    """A control of this module. Its table is the newest version of a folder of Parquet files."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(bench, job)
        self._folder = job.table.with_name(f"{job.table.name}-plain")
        self._version = 0

    @property
    def table(self) -> Path:
        return self._folder / f"v{self._version}"

    def stored_files(self) -> Iterable[Path]:
        return self.table.glob("*.parquet")

    def start(self) -> Iterator[Sample]:
        for commit in self.job.inputs.setups:
            self.write(commit)
        yield from self.bench.fresh_workers(self.job.name)

    def write(self, commit: CommitInput) -> None:
        """Write the next version of the folder."""
        job = self.job
        table, merged = job.scenario.table_of(job.arm), self._merged(commit)
        self._version += 1
        # as many tasks after a shuffle as the table has buckets, which is what the other arms have
        with setting(self.bench.spark, SHUFFLE_TASKS, table.buckets):
            parquet_writer(merged, table).parquet(str(self.table))

    def _merged(self, commit: CommitInput) -> DataFrame:
        scenario, arm = self.job.scenario, self.job.arm
        changes = self.changes(commit)
        adds = commit.operation is Operation.BULK_INSERT
        if adds and not self._version:
            return changes
        if self._version:
            stored = self.bench.spark.read.schema(changes.schema).parquet(str(self.table))
        else:
            stored = changes.limit(0)
        if adds:
            return stored.unionByName(changes)
        upsert = Upsert(
            stored,
            changes,
            scenario.data.record_key,
            scenario.ordering,
            scenario.table_of(arm).buckets,
            self.unique,
        )
        return WAYS[arm.control or ""](upsert)


def best_of_each_key(changes: DataFrame, key: Sequence[str], ordering: Sequence[str]) -> DataFrame:
    """Of rows with one key the one with the greatest ordering values."""
    best = F.max_by(F.struct(*changes.columns), _struct(ordering))
    return changes.groupBy(*key).agg(best.alias("best")).select("best.*")


def parquet_writer(rows: DataFrame, files: Files) -> DataFrameWriter:
    """Writes plain Parquet with the codec of the scenario's tables."""
    writer = rows.write.option("compression", files.codec)
    if files.codec == "zstd" and files.level is not None:
        writer = writer.option("parquet.compression.codec.zstd.level", str(files.level))
    return writer


def _struct(names: Sequence[str], prefix: str = "") -> Any:
    return F.struct(*(F.col(f"{prefix}{name}").alias(f"c{i}") for i, name in enumerate(names)))


def _bucket(upsert: Upsert) -> Any:
    return F.pmod(F.hash(*upsert.key), F.lit(upsert.buckets))


_CHANGES = "serde_lab_changes"
"""The temporary view of the rows to merge."""


def create_table(table: str, form: TableFormat, columns: str, files: Files) -> str:
    """The statement that creates an empty table; `columns` are their names and types in SQL."""
    properties = ", ".join(f"'{k}' = '{v}'" for k, v in form.properties(files).items())
    return f"CREATE TABLE {table} ({columns}) USING {form.provider} TBLPROPERTIES ({properties})"


def merge_into(table: str, source: str, key: Sequence[str], ordering: Sequence[str]) -> str:
    """The statement that upserts `source`, which has each key once: a row replaces a stored one of its key
    unless the stored one is greater in `ordering`."""

    def columns(side: str) -> str:
        return ", ".join(f"{side}.{quoted(name)}" for name in ordering)

    same = " AND ".join(f"t.{quoted(name)} = c.{quoted(name)}" for name in key)
    return (
        f"MERGE INTO {table} t USING {source} c ON {same}"
        f" WHEN MATCHED AND struct({columns('c')}) >= struct({columns('t')}) THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT *"
    )


class MergeCell(UpsertCell):
    """A control of this module. `table` is a folder of plain Parquet: the rows of the final table as Spark
    reads them with the format's own reader."""

    own_jobs_only = False  # a format reads its log in threads of its own

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(bench, job)
        self.format = FORMATS[job.arm.control or ""]
        self._folder = job.table / self.format.provider
        self._name = self.format.name(self._folder)

    @property
    def table(self) -> Path:
        return self.job.table / "rows"

    def start(self) -> Iterator[Sample]:
        job, spark = self.job, self.bench.spark
        self.bench.end_workers()
        files = job.scenario.table_of(job.arm)
        conf = {
            SHUFFLE_TASKS: str(files.buckets),
            **self.format.place(self._folder),
            **self.format.write_conf(files),
        }
        for key, value in conf.items():
            spark.conf.set(key, value)
        first = (*job.inputs.setups, *job.inputs.commits)[0]
        columns = self.changes(first)._jdf.schema().toDDL()
        self._run(create_table(self._name, self.format, columns, files))
        for commit in job.inputs.setups:
            self.write(commit)
        yield from self.bench.start_samples()

    def write(self, commit: CommitInput) -> None:
        scenario = self.job.scenario
        key, ordering = scenario.data.record_key, scenario.ordering
        changes = self.changes(commit)
        adds = commit.operation is Operation.BULK_INSERT
        if not (adds or self.unique):
            changes = best_of_each_key(changes, key, ordering)
        changes.createOrReplaceTempView(_CHANGES)
        names = ", ".join(map(quoted, changes.columns))
        insert = f"INSERT INTO {self._name} ({names}) SELECT {names} FROM {_CHANGES}"
        self._run(insert if adds else merge_into(self._name, _CHANGES, key, ordering))

    def measure(self) -> CellResult:
        result = super().measure()
        rows = self.bench.spark.sql(f"SELECT * FROM {self._name}")
        rows.write.parquet(str(self.table))
        return replace(result, data_files=tuple(self._files()[0]))

    def stored_files(self) -> Iterable[Path]:
        data, deletes = self._files()
        return (*data, *deletes)

    def _files(self) -> tuple[list[Path], list[Path]]:
        """The data files of the newest snapshot, and the files that mark rows of them as deleted."""
        spark = self.bench.spark
        if self.format is ICEBERG:
            found = spark.sql(f"SELECT file_path, content FROM {self._name}.files").collect()
            paths = [(Path(path.removeprefix("file:")), content) for path, content in found]
            return [p for p, content in paths if not content], [
                p for p, content in paths if content
            ]
        data = spark.sql(f"SELECT * FROM {self._name}").inputFiles()
        # of older snapshots too, whose vectors are small
        vectors = self._folder.glob("deletion_vector_*.bin")
        return [Path(unquote(urlparse(uri).path)) for uri in data], list(vectors)

    def _run(self, statement: str) -> None:
        """Run a statement. Raises LabError with the innermost cause from Java."""
        with java_errors(f"{self.format.title} cannot write"):
            self.bench.spark.sql(statement)
