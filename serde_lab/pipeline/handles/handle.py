"""The base class of the handles that write a file group, and their first step: one record per key.

`file_groups.py` chooses the handle. Source: org.apache.hudi.io.HoodieWriteHandle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError
from serde_lab.merging.combiner import Combiner, Entries, MergerCombiner
from serde_lab.merging.merger import Rows
from serde_lab.merging.rules import deletes_of, null_among
from serde_lab.merging.survivors import Deletes, EntryHistory, Indices, MergeMode, precombine
from serde_lab.pipeline.exchange.routing import Task
from serde_lab.pipeline.exchange.timed_serde import untimed
from serde_lab.pipeline.plan import WritePlan
from serde_lab.records.buffers import HashedKeys, repeated
from serde_lab.records.operation import Operation
from serde_lab.records.schema import values_at
from serde_lab.serde.interface import Records
from serde_lab.table.timeline.commit_metadata import WriteStat

_PIECE_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Candidates:
    """One record per key of a batch: `chosen` indexes `records`, None means all of them.

    `keys` and `ordering` belong to the chosen records and are read and hashed only once. The records are
    gathered once, after it is known which of them are written (`rows`). `deletes` says which chosen
    records delete their keys; None if none does.
    """

    records: Records
    chosen: Indices | None
    keys: HashedKeys
    ordering: list[pa.Array]
    deletes: Deletes | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, surviving: Indices | None = None) -> Indices | None:
        """Indexes into `records` of the candidates numbered `surviving` (None: all); None for all records."""
        if surviving is None or len(surviving) == len(self):
            return self.chosen
        return surviving if self.chosen is None else self.chosen[surviving]


@dataclass(frozen=True, slots=True)
class Combined:
    """One entry per key where rows are combined from several: like `Candidates`, but already combined.

    `row` is each entry's row in `rows`, or -1 for a delete. `rows` are Arrow's data columns, or records for
    a merger that declares their type.
    """

    keys: HashedKeys
    ordering: list[pa.Array]
    row: Indices
    always: npt.NDArray[np.bool_]
    rows: Rows


class WriteHandle(ABC):
    """Writes the records of one file group: `write` once per shard, then `finish` once."""

    def __init__(self, task: Task) -> None:
        self.task = task
        with task.timeline.phase("merge"):
            combiner = task.plan.combiner()
        self.combiner: Combiner | None = combiner
        self.serde = combiner.serde if isinstance(combiner, MergerCombiner) else None
        """Makes the records that the merger is given; None if it is given Arrow batches."""

    @abstractmethod
    def write(self, records: Records) -> None:
        """Take the records of one shard, in input order; all records of a key are in one shard."""

    @abstractmethod
    def finish(self) -> Iterator[WriteStat]:
        """Finish the files; one stat per file."""

    def precombined(self, records: Records) -> Candidates:
        """One record per key: any of them for a delete, otherwise the one chosen by the table's ordering."""
        with self.task.timeline.phase("precombine"):
            return precombined(self.task.plan, records)

    def converted(
        self, records: Records, rows: Indices | None, phase: str
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Record keys and data of the records at `rows` (None: all), gathered under the phase `phase`.

        A large shard comes in pieces, so that memory never holds all of it in both forms.
        """
        pieces = records.pieces(_PIECE_ROWS, rows)
        while True:
            with self.task.timeline.phase(phase):
                piece = next(pieces, None)
            if piece is None:
                return
            with self.task.timeline.phase(self.task.convert_out):
                found = piece.to_rows()
            del piece
            yield found

    def converted_rows(
        self, keys: pa.Array, rows: Rows, at: Indices, phase: str
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Like `converted`, for combined rows, whose record keys are `keys` (one for each of `at`)."""
        if self.serde is not None:
            yield from self.converted(rows, at, phase)
            return
        with self.task.timeline.phase(phase):
            data = rows.take(at)
        yield keys, data

    def combined(self, records: Records) -> Combined:
        """One entry per key where records are combined.

        They are converted to Arrow first, then merged. For a merger that declares their type they stay as
        they are, and all work on them is merging until they are converted out.
        """
        plan, timeline = self.task.plan, self.task.timeline
        combiner = self.combiner
        assert combiner is not None
        rows: Rows = records
        if self.serde is None:
            with timeline.phase(self.task.convert_out):
                texts, rows = records.to_rows()
        with timeline.phase("precombine"):
            keys = HashedKeys.of(texts if self.serde is None else records.record_keys())
            by_event = plan.merge_mode is not MergeMode.COMMIT_TIME
            fields = plan.schema.ordering if by_event else ()
            ordering = [values_at(rows, name) for name in fields]
            marked = plan.merge_rules.markers.marked(rows, plan.schema.data.names)
            if marked is None:
                marked = np.zeros(len(keys), np.bool_)
            deletes = _deletes(plan, rows, marked, ordering)
            data = rows if self.serde is None else untimed(records)
            row = np.where(deletes.marked, -1, np.arange(len(keys)))
            once = precombine(keys, []) is None
            if not once:
                _refuse_doubles(plan, keys)
                group = keys.values.dictionary_encode().indices.to_numpy().astype(np.int64)
                history = EntryHistory(group, ordering, deletes.marked, deletes.always)
        if once:
            return Combined(keys, ordering, row, deletes.always, data)
        with timeline.phase(combiner.phase if combiner.phase != "merge" else "precombine"):
            folded = combiner.fold(Entries(data, history, row))
            at = pa.array(folded.tops)
            always = deletes.always[folded.tops] if folded.always is None else folded.always
            is_row = folded.row >= 0
            # a combined row has its own ordering values; the winning record may have contributed only
            # some columns
            values = [
                pc.if_else(
                    pa.array(is_row),
                    values_at(folded.rows, name).take(pa.array(folded.row, mask=~is_row)),
                    old.take(at),
                )
                for name, old in zip(fields, ordering, strict=True)
            ]
            return Combined(keys.take(folded.tops), values, folded.row, always, folded.rows)


def summed_stat(written: Sequence[WriteStat]) -> WriteStat:
    """The stat of the last of these base files, with the counts of all: in one instant, each has replaced
    the one before.
    """
    return replace(
        written[-1],
        prevCommit=written[0].prevCommit,
        prevBaseFile=written[0].prevBaseFile,
        numInserts=sum(stat.numInserts for stat in written),
        numUpdateWrites=sum(stat.numUpdateWrites for stat in written),
        numDeletes=sum(stat.numDeletes for stat in written),
    )


def refuse_markers(plan: WritePlan, rows: Records | pa.RecordBatch) -> None:
    """Raise DataError if a write that keeps all its rows has rows marked as deletes."""
    marked = plan.merge_rules.markers.marked(rows, plan.schema.data.names)
    if marked is not None:
        raise DataError(
            f"{int(marked.sum())} rows are marked as deletes, and {plan.operation} deletes nothing",
            hint="write them by upsert",
        )


def precombined(plan: WritePlan, records: Records) -> Candidates:
    """One record per key of `records`, which are in input order."""
    # deletes have no row and so no ordering value; by commit time the later position wins, as in Hudi's
    # writer
    ordered = plan.operation is not Operation.DELETE and plan.merge_mode is MergeMode.EVENT_TIME
    keys = HashedKeys.of(records.record_keys())
    ordering = records.ordering_values() if ordered else []
    deletes = None
    if plan.operation.merges:
        marked = plan.merge_rules.markers.marked(records, plan.marker_columns)
        deletes = None if marked is None else _deletes(plan, records, marked, ordering)
    chosen = precombine(keys, ordering, deletes=deletes)
    if chosen is None:
        return Candidates(records, None, keys, ordering, deletes)
    _refuse_doubles(plan, keys)
    at = pa.array(chosen)
    of_chosen = None if deletes is None else deletes.take(chosen)
    values = [v.take(at) for v in ordering]
    return Candidates(records, chosen, keys.take(chosen), values, of_chosen)


def _refuse_doubles(plan: WritePlan, keys: HashedKeys) -> None:
    """Raise DataError, for `keys` of which some occur twice, if the write may not combine them."""
    if plan.combines:
        return
    often = repeated(keys.values)
    raise DataError(
        f"record key {often[0].as_py()!r} occurs more than once in the data: Apache Hudi's {plan.operation}"
        " keeps all of its rows, and the lab's keeps one",
        hint="set hoodie.combine.before.insert=true, which keeps one in both",
    )


def _deletes(
    plan: WritePlan,
    rows: Rows,
    marked: npt.NDArray[np.bool_],
    ordering: Sequence[pa.Array],
) -> Deletes:
    """Marked rows as deletes. Raises DataError for one with a null ordering value.

    Null is lower than any value, and a delete block cannot express that. The delete that a record leaves
    behind in its old partition has been compared already, and deletes unconditionally.
    """
    deletes = deletes_of(marked, ordering)
    nulls = null_among(ordering)
    if nulls is None:
        return deletes
    by_column = plan.merge_rules.markers.marked(rows, plan.schema.data.names)
    count = 0 if by_column is None else int((by_column & nulls).sum())
    if count:
        fields = ", ".join(repr(name) for name in plan.schema.ordering)
        raise DataError(
            f"{count} rows are marked as deletes and have a null ordering value ({fields})",
            hint="give them one, or delete their keys by the operation delete",
        )
    return replace(deletes, always=deletes.always | (marked & nulls))
