"""What each reader sees in a table, as lines by history."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.own_reader import OwnReader
from serde_lab.peers.apache_hudi import HudiSnapshot, root_cause
from serde_lab.verify.readers import HudiRs
from tests.differential.columns import line, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = Mapping[str, Counter[str]]
"""The rows of each history, as lines, by its letter."""

_META = ("_hoodie_record_key", "_hoodie_partition_path")


class FailedError(Exception):
    """A table could not be written or read, and what was said of it."""


def read(reader: str, path: str, schema: pa.Schema) -> Answer:
    """The table at `path` as hudi-rs or the lab sees it. Raises FailedError."""
    try:
        if reader == "hudi-rs":
            return _answer(HudiRs(path).table(), schema)
        own = OwnReader(path)
        return _answer(pa.Table.from_batches(own.batches(), own.schema), schema)
    except (LabError, KeyError, pa.ArrowException) as exc:
        raise FailedError(_short(str(exc))) from exc


def read_by_hudi(
    session: SparkSession, paths: Mapping[str, str], schema: pa.Schema
) -> dict[str, Answer | FailedError]:
    """Tables, by name, as Apache Hudi sees them: one job for all, or each alone where that fails."""
    from pyspark.sql import functions

    try:
        frames = [
            HudiSnapshot(session, path)
            .frame()
            .select(functions.lit(name).alias("table"), *_names(schema))
            for name, path in paths.items()
        ]
        together = frames[0]
        for frame in frames[1:]:
            together = together.unionByName(frame)
        with tempfile.TemporaryDirectory(prefix="differential-") as folder:
            together.write.mode("overwrite").parquet(folder)
            parts = sorted(Path(folder).glob("part-*.parquet"))
            rows = pa.concat_tables([pq.read_table(part) for part in parts])
    except Exception as exc:  # what Spark raises differs from cause to cause
        if len(paths) == 1:
            return {name: FailedError(_short(root_cause(str(exc)))) for name in paths}
        found: dict[str, Answer | FailedError] = {}
        for name, path in paths.items():
            found |= read_by_hudi(session, {name: path}, schema)
        return found
    tables = rows["table"]
    return {name: _answer(rows.filter(pa.compute.equal(tables, name)), schema) for name in paths}


def _answer(table: pa.Table, schema: pa.Schema) -> Answer:
    wanted = pa.schema([*schema, *((name, pa.string()) for name in _META)])
    answer: dict[str, Counter[str]] = {}
    for row in plain(table.select(wanted.names).cast(wanted)):
        answer.setdefault(row.pop("h"), Counter())[line(row)] += 1
    return answer


def _names(schema: pa.Schema) -> list[str]:
    return [*schema.names, *_META]


def _short(said: str) -> str:
    return " ".join(said.split())[:400]
