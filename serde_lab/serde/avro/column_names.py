"""Maps a schema's columns to Avro: their names in Avro, the Avro schema of a row, and its codec.

Names that Avro does not allow are replaced by allowed ones, also inside structs. The bytes hold no names,
so a reader with the schema restores every column's own name. Both executions use this.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa

from serde_lab.avro.codec import AvroCodec
from serde_lab.avro.schema import AvroSchema, arrow_to_avro, with_avro_names
from serde_lab.records.plain_form import reinterpret, to_plain
from serde_lab.records.schema import RecordSchema, plain_schema

_MOST_SCHEMAS = 64
"""Patterns of nulls that get a schema of their own; rows with further patterns are written with unions."""


@dataclass(frozen=True)
class AvroColumnNames:
    """The data columns of a schema, and their names in Avro."""

    schema: RecordSchema

    @cached_property
    def plain(self) -> pa.Schema:
        """The columns in plain form, nullable, under their own names."""
        return pa.schema([f.with_nullable(True) for f in plain_schema(self.schema.data)])

    @cached_property
    def named(self) -> pa.Schema:
        """The columns in plain form under names that Avro allows."""
        return with_avro_names(self.plain)

    @cached_property
    def avro(self) -> AvroSchema:
        return arrow_to_avro(self.named, "row", "serde_lab")

    @cached_property
    def codec(self) -> AvroCodec:
        return AvroCodec(self.avro, self.named)

    @cached_property
    def fastavro(self) -> AvroSchema:
        """The Avro schema parsed by fastavro, without logical types."""
        return fastavro.parse_schema(_physical(self.avro))

    def without_unions(self, nulls: tuple[str, ...]) -> AvroSchema:
        """A schema without unions that gives the bytes of `fastavro` for datums with nulls in these columns.

        Each column is two fields: the branch of its union, an int with a default, and the value, which is
        missing if it is null. A zig-zag int has the bytes of a branch's number. Unions inside a column stay.
        """
        if nulls not in self._without_unions:
            if len(self._without_unions) == _MOST_SCHEMAS:
                return self.fastavro
            self._without_unions[nulls] = self._split(set(nulls))
        return self._without_unions[nulls]

    @cached_property
    def _without_unions(self) -> dict[tuple[str, ...], AvroSchema]:
        return {}

    def _split(self, nulls: set[str]) -> AvroSchema:
        whole: Any = _physical(self.avro)
        names = set(self.named.names)
        fields = []
        for column in whole["fields"]:
            branch = f"branch_of_{column['name']}"
            while branch in names:
                branch += "_"
            names.add(branch)
            is_null = column["name"] in nulls
            fields.append({"name": branch, "type": "int", "default": 0 if is_null else 1})
            if not is_null:
                fields.append({"name": column["name"], "type": column["type"][1]})
        return fastavro.parse_schema({**whole, "fields": fields})

    def to_avro_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return _relabelled(batch, self.named)

    def to_own_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return _relabelled(batch, self.plain)


def _physical(avro: AvroSchema) -> AvroSchema:
    """`avro` without logical types, so that fastavro's values are the stored numbers and bytes."""
    if isinstance(avro, list):
        return [_physical(a) for a in avro]
    if isinstance(avro, dict):
        logical = ("logicalType", "precision", "scale")
        return {key: _physical(a) for key, a in avro.items() if key not in logical}
    return avro


def _relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [relabel(a, f.type) for a, f in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def relabel(array: pa.Array, t: pa.DataType) -> pa.Array:
    """`array` as type `t`, which differs only in names of fields."""
    return array if array.type.equals(t) else reinterpret(to_plain(array), t)
