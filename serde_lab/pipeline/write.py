"""Runs one write on the driver: opens or creates the table, plans, runs the exchange, commits.

The order of these steps keeps concurrent readers safe. Several batches may be written under one instant, as
in RFC-24, where an instant may span several checkpoints: each batch sees the files of the earlier ones, which
no reader sees yet, and the commit names the files that remain after the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from serde_lab.errors import ConcurrentWrite, OptionError, StorageError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.commit.table_services import (
    Compactor,
    Served,
    compact_in_process,
    drop_metadata_table_now,
    serve,
)
from serde_lab.pipeline.exchange.in_process import Exchange, summed
from serde_lab.pipeline.handles.handle import together
from serde_lab.pipeline.options.write import WriteOptions, check_records
from serde_lab.pipeline.plan import bound_options, key_generator, make_plan
from serde_lab.pipeline.source.schema import (
    avro_schema,
    check_unchanged,
    evolved_schema,
    partial_records,
    record_schema,
    stored_schema,
    table_schema,
)
from serde_lab.pipeline.stages import NULL_ELEMENTS_OF
from serde_lab.records.operation import Operation
from serde_lab.records.plain_form import list_columns
from serde_lab.records.schema import RecordSchema, type_at
from serde_lab.serde.registry import strategy
from serde_lab.table.files.base_file import BaseFileFormat
from serde_lab.table.files.log_file import check_block_format
from serde_lab.table.index.bucket_index import check_buckets
from serde_lab.table.portability import (
    warn_of_kind,
    warn_of_null_elements,
    warn_of_types,
)
from serde_lab.table.services.replacing import (
    Replaced,
    replaced_by_delete_partition,
    replaced_by_insert_overwrite,
    replaced_by_insert_overwrite_table,
)
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant, WriteStat


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A write whose table is open and checked.

    `schema` has the table's columns after the write, `given` those of the records if they leave some out.
    `makes_table`: this write creates the table, and removes it if the write fails. `avro` is the schema
    for the commit, "" if the table's columns are unknown so far. `extra_metadata`: what else it states.
    """

    coordinator: Coordinator
    schema: RecordSchema
    options: WriteOptions
    avro: str
    given: RecordSchema | None = None
    makes_table: bool = False
    extra_metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, storage: Storage, source: pa.Schema, options: WriteOptions) -> PreparedWrite:
        """Open or create the table. Raises what `serde_lab.write` raises before anything is written."""
        if options.operation is Operation.DELETE_PARTITION:
            return cls._without_rows(storage, options)
        schema = record_schema(source, options)
        key_generator(schema, options)
        if options.table.is_mor:
            ordering = [type_at(source, name) for name in schema.ordering]
            check_block_format(options.log_format.blocks, tuple(ordering))
        check_records(schema, options)
        if options.services.compact:
            # compaction merges Arrow data, whatever the strategy
            options.table.merge_rules.check_merger()
        # a delete creates no table; TableError says that there is none
        deletes = options.operation is Operation.DELETE
        makes_table = not deletes and not HoodieTable.exists(storage)
        table = HoodieTable(storage, options.table) if makes_table else HoodieTable.open(storage)
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
        # bind the options before an instant begins, so that a wrong one leaves nothing behind
        strategy(options.strategy).bind(given or schema, bound_options(options))
        avro = json.dumps(avro_schema(schema.data, table.config.name)) if known else ""
        asked = options.table
        if table.config.bucket_count is None and asked.bucket_count is not None:
            check_buckets(table, asked.bucket_count, asked.bucket_fields, asked.bucket_expressions)
        if not deletes:
            warn_of_types(schema.data, stacklevel=3)
            # the options include facts that the table does not store
            warn_of_kind(options.table, stacklevel=3)
        if makes_table:
            # last, so that a refused write leaves no table behind
            table = HoodieTable.create(storage, options.table, for_first_write=True)
        if options.drop_metadata_table:
            table = drop_metadata_table_now(table)
        table = table.merging_by(options.table.merger_classes)
        return cls(Coordinator(table), schema, options, avro, given, makes_table)

    @classmethod
    def _without_rows(cls, storage: Storage, options: WriteOptions) -> PreparedWrite:
        """A write that only removes rows."""
        table = HoodieTable.open(storage)
        table.config.check_writable(options.drop_metadata_table)
        schema = table_schema(table)
        avro = json.dumps(avro_schema(schema.data, table.config.name))
        if options.drop_metadata_table:
            table = drop_metadata_table_now(table)
        return cls(Coordinator(table), schema, options, avro)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock out other writers, and repair what an earlier one left behind.

        `commit` and `serve` also do this. Use it around both to keep other writers out in between, and
        before a clock starts to leave it unmeasured. Raises ConcurrentWrite naming the other writer.
        """
        with self.coordinator.hold(self.options.operation) as outermost:
            if outermost and self.makes_table and not self.coordinator.table.is_stored:
                raise ConcurrentWrite(
                    f"{self.coordinator.table.storage.url}: another writer made the table anew meanwhile",
                    hint="write again",
                )
            takes_away = self.options.operation in (Operation.DELETE, Operation.DELETE_PARTITION)
            if outermost and not takes_away:
                # another writer may have written since we opened the table
                check_unchanged(self.coordinator.table, self.schema, self.options)
            yield

    def commit(self, *exchanges: Exchange, timeline: TaskTimeline | None = None) -> Commit:
        """Take the write from requested to completed; several exchanges are batches of one instant.

        The batches are written in order. A write that fails while the driver is alive is rolled back at
        once, also if a warning is turned into an error (`warnings.simplefilter("error",
        PortabilityWarning)`).

        `timeline`, if given, collects the driver's own phases.
        """
        clock = timeline or TaskTimeline("driver")
        coordinator, options = self.coordinator, self.options
        with self.hold():
            try:
                with clock.phase("begin"):
                    instant = coordinator.begin(options.operation, options.operation.replaces)
                statuses = run_batches(
                    coordinator.table, self.schema, options, instant, exchanges, clock, self.given
                )
                lists = list_columns(self.schema.data)
                if lists:
                    counted = summed(exchange.counters() for exchange in exchanges)
                    holed = [name for name in lists if counted[NULL_ELEMENTS_OF + name]]
                    warn_of_null_elements(holed, stacklevel=3)
                with clock.phase("commit"):
                    replaced = self._replaced(statuses)
                    done = coordinator.complete(
                        instant,
                        options.operation,
                        statuses,
                        self.avro,
                        replaced,
                        self.extra_metadata,
                    )
                    if self.makes_table:
                        with suppress(StorageError):  # the commit is done, which a later write sees
                            coordinator.table.first_write_completed()
                    return done
            except (Exception, KeyboardInterrupt) as error:
                # whatever the error, roll back the pending instant before the caller sees it
                coordinator.give_up(error, takes_table=self.makes_table)
                raise

    def _replaced(self, statuses: Iterable[WriteStat]) -> Replaced | None:
        """The file groups that the written ones replace; None if the write replaces none."""
        operation, view = self.options.operation, self.coordinator.table.view
        if operation is Operation.INSERT_OVERWRITE:
            paths = {status.partitionPath for status in statuses}
            return replaced_by_insert_overwrite(view(), paths)
        if operation is Operation.INSERT_OVERWRITE_TABLE:
            return replaced_by_insert_overwrite_table(view())
        if operation is Operation.DELETE_PARTITION:
            return replaced_by_delete_partition(view(), self.options.partitions_to_delete)
        return None

    def serve(self, compactor: Compactor = compact_in_process) -> Served:
        """Run the table services that the options ask for, after the commit."""
        options = self.options
        format = BaseFileFormat(options.codec, options.codec_level)
        with self.hold():
            return serve(self.coordinator, options.services, compactor, format)


def table_to_write(storage: Storage) -> HoodieTable | None:
    """The table that is stored, if there is one.

    A table whose first write died is removed, since this write may ask for another kind of table.
    """
    table = HoodieTable.open_if_present(storage)
    if table is not None and table.is_unfinished:
        # if its first writer is alive, this write waits or is refused later
        with suppress(ConcurrentWrite), Coordinator(table).hold("removing an unfinished table"):
            if table.is_unfinished and table.remove_unused():
                return None
    return table


_SPANNING = (Operation.UPSERT, Operation.INSERT, Operation.DELETE)


def run_batches(
    table: HoodieTable,
    schema: RecordSchema,
    options: WriteOptions,
    instant: Instant,
    exchanges: Sequence[Exchange],
    clock: TaskTimeline,
    given: RecordSchema | None = None,
) -> tuple[WriteStat, ...]:
    """Write the batches in order under `instant`, which is inflight; one status per remaining file.

    `given`: the records' schema if they leave out table columns. Raises OptionError for an operation that
    cannot span several batches.
    """
    if len(exchanges) > 1 and options.operation not in _SPANNING:
        raise OptionError(
            f"hoodie.datasource.write.operation is {options.operation}, and an instant of several"
            f" batches takes {', '.join(_SPANNING)}"
        )
    written: dict[str, WriteStat] = {}
    for number, exchange in enumerate(exchanges):
        with clock.phase("plan"):
            plan = make_plan(table, schema, options, instant, number, len(exchanges), given)
        with clock.phase("execute"):
            for status in exchange.run(plan):
                _add(table.storage, written, status)
    return tuple(written.values())


def _add(storage: Storage, written: dict[str, WriteStat], status: WriteStat) -> None:
    """Record a file; a base file replaces the one that an earlier batch wrote for its file group."""
    if status.is_log:
        written[status.path] = status
        return
    group = f"{status.partitionPath}/{status.fileId}"
    before = written.get(group)
    if before is not None:
        # two base files of one file group in one instant would break the table
        storage.delete(before.path)
        status = together([before, status])
    written[group] = status
