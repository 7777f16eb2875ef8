"""Apache Hudi and the lab as writers of one commit of a table, which both are handed as a folder of rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from serde_lab.errors import PortabilityWarning
from serde_lab.peers.hudi_options import HudiWrite
from serde_lab.pipeline.compaction import compact
from serde_lab.pipeline.read import open_table
from serde_lab.pipeline.spark_write import write
from tests.differential.kind import MODES, Kind
from tests.peers.lab_writer import lab_options, write_in_process

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
        with warnings.catch_warnings():
            # which columns other versions of Hudi cannot read is not the matter here
            warnings.simplefilter("ignore", PortabilityWarning)
            write_in_process(path, rows, _options(kind, name, self.strategy))
        if service:
            compact(open_table(path))


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
    return {
        **lab_options(kind.table(), operation, strategy, kind.blocks),
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        **MODES[kind.mode].options,
    }
