"""What each reader sees in a table: its rows, in the form of `columns`, with their keys."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import serde_lab
from serde_lab.errors import LabError
from serde_lab.peers.apache_hudi import HudiSnapshot, root_cause
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.readers import HudiRs
from tests.differential.columns import plain
from tests.differential.history import Row
from tests.differential.writers import AS_STORED, FailedError, conf_set

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_META = ("_hoodie_record_key", "_hoodie_partition_path")
_AS_SEEN = {"spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED"}
"""Of the files by which rows come out of Spark: values of any year, as they are."""


def read(reader: str, path: str, schema: pa.Schema, session: SparkSession | None) -> list[Row]:
    """The table at `path` as `reader` sees it. Raises FailedError."""
    try:
        if reader == "hudi-rs":
            return _answer(HudiRs(path).table(), schema)
        if session is None:
            return _answer(plan_snapshot(HoodieTable.open(Storage.open(path))).read(), schema)
        if reader == "apache-hudi":
            with conf_set(session, AS_STORED):
                frame = HudiSnapshot(session, path).frame()
                return _answer(_collected(session, frame, schema), schema)
        frame = serde_lab.read(session, path, {"serde_lab.meta_columns": "true"})
        return _answer(_collected(session, frame, schema), schema)
    except (LabError, KeyError, ValueError, TypeError, pa.ArrowException) as exc:
        raise FailedError(f"{type(exc).__name__}: {' '.join(str(exc).split())[:400]}") from exc
    except Exception as exc:
        if session is None:
            raise
        # what Spark raises differs from cause to cause
        raise FailedError(" ".join(root_cause(str(exc)).split())[:400]) from exc


def _collected(session: SparkSession, frame: DataFrame, schema: pa.Schema) -> pa.Table:
    with tempfile.TemporaryDirectory(prefix="differential-") as folder, conf_set(session, _AS_SEEN):
        wanted = frame.select(*schema.names, *_META).coalesce(1)
        wanted.write.mode("overwrite").parquet(folder)
        parts = sorted(Path(folder).glob("part-*.parquet"))
        return pa.concat_tables([pq.read_table(part) for part in parts])


def _answer(table: pa.Table, schema: pa.Schema) -> list[Row]:
    wanted = pa.schema([*schema, *((name, pa.string()) for name in _META)])
    return plain(table.select(wanted.names).cast(wanted))
