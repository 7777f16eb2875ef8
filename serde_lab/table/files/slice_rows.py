"""The rows of a file slice while its logs are merged: as Arrow batches, or as records of a strategy.

The merge asks rows for their keys and ordering values, picks some of them, and converts those out. On Arrow
none of this converts anything. With a strategy, rows of base files and logs become its own records first, as
in RFC-46's real-time reader, and every step is timed as SerDe. Rows have the meta columns, then data columns.
Meta columns that a record's envelope has no place for travel as data columns under names of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from serde_lab.errors import TableError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.merging.survivors import Indices, Mask
from serde_lab.records.buffers import one_batch
from serde_lab.records.schema import (
    ENVELOPE,
    FILE_ID,
    INSERT,
    INSTANT_TIME,
    IS_INDEX_RECORD,
    META_NAMES,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    RecordSchema,
    values_at,
)
from serde_lab.serde.interface import BoundSerde, Records
from serde_lab.serde.registry import StrategyRecords


class SliceRows(ABC):
    """Rows in some representation, in order."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def keys(self) -> pa.Array:
        """The record keys."""

    @abstractmethod
    def ordering(self, paths: Sequence[str]) -> tuple[pa.Array, ...]:
        """The values of these ordering fields, one array a field."""

    @abstractmethod
    def take(self, indices: Indices) -> SliceRows:
        """The rows at `indices`, in that order."""

    @abstractmethod
    def to_arrow(self) -> pa.RecordBatch:
        """Meta and data columns of all rows."""

    def picked(self, mask: Mask) -> SliceRows:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def batches(self, indices: Indices, most: int) -> Iterator[pa.RecordBatch]:
        """The rows at `indices`, in that order, in batches of `most` rows; the last one may be smaller."""
        for start in range(0, len(indices), most):
            yield self.take(indices[start : start + most]).to_arrow()


class RowForm(ABC):
    """A representation of rows."""

    @abstractmethod
    def rows(self, parts: Sequence[pa.Table], schema: pa.Schema) -> SliceRows:
        """The rows of all `parts`, in order; each has the columns of `schema`."""


