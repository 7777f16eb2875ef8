"""The plan of one write: frozen values that the driver decides before data moves and sends to the workers.

`make_plan` makes it from the options and the stored facts that a write needs: file groups, the index, small
files, and the number of shards.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from serde_lab.errors import OptionError
from serde_lab.merging.combiner import Combiner
from serde_lab.merging.rules import MergeRules
from serde_lab.merging.survivors import MergeMode
from serde_lab.pipeline.options.table import INDEX_FIELDS
from serde_lab.pipeline.options.topology import MiniBatches
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.operation import Operation
from serde_lab.records.schema import FILE_NAME, OPERATION, RECORD_KEY, RecordSchema
from serde_lab.serde.interface import BoundSerde, SerdeOptions
from serde_lab.serde.registry import StrategyRecords, strategy
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_sizing import FileSizing, SmallFile, small_files, table_record_bytes
from serde_lab.table.files.file_system_view import FileSlice, FileSystemView
from serde_lab.table.files.log_file import LogFormat
from serde_lab.table.files.parquet import BaseFileFormat
from serde_lab.table.index.assigner_state import StateNames
from serde_lab.table.index.bloom_lookup import base_file_seen
from serde_lab.table.index.bucket_index import slices_by_bucket
from serde_lab.table.index.consistent_hashing import HashingMetadata, load_hashing_metadata
from serde_lab.table.index.index_kind import CONSISTENT_HASHING, COVERS_LOGS
from serde_lab.table.index.key_places import check_keys_of_others, check_rings
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant


@dataclass(frozen=True, slots=True)
class StoredFileGroup:
    """The latest slice of a file group that has data.

    `base_path` is relative to the table; None if another writer began the group with a log. `log_version` and
    `newest_log` are those of the slice's newest log file, 0 and "" if it has none.
    """

    file_id: str
    base_path: str | None
    base_instant: str
    log_version: int = 0
    newest_log: str = ""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """How records find their file groups if no key hash determines them.

    `stored` reads the keys that the index covers, slice by slice. `small_files` maps partition paths to file
    groups that inserts may join. `sizing` and `record_bytes` determine when a new group is full. `rings`, for
    consistent hashing, maps partition paths to their hashing metadata. `updates_path`: under a global index,
    whether a record moves to another partition when its values say so. `states`: where assigners find and
    leave their states; None if they have none.
    """

    is_global: bool
    covers_logs: bool
    stored: ReadPlan
    sizing: FileSizing = field(default_factory=FileSizing)
    record_bytes: int = 1024
    small_files: Mapping[str, tuple[SmallFile, ...]] = field(default_factory=dict)
    rings: Mapping[str, HashingMetadata] = field(default_factory=dict)
    updates_path: bool = True
    states: StateNames | None = None


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All decisions for one write; picklable, and no larger than the list of file groups.

    `targets`: reduce partitions. `shards`: slices of a reduce task by key hash, one in memory at a time.
    `inflight_path`: the instant's inflight file, without which a late attempt writes nothing. `topology`
    names the chain of stages (`topologies.py`). `groups` maps (partition path, file id) to what is
    stored, or (partition path, bucket) where a bucket is a file group. `seed` determines new file ids, so
    that two runs use the same file names. `batch` numbers the write among the batches of its instant, and
    `spans` says whether it may have several. `fresh_file_ids`: ids from the seed alone may already belong to
    replaced groups. `index`: how records find their file groups; None if the key hash determines them.
    `mini_batches`: how much a writing task buffers before it writes; None: everything. `combines`: several
    rows of a key become one if the operation merges; otherwise they are refused. `partial` reads which
    keys are stored, for records that leave out table columns; None if records have all columns.
    """

    operation: Operation
    schema: RecordSchema
    keygen: KeyGenerator
    records: StrategyRecords
    storage: Storage
    table: TableConfig
    instant: str
    targets: int
    inflight_path: str | None = None
    topology: str = "bucket"
    shards: int = 1
    seed: int = 0
    fresh_file_ids: bool = False
    batch: int = 0
    spans: bool = False
    base_file_format: BaseFileFormat = field(default_factory=BaseFileFormat)
    log_format: LogFormat = field(default_factory=LogFormat)
    groups: Mapping[tuple[str, int | str], StoredFileGroup] = field(default_factory=dict)
    index: IndexPlan | None = None
    mini_batches: MiniBatches | None = None
    combines: bool = True
    partial: ReadPlan | None = None

    @property
    def buckets(self) -> int:
        """Buckets of each partition without a rule of its own; without keys, the number of tasks.

        A table without keys has no buckets: each task has its own file groups.
        """
        return self.targets if self.table.is_keyless else self.table.bucket_count or 1

    def buckets_in(self, partition_path: str) -> int:
        own = None if self.table.is_keyless else self.table.buckets_of(partition_path)
        return self.buckets if own is None else own

    @property
    def file_columns(self) -> pa.Schema:
        """The data columns of base files."""
        return self.schema.data if self.partial is None else self.partial.data_schema

    @property
    def merge_mode(self) -> MergeMode:
        return self.table.merge_mode or MergeMode.COMMIT_TIME

    @property
    def merge_rules(self) -> MergeRules:
        return replace(self.table.merge_rules, records=self.records)

    def combiner(self) -> Combiner | None:
        """Combines two rows into one; None if merging picks one of them or the write does not merge."""
        if not self.operation.merges:
            return None
        ordering = self.schema.ordering if self.merge_mode is not MergeMode.COMMIT_TIME else ()
        roles = replace(self.schema, ordering=ordering)
        return self.merge_rules.combiner(roles, on_records=True)

    @property
    def located(self) -> bool:
        """Whether records arrive with their file ids."""
        return self.operation is Operation.UPSERT_PREPPED

    @property
    def moves(self) -> bool:
        """Whether a record may move to another partition, because its key is unique across the table."""
        return self.index is not None and self.index.is_global and bool(self.schema.partition)

    @property
    def marker_columns(self) -> list[str]:
        """The columns that can mark this write's records as deletes."""
        names = list(self.schema.data.names)
        return [OPERATION, *names] if self.moves else names

    @property
    def source_schema(self) -> pa.Schema:
        """The columns that the source must have. A delete needs only the columns that identify a record;
        upsert_prepped also needs the column of the file name.
        """
        if self.operation is Operation.DELETE:
            return self.keygen.identity
        if self.operation is Operation.UPSERT_PREPPED:
            return pa.schema([pa.field(FILE_NAME, pa.string()), *self.schema.data])
        return self.schema.data

    def bind(self) -> BoundSerde:
        return self.records.bind(self.schema)


