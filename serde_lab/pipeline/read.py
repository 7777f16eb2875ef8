"""Turns read options into a read plan: snapshot, read-optimized or incremental, at which times.

The options have Hudi's own names; an unsupported one is refused by name. `as.of.instant` is compared with
the times at which writes were requested, the ones in the rows' `_hoodie_commit_time`: writes that were
requested later do not count, even if they completed first. The bounds of an incremental read are compared
with the times at which writes completed (in table version 6, which stores none, requested). So does Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

from serde_lab.errors import OptionError, TableError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.pipeline.options.write import OWN_PREFIX
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import StrategyRecords
from serde_lab.serde.registry import strategy as registered
from serde_lab.table.files.base_file import with_meta_columns
from serde_lab.table.files.slice_rows import form_of
from serde_lab.table.read_plan import ReadPlan, plan_incremental, plan_snapshot
from serde_lab.table.services.cleaning import CLEAN, earliest_kept_by
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.lsm_timeline import ArchivedInstant
from serde_lab.table.timeline.timeline import WRITE_ACTIONS, Instant, format_instant_time

QueryType = Literal["snapshot", "read_optimized", "incremental"]

_QUERY = "hoodie.datasource.query.type"
_BEGIN = "hoodie.datasource.read.begin.instanttime"
_END = "hoodie.datasource.read.end.instanttime"
_AS_OF = "as.of.instant"
_META = "serde_lab.meta_columns"
_MERGERS = "hoodie.write.record.merge.custom.implementation.classes"
_STRATEGY, _EXECUTION = "serde_lab.strategy", "serde_lab.execution"

_MEANING: Mapping[str, str] = {
    _QUERY: "snapshot, read_optimized or incremental (snapshot)",
    _BEGIN: "incremental: only changes that completed after this time",
    _END: "incremental: only changes that completed until this time",
    _AS_OF: "the table, and its columns, after the last write that was requested until this time",
    _META: "true: the five meta columns, too, before the data columns (false)",
    _MERGERS: "mergers of a table whose merge mode is CUSTOM, as package.module:Class, separated by commas",
    _STRATEGY: "merges logs as records of this strategy; without it they are merged on Arrow",
    _EXECUTION: "row or batch: how the strategy runs",
    "hoodie.metadata.enable": "false",
}
# forms of a time, each with the milliseconds that it leaves out
_DATES = {"%Y-%m-%d": 0, "%Y-%m-%d %H:%M:%S": 999, "%Y-%m-%d %H:%M:%S.%f": 0}
# an incremental read that begins before any time takes all rows
_EARLIEST = "1970"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read. Times are instant times, "" if not set."""

    query: QueryType = "snapshot"
    begin: str = ""
    end: str = ""
    as_of: str = ""
    meta_columns: bool = False
    merger_classes: tuple[str, ...] = ()
    records: StrategyRecords | None = None


def open_table(path: str | os.PathLike[str]) -> HoodieTable:
    """The table at a folder or URL. Raises TableError if there is none; creates no folder."""
    storage = Storage.open(path)
    if storage.is_local and not Path(storage.url).is_dir():
        raise TableError(f"{path} is not a Hudi table: there is no such folder")
    return HoodieTable.open(storage)


def known_options() -> Mapping[str, str]:
    """Every option that a read accepts, with its meaning; a strategy's own begin with
    `serde_lab.strategy.`."""
    return _MEANING


def parse_read_options(options: Mapping[str, Any]) -> ReadOptions:
    """Parse `options`. Raises OptionError naming the option, what was found and what was expected."""
    reader = OptionReader(options, _MEANING, OWN_PREFIX)
    reader.only("hoodie.metadata.enable", ("false",))
    known = ("snapshot", "read_optimized", "incremental")
    query = reader.choice(_QUERY, known, lower=True) or "snapshot"
    for key in (_BEGIN, _END):
        if reader.given(key) and query != "incremental":
            raise OptionError(f"{key} is for an incremental read, and {_QUERY} is {query}")
    if query == "incremental" and not reader.given(_BEGIN):
        raise OptionError(
            f"{_BEGIN} is missing; it is the time after which an incremental read begins"
        )
    if reader.given(_AS_OF) and query != "snapshot":
        raise OptionError(f"{_AS_OF} is for a snapshot, and {_QUERY} is {query}")
    return ReadOptions(
        query=cast(QueryType, query),
        begin=_time(reader, _BEGIN),
        end=_time(reader, _END),
        as_of=_time(reader, _AS_OF),
        meta_columns=reader.flag(_META) or False,
        merger_classes=reader.names(_MERGERS),
        records=_records(reader, query),
    )


