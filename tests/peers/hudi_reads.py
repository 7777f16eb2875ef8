"""Reads tables with Apache Hudi: a snapshot of now, one of then, and what changed in between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError, TableError
from serde_lab.peers.apache_hudi import dates_of_any_year, java_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class HudiSnapshot:
    """The rows of a table as Apache Hudi reads them, meta columns included.

    `options` are Hudi's own read options (`hoodie.datasource.query.type`, `as.of.instant`,
    `hoodie.metadata.enable`, …). The rows are copied once to Parquet files in a temporary folder, so that
    the driver never holds a large table in memory and values keep their types. Reading raises TableError,
    with the innermost Java cause, if Hudi cannot read.
    """

    spark: SparkSession
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = "Apache Hudi"
    _folder: list[tempfile.TemporaryDirectory[str]] = field(default_factory=list, repr=False)

    def frame(self) -> DataFrame:
        """The rows as a Spark DataFrame."""
        return self.spark.read.format("hudi").options(**dict(self.options)).load(self.path)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows as Spark wrote them, meta columns first."""
        return pq.read_schema(self._parts()[0]).remove_metadata()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in arbitrary order; may be called again."""
        for part in self._parts():
            yield from pq.ParquetFile(part).iter_batches()

    def table(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def close(self) -> None:
        """Remove the temporary folder."""
        while self._folder:
            self._folder.pop().cleanup()

    def __enter__(self) -> HudiSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _parts(self) -> list[Path]:
        if not self._folder:
            folder = tempfile.TemporaryDirectory(prefix="serde_lab-hudi-")
            try:
                with (
                    dates_of_any_year(self.spark),
                    java_errors(f"Apache Hudi cannot read {self.path}"),
                ):
                    # as many files as tasks run at once: a table may have thousands of file groups
                    tasks = self.spark.sparkContext.defaultParallelism
                    self.frame().coalesce(tasks).write.mode("overwrite").parquet(folder.name)
            except LabError as exc:
                folder.cleanup()
                raise TableError(exc.message) from exc
            self._folder.append(folder)
        return sorted(Path(self._folder[0].name).glob("part-*.parquet"))


def read_incremental(spark: SparkSession, path: str, begin: str, end: str = "") -> HudiSnapshot:
    """Rows changed in (begin, end]; for tables of version 8 and 9 the bounds are completion times."""
    bounds = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
    }
    if end:
        bounds["hoodie.datasource.read.end.instanttime"] = end
    return HudiSnapshot(spark, path, bounds)


def read_as_of(spark: SparkSession, path: str, instant: str) -> HudiSnapshot:
    """The rows of the table at `instant`."""
    return HudiSnapshot(spark, path, {"as.of.instant": instant})
