"""Partial updates: a record whose gaps are filled from another version of it.

Owns what a gap is (a null, an agreed marker, a column that the writer left out) and the filling, column
by column, without a loop over rows. Must not know files. Source:
org.apache.hudi.common.table.read.PartialUpdateHandler; only top-level columns have gaps there, too, and
the default of a nullable column is null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.histories import History, Sources, sources
from serde_lab.records.merger import Combined, Folded

Mask = npt.NDArray[np.bool_]
Present = Callable[[str], Mask | None]
"""Of a column: in which rows its writer gave it; None for all of them."""


class PartialUpdate(StrEnum):
    """`hoodie.table.partial.update.mode`; KEEP_VALUES is what partial log blocks ask for."""

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
    KEEP_VALUES = "KEEP_VALUES"


@dataclass(frozen=True, slots=True)
class PartialUpdateCombiner:
    """Fills gaps of rows; `unavailable` is the marker of FILL_UNAVAILABLE. Picklable."""

    mode: PartialUpdate
    unavailable: str = ""
    phase = "merge"

    def fold(self, rows: pa.RecordBatch, history: History, row: npt.NDArray[np.int64]) -> Folded:
        """One record a key out of all entries of a batch or log; `row`: each entry's row, or -1."""
        return self.fold_present(rows, history, row, lambda name: None)

    def fold_present(
        self,
        rows: pa.RecordBatch,
        history: History,
        row: npt.NDArray[np.int64],
        present: Present,
    ) -> Folded:
        """The same of rows that lack columns."""
        found = sources(history, late_too=self.mode is not PartialUpdate.KEEP_VALUES)
        tops = found.tops
        is_row = ~history.deleted[tops]
        sizes = np.diff(found.starts)
        made_of = Sources(
            row[found.rows[np.repeat(is_row, sizes)]],
            np.append(0, np.cumsum(sizes[is_row])),
        )
        filled, _ = self.filled(rows, made_of, present)
        numbers = np.full(len(tops), -1, np.int64)
        numbers[is_row] = np.arange(int(is_row.sum()))
        return Folded(tops, filled, numbers, made_of)

    def combine(self, older: pa.RecordBatch, newer: pa.RecordBatch, newer_wins: Mask) -> Combined:
        """Two versions of each record, the winner of each pair filled from the other."""
        return self.combine_present(older, newer, newer_wins, lambda name: None)

    def combine_present(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        newer_wins: Mask,
        present: Present,
    ) -> Combined:
        """The same of newer versions that lack columns; `present` speaks of their rows."""
        rows = older.num_rows
        if self.mode is PartialUpdate.KEEP_VALUES:
            order = np.where(newer_wins, np.arange(rows) + rows, np.arange(rows))
            pairs = np.stack([order, np.arange(rows)], axis=1).reshape(-1)
        else:
            first = np.where(newer_wins, np.arange(rows) + rows, np.arange(rows))
            pairs = np.stack([first, 2 * np.arange(rows) + rows - first], axis=1).reshape(-1)
        together = pa.concat_batches([older, newer])

        def of_both(name: str) -> Mask | None:
            given = present(name)
            return None if given is None else np.append(np.ones(rows, np.bool_), given)

        starts = np.arange(0, 2 * rows + 1, 2)
        filled, changed = self.filled(together, Sources(pairs, starts), of_both)
        return Combined(filled, None, ~newer_wins & ~changed)

    def filled(
        self, rows: pa.RecordBatch, made_of: Sources, present: Present
    ) -> tuple[pa.RecordBatch, Mask]:
        """One record a key; and which of them differ from the row that stands."""
        tops = made_of.tops
        changed = np.zeros(len(tops), np.bool_)
        columns = []
        several = len(made_of.rows) > len(tops)
        for field in rows.schema:
            values = rows.column(field.name)
            full = self._full(values, field, present) if several else None
            if full is None:
                columns.append(values.take(pa.array(tops)))
                continue
            chosen = _first_full(full, made_of)
            changed |= chosen != tops
            columns.append(values.take(pa.array(chosen)))
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema), changed

    def _full(self, values: pa.Array, field: pa.Field, present: Present) -> Mask | None:
        """Rows that have no gap in a column; None where none has one."""
        if self.mode is PartialUpdate.KEEP_VALUES:
            return present(field.name)
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


def _first_full(full: Mask, made_of: Sources) -> npt.NDArray[np.int64]:
    """Of each key its first source without a gap; where all have one, the last of them."""
    place = np.arange(len(made_of.rows))
    last = np.repeat(made_of.starts[1:] - 1, np.diff(made_of.starts))
    candidates = np.where(full[made_of.rows], place, last)
    if not len(candidates):
        return made_of.tops
    return made_of.rows[np.minimum.reduceat(candidates, made_of.starts[:-1])]
