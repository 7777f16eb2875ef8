"""The `Records` of `internal_row`: binary rows in one buffer, and the columns cached from reading them.

`RowShape` holds everything that the bytes depend on, and chooses between the executions (`row`, `batch`) and
the layouts (`flat`, `nested`). `RowRecords` decides when a record's form is checked, which columns are
cached, and how a selection of records is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.plain_form import from_plain
from serde_lab.records.schema import RECORD_KEY, RecordSchema, columns_of, plain_type
from serde_lab.serde.framing import Damaged, schema_fingerprint, without_collector
from serde_lab.serde.interface import Records, SerdeOptions
from serde_lab.serde.internal_row import loop as internal_row_loop
from serde_lab.serde.internal_row import nested as internal_row_nested
from serde_lab.serde.internal_row import verbs as internal_row_verbs
from serde_lab.serde.internal_row import write as internal_row_write
from serde_lab.serde.internal_row.layout import RowLayout, Rows, layout_of
from serde_lab.serde.internal_row.loop import LoopReader
from serde_lab.serde.internal_row.nested import NestedLoopReader, NestedReader
from serde_lab.serde.internal_row.read import FlatReader
from serde_lab.serde.projection.plan import Projection

Reader = LoopReader | FlatReader | NestedReader


@dataclass(frozen=True, slots=True)
class RowShape:
    """Everything that the bytes of records depend on, with their readers and writers; made once a schema."""

    schema: RecordSchema
    batch_schema: pa.Schema
    layout: RowLayout
    fingerprint: int
    execution: str
    is_nested: bool = False
    in_whole_batches: bool = False
    """Whether files are written from whole Arrow batches, and not from the columns that they hold."""

    @classmethod
    def of(cls, schema: RecordSchema, options: SerdeOptions) -> RowShape:
        types = tuple(plain_type(t) for t in schema.data.types)
        layout = layout_of(tuple(schema.data.names), types)
        nested = options.own["layout"] == "nested"
        fingerprint = schema_fingerprint(schema)
        whole = options.own["to_files"] == "batches"
        batch = schema.batch_schema
        return cls(schema, batch, layout, fingerprint, options.execution, nested, whole)

    def write(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        if self.execution == "row":
            columns = [internal_row_loop.stored_values(column) for column in batch.columns]
            return self.write_values(columns, self.layout, self.fingerprint)
        by_columns = internal_row_nested if self.is_nested else internal_row_write
        return by_columns.write_records(batch, self.layout, self.fingerprint)

    @property
    def write_values(self) -> internal_row_verbs.Write:
        """The function that writes columns of stored values in the row execution."""
        return (internal_row_nested if self.is_nested else internal_row_loop).write_values

    def reader(self, rows: pa.BinaryArray) -> Reader:
        """Reads columns of these records; making it checks the form of every record."""
        layout, fingerprint = self.layout, self.fingerprint
        if self.execution == "row":
            loop = NestedLoopReader if self.is_nested else LoopReader
            return loop(rows, layout, fingerprint)
        if self.is_nested:
            return NestedReader(Rows.over(rows), layout, fingerprint)
        return FlatReader(Rows.over(rows), layout, fingerprint)

    def project(self, projection: Projection, readers: Sequence[Any]) -> pa.BinaryArray:
        plan = readers, projection
        if self.execution == "row":
            write = self.write_values
            return internal_row_verbs.project_in_loop(*plan, write, self.layout, self.fingerprint)
        by_columns = internal_row_nested if self.is_nested else internal_row_verbs
        return by_columns.project(*plan, self.layout, self.fingerprint)

    def update_metadata(self, reader: Any, given: internal_row_verbs.Given) -> pa.BinaryArray:
        if self.execution == "row":
            write = self.write_values
            return internal_row_verbs.update_metadata_in_loop(
                reader, given, write, self.layout, self.fingerprint
            )
        by_columns = internal_row_nested if self.is_nested else internal_row_verbs
        return by_columns.update_metadata(reader, given, self.fingerprint)


BLOCK_ROWS = 1 << 14
"""Records are read in blocks of this many, all columns at once, while their bytes are in the CPU's caches."""
MOST_KEPT_ROWS = 1 << 18
"""Columns read from more records than this are not cached: they take more memory than the records."""


