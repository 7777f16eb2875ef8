"""Parses the options of a write, by Hudi's own names, into one WriteOptions value.

It defines which options a write accepts, with types and defaults. An unsupported option is refused by
name, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from serde_lab.errors import OptionError
from serde_lab.pipeline.options import service as service_options
from serde_lab.pipeline.options import table as table_options
from serde_lab.pipeline.options import topology as topology_options
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.pipeline.options.service import NO_SERVICES, Concurrency, ServiceOptions
from serde_lab.pipeline.options.topology import MiniBatches
from serde_lab.records.keys import OrderingNulls
from serde_lab.records.operation import Operation
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_sizing import FileSizing
from serde_lab.table.files.log_file import BlockFormat, LogFormat
from serde_lab.table.files.parquet import BaseFileFormat

OWN_PREFIX = "serde_lab.strategy."
PARTIAL_UPDATES = "serde_lab.partial_updates"

SourceReader = Literal["auto", "spark"]
Shuffle = Literal["dataframe", "rdd"]
_FORMAT = BaseFileFormat()


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
    file_format: BaseFileFormat = field(default_factory=BaseFileFormat)
    """How base files, and Parquet blocks of log files, are written."""
    log_format: LogFormat = field(default_factory=LogFormat)
    """Blocks and sizes of log files; Parquet blocks are compressed like base files."""
    sizing: FileSizing = field(default_factory=FileSizing)
    """Target sizes of base files, where no bucket decides where inserts go."""
    updates_partition_path: bool = True
    """Under a global index: whether a record moves to another partition when its values say so."""
    mini_batches: MiniBatches | None = None
    combines: bool = True
    """Whether several rows of a key become one, if the operation merges; otherwise they are refused."""
    partitions_to_delete: tuple[str, ...] = ()
    services: ServiceOptions = NO_SERVICES
    concurrency: Concurrency | None = None
    """None: no other writer may write meanwhile."""
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
    shuffle: Shuffle = "dataframe"
    """The form in which frames cross Spark's shuffle: a binary column, or the bytes of an RDD."""
    source_bytes: int = 0
    """Approximate bytes of the data, if known; with the table's size they set the number of shards."""
    seed: int | None = None
    """Seeds the ids of new file groups; None means random ones."""
    assigner_state: bool = False
    """Assigners keep what they know of stored keys for the next write."""

    @property
    def conflict_retries(self) -> int:
        """How often the write is tried again if it conflicts with another one."""
        return 0 if self.concurrency is None else self.concurrency.retries


_FILL = "hoodie.write.set.null.for.missing.columns"
_RECONCILE = "hoodie.datasource.write.reconcile.schema"
_DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
_COMBINE = "hoodie.combine.before.insert"
_DICTIONARIES = "hoodie.parquet.dictionary.enabled"
_PAGE_BYTES = "hoodie.parquet.page.size"
_ROW_GROUP_BYTES = "hoodie.parquet.block.size"
_BLOCKS = "hoodie.logfile.data.block.format"
_BLOCK_BYTES = "hoodie.logfile.data.block.max.size"
_LOG_BYTES = "hoodie.logfile.max.size"
_LEVEL = "serde_lab.codec_level"

_TASKS = "tasks behind a shuffle; 0 means one for each bucket, or 8 without a number of buckets (0)"

