"""Strategy `pickle`: records as Python objects, frames as pickles of protocol 5.

`Records` holds one `PickleRecord` a record: a tuple of the six fields of the envelope and the row, which
is a tuple of the data columns' values by position (`layout = "dict"`: a dict by name; an index record has
None). Values are physical (`python_values.py`): days, microseconds, unscaled decimals. So converting in
and out is the making and unmaking of Python objects, and serialising is the pickler's own work.

A frame, numbers little endian:

    byte 0      the mark, 0xA3
    1 to 4      fingerprint of the schema (`fingerprint.py`)
    5 …         a pickle, protocol 5, without memo: one record a frame (`rows_per_frame = 1`): the
                arguments of its constructor, a tuple of 7; else a list of such tuples

How its best advocate would write it, and does here:
- The class stands for itself by the mark. A pickle of the object would name the class in every frame
  (45 bytes) and call `__reduce__` for every record (half as long again as the rest); what is left out is
  what both sides know, as a class registered with Kryo. `__reduce__` is there for everyone else.
- One pickler writes a whole batch into one buffer. Its memo is off: no record holds an object twice, and
  bytes that depend on which equal objects are the same one would not be the same for equal batches.
- `pickler = "cloudpickle"` uses cloudpickle's pickler, what PySpark serialises functions with; for plain
  data it writes the same bytes through one more call in Python.

Must not know how frames are cut (`framing.py`) or what the columns mean.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.plain_form import from_plain, to_plain_batch
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.records.types import check_supported, plain_schema, plain_type
from serde_lab.serde.fingerprint import schema_fingerprint
from serde_lab.serde.framing import Cuts, cut, frame_error, frames_of, opened, payload_bytes
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
from serde_lab.serde.python_values import PythonForm, transposed
from serde_lab.serde.row_envelope import rows_present

EXPECTED: Mapping[str, tuple[float, float]] = {
    "record": (98, 1500),
    "bool": (1, 60),
    "int8": (3.5, 75),
    "int16": (4, 75),
    "int32": (5, 80),
    "int64": (10, 115),
    "float": (9, 90),
    "double": (9, 90),
    "decimal": (9, 140),
    "string": (14, 180),
    "binary": (14, 140),
    "date": (3, 75),
    "timestamp": (9, 110),
    "list": (33, 400),
    "map": (35, 600),
    "struct": (25, 450),
}
"""Written down before anything was measured: bytes of a value, and nanoseconds of the four verbs for it.

Values: numbers over all their range, dates from 1970 to 2030, decimal(15, 2), text of 12 letters, a list of
3 longs, a map of 2 entries (3 letters to a long), a struct of a long and a text. `record` is what a
record costs beside its columns, with a key of 28 letters and a file id of 38.
"""

_MARK = b"\xa3"
_PREFIX_BYTES = 5
_FIELDS = len(ENVELOPE) + 1
_ROW = len(ENVELOPE)
_MAX_BYTES = 2**31 - 1
# how a pickle begins: protocol 5, then one frame of so many bytes, which is all of it up to 64 KiB
_OPENING = b"\x80\x05\x95"
_OPENING_BYTES = 11


class PickleRecord(tuple[Any, ...]):
    """One record: the envelope's fields in order, then the row. Made from a tuple of them."""

    __slots__ = ()

    record_key = property(itemgetter(0))
    partition_path = property(itemgetter(1))
    file_id = property(itemgetter(2))
    instant_time = property(itemgetter(3))
    operation = property(itemgetter(4))
    is_index_record = property(itemgetter(5))
    row = property(itemgetter(6))

    def __reduce__(self) -> tuple[type[PickleRecord], tuple[tuple[Any, ...]]]:
        return PickleRecord, (tuple(self),)


