"""Combiners make one row out of several versions of a record, where choosing one of them is not enough.

Write handles and readers use the interface `Combiner`. `MergerCombiner` merges with a record merger, which
takes two versions of many records. It works in turns, on all keys at once, on Arrow batches or on the records
of a strategy. Source: BufferedRecordMergerFactory (CustomRecordMerger: ordering values decide on deletes
before a merger is called; PartialUpdateBufferedRecordMerger).

`PartialUpdateCombiner` fills the gaps of a record from another version of it. A gap is a null, an agreed
marker, or a column that the writer left out. Gaps are filled column by column, without a loop over rows.
Source: org.apache.hudi.common.table.read.PartialUpdateHandler. As there, only top-level columns have gaps,
and the default of a nullable column is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.merging.merger import (
    Merged,
    MergedTable,
    RecordMerger,
    RecordSerde,
    Rows,
    checked,
    together,
)
from serde_lab.merging.survivors import EntryHistory, Indices, Mask, Sources, not_older, sources
from serde_lab.records.schema import RecordSchema, values_at

Present = Mapping[str, Mask]
"""For each column that some writers left out, which rows have it."""


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries of a batch or log: `history` describes them, `row` is each one's row in `rows` or -1.

    `present` refers to `rows` and is given if they come from partial log blocks. Values that a row lacks
    are null in it.
    """

    rows: Rows
    history: EntryHistory
    row: Indices
    present: Present | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """A batch or log reduced to one entry per key: `tops` are the winning entries, in order of position.

    `row` is each one's row in `rows`, or -1 for a delete. `present` refers to `rows`; None means that all
    rows have all columns.
    """

    tops: Indices
    rows: Rows
    row: Indices
    present: Present | None = None
    always: Mask | None = None
    """Deletes decided by a merger, which count whatever ordering value they meet; None: no such delete."""


class Combiner(Protocol):
    """Merges rows where choosing one of them is not enough. Picklable."""

    @property
    def phase(self) -> str:
        """The phase to which its time is assigned."""

    def fold(self, entries: Entries) -> Folded:
        """Reduce the entries to one per key."""

    def combine(
        self, older: Rows, newer: Rows, newer_wins: Mask, present: Present | None = None
    ) -> Merged:
        """Merge two versions of each record; `newer_wins` is decided by ordering value.

        `present` is as in `Entries` and refers to `newer`.
        """


@dataclass(frozen=True, slots=True)
class MergerCombiner:
    """Merges whole batches with a RecordMerger: a key's versions in turns, all keys at once.

    `serde`: the bound SerDe of the rows, if they are a strategy's records; None if they are Arrow batches.
    """

    merger: RecordMerger
    schema: RecordSchema
    properties: Mapping[str, str] = field(default_factory=dict)
    in_log: bool = False
    """Whether `fold` works on a log, whose entries were written one after the other."""
    serde: RecordSerde | None = None

    @property
    def phase(self) -> str:
        return self.merger.phase

    @property
    def _table(self) -> MergedTable:
        return MergedTable(self.schema, self.properties, self.serde)

    def _checked(self, newer: Rows, merged: Merged) -> Merged:
        return checked(self.merger, newer, merged, self.schema.record_key)

    def combine(
        self, older: Rows, newer: Rows, newer_wins: Mask, present: Present | None = None
    ) -> Merged:
        """Merge with the merger, regardless of ordering values."""
        if not len(older):
            return Merged(newer)
        if present:
            return self._by_given(older, newer, present)
        return self._checked(newer, self.merger.merge(older, newer, self._table))

    def pre_combine(self, older: Rows, newer: Rows, present: Present) -> Merged:
        """Merge two entries of a batch or log."""
        if self.in_log or present or not len(older):
            return self.combine(older, newer, np.ones(len(newer), np.bool_), present)
        return self._checked(newer, self.merger.pre_combine(older, newer, self._table))

    def _by_given(self, older: pa.RecordBatch, newer: pa.RecordBatch, present: Present) -> Merged:
        """Merge with `partial_merge`, all rows that have the same columns at once."""
        masks = np.stack(list(present.values()), axis=1)
        patterns, of_row = np.unique(masks, axis=0, return_inverse=True)
        rows = []
        deleted, older_kept = (np.zeros(newer.num_rows, np.bool_) for _ in range(2))
        for number, pattern in enumerate(patterns):
            at = np.flatnonzero(of_row.reshape(-1) == number)
            there = dict(zip(present, pattern, strict=True))
            given = [name for name in newer.schema.names if there.get(name, True)]
            old, new = (side.take(pa.array(at)) for side in (older, newer))
            one = self._checked(new, self.merger.partial_merge(old, new, given, self._table))
            rows.append(one.rows)
            deleted[at] = False if one.deleted is None else one.deleted
            older_kept[at] = False if one.older_kept is None else one.older_kept
        back = np.argsort(np.argsort(of_row.reshape(-1), kind="stable"))
        return Merged(pa.concat_batches(rows).take(pa.array(back)), deleted, older_kept)

    def fold(self, entries: Entries) -> Folded:
        """Reduce the entries to one per key; turn t merges entry t of every key into the result so far."""
        order = np.argsort(entries.history.group, kind="stable")
        group = entries.history.group[order]
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else group
        sizes = np.diff(np.append(starts, len(group)))
        # keys with the most entries first, so that each turn works on a prefix of them
        keys = np.argsort(-sizes, kind="stable")
        starts, sizes = starts[keys], sizes[keys]
        state = _State.first(entries, order[starts] if len(starts) else starts)
        done: list[_State] = []
        turn = 1
        while len(state):
            active = int(np.searchsorted(-sizes, -turn))
            done.append(state.slice(active, len(state)))
            state = state.slice(0, active)
            if active:
                state = state.after(self, entries, order[starts[:active] + turn])
            turn += 1
        return _State.gathered(done, entries)