_OWN = {
    "hoodie.datasource.write.operation": (
        "upsert, upsert_prepped, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table"
        " or delete_partition (upsert)"
    ),
    "hoodie.upsert.shuffle.parallelism": _TASKS,
    "hoodie.delete.shuffle.parallelism": _TASKS,
    "hoodie.bulkinsert.shuffle.parallelism": _TASKS,
    "hoodie.insert.shuffle.parallelism": _TASKS,
    _COMBINE: (
        "true: an overwrite keeps one row per key, and otherwise refuses several; inserts keep all rows"
        " (false)"
    ),
    _FILL: "true: table columns that are missing from the data become null in the new rows (false)",
    _RECONCILE: "true: the same, but only if the data has no new columns (false)",
    _DROP: "false: a table column that is missing from the data stays in the table (false)",
    "hoodie.parquet.compression.codec": "zstd, snappy, gzip, lz4 or uncompressed (zstd)",
    _DICTIONARIES: "false: no column of a Parquet file has a dictionary (true)",
    _PAGE_BYTES: "bytes of a page of a Parquet file, before compression (1048576)",
    _ROW_GROUP_BYTES: "bytes of a row group of a base file, before compression (67108864)",
    _BLOCKS: "format of data blocks in log files: avro or parquet (avro)",
    _BLOCK_BYTES: "most bytes of rows in one data block, measured in memory (67108864)",
    _LOG_BYTES: "a log file of this many bytes is not appended to (1073741824)",
    "serde_lab.strategy": "pickle, pickle_columns, avro, internal_row, arrow, or a plug-in (arrow)",
    "serde_lab.execution": "row or batch (the strategy's)",
    "serde_lab.rows_per_frame": "most records in a frame; 0: all of a batch for one target (the strategy's)",
    "serde_lab.max_frame_bytes": "most bytes in a frame of more than one record (8388608)",
    "serde_lab.integrity": "none or crc32c (none)",
    _LEVEL: "compression level of the parquet codec: zstd 1 to 22 (1), gzip 1 to 9 (6)",
    "serde_lab.worker_memory_mb": "megabytes of a Python worker; they determine the number of shards (1024)",
    "serde_lab.max_records_per_batch": "rows of an Arrow batch between Spark and Python (10000)",
    "serde_lab.source_reader": "auto: tasks read the files of a plain Parquet scan; spark: Spark does (auto)",
    "serde_lab.shuffle": (
        "dataframe: frames cross Spark's shuffle as a column; rdd: as the bytes of an RDD, if tasks read the"
        " source's files themselves and no hop sorts (dataframe)"
    ),
    PARTIAL_UPDATES: "true: table columns that are missing from the data keep their stored values (false)",
    "serde_lab.ordering_nulls": (
        "refuse, or lowest: null ordering values lose to others, and Apache Hudi cannot read them (refuse)"
    ),
    "serde_lab.drop_metadata_table": "true: remove a metadata table that Apache Hudi built (false)",
    "serde_lab.seed": "seeds the ids of new file groups (random ids)",
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
    combines = _combines(reader, operation)
    topology = topology_options.topology_name(reader, operation, table)
    concurrency = service_options.concurrency_options(reader, table)
    keeps_state = topology_options.assigner_state(reader, topology, operation, table)
    if concurrency is not None and keeps_state:
        raise OptionError(
            f"serde_lab.assigner_state is true, and {service_options.CONCURRENCY_MODE} lets other writers add"
            " keys that the state does not know"
        )
    codec = reader.text("hoodie.parquet.compression.codec", "zstd").lower()
    if codec not in _CODECS:
        raise OptionError(
            f"hoodie.parquet.compression.codec is {codec!r}, expected one of {', '.join(_CODECS)}"
        )
    return WriteOptions(
        table=table,
        operation=operation,
        combines=combines,
        strategy=reader.text("serde_lab.strategy", "arrow"),
        serde=_serde_options(reader, options),
        topology=topology,
        parallelism=reader.number(_PARALLELISM[operation], 0),
        sizing=topology_options.file_sizing(reader),
        updates_partition_path=topology_options.updates_partition_path(reader, table),
        mini_batches=topology_options.mini_batches(reader, topology),
        partitions_to_delete=topology_options.partitions_to_delete(reader, operation),
        file_format=BaseFileFormat(
            _CODECS[codec],
            _level(reader, codec),
            reader.flag(_DICTIONARIES) is not False,
            reader.number(_PAGE_BYTES, _FORMAT.page_bytes, least=1),
            reader.number(_ROW_GROUP_BYTES, _FORMAT.row_group_bytes, least=1),
        ),
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
        concurrency=concurrency,
        worker_memory_mb=reader.number("serde_lab.worker_memory_mb", 1024, least=64),
        source_reader=cast(
            SourceReader,
            reader.choice("serde_lab.source_reader", ("auto", "spark"), lower=True) or "auto",
        ),
        shuffle=cast(
            Shuffle,
            reader.choice("serde_lab.shuffle", ("dataframe", "rdd"), lower=True) or "dataframe",
        ),
        max_records_per_batch=reader.number("serde_lab.max_records_per_batch", 10_000, least=1),
        seed=reader.any_number("serde_lab.seed"),
        assigner_state=keeps_state,
    )


def check_records(schema: RecordSchema, options: WriteOptions) -> None:
    """Raises OptionError, or whatever a merger raises, for rows that the write cannot merge."""
    options.table.merge_rules.check_payload()
    if not options.operation.merges:
        return
    table = options.table
    if options.mini_batches is not None and not options.combines:
        raise OptionError(
            f"{topology_options.TOPOLOGY} is step3, which writes {options.operation} batch by batch and would"
            " not see rows of one key in two batches",
            hint=f"set {_COMBINE}=true",
        )
    # load the merger now: one that is missing or does not fit fails before anything is written
    rules = replace(table.merge_rules, records=StrategyRecords(options.strategy))
    makes = rules.combiner(schema) is not None
    if makes and table.index_is_global and schema.partition:
        raise OptionError(
            f"the table {table.name} has the index {table.index_type}, with which a record may move to"
            " another partition, and combines several rows into one; the lab does not support both together"
        )
    marks = table.merge_rules.markers.used_in(schema.data.names)
    if options.mini_batches is not None and (makes or marks):
        why = "the table combines rows" if makes else f"{marks[0]} marks deletes"
        raise OptionError(
            f"{topology_options.TOPOLOGY} is step3, which merges a key's records batch by batch, but {why}:"
            " the result would depend on where a batch ends"
        )


def _partial_updates(reader: OptionReader, operation: Operation, table: TableConfig) -> bool:
    if not reader.flag(PARTIAL_UPDATES):
        return False
    problem = _partial_problem(operation, table)
    if problem:
        raise OptionError(f"{PARTIAL_UPDATES} is true, and {problem}")
    return True


def _partial_problem(operation: Operation, table: TableConfig) -> str:
    """Why the operation or the table cannot have partial log blocks; "" if they can."""
    if operation is not Operation.UPSERT:
        return f"the operation is {operation}, which updates nothing"
    if not table.is_mor:
        return f"the table {table.name} is {table.table_type}, which has no logs to hold them"
    if table.version < 8:
        return f"the table {table.name} is of version {table.version}, whose readers know none"
    if table.index_type not in ("", "BUCKET"):
        return (
            f"the table {table.name} has the index {table.index_type}, under which inserts may join a"
            " base file, and so would rows that leave columns out"
        )
    if table.partial_update_mode:
        return f"the table {table.name} fills gaps already, by {table.partial_update_mode}"
    if table.merge_mode == "CUSTOM" or table.merger_classes:
        return f"the table {table.name} has a merger of its own here, which wants whole rows"
    return ""


def _check_keys(operation: Operation, table: TableConfig) -> None:
    needs_keys = operation.merges or operation is Operation.DELETE
    if needs_keys and table.is_keyless:
        raise OptionError(
            f"hoodie.datasource.write.operation is {operation}, which needs record keys, but the table"
            f" {table.name} has none",
            hint="use insert",
        )


def _combines(reader: OptionReader, operation: Operation) -> bool:
    """Whether rows of one key become one; an overwrite does so only where it is asked to, as Hudi's."""
    asked = reader.flag(_COMBINE) or False
    if asked and operation in (Operation.INSERT, Operation.BULK_INSERT):
        raise OptionError(
            f"{_COMBINE} is true, but the lab's {operation} keeps all rows",
            hint="use upsert, or drop the doubled rows first",
        )
    return asked or not operation.overwrites


_LEVELS = {"zstd": (1, 22), "gzip": (1, 9)}


def _level(reader: OptionReader, codec: str) -> int | None:
    """None for the codec's default. Other numbers are refused: zstd takes 0 for 3, and 99 for 22."""
    if not reader.given(_LEVEL):
        return None
    if codec not in _LEVELS:
        raise OptionError(
            f"{_LEVEL} is {reader.text(_LEVEL, '')}, but the codec {codec} has no levels"
        )
    least, most = _LEVELS[codec]
    found = reader.number(_LEVEL, least, least)
    if found > most:
        raise OptionError(f"{_LEVEL} is {found}, expected {least} to {most} for {codec}")
    return found


def _log_format(reader: OptionReader, table: TableConfig) -> LogFormat:
    default = LogFormat()
    asked = reader.given(_BLOCKS, _BLOCK_BYTES, _LOG_BYTES)
    if asked and not table.is_mor:
        raise OptionError(
            f"{asked} is for MERGE_ON_READ, but the table {table.name} is {table.table_type}: it has"
            " no log files"
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
