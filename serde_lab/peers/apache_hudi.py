"""Sets up Spark for Apache Hudi, and defines the arms in which it writes tables.

`lab/jars` finds or fetches its bundle. There is an arm for each record type, and two faster ones. Each is the
options that it adds to those of `scenario.hudi_options`, which the lab gets too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from serde_lab.errors import LabError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SESSION_CONF: Mapping[str, str] = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
"""What a session needs besides the jar. All arms of a run share it, so that ratios stay fair."""


@contextmanager
def dates_of_any_year(spark: SparkSession) -> Iterator[None]:
    """While open, Spark writes dates before 1582, which it refuses unless the calendar is set."""
    calendar = "spark.sql.parquet.datetimeRebaseModeInWrite"
    before = spark.conf.get(calendar) or "EXCEPTION"
    spark.conf.set(calendar, "CORRECTED")
    try:
        yield
    finally:
        spark.conf.set(calendar, before)


@contextmanager
def java_errors(what: str) -> Iterator[None]:
    """Turn errors of Spark and Java into a LabError that says `what`, and the innermost cause."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as exc:
        raise LabError(f"{what}: {root_cause(str(exc))}") from exc


def root_cause(message: str) -> str:
    """The innermost cause of a Java stack trace, on one line; its first line if no cause is named."""
    causes = [
        line.partition("Caused by: ")[2] for line in message.splitlines() if "Caused by: " in line
    ]
    return (causes or message.strip().splitlines() or ["no cause given"])[-1 if causes else 0]


RecordType = Literal["AVRO", "SPARK"]

MERGER_CLASSES: Mapping[RecordType, str] = {
    "AVRO": "org.apache.hudi.common.model.HoodieAvroRecordMerger",
    "SPARK": "org.apache.hudi.DefaultSparkRecordMerger",
}
"""The merger of each record type; Hudi chooses the record type by it."""


@dataclass(frozen=True, slots=True)
class HudiArm:
    """One way to set Apache Hudi up; `tuned` are options that an advocate of Hudi would add.

    `combines_always`: whether it looks for duplicates even in a batch that has none, by an exchange of its
    own, as is Hudi's default.
    """

    name: str
    about: str
    record_type: RecordType
    tuned: Mapping[str, str] = field(default_factory=dict)
    combines_always: bool = True

    def own_options(self, unique: bool) -> dict[str, str]:
        """The options that only Apache Hudi gets; `unique`: no key occurs twice in the batch."""
        combine = self.combines_always or not unique
        options = {
            "hoodie.write.record.merge.custom.implementation.classes": MERGER_CLASSES[
                self.record_type
            ],
            "hoodie.combine.before.upsert": "true" if combine else "false",
        }
        return options | {k: v for k, v in self.tuned.items() if k.startswith("hoodie.")}

    @property
    def session_settings(self) -> dict[str, str]:
        """The settings that are fixed when a Spark session starts."""
        return {k: v for k, v in self.tuned.items() if not k.startswith("hoodie.")}


_TUNED_FILE = Path(__file__).with_name("tuned.toml")
TUNED: Mapping[str, str] = tomllib.loads(_TUNED_FILE.read_text(encoding="utf-8"))["settings"]
"""What the tuned arm adds to the SPARK record type and `hoodie.combine.before.upsert=false`; the scenario
`tune_peer` searches for better settings."""

TUNED_BEFORE: Mapping[str, str] = {
    "hoodie.parquet.bloom.filter.enabled": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.embed.timeline.server": "false",
}
"""The settings that were the tuned arm's before any search, so that progress can be told.

Tried on lineitem at scale factor 0.03, merge-on-read, first upsert and then the same keys again, in
random order, on a busy machine. Figures are executor CPU seconds of a warm round, not wall times;
differences below a fifth mean nothing. The SPARK record type without changes: 4.6 and 3.6.

- combine.before.upsert=false: 2.9 and 3.3, half of the shuffled records. Kept, if no key occurs twice.
- and no bloom filter: 2.9 and 2.9, base files a third smaller (6.5 instead of 9.9 MB). Kept.
- and direct markers without a timeline server: 2.9 and 3.2, no significant difference; kept, since it
  saves the driver a server.
- and no dictionaries in Parquet: 2.1 and 2.4, but 6.1 and 4.1 in the cold round before; base and log
  files 9 % larger. Not kept; worth another trial on a quiet machine.
- and Avro log blocks: 2.8 and 2.4, but logs six times the size (44.6 instead of 7.1 MB): not an equal
  table. Not kept.
- and writing by a queue (hoodie.write.executor.type=BOUNDED_IN_MEMORY): no gain in wall time; its CPU is
  spent in threads that no task metric counts. Not kept.
- and both storage levels (hoodie.write.status.storage.level, hoodie.write.tagged.record.storage.level)
  MEMORY_ONLY: an eighth of the bytes on disk, because the table is wrong: it repeats one row for each input
  file, since records that are kept as objects share one row. MEMORY_ONLY_SER is right.
"""

ARMS: Mapping[str, HudiArm] = {
    arm.name: arm
    for arm in (
        HudiArm("hudi_avro", "Apache Hudi with its AVRO record type", "AVRO"),
        HudiArm("hudi_spark", "Apache Hudi with its SPARK record type", "SPARK"),
        HudiArm(
            "hudi_one_exchange",
            "Apache Hudi with its SPARK record type, without the exchange that combines duplicates",
            "SPARK",
            combines_always=False,
        ),
        HudiArm(
            "hudi_spark_tuned",
            "Apache Hudi with its SPARK record type and the best settings that were found by hand",
            "SPARK",
            TUNED,
            combines_always=False,
        ),
        HudiArm(
            "hudi_spark_tuned_before",
            "Apache Hudi with its SPARK record type, as it was set before any search",
            "SPARK",
            TUNED_BEFORE,
            combines_always=False,
        ),
    )
}
"""The arms by name, as used for a scenario's `peer`."""
