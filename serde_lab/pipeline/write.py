"""One write from options to commit: open or make the table, plan, run the hop, commit.

Owns the driver's side of a write, in the order that keeps readers safe. Must not know which exchange
carries the records, nor import pyspark.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from serde_lab.errors import LabError, OptionError, PortabilityWarning
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.compaction import Compactor, compact_in_process
from serde_lab.pipeline.coordinator import Commit, Coordinator
from serde_lab.pipeline.exchange import Exchange
from serde_lab.pipeline.options import WriteOptions
from serde_lab.pipeline.partial_records import partial_records
from serde_lab.pipeline.plan import Operation, PartialUpdates, StoredFileGroup, WritePlan
from serde_lab.pipeline.stages import NULL_ELEMENTS_OF
from serde_lab.pipeline.table_services import Served, drop_metadata_table_now, serve
from serde_lab.pipeline.write_schema import (
    avro_schema,
    check_unchanged,
    evolved_schema,
    record_schema,
    stored_schema,
)
from serde_lab.records.fields import type_at
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import strategy
from serde_lab.table.base_file import BaseFileFormat
from serde_lab.table.bucket_check import check_buckets
from serde_lab.table.bucket_index import bucket_of_file_id
from serde_lab.table.file_system_view import FileSlice
from serde_lab.table.log_file import check_block_format
from serde_lab.table.portability import (
    list_columns,
    warn_of_kind,
    warn_of_null_elements,
    warn_of_types,
)
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import Instant


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A write whose table is open and checked.

    `schema` has the columns of the table after it, and `given` those of the records where they leave
    some out. `avro` is what the commit states, "" where nobody knows the table's columns yet.
    """

    coordinator: Coordinator
    schema: RecordSchema
    options: WriteOptions
    avro: str
    given: RecordSchema | None = None

    @classmethod
    def of(cls, storage: Storage, source: pa.Schema, options: WriteOptions) -> PreparedWrite:
        """Open or make the table. Raises what `serde_lab.write` raises before anything is written."""
        schema = record_schema(source, options)
        key_generator(schema, options)
        if options.table.is_mor:
            ordering = [type_at(source, name) for name in schema.ordering]
            check_block_format(options.log_format.blocks, tuple(ordering))
        if options.operation is Operation.UPSERT:
            # a merger that is not there, or does not fit, leaves nothing behind; a compaction reads Arrow
            options.table.merge_rules.combiner(schema, options.strategy.upper())
        if options.services.compact:
            options.table.merge_rules.check_merger()
        # a delete makes no table: TableError says that there is none
        deletes = options.operation is Operation.DELETE
        table = (
            HoodieTable.open(storage)
            if deletes
            else HoodieTable.open_or_create(storage, options.table)
        )
        table.config.check_writable(options.drop_metadata_table)
        known, given = True, None
        if deletes:
            stored = table.data_schema()
            known = stored is not None
            if stored is not None:
                schema = stored_schema(stored, schema, table)
        else:
            source_columns = schema.data.names
            schema = evolved_schema(table, schema, options)
            if options.partial_updates:
                given = partial_records(schema, source_columns, table.config)
        # options are bound before an instant begins: a wrong one leaves nothing behind
        strategy(options.strategy).bind(given or schema, bound_options(options))
        avro = json.dumps(avro_schema(schema.data, table.config.name)) if known else ""
        asked = options.table
        if table.config.bucket_count is None and asked.bucket_count is not None:
            check_buckets(table, asked.bucket_count, asked.bucket_fields)
        if not deletes:
            warn_of_types(schema.data, stacklevel=3)
            # which knows what the table does not state
            warn_of_kind(options.table, stacklevel=3)
        if options.drop_metadata_table:
            table = drop_metadata_table_now(table)
        table = table.merging_by(options.table.merger_classes)
        return cls(Coordinator(table), schema, options, avro, given)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other writers out, with what an earlier one left behind put right.

        `commit` and `serve` do so themselves; around both, no other writer comes in between, and
        before a clock starts, the time is not in it. Raises ConcurrentWrite naming the other writer.
        """
        with self.coordinator.hold(self.options.operation) as outermost:
            if outermost and self.options.operation is not Operation.DELETE:
                # another writer may have come since we opened it
                check_unchanged(self.coordinator.table, self.schema, self.options)
            yield

    def commit(self, exchange: Exchange, timeline: TaskTimeline | None = None) -> Commit:
        """From requested to completed. A write that fails where the driver lives is rolled back at once.

        So is one whose warning is made an error (`warnings.simplefilter("error", PortabilityWarning)`).

        `timeline`, if given, collects the driver's own phases.
        """
        clock = timeline or TaskTimeline("driver")
        coordinator, options = self.coordinator, self.options
        with self.hold():
            try:
                with clock.phase("begin"):
                    instant = coordinator.begin(options.operation)
                with clock.phase("plan"):
                    plan = make_plan(coordinator.table, self.schema, options, instant, self.given)
                with clock.phase("execute"):
                    statuses = exchange.run(plan)
                lists = list_columns(self.schema.data)
                if lists:
                    counted = exchange.counters()
                    holed = [name for name in lists if counted[NULL_ELEMENTS_OF + name]]
                    warn_of_null_elements(holed, stacklevel=3)
                with clock.phase("commit"):
                    return coordinator.complete(instant, options.operation, statuses, self.avro)
            except (LabError, KeyboardInterrupt, PortabilityWarning) as error:
                coordinator.give_up(error)
                raise

    def serve(self, compactor: Compactor = compact_in_process) -> Served:
        """After the commit: the table services that the options ask for. The write stands already."""
        options = self.options
        format = BaseFileFormat(options.codec, options.codec_level)
        with self.hold():
            return serve(self.coordinator, options.services, compactor, format)


def make_plan(
    table: HoodieTable,
    schema: RecordSchema,
    options: WriteOptions,
    instant: Instant,
    given: RecordSchema | None = None,
) -> WritePlan:
    """What workers must know: routing, options, and the file groups that are there. `given` as in
    PreparedWrite."""
    # the options may know what the table does not state: a bucket count that Hudi never stores
    config = table.config
    if config.bucket_count is None:
        asked = options.table
        config = replace(config, bucket_count=asked.bucket_count, bucket_fields=asked.bucket_fields)
    view = table.view()
    slices = view.latest_file_slices()
    by_bucket = {
        (slice_.partition_path, bucket_of_file_id(slice_.file_id)): slice_
        for slice_ in (() if config.is_keyless else slices)
    }
    bulk = options.operation is Operation.BULK_INSERT
    if bulk and slices and not config.is_keyless:
        raise OptionError(
            "bulk_insert makes new file groups, and the bucket index has one a bucket: the table"
            f" {config.name} has {len(slices)} already",
            hint="use upsert",
        )
    buckets = config.bucket_count or 1
    targets = options.parallelism or (_KEYLESS_TARGETS if config.is_keyless else buckets)
    compression = BaseFileFormat(options.codec, options.codec_level)
    return WritePlan(
        operation=options.operation,
        schema=given or schema,
        keygen=key_generator(given or schema, options),
        # of a bulk_insert no strategy is part: records are made from Spark's own columns, in Arrow
        strategy="arrow" if bulk else options.strategy,
        serde_options=SerdeOptions() if bulk else bound_options(options),
        storage=table.storage,
        table=config,
        instant=instant.time,
        inflight_path=table.timeline().path(instant),
        targets=targets,
        # what is stored is not read where the write appends, but without a size of the data it is the
        # only measure there is
        shards=_shards(options, targets, () if config.is_mor and options.source_bytes else slices),
        seed=secrets.randbits(63) if options.seed is None else options.seed,
        base_file_format=compression,
        log_format=replace(options.log_format, compression=compression),
        groups={place: _stored(slice_) for place, slice_ in by_bucket.items()},
        partial=(
            None if given is None else PartialUpdates(schema.data, by_bucket, view.visibility)
        ),
    )


def key_generator(schema: RecordSchema, options: WriteOptions) -> KeyGenerator:
    """What makes keys and partition paths. Raises SchemaError for a column whose values have no text."""
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
    """The strategy's options, with its default framing where none was asked for."""
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


# reduce tasks of a table without keys, where buckets say nothing
_KEYLESS_TARGETS = 8
# a stored row costs about this many times its bytes in the file while its group is merged
_EXPANSION = 12


def _shards(options: WriteOptions, targets: int, slices: tuple[FileSlice, ...]) -> int:
    """Slices of a reduce task, so that one of them fits into the memory of a worker."""
    stored = sum(s.base_file.size_bytes for s in slices if s.base_file is not None)
    incoming = options.source_bytes
    per_task = max(stored, incoming) * _EXPANSION / max(1, targets)
    budget = options.worker_memory_mb << 20
    return min(256, max(1, -(-int(per_task) // budget)))
