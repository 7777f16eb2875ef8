"""Strategy `internal_row`: RFC-84's HoodieFlinkInternalRow, a typed binary row behind its envelope.

`Records` holds one contiguous buffer of binary rows with offsets, whose bytes `internal_row_layout.py`
describes. Converting in builds that buffer, which is where the work is; serialising one record a frame
hands out a view of it. Deserialising checks the form of every record, and the values of a column are
checked when the column is read: what is never read, as in a hop that only routes, costs nothing.

Two executions with the same bytes: `batch` works on whole columns with Arrow and numpy
(`internal_row_write.py`, `internal_row_read.py`), `row` is a loop with `struct` (`internal_row_loop.py`).
Other metadata and other columns are made of such bytes too (`internal_row_verbs.py`).
`layout = "nested"` puts the envelope into the record as a row of its own (`internal_row_nested.py`), which
RFC-84's discussion measured and left: an option to measure it here, against the flat one that is default.
Must not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.fields import columns_of
from serde_lab.records.plain_form import from_plain, to_plain_batch
from serde_lab.records.schema import RECORD_KEY, RecordSchema
from serde_lab.records.types import check_supported, plain_type
from serde_lab.serde import (
    internal_row_loop,
    internal_row_nested,
    internal_row_read,
    internal_row_verbs,
    internal_row_write,
)
from serde_lab.serde.fingerprint import schema_fingerprint
from serde_lab.serde.framing import cut, frame_error, frames_of, opened
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.internal_row_frames import frames_from, records_in
from serde_lab.serde.internal_row_layout import (
    FRAME_HEADER_BYTES,
    MARK,
    WITH_ROW,
    RowLayout,
    layout_of,
)
from serde_lab.serde.internal_row_loop import RecordReader as LoopReader
from serde_lab.serde.internal_row_rows import Damaged, Rows
from serde_lab.serde.options import resolve
from serde_lab.serde.projection import Projection
from serde_lab.serde.record_verbs import MetadataValues

EXPECTED: Mapping[str, tuple[float, float]] = {
    "record": (85, 150),
    "bool": (1.1, 8),
    "int8": (1.1, 7),
    "int16": (2.1, 7),
    "int32": (4.1, 7),
    "int64": (8.1, 7),
    "float": (4.1, 7),
    "double": (8.1, 7),
    "decimal": (8.1, 14),
    "string": (16.1, 38),
    "binary": (16.1, 35),
    "date": (4.1, 7),
    "timestamp": (8.1, 7),
    "list": (33.1, 160),
    "map": (39.1, 350),
    "struct": (29.1, 130),
}
"""Written down before columns were measured one by one: bytes and nanoseconds of a value.

For `execution = "batch"` at one record a frame; the values are those of `pickle_records.EXPECTED`."""
EXPECTED_ROW_NS: Mapping[str, float] = {
    "record": 4000,
    "bool": 450,
    "int8": 350,
    "int16": 350,
    "int32": 350,
    "int64": 350,
    "float": 350,
    "double": 350,
    "decimal": 700,
    "string": 600,
    "binary": 500,
    "date": 350,
    "timestamp": 350,
    "list": 2500,
    "map": 4000,
    "struct": 3000,
}
"""The nanoseconds expected of `execution = "row"`; its bytes are the same."""

_LENGTH_BYTES = 4

BLOCK_ROWS = 1 << 14
"""So many records are read together, all columns of them, while their bytes are near the processor."""
MOST_KEPT_ROWS = 1 << 18
"""What was read of more records is not kept for the next reading: it is larger than their bytes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the bytes of records depend on, and who reads and writes them; made once for a schema."""

    schema: RecordSchema
    batch_schema: pa.Schema
    layout: RowLayout
    fingerprint: int
    execution: str
    is_nested: bool = False

    @classmethod
    def of(cls, schema: RecordSchema, options: SerdeOptions) -> Shape:
        """The shape of the records of `schema` by these options."""
        types = tuple(plain_type(t) for t in schema.data.types)
        layout = layout_of(tuple(schema.data.names), types)
        nested = options.own["layout"] == "nested"
        fingerprint = schema_fingerprint(schema)
        return cls(schema, schema.batch_schema, layout, fingerprint, options.execution, nested)

    def write(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The records of a batch in plain form."""
        if self.execution == "row":
            columns = [internal_row_loop.stored_values(column) for column in batch.columns]
            return self.write_values(columns, self.layout, self.fingerprint)
        by_columns = internal_row_nested if self.is_nested else internal_row_write
        return by_columns.write_records(batch, self.layout, self.fingerprint)

    @property
    def write_values(self) -> internal_row_verbs.Write:
        """What writes columns of stored values in the loop."""
        return (internal_row_nested if self.is_nested else internal_row_loop).write_values

    def reader(self, rows: pa.BinaryArray) -> Reader:
        """Reads columns of these records; making it checks the form of every record."""
        layout, fingerprint = self.layout, self.fingerprint
        if self.execution == "row":
            loop = internal_row_nested.LoopReader if self.is_nested else LoopReader
            return loop(rows, layout, fingerprint)
        if self.is_nested:
            return internal_row_nested.RecordReader(Rows.over(rows), layout, fingerprint)
        return internal_row_read.RecordReader(Rows.over(rows), layout, fingerprint)

    def project(self, projection: Projection, readers: Sequence[Any]) -> pa.BinaryArray:
        """The projection of what these read, as records of this shape."""
        plan = readers, projection
        if self.execution == "row":
            write = self.write_values
            return internal_row_verbs.project_in_loop(*plan, write, self.layout, self.fingerprint)
        by_columns = internal_row_nested if self.is_nested else internal_row_verbs
        return by_columns.project(*plan, self.layout, self.fingerprint)

    def update_metadata(self, reader: Any, given: internal_row_verbs.Given) -> pa.BinaryArray:
        """What `reader` reads, with other metadata."""
        if self.execution == "row":
            write = self.write_values
            return internal_row_verbs.update_metadata_in_loop(
                reader, given, write, self.layout, self.fingerprint
            )
        by_columns = internal_row_nested if self.is_nested else internal_row_verbs
        return by_columns.update_metadata(reader, given, self.fingerprint)


