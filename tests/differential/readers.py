"""What each reader sees in a table: its rows, in the form of `columns`, with their keys.

A table may be asked for as it was, and for its base files alone.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import serde_lab
from serde_lab.errors import LabError
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.pipeline.read import open_table, parse_read_options, plan_read
from serde_lab.table.read_plan import ReadPlan
from serde_lab.verify.readers import HudiRs
from tests.differential.columns import plain
from tests.differential.history import Row
from tests.differential.writers import AS_STORED, FailedError, conf_set
from tests.peers.hudi_reads import HudiSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_META = ("_hoodie_record_key", "_hoodie_partition_path")
_AS_SEEN = {"spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED"}
"""Of the files by which rows come out of Spark: values of any year, as they are."""


@dataclass(frozen=True)
class View:
    """Which rows of a table are asked for: those after the last write that was requested by `as_of`, "" for
    all writes; `base_files`: the rows of the newest base files alone, which Hudi calls read-optimised;
    `since`: the rows of writes that completed later. `strategy` and `execution` are those of the records that
    the lab merges, "" for Arrow.
    """

    as_of: str = ""
    base_files: bool = False
    since: str = ""
    strategy: str = ""
    execution: str = ""

    @property
    def kind(self) -> str:
        """What is added to a reader's name where its looks are counted."""
        if self.as_of:
            return ", time travel"
        if self.since:
            return ", incremental"
        return ", read-optimised" if self.base_files else ""

    @property
    def options(self) -> dict[str, str]:
        """As options of a read, of the lab's and of Apache Hudi's."""
        if self.since:
            return {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": self.since,
            }
        query = "read_optimized" if self.base_files else "snapshot"
        found = {"hoodie.datasource.query.type": query}
        return {**found, "as.of.instant": self.as_of} if self.as_of else found

    @property
    def of_the_lab(self) -> dict[str, str]:
        """As options of the lab's reads, with the meta columns."""
        records = {"serde_lab.strategy": self.strategy, "serde_lab.execution": self.execution}
        stated = {name: value for name, value in records.items() if value}
        return {**self.options, **stated, "serde_lab.meta_columns": "true"}

    @property
    def of_hudi_rs(self) -> dict[str, str]:
        """As options of hudi-rs."""
        return {"hoodie.read.use.read_optimized.mode": "true"} if self.base_files else {}


NOW = View()


def read(
    reader: str,
    path: str,
    schema: pa.Schema,
    session: SparkSession | None,
    view: View = NOW,
    plan: ReadPlan | None = None,
) -> list[Row]:
    """The table at `path` as `reader` sees it; `plan`: by this plan of the lab's. Raises FailedError."""
    try:
        if reader == "hudi-rs":
            by_rust = HudiRs(path, view.as_of, view.of_hudi_rs)
            found = by_rust.changes(view.since) if view.since else by_rust.table()
            return _answer(found, schema)
        if session is None:
            return _answer((plan or planned(path, view)).read(), schema)
        if reader == "apache-hudi":
            with conf_set(session, AS_STORED):
                frame = HudiSnapshot(session, path, view.options).frame()
                return _answer(_collected(session, frame), schema)
        frame = serde_lab.read(session, path, view.of_the_lab)
        return _answer(_collected(session, frame), schema)
    except (LabError, KeyError, ValueError, TypeError, pa.ArrowException) as exc:
        raise FailedError(f"{type(exc).__name__}: {' '.join(str(exc).split())[:400]}") from exc
    except Exception as exc:
        if session is None:
            raise
        # what Spark raises differs from cause to cause
        raise FailedError(" ".join(root_cause(str(exc)).split())[:400]) from exc


def planned(path: str, view: View = NOW) -> ReadPlan:
    """The lab's read of the table at `path`, with its files listed but not read."""
    return plan_read(open_table(path), parse_read_options(view.of_the_lab))


def last_instant(path: str) -> tuple[str, str]:
    """When the last of the actions on the table at `path` was requested, and by when all had completed."""
    done = open_table(path).timeline().completed()
    completed = (instant.completion_time or instant.time for instant in done)
    return max((instant.time for instant in done), default=""), max(completed, default="")


def _collected(session: SparkSession, frame: DataFrame) -> pa.Table:
    with tempfile.TemporaryDirectory(prefix="differential-") as folder, conf_set(session, _AS_SEEN):
        # all columns: of some alone Apache Hudi cannot read every table (tests/readers.toml)
        frame.coalesce(1).write.mode("overwrite").parquet(folder)
        parts = sorted(Path(folder).glob("part-*.parquet"))
        return pa.concat_tables([pq.read_table(part) for part in parts])


def _answer(table: pa.Table, schema: pa.Schema) -> list[Row]:
    wanted = pa.schema([*schema, *((name, pa.string()) for name in _META)])
    return plain(table.select(wanted.names).cast(wanted))
