"""Converts a batch's shares of updates, duplicates, late rows and deletes into numbers of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from serde_lab.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shares:
    """The requested composition of one batch of `rows` rows; shares are from 0 to 1.

    `duplicates`: share of the rows that repeat the key of another row of the batch. `updates`: share
    of the batch's different keys that are stored already; the others are inserts. `late`: share of
    the rows whose ordering value is older than the stored one. `deletes`: share of the rows that
    carry the delete marker. Late rows and deletes count as updates. For operation `delete` `updates`
    counts as 1: each row deletes a stored key.
    """

    operation: str
    rows: int
    updates: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    deletes: float = 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """The same as numbers of rows. `rows` = `updates` + `inserts` + `duplicates`.

    A key occurs once among updates and inserts.
    """

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
    """Round the shares to rows. Raises UsageError for shares that contradict each other."""
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
            f"late and deletes need {late + deletes:,} rows of stored keys, "
            f"but updates provide only {updates:,}"
        )
    if duplicates and deletes == keys:
        raise UsageError(
            "duplicates repeat only keys that the batch does not delete, and it deletes all of them"
        )
    if is_delete and (duplicates or late or deletes):
        raise UsageError("a delete has no duplicates, late or deletes")
    return Counts(batch.rows, updates, keys - updates, duplicates, late, deletes)


def _round(x: float) -> int:
    # halves go up, as people expect; Python's own round goes to even
    return math.floor(x + 0.5)
