"""The options of a write, by Hudi's own names, read into one value.

Owns which options are known, their types and defaults; an option that is not supported is refused by
name, never ignored. Must not know how a write is carried out.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from serde_lab.errors import OptionError
from serde_lab.pipeline.plan import Operation
from serde_lab.serde.interface import SerdeOptions
from serde_lab.table.config import TableConfig

OWN_PREFIX = "serde_lab.strategy."

_TYPES = ("COPY_ON_WRITE",)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """One write, as asked for. `table` is what the table is, or shall become."""

    table: TableConfig
    operation: Operation = Operation.UPSERT
    strategy: str = "arrow"
    serde: SerdeOptions = field(default_factory=SerdeOptions)
    parallelism: int = 0
    """Reduce partitions; 0 means one a bucket."""
    codec: str = "zstd"
    codec_level: int | None = None
    worker_memory_mb: int = 1024
    max_records_per_batch: int = 10_000
    source_bytes: int = 0
    """About how many bytes the data has, if the caller knows; with the table's size it sets shards."""
    seed: int | None = None
    """Makes the ids of new file groups; None means random ones."""


_MEANING = {
    "hoodie.table.name": "the table's name; needed when the table is made",
    "hoodie.datasource.write.recordkey.field": "record key columns, by commas",
    "hoodie.datasource.write.partitionpath.field": "partition columns, by commas; empty for none",
    "hoodie.datasource.write.precombine.field": "the ordering column",
    "hoodie.table.ordering.fields": "the ordering column, by its newer name",
    "hoodie.datasource.write.operation": "upsert or bulk_insert",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.hive_style_partitioning": "true: folders are named field=value",
    "hoodie.datasource.write.partitionpath.urlencode": "true: folder names are escaped",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": "buckets of each partition",
    "hoodie.bucket.index.hash.field": "record key columns that the bucket hash takes",
    "hoodie.upsert.shuffle.parallelism": "reduce partitions",
    "hoodie.bulkinsert.shuffle.parallelism": "reduce partitions",
    "hoodie.parquet.compression.codec": "zstd, snappy, gzip, lz4 or uncompressed",
    "hoodie.metadata.enable": "false",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING",
    "hoodie.write.table.version": "9 or 6",
    "serde_lab.strategy": "pickle, avro, internal_row, arrow, or a plug-in",
    "serde_lab.execution": "row or batch",
    "serde_lab.rows_per_frame": "most records in a frame",
    "serde_lab.max_frame_bytes": "most bytes in a frame",
    "serde_lab.integrity": "none or crc32c",
    "serde_lab.codec_level": "compression level of the parquet codec",
    "serde_lab.worker_memory_mb": "memory of one Python worker, which sets the number of shards",
    "serde_lab.max_records_per_batch": "rows of an Arrow batch between Spark and Python",
    "serde_lab.seed": "makes the ids of new file groups",
}

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4"}
_CODECS |= {"uncompressed": "none", "none": "none"}


def known_options() -> Mapping[str, str]:
    """Every option that a write takes, with its meaning."""
    return _MEANING


def parse_options(options: Mapping[str, Any], stored: TableConfig | None = None) -> WriteOptions:
    """Read `options`; what they leave open comes from `stored`, the table that is there already.

    Raises OptionError naming the option, what was found and what was expected.
    """
    reader = _Reader(options)
    table = _table_config(reader, stored)
    names = reader.text("hoodie.datasource.write.operation", "upsert")
    try:
        operation = Operation(names)
    except ValueError as exc:
        known = ", ".join(Operation)
        raise OptionError(
            f"hoodie.datasource.write.operation is {names!r}, expected one of {known}"
        ) from exc
    reader.only("hoodie.index.type", ("BUCKET",))
    reader.only("hoodie.index.bucket.engine", ("SIMPLE",))
    reader.only("hoodie.metadata.enable", ("false",))
    codec = reader.text("hoodie.parquet.compression.codec", "zstd").lower()
    if codec not in _CODECS:
        raise OptionError(
            f"hoodie.parquet.compression.codec is {codec!r}, expected one of {', '.join(_CODECS)}"
        )
    level = reader.number("serde_lab.codec_level", -1)
    parallelism = {
        Operation.UPSERT: "hoodie.upsert.shuffle.parallelism",
        Operation.BULK_INSERT: "hoodie.bulkinsert.shuffle.parallelism",
    }[operation]
    seed = reader.number("serde_lab.seed", -1)
    return WriteOptions(
        table=table,
        operation=operation,
        strategy=reader.text("serde_lab.strategy", "arrow"),
        serde=_serde_options(reader, options),
        parallelism=reader.number(parallelism, 0),
        codec=_CODECS[codec],
        codec_level=None if level < 0 else level,
        worker_memory_mb=reader.number("serde_lab.worker_memory_mb", 1024, least=64),
        max_records_per_batch=reader.number("serde_lab.max_records_per_batch", 10_000, least=1),
        seed=None if seed < 0 else seed,
    )