@dataclass(frozen=True, slots=True)
class _State:
    """The result so far of merging the entries of some keys.

    `row` numbers each key's row: first the rows of the entries, then those of `made`, which mergers made in
    the last turn or before. Rows of deleted keys have no meaning; -1 is none.
    """

    tops: Indices
    row: Indices
    made: Rows | None
    ordering: list[pa.Array]
    deleted: Mask
    always: Mask
    present: Present

    def __len__(self) -> int:
        return len(self.tops)

    @classmethod
    def first(cls, entries: Entries, at: Indices) -> _State:
        history, row = entries.history, entries.row[at]
        return cls(
            at,
            row,
            None,
            [values.take(pa.array(at)) for values in history.ordering],
            history.deleted[at],
            history.always[at],
            # the appended place is for entries without a row, whose index is -1
            {name: np.append(mask, False)[row] for name, mask in (entries.present or {}).items()},
        )

    def slice(self, start: int, end: int) -> _State:
        return _State(
            self.tops[start:end],
            self.row[start:end],
            self.made,
            [values.slice(start, end - start) for values in self.ordering],
            self.deleted[start:end],
            self.always[start:end],
            {name: mask[start:end] for name, mask in self.present.items()},
        )

    def rows_at(self, entries: Entries, at: Indices) -> Rows:
        """The rows of the keys numbered `at`, which are not deleted."""
        numbers, first = self.row[at], len(entries.rows)
        if self.made is None or not len(at) or numbers.max() < first:
            return entries.rows.take(numbers)
        if numbers.min() >= first:
            return self.made.take(numbers - first)
        is_made = numbers >= first
        both = [entries.rows.take(numbers[~is_made]), self.made.take(numbers[is_made] - first)]
        return together(both).take(np.argsort(np.argsort(is_made, kind="stable")))

    def after(self, combiner: MergerCombiner, entries: Entries, at: Indices) -> _State:
        new = _State.first(entries, at)
        wins = np.ones(len(new), np.bool_)
        if self.ordering:
            wins = new.always | self.always | not_older(self.ordering, new.ordering)
        wins &= ~(self.always & new.deleted)
        is_pair = ~self.deleted & ~new.deleted
        both = np.flatnonzero(is_pair)
        present = {name: mask[both] for name, mask in new.present.items()}
        older, newer = self.rows_at(entries, both), new.rows_at(entries, both)
        merged = combiner.pre_combine(older, newer, present)
        count, first = len(new), len(entries.rows)
        row = np.where(wins, new.row, self.row)
        # rows that were made before and stay, since the new entry is a delete that loses
        kept = np.flatnonzero(~is_pair & (row >= first))
        made = together([merged.rows, self.rows_at(entries, kept)]) if len(kept) else merged.rows
        row[both] = first + np.arange(len(both))
        row[kept] = first + len(both) + np.arange(len(kept))
        source = np.where(wins, np.arange(count) + count, np.arange(count))
        source[both] = np.arange(len(both)) + 2 * count
        names = combiner.schema.ordering if self.ordering else ()
        ordering = [
            pa.concat_arrays([a, b, values_at(merged.rows, name)]).take(pa.array(source))
            for a, b, name in zip(self.ordering, new.ordering, names, strict=True)
        ]
        deleted = np.where(wins, new.deleted, self.deleted)
        always = np.where(wins, new.always, self.always)
        if merged.deleted is not None:
            deleted[both] |= merged.deleted
            always[both] |= merged.deleted
        return _State(
            # a merged record has the position of the newest entry that it is made of
            np.where(wins | is_pair, new.tops, self.tops),
            row,
            made,
            ordering,
            deleted,
            always,
            {
                name: np.where(
                    is_pair, old | new.present[name], np.where(wins, new.present[name], old)
                )
                for name, old in self.present.items()
            },
        )

    @staticmethod
    def gathered(parts: Sequence[_State], entries: Entries) -> Folded:
        """The final result; `parts` are the states of all keys."""
        parts = [part for part in parts if len(part)]
        if not parts:
            none = np.empty(0, np.int64)
            return Folded(none, entries.rows, none)
        tops = np.concatenate([part.tops for part in parts])
        order = np.argsort(tops, kind="stable")
        deleted = np.concatenate([part.deleted for part in parts])[order]
        always = np.concatenate([part.always for part in parts])[order]
        number = np.full(len(tops), -1, np.int64)
        number[~deleted] = np.arange(int((~deleted).sum()))
        kept = order[~deleted]
        pools, numbers, first = [entries.rows], [], len(entries.rows)
        for part in parts:
            begins = sum(map(len, pools)) - first
            numbers.append(np.where(part.row < first, part.row, part.row + begins))
            pools += [] if part.made is None else [part.made]
        rows = together(pools).take(np.concatenate(numbers)[kept])
        present = None
        if entries.present is not None:
            present = {
                name: np.concatenate([part.present[name] for part in parts])[kept]
                for name in entries.present
            }
        return Folded(tops[order], rows, number, present, always)