def _records(reader: OptionReader, query: str) -> StrategyRecords | None:
    """The strategy that the options name. Raises OptionError for an unknown one, and for options that only
    a strategy has."""
    own = {key: reader.options[key] for key in reader.options if key.startswith(OWN_PREFIX)}
    if not reader.given(_STRATEGY):
        if without := reader.given(_EXECUTION, *own):
            raise OptionError(f"{without} is for a strategy, and {_STRATEGY} is not given")
        return None
    if query == "read_optimized":
        raise OptionError(f"{_STRATEGY} merges logs, and {_QUERY} is {query}, which reads none")
    name = reader.text(_STRATEGY, "")
    registered(name)
    execution = cast(Any, reader.text(_EXECUTION, ""))  # bind checks it
    options = {key.removeprefix(OWN_PREFIX): value for key, value in own.items()}
    return StrategyRecords(name, SerdeOptions(execution=execution, own=options))


def plan_read(table: HoodieTable, options: ReadOptions) -> ReadPlan:
    """The plan of the read that `options` ask for.

    Raises OptionError for a time whose files were cleaned or whose changes were archived: the remaining
    rows would look like a valid answer. Raises SchemaError for a column that records of the strategy cannot
    have.
    """
    if options.merger_classes or options.records is not None:
        table = table.merging_by(options.merger_classes, options.records)
    plan = _plan(table, options)
    if not options.meta_columns:
        plan = _without_meta_columns(plan)
    if options.records is None:
        return plan
    # here, so that what the strategy refuses is said before a task runs
    schema, ordering = with_meta_columns(plan.data_schema), table.config.merge_ordering
    form_of(options.records, schema.remove_metadata(), ordering, TaskTimeline("plan"))
    return replace(plan, records=options.records)


def _plan(table: HoodieTable, options: ReadOptions) -> ReadPlan:
    if options.query == "incremental":
        return _plan_changes(table, options)
    if not options.as_of:
        return plan_snapshot(table, read_optimised=options.query == "read_optimized")
    plan = plan_snapshot(table, requested_by=options.as_of)
    # after the files were listed: a clean may have taken some of them just before
    _check_there(table, _archived(table), _AS_OF, options.as_of, lambda instant: instant.time)
    return plan


def _plan_changes(table: HoodieTable, options: ReadOptions) -> ReadPlan:
    times = [_completion(i) for i in table.timeline().completed()]
    times += [_completion(i) for i in _archived(table)]
    if options.begin < min(times, default=""):
        # nothing was written before, so all rows are changes
        plan = plan_snapshot(table, as_of=options.end or None)
    else:
        plan = _written_in_range(plan_incremental(table, options.begin, options.end or None))
    _check_changes(table, options)
    return plan


def _check_changes(table: HoodieTable, options: ReadOptions) -> None:
    """Raise OptionError if changes or files of the range may be gone.

    The files were listed before: a clean or an archiving may have taken some meanwhile.
    """
    times = [_completion(i) for i in table.timeline().completed()]
    earlier = _archived(table)
    if options.end:
        _check_there(table, earlier, _END, options.end, _completion)
    if options.begin >= _EARLIEST:
        _check_history(table, _BEGIN, options.begin, min(times, default=""))
    # an archived write may have completed after one that is still active
    archived = [_completion(instant) for instant in earlier]
    if archived and min(archived) <= options.begin < max(archived):
        raise OptionError(
            f"{_BEGIN} is {options.begin}, and changes up to {max(archived)} were archived",
            hint=f"begin at that time, or before {min(archived)} for all rows",
        )