@dataclass(frozen=True, slots=True)
class PickleRecords(Records):
    """Records as a list of PickleRecord."""

    schema: RecordSchema
    form: PythonForm
    records: list[PickleRecord]

    def __len__(self) -> int:
        return len(self.records)

    def to_arrow(self) -> pa.RecordBatch:
        schema = self.schema.batch_schema
        try:
            fields = transposed(self.records, _FIELDS)
            values = [*fields[:_ROW], *self._columns(fields[_ROW])]
            arrays = [self._array(v, f) for v, f in zip(values, schema, strict=True)]
        except _NOT_VALUES as exc:
            raise DecodeError("pickle", None, f"its values are not of the schema: {exc}") from exc
        return pa.record_batch(arrays, schema=schema)

    def column(self, name: str) -> pa.Array:
        field = self.schema.batch_schema.field(name)
        place = ENVELOPE.get_field_index(name)
        try:
            if place >= 0:
                return self._array([record[place] for record in self.records], field)
            key = name if self.form.struct_as_dict else self.schema.data.get_field_index(name)
            rows = [record[_ROW] for record in self.records]
            return self._array([None if row is None else row[key] for row in rows], field)
        except _NOT_VALUES as exc:
            raise DecodeError("pickle", None, f"its values are not of the schema: {exc}") from exc

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