def make_plan(
    table: HoodieTable,
    schema: RecordSchema,
    options: WriteOptions,
    instant: Instant,
    batch: int = 0,
    spans: bool = False,
    given: RecordSchema | None = None,
) -> WritePlan:
    """The plan for the workers: routing, options, and the existing file groups.

    `batch` numbers the plan among the batches of the instant; it sees what earlier batches wrote. `spans`:
    whether the instant may have several. `given`: the records' schema if they leave out table columns.
    """
    config = _with_index(table.config, options.table)
    view = table.view(own_instant=instant.time if batch else None)
    slices = view.latest_file_slices()
    operation = options.operation
    by_bucket = options.topology == "bucket"
    bulk = operation is Operation.BULK_INSERT
    if bulk and by_bucket and slices and not config.is_keyless:
        raise OptionError(
            "bulk_insert makes new file groups, and the bucket index has one per bucket: the table"
            f" {config.name} has {len(slices)} already",
            hint="use upsert",
        )
    bucketed = by_bucket or config.bucket_engine == CONSISTENT_HASHING
    if not operation.replaces and any(slice_.base_is_of_others for slice_ in slices):
        check_keys_of_others(table, slices)
    buckets = config.bucket_count if bucketed and config.bucket_count else _TARGETS
    targets = options.parallelism or buckets
    # an appending write does not read stored rows; but if the size of the data is unknown, the stored
    # size is the only estimate
    weighed = () if config.is_mor and options.source_bytes else slices
    shards = 1 if options.mini_batches is not None else _shards(options, targets, weighed)
    if bulk or options.topology == "append":
        # nothing is merged, so the strategy takes no part: rows stay Arrow's, in frames of its own size
        options = replace(options, strategy="arrow", serde=SerdeOptions(rows_per_frame=-1))
    return WritePlan(
        operation=operation,
        schema=given or schema,
        keygen=key_generator(given or schema, options),
        records=StrategyRecords(options.strategy, bound_options(options)),
        storage=table.storage,
        table=config,
        instant=instant.time,
        targets=targets,
        inflight_path=table.timeline().path(instant),
        topology=options.topology,
        shards=shards,
        batch=batch,
        spans=spans,
        seed=secrets.randbits(63) if options.seed is None else options.seed,
        fresh_file_ids=bool(view.replaced_file_groups),
        base_file_format=options.file_format,
        log_format=replace(options.log_format, compression=options.file_format),
        groups={} if operation.replaces else _groups(slices, config, by_bucket),
        index=None
        if by_bucket or operation is Operation.UPSERT_PREPPED
        else _index(table, view, config, schema, options, shards, (instant.time, batch)),
        mini_batches=options.mini_batches,
        combines=options.combines,
        partial=None
        if given is None
        else ReadPlan(
            table.storage,
            config,
            schema.data,
            slices,
            view.visibility,
            columns=(RECORD_KEY,),
        ),
    )


