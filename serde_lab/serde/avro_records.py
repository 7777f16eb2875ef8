"""Strategy `avro`: Hudi's Avro HoodieRecord, an envelope around an Avro payload.

`execution = "row"` (default): `Records` holds Avro datums as fastavro has them, a dict a row, beside the
envelope's six columns. Values are physical, as in Hudi's GenericRecords, whose Avro schema is taken
without its logical types, which do not change the bytes: days, microseconds, a decimal as the bytes of its
`fixed` (`python_values.py`). Converting is the making of dicts; serialising is one call of fastavro's
schemaless_writer or schemaless_reader a record.

`execution = "batch"`: `Records` holds the columns, in plain form; converting costs next to nothing, and
serialising is `records/avro_codec.py`, which reads and writes the same bytes a column at a time. Between
the two the format is the same and the execution differs, so that their difference is what a loop costs.

Envelope and frames (`avro_frames.py`) are written by columns in both: fastavro would take 3 µs for what
is no part of the payload.

Names that Avro does not allow are replaced by ones that it does (`avro_schema.with_avro_names`): no name
is in the bytes. A table with such names is refused elsewhere. A map that has a key twice is refused,
as neither Java's nor Python's maps can hold it.

Must not know how frames are cut (`framing.py`) or what the columns mean.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.avro_codec import AvroCodec
from serde_lab.records.avro_schema import AvroSchema, arrow_to_avro, with_avro_names
from serde_lab.records.plain_form import from_plain, to_plain, to_plain_batch
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RecordSchema
from serde_lab.records.types import check_supported, is_list, plain_schema
from serde_lab.serde.avro_frames import MARK, AvroFrames
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.options import resolve
from serde_lab.serde.python_values import PythonForm
from serde_lab.serde.row_envelope import rows_present

EXPECTED: Mapping[str, tuple[float, float]] = {
    "record": (82, 2000),
    "bool": (2, 1100),
    "int8": (2.5, 1300),
    "int16": (3.8, 1300),
    "int32": (6, 1300),
    "int64": (10.5, 1300),
    "float": (5, 1200),
    "double": (9, 1200),
    "decimal": (8, 1400),
    "string": (14, 1400),
    "binary": (14, 1300),
    "date": (3.6, 1300),
    "timestamp": (9, 1300),
    "list": (34.5, 6000),
    "map": (32, 5000),
    "struct": (25.5, 4500),
}
"""Written down before anything was measured, for `execution = "row"`: bytes and nanoseconds of a value.

