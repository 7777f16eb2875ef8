"""Makes a WritePlan on the driver, before data moves, from the options and the stored table.

It picks the stored facts that a write needs: file groups, the index, small files, and the number of
shards.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.pipeline.plan import (
    IndexPlan,
    Operation,
    PartialUpdates,
    StoredFileGroup,
    WritePlan,
)
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import strategy
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileFormat
from serde_lab.table.files.file_sizing import SmallFile, small_files, table_record_bytes
from serde_lab.table.files.file_system_view import FileSlice, FileSystemView
from serde_lab.table.files.meta_columns import RECORD_KEY
from serde_lab.table.index.bucket_index import bucket_of_file_id
from serde_lab.table.index.hashing_metadata import load_hashing_metadata
from serde_lab.table.index.index_kind import CONSISTENT_HASHING
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant

COVERS_LOGS = frozenset({"INMEMORY", "FLINK_STATE"})
"""Indexes that cover the keys in logs, so inserts may join a file group through its log."""


def make_plan(
    table: HoodieTable,
    schema: RecordSchema,
    options: WriteOptions,
    instant: Instant,
    batch: int = 0,
    batches: int = 1,
    given: RecordSchema | None = None,
) -> WritePlan:
    """The plan for the workers: routing, options, and the existing file groups.

    `batch` numbers the plan among the `batches` of the instant; it sees what earlier batches wrote.
    `given`: the records' schema if they leave out table columns.
    """
    config = _with_asked_buckets(table.config, options)
    view = table.view(own_instant=instant.time if batch else None)
    slices = view.latest_file_slices()
    operation = options.operation
    by_bucket = options.topology == "bucket"
    bulk = operation is Operation.BULK_INSERT
    if bulk and by_bucket and slices and not config.is_keyless:
        raise OptionError(
            "bulk_insert makes new file groups, and the bucket index has one a bucket: the table"
            f" {config.name} has {len(slices)} already",
            hint="use upsert",
        )
    bucketed = by_bucket or config.bucket_engine == CONSISTENT_HASHING
    buckets = config.bucket_count if bucketed and config.bucket_count else _TARGETS
    targets = options.parallelism or buckets
    compression = BaseFileFormat(options.codec, options.codec_level)
    # an appending write does not read stored rows; but if the size of the data is unknown, the stored
    # size is the only estimate
    weighed = () if config.is_mor and options.source_bytes else slices
    shards = 1 if options.mini_batches is not None else _shards(options, targets, weighed)
    # these writes make no records, so no strategy takes part
    recordless = bulk or options.topology == "append"
    return WritePlan(
        operation=operation,
        schema=given or schema,
        keygen=key_generator(given or schema, options),
        strategy="arrow" if recordless else options.strategy,
        serde_options=SerdeOptions() if recordless else bound_options(options),
        storage=table.storage,
        table=config,
        instant=instant.time,
        targets=targets,
        inflight_path=table.timeline().path(instant),
        topology=options.topology,
        shards=shards,
        batch=batch,
        batches=batches,
        seed=secrets.randbits(63) if options.seed is None else options.seed,
        fresh_file_ids=bool(view.replaced_file_groups),
        base_file_format=compression,
        log_format=replace(options.log_format, compression=compression),
        groups={} if operation.replaces else _groups(slices, config, by_bucket),
        index=None
        if by_bucket or operation is Operation.UPSERT_PREPPED
        else _index(table, view, config, schema, options, shards),
        mini_batches=options.mini_batches,
        partial=None if given is None else _partial(schema, slices, view),
    )


def _partial(
    schema: RecordSchema, slices: Iterable[FileSlice], view: FileSystemView
) -> PartialUpdates:
    by_group = {(s.partition_path, s.file_id): s for s in slices}
    return PartialUpdates(schema.data, by_group, view.visibility)


def _with_asked_buckets(config: TableConfig, options: WriteOptions) -> TableConfig:
    """Add the bucket settings from the options, since Hudi never stores a bucket count."""
    asked = options.table
    if config.bucket_count is not None or asked.bucket_count is None:
        return config
    return replace(
        config,
        index_type=asked.index_type,
        bucket_count=asked.bucket_count,
        bucket_fields=asked.bucket_fields,
        bucket_engine=asked.bucket_engine,
        bucket_expressions=asked.bucket_expressions,
    )


def _groups(
    slices: Iterable[FileSlice], config: TableConfig, by_bucket: bool
) -> dict[tuple[str, int | str], StoredFileGroup]:
    if not by_bucket:
        return {(s.partition_path, s.file_id): _stored(s) for s in slices}
    if config.is_keyless:
        return {}
    return {(s.partition_path, bucket_of_file_id(s.file_id)): _stored(s) for s in slices}


def _index(
    table: HoodieTable,
    view: FileSystemView,
    config: TableConfig,
    schema: RecordSchema,
    options: WriteOptions,
    shards: int,
) -> IndexPlan:
    covers_logs = config.index_type in COVERS_LOGS
    operation, sizing = options.operation, options.sizing
    looked_into = view.latest_file_slices() if operation.looks_up else ()
    stored = table.data_schema()
    if config.bucket_engine == CONSISTENT_HASHING:
        nothing = ReadPlan(table.storage, config, schema.data, (), view.visibility)
        rings = load_hashing_metadata(table)
        return IndexPlan(is_global=False, covers_logs=True, stored=nothing, rings=rings)
    whole = replace(
        ReadPlan(
            table.storage,
            config,
            schema.data if stored is None else stored,
            looked_into,
            view.visibility,
        ),
        columns=(RECORD_KEY,),
    )
    small: dict[str, tuple[SmallFile, ...]] = {}
    # a record in a log would be merged with the stored one, which is wrong for an insert; and the base
    # files to rewrite must be known when the first shard arrives
    only_added = operation is Operation.INSERT and config.is_mor
    in_shards = config.is_mor and not covers_logs and shards > 1
    if not (operation.replaces or operation is Operation.DELETE or only_added or in_shards):
        found = {path: small_files(view, path, sizing, covers_logs) for path in view.partitions}
        small = {path: files for path, files in found.items() if files}
    return IndexPlan(
        is_global=config.index_is_global,
        covers_logs=covers_logs,
        stored=whole,
        sizing=sizing,
        record_bytes=table_record_bytes(table, sizing),
        small_files=small,
        updates_path=options.updates_partition_path,
    )


def key_generator(schema: RecordSchema, options: WriteOptions) -> KeyGenerator:
    """Generates keys and partition paths. Raises SchemaError for a column whose values have no text form."""
    table = options.table
    return KeyGenerator(
        schema,
        table.hive_style,
        table.url_encode,
        options.ordering_nulls,
        table.time_rule,
        table.partition_kinds,
    )


def bound_options(options: WriteOptions) -> SerdeOptions:
    """The strategy's options, with its default rows per frame if none were set."""
    serde = options.serde
    if serde.rows_per_frame >= 0:
        return serde
    return replace(serde, rows_per_frame=strategy(options.strategy).default_rows_per_frame)


