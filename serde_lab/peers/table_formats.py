"""Defines how the controls `delta_merge` and `iceberg_merge` set up Delta Lake and Apache Iceberg.

Each is set as an advocate of the format would set it for this upsert, within what its documentation
recommends; what was tried and left out stands beside the setting. `format_likeness` says what the tables
have in common with Hudi's and what they lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from serde_lab.scenario.model import Files

_SHUFFLES: Mapping[str, str] = {
    # Spark's default; the lab's own sessions turn it off
    "spark.sql.adaptive.enabled": "true",
    # as many tasks after a shuffle, and so as many files, as the other arms have
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A table format as Spark SQL writes it: what its session, its tables and their writes need.

    `provider` is its name after USING. `session_conf` is fixed when a session starts, `write_conf` is set
    before the first write of a table with such files. Tables have names in `catalog`, or are named by their
    path if that is "".
    """

    title: str
    provider: str
    session_conf: Mapping[str, str]
    properties: Callable[[Files], Mapping[str, str]]
    write_conf: Callable[[Files], Mapping[str, str]]
    catalog: str = ""

    def name(self, folder: Path) -> str:
        """The SQL name of the table in `folder`."""
        if not self.catalog:
            return f"{self.provider}.{quoted(str(folder))}"
        return ".".join((self.catalog, quoted(folder.parent.name), quoted(folder.name)))

    def place(self, folder: Path) -> Mapping[str, str]:
        """The setting by which the catalog finds the table in `folder`, for before the catalog is used."""
        if not self.catalog:
            return {}
        return {f"spark.sql.catalog.{self.catalog}.warehouse": str(folder.parent.parent)}


def quoted(name: str) -> str:
    """`name` as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _delta_properties(files: Files) -> dict[str, str]:
    # A deletion vector marks the old versions of updated rows, so that their files are not written anew.
    vectors = files.type == "MERGE_ON_READ"
    return {"delta.enableDeletionVectors": str(vectors).lower()}


def _delta_write_conf(files: Files) -> dict[str, str]:
    # Spark's own writer of Parquet writes the files, with the session's settings
    conf: dict[str, str] = {"spark.sql.parquet.compression.codec": files.codec}
    if files.codec == "zstd" and files.level is not None:
        conf["parquet.compression.codec.zstd.level"] = str(files.level)
    return conf


DELTA = TableFormat(
    "Delta Lake",
    "delta",
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # By default 50 tasks read the log, even that of a small table. Tried once, on a busy machine and
        # before the JVM was warm: a merge of 6,000 rows took 14.7 s of CPU with 50 tasks, 10.2 s with 2.
        "spark.databricks.delta.snapshotPartitions": "2",
        **_SHUFFLES,
    },
    _delta_properties,
    _delta_write_conf,
)


def _iceberg_properties(files: Files) -> dict[str, str]:
    mode = "merge-on-read" if files.type == "MERGE_ON_READ" else "copy-on-write"
    level = {} if files.level is None else {"write.parquet.compression-level": str(files.level)}
    return {
        "format-version": "2",
        "write.merge.mode": mode,
        "write.parquet.compression-codec": files.codec,
        # the tasks of the merge's join write their rows: another shuffle would move each once more
        "write.distribution-mode": "none",
        "write.merge.distribution-mode": "none",
        **level,
    }


ICEBERG = TableFormat(
    "Apache Iceberg",
    "iceberg",
    {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        **_SHUFFLES,
    },
    _iceberg_properties,
    lambda files: {},
    catalog="iceberg",
)

FORMATS: Mapping[str, TableFormat] = {"delta_merge": DELTA, "iceberg_merge": ICEBERG}
"""By control."""
