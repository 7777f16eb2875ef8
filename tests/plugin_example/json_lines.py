"""Strategy `json_lines`: records as lists of Python values, frames as lines of JSON. An example plug-in.

`Records` holds one list a record: the envelope's fields, then the data columns. A frame is text:

    J<fingerprint of the schema, 8 hexadecimal digits> <records in the frame>
    [key, partition path, file id, instant time, operation, is index record, column, …]
    …

every line ending with a newline. Decimals, bytes, dates, timestamps and maps have no form in JSON from
which Arrow makes what they were, so that they are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import SchemaError
from serde_lab.records.schema import (
    ENVELOPE,
    RecordSchema,
    check_supported,
    child_fields,
    is_binary,
    is_decimal,
)
from serde_lab.serde.framing import cut, frame_error, frames_of, opened, schema_fingerprint
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.registry import resolve

EXPECTED = {"record": (110, 6000), "int64": (20, 300), "double": (19, 900), "string": (15, 350)}
"""Bytes and nanoseconds of a value: a report shows what they come to beside what was measured."""

_HEADER_BYTES = 20
_DAMAGE = (ValueError, TypeError, OverflowError, LookupError, RecursionError, pa.ArrowException)


@dataclass(frozen=True)
class JsonRecords(Records):
    schema: RecordSchema
    rows: list[list[Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def to_arrow(self) -> pa.RecordBatch:
        schema = self.schema.batch_schema
        return pa.record_batch([self.column(name) for name in schema.names], schema=schema)

    def column(self, name: str) -> pa.Array:
        place = self.schema.batch_schema.get_field_index(name)
        t = self.schema.batch_schema.field(name).type
        return pa.array([row[place] for row in self.rows], t)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.schema, [self.rows[i] for i in indices.tolist()])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        return cls(parts[0].schema, [row for part in parts for row in part.rows])


class BoundJsonLines(BoundSerde):
    name = "json_lines"
    mark = b"J"

    def from_arrow(self, batch: pa.RecordBatch) -> JsonRecords:
        columns = [column.to_pylist() for column in batch.columns]
        return JsonRecords(self.schema, [list(row) for row in zip(*columns, strict=True)])

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, JsonRecords)
        lines = [json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in records.rows]
        ends = np.append(0, np.cumsum([len(line) for line in lines], dtype=np.int64))
        cuts = cut(bounds, self.options, ends, _HEADER_BYTES)
        offsets = cuts.offsets.tolist()
        frames = [
            self._header(last - first) + b"".join(lines[first:last])
            for first, last in pairwise(offsets)
        ]
        return frames_of(cuts, pa.array(frames, pa.binary()), self.options)

    def _header(self, rows: int) -> bytes:
        return b"J%08x %d\n" % (schema_fingerprint(self.schema), rows)

    def decode(self, frames: pa.BinaryArray) -> JsonRecords:
        rows: list[list[Any]] = []
        for number, frame in enumerate(opened("json_lines", frames, self.options).to_pylist()):
            try:
                rows += self._rows(frame)
            except _DAMAGE as exc:
                raise frame_error("json_lines", number, self.options, str(exc)) from exc
        return JsonRecords(self.schema, rows)

    def _rows(self, frame: bytes) -> list[list[Any]]:
        head, *lines, rest = frame.split(b"\n")
        if rest or head + b"\n" != self._header(len(lines)):
            raise ValueError("it is no frame of this strategy and schema")
        rows = [json.loads(line) for line in lines]
        if any(len(row) != len(self.schema.batch_schema) for row in rows):
            raise ValueError("a line has not as many values as there are columns")
        if any(row[i] is None for row in rows for i in range(len(ENVELOPE))):
            raise ValueError("a field of the envelope is null")
        JsonRecords(self.schema, rows).to_arrow().validate(full=True)
        return rows


class JsonLinesStrategy(Strategy):
    name = "json_lines"
    executions = ("row",)
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundJsonLines:
        check_supported(schema.data)
        for field in schema.data:
            _check(field.name, field.type)
        return BoundJsonLines(schema, resolve(self, options))

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a frame carries its fingerprint",
            copies="every value becomes a Python object, then text, and back",
            batching="nothing",
            trust="JSON runs no code; every line is checked against the schema",
        )


def _check(name: str, t: pa.DataType) -> None:
    if is_binary(t) or is_decimal(t) or pat.is_temporal(t) or pat.is_map(t):
        raise SchemaError(f"column {name!r} has type {t}, which json_lines does not support")
    for field in child_fields(t):
        _check(name, field.type)
