"""Parses the options of a write, by Hudi's own names, into one WriteOptions value.

It defines which options a write accepts, with types and defaults. An unsupported option is refused by
name, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from serde_lab.errors import OptionError
from serde_lab.pipeline.handles.partial_records import PARTIAL_UPDATES, check_partial_updates
from serde_lab.pipeline.options import service as service_options
from serde_lab.pipeline.options import table as table_options
from serde_lab.pipeline.options import topology as topology_options
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.pipeline.options.service import NO_SERVICES, ServiceOptions
from serde_lab.pipeline.plan import MiniBatches, Operation
from serde_lab.records.keys import OrderingNulls
from serde_lab.serde.interface import SerdeOptions
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_sizing import FileSizing
from serde_lab.table.files.log_file import BlockFormat, LogFormat

OWN_PREFIX = "serde_lab.strategy."

SourceReader = Literal["auto", "spark"]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write. `table` describes the table as it is, or as the write creates it."""

    table: TableConfig
    operation: Operation = Operation.UPSERT
    strategy: str = "arrow"
    serde: SerdeOptions = field(default_factory=SerdeOptions)
    topology: str = "bucket"
    """The chain of stages, by its name in `topologies.py`."""
    parallelism: int = 0
    """Tasks behind a hop; 0 means one per bucket, or 8 without buckets."""
    codec: str = "zstd"
    codec_level: int | None = None
    log_format: LogFormat = field(default_factory=LogFormat)
    """Blocks and sizes of log files; Parquet blocks are compressed like base files."""
    sizing: FileSizing = field(default_factory=FileSizing)
    """Target sizes of base files, where no bucket decides where inserts go."""
    updates_partition_path: bool = True
    """Under a global index: whether a record moves to another partition when its values say so."""
    mini_batches: MiniBatches | None = None
    partitions_to_delete: tuple[str, ...] = ()
    services: ServiceOptions = NO_SERVICES
    ordering_nulls: OrderingNulls = "refuse"
    fill_missing: bool = False
    """Table columns missing from the data become null; otherwise such data is refused."""
    reconcile: bool = False
    """The same, but only for data that brings no new columns."""
    partial_updates: bool = False
    """Table columns missing from the data keep their stored values."""
    drop_metadata_table: bool = False
    """Remove a metadata table that Hudi built; otherwise the write is refused."""
    worker_memory_mb: int = 1024
    max_records_per_batch: int = 10_000
    source_reader: SourceReader = "auto"
    source_bytes: int = 0
    """Approximate bytes of the data, if known; with the table's size they set the number of shards."""
    seed: int | None = None
    """Seeds the ids of new file groups; None means random ones."""


_FILL = "hoodie.write.set.null.for.missing.columns"
_RECONCILE = "hoodie.datasource.write.reconcile.schema"
_DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
_BLOCKS = "hoodie.logfile.data.block.format"
_BLOCK_BYTES = "hoodie.logfile.data.block.max.size"
_LOG_BYTES = "hoodie.logfile.max.size"

_OWN = {
    "hoodie.datasource.write.operation": (
        "upsert, upsert_prepped, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table"
        " or delete_partition"
    ),
    "hoodie.upsert.shuffle.parallelism": "reduce partitions",
    "hoodie.delete.shuffle.parallelism": "reduce partitions",
    "hoodie.bulkinsert.shuffle.parallelism": "reduce partitions",
    "hoodie.insert.shuffle.parallelism": "reduce partitions",
    _FILL: "true: columns of the table that the data leaves out are null in its rows",
    _RECONCILE: "true: the same, for data that brings no columns of its own besides",
    _DROP: "false: a column that the data leaves out stays in the table",
    "hoodie.parquet.compression.codec": "zstd, snappy, gzip, lz4 or uncompressed",
    _BLOCKS: "avro or parquet: what the data blocks of log files hold",
    _BLOCK_BYTES: "most bytes of rows, in memory, in one data block",
    _LOG_BYTES: "a log file that has so many bytes gets no further block",
    "serde_lab.strategy": "pickle, avro, internal_row, arrow, or a plug-in",
    "serde_lab.execution": "row or batch",
    "serde_lab.rows_per_frame": "most records in a frame",
    "serde_lab.max_frame_bytes": "most bytes in a frame",
    "serde_lab.integrity": "none or crc32c",
    "serde_lab.codec_level": "compression level of the parquet codec",
    "serde_lab.worker_memory_mb": "memory of one Python worker, which sets the number of shards",
    "serde_lab.max_records_per_batch": "rows of an Arrow batch between Spark and Python",
    "serde_lab.source_reader": "auto: tasks read what is a plain scan of parquet files; spark: never",
    PARTIAL_UPDATES: "true: columns of the table that the data leaves out keep what is stored",
    "serde_lab.ordering_nulls": "refuse, or lowest: nulls lose to any value (Apache Hudi cannot read them)",
    "serde_lab.drop_metadata_table": "true: remove a metadata table that Apache Hudi built, then write",
    "serde_lab.seed": "makes the ids of new file groups",
}
_MEANING = {
    **table_options.MEANING,
    **_OWN,
    **topology_options.MEANING,
    **service_options.MEANING,
}

