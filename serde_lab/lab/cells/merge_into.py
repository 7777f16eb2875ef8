"""The controls `delta_merge` and `iceberg_merge`: the upsert as `MERGE INTO` of another table format.

The statement is the one that the documentation of both formats shows. Its source has one row for each key,
the one with the greatest ordering value, and a stored row stays if its own is greater.
`peers.table_formats` has the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from serde_lab.errors import LabError
from serde_lab.lab.cells.bench import Bench
from serde_lab.lab.cells.cell import CellJob, CellResult
from serde_lab.lab.cells.plain_tables import UpsertCell, best_of_each_key
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.measure.metrics import Sample
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.peers.table_formats import FORMATS, ICEBERG, TableFormat, quoted
from serde_lab.pipeline.spark.exchange import SHUFFLE_TASKS
from serde_lab.records.operation import Operation
from serde_lab.scenario.model import Files

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
        try:
            self.bench.spark.sql(statement)
        except (Py4JError, PySparkException) as exc:
            raise LabError(f"{self.format.title} cannot write: {root_cause(str(exc))}") from exc