def _serde_options(reader: _Reader, options: Mapping[str, Any]) -> SerdeOptions:
    own = {
        key.removeprefix(OWN_PREFIX): value
        for key, value in options.items()
        if key.startswith(OWN_PREFIX)
    }
    default = SerdeOptions()
    return SerdeOptions(
        execution=cast(Any, reader.text("serde_lab.execution", "")),  # bind checks it
        rows_per_frame=reader.number("serde_lab.rows_per_frame", -1),
        max_frame_bytes=reader.number("serde_lab.max_frame_bytes", default.max_frame_bytes),
        integrity=cast(Any, reader.text("serde_lab.integrity", "none")),
        own=own,
    )


def _table_config(reader: _Reader, stored: TableConfig | None) -> TableConfig:
    keys = reader.names("hoodie.datasource.write.recordkey.field")
    partition = reader.names("hoodie.datasource.write.partitionpath.field")
    older = "hoodie.datasource.write.precombine.field"
    ordering = reader.names("hoodie.table.ordering.fields") or reader.names(older)
    mode = reader.choice(
        "hoodie.write.record.merge.mode", ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
    )
    kind = reader.choice("hoodie.datasource.write.table.type", _TYPES)
    version = reader.number("hoodie.write.table.version", 0)
    buckets = reader.number("hoodie.bucket.index.num.buckets", 0)
    hash_fields = reader.names("hoodie.bucket.index.hash.field")
    flags = {
        "hive_style": reader.flag("hoodie.datasource.write.hive_style_partitioning"),
        "url_encode": reader.flag("hoodie.datasource.write.partitionpath.urlencode"),
    }
    name = reader.text("hoodie.table.name", "")
    stated: dict[str, Any] = {
        "name": name or None,
        "record_key_fields": keys or None,
        "table_type": kind,
        "version": version or None,
        "partition_fields": partition or None,
        "ordering_fields": ordering or None,
        "merge_mode": mode,
        "bucket_count": buckets or None,
        "bucket_fields": hash_fields or None,
        **flags,
    }
    given = {key: value for key, value in stated.items() if value is not None}
    if stored is None:
        for key, option in (
            ("name", "hoodie.table.name"),
            ("record_key_fields", "hoodie.datasource.write.recordkey.field"),
        ):
            if key not in given:
                raise OptionError(f"{option} is missing; the table is made by this write")
        given.setdefault("bucket_count", 8)
        config = TableConfig(**given)
        config.check_creatable()
        return config
    for key, value in given.items():
        have = getattr(stored, key)
        if have != value and not (key == "bucket_count" and have is None):
            raise OptionError(
                f"the table at hand has {key.replace('_', ' ')} {have!r}, and this write says {value!r}"
            )
    if stored.bucket_count is None:
        if "bucket_count" not in given:
            raise OptionError(
                "hoodie.bucket.index.num.buckets is missing; the table does not state its buckets"
            )
        return replace(stored, bucket_count=given["bucket_count"])
    return stored


class _Reader:
    """Reads options one by one, in sentences."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        for key in options:
            if key not in _MEANING and not key.startswith(OWN_PREFIX):
                close = difflib.get_close_matches(key, _MEANING, 1)
                raise OptionError(
                    f"option {key!r} is not supported",
                    hint=f"did you mean {close[0]}?" if close else None,
                )
        self.options = options

    def text(self, key: str, default: str) -> str:
        return str(self.options.get(key, default)).strip()

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(key, "").split(",") if part.strip())

    def number(self, key: str, default: int, least: int = 0) -> int:
        if key not in self.options:
            return default
        found = str(self.options[key]).strip()
        if not found.isdecimal() or int(found) < least:
            raise OptionError(f"{key} is {found!r}, expected an integer from {least}")
        return int(found)

    def flag(self, key: str) -> bool | None:
        found = self.choice(key, ("true", "false"), lower=True)
        return None if found is None else found == "true"

    def choice(self, key: str, known: tuple[str, ...], lower: bool = False) -> str | None:
        if key not in self.options:
            return None
        found = self.text(key, "")
        found = found.lower() if lower else found.upper()
        if found not in known:
            raise OptionError(f"{key} is {found!r}, expected {' or '.join(known)}")
        return found

    def only(self, key: str, known: tuple[str, ...]) -> None:
        self.choice(key, known, lower=known[0].islower())