Reader = LoopReader | internal_row_read.RecordReader | internal_row_nested.RecordReader


@dataclass(frozen=True)
class RowRecords(Records):
    """Records as binary rows in one buffer: `own_rows`, one value a record, or some of another's rows.

    `chosen_of`, given instead, is other records and the numbers of those that these are. Only records
    that have been read are held so: their columns, checked already, are cut down when they are wanted,
    which costs half of gathering the rows and reading them anew.
    """

    shape: Shape
    own_rows: pa.BinaryArray | None
    chosen_of: tuple[Self, npt.NDArray[np.int64]] | None = None

    @property
    def schema(self) -> RecordSchema:  # type: ignore[override]
        """The schema of these records."""
        return self.shape.schema

    def __len__(self) -> int:
        return len(self.rows) if self.chosen_of is None else len(self.chosen_of[1])

    @cached_property
    def rows(self) -> pa.BinaryArray:
        """The binary rows, one value a record."""
        if self.chosen_of is None:
            return self.own_rows
        whole, numbers = self.chosen_of
        return whole.rows.take(pa.array(numbers))

    @cached_property
    def reader(self) -> Reader:
        """Reads columns of all these records; making it checks the form of every record."""
        return self.shape.reader(self.rows)

    @cached_property
    def blocks(self) -> tuple[Reader, ...]:
        """The same by blocks of BLOCK_ROWS, where columns are read as columns."""
        if self.shape.execution == "row" or len(self.rows) <= BLOCK_ROWS:
            return (self.reader,)
        return tuple(self._read_by_block())

    def check_form(self) -> None:
        """Raise Damaged, counting from the first record, unless each has the form of its layout."""
        _ = self._told_apart_by if self._are_many else self.blocks

    @property
    def _are_many(self) -> bool:
        return self.shape.execution == "batch" and len(self.rows) > MOST_KEPT_ROWS

    @cached_property
    def _told_apart_by(self) -> Mapping[str, pa.Array]:
        """Of many records, what every write asks for first: read while their form is checked."""
        names = [RECORD_KEY, *columns_of(self.schema.ordering)]
        return dict(zip(names, self._read_through(names), strict=True))

    def _read_by_block(self) -> Iterator[Reader]:
        for first in range(0, len(self.rows), BLOCK_ROWS):
            with _counted_from(first):
                reader = self.shape.reader(self.rows.slice(first, BLOCK_ROWS))
            yield reader
            del reader

    def column(self, name: str) -> pa.Array:
        return self._columns([name])[0]

    def to_arrow(self) -> pa.RecordBatch:
        schema = self.shape.batch_schema
        return pa.record_batch(self._columns(schema.names), schema=schema)

    def _columns(self, names: Sequence[str]) -> list[pa.Array]:
        whole, numbers = (self, None) if self.chosen_of is None else self.chosen_of
        try:
            columns = whole._plain_columns(names)
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc
        if numbers is not None:
            # in plain form, since Arrow takes from every plain type and not from every type
            taken = pa.array(numbers)
            columns = [column.take(taken) for column in columns]
        fields = [self.shape.batch_schema.field(name) for name in names]
        return [from_plain(c, field.type) for c, field in zip(columns, fields, strict=True)]

    def _plain_columns(self, names: Sequence[str]) -> list[pa.Array]:
        if not self._are_many:
            return self._read(names, self.blocks)
        kept = self.__dict__.get("_told_apart_by", {})
        others = [name for name in names if name not in kept]
        read = dict(zip(others, self._read_through(others), strict=True)) if others else {}
        return [kept[name] if name in kept else read[name] for name in names]

    def _read_through(self, names: Sequence[str]) -> list[pa.Array]:
        return self._read(names, self._read_by_block())

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
        # of a small part no more is converted than that part
        if self.shape.execution == "batch" and self._is_read and 2 * len(indices) > len(self):
            return type(self)(self.shape, None, (self, indices))
        return type(self)(self.shape, self.rows.take(pa.array(indices)))

    def slice(self, start: int, stop: int) -> Self:
        return type(self)(self.shape, self.rows.slice(start, stop - start))

    def forget_columns(self) -> None:
        for name in ("blocks", "reader", "_told_apart_by"):
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
    """A damaged record inside is counted from `first`."""
    try:
        yield
    except Damaged as exc:
        raise Damaged(first + exc.record, exc.problem) from exc


