"""The record merger: RFC-46's component that says what becomes of two versions of a record.

Owns the interface that users implement, the choice among implementations, and the folding of whole
batches by one. Must not know files or strategies. Sources: RFC-46 (HoodieRecordMerger, MERGER_IMPLS),
BufferedRecordMergerFactory (CustomRecordMerger: deletes obey ordering values before a merger is asked).
"""

from __future__ import annotations

import importlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import OptionError, SchemaError
from serde_lab.records.histories import History, Sources
from serde_lab.records.fields import values_at
from serde_lab.records.ordering import not_older
from serde_lab.records.schema import RecordSchema

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
CUSTOM_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"

IMPLEMENTATIONS = "hoodie.write.record.merge.custom.implementation.classes"
STRATEGY_ID = "hoodie.write.record.merge.strategy.id"

ANY = "*"
"""Among record types: whatever a record is."""
ARROW = "ARROW"
"""The record type of everything that reads tables: snapshots, compactions."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of n pairs of records: `rows` has one a pair, in their order.

    `deleted`: pairs of which nothing stays (their rows say nothing). `older_stands`: pairs of which the
    older record stays just as it is.
    """

    rows: pa.RecordBatch
    deleted: Mask | None = None
    older_stands: Mask | None = None

    @classmethod
    def chosen(cls, older: pa.RecordBatch, newer: pa.RecordBatch, take_newer: Mask) -> Merged:
        """One of the two records of each pair."""
        rows = len(take_newer)
        at = np.where(take_newer, np.arange(rows) + rows, np.arange(rows))
        return cls(pa.concat_batches([older, newer]).take(pa.array(at)), None, ~take_newer)