def _with_index(config: TableConfig, asked: TableConfig) -> TableConfig:
    """`config` with the index that the write's options name: Hudi does not store a table's own."""
    return replace(config, **{name: getattr(asked, name) for name in INDEX_FIELDS})


def _groups(
    slices: Iterable[FileSlice], config: TableConfig, by_bucket: bool
) -> dict[tuple[str, int | str], StoredFileGroup]:
    if not by_bucket:
        return {(s.partition_path, s.file_id): _stored(s) for s in slices}
    if config.is_keyless:
        return {}
    return {place: _stored(slice_) for place, slice_ in slices_by_bucket(slices, config).items()}


def _index(
    table: HoodieTable,
    view: FileSystemView,
    config: TableConfig,
    schema: RecordSchema,
    options: WriteOptions,
    shards: int,
    place: tuple[str, int],
) -> IndexPlan:
    covers_logs = config.index_type in COVERS_LOGS
    operation, sizing = options.operation, options.sizing
    looked_into = view.latest_file_slices() if operation.looks_up else ()
    stored = table.data_schema(view=view)
    if config.bucket_engine == CONSISTENT_HASHING:
        nothing = ReadPlan(table.storage, config, schema.data, (), view.visibility)
        rings = check_rings(load_hashing_metadata(table), view)
        return IndexPlan(is_global=False, covers_logs=True, stored=nothing, rings=rings)
    in_base_files = config.keys_are_where_base_files_say
    for slice_ in looked_into if in_base_files else ():
        base_file_seen(slice_, config.index_type)
    whole = ReadPlan(
        table.storage,
        config,
        schema.data if stored is None else stored,
        looked_into,
        view.visibility,
        read_optimised=in_base_files,
        columns=(RECORD_KEY,),
    )
    small: dict[str, tuple[SmallFile, ...]] = {}
    # a record in a log would be merged with the stored one, which is wrong for an insert; and a new key
    # must go to a base file, which is settled when the first shard or mini-batch of its file group arrives
    only_added = operation is Operation.INSERT and config.is_mor
    in_parts = shards > 1 or options.mini_batches is not None
    by_parts = config.is_mor and not covers_logs and in_parts
    if not (operation.replaces or operation is Operation.DELETE or only_added or by_parts):
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
        states=StateNames.of(table, *place) if options.assigner_state else None,
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
        named=table.key_generator == "COMPLEX",
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
        slice_.base_path,
        slice_.base_instant,
        max((log.version for log in slice_.log_files), default=0),
        slice_.log_files[-1].path if slice_.log_files else "",
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
    stored = sum(s.base_bytes for s in slices)
    per_task = (stored + options.source_bytes) // max(1, targets)
    budget = options.worker_memory_mb << 20
    # a minimum, so that the number of shards stays bounded
    least = budget // 4
    if per_task * _EXPANSION_WHOLE <= max(budget - _WORKER_BYTES, least):
        return 1
    left = max(budget - _WORKER_BYTES - per_task * _BUILT, least)
    return min(256, max(2, -(-per_task * _EXPANSION // left)))
