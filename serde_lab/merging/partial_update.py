"""Fills the gaps of a record from another version of it, as partial updates require.

A gap is a null, an agreed marker, or a column that the writer left out. Gaps are filled column by column,
without a loop over rows. Source: org.apache.hudi.common.table.read.PartialUpdateHandler. As there, only
top-level columns have gaps, and the default of a nullable column is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.merging.combiner import Entries, Folded, Indices, Mask, Present
from serde_lab.merging.histories import Sources, sources
from serde_lab.merging.merger import Merged


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
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        newer_wins: Mask,
        present: Present | None = None,
    ) -> Merged:
        """Merge two versions of each record: the winner's gaps are filled from the other version."""
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
        """One record per key, and a mask of those that differ from the winning row."""
        tops = made_of.tops
        changed = np.zeros(len(tops), np.bool_)
        columns = []
        several = len(made_of.rows) > len(tops)
        for field in rows.schema:
            values = rows.column(field.name)
            full = self._full(values, field, present or {}) if several else None
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
    place = np.arange(len(made_of.rows))
    last = np.repeat(made_of.starts[1:] - 1, np.diff(made_of.starts))
    candidates = np.where(full[made_of.rows], place, last)
    if not len(candidates):
        return made_of.tops
    return made_of.rows[np.minimum.reduceat(candidates, made_of.starts[:-1])]


def _any_of(mask: Mask, made_of: Sources) -> Mask:
    """For each record, whether `mask` is true for any of its sources."""
    if not len(made_of.rows):
        return np.empty(0, np.bool_)
    return np.logical_or.reduceat(mask[made_of.rows], made_of.starts[:-1])
