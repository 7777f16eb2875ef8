"""The two `Records` classes of strategy `avro`, and their conversion to and from Avro payloads.

The envelope is columns. `AvroDatums` holds rows as fastavro's datums and converts row by row with fastavro;
`AvroColumns` holds plain columns and converts them with `serde_lab/avro/codec.py`. Both give the same bytes.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, Self

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DecodeError
from serde_lab.records.buffers import binary_array
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.plain_form import from_plain, to_plain, to_plain_batch
from serde_lab.records.schema import (
    ENVELOPE,
    IS_INDEX_RECORD,
    RecordSchema,
    child_fields,
    columns_of,
)
from serde_lab.serde.avro.column_names import AvroColumnNames, relabel
from serde_lab.serde.avro.frames import NOT_DATUM
from serde_lab.serde.framing import rows_present, without_collector
from serde_lab.serde.interface import Records
from serde_lab.serde.projection.columns import changed_values, new_value, projected
from serde_lab.serde.projection.plan import Change, Projection, TargetColumn
from serde_lab.serde.python_values import BLOCK_ROWS, PythonForm, picked
from serde_lab.serde.record_verbs import MetadataValues

_FORM = PythonForm(struct_as_dict=True, map_as_dict=True, decimal_as_bytes=True)


@dataclass(frozen=True)
class AvroRecords(Records):
    """Envelopes as columns, with the types of ENVELOPE; subclasses hold the rows."""

    columns: AvroColumnNames
    envelope: pa.RecordBatch

    # Records declares a settable attribute; here the schema is that of the columns and is never set
    @property
    def schema(self) -> RecordSchema:  # type: ignore[override]
        return self.columns.schema

    def __len__(self) -> int:
        return int(self.envelope.num_rows)

    @without_collector()
    def to_arrow(self) -> pa.RecordBatch:
        fields = list(self.schema.batch_schema)[len(ENVELOPE) :]
        data = [from_plain(a, f.type) for a, f in zip(self._plain().columns, fields, strict=True)]
        return pa.record_batch([*self.envelope.columns, *data], schema=self.schema.batch_schema)

    def column(self, name: str) -> pa.Array:
        if name in ENVELOPE.names:
            return self.envelope.column(name)
        array = self._plain_column(self.columns.plain.get_field_index(name))
        return from_plain(array, self.schema.batch_schema.field(name).type)

    def with_metadata(self, values: MetadataValues) -> Self:
        envelope = self.envelope
        for name, column in values.arrays(len(self)).items():
            number = ENVELOPE.get_field_index(name)
            envelope = envelope.set_column(number, ENVELOPE.field(number), to_plain(column))
        return replace(self, envelope=envelope)

    @classmethod
    @abstractmethod
    def of_projection(
        cls, columns: AvroColumnNames, projection: Projection, sides: Sequence[Self]
    ) -> Self:
        """The projection of these records as records of the schema of `columns`."""

    @abstractmethod
    def _plain(self) -> pa.RecordBatch:
        """The data columns in plain form."""

    @abstractmethod
    def _plain_column(self, index: int) -> pa.Array:
        """One data column in plain form."""

    @abstractmethod
    def payload(self) -> pa.BinaryArray:
        """The rows encoded as Avro datums; empty for an index record."""


@dataclass(frozen=True)
class AvroDatums(AvroRecords):
    """Records whose rows are fastavro's datums: a dict a row, None for an index record."""

    datums: list[dict[str, Any] | None]

    @classmethod
    def of_batch(cls, columns: AvroColumnNames, batch: pa.RecordBatch) -> Self:
        present = rows_present(batch)
        rows = batch.select(range(len(ENVELOPE), batch.num_columns))
        keys = columns.named.names
        datums: list[Any] = []
        for at in range(0, len(batch), BLOCK_ROWS):
            block = columns.to_avro_names(to_plain_batch(rows.slice(at, BLOCK_ROWS)))
            values = zip(*_FORM.columns(block.columns), strict=True)
            datums += [dict(zip(keys, row, strict=True)) for row in values]
        if present is not None:
            datums = [d if is_row else None for d, is_row in zip(datums, present, strict=True)]
        return cls(columns, batch.select(range(len(ENVELOPE))), datums)

    @classmethod
    def of_payload(
        cls, columns: AvroColumnNames, envelope: pa.RecordBatch, payload: pa.BinaryArray
    ) -> Self:
        """The records of these payloads. Raises DecodeError naming the record."""
        sizes = payload.to_pylist()
        stream = io.BytesIO(b"".join(sizes))
        read, tell, avro = fastavro.schemaless_reader, stream.tell, columns.fastavro
        datums: list[Any] = []
        end = 0
        for size in map(len, sizes):
            end += size
            try:
                datums.append(read(stream, avro, None) if size else None)
            except NOT_DATUM as exc:
                raise DecodeError("avro", len(datums), f"fastavro: {exc!r}") from exc
            if tell() != end:
                raise DecodeError(
                    "avro", len(datums) - 1, "its payload is not a datum of the schema"
                )
        return cls(columns, envelope, datums)

    @classmethod
    def of_projection(
        cls, columns: AvroColumnNames, projection: Projection, sides: Sequence[Self]
    ) -> Self:
        # an index record has no datum, even after a join
        present = [i for i, datum in enumerate(sides[0].datums) if datum is not None]
        rows_of = [side.datums for side in sides]
        if len(present) < len(sides[0]):
            rows_of = [[side.datums[i] for i in present] for side in sides]
        found: list[Iterable[Any]] = []
        for column in projection.columns:
            if column.source is None:
                t = columns.named.field(len(found)).type
                found.append(repeat(new_value(column, _FORM, t), len(present)))
                continue
            side, number = column.source
            name = sides[side].columns.named.field(number).name
            after = columns.named.field(len(found)).type
            found.append(_changed(picked(rows_of[side], name), column, after, sides[side], number))
        keys = columns.named.names
        made = [dict(zip(keys, row, strict=True)) for row in zip(*found, strict=True)]
        datums: list[dict[str, Any] | None] = [None] * len(sides[0])
        for i, datum in zip(present, made, strict=True):
            datums[i] = datum
        return cls(columns, sides[0].envelope, datums)

    def drawn_keys(self) -> pa.StringArray:
        """The record keys as a key generator draws them: each from the values of its record's own datum.

        Null for a record without a datum. Raises DataError for a datum without a key.
        """
        names = columns_of(self.schema.record_key)
        present = [datum for datum in self.datums if datum is not None]
        numbers = [self.columns.plain.get_field_index(name) for name in names]
        fields = [self.schema.batch_schema.field(name) for name in names]
        values = [
            from_plain(self._array(number, present), field.type)
            for number, field in zip(numbers, fields, strict=True)
        ]
        drawn = KeyGenerator(self.schema).record_keys(pa.record_batch(values, names=names))
        if len(present) == len(self):
            return drawn
        there = np.array([datum is not None for datum in self.datums])
        return drawn.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        datums = self.datums
        taken = [datums[i] for i in indices.tolist()]
        return type(self)(self.columns, self.envelope.take(pa.array(indices)), taken)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        envelope = pa.concat_batches([part.envelope for part in parts])
        datums = list(chain.from_iterable(part.datums for part in parts))
        return cls(parts[0].columns, envelope, datums)

    def payload(self) -> pa.BinaryArray:
        stream = io.BytesIO()
        write, tell = fastavro.schemaless_writer, stream.tell
        schema_of, all_present = self.columns.without_unions, self.columns.without_unions(())
        ends = [0]
        for datum in self.datums:
            if datum is not None:
                avro = all_present
                if None in datum.values():
                    avro = schema_of(tuple(k for k, value in datum.items() if value is None))
                write(stream, avro, datum)
            ends.append(tell())
        return binary_array(np.array(ends), stream.getbuffer())

    def _plain(self) -> pa.RecordBatch:
        blocks = []
        for at in range(0, max(1, len(self)), BLOCK_ROWS):
            datums = self.datums[at : at + BLOCK_ROWS]
            arrays = [self._array(i, datums) for i in range(len(self.columns.plain))]
            blocks.append(pa.record_batch(arrays, schema=self.columns.plain))
        return pa.concat_batches(blocks)

    def _plain_column(self, index: int) -> pa.Array:
        return self._array(index, self.datums)

    def _array(self, index: int, datums: Sequence[dict[str, Any] | None]) -> pa.Array:
        """One data column of these datums, in plain form."""
        field = self.columns.named.field(index)
        try:
            found = _FORM.array(picked(datums, field.name), field.type)
        except NOT_DATUM as exc:
            problem = f"its values do not fit the schema: {exc}"
            raise DecodeError("avro", None, problem) from exc
        return relabel(found, self.columns.plain.field(index).type)