@dataclass(frozen=True)
class RowRecords(Records):
    """Records as binary rows in one buffer: `own_rows` (one value a record), or a selection.

    For a selection `chosen_of` has other records and the numbers of the selected ones. It is used only if
    those records have been read: selecting from their checked columns costs half of gathering the rows
    and reading them again.
    """

    shape: RowShape
    own_rows: pa.BinaryArray | None
    chosen_of: tuple[Self, npt.NDArray[np.int64]] | None = None

    # Records declares a settable attribute; here the schema is that of the shape and is never set
    @property
    def schema(self) -> RecordSchema:  # type: ignore[override]
        return self.shape.schema

    def __len__(self) -> int:
        return len(self.rows) if self.chosen_of is None else len(self.chosen_of[1])

    @cached_property
    def rows(self) -> pa.BinaryArray:
        if self.chosen_of is None:
            return self.own_rows
        whole, numbers = self.chosen_of
        return whole.rows.take(pa.array(numbers))

    @cached_property
    def reader(self) -> Reader:
        """The reader of all these records; making it checks the form of every record."""
        return self.shape.reader(self.rows)

    @cached_property
    def blocks(self) -> tuple[Reader, ...]:
        """Readers of blocks of BLOCK_ROWS records in the batch execution; else one for all records."""
        if self.shape.execution == "row" or len(self.rows) <= BLOCK_ROWS:
            return (self.reader,)
        return tuple(self._read_by_block())

    def check_form(self) -> None:
        """Raise Damaged with the number of the first record that does not have the form of its layout."""
        if self._are_many:
            # read the columns that every write reads first while the form is checked
            self._plain_columns(self._identifying)
        else:
            _ = self.blocks

    @property
    def _are_many(self) -> bool:
        return self.shape.execution == "batch" and len(self.rows) > MOST_KEPT_ROWS

    @property
    def _identifying(self) -> list[str]:
        """Record keys and ordering columns, which a write reads twice: to merge records and to write them."""
        return [RECORD_KEY, *columns_of(self.schema.ordering)]

    @cached_property
    def _kept(self) -> dict[str, pa.Array]:
        """The identifying columns that have been read."""
        return {}

    def _read_by_block(self) -> Iterator[Reader]:
        for first in range(0, len(self.rows), BLOCK_ROWS):
            with _counted_from(first):
                reader = self.shape.reader(self.rows.slice(first, BLOCK_ROWS))
            yield reader
            del reader

    def column(self, name: str) -> pa.Array:
        return self._columns([name])[0]

    @without_collector()
    def to_arrow(self) -> pa.RecordBatch:
        schema = self.shape.batch_schema
        return pa.record_batch(self._columns(schema.names), schema=schema)

    @without_collector()
    def to_rows(self) -> tuple[pa.StringArray, pa.RecordBatch]:
        if self.shape.in_whole_batches:
            return super().to_rows()
        keys, *data = self._columns([RECORD_KEY, *self.schema.data.names])
        return keys, pa.RecordBatch.from_arrays(data, schema=self.schema.data)

    def _columns(self, names: Sequence[str]) -> list[pa.Array]:
        whole, numbers = (self, None) if self.chosen_of is None else self.chosen_of
        try:
            columns = whole._plain_columns(names)
        except Damaged as exc:
            raise DecodeError("internal_row", exc.number, exc.problem) from exc
        if numbers is not None:
            # take in plain form, since Arrow's take supports all plain types but not all types
            taken = pa.array(numbers)
            columns = [column.take(taken) for column in columns]
        fields = [self.shape.batch_schema.field(name) for name in names]
        return [from_plain(c, field.type) for c, field in zip(columns, fields, strict=True)]

    def _plain_columns(self, names: Sequence[str]) -> list[pa.Array]:
        kept = self._kept
        found = {name: kept[name] for name in names if name in kept}
        others = [name for name in names if name not in kept]
        if others:
            blocks = self._read_by_block() if self._are_many else self.blocks
            found |= zip(others, self._read(others, blocks), strict=True)
            kept.update((name, found[name]) for name in self._identifying if name in found)
        return [found[name] for name in names]

    def _read(self, names: Sequence[str], blocks: Iterable[Reader]) -> list[pa.Array]:
        read = []
        for number, block in enumerate(blocks):
            with _counted_from(number * BLOCK_ROWS):
                read.append([block.column(name) for name in names])
        return read[0] if len(read) == 1 else [*map(pa.concat_arrays, zip(*read, strict=True))]

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        if self.chosen_of is not None:
            whole, numbers = self.chosen_of
            return whole.take(numbers[indices])
        # a small selection gathers its rows, so that only those are converted later
        if self.shape.execution == "batch" and self._is_read and 2 * len(indices) > len(self):
            return type(self)(self.shape, None, (self, indices))
        return type(self)(self.shape, self.rows.take(pa.array(indices)))

    def slice(self, start: int, stop: int) -> Self:
        return type(self)(self.shape, self.rows.slice(start, stop - start))

    def forget_columns(self) -> None:
        for name in ("blocks", "reader", "_kept"):
            self.__dict__.pop(name, None)

    @property
    def _is_read(self) -> bool:
        return "blocks" in self.__dict__ or "reader" in self.__dict__

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        try:
            rows = pa.concat_arrays([part.rows for part in parts])
        except pa.ArrowInvalid as exc:
            total = sum(part.rows.nbytes for part in parts)
            raise DataError(f"{total} bytes of records do not fit one buffer of 2 GiB") from exc
        return cls(parts[0].shape, rows)


@contextmanager
def _counted_from(first: int) -> Iterator[None]:
    """Add `first` to the record number of a Damaged raised inside."""
    try:
        yield
    except Damaged as exc:
        raise Damaged(exc.problem, first + (exc.number or 0)) from exc
