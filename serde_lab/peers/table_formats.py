"""Defines how the controls `delta_merge` and `iceberg_merge` set up Delta Lake and Iceberg, and what they
lack.

Each is set as an advocate of the format would set it for this upsert, within what its documentation
recommends; what was tried and left out stands beside the setting.

Two lists say what the tables of one upsert have in common in Hudi, Delta Lake and Iceberg, and what each
lacks. A run with one of these controls stores both lists, and its report shows them. What is said of Delta
Lake and Iceberg holds for the versions in `lab/jars/jars.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from serde_lab.scenario.model import FORMAT_CONTROLS, PLAIN_CONTROLS, Arm, Files

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


COMMITS = "readers that see whole commits only"
TIME_TRAVEL = "reads of earlier states"
KEYS = "record keys"
INDEX = "an index"
CHANGES = "incremental reads of updates"
PROMISES = (COMMITS, TIME_TRAVEL, KEYS, INDEX, CHANGES)
"""What a table may promise beyond its rows."""


@dataclass(frozen=True, slots=True)
class Way:
    """What an arm leaves behind: the kind of its table, and what that does not give."""

    table: str
    lacks: tuple[str, ...] = ()


_HUDI = Way("a Hudi table")
_PLAIN = Way("plain Parquet files", PROMISES)
_FORMATS: Mapping[str, Way] = {
    "delta_merge": Way("a Delta table", (KEYS, INDEX, CHANGES)),
    "iceberg_merge": Way("an Iceberg table", (KEYS, INDEX, CHANGES)),
}


def way_of(arm: Arm) -> Way | None:
    """What `arm` leaves behind; None for a control that does not upsert."""
    if arm.control in PLAIN_CONTROLS:
        return _PLAIN
    if arm.control is None or arm.control == "spark_native":
        return _HUDI
    return _FORMATS.get(arm.control)


def ways_of(arms: Iterable[Arm]) -> tuple[dict[str, object], ...]:
    """The ways of `arms` as stored in a run; none unless one of them upserts without a Hudi table."""
    found = {arm.name: (arm, way) for arm in arms if (way := way_of(arm)) is not None}
    if all(way is _HUDI for _, way in found.values()):
        return ()
    return tuple(
        {"arm": name, "table": way.table, "lacks": list(way.lacks)}
        for name, (_, way) in found.items()
    )


@dataclass(frozen=True, slots=True)
class FormatAspect:
    """One row: what the lab's pipeline does, and what `MERGE INTO` of each format does."""

    name: str
    hudi: str
    delta: str
    iceberg: str


_SAME = "the same"

FORMAT_ASPECTS = (
    FormatAspect(
        "input", "the scenario's Parquet files, one input partition for each", _SAME, _SAME
    ),
    FormatAspect(
        "duplicates in a batch",
        "resolved by the task that writes the bucket",
        "resolved by a GROUP BY before the merge: a shuffle more; left out if a batch has none",
        _SAME + " as in Delta Lake",
    ),
    FormatAspect(
        "late rows",
        "the table's merge mode makes them lose",
        "a condition in the statement makes them lose; another writer may leave it out",
        _SAME + " as in Delta Lake",
    ),
    FormatAspect(
        "finding stored rows",
        "the hash of the key is the bucket, and so the file group",
        "a join of changes and table finds the files, a second join merges them",
        "a join of changes and table finds the files (copy-on-write), a second join merges them",
    ),
    FormatAspect(
        "rows that are written (copy-on-write)",
        "all rows of each file group that has a change",
        "all rows of each file that has an updated row; inserted rows in new files",
        _SAME + " as in Delta Lake",
    ),
    FormatAspect(
        "rows that are written (merge-on-read)",
        "the changes, in log files",
        "the changes, in new files, and deletion vectors for the rows that they replace",
        "the changes, in new files, and position deletes for the rows that they replace (format 2)",
    ),
    FormatAspect(
        "number of files",
        "one for each bucket",
        "one for each task after the merge's shuffle, of which there are as many as buckets",
        _SAME + " as in Delta Lake",
    ),
    FormatAspect("Parquet codec and level", "the scenario's", _SAME, _SAME),
    FormatAspect(
        "columns beside the data",
        "five meta columns, with the key as text",
        "none",
        "none",
    ),
    FormatAspect(
        "statistics",
        "in each footer: minimum, maximum and number of nulls of every column; and a Bloom filter of keys",
        "in each footer, and in the log for the first 32 columns; no Bloom filter",
        "in each footer, and in the manifests, of texts the first 16 characters; no Bloom filter",
    ),
    FormatAspect(
        "record keys",
        "stored, and every upsert keeps them unique",
        "none: the statement names the columns, and nothing keeps their values unique",
        "none: identifier fields could name the columns, but nothing keeps their values unique",
    ),
    FormatAspect(
        "commit",
        "an instant of the timeline",
        "an entry in the log, written once",
        "a metadata file that is renamed (Hadoop catalog); a catalog service would make the same",
    ),
    FormatAspect(
        "incremental reads",
        "the rows that changed between two instants",
        "none: the change data feed is off, since it writes changed rows a second time",
        "appended rows only; a view of changes compares whole files",
    ),
    FormatAspect(
        "table services", "none runs", "none: no OPTIMIZE, no VACUUM", "none: nothing expires"
    ),
    FormatAspect(
        "checksum files",
        "none",
        "Hadoop's local file system writes a .crc file for every file",
        _SAME + " as in Delta Lake",
    ),
    FormatAspect(
        "adaptive execution",
        "off",
        "on, Spark's default, but shuffles keep their tasks; optimised writes are off, their default",
        "on, but shuffles keep their tasks; the merge's tasks write, without a shuffle of their own",
    ),
    FormatAspect(
        "session",
        "shared by the arms that need no jars",
        "its own, since Delta Lake and Hudi both want Spark's catalog; only its own rounds warm its JVM",
        "its own; only its own rounds warm its JVM",
    ),
    FormatAspect(
        "check of the rows",
        "hudi-rs reads the table",
        "Spark reads the table with Delta Lake's reader: deletion vectors are not in the Parquet files",
        "Spark reads the table with Iceberg's reader",
    ),
)


def format_aspects_for(arms: Iterable[Arm]) -> tuple[dict[str, str], ...]:
    """The table as stored in a run; empty unless one of `arms` writes another format."""
    if not any(arm.control in FORMAT_CONTROLS for arm in arms):
        return ()
    return tuple(asdict(one) for one in FORMAT_ASPECTS)
