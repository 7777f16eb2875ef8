"""Plans of the four kinds of read: snapshot, read-optimised, time travel and incremental.

A plan says which file slices to read, which rows to keep, and at which time; its slices can be read in this
process or in workers. Times are completion times; in table version 6, which stores none, instant times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import OptionError
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_slice_reader import FileSliceReader
from serde_lab.table.files.file_system_view import FileSlice, Visibility
from serde_lab.table.files.log_records import has_partial_rows
from serde_lab.table.files.meta_columns import COMMIT_TIME, with_meta_columns
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One read as a picklable value. `commit_times` keeps only the rows that one of these instants wrote.

    Slices whose logs hold partial rows are read with the plan `whole` instead, if given.
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

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: meta columns and data, or the requested ones."""
        whole = with_meta_columns(self.data_schema.remove_metadata())
        return (
            whole
            if self.columns is None
            else pa.schema([whole.field(name) for name in self.columns])
        )

    def batches(self, slice_: FileSlice) -> Iterator[pa.RecordBatch]:
        """The rows of one of the plan's slices."""
        if self.whole is not None and has_partial_rows(
            self.storage, slice_.log_files, self.visibility
        ):
            yield from self.whole.batches(self.whole.slice_of(slice_))
            return
        names = self.schema.names
        filtered = self.commit_times is not None
        read = [*names, COMMIT_TIME] if filtered and COMMIT_TIME not in names else names
        reader = FileSliceReader(
            self.storage,
            self.config,
            slice_,
            self.data_schema,
            self.visibility,
            columns=read,
            read_optimised=self.read_optimised,
        )
        times = pa.array(sorted(self.commit_times or ()), pa.string())
        for batch in reader.batches():
            if filtered:
                batch = batch.filter(pc.is_in(batch.column(COMMIT_TIME), value_set=times))
                batch = batch.select(names)
            if batch.num_rows:
                yield batch

    def slice_of(self, other: FileSlice) -> FileSlice:
        """This plan's slice of `other`'s file group."""
        place = (other.partition_path, other.file_id)
        return next(s for s in self.slices if (s.partition_path, s.file_id) == place)

    def read(self) -> pa.Table:
        """All rows of all slices."""
        batches = [batch for slice_ in self.slices for batch in self.batches(slice_)]
        return pa.Table.from_batches(batches, self.schema)


def plan_snapshot(
    table: HoodieTable,
    *,
    as_of: str | None = None,
    read_optimised: bool = False,
    columns: Sequence[str] | None = None,
) -> ReadPlan:
    """Plan a read of the rows now, or as of `as_of`; `read_optimised` ignores the logs."""
    view = table.view(as_of)
    slices = view.latest_file_slices()
    if read_optimised:
        newest = {base.path for base in view.latest_base_files()}
        slices = tuple(
            s for s in view.file_slices() if s.base_file is not None and s.base_file.path in newest
        )
    return _plan(table, slices, view.visibility, columns, read_optimised, None)


def plan_incremental(
    table: HoodieTable,
    begin: str,
    end: str | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> ReadPlan:
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
    slices = tuple(
        s
        for s in view.latest_file_slices()
        if s.base_instant in changed or any(log.instant in changed for log in s.log_files)
    )
    if table.config.layout_version == 1:
        # log names carry the base's instant there, so any slice with logs may have changed
        slices = tuple(s for s in view.latest_file_slices() if s.log_files or s in slices)
    return _plan(table, slices, view.visibility, columns, False, changed)


def _plan(
    table: HoodieTable,
    slices: tuple[FileSlice, ...],
    visibility: Visibility,
    columns: Sequence[str] | None,
    read_optimised: bool,
    commit_times: frozenset[str] | None,
) -> ReadPlan:
    schema = table.data_schema()
    known = with_meta_columns(schema if schema is not None else pa.schema([]))
    for name in columns or ():
        if name not in known.names:
            raise OptionError(
                f"column {name!r} is not in the table, whose columns are {', '.join(known.names)}"
            )
    return ReadPlan(
        table.storage,
        table.config,
        pa.schema([]) if schema is None else schema,
        slices,
        visibility,
        read_optimised,
        None if columns is None else tuple(columns),
        commit_times,
    )
