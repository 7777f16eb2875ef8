"""Apache Hudi and the lab as writers of one commit of a table, which both are handed as a folder of rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow.parquet as pq

from serde_lab.errors import PortabilityWarning
from serde_lab.peers.hudi_options import HudiWrite
from serde_lab.pipeline.compaction import compact
from serde_lab.pipeline.exchange import InProcessExchange, parquet_partitions
from serde_lab.pipeline.options import parse_options
from serde_lab.pipeline.spark_write import write
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.differential.kind import MODES, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHEAPER: Mapping[str, str] = {
    # a filter of 60,000 keys in every file, and a server for the markers of every write
    "hoodie.parquet.bloom.filter.enabled": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}
"""Has no say in rows."""

STRATEGIES = ("pickle", "avro", "internal_row", "arrow")


class Writer(Protocol):
    """Does one commit: `operation` is one of a kind's program, `rows` a folder of Parquet files."""

    def write(self, path: str, kind: Kind, operation: str, rows: Path) -> None: ...


@dataclass(frozen=True)
class ByHudi:
    """Apache Hudi on Spark."""

    session: SparkSession

    def write(self, path: str, kind: Kind, operation: str, rows: Path) -> None:
        name, _, service = operation.partition(", ")
        compact_after = 1 if service else 0
        options = kind.hudi_options(HudiWrite(compact_after=compact_after, extra=_CHEAPER))
        options["hoodie.datasource.write.operation"] = name
        frame = self.session.read.parquet(str(rows))
        frame.write.format("hudi").options(**options).mode("append").save(path)


@dataclass(frozen=True)
class InProcess:
    """The lab without Spark."""

    strategy: str

    def write(self, path: str, kind: Kind, operation: str, rows: Path) -> None:
        name, _, service = operation.partition(", ")
        storage = Storage.open(Path(path))
        stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
        files = sorted(rows.glob("*.parquet"))
        options = parse_options(_options(kind, name, self.strategy), stored)
        with warnings.catch_warnings():
            # which columns other versions of Hudi cannot read is not the matter here
            warnings.simplefilter("ignore", PortabilityWarning)
            schema = pq.read_schema(files[0])
            prepared = PreparedWrite.of(storage, schema, options)
            prepared.commit(InProcessExchange(parquet_partitions(files, schema.names)))
        if service:
            compact(HoodieTable.open(storage))


@dataclass(frozen=True)
class OnSpark:
    """The lab on Spark."""

    session: SparkSession
    strategy: str

    def write(self, path: str, kind: Kind, operation: str, rows: Path) -> None:
        name, _, service = operation.partition(", ")
        options = _options(kind, name, self.strategy)
        if service:
            options |= {
                "hoodie.compact.inline": "true",
                "hoodie.compact.inline.max.delta.commits": "1",
            }
        frame = self.session.read.parquet(str(rows))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PortabilityWarning)
            write(frame, path, options)


def _options(kind: Kind, operation: str, strategy: str) -> dict[str, str]:
    table = kind.table()
    options = {
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.table.type": table.table_type,
        "hoodie.datasource.write.recordkey.field": ",".join(table.record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(table.partition),
        "hoodie.table.ordering.fields": ",".join(table.ordering),
        "hoodie.datasource.write.hive_style_partitioning": str(table.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(table.url_encode).lower(),
        "hoodie.bucket.index.num.buckets": str(table.buckets),
        "hoodie.bucket.index.hash.field": ",".join(table.bucket_fields),
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "serde_lab.strategy": strategy,
        **MODES[kind.mode].options,
    }
    if kind.merge_on_read:
        options["hoodie.logfile.data.block.format"] = kind.blocks
    return options
