"""Reading of rows: plans of the four kinds of read, and file slices with their logs merged in.

A plan (snapshot, read-optimised, time travel or incremental) says which file slices to read, which rows to
keep, and at which time; its slices can be read in this process or in workers. Times are completion times
(in table version 6, which stores none, instant times), except `requested_by`.

Of a slice, the base file streams through; only the logs are held in memory. Source:
KeyBasedFileGroupRecordBuffer: a log entry wins if its ordering value is not less than the base row's, and
always if it is a delete by commit time; a delete that wins removes the row. If the table fills gaps or has a
merger of its own, both rows are combined into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import OptionError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.merging.combiner import Combiner
from serde_lab.merging.merger import Merged
from serde_lab.merging.survivors import MergeMode, not_older
from serde_lab.records.conversion import conform
from serde_lab.records.schema import COMMIT_TIME, META_NAMES, RECORD_KEY, RecordSchema, columns_of
from serde_lab.serde.registry import StrategyRecords
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileReader, with_meta_columns
from serde_lab.table.files.file_system_view import FileSlice, Visibility
from serde_lab.table.files.log_records import (
    LogCount,
    LogRecords,
    has_partial_rows,
    read_log_records,
)
from serde_lab.table.files.slice_rows import ArrowForm, RowForm, SliceRows, form_of
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

_BATCH_ROWS = 64 * 1024
# each batch is matched with all log entries, so that few large batches cost less
_MERGED_ROWS = 512 * 1024


@dataclass(slots=True)
class MergeCount:
    """Counts of a merge, complete once all its batches have been taken."""

    log: LogCount = field(default_factory=LogCount)
    updated: int = 0
    inserted: int = 0
    deleted: int = 0


class FileSliceReader:
    """The rows of one slice of a plan, whichever commit wrote them, in batches of the plan's columns.

    Without logs nothing is merged. Raises TableError for what cannot be read, a damaged log block included.
    Rows come in the order of the base file, followed by the rows from the logs. `timeline` times the steps.
    """

    def __init__(
        self, plan: ReadPlan, slice_: FileSlice, timeline: TaskTimeline | None = None
    ) -> None:
        self._plan, self._slice, self.schema = plan, slice_, plan.schema
        self._timeline = timeline or TaskTimeline("read")
        whole, ordering = plan.whole_schema, plan.config.merge_ordering
        # columns that the merge reads, besides the requested ones
        needed = {*META_NAMES, *columns_of(ordering), *self.schema.names}
        if plan.config.merge_mode is MergeMode.CUSTOM:
            # a custom merger may read any column
            needed |= {*whole.names}
        self._read = pa.schema([field for field in whole if field.name in needed])
        self._combiner: Combiner | None = None
        self._logs_too = bool(slice_.log_files) and not plan.read_optimised
        self._form: RowForm = ArrowForm()
        if plan.records is not None and self._logs_too:
            self._form = form_of(plan.records, self._read, ordering, self._timeline)
        self.count = MergeCount()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches; `count` is complete after the last one."""
        if not self._logs_too:
            yield from self._base_batches(self.schema)
            return
        log = self._read_logs()
        open_ = np.ones(len(log), np.bool_)  # entries that no base row has matched yet
        surviving = np.zeros(len(log), np.bool_)
        made = np.zeros(len(log), np.bool_)  # entries combined with a base row
        for batch in self._base_batches(self._read, _MERGED_ROWS):
            base = self._form.rows([pa.Table.from_batches([batch])], self._read)
            with self._timeline.phase("merge"):
                kept, rows = self._merge(base, log, open_, surviving, made)
                kept_rows = base.picked(kept).to_arrow()
                del base  # under the clock: freeing a record object takes time, too
            if kept_rows.num_rows:
                yield self._narrowed(kept_rows)
            if rows is not None and rows.num_rows:
                yield self._narrowed(rows)
        is_row = log.row >= 0
        self.count.updated = int((surviving & is_row).sum())
        self.count.deleted += int((surviving & ~is_row).sum())
        self.count.inserted = int((open_ & is_row).sum())
        left = log.rows.batches(log.row[(surviving | open_) & is_row & ~made], _BATCH_ROWS)
        while True:
            with self._timeline.phase("merge"):
                found = next(left, None)
                if found is None:
                    del left, log
                    return
            yield self._narrowed(found)

    def _read_logs(self) -> LogRecords:
        config = self._plan.config
        data = pa.schema(list(self._read)[len(META_NAMES) :])
        roles = RecordSchema(data, config.record_key_fields, ordering=config.merge_ordering)
        rules = config.merge_rules
        log, self.count.log = read_log_records(
            self._plan.storage,
            self._slice.log_files,
            roles,
            self._plan.visibility,
            rules,
            self._form,
            self._timeline,
            "" if self._slice.base_file is None else self._slice.base_file.instant,
        )
        partial = log.present is not None
        self._combiner = rules.combiner(roles, in_log=True, partial=partial)
        return log

    def keys_in_logs(self) -> pa.StringArray:
        """The record keys of the rows in the logs, without those that the logs delete again."""
        log = self._read_logs()
        return log.keys.take(np.flatnonzero(log.row >= 0)).values.cast(pa.string())

    def read(self) -> pa.Table:
        """All rows at once."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def _merge(
        self,
        base: SliceRows,
        log: LogRecords,
        open_: npt.NDArray[np.bool_],
        surviving: npt.NDArray[np.bool_],
        made: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch | None]:
        """Merge one batch of the base file: which of its rows stay, and the combined rows. Marks the log
        entries that matched (no longer `open_`), won (`surviving`) or were combined (`made`)."""
        kept = np.ones(len(base), np.bool_)
        base_rows, met = log.met_by(base.keys(), open_)
        if not len(met):
            return kept, None
        open_[met] = False
        wins = np.ones(len(met), np.bool_)
        ordering = self._plan.config.merge_ordering
        if ordering:
            wins = log.always[met] | not_older(
                [values.take(pa.array(base_rows)) for values in base.ordering(ordering)],
                [values.take(pa.array(met)) for values in log.ordering],
            )
        rows = None
        if self._combiner is not None:
            two = np.flatnonzero(log.row[met] >= 0)
            combined = self._combined(base, base_rows[two], log, met[two], wins[two])
            gone = np.zeros(len(two), np.bool_) if combined.deleted is None else combined.deleted
            changed = ~gone
            if combined.older_kept is not None:
                changed &= ~combined.older_kept
            rows = combined.rows.filter(pa.array(changed))
            made[met[two]] = True
            self.count.deleted += int(gone.sum())
            kept[base_rows[two[gone]]] = False
            wins[two] = changed
        elif log.by_position:
            # a row for each that is replaced
            written = met[wins & (log.row[met] >= 0)]
            rows = log.rows.take(log.row[written]).to_arrow()
            made[written] = True
        surviving[met[wins]] = True
        kept[base_rows[wins]] = False
        return kept, rows

    def _combined(
        self,
        base: SliceRows,
        base_rows: npt.NDArray[np.int64],
        log: LogRecords,
        met: npt.NDArray[np.int64],
        wins: npt.NDArray[np.bool_],
    ) -> Merged:
        """Combine base rows with the log's rows of the same keys: a combiner works on Arrow."""
        older = base.take(base_rows).to_arrow()
        numbers = log.row[met]
        newer = log.rows.take(numbers).to_arrow()
        present = log.present
        if present is not None:
            present = {name: mask[numbers] for name, mask in present.items()}
        assert self._combiner is not None
        return self._combiner.combine(older, newer, wins, present)

    def _base_batches(self, schema: pa.Schema, rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        base = self._slice.base_file
        if base is None:
            return
        reader = BaseFileReader(self._plan.storage, base.path)
        where = self._plan.storage.describe(base.path)
        present = [name for name in schema.names if name in reader.schema.names]
        batches = reader.batches(present, rows)
        while True:
            with self._timeline.phase("read_base"):
                batch = next(batches, None)
                found = None if batch is None else conform(batch, schema, where)
            if found is None:
                return
            yield found

    def _narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema.equals(self.schema) else batch.select(self.schema.names)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One read as a picklable value.

    `data_schema` is the table's whole schema; `columns` selects and orders the output (meta columns too).
    `read_optimised` ignores the logs. `commit_times` keeps only the rows that one of these instants wrote.
    Slices whose logs hold partial rows are read with the plan `whole` instead, if given. Slices with logs are
    merged as records of `records`, by default on Arrow.
    """

    storage: Storage
    config: TableConfig
    data_schema: pa.Schema
    slices: tuple[FileSlice, ...]
    visibility: Visibility
    read_optimised: bool = False
    columns: tuple[str, ...] | None = None
    commit_times: frozenset[str] | None = None
    whole: ReadPlan | None = None
    records: StrategyRecords | None = None

    @property
    def whole_schema(self) -> pa.Schema:
        """Meta columns, then all data columns."""
        return with_meta_columns(self.data_schema.remove_metadata())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: meta columns and data, or the requested ones."""
        whole = self.whole_schema
        names = whole.names if self.columns is None else self.columns
        return pa.schema([whole.field(name) for name in names])

    def batches(
        self, slice_: FileSlice, timeline: TaskTimeline | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one of the plan's slices; `timeline` times the steps."""
        if self.whole is not None and has_partial_rows(
            self.storage, slice_.log_files, self.visibility
        ):
            whole = replace(self.whole, records=self.records)
            earlier = whole.slice_of(slice_.partition_path, slice_.file_id)
            yield from whole.batches(earlier, timeline)
            return
        names = self.schema.names
        filtered = self.commit_times is not None
        read = [*names, COMMIT_TIME] if filtered and COMMIT_TIME not in names else names
        reader = FileSliceReader(replace(self, columns=tuple(read)), slice_, timeline)
        times = pa.array(sorted(self.commit_times or ()), pa.string())
        for batch in reader.batches():
            if filtered:
                batch = batch.filter(pc.is_in(batch.column(COMMIT_TIME), value_set=times))
                batch = batch.select(names)
            if batch.num_rows:
                yield batch

    def keys_in_logs(self, slice_: FileSlice) -> pa.StringArray:
        """The record keys of the rows in the logs of one of the plan's slices."""
        return FileSliceReader(replace(self, columns=(RECORD_KEY,)), slice_).keys_in_logs()

    def slice_of(self, partition_path: str, file_id: str) -> FileSlice:
        """The plan's slice of a file group."""
        place = partition_path, file_id
        return next(s for s in self.slices if (s.partition_path, s.file_id) == place)

    def read(self) -> pa.Table:
        """All rows of all slices."""
        batches = [batch for slice_ in self.slices for batch in self.batches(slice_)]
        return pa.Table.from_batches(batches, self.schema)


def plan_snapshot(
    table: HoodieTable,
    *,
    as_of: str | None = None,
    requested_by: str | None = None,
    read_optimised: bool = False,
    columns: Sequence[str] | None = None,
) -> ReadPlan:
    """Plan a read of the rows now, or as in `HoodieTable.view`; `read_optimised` ignores the logs. With
    `requested_by` the columns are those of then, too."""
    view = table.view(as_of, requested_by=requested_by)
    slices = view.latest_file_slices()
    if read_optimised:
        newest = frozenset(view.latest_base_files())
        slices = tuple(s for s in view.file_slices() if s.base_file in newest)
    schema = table.data_schema(requested_by or "", view) or pa.schema([])
    known = with_meta_columns(schema).names
    for name in columns or ():
        if name not in known:
            raise OptionError(
                f"column {name!r} is not in the table, whose columns are {', '.join(known)}"
            )
    return ReadPlan(
        table.storage,
        table.config,
        schema,
        slices,
        view.visibility,
        read_optimised,
        None if columns is None else tuple(columns),
    )


def plan_incremental(table: HoodieTable, begin: str, end: str | None = None) -> ReadPlan:
    """Plan a read of the rows written by instants that completed after `begin` and not after `end`.

    The rows are read as of `end`; deleted rows are not included. Raises OptionError for an empty range.
    """
    if end is not None and end < begin:
        raise OptionError(f"the incremental read ends at {end}, before it begins at {begin}")
    view = table.view(end)
    changed = frozenset(
        instant
        for instant in view.visibility.completion_times
        if (done := view.visibility.completion_of(instant)) is not None and done > begin
    )
    # log names carry the base's instant in layout 1, so any slice with logs may have changed
    unknown = table.config.layout_version == 1
    slices = tuple(
        s
        for s in view.latest_file_slices()
        if s.base_instant in changed
        or any(unknown or log.instant in changed for log in s.log_files)
    )
    schema = table.data_schema(view=view) or pa.schema([])
    return ReadPlan(
        table.storage, table.config, schema, slices, view.visibility, commit_times=changed
    )