def _changed(
    values: list[Any], column: TargetColumn, after: pa.DataType, side: AvroDatums, number: int
) -> Sequence[Any]:
    """The converted values of a column, whose nested datums have Avro's names."""
    before = side.columns.named.field(number).type
    change = column.change
    if change is None:
        return values
    return changed_values(values, replace(column, change=_renamed(change, before, after)), _FORM)


def _renamed(change: Change, before: pa.DataType, after: pa.DataType) -> Change:
    """`change`, with Avro's names in both types."""
    if not change.is_nested:
        return Change(before, after)
    olds, news = ([f.type for f in child_fields(t)] for t in (before, after))
    children = tuple(
        (n, None if n is None or c is None else _renamed(c, olds[n], news[i]))
        for i, (n, c) in enumerate(change.children)
    )
    return Change(before, after, children)


@dataclass(frozen=True)
class AvroColumns(AvroRecords):
    """Records whose rows are plain columns."""

    rows: pa.RecordBatch

    @classmethod
    def of_batch(cls, columns: AvroColumnNames, batch: pa.RecordBatch) -> Self:
        rows_present(batch)
        rows = batch.select(range(len(ENVELOPE), batch.num_columns))
        return cls(columns, batch.select(range(len(ENVELOPE))), rows)

    @classmethod
    def of_payload(
        cls, columns: AvroColumnNames, envelope: pa.RecordBatch, payload: pa.BinaryArray
    ) -> Self:
        """The records of these payloads. Raises DecodeError naming the record."""
        present = pc.greater(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
        if not present.all():
            rows = np.flatnonzero(present)
            try:
                found = columns.codec.decode(payload.take(pa.array(rows)), "avro")
            except DecodeError as exc:
                at = None if exc.record is None else int(rows[exc.record])
                raise DecodeError("avro", at, exc.problem) from None
            found = found.take(pa.array(np.cumsum(present) - 1, mask=~present))
        else:
            found = columns.codec.decode(payload, "avro")
        return cls(columns, envelope, columns.to_own_names(found))

    @classmethod
    def of_projection(
        cls, columns: AvroColumnNames, projection: Projection, sides: Sequence[Self]
    ) -> Self:
        envelope = sides[0].envelope
        is_index = envelope.column(IS_INDEX_RECORD)
        data = projected(projection, lambda side, number: sides[side].rows.column(number), is_index)
        return cls(columns, envelope, pa.record_batch(data, schema=columns.plain))

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        places = pa.array(indices)
        envelope, rows = self.envelope.take(places), self.rows.take(places)
        return type(self)(self.columns, envelope, rows)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        envelope = pa.concat_batches([part.envelope for part in parts])
        rows = pa.concat_batches([part.rows for part in parts])
        return cls(parts[0].columns, envelope, rows)

    def payload(self) -> pa.BinaryArray:
        is_index = self.envelope.column(IS_INDEX_RECORD)
        rows = self.columns.to_avro_names(self.rows)
        if not pc.any(is_index).as_py():
            return self.columns.codec.encode(rows)
        present = pc.invert(is_index)
        datums = self.columns.codec.encode(rows.filter(present))
        places = np.cumsum(present.to_numpy(zero_copy_only=False)) - 1
        taken = datums.take(pa.array(places, mask=is_index.to_numpy(zero_copy_only=False)))
        return taken.fill_null(b"")

    def _plain(self) -> pa.RecordBatch:
        return self.rows

    def _plain_column(self, index: int) -> pa.Array:
        return self.rows.column(index)