class RecordMerger(ABC):
    """Merges two versions of each of many records. Stateless; made without arguments, in every worker.

    `merge` must be associative, f(a, f(b, c)) = f(f(a, b), c): where a batch or a log holds a key several
    times its versions are merged one after the other, in the order in which they came, before the outcome
    meets what is stored. Deletes are none of its business.
    """

    strategy_id: ClassVar[str]
    """The UUID of the semantics: a property of the table, shared by all implementations of them."""
    record_types: ClassVar[Sequence[str]] = (ANY,)
    """Strategies that it is for, in capitals (ARROW, INTERNAL_ROW, …); reading asks for ARROW."""
    phase: ClassVar[str] = "merge"
    """The phase that its time is booked on."""

    @abstractmethod
    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Merge record i of `older` with record i of `newer`, which have equal keys and equal columns.

        The columns are those of `schema.data`, and while a table is read also others (meta columns, or
        fewer data columns if fewer are asked for), which must come out as they came in.
        """

    def pre_combine(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Two records of one batch, before either meets what is stored: merged, too, unless overridden."""
        return self.merge(older, newer, schema, properties)

    def partial_merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        given: Sequence[str],
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Like `merge` where the newer records have only the columns `given`: the others are the older's.

        That is what this does: fill, then merge.
        """
        columns = [
            newer.column(name) if name in given else older.column(name)
            for name in newer.schema.names
        ]
        whole = pa.RecordBatch.from_arrays(columns, schema=newer.schema)
        return self.merge(older, whole, schema, properties)


class CommitTimeMerger(RecordMerger):
    """The newer record, as COMMIT_TIME_ORDERING has it (org.apache.hudi's OverwriteWithLatestMerger)."""

    strategy_id = COMMIT_TIME_STRATEGY

    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Source: org.apache.hudi.common.model.OverwriteWithLatestMerger."""
        return Merged(newer)


class EventTimeMerger(RecordMerger):
    """The record of the higher ordering value, ties to the newer (DefaultSparkRecordMerger)."""

    strategy_id = EVENT_TIME_STRATEGY

    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Source: org.apache.hudi.DefaultSparkRecordMerger."""
        wins = not_older(
            [values_at(older, name) for name in schema.ordering],
            [values_at(newer, name) for name in schema.ordering],
        )
        return Merged.chosen(older, newer, wins)


@dataclass(frozen=True, slots=True)
class Folded:
    """A batch or log with one entry a key: `tops` are the entries that stand, in order of position.

    `row` is each one's row in `rows`, or -1 for a delete. `made_of`: the rows that each row was filled
    from, where that is how rows are made.
    """

    tops: Indices
    rows: pa.RecordBatch
    row: Indices
    made_of: Sources | None = None
    always: Mask | None = None
    """Deletes that a merger decided on count whatever ordering value they meet; None for no such."""


Combined = Merged


class Combiner(Protocol):
    """What merges rows where choosing one of them is not enough. Picklable."""

    @property
    def phase(self) -> str:
        """The phase that its time is booked on."""

    def fold(self, rows: pa.RecordBatch, history: History, row: Indices) -> Folded:
        """One entry a key; `row`: each entry's row in `rows`, or -1."""

    def combine(self, older: pa.RecordBatch, newer: pa.RecordBatch, newer_wins: Mask) -> Combined:
        """Two versions of each record; `newer_wins` by ordering value."""


@dataclass(frozen=True, slots=True)
class MergerCombiner:
    """Whole batches by a RecordMerger. A key's versions are merged in turns, all keys at once."""

    merger: RecordMerger
    schema: RecordSchema
    properties: Mapping[str, str] = field(default_factory=dict)
    in_log: bool = False
    """Whether `fold` works on a log, whose entries were written one after the other."""

    @property
    def phase(self) -> str:
        """The merger's own."""
        return self.merger.phase

    def combine(self, older: pa.RecordBatch, newer: pa.RecordBatch, newer_wins: Mask) -> Combined:
        """By the merger, whatever the ordering values."""
        return self._checked(self.merger.merge, older, newer)

    def pre_combine(self, older: pa.RecordBatch, newer: pa.RecordBatch) -> Combined:
        """Two entries of a batch or log."""
        merge = self.merger.merge if self.in_log else self.merger.pre_combine
        return self._checked(merge, older, newer)

    def _checked(
        self,
        merge: Callable[[pa.RecordBatch, pa.RecordBatch, RecordSchema, Mapping[str, str]], Merged],
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
    ) -> Merged:
        if not older.num_rows:
            return Merged(newer)
        merged = merge(older, newer, self.schema, self.properties)
        if merged.rows.num_rows != newer.num_rows or merged.rows.schema != newer.schema:
            raise SchemaError(
                f"{name_of(self.merger)} was given {newer.num_rows} pairs of"
                f" {', '.join(newer.schema.names)} and gave {merged.rows.num_rows} rows of"
                f" {', '.join(merged.rows.schema.names)}"
            )
        return merged

    def fold(self, rows: pa.RecordBatch, history: History, row: Indices) -> Folded:
        """Turn t merges every key's entry t into what its entries before it have become."""
        order = np.argsort(history.group, kind="stable")
        group = history.group[order]
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else group
        sizes = np.diff(np.append(starts, len(group)))
        # keys with many entries first: each turn works on a prefix of them
        keys = np.argsort(-sizes, kind="stable")
        starts, sizes = starts[keys], sizes[keys]
        state = _State.first(self, rows, history, row, order[starts] if len(starts) else starts)
        done: list[_State] = []
        turn = 1
        while len(state):
            active = int(np.searchsorted(-sizes, -turn))
            done.append(state.slice(active, len(state)))
            state = state.slice(0, active)
            if active:
                state = state.after(self, rows, history, row, order[starts[:active] + turn])
            turn += 1
        return _State.gathered(done, rows.schema)


@dataclass(frozen=True, slots=True)
class _State:
    """What the entries of some keys have become so far."""

    tops: Indices
    rows: pa.RecordBatch
    """A row a key, which says nothing of keys that are deleted."""
    ordering: list[pa.Array]
    deleted: Mask
    always: Mask

    def __len__(self) -> int:
        return len(self.tops)

    @classmethod
    def first(
        cls,
        combiner: MergerCombiner,
        rows: pa.RecordBatch,
        history: History,
        row: Indices,
        entries: Indices,
    ) -> _State:
        return cls(
            entries,
            _rows_of(rows, row[entries]),
            [values.take(pa.array(entries)) for values in history.ordering],
            history.deleted[entries],
            history.always[entries],
        )

    def slice(self, start: int, end: int) -> _State:
        return _State(
            self.tops[start:end],
            self.rows.slice(start, end - start),
            [values.slice(start, end - start) for values in self.ordering],
            self.deleted[start:end],
            self.always[start:end],
        )

    def after(
        self,
        combiner: MergerCombiner,
        rows: pa.RecordBatch,
        history: History,
        row: Indices,
        entries: Indices,
    ) -> _State:
        new = _State.first(combiner, rows, history, row, entries)
        wins = np.ones(len(new), np.bool_)
        if self.ordering:
            wins = new.always | self.always | not_older(self.ordering, new.ordering)
        wins &= ~(self.always & new.deleted)
        both = np.flatnonzero(~self.deleted & ~new.deleted)
        at = pa.array(both)
        merged = combiner.pre_combine(self.rows.take(at), new.rows.take(at))
        count = len(new)
        source = np.where(wins, np.arange(count) + count, np.arange(count))
        source[both] = np.arange(len(both)) + 2 * count
        made = [values_at(merged.rows, name) for name in combiner.schema.ordering if self.ordering]
        ordering = [
            pa.concat_arrays([a, b, c]).take(pa.array(source))
            for a, b, c in zip(self.ordering, new.ordering, made, strict=True)
        ]
        deleted = np.where(wins, new.deleted, self.deleted)
        always = np.where(wins, new.always, self.always)
        if merged.deleted is not None:
            deleted[both] |= merged.deleted
            always[both] |= merged.deleted
        together = pa.concat_batches([self.rows, new.rows, merged.rows])
        return _State(
            # a merged record takes the place of the newest entry that it is made of
            np.where(wins | np.isin(np.arange(count), both), new.tops, self.tops),
            together.take(pa.array(source)),
            ordering,
            deleted,
            always,
        )

    @staticmethod
    def gathered(parts: Sequence[_State], schema: pa.Schema) -> Folded:
        tops = np.concatenate([part.tops for part in parts]) if parts else np.empty(0, np.int64)
        if not parts:
            return Folded(tops, pa.RecordBatch.from_pylist([], schema), tops)
        rows = pa.concat_batches([part.rows for part in parts])
        order = np.argsort(tops, kind="stable")
        deleted = np.concatenate([part.deleted for part in parts])[order]
        always = np.concatenate([part.always for part in parts])[order]
        number = np.full(len(tops), -1, np.int64)
        number[~deleted] = np.arange(int((~deleted).sum()))
        kept = rows.take(pa.array(order[~deleted]))
        return Folded(tops[order], kept, number, always=always)


def _rows_of(rows: pa.RecordBatch, numbers: Indices) -> pa.RecordBatch:
    """Rows by number; all null for -1."""
    return rows.take(pa.array(numbers, mask=numbers < 0))


def load_merger(text: str) -> RecordMerger:
    """The merger at `package.module:Class`, or one of Hudi's by its Java name. Raises OptionError."""
    known = _HUDIS.get(text)
    module_name, _, class_name = (known or text).partition(":")
    if not class_name:
        raise OptionError(
            f"{IMPLEMENTATIONS} names {text!r}, expected package.module:Class or one of"
            f" {', '.join(_HUDIS)}"
        )
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise OptionError(f"{IMPLEMENTATIONS} names {text!r}, which is not there: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, RecordMerger)):
        raise OptionError(f"{IMPLEMENTATIONS} names {text!r}, which is no RecordMerger")
    merger = found()
    try:
        uuid.UUID(merger.strategy_id)
    except (ValueError, AttributeError) as exc:
        raise OptionError(f"{text}: its strategy_id is no UUID") from exc
    return merger


def choose_merger(
    classes: Sequence[str], strategy_id: str, record_type: str, also: Sequence[str] = ()
) -> RecordMerger:
    """The first of `classes` that fits record type and strategy id.

    `also`: other ids under which a merger of PAYLOAD_STRATEGY fits. Raises OptionError saying what each
    of them offered.
    """
    offers = []
    for text in classes:
        merger = load_merger(text)
        types = tuple(merger.record_types)
        fits = merger.strategy_id == strategy_id or (
            merger.strategy_id == PAYLOAD_STRATEGY and strategy_id in also
        )
        if fits and (ANY in types or record_type in types):
            return merger
        offers.append(f"{text} offers {merger.strategy_id} for {', '.join(types)}")
    raise OptionError(
        f"no merger fits the table's strategy {strategy_id} and records of type {record_type}: "
        f"{'; '.join(offers) or f'{IMPLEMENTATIONS} names none'}"
    )


def name_of(merger: RecordMerger) -> str:
    """`package.module:Class`."""
    return f"{type(merger).__module__}:{type(merger).__qualname__}"


_HERE = "serde_lab.records.merger"
_BRIDGE = "serde_lab.records.payload_bridge:AvroRecordMerger"
_HUDIS = {
    "org.apache.hudi.common.model.HoodieAvroRecordMerger": _BRIDGE,
    "org.apache.hudi.common.model.OverwriteWithLatestMerger": f"{_HERE}:CommitTimeMerger",
    "org.apache.hudi.OverwriteWithLatestSparkRecordMerger": f"{_HERE}:CommitTimeMerger",
    "org.apache.hudi.common.model.EventTimeAvroRecordMerger": f"{_HERE}:EventTimeMerger",
    "org.apache.hudi.DefaultSparkRecordMerger": f"{_HERE}:EventTimeMerger",
}