def _written_in_range(plan: ReadPlan) -> ReadPlan:
    """The plan without files written before its range, as Hudi and hudi-rs read changes.

    Log records then merge only with each other: a late row that loses to a base row in a snapshot is
    still among the changes if that base row was written before the range. But not if a compaction or a
    clustering in the range rewrote the base row: as in hudi-rs, while Apache Hudi leaves out base rows that
    were written before.
    """
    changed = plan.commit_times or frozenset()
    owned = plan.config.layout_version == 2  # a log's name has its own instant, not the base's
    slices = tuple(
        replace(
            slice_,
            base_file=slice_.base_file if slice_.base_instant in changed else None,
            log_files=tuple(log for log in slice_.log_files if not owned or log.instant in changed),
        )
        for slice_ in plan.slices
    )
    completed = {
        instant: time
        for instant, time in plan.visibility.completion_times.items()
        if instant in changed
    }
    visibility = replace(plan.visibility, completion_times=completed, start="")
    # earlier files supply the columns that partial rows leave out
    return replace(plan, slices=slices, visibility=visibility, whole=plan)


def _without_meta_columns(plan: ReadPlan) -> ReadPlan:
    whole = None if plan.whole is None else _without_meta_columns(plan.whole)
    return replace(plan, columns=tuple(plan.data_schema.names), whole=whole)


def _completion(instant: Instant | ArchivedInstant) -> str:
    return instant.completion_time or instant.time


def _check_there(
    table: HoodieTable,
    earlier: list[ArchivedInstant],
    option: str,
    time: str,
    time_of: Callable[[Instant | ArchivedInstant], str],
) -> None:
    """Raise OptionError if files of `time` may be gone. `time_of` gives what it is compared with, of active
    writes and of those archived `earlier`.
    """
    timeline = table.timeline()
    times = {instant.time: time_of(instant) for instant in timeline.completed()}
    first = min(times.values(), default="")
    _check_history(table, option, time, first)
    archived = [time_of(instant) for instant in earlier]
    # files of archived writes count from when these began
    if archived and min(one.time for one in earlier) <= time < max(first, *archived):
        raise OptionError(
            f"{option} is {time}, and the timeline before {first} was archived: its files may be"
            " gone"
        )
    cleans = [instant for instant in timeline.instants() if instant.action == CLEAN]
    kept = max((earliest_kept_by(table, one) for one in cleans), default="")
    # a clean goes by when writes began: one that began before the kept one may have completed after it
    since = max(
        when for begun, when in [(kept, times.get(kept, kept)), *times.items()] if begun <= kept
    )
    if time < since:
        raise OptionError(
            f"{option} is {time}, and files that only writes before {since} need were cleaned"
        )


def _check_history(table: HoodieTable, option: str, time: str, first: str) -> None:
    """Raise OptionError for a time before the active timeline of a table whose archive has an older form."""
    archive = table.config.history_folder
    if table.config.layout_version == 1 and time < first and table.storage.list_files(archive):
        raise OptionError(
            f"{option} is {time}, and the timeline before {first} was archived in the form of table version"
            " 6, which the lab does not read"
        )


def _archived(table: HoodieTable) -> list[ArchivedInstant]:
    """The writes that were archived from the active timeline."""
    if table.config.layout_version == 1:
        return []
    return [i for i in table.archived_timeline().instants() if i.action in WRITE_ACTIONS]


def _time(reader: OptionReader, key: str) -> str:
    """An instant time: digits as given, or a date with or without a time of day; "" if it is not set.

    All are in the time zone of the table's instants. As in Hudi, digits are compared as text, and a time of
    day without milliseconds is the end of its second. 0 is before all times. Other numbers of digits are
    refused: Hudi takes some for seconds since 1970.
    """
    text = reader.text(key, "")
    if not reader.given(key) or re.fullmatch(r"0+|[0-9]{14}|[0-9]{17}", text):
        return text
    for form, milliseconds in _DATES.items():
        try:
            moment = datetime.strptime(text, form) + timedelta(milliseconds=milliseconds)
            return format_instant_time(moment)
        except ValueError:
            continue
    raise OptionError(
        f"{key} is {text!r}, expected yyyyMMddHHmmss[SSS], yyyy-MM-dd or yyyy-MM-dd HH:mm:ss[.SSS]"
    )
