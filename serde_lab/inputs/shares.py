"""The shares of updates, duplicates, late rows and deletes in a derived batch, and their numbers of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from serde_lab.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shares:
    """What is asked of one batch of `rows` rows; shares are of 0 to 1.

    `duplicates`: share of the rows that repeat the key of another row of the batch. `updates`: share
    of the batch's different keys that are stored already; the others are inserts. `late`: share of
    the rows whose ordering value is older than what is stored. `deletes`: share of the rows that
    carry the delete marker. Late rows and deletes are updates. A batch of operation `delete` has
    `updates` 1 in effect: each of its rows deletes a stored key.
    """

    operation: str
    rows: int
    updates: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    deletes: float = 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """The same in rows: `rows` = `updates` + `inserts` + `duplicates`, each key once in the first two."""

    rows: int
    updates: int
    inserts: int
    duplicates: int
    late: int
    deletes: int

    @property
    def keys(self) -> int:
        """Different keys in the batch."""
        return self.updates + self.inserts


def count(batch: Shares) -> Counts:
    """Round the shares to rows. Raises UsageError for shares that cannot all hold."""
    for name in ("updates", "duplicates", "late", "deletes"):
        share = getattr(batch, name)
        if not 0 <= share <= 1:
            raise UsageError(f"{name} = {share:g}: expected a share from 0 to 1")
    if batch.rows < 1:
        raise UsageError(f"rows = {batch.rows}: expected at least one row")
    duplicates = min(_round(batch.rows * batch.duplicates), batch.rows - 1)
    keys = batch.rows - duplicates
    is_delete = batch.operation == "delete"
    updates = keys if is_delete else _round(keys * batch.updates)
    late = _round(batch.rows * batch.late)
    deletes = _round(batch.rows * batch.deletes)
    if late + deletes > updates:
        raise UsageError(
            f"late and deletes ask for {late + deletes:,} rows of stored keys, "
            f"but updates give only {updates:,}"
        )
    if duplicates and deletes == keys:
        raise UsageError(
            "duplicates repeat keys that the batch does not delete, and there are none"
        )
    if is_delete and (duplicates or late or deletes):
        raise UsageError("a batch of deletes takes no duplicates, late or deletes")
    return Counts(batch.rows, updates, keys - updates, duplicates, late, deletes)


def _round(x: float) -> int:
    # halves go up, as everybody expects of a share; Python's own round goes to even
    return math.floor(x + 0.5)
