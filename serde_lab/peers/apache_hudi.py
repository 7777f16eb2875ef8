"""Sets up Spark for Apache Hudi, and reads tables with it.

`lab/jars` finds or fetches its bundle; `hudi_options.py` has the options of writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SESSION_CONF: Mapping[str, str] = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
"""What a session needs besides the jar. All arms of a run share it, so that ratios stay fair."""


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
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not self._folder:
            folder = tempfile.TemporaryDirectory(prefix="serde_lab-hudi-")
            # Spark refuses to write dates before 1582 unless the calendar is set
            calendar = "spark.sql.parquet.datetimeRebaseModeInWrite"
            before = self.spark.conf.get(calendar) or "EXCEPTION"
            try:
                self.spark.conf.set(calendar, "CORRECTED")
                # as many files as tasks run at once: a table may have thousands of file groups
                tasks = self.spark.sparkContext.defaultParallelism
                self.frame().coalesce(tasks).write.mode("overwrite").parquet(folder.name)
            except (Py4JError, PySparkException) as exc:
                folder.cleanup()
                cause = root_cause(str(exc))
                raise TableError(f"Apache Hudi cannot read {self.path}: {cause}") from exc
            finally:
                self.spark.conf.set(calendar, before)
            self._folder.append(folder)
        return sorted(Path(self._folder[0].name).glob("part-*.parquet"))


def root_cause(message: str) -> str:
    """The innermost cause of a Java stack trace, on one line; its first line if no cause is named."""
    causes = [
        line.partition("Caused by: ")[2] for line in message.splitlines() if "Caused by: " in line
    ]
    return (causes or message.strip().splitlines() or ["no cause given"])[-1 if causes else 0]
