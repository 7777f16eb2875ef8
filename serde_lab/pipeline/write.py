"""One write from options to commit: open or make the table, plan, run the hop, commit.

Owns the driver's side of a write, in the order that keeps readers safe. Must not know which exchange
carries the records, nor import pyspark.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from serde_lab.errors import LabError, OptionError, SchemaError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.coordinator import Commit, Coordinator
from serde_lab.pipeline.exchange import Exchange
from serde_lab.pipeline.options import WriteOptions
from serde_lab.pipeline.plan import Operation, StoredFileGroup, WritePlan
from serde_lab.records.avro_schema import arrow_to_avro
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import check_supported, storage_schema
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import strategy
from serde_lab.table.base_file import BaseFileFormat
from serde_lab.table.bucket_index import bucket_of_file_id
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import Instant


def record_schema(source: pa.Schema, options: WriteOptions) -> RecordSchema:
    """The schema of the table's records, in storage types. Raises SchemaError naming the column."""
    check_supported(source)
    table = options.table
    for role, names in (
        ("record key", table.record_key_fields),
        ("partition", table.partition_fields),
        ("ordering", table.ordering_fields),
    ):
        for name in names:
            if name not in source.names:
                raise SchemaError(
                    f"{role} column {name!r} is not in the data, whose columns are"
                    f" {', '.join(source.names)}"
                )
    # a batch without nulls today says nothing of the next one: every column may hold them
    columns = [field.with_nullable(True) for field in storage_schema(source)]
    return RecordSchema(
        pa.schema(columns),
        tuple(table.record_key_fields),
        tuple(table.partition_fields),
        tuple(table.ordering_fields),
    )


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A write whose table is open, checked and free of earlier writers' leftovers."""

    coordinator: Coordinator
    schema: RecordSchema
    options: WriteOptions

    @classmethod
    def of(cls, storage: Storage, source: pa.Schema, options: WriteOptions) -> PreparedWrite:
        """Open or make the table. Raises what `serde_lab.write` raises before anything is written."""
        schema = record_schema(source, options)
        table = HoodieTable.open_or_create(storage, options.table)
        table.config.check_writable()
        _check_columns(table, schema)
        # options are bound before an instant begins: a wrong one leaves nothing behind
        strategy(options.strategy).bind(schema, bound_options(options))
        coordinator = Coordinator(table)
        coordinator.recover()
        return cls(coordinator, schema, options)

    def commit(self, exchange: Exchange, timeline: TaskTimeline | None = None) -> Commit:
        """From requested to completed. A write that fails where the driver lives is rolled back at once.

        `timeline`, if given, collects the driver's own phases.
        """
        clock = timeline or TaskTimeline("driver")
        coordinator, options = self.coordinator, self.options
        with clock.phase("begin"):
            instant = coordinator.begin(options.operation)
        try:
            with clock.phase("plan"):
                plan = make_plan(coordinator.table, self.schema, options, instant)
            with clock.phase("execute"):
                statuses = exchange.run(plan)
            with clock.phase("commit"):
                avro = json.dumps(avro_schema(self.schema.data, coordinator.table.config.name))
                return coordinator.complete(instant, options.operation, statuses, avro)
        except (LabError, KeyboardInterrupt):
            coordinator.recover()
            raise


def make_plan(
    table: HoodieTable, schema: RecordSchema, options: WriteOptions, instant: Instant
) -> WritePlan:
    """What workers must know: routing, options, and the file groups that are there."""
    config = table.config
    groups = {
        (slice_.partition_path, bucket_of_file_id(slice_.file_id)): StoredFileGroup(
            slice_.file_id, slice_.base_file.path, slice_.base_file.instant
        )
        for slice_ in table.view().latest_file_slices()
        if slice_.base_file is not None
    }
    bulk = options.operation is Operation.BULK_INSERT
    if bulk and groups:
        raise OptionError(
            "bulk_insert makes new file groups, and the bucket index has one a bucket: the table"
            f" {config.name} has {len(groups)} already",
            hint="use upsert",
        )
    buckets = config.bucket_count or 1
    targets = options.parallelism or buckets
    return WritePlan(
        operation=options.operation,
        schema=schema,
        keygen=KeyGenerator(schema, config.hive_style, config.url_encode),
        # of a bulk_insert no strategy is part: records are made from Spark's own columns, in Arrow
        strategy="arrow" if bulk else options.strategy,
        serde_options=SerdeOptions() if bulk else bound_options(options),
        storage=table.storage,
        table=config,
        instant=instant.time,
        inflight_path=table.timeline().path(instant),
        targets=targets,
        shards=_shards(options, targets, table),
        seed=secrets.randbits(63) if options.seed is None else options.seed,
        base_file_format=BaseFileFormat(options.codec, options.codec_level),
        groups=groups,
    )


def bound_options(options: WriteOptions) -> SerdeOptions:
    """The strategy's options, with its default framing where none was asked for."""
    serde = options.serde
    if serde.rows_per_frame >= 0:
        return serde
    return replace(serde, rows_per_frame=strategy(options.strategy).default_rows_per_frame)


# a stored row costs about this many times its bytes in the file while its group is merged
_EXPANSION = 12


def _shards(options: WriteOptions, targets: int, table: HoodieTable) -> int:
    """Slices of a reduce task, so that one of them fits into the memory of a worker."""
    stored = sum(
        slice_.base_file.size_bytes
        for slice_ in table.view().latest_file_slices()
        if slice_.base_file is not None
    )
    incoming = options.source_bytes
    per_task = max(stored, incoming) * _EXPANSION / max(1, targets)
    budget = options.worker_memory_mb << 20
    return min(256, max(1, -(-int(per_task) // budget)))


def _check_columns(table: HoodieTable, schema: RecordSchema) -> None:
    """Refuse a batch whose columns are not the table's own."""
    stored = table.data_schema()
    if stored is None:
        return
    theirs = {field["name"]: field for field in avro_schema(stored, "t")["fields"]}
    ours = {field["name"]: field for field in avro_schema(schema.data, "t")["fields"]}
    for name in ours:
        if name not in theirs:
            raise SchemaError(
                f"column {name!r} is not in the table, whose columns are {', '.join(theirs)}"
            )
    for name in theirs:
        if name not in ours:
            raise SchemaError(f"column {name!r} of the table is not in the data")
        if _value_type(theirs[name]) != _value_type(ours[name]):
            raise SchemaError(
                f"column {name!r} is of type {schema.data.field(name).type}, and the table has"
                f" {stored.field(name).type}"
            )


def avro_schema(data: pa.Schema, table_name: str) -> dict[str, Any]:
    """The schema that a commit states: data columns only, named as Hudi names them."""
    return arrow_to_avro(data, f"{table_name}_record", f"hoodie.{table_name}")


def _value_type(field: dict[str, Any]) -> Any:
    """The Avro type of a field without the null that makes it optional."""
    kind = field["type"]
    return kind[1] if isinstance(kind, list) else kind