@dataclass(frozen=True, slots=True)
class ArrowRows(SliceRows):
    """Rows as a table of Arrow."""

    table: pa.Table

    def __len__(self) -> int:
        return len(self.table)

    def keys(self) -> pa.Array:
        return _one_array(self.table.column(RECORD_KEY))

    def ordering(self, paths: Sequence[str]) -> tuple[pa.Array, ...]:
        return tuple(_one_array(values_at(self.table, path)) for path in paths)

    def take(self, indices: Indices) -> ArrowRows:
        return ArrowRows(self.table.take(pa.array(indices)))

    def to_arrow(self) -> pa.RecordBatch:
        return one_batch(self.table)

    def picked(self, mask: Mask) -> ArrowRows:
        return self if mask.all() else ArrowRows(self.table.filter(pa.array(mask)))

    def batches(self, indices: Indices, most: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.take(pa.array(indices)).to_batches(max_chunksize=most)


class ArrowForm(RowForm):
    """Rows stay as they were read."""

    def rows(self, parts: Sequence[pa.Table], schema: pa.Schema) -> ArrowRows:
        return ArrowRows(pa.concat_tables(parts) if parts else schema.empty_table())


def form_of(
    records: StrategyRecords, schema: pa.Schema, ordering: Sequence[str], timeline: TaskTimeline
) -> StrategyForm:
    """The form of rows with the columns of `schema`, as records of a strategy.

    Raises SchemaError for a type that records cannot have, OptionError for an unknown strategy or option.
    """
    data = pa.schema(list(schema)[len(META_NAMES) :])
    carried = {name: _free(name, data.names) for name in _CARRIED}
    columns = pa.schema([*(pa.field(name, pa.string()) for name in carried.values()), *data])
    with timeline.phase("bind"):
        serde = records.bind(RecordSchema(columns, (), ordering=tuple(ordering)))
    return StrategyForm(serde, schema, tuple(carried.values()), timeline)


_IN_ENVELOPE = (RECORD_KEY, PARTITION_PATH)
_CARRIED = tuple(name for name in META_NAMES if name not in _IN_ENVELOPE)
_FROM_ARROW, _READ_COLUMNS, _TAKE, _TO_ARROW = "from_arrow", "read_columns", "take", "to_arrow"


def _free(name: str, taken: Sequence[str]) -> str:
    """A column name for a meta column, whose own is reserved in records."""
    free = name.removeprefix("_hoodie_")
    while free in taken:
        free += "_"
    return free


class StrategyForm(RowForm):
    """Rows as records of the strategy to which `serde` is bound; `carried` are the columns that hold
    `_CARRIED`. Converting, reading and picking records is timed by `timeline`."""

    def __init__(
        self,
        serde: BoundSerde,
        schema: pa.Schema,
        carried: Sequence[str],
        timeline: TaskTimeline,
    ) -> None:
        self.serde, self.schema, self.carried, self.timeline = serde, schema, carried, timeline

    def rows(self, parts: Sequence[pa.Table], schema: pa.Schema) -> StrategyRows:
        tables = parts or [schema.empty_table()]
        with self.timeline.interrupted(_FROM_ARROW):
            records = [self.serde.from_arrow(self._enveloped(one_batch(one))) for one in tables]
        if len(records) > 1:
            with self.timeline.interrupted(_TAKE):
                records = [type(records[0]).concatenate(records)]
        return StrategyRows(self, records[0])

    def _enveloped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        count = rows.num_rows
        if rows.column(PARTITION_PATH).null_count:
            raise TableError("a stored row has no partition path, so that it cannot be a record")
        blank, insert = pa.repeat("", count), pa.repeat(INSERT, count)
        envelope = {
            RECORD_KEY: rows.column(RECORD_KEY),
            PARTITION_PATH: rows.column(PARTITION_PATH),
            FILE_ID: blank,
            INSTANT_TIME: blank,
            OPERATION: insert,
            IS_INDEX_RECORD: pa.repeat(False, count),
        }
        columns = [envelope[name] for name in ENVELOPE.names]
        columns += [rows.column(name) for name in _CARRIED]
        columns += rows.columns[len(META_NAMES) :]
        return pa.RecordBatch.from_arrays(columns, schema=self.serde.schema.batch_schema)

    def converted(self, records: Records) -> pa.RecordBatch:
        """The records as rows again."""
        with self.timeline.interrupted(_TO_ARROW):
            batch = records.to_arrow()
            meta = {name: batch.column(name) for name in _IN_ENVELOPE}
            meta |= {n: batch.column(c) for n, c in zip(_CARRIED, self.carried, strict=True)}
            columns = [meta[name] for name in META_NAMES]
            columns += batch.columns[len(ENVELOPE) + len(_CARRIED) :]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class StrategyRows(SliceRows):
    """Rows as records of a strategy."""

    form: StrategyForm
    records: Records

    def __len__(self) -> int:
        return len(self.records)

    def keys(self) -> pa.Array:
        with self.form.timeline.interrupted(_READ_COLUMNS):
            return self.records.record_keys()

    def ordering(self, paths: Sequence[str]) -> tuple[pa.Array, ...]:
        # the form is bound with these fields
        with self.form.timeline.interrupted(_READ_COLUMNS):
            return tuple(self.records.ordering_values())

    def take(self, indices: Indices) -> Self:
        with self.form.timeline.interrupted(_TAKE):
            return type(self)(self.form, self.records.take(indices))

    def to_arrow(self) -> pa.RecordBatch:
        return self.form.converted(self.records)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return pa.concat_arrays(joined.chunks) if joined.chunks else pa.array([], column.type)
    return joined