_PARALLELISM = {
    Operation.UPSERT: "hoodie.upsert.shuffle.parallelism",
    Operation.UPSERT_PREPPED: "hoodie.upsert.shuffle.parallelism",
    Operation.DELETE: "hoodie.delete.shuffle.parallelism",
    Operation.DELETE_PARTITION: "hoodie.delete.shuffle.parallelism",
    Operation.BULK_INSERT: "hoodie.bulkinsert.shuffle.parallelism",
    Operation.INSERT: "hoodie.insert.shuffle.parallelism",
    Operation.INSERT_OVERWRITE: "hoodie.insert.shuffle.parallelism",
    Operation.INSERT_OVERWRITE_TABLE: "hoodie.insert.shuffle.parallelism",
}

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4"}
_CODECS |= {"uncompressed": "none", "none": "none"}


def known_options() -> Mapping[str, str]:
    """Every option that a write accepts, with its meaning."""
    return _MEANING


def parse_options(options: Mapping[str, Any], stored: TableConfig | None = None) -> WriteOptions:
    """Parse `options`; `stored`, the existing table, supplies what they do not set.

    Raises OptionError naming the option, what was found and what was expected.
    """
    reader = OptionReader(options, _MEANING, OWN_PREFIX)
    reader.only(_DROP, ("false",))
    table = table_options.table_config(reader, stored)
    name = reader.text("hoodie.datasource.write.operation", "upsert")
    try:
        operation = Operation(name)
    except ValueError as exc:
        known = ", ".join(Operation)
        raise OptionError(
            f"hoodie.datasource.write.operation is {name!r}, expected one of {known}"
        ) from exc
    _check_keys(operation, table)
    topology = topology_options.topology_name(reader, operation, table)
    codec = reader.text("hoodie.parquet.compression.codec", "zstd").lower()
    if codec not in _CODECS:
        raise OptionError(
            f"hoodie.parquet.compression.codec is {codec!r}, expected one of {', '.join(_CODECS)}"
        )
    level = reader.number("serde_lab.codec_level", -1)
    seed = reader.number("serde_lab.seed", -1)
    return WriteOptions(
        table=table,
        operation=operation,
        strategy=reader.text("serde_lab.strategy", "arrow"),
        serde=_serde_options(reader, options),
        topology=topology,
        parallelism=reader.number(_PARALLELISM[operation], 0),
        sizing=topology_options.file_sizing(reader),
        updates_partition_path=topology_options.updates_partition_path(reader, table),
        mini_batches=topology_options.mini_batches(reader, topology),
        partitions_to_delete=topology_options.partitions_to_delete(reader, operation),
        codec=_CODECS[codec],
        codec_level=None if level < 0 else level,
        log_format=_log_format(reader, table),
        ordering_nulls=cast(
            OrderingNulls,
            reader.choice("serde_lab.ordering_nulls", ("refuse", "lowest"), lower=True) or "refuse",
        ),
        fill_missing=reader.flag(_FILL) or False,
        reconcile=reader.flag(_RECONCILE) or False,
        partial_updates=_partial_updates(reader, operation, table),
        drop_metadata_table=reader.flag("serde_lab.drop_metadata_table") or False,
        services=service_options.service_options(reader, table),
        worker_memory_mb=reader.number("serde_lab.worker_memory_mb", 1024, least=64),
        source_reader=cast(
            SourceReader,
            reader.choice("serde_lab.source_reader", ("auto", "spark"), lower=True) or "auto",
        ),
        max_records_per_batch=reader.number("serde_lab.max_records_per_batch", 10_000, least=1),
        seed=None if seed < 0 else seed,
    )


def _partial_updates(reader: OptionReader, operation: Operation, table: TableConfig) -> bool:
    if not reader.flag(PARTIAL_UPDATES):
        return False
    check_partial_updates(operation, table)
    return True


def _check_keys(operation: Operation, table: TableConfig) -> None:
    told_by_keys = operation.merges or operation is Operation.DELETE
    if told_by_keys and table.is_keyless:
        raise OptionError(
            f"hoodie.datasource.write.operation is {operation}, which goes by keys, and the table"
            f" {table.name} has no record key",
            hint="insert adds rows to it",
        )


def _log_format(reader: OptionReader, table: TableConfig) -> LogFormat:
    default = LogFormat()
    asked = reader.given(_BLOCKS, _BLOCK_BYTES, _LOG_BYTES)
    if asked and not table.is_mor:
        raise OptionError(
            f"{asked} is for MERGE_ON_READ, and the table {table.name} is {table.table_type}: it has"
            " no logs"
        )
    blocks = reader.choice(_BLOCKS, ("avro", "parquet"), lower=True)
    return LogFormat(
        blocks=default.blocks if blocks is None else cast(BlockFormat, blocks),
        block_bytes=reader.number(_BLOCK_BYTES, default.block_bytes, least=1),
        file_bytes=reader.number(_LOG_BYTES, default.file_bytes, least=1),
    )


def _serde_options(reader: OptionReader, options: Mapping[str, Any]) -> SerdeOptions:
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
