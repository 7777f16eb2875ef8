"""Wraps a bound SerDe so that each call on its records is timed.

A representation may leave work undone in `decode` and do it when a column is read or records are picked, in
the middle of precombining or merging. That work is SerDe: it interrupts the open phase and is timed as
`read_columns`, `take` or `to_arrow`. Inside a phase of SerDe nothing is interrupted. Index records have no
row and are not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.measure.phases import INDEX_VERBS, SERDE_VERBS
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, Records
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues

T = TypeVar("T")

READ_COLUMNS, TAKE, TO_ARROW = "read_columns", "take", "to_arrow"

_UNINTERRUPTED = SERDE_VERBS | INDEX_VERBS


def _asked(verb: str, name: str) -> Any:
    """The method `name` of the records themselves, timed as `verb`."""

    def ask(timed: TimedRecords, *given: Any) -> Any:
        return timed._timed(verb, lambda: getattr(timed.records, name)(*given))

    return ask


class TimedRecords(Records):
    """`records` of a strategy, timed by `timeline` when they are asked something."""

    def __init__(self, records: Records, timeline: TaskTimeline) -> None:
        self.schema, self.records, self.timeline = records.schema, records, timeline

    def __len__(self) -> int:
        # outside of all phases the count stays there, where the check of the timers looks for work
        if not self.timeline.open_phase:
            return len(self.records)
        return self._timed(READ_COLUMNS, self.records.__len__)

    to_arrow = _asked(TO_ARROW, "to_arrow")
    to_rows = _asked(TO_ARROW, "to_rows")
    column = _asked(READ_COLUMNS, "column")
    column_values = _asked(READ_COLUMNS, "column_values")
    record_keys = _asked(READ_COLUMNS, "record_keys")
    partition_paths = _asked(READ_COLUMNS, "partition_paths")
    ordering_values = _asked(READ_COLUMNS, "ordering_values")
    current_locations = _asked(READ_COLUMNS, "current_locations")
    new_locations = _asked(READ_COLUMNS, "new_locations")
    is_delete = _asked(READ_COLUMNS, "is_delete")
    should_ignore = _asked(READ_COLUMNS, "should_ignore")
    forget_columns = _asked(READ_COLUMNS, "forget_columns")

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return self._of(self._timed(TAKE, lambda: self.records.take(indices)))

    def slice(self, start: int, stop: int) -> Self:
        return self._of(self._timed(TAKE, lambda: self.records.slice(start, stop)))

    def pieces(self, most: int, rows: npt.NDArray[np.int64] | None = None) -> Iterator[Self]:
        pieces = self.records.pieces(most, rows)
        while (piece := self._timed(TAKE, lambda: next(pieces, None))) is not None:
            yield self._of(piece)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        untimed = [part.records for part in parts]
        return parts[0]._of(parts[0]._timed(TAKE, lambda: type(untimed[0]).concatenate(untimed)))

    def _of(self, records: Records) -> Self:
        return type(self)(records, self.timeline)

    def _timed(self, verb: str, call: Callable[[], T]) -> T:
        if self.timeline.open_phase in _UNINTERRUPTED:
            return call()
        with self.timeline.interrupted(verb):
            return call()


class TimedSerde(BoundSerde):
    """`bound`, whose records are timed by `timeline`; callers time its own verbs."""

    def __init__(self, bound: BoundSerde, timeline: TaskTimeline) -> None:
        self.schema, self.options = bound.schema, bound.options
        self.bound, self.timeline = bound, timeline
        self.mark = bound.mark  # type: ignore[misc]

    def __repr__(self) -> str:
        return repr(self.bound)

    @property
    def decode_bytes(self) -> int | None:
        return self.bound.decode_bytes

    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        return self._of(self.bound.from_arrow(batch))

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return self.bound.encode(untimed(records), bounds)

    def decode(self, frames: pa.BinaryArray) -> Records:
        return self._of(self.bound.decode(frames))

    def project(self, projection: Projection, sides: Sequence[Records]) -> Records:
        return self._of(self.bound.project(projection, [untimed(one) for one in sides]))

    def update_metadata(self, records: Records, values: MetadataValues) -> Records:
        return self._of(self.bound.update_metadata(untimed(records), values))

    def index_records(
        self,
        keys: pa.StringArray,
        partition_paths: pa.StringArray,
        file_ids: pa.StringArray,
        instant_time: str = "",
    ) -> Records:
        return self.bound.index_records(keys, partition_paths, file_ids, instant_time)

    def copy(self, source: Frames, target: npt.NDArray[np.int32]) -> Frames:
        return self.bound.copy(source, target)

    def _of(self, records: Records) -> Records:
        if self.timeline.open_phase in INDEX_VERBS:
            return records
        return TimedRecords(records, self.timeline)


def untimed(records: Records) -> Records:
    """The strategy's own records."""
    return records.records if isinstance(records, TimedRecords) else records
