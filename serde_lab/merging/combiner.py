"""Combiners: what makes one row of several where choosing one of them is not enough.

Owns the interface that handles and readers merge by. Must not know files or strategies, nor how a table
comes by its combiner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.merging.histories import History
from serde_lab.merging.merger import Merged

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Present = Mapping[str, Mask]
"""Of columns that some writers left out: which rows have them."""


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries of a batch or log: what `history` says of each, and `row`, its row in `rows` or -1.

    `present` speaks of `rows`, and is given where they come from partial log blocks; what a row lacks is
    null in it.
    """

    rows: pa.RecordBatch
    history: History
    row: Indices
    present: Present | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """A batch or log with one entry a key: `tops` are the entries that stand, in order of position.

    `row` is each one's row in `rows`, or -1 for a delete. `present` speaks of `rows`; None where all
    have all columns.
    """

    tops: Indices
    rows: pa.RecordBatch
    row: Indices
    present: Present | None = None
    always: Mask | None = None
    """Deletes that a merger decided on count whatever ordering value they meet; None for no such."""


class Combiner(Protocol):
    """What merges rows where choosing one of them is not enough. Picklable."""

    @property
    def phase(self) -> str:
        """The phase that its time is booked on."""

    def fold(self, entries: Entries) -> Folded:
        """One entry a key."""

    def combine(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        newer_wins: Mask,
        present: Present | None = None,
    ) -> Merged:
        """Two versions of each record; `newer_wins` by ordering value. `present`, as of `Entries`, speaks of
        `newer`."""