The values are those of `pickle_records.EXPECTED`. With `execution = "batch"`: the same bytes, and 250 ns
for the record, 30 for a number, 50 for a varint of many lengths, 60 for a text, 250 for list and map."""
EXPECTED_BATCH_NS: Mapping[str, float] = {
    "record": 250,
    "bool": 25,
    "int8": 50,
    "int16": 55,
    "int32": 60,
    "int64": 70,
    "float": 30,
    "double": 30,
    "decimal": 35,
    "string": 60,
    "binary": 55,
    "date": 55,
    "timestamp": 65,
    "list": 250,
    "map": 250,
    "struct": 150,
}
"""The nanoseconds expected of `execution = "batch"`; its bytes are the same."""

_FORM = PythonForm(struct_as_dict=True, map_as_dict=True, decimal_as_bytes=True)


@dataclass(frozen=True)
class _Columns:
    """The data columns of a schema, and what Avro calls them."""

    data: pa.Schema

    @cached_property
    def plain(self) -> pa.Schema:
        """The columns in plain form, nullable, under their own names."""
        return pa.schema([f.with_nullable(True) for f in plain_schema(self.data)])

    @cached_property
    def named(self) -> pa.Schema:
        """The same under names that Avro allows."""
        return with_avro_names(self.plain)

    @cached_property
    def avro(self) -> AvroSchema:
        """The Avro schema of a row."""
        return arrow_to_avro(self.named, "row", "serde_lab")

    @cached_property
    def codec(self) -> AvroCodec:
        return AvroCodec(self.avro, self.named)

    @cached_property
    def fastavro(self) -> AvroSchema:
        """The Avro schema as fastavro takes it, without logical types."""
        return fastavro.parse_schema(_physical(self.avro))

    def to_avro_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Plain columns under Avro's names."""
        return _relabelled(batch.columns, self.named)

    def to_own_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Plain columns under their own names."""
        return _relabelled(batch.columns, self.plain)


@dataclass(frozen=True)
class AvroRecords(Records):
    """Envelopes as columns, in the form of ENVELOPE; subclasses say what the rows are."""

    schema: RecordSchema
    columns: _Columns
    envelope: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.envelope.num_rows)

    def to_arrow(self) -> pa.RecordBatch:
        fields = list(self.schema.batch_schema)[len(ENVELOPE) :]
        data = [from_plain(a, f.type) for a, f in zip(self._plain().columns, fields, strict=True)]
        return pa.record_batch([*self.envelope.columns, *data], schema=self.schema.batch_schema)

    def column(self, name: str) -> pa.Array:
        if name in ENVELOPE.names:
            return self.envelope.column(name)
        array = self._plain_column(self.columns.plain.get_field_index(name))
        return from_plain(array, self.schema.batch_schema.field(name).type)

    @abstractmethod
    def _plain(self) -> pa.RecordBatch:
        """The data columns in plain form."""

    @abstractmethod
    def _plain_column(self, index: int) -> pa.Array:
        """One of them."""

    @abstractmethod
    def payload(self) -> pa.BinaryArray:
        """The rows as Avro datums in bytes; empty for an index record."""


@dataclass(frozen=True)
class AvroDatums(AvroRecords):
    """Rows as fastavro's datums: a dict a row, None for an index record."""

    datums: list[dict[str, Any] | None]

    @classmethod
    def of_batch(cls, schema: RecordSchema, columns: _Columns, batch: pa.RecordBatch) -> Self:
        """The records of a plain batch."""
        present = rows_present(batch)
        named = columns.to_avro_names(batch.select(range(len(ENVELOPE), batch.num_columns)))
        names = named.schema.names
        rows = zip(*_FORM.columns(named.columns), strict=True)
        datums: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
        if present is not None:
            datums = [d if is_row else None for d, is_row in zip(datums, present, strict=True)]
        return cls(schema, columns, batch.select(range(len(ENVELOPE))), datums)

    @classmethod
    def of_payload(
        cls,
        schema: RecordSchema,
        columns: _Columns,
        envelope: pa.RecordBatch,
        payload: pa.BinaryArray,
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
            except _NOT_DATUM as exc:
                raise DecodeError("avro", len(datums), f"fastavro: {exc!r}") from exc
            if tell() != end:
                raise DecodeError("avro", len(datums) - 1, "its payload is no datum of the schema")
        return cls(schema, columns, envelope, datums)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        datums = self.datums
        taken = [datums[i] for i in indices.tolist()]
        return type(self)(self.schema, self.columns, self.envelope.take(pa.array(indices)), taken)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        envelope = pa.concat_batches([part.envelope for part in parts])
        datums = list(chain.from_iterable(part.datums for part in parts))
        return cls(parts[0].schema, parts[0].columns, envelope, datums)

    def payload(self) -> pa.BinaryArray:
        stream = io.BytesIO()
        write, tell, avro = fastavro.schemaless_writer, stream.tell, self.columns.fastavro
        ends = [0]
        for datum in self.datums:
            if datum is not None:
                write(stream, avro, datum)
            ends.append(tell())
        if ends[-1] > 2**31 - 1:
            raise DataError(f"the payloads of {len(self)} records have {ends[-1]} bytes")
        buffers = [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(stream.getbuffer())]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers, 0)

    def _plain(self) -> pa.RecordBatch:
        arrays = [self._plain_column(i) for i in range(len(self.columns.plain))]
        return pa.record_batch(arrays, schema=self.columns.plain)

    def _plain_column(self, index: int) -> pa.Array:
        field = self.columns.named.field(index)
        name = field.name
        try:
            values = [None if datum is None else datum[name] for datum in self.datums]
            found = _FORM.array(values, field.type)
        except _NOT_DATUM as exc:
            problem = f"its values are not of the schema: {exc}"
            raise DecodeError("avro", None, problem) from exc
        return _relabel(found, self.columns.plain.field(index).type)