class PartialUpdate(StrEnum):
    """`hoodie.table.partial.update.mode`; KEEP_VALUES is for partial log blocks."""

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
    KEEP_VALUES = "KEEP_VALUES"


@dataclass(frozen=True, slots=True)
class PartialUpdateCombiner:
    """Fills the gaps of rows; `unavailable` is the marker of FILL_UNAVAILABLE. Picklable."""

    mode: PartialUpdate
    unavailable: str = ""
    phase = "merge"

    def fold(self, entries: Entries) -> Folded:
        """Make one record per key out of all its entries."""
        history, present = entries.history, entries.present
        found = sources(history)
        tops = found.tops
        is_row = ~history.deleted[tops]
        sizes = np.diff(found.starts)
        made_of = Sources(
            entries.row[found.rows[np.repeat(is_row, sizes)]],
            np.append(0, np.cumsum(sizes[is_row])),
        )
        filled, _ = self.filled(entries.rows, made_of, present)
        numbers = np.full(len(tops), -1, np.int64)
        numbers[is_row] = np.arange(int(is_row.sum()))
        there = None
        if present is not None:
            there = {name: _any_of(mask, made_of) for name, mask in present.items()}
        return Folded(tops, filled, numbers, there)

    def combine(
        self, older: Rows, newer: Rows, newer_wins: Mask, present: Present | None = None
    ) -> Merged:
        """Fill the winner's gaps from the other one. An older record that wins is kept if it has no gap."""
        rows = older.num_rows
        first = np.where(newer_wins, np.arange(rows) + rows, np.arange(rows))
        pairs = np.stack([first, 2 * np.arange(rows) + rows - first], axis=1).reshape(-1)
        whole = np.ones(rows, np.bool_)
        of_both = {name: np.append(whole, mask) for name, mask in (present or {}).items()}
        made_of = Sources(pairs, np.arange(0, 2 * rows + 1, 2))
        filled, changed = self.filled(pa.concat_batches([older, newer]), made_of, of_both)
        return Merged(filled, None, ~newer_wins & ~changed)

    def filled(
        self, rows: pa.RecordBatch, made_of: Sources, present: Present | None = None
    ) -> tuple[pa.RecordBatch, Mask]:
        """One record per key, and a mask of those whose winning row has a gap."""
        tops = made_of.tops
        changed = np.zeros(len(tops), np.bool_)
        columns = []
        several = len(made_of.rows) > len(tops)
        for column in rows.schema:
            values = rows.column(column.name)
            full = self._full(values, column, present or {}) if several else None
            if full is None:
                columns.append(values.take(pa.array(tops)))
                continue
            chosen = _first_full(full, made_of)
            changed |= chosen != tops
            columns.append(values.take(pa.array(chosen)))
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema), changed

    def _full(self, values: pa.Array, field: pa.Field, present: Present) -> Mask | None:
        """Which rows have no gap in a column; None if there are no gaps."""
        if self.mode is PartialUpdate.KEEP_VALUES:
            return present.get(field.name)
        if self.mode is PartialUpdate.IGNORE_DEFAULTS:
            if not values.null_count:
                return None
            return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
        text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        if not text or not self.unavailable:
            return None
        marker = pa.scalar(self.unavailable.encode()).cast(field.type)
        gaps = pc.fill_null(pc.equal(values, marker), False).to_numpy(zero_copy_only=False)
        return ~gaps if gaps.any() else None


def _first_full(full: Mask, made_of: Sources) -> Indices:
    """The first source of each key without a gap, or its last source if all have one."""
    last = np.repeat(made_of.starts[1:] - 1, np.diff(made_of.starts))
    candidates = np.where(full[made_of.rows], np.arange(len(made_of.rows)), last)
    if not len(candidates):
        return made_of.tops
    return made_of.rows[np.minimum.reduceat(candidates, made_of.starts[:-1])]


def _any_of(mask: Mask, made_of: Sources) -> Mask:
    """For each record, whether `mask` is true for any of its sources."""
    if not len(made_of.rows):
        return np.empty(0, np.bool_)
    return np.logical_or.reduceat(mask[made_of.rows], made_of.starts[:-1])
