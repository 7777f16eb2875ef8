"""Makes the ordering values of derived batches: newer or older than every stored row, never tied.

Rows of batch n get a time on the n-th day after 2024-01-01, its late rows one on the n-th day before it.
So a row is newer than every earlier batch, and a late row is older than all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DataError

EVENT_TS = "event_ts"
"""The ordering field that update streams add: int64, microseconds since 1970-01-01 UTC.

TPC-H itself has only DATE columns for this role. With them many rows of one key could tie, and Apache
Hudi 1.2.0 fails on DATE ordering fields when it updates copy-on-write tables.
"""

DAY_US = 86_400_000_000
FIRST_DAY_US = 19_723 * DAY_US
"""2024-01-01 00:00:00 UTC, the day of batch 0."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Some rows of the batch number `batch`, counted from 0, which has `rows` rows in all.

    `rank` is unique in 0..rows. `late` says which rows are older than every stored one. `repeat` is 0 for the
    first row of a key in the batch, else a number unique for that key, of either sign. `own` holds the
    source's values of the ordering column, for the row of each key.
    """

    batch: int
    rows: int
    rank: Ints
    late: npt.NDArray[np.bool_]
    repeat: Ints
    own: pa.Array | None = None


class OrderingValues(Protocol):
    """Makes the ordering column of a batch."""

    column: str

    def values(self, of: OrderedRows) -> pa.Array: ...


class AddedEventTime:
    """The column `event_ts`: int64, microseconds, unique within a batch."""

    column = EVENT_TS

    def values(self, of: OrderedRows) -> pa.Array:
        """See `OrderingValues`; ignores `repeat` and `own`."""
        day = np.where(of.late, -of.batch, of.batch)
        times = FIRST_DAY_US + day * DAY_US + of.rank * (DAY_US // of.rows)
        return pa.array(times, pa.int64())


class ShiftedOrdering:
    """The user's own ordering column, its values moved by more than the column's extent per batch.

    Batch 0 keeps the source's values. Raises DataError for a type whose values cannot be moved, or if
    values would leave the type's range.
    """

    def __init__(
        self, field: pa.Field, extent: tuple[object, object] | None, batches: int, repeats: int
    ) -> None:
        self.column = field.name
        self._type = field.type
        limits = _limits(field.type)
        if limits is None:
            raise DataError(
                f"column {field.name!r}, the ordering field, has the type {field.type}, but newer "
                "values can only be derived for integers, dates and timestamps",
                "leave out `ordering`, which adds a column event_ts, or give each commit its own `path`",
            )
        low, high = (0, 0) if extent is None else (_number(end, field.type) for end in extent)
        self._span = high - low + 1 + 2 * repeats
        least, greatest = low - batches * self._span, high + batches * self._span
        if least < limits[0] or greatest > limits[1]:
            raise DataError(
                f"column {field.name!r}, the ordering field of type {field.type}, has values from "
                f"{low} to {high}: newer values for {batches} batches are outside the range of the type",
                "leave out `ordering`, which adds a column event_ts, or give each commit its own `path`",
            )

    def values(self, of: OrderedRows) -> pa.Array:
        """See `OrderingValues`; ignores `rank`."""
        assert of.own is not None
        stored = of.own.cast(pa.int32()) if pat.is_date32(self._type) else of.own
        numbers = stored.cast(pa.int64()).to_numpy(zero_copy_only=False)
        shift = np.where(of.late, -of.batch, of.batch) * self._span
        moved = pa.array(numbers + shift + of.repeat, pa.int64())
        if pat.is_date32(self._type):
            return moved.cast(pa.int32()).cast(self._type)
        return moved.cast(self._type)


def _limits(t: pa.DataType) -> tuple[int, int] | None:
    """Least and greatest number of an ordering type; dates and times have Python's limits."""
    if pat.is_signed_integer(t):
        return -(1 << (t.bit_width - 1)), (1 << (t.bit_width - 1)) - 1
    if pat.is_date32(t):
        return _number(date.min, t), _number(date.max, t)
    if pat.is_timestamp(t):
        naive = pa.timestamp("us")
        return _number(datetime.min, naive), _number(datetime.max, naive)
    return None


def _number(value: object, t: pa.DataType) -> int:
    scalar = pa.scalar(value, t)
    number: int = scalar.value if hasattr(scalar, "value") else scalar.as_py()
    return number