@dataclass(frozen=True)
class AvroColumns(AvroRecords):
    """Rows as plain columns."""

    rows: pa.RecordBatch

    @classmethod
    def of_batch(cls, schema: RecordSchema, columns: _Columns, batch: pa.RecordBatch) -> Self:
        """The records of a plain batch."""
        rows_present(batch)
        rows = batch.select(range(len(ENVELOPE), batch.num_columns))
        return cls(schema, columns, batch.select(range(len(ENVELOPE))), rows)

    @classmethod
    def of_payload(
        cls,
        schema: RecordSchema,
        columns: _Columns,
        envelope: pa.RecordBatch,
        payload: pa.BinaryArray,
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
        return cls(schema, columns, envelope, columns.to_own_names(found))

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        places = pa.array(indices)
        envelope, rows = self.envelope.take(places), self.rows.take(places)
        return type(self)(self.schema, self.columns, envelope, rows)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        envelope = pa.concat_batches([part.envelope for part in parts])
        rows = pa.concat_batches([part.rows for part in parts])
        return cls(parts[0].schema, parts[0].columns, envelope, rows)

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


@dataclass(frozen=True)
class BoundAvro(BoundSerde):
    """`avro` bound to a schema."""

    schema: RecordSchema
    options: SerdeOptions
    mark = MARK

    def __repr__(self) -> str:
        return f"avro({self.options})"

    @cached_property
    def _columns(self) -> _Columns:
        return _Columns(self.schema.data)

    @cached_property
    def _frames(self) -> AvroFrames:
        return AvroFrames.of(self.schema, self.options)

    @property
    def _records(self) -> type[AvroDatums] | type[AvroColumns]:
        return AvroDatums if self.options.execution == "row" else AvroColumns

    def from_arrow(self, batch: pa.RecordBatch) -> AvroRecords:
        plain = to_plain_batch(batch)
        for name, column in zip(plain.schema.names, plain.columns, strict=True):
            _check_maps(name, column)
        plain = pa.record_batch(plain.columns, schema=plain_schema(self.schema.batch_schema))
        return self._records.of_batch(self.schema, self._columns, plain)

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, AvroRecords)
        return self._frames.join(records.envelope, records.payload(), bounds)

    def decode(self, frames: pa.BinaryArray) -> AvroRecords:
        envelope, payload = self._frames.split(frames)
        return self._records.of_payload(self.schema, self._columns, envelope, payload)


class AvroStrategy(Strategy):
    """Hudi's Avro records; see the module's docstring."""

    name = "avro"
    executions = ("row", "batch")
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundAvro:
        check_supported(schema.data)
        return BoundAvro(schema, resolve(self, options))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a frame carries 4 bytes of its fingerprint, "
            "not the schema as an Avro file does",
            copies="row: every value becomes a Python object in a dict, its bytes are copied into the "
            "payload, then into the frame; batch: columns are copied into datums, then into the frame",
            batching="row: payloads are written one call of fastavro a record into one buffer; batch: "
            "a column at a time; envelope and frames are built by columns in both",
            trust="bytes are checked as they are read; row: fastavro accepts a union's branch of -1 "
            "as the last, and what is no value of the schema raises when it is converted out",
            notes="values are physical (days, microseconds, a decimal as its fixed), as in Hudi's own "
            "Avro records; fastavro looks for the branch of every union by trying them",
        )


_NOT_DATUM = (
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    pa.ArrowException,
)


def _physical(avro: AvroSchema) -> AvroSchema:
    """`avro` without logical types, whose values are then what stands in the bytes."""
    if isinstance(avro, list):
        return [_physical(a) for a in avro]
    if isinstance(avro, dict):
        logical = ("logicalType", "precision", "scale")
        return {key: _physical(a) for key, a in avro.items() if key not in logical}
    return avro


def _relabelled(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_relabel(a, f.type) for a, f in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _relabel(array: pa.Array, t: pa.DataType) -> pa.Array:
    """`array` as type `t`, which differs in the names of fields only."""
    if array.type.equals(t):
        return array
    if array.offset:
        array = to_plain(array)
    if pat.is_struct(t):
        children = [_relabel(array.field(i), field.type) for i, field in enumerate(t)]
    elif pat.is_map(t):
        pairs = [array.keys, _relabel(array.items, t.item_type)]
        children = [pa.StructArray.from_arrays(pairs, fields=[t.key_field, t.item_field])]
    else:
        children = [_relabel(array.values, t.value_type)]
    buffers = array.buffers()[: 1 if pat.is_struct(t) else 2]
    return pa.Array.from_buffers(t, len(array), buffers, array.null_count, 0, children)


def _check_maps(path: str, array: pa.Array) -> None:
    """Raise DataError naming the column where a map of the plain `array` has a key twice."""
    t = array.type
    if pat.is_map(t):
        keys = array.keys.dictionary_encode()
        sizes: Any = np.diff(np.frombuffer(array.buffers()[1], np.int32, len(array) + 1))
        map_of = np.repeat(np.arange(len(array)), sizes)
        pairs = map_of * len(keys.dictionary) + keys.indices.to_numpy()
        if len(np.unique(pairs)) < len(pairs):
            raise DataError(
                f"column {path!r} has a map with a key twice, which Avro's maps cannot have"
            )
        _check_maps(f"{path}.value", array.items)
    elif is_list(t):
        _check_maps(f"{path}.element", array.values)
    elif pat.is_struct(t):
        for index, field in enumerate(t):
            _check_maps(f"{path}.{field.name}", array.field(index))