def _stored(slice_: FileSlice) -> StoredFileGroup:
    return StoredFileGroup(
        slice_.file_id,
        None if slice_.base_file is None else slice_.base_file.path,
        slice_.base_instant,
        max((log.version for log in slice_.log_files), default=0),
    )


# tasks behind a hop if there is no number of buckets
_TARGETS = 8
# while its shard is merged and written in pieces, a row takes about this many times its bytes in a file;
# without shards it is written whole (measured: 23 for arrow, 19 for internal_row)
_EXPANSION = 12
_EXPANSION_WHOLE = 24
# for all shards together: the file being built, its keys, and the stored keys
_BUILT = 3
# the interpreter, its libraries, and the pieces being converted to Arrow
_WORKER_BYTES = 512 << 20


def _shards(options: WriteOptions, targets: int, slices: tuple[FileSlice, ...]) -> int:
    """The number of slices of a reduce task, so that one slice fits into a worker's memory."""
    stored = sum(s.base_file.size_bytes for s in slices if s.base_file is not None)
    per_task = (stored + options.source_bytes) // max(1, targets)
    budget = options.worker_memory_mb << 20
    # a minimum, so that the number of shards stays bounded
    least = budget // 4
    if per_task * _EXPANSION_WHOLE <= max(budget - _WORKER_BYTES, least):
        return 1
    left = max(budget - _WORKER_BYTES - per_task * _BUILT, least)
    return min(256, max(2, -(-per_task * _EXPANSION // left)))
