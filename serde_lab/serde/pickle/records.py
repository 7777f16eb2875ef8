"""Strategy `pickle`: records as Python objects, frames as pickles of protocol 5.

`Records` holds a tuple a record: the six fields of the envelope and the row, which is a tuple of the data
columns' values by position (`layout = "dict"`: a dict by name; an index record has None). Values are
physical (`python_values.py`): days, microseconds, unscaled decimals. Converting in and out builds and takes
apart Python objects; serialising is the pickler's work alone.

Choices that make pickle as good as it can be:
- A record is a plain tuple and is pickled as it is, since the mark already implies what it is. A class of
  its own would be named in every frame (50 bytes), and looked up and reduced for every record, which takes
  as long as all the rest. Leaving out what both sides know is like registering a class with Kryo.
- Columns and objects are converted into each other in blocks that stay in the CPU's caches, and Python's
  garbage collector rests meanwhile.
- One pickler writes a whole batch into one buffer (`pickle/frames.py`). Its memo is off: no record holds
  an object twice, and with a memo the bytes would depend on which equal objects are identical, so equal
  batches could give different bytes.
- `pickler = "cloudpickle"` uses cloudpickle's pickler, with which PySpark serialises functions; for plain
  data it writes the same bytes through one more call in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DecodeError
from serde_lab.records.plain_form import from_plain, to_plain_batch
from serde_lab.records.schema import ENVELOPE, RECORD_KEY, RecordSchema, check_supported, plain_type
from serde_lab.serde.framing import rows_present, without_collector
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.pickle.frames import MARK, PickleFrames
from serde_lab.serde.projection.columns import changed_values, new_value
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.python_values import BLOCK_ROWS, PythonForm, picked, transposed
from serde_lab.serde.record_verbs import MetadataValues
from serde_lab.serde.registry import resolve

_FIELDS = len(ENVELOPE) + 1
_ROW = len(ENVELOPE)


@dataclass(frozen=True, slots=True)
class PickleRecords(Records):
    """Records as tuples: the envelope's fields in order, then the row."""

    schema: RecordSchema
    form: PythonForm
    records: list[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.records)

    def to_arrow(self) -> pa.RecordBatch:
        return self._converted(ENVELOPE)

    def to_rows(self) -> tuple[pa.StringArray, pa.RecordBatch]:
        batch = self._converted(pa.schema([ENVELOPE.field(RECORD_KEY)]))
        return batch.column(0), pa.RecordBatch.from_arrays(
            batch.columns[1:], schema=self.schema.data
        )

    @without_collector()
    def _converted(self, envelope: pa.Schema) -> pa.RecordBatch:
        """All data columns after these columns of the envelope, which are its first ones."""
        try:
            blocks = [
                self._block(self.records[at : at + BLOCK_ROWS], envelope)
                for at in range(0, max(1, len(self)), BLOCK_ROWS)
            ]
            return pa.concat_batches(blocks)
        except _NOT_VALUES as exc:
            raise DecodeError("pickle", None, f"its values do not fit the schema: {exc}") from exc

    def _block(self, records: Sequence[tuple[Any, ...]], envelope: pa.Schema) -> pa.RecordBatch:
        schema = pa.schema([*envelope, *list(self.schema.batch_schema)[len(ENVELOPE) :]])
        fields = transposed(records, _FIELDS)
        values = [*fields[: len(envelope)], *self._columns(fields[_ROW])]
        arrays = [self._array(v, f) for v, f in zip(values, schema, strict=True)]
        return pa.record_batch(arrays, schema=schema)

    def column(self, name: str) -> pa.Array:
        field = self.schema.batch_schema.field(name)
        place = ENVELOPE.get_field_index(name)
        try:
            if place >= 0:
                return self._array([record[place] for record in self.records], field)
            key = name if self.form.struct_as_dict else self.schema.data.get_field_index(name)
            rows = [record[_ROW] for record in self.records]
            return self._array(picked(rows, key), field)
        except _NOT_VALUES as exc:
            raise DecodeError("pickle", None, f"its values do not fit the schema: {exc}") from exc

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        records = self.records
        return type(self)(self.schema, self.form, [records[i] for i in indices.tolist()])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        records = list(chain.from_iterable(part.records for part in parts))
        return cls(parts[0].schema, parts[0].form, records)

    def _columns(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        names = self.schema.data.names
        if None in rows:
            none: Any = (None,) * len(names)
            if self.form.struct_as_dict:
                none = dict.fromkeys(names)
            rows = [none if row is None else row for row in rows]
        if self.form.struct_as_dict:
            return [[row[name] for row in rows] for name in names]
        return transposed(rows, len(names))

    def _array(self, values: Sequence[Any], field: pa.Field) -> pa.Array:
        array = self.form.array(values, plain_type(field.type))
        if array.null_count and not field.nullable:
            raise ValueError(f"{field.name} is null")
        return from_plain(array, field.type)


_NOT_VALUES = (TypeError, ValueError, LookupError, AttributeError, OverflowError, pa.ArrowException)


class BoundPickle(BoundSerde):
    name = "pickle"
    mark = MARK

    @cached_property
    def _frames(self) -> PickleFrames:
        return PickleFrames.of(self.schema, self.options)

    @cached_property
    def _form(self) -> PythonForm:
        return PythonForm(struct_as_dict=self.options.own["layout"] == "dict")

    @without_collector()
    def from_arrow(self, batch: pa.RecordBatch) -> PickleRecords:
        records: list[tuple[Any, ...]] = []
        for at in range(0, len(batch), BLOCK_ROWS):
            records += self._block(to_plain_batch(batch.slice(at, BLOCK_ROWS)))
        return PickleRecords(self.schema, self._form, records)

    def _block(self, plain: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
        present = rows_present(plain)
        columns = self._form.columns(plain.columns)
        names = self.schema.data.names
        rows: Any = zip(*columns[_ROW:], strict=True)
        if self._form.struct_as_dict:
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        if present is not None:
            rows = [row if is_row else None for row, is_row in zip(rows, present, strict=True)]
        return zip(*columns[:_ROW], rows, strict=True)

    @without_collector()
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, PickleRecords)
        return self._frames.write(records.records, bounds)

    @without_collector()
    def decode(self, frames: pa.BinaryArray) -> PickleRecords:
        found = self._frames.read(frames)
        if set(map(type, found)) - {tuple} or set(map(len, found)) - {_FIELDS}:
            raise DecodeError("pickle", None, "it does not hold records")
        return PickleRecords(self.schema, self._form, found)

    def project(self, projection: Projection, sides: Sequence[Records]) -> PickleRecords:
        found = []
        for side in sides:
            assert isinstance(side, PickleRecords)
            found.append(side.records)
        # an index record has no row, even after a join
        present = [i for i, record in enumerate(found[0]) if record[_ROW] is not None]
        rows_of = [[records[i][_ROW] for i in present] for records in found]
        columns: list[Iterable[Any]] = []
        for column in projection.columns:
            if column.source is None:
                columns.append(repeat(new_value(column, self._form), len(present)))
                continue
            at, number = column.source
            key = sides[at].schema.data.names[number] if self._form.struct_as_dict else number
            columns.append(changed_values(picked(rows_of[at], key), column, self._form))
        rows: Any = zip(*columns, strict=True)
        if self._form.struct_as_dict:
            names = self.schema.data.names
            rows = (dict(zip(names, row, strict=True)) for row in rows)
        projected = list(found[0])
        for i, row in zip(present, rows, strict=True):
            projected[i] = (*projected[i][:_ROW], row)
        return PickleRecords(self.schema, self._form, projected)

    def update_metadata(self, records: Records, values: MetadataValues) -> PickleRecords:
        assert isinstance(records, PickleRecords)
        given = values.arrays(len(records))
        if not given:
            return records
        fields: list[Any] = transposed(records.records, _FIELDS)
        for name, value in given.items():
            fields[ENVELOPE.get_field_index(name)] = value.to_pylist()
        updated = list(zip(*fields, strict=True))
        return PickleRecords(self.schema, self._form, updated)


class PickleStrategy(Strategy):
    """Python records and pickle; see the module's docstring."""

    name = "pickle"
    executions = ("row",)
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundPickle:
        check_supported(schema.data)
        own = {"layout": ("positional", "dict"), "pickler": ("pickle", "cloudpickle")}
        return BoundPickle(schema, resolve(self, options, own))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know schema and record class; a frame carries 4 bytes of the "
            "schema's fingerprint, with layout = dict also the columns' names",
            copies="every value becomes a Python object, its bytes are copied into the frame and out "
            "of it, then into a column",
            batching="one pickler, one buffer and one framing step a batch; each record is pickled "
            "and unpickled by itself",
            trust="a pickle is a program: a hostile frame can run anything, a damaged one may do "
            "anything unless sealed by crc32c; what is loaded is only checked to be records",
            notes="values are physical (days, microseconds, unscaled decimals); date and Decimal "
            "objects would cost more",
        )
