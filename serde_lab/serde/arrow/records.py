"""Strategy `arrow`: records as an Arrow record batch, frames as Arrow IPC messages without the schema.

`Records` holds one RecordBatch in plain form (`records/plain_form.py`). An envelope column with a single
value is left out of the batch and its value held once. Converting in and out costs next to nothing, and
serialising copies columns. Frames should hold many records: the message's own metadata takes about 150
bytes and 50 a column, however few the records. `arrow/frames.py` describes the bytes of a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.plain_form import from_plain, to_plain, to_plain_batch
from serde_lab.records.schema import (
    ENVELOPE,
    IS_INDEX_RECORD,
    RECORD_KEY,
    RecordSchema,
    check_supported,
    plain_schema,
)
from serde_lab.serde.arrow.frames import (
    CODECS,
    KEY,
    MARK,
    FrameReader,
    FrameWriter,
    constant_bytes,
    typed,
)
from serde_lab.serde.framing import (
    Damaged,
    cut_by_writing,
    frame_error,
    frames_of,
    opened,
    payload_bytes,
    schema_fingerprint,
)
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.projection.columns import projected
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues
from serde_lab.serde.registry import resolve


@dataclass(frozen=True, slots=True)
class ArrowRecords(Records):
    """Records as one RecordBatch in plain form, of the columns that are not in `constants`.

    `constants` maps numbers of envelope columns to the value that all records share.
    """

    schema: RecordSchema
    batch: pa.RecordBatch
    constants: Mapping[int, bytes]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def to_arrow(self) -> pa.RecordBatch:
        schema = self.schema.batch_schema
        return pa.record_batch([self._column(field) for field in schema], schema=schema)

    def to_rows(self) -> tuple[pa.StringArray, pa.RecordBatch]:
        schema = self.schema.batch_schema
        names = (RECORD_KEY, *self.schema.data.names)
        keys, *data = (self._column(schema.field(name)) for name in names)
        return keys, pa.RecordBatch.from_arrays(data, schema=self.schema.data)

    def column(self, name: str) -> pa.Array:
        return self._column(self.schema.batch_schema.field(name))

    def _column(self, field: pa.Field) -> pa.Array:
        number = ENVELOPE.get_field_index(field.name)
        if number in self.constants:
            return pa.repeat(typed([self.constants[number]], number)[0], len(self))
        return from_plain(self.batch.column(field.name), field.type)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.schema, self.batch.take(pa.array(indices)), self.constants)

    def slice(self, start: int, stop: int) -> Self:
        return type(self)(self.schema, self.batch.slice(start, stop - start), self.constants)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        schema = parts[0].schema
        shared = set[int].intersection(*(set(part.constants) for part in parts))
        parts = [part._with_columns(shared) for part in parts]
        batch = pa.concat_batches([part.batch for part in parts])
        constants = dict(parts[0].constants)
        differing = {i for i, v in constants.items() if any(p.constants[i] != v for p in parts)}
        if differing:
            rows = pa.array(np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
            for i in differing:
                del constants[i]
            columns = {
                i: typed([part.constants[i] for part in parts], i).take(rows) for i in differing
            }
            batch = _with_envelope(batch, columns)
        return cls(schema, batch, constants)

    def _with_columns(self, kept: set[int]) -> Self:
        """The same records with only the constants in `kept`; the others become columns."""
        spread = set(self.constants) - kept
        if not spread:
            return self
        columns = {i: self.column(ENVELOPE.field(i).name) for i in spread}
        constants = {i: v for i, v in self.constants.items() if i in kept}
        return type(self)(self.schema, _with_envelope(self.batch, columns), constants)

    def with_metadata(self, values: MetadataValues) -> Self:
        """The same records with other metadata: a constant for a single text, else a column."""
        constants = dict(self.constants)
        columns: dict[int, pa.Array] = {}
        for name, value in values.columns(len(self)).items():
            number = ENVELOPE.get_field_index(name)
            constants.pop(number, None)
            if isinstance(value, str):
                constants[number] = value.encode()
            else:
                columns[number] = to_plain(value)
        gone = [
            n for n in (ENVELOPE.field(i).name for i in constants) if n in self.batch.schema.names
        ]
        return type(self)(
            self.schema, _with_envelope(self.batch.drop_columns(gone), columns), constants
        )


def _with_envelope(batch: pa.RecordBatch, columns: Mapping[int, pa.Array]) -> pa.RecordBatch:
    """`batch` with these columns of the envelope added, in the envelope's order."""
    given = {ENVELOPE.field(i).name: column for i, column in columns.items()}
    names = [n for n in ENVELOPE.names if n in given or n in batch.schema.names]
    fields = [ENVELOPE.field(n) for n in names]
    arrays = [given[n] if n in given else batch.column(n) for n in names]
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name not in names:
            fields.append(field)
            arrays.append(array)
    return pa.record_batch(arrays, schema=pa.schema(fields))


