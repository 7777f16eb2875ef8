"""Tables and writes of tests, as the options that Apache Hudi is handed.

Every option is set, even to Hudi's current default, so that a comparison does not change by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serde_lab.peers.apache_hudi import MERGER_CLASSES, RecordType


@dataclass(frozen=True, slots=True)
class HudiTable:
    """The properties of a table, in terms that both writers share."""

    name: str
    record_key: tuple[str, ...]
    ordering: tuple[str, ...]
    partition: tuple[str, ...] = ()
    """For the key generator CUSTOM, each with its kind, as in `a:SIMPLE`."""
    table_type: Literal["COPY_ON_WRITE", "MERGE_ON_READ"] = "COPY_ON_WRITE"
    hive_style: bool = False
    url_encode: bool = False
    merge_mode: Literal["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"] = "EVENT_TIME_ORDERING"
    index: str = "BUCKET"
    buckets: int = 3
    bucket_fields: tuple[str, ...] = ()
    """The fields that the bucket hash uses; if empty, the record key's."""
    version: int = 9
    time: Mapping[str, str] = field(default_factory=dict)
    """The options of time-based folder names, which are also table properties."""

    @property
    def key_generator(self) -> str:
        """Hudi's key generator for these fields, as a class name."""
        if any(":" in name for name in self.partition):
            kind = "CustomKeyGenerator"
        elif self.time:
            kind = "TimestampBasedKeyGenerator"
        elif not self.partition:
            kind = "NonpartitionedKeyGenerator"
        elif len(self.partition) > 1 or len(self.record_key) > 1:
            kind = "ComplexKeyGenerator"
        else:
            kind = "SimpleKeyGenerator"
        return f"org.apache.hudi.keygen.{kind}"

    def options(self) -> dict[str, str]:
        """The table's own options, the same for every write to it."""
        options = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.datasource.write.recordkey.field": ",".join(self.record_key),
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition),
            "hoodie.datasource.write.keygenerator.class": self.key_generator,
            "hoodie.datasource.write.hive_style_partitioning": _flag(self.hive_style),
            "hoodie.datasource.write.partitionpath.urlencode": _flag(self.url_encode),
            "hoodie.write.record.merge.mode": self.merge_mode,
            "hoodie.write.table.version": str(self.version),
            "hoodie.index.type": self.index,
        }
        options |= self.time
        if self.ordering:
            options["hoodie.table.ordering.fields"] = ",".join(self.ordering)
        if self.index == "BUCKET":
            options |= {
                "hoodie.index.bucket.engine": "SIMPLE",
                "hoodie.bucket.index.num.buckets": str(self.buckets),
                "hoodie.bucket.index.hash.field": ",".join(self.bucket_fields or self.record_key),
            }
        return options


_CHEAPER: Mapping[str, str] = {
    # Hudi sizes the filter of every file for 60,000 keys, and writes it bit by bit
    "hoodie.index.bloom.num_entries": "1000",
    # a server for the views and the markers of every write
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}
"""Has no say in rows. `test_indexes_of_hudi.py` writes without it."""


@dataclass(frozen=True, slots=True)
class HudiWrite:
    """The settings of one write. `codec_level` below 0 keeps the codec's default.

    `compact_after` > 0 compacts inline after that many deltacommits; `retain_commits` > 0 cleans after
    each write; `archive_after` > 0 archives down to that many commits.
    """

    operation: str = "upsert"
    record_type: RecordType = "AVRO"
    log_block: Literal["avro", "parquet"] = "avro"
    metadata_table: bool = False
    parallelism: int = 2
    codec: str = "zstd"
    codec_level: int = -1
    combine_before_upsert: bool = True
    compact_after: int = 0
    retain_commits: int = 0
    archive_after: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, str]:
        """The options of this write."""
        parallelism = str(self.parallelism)
        options = {
            "hoodie.datasource.write.operation": self.operation,
            "hoodie.write.record.merge.custom.implementation.classes": MERGER_CLASSES[
                self.record_type
            ],
            "hoodie.logfile.data.block.format": self.log_block,
            "hoodie.metadata.enable": _flag(self.metadata_table),
            "hoodie.upsert.shuffle.parallelism": parallelism,
            "hoodie.insert.shuffle.parallelism": parallelism,
            "hoodie.bulkinsert.shuffle.parallelism": parallelism,
            "hoodie.delete.shuffle.parallelism": parallelism,
            "hoodie.parquet.compression.codec": self.codec,
            "hoodie.combine.before.upsert": _flag(self.combine_before_upsert),
            "hoodie.compact.inline": _flag(self.compact_after > 0),
            "hoodie.clean.automatic": _flag(self.retain_commits > 0),
            "hoodie.archive.automatic": _flag(self.archive_after > 0),
            # a mis-tagged key would be routed into the same small file and merged there by key, so a test
            # of the index would prove nothing
            "hoodie.parquet.small.file.limit": "0",
            **_CHEAPER,
        }
        if self.codec_level >= 0:
            options[f"parquet.compression.codec.{self.codec}.level"] = str(self.codec_level)
        if self.compact_after > 0:
            options["hoodie.compact.inline.max.delta.commits"] = str(self.compact_after)
        if self.retain_commits > 0:
            options["hoodie.clean.commits.retained"] = str(self.retain_commits)
        if self.archive_after > 0:
            options["hoodie.keep.min.commits"] = str(self.archive_after)
            options["hoodie.keep.max.commits"] = str(self.archive_after + 1)
        return options | dict(self.extra)


def write_options(table: HudiTable, write: HudiWrite) -> dict[str, str]:
    """All options for `df.write.format("hudi").options(...)`, with save mode append."""
    return table.options() | write.options()


def _flag(value: bool) -> str:
    return "true" if value else "false"
