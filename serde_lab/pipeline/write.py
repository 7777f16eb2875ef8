"""Runs one write on the driver: opens or creates the table, plans, runs the exchange, commits.

The order of these steps keeps concurrent readers safe. `commit` writes one batch under an instant of its own.
`store_batch` writes one of several under an instant that they share, as in RFC-24, where an instant may span
several checkpoints: each batch is durable when the call returns and sees the files of the earlier ones, which
no reader sees yet. The commit names the files that remain after the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from serde_lab.errors import ConcurrentWrite, OptionError, StorageError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.commit.conflicts import OptimisticLocking
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.commit.table_services import (
    Compactor,
    Served,
    compact_in_process,
    drop_metadata_table_now,
    serve,
)
from serde_lab.pipeline.exchange.in_process import Exchange
from serde_lab.pipeline.handles.handle import summed_stat
from serde_lab.pipeline.options.write import WriteOptions, check_records
from serde_lab.pipeline.plan import bound_options, key_generator, make_plan
from serde_lab.pipeline.source.schema import (
    avro_schema,
    check_stored_keys,
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
from serde_lab.records.schema import META_NAMES, RecordSchema, type_at
from serde_lab.serde.registry import strategy
from serde_lab.table.files.log_file import check_block_format
from serde_lab.table.index.assigner_state import STATE_KEY, drop_other_states, state_after
from serde_lab.table.index.key_places import check_buckets, check_no_other_index, check_stored_rules
from serde_lab.table.portability import warn_of_columns, warn_of_kind, warn_of_null_elements
from serde_lab.table.services.replacing import (
    Replaced,
    replaced_by_delete_partition,
    replaced_by_insert_overwrite,
    replaced_by_insert_overwrite_table,
)
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import SharedInstant
from serde_lab.table.timeline.commit_metadata import WriteStat
from serde_lab.table.timeline.timeline import Instant


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A write whose table is open and checked.

    `schema` has the table's columns after the write, `given` those of the records if they leave some out.
    `makes_table`: this write creates the table, and removes it if the write fails. `avro` is the schema
    for the commit, "" if the table's columns are unknown so far. `extra_metadata`: what it states besides.
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
        optimism = OptimisticLocking.of(options, storage)
        if options.operation is not Operation.UPSERT_PREPPED:
            # a read may have returned them; Apache Hudi leaves them out, too
            source = pa.schema([field for field in source if field.name not in META_NAMES])
        schema = record_schema(source, options)
        folders = key_generator(schema, options).folders_by_text
        if options.table.is_mor:
            ordering = [type_at(schema.data, name) for name in schema.ordering]
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
        if not makes_table:
            check_stored_keys(table, key_generator(schema, options), options)
        if table.config.bucket_count is None and asked.bucket_count is not None:
            check_buckets(table, asked.bucket_count, asked.bucket_fields, asked.bucket_expressions)
        elif asked.bucket_count is not None and not makes_table:
            check_stored_rules(table, asked.bucket_count, asked.bucket_expressions)
        elif asked.index_type and not (makes_table or table.config.index_type):
            check_no_other_index(table, asked.index_type)
        if not deletes:
            stays = options.operation is Operation.UPSERT and not options.updates_partition_path
            warn_of_columns(schema.data, stacklevel=3, folders=folders, kept=stays)
            # the options include facts that the table does not store
            warn_of_kind(options.table, stacklevel=3)
        if makes_table:
            # last, so that a refused write leaves no table behind
            table = HoodieTable.create(storage, options.table, for_first_write=True)
        if options.drop_metadata_table:
            table = drop_metadata_table_now(table)
        table = table.merging_by(options.table.merger_classes)
        coordinator = Coordinator(table, optimism)
        return cls(coordinator, schema, options, avro, given, makes_table)

    @classmethod
    def _without_rows(cls, storage: Storage, options: WriteOptions) -> PreparedWrite:
        table = HoodieTable.open(storage)
        table.config.check_writable(options.drop_metadata_table)
        schema = table_schema(table)
        avro = json.dumps(avro_schema(schema.data, table.config.name))
        if options.drop_metadata_table:
            table = drop_metadata_table_now(table)
        return cls(
            Coordinator(table, OptimisticLocking.of(options, storage)), schema, options, avro
        )

    @contextmanager
    def hold(self, keeps: str = "") -> Iterator[None]:
        """Lock out other writers, and repair what an earlier one left behind.

        `commit` and `serve` also do this. Use it around both to keep other writers out in between, and
        before a clock starts to leave it unmeasured. An instant that micro-batches share is completed, unless
        it is the instant `keeps`. An optimistic write lets others write meanwhile, and may conflict with what
        they commit from now on. Raises ConcurrentWrite naming the other writer.
        """
        with self.coordinator.hold(self.options.operation, keeps) as outermost:
            if outermost:
                # another writer may have written since we opened the table
                self.coordinator.check_stored()
                check_unchanged(self.coordinator.table, self.schema, self.options)
            yield

    def commit(self, exchange: Exchange, timeline: TaskTimeline | None = None) -> Commit:
        """Take the write from requested to completed.

        A write that fails while the driver is alive is rolled back at once, also if a warning is turned into
        an error (`warnings.simplefilter("error", PortabilityWarning)`).

        `timeline`, if given, collects the driver's own phases.
        """
        clock = timeline or TaskTimeline("driver")
        coordinator, options = self.coordinator, self.options
        with self.hold():
            try:
                with clock.phase("begin"):
                    instant = coordinator.begin(options.operation, options.operation.replaces)
                stats = self._write_batch(instant, exchange, clock)
                self._warn_of_null_elements(exchange)
                with clock.phase("commit"):
                    done = coordinator.complete(
                        instant,
                        options.operation,
                        stats,
                        self.avro,
                        lambda: self._replaced(stats),
                        self._stated(instant, 0),
                    )
                    self._settle(instant, 0)
                    return done
            except (Exception, KeyboardInterrupt) as error:
                # whatever the error, roll back the pending instant before the caller sees it
                coordinator.give_up(error, takes_table=self.makes_table)
                raise

    def store_batch(
        self,
        exchange: Exchange,
        shared: SharedInstant | None = None,
        timeline: TaskTimeline | None = None,
    ) -> SharedInstant:
        """Write one batch into a pending instant, where it outlives the driver; `Coordinator.flush` commits
        it.

        `shared`: the instant with its earlier batches, which must have been written by this process and with
        the same options and schema; None begins an instant. A batch that fails is undone, and the earlier
        ones stay; the instant must then be completed, since tasks of the failed batch may still be writing.
        `timeline` and errors as with `commit`.
        """
        clock = timeline or TaskTimeline("driver")
        coordinator, options = self.coordinator, self.options
        if options.operation not in SPANNING:
            raise OptionError(
                f"hoodie.datasource.write.operation is {options.operation}, and an instant of several"
                f" batches takes {', '.join(SPANNING)}"
            )
        with self.hold("" if shared is None else shared.instant.time):
            try:
                with clock.phase("begin"):
                    instant = shared.instant if shared else coordinator.begin(options.operation)
                number = shared.batches if shared else 0
                before = shared.metadata.write_stats if shared else ()
                stats = self._write_batch(instant, exchange, clock, number, True, before)
                self._warn_of_null_elements(exchange)
                with clock.phase("commit"):
                    stored = coordinator.store_batch(
                        instant,
                        number,
                        options.operation,
                        stats,
                        self.avro,
                        self._stated(instant, number),
                    )
                    self._settle(instant, number)
                    return stored
            except (Exception, KeyboardInterrupt) as error:
                coordinator.give_up(error, takes_table=self.makes_table)
                raise

    def _write_batch(
        self,
        instant: Instant,
        exchange: Exchange,
        clock: TaskTimeline,
        number: int = 0,
        spans: bool = False,
        before: Iterable[WriteStat] = (),
    ) -> tuple[WriteStat, ...]:
        """Write the batch `number` of an inflight instant, after the files `before` of its earlier batches.

        `spans`: whether the instant may have further batches. Returns one stat for each file that remains;
        earlier batches' base files that new ones replace still exist.
        """
        table, schema = self.coordinator.table, self.schema
        with clock.phase("plan"):
            plan = make_plan(table, schema, self.options, instant, number, spans, self.given)
        remaining = {_place_of(stat): stat for stat in before}
        with clock.phase("execute"):
            for stat in exchange.run(plan):
                place = _place_of(stat)
                earlier = remaining.get(place)
                remaining[place] = stat if earlier is None else summed_stat([earlier, stat])
        return tuple(remaining.values())

    def _stated(self, instant: Instant, number: int) -> dict[str, str]:
        """The extra metadata of the instant after its batch `number`."""
        own = {STATE_KEY: state_after(instant.time, number)} if self.options.assigner_state else {}
        return {**self.extra_metadata, **own}

    def _settle(self, instant: Instant, number: int) -> None:
        """Remove what nobody needs once the rows are stored; a later write sees that they are."""
        table = self.coordinator.table
        with suppress(StorageError):
            if self.makes_table:
                table.first_write_completed()
            if self.options.assigner_state:
                drop_other_states(table.storage, state_after(instant.time, number))

    def _warn_of_null_elements(self, exchange: Exchange) -> None:
        lists = list_columns(self.schema.data)
        if lists:
            counted = exchange.counters()
            holed = [name for name in lists if counted[NULL_ELEMENTS_OF + name]]
            warn_of_null_elements(holed, stacklevel=4)

    def _replaced(self, stats: Iterable[WriteStat]) -> Replaced | None:
        """The file groups that the written ones replace; None if the write replaces none."""
        operation, view = self.options.operation, self.coordinator.table.view
        if operation is Operation.INSERT_OVERWRITE:
            paths = {stat.partitionPath for stat in stats}
            return replaced_by_insert_overwrite(view(), paths)
        if operation is Operation.INSERT_OVERWRITE_TABLE:
            return replaced_by_insert_overwrite_table(view())
        if operation is Operation.DELETE_PARTITION:
            return replaced_by_delete_partition(view(), self.options.partitions_to_delete)
        return None

    def serve(self, compactor: Compactor = compact_in_process) -> Served:
        """Run the table services that the options ask for, after the commit."""
        with self.hold(), self.coordinator.turn("table services", repairs=True):
            options = self.options
            return serve(self.coordinator, options.services, compactor, options.file_format)


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


SPANNING = (Operation.UPSERT, Operation.INSERT, Operation.DELETE)
"""The operations whose instant may have several batches."""


def _place_of(stat: WriteStat) -> str:
    """The place that one file of an instant takes: a log's path, or a base file's file group."""
    return stat.path if stat.is_log else f"{stat.partitionPath}/{stat.fileId}"
