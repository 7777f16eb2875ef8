"""What the bytes of `internal_row` records depend on, and which of its readers and writers serve them.

Owns the choice between the executions (`row`, `batch`) and the layouts (`flat`, `nested`). Must not know
records: what is held, kept or forgotten of them is `internal_row/records.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import plain_type
from serde_lab.serde.fingerprint import schema_fingerprint
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.internal_row import loop as internal_row_loop
from serde_lab.serde.internal_row import nested as internal_row_nested
from serde_lab.serde.internal_row import read as internal_row_read
from serde_lab.serde.internal_row import verbs as internal_row_verbs
from serde_lab.serde.internal_row import write as internal_row_write
from serde_lab.serde.internal_row.layout import RowLayout, layout_of
from serde_lab.serde.internal_row.loop import RecordReader as LoopReader
from serde_lab.serde.internal_row.rows import Rows
from serde_lab.serde.projection.plan import Projection

Reader = LoopReader | internal_row_read.RecordReader | internal_row_nested.RecordReader


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