class BoundArrow(BoundSerde):
    name = "arrow"
    mark = bytes([MARK])

    @cached_property
    def _plain(self) -> pa.Schema:
        return plain_schema(self.schema.batch_schema)

    @cached_property
    def _fingerprint(self) -> int:
        return schema_fingerprint(self.schema)

    @cached_property
    def _codec(self) -> int:
        name = self.options.own["compression"]
        return 0 if name == "none" else CODECS.index(str(name))

    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        plain = to_plain_batch(batch)
        constants = {
            i: value
            for i in range(len(ENVELOPE))
            if i != KEY and (value := _one_value(plain.column(i))) is not None
        }
        return ArrowRecords(self.schema, _without(plain, self._plain, constants), constants)

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, ArrowRecords)
        writer = FrameWriter(records.batch, records.constants, self._fingerprint, self._codec)
        write = partial(writer.write, most_bytes=payload_bytes(self.options))
        cuts = cut_by_writing(bounds, self.options, write)
        return frames_of(cuts, writer.column(), self.options)

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        parts = []
        reader = FrameReader(self._plain, self._fingerprint)
        for index, frame in enumerate(opened("arrow", frames, self.options)):
            try:
                batch, constants = reader.read(frame.as_buffer())
            except (pa.ArrowException, OSError, EOFError, Damaged) as exc:
                raise frame_error("arrow", index, self.options, str(exc)) from exc
            parts.append(ArrowRecords(self.schema, batch, constants))
        if not parts:
            return ArrowRecords(self.schema, pa.RecordBatch.from_pylist([], self._plain), {})
        return ArrowRecords.concatenate(parts)

    def project(self, projection: Projection, sides: Sequence[Records]) -> ArrowRecords:
        first, batches = sides[0], []
        assert isinstance(first, ArrowRecords)
        for side in sides:
            assert isinstance(side, ArrowRecords)
            batches.append(side.batch.select(side.schema.data.names))
        is_index = first.column(IS_INDEX_RECORD)
        data = projected(projection, lambda side, number: batches[side].column(number), is_index)
        envelope = [n for n in ENVELOPE.names if n in first.batch.schema.names]
        fields = [f for i, f in enumerate(self._plain) if i not in first.constants]
        columns = [*(first.batch.column(n) for n in envelope), *data]
        batch = pa.record_batch(columns, schema=pa.schema(fields))
        return ArrowRecords(self.schema, batch, first.constants)

    def update_metadata(self, records: Records, values: MetadataValues) -> ArrowRecords:
        assert isinstance(records, ArrowRecords)
        return records.with_metadata(values)


def _one_value(column: pa.Array) -> bytes | None:
    """The value that all rows of an envelope column share, or None."""
    if not len(column):
        return None
    first = column[0]
    # most varying columns already differ in the last row; only the rest need a full comparison
    if column[len(column) - 1] != first or not pc.all(pc.equal(column, first)).as_py():
        return None
    return constant_bytes(first)


def _without(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[int, bytes]
) -> pa.RecordBatch:
    """`batch` with the types of `schema`, but without its constant columns."""
    kept = [i for i in range(len(schema)) if i not in constants]
    fields = [schema.field(i) for i in kept]
    return pa.record_batch([batch.column(i) for i in kept], schema=pa.schema(fields))


class ArrowStrategy(Strategy):
    """Arrow IPC record batches; see the module's docstring."""

    name = "arrow"
    executions = ("batch",)
    default_rows_per_frame = 1000

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundArrow:
        check_supported(schema.data)
        own = {"compression": ("none", "lz4", "zstd")}
        return BoundArrow(schema, resolve(self, options, own))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a frame carries 4 bytes of its fingerprint",
            copies="columns are copied into the frame once; out of it twice (to align, to join)",
            batching="metadata, validation and calls are shared by all records of a frame; "
            "envelope columns with one value in a frame are sent once",
            trust="every frame is validated in full by Arrow before use; damage raises",
            notes="at one record a frame the metadata outweighs the record many times",
        )
