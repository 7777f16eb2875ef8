"""Apache Hudi's reads other than a snapshot of now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serde_lab.peers.apache_hudi import HudiSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