@dataclass(frozen=True)
class BoundPickle(BoundSerde):
    """`pickle` bound to a schema."""

    schema: RecordSchema
    options: SerdeOptions
    mark = _MARK

    def __repr__(self) -> str:
        return f"pickle({self.options})"

    @cached_property
    def _prefix(self) -> bytes:
        return _MARK + schema_fingerprint(self.schema).to_bytes(4, "little")

    @cached_property
    def _form(self) -> PythonForm:
        return PythonForm(struct_as_dict=self.options.own["layout"] == "dict")

    @cached_property
    def _plain(self) -> pa.Schema:
        return plain_schema(self.schema.batch_schema)

    def from_arrow(self, batch: pa.RecordBatch) -> PickleRecords:
        plain = to_plain_batch(batch)
        present = rows_present(plain)
        columns = self._form.columns(plain.columns)
        names = self.schema.data.names
        rows: Any = zip(*columns[_ROW:], strict=True)
        if self._form.struct_as_dict:
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        if present is not None:
            rows = [row if is_row else None for row, is_row in zip(rows, present, strict=True)]
        records = list(map(PickleRecord, zip(*columns[:_ROW], rows, strict=True)))
        return PickleRecords(self.schema, self._form, records)

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, PickleRecords)
        cuts = cut(bounds, self.options)
        writer = _PickleWriter(self._pickler(), records.records)
        if self.options.rows_per_frame == 1:
            writer.each()
        else:
            most_bytes = payload_bytes(self.options) - _PREFIX_BYTES
            starts, targets = [], []
            for target, (first, last) in zip(
                cuts.targets.tolist(), pairwise(cuts.offsets.tolist()), strict=True
            ):
                added = writer.several(first, last, most_bytes)
                starts += added
                targets += [target] * len(added)
            offsets = np.array([*starts, len(records)], np.int64)
            cuts = Cuts(offsets, np.array(targets, np.int32))
        pickles = writer.written()
        frames = pc.binary_join_element_wise(pa.scalar(self._prefix), pickles, b"")
        return frames_of(cuts, frames, self.options)

    def _pickler(self) -> type[pickle.Pickler]:
        if self.options.own["pickler"] == "cloudpickle":
            import cloudpickle

            pickler: type[pickle.Pickler] = cloudpickle.Pickler
            return pickler
        return pickle.Pickler

    def decode(self, frames: pa.BinaryArray) -> PickleRecords:
        frames = opened("pickle", frames, self.options)
        raw, starts, ends = self._checked(frames)
        loads = pickle.loads
        try:
            found = [loads(raw[a:b]) for a, b in zip(starts, ends, strict=True)]
        except Exception as exc:  # a pickle may raise anything: it is a program
            raise self._first_unreadable(raw, starts, ends) from exc
        if set(map(type, found)) == {list}:
            found = list(chain.from_iterable(found))
        if set(map(type, found)) - {tuple} or set(map(len, found)) - {_FIELDS}:
            raise DecodeError("pickle", None, "it holds something else than records")
        return PickleRecords(self.schema, self._form, list(map(PickleRecord, found)))

    def _checked(self, frames: pa.BinaryArray) -> tuple[bytes, list[int], list[int]]:
        """The bytes of all frames, and where their pickles begin and end; raises DecodeError."""
        if not len(frames):
            return b"", [], []
        _, offsets, data = frames.buffers()
        ends = np.frombuffer(offsets, np.int32, len(frames) + 1, 4 * frames.offset).astype(np.int64)
        first, last = int(ends[0]), int(ends[-1])
        raw = b"" if data is None else data.slice(first, last - first).to_pybytes()
        ends -= first
        starts, ends = ends[:-1], ends[1:]
        sizes = ends - starts
        self._refuse(sizes < _PREFIX_BYTES + _OPENING_BYTES, "it is too short")
        bytes_of = np.frombuffer(raw, np.uint8)
        for place, byte in enumerate(self._prefix):
            what = "its mark is another one" if place == 0 else "it is of another schema"
            self._refuse(bytes_of[starts + place] != byte, what)
        starts = starts + _PREFIX_BYTES
        # pickle.loads does not mind bytes behind a pickle; a frame that is one has its size in front
        words = np.ndarray((len(raw) - 7,), "<u8", bytes_of, 0, (1,))
        whole = words[starts + len(_OPENING)] == (ends - starts - _OPENING_BYTES).view(np.uint64)
        for place, byte in enumerate(_OPENING):
            whole &= bytes_of[starts + place] == byte
        for index in np.flatnonzero(~whole).tolist():
            stream = io.BytesIO(raw[starts[index] : ends[index]])
            try:
                pickle.Unpickler(stream).load()
            except Exception as exc:  # as above
                raise frame_error("pickle", index, self.options, f"{exc}") from exc
            if stream.read(1):
                raise frame_error("pickle", index, self.options, "bytes stand behind its pickle")
        return raw, starts.tolist(), ends.tolist()

    def _refuse(self, wrong: npt.NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            raise frame_error("pickle", int(wrong.argmax()), self.options, problem)

    def _first_unreadable(self, raw: bytes, starts: list[int], ends: list[int]) -> DecodeError:
        for index, (a, b) in enumerate(zip(starts, ends, strict=True)):
            try:
                pickle.loads(raw[a:b])
            except Exception as exc:  # as above
                return frame_error("pickle", index, self.options, str(exc))
        return DecodeError("pickle", None, "it could not be read, and then it could")


class _PickleWriter:
    """Pickles into one buffer."""

    def __init__(self, pickler: type[pickle.Pickler], records: list[PickleRecord]) -> None:
        self._buffer = io.BytesIO()
        self._pickler = pickler(self._buffer, 5)
        self._pickler.fast = True
        self._records = records
        self._ends = [0]

    def each(self) -> None:
        """A pickle for every record."""
        dump, tell, end = self._pickler.dump, self._buffer.tell, self._ends.append
        for record in self._records:
            dump(tuple(record))
            end(tell())

    def several(self, first: int, last: int, most_bytes: int) -> list[int]:
        """Pickles of records [first, last), cut at `most_bytes`; with which record each begins."""
        start = self._buffer.tell()
        self._pickler.dump(list(map(tuple, self._records[first:last])))
        end = self._buffer.tell()
        if end - start <= most_bytes or last - first == 1:
            self._ends.append(end)
            return [first]
        # how large a pickle is shows when it is written; so write it again in pieces
        self._buffer.seek(start)
        self._buffer.truncate()
        rows = max(1, (last - first) // -(-(end - start) // most_bytes))
        pieces = (
            self.several(at, min(at + rows, last), most_bytes) for at in range(first, last, rows)
        )
        return list(chain.from_iterable(pieces))

    def written(self) -> pa.BinaryArray:
        """All pickles; raises DataError where they have 2 GiB."""
        if self._ends[-1] > _MAX_BYTES:
            raise DataError(f"a batch of {len(self._records)} records has {self._ends[-1]} bytes")
        buffers = [None, pa.py_buffer(np.array(self._ends, np.int32)), self._buffer.getbuffer()]
        buffers[2] = pa.py_buffer(buffers[2])
        return pa.Array.from_buffers(pa.binary(), len(self._ends) - 1, buffers, 0)


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