@dataclass(frozen=True)
class BoundInternalRow(BoundSerde):
    """`internal_row` bound to a schema."""

    schema: RecordSchema
    options: SerdeOptions
    mark = bytes([MARK])

    def __repr__(self) -> str:
        return f"internal_row({self.options})"

    @cached_property
    def _shape(self) -> Shape:
        return Shape.of(self.schema, self.options)

    def from_arrow(self, batch: pa.RecordBatch) -> RowRecords:
        return RowRecords(self._shape, self._shape.write(to_plain_batch(batch)))

    def project(self, projection: Projection, sides: Sequence[Records]) -> RowRecords:
        readers = []
        for side in sides:
            assert isinstance(side, RowRecords)
            readers.append(side.reader)
        try:
            return RowRecords(self._shape, self._shape.project(projection, readers))
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc

    def update_metadata(self, records: Records, values: MetadataValues) -> RowRecords:
        assert isinstance(records, RowRecords)
        given = values.columns(len(records))
        if not given:
            return records
        return RowRecords(self._shape, self._shape.update_metadata(records.reader, given))

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, RowRecords)
        ends = Rows.over(records.rows).ends
        if self.options.rows_per_frame != 1:
            # a record costs its bytes and its length in the frame's table
            ends = ends + _LENGTH_BYTES * np.arange(len(ends))
        cuts = cut(bounds, self.options, ends, FRAME_HEADER_BYTES)
        return frames_of(cuts, frames_from(records.rows, cuts), self.options)

    def decode(self, frames: pa.BinaryArray) -> RowRecords:
        payloads = opened("internal_row", frames, self.options)
        try:
            rows, _ = records_in(payloads)
        except Damaged as exc:
            raise frame_error("internal_row", exc.record, self.options, exc.problem) from exc
        records = RowRecords(self._shape, rows)
        try:
            # the form of every record is checked here, its values when they are read
            records.check_form()
        except Damaged as exc:
            raise DecodeError("internal_row", exc.record, exc.problem) from exc
        return records


class InternalRowStrategy(Strategy):
    """RFC-84's typed binary rows; see the module's docstring."""

    name = "internal_row"
    executions = ("batch", "row")
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundInternalRow:
        check_supported(schema.data)
        own = {"layout": ("flat", "nested")}
        return BoundInternalRow(schema, resolve(self, options, own))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a record carries 4 bytes of its fingerprint",
            copies="one into the rows, none into frames of one record; out, one per column",
            batching="execution batch: fixed parts as one numpy array, calls shared by all records; "
            "execution row: nothing",
            trust="every length is checked against the bytes that are there; damage raises",
            notes=f"form {WITH_ROW} of the layout; the envelope's strings are limited to 255 bytes "
            "(operation, instant time), 64 KiB (file id, partition path) and 4 GiB (record key); "
            "layout nested: the envelope is a row of its own, with null bits and lengths of 4 bytes",
        )
