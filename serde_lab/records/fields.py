"""Fields told by path: `a` is a column, `a.b` the field b of the structs in column a.

Owns how a path is followed into schemas and rows. Must not know what a field is for. No name holds a dot
(Avro's have none), so that a path has one meaning; lists and maps are not gone into. Source:
HoodieAvroUtils#getNestedFieldVal, where a field of a null struct is null.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def column_of(path: str) -> str:
    """The column that the path begins in."""
    return path.partition(".")[0]


def columns_of(paths: Iterable[str]) -> list[str]:
    """The columns that the paths begin in, each once."""
    return list(dict.fromkeys(map(column_of, paths)))


def is_nested(path: str) -> bool:
    """Whether the path goes into a struct."""
    return "." in path


def find_field(schema: pa.Schema, path: str) -> pa.Field | None:
    """The field at the end of the path; None where there is none."""
    first, *inner = path.split(".")
    if first not in schema.names:
        return None
    field = schema.field(first)
    for name in inner:
        place = field.type.get_field_index(name) if pa.types.is_struct(field.type) else -1
        if place < 0:
            return None
        field = field.type.field(place)
    return field


def type_at(schema: pa.Schema, path: str) -> pa.DataType:
    """The type of the field at the end of the path, which must be there."""
    field = find_field(schema, path)
    if field is None:
        raise KeyError(path)
    return field.type


def values_at(rows: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """The values of the field, null where a struct on the way is; the field must be there."""
    return values_in(rows.column(column_of(path)), path)


def values_in(column: pa.Array | pa.ChunkedArray, path: str) -> pa.Array | pa.ChunkedArray:
    """The same of the values of the column that the path begins in."""
    _, *inner = path.split(".")
    return pc.struct_field(column, inner) if inner else column
