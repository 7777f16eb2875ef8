"""Decides how a table's schema may change, and converts rows of one schema to another.

Columns and nested fields are matched by name. A column may be added, left out, moved, or become wider.
Sources: the Avro specification's schema resolution, and Hudi's AvroSchemaEvolutionUtils and
HoodieAvroUtils#rewriteRecord, which also allow numbers to become text:

| from           | may become                                                        |
|----------------|-------------------------------------------------------------------|
| int            | long, float, double, string                                       |
| long           | float, double, string                                             |
| float          | double (by its digits: 0.1f becomes 0.1), string                  |
| double         | string                                                            |
| decimal        | a decimal with more digits and the same scale                     |
| string, binary | each other in rows of a batch; a table's column keeps its type    |
| struct         | one with fields added or moved, or whose fields become wider      |
| list, map      | one with wider elements                                           |

Numbers become text as in Java (`java_text.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.java_text import java_text
from serde_lab.records.types import is_decimal, is_list

_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64(), pa.string()),
    pa.int64(): (pa.float32(), pa.float64(), pa.string()),
    pa.float32(): (pa.float64(), pa.string()),
    pa.float64(): (pa.string(),),
}
_ALIKE = {(pa.string(), pa.binary()), (pa.binary(), pa.string())}


def is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether values of `narrow` can become `wide`, for two different types that are not nested."""
    if is_decimal(narrow):
        return is_decimal(wide) and narrow.scale == wide.scale and narrow.precision < wide.precision
    return wide in _WIDER.get(narrow, ())


def evolved(table: pa.Schema, batch: pa.Schema, *, fill: bool) -> pa.Schema:
    """The schema of a table with schema `table` after rows of `batch` are written; all in storage types.

    It has the table's columns in their order, each with the wider of both types, then the new ones. With
    `fill` a column that the batch lacks is null in its rows; without it, raises SchemaError naming the
    column. The same error is raised if two types are incompatible.
    """
    return pa.schema(_fields(table, batch, fill, ""))


def left_out(whole: Iterable[pa.Field], part: Iterable[pa.Field], path: str = "") -> list[str]:
    """Paths of the fields of `whole` that `part` lacks, at any depth."""
    given = {field.name: field.type for field in part}
    found = []
    for field in whole:
        at = f"{path}{field.name}"
        if field.name in given:
            found += _left_out_of(field.type, given[field.name], at)
        else:
            found.append(at)
    return found


def _left_out_of(whole: pa.DataType, part: pa.DataType, path: str) -> list[str]:
    if pat.is_struct(whole) and pat.is_struct(part):
        return left_out(whole, part, f"{path}.")
    if is_list(whole) and is_list(part):
        return _left_out_of(whole.value_type, part.value_type, f"{path}.element")
    if pat.is_map(whole) and pat.is_map(part):
        return _left_out_of(whole.item_type, part.item_type, f"{path}.value")
    return []


def _fields(
    table: Iterable[pa.Field], batch: Iterable[pa.Field], fill: bool, path: str
) -> list[pa.Field]:
    there = {field.name: field for field in table}
    given = {field.name: field for field in batch}
    merged = []
    for name, field in there.items():
        column = f"{path}{name}"
        if name not in given:
            if not fill:
                raise SchemaError(
                    f"column {column!r} of the table is not in the data",
                    hint="hoodie.write.set.null.for.missing.columns=true makes it null in these rows",
                )
            merged.append(field)
            continue
        kind = _type(field.type, given[name].type, fill, column)
        merged.append(pa.field(name, kind, field.nullable or given[name].nullable))
    # new columns are nullable, since rows of older files have no value for them
    merged += [f.with_nullable(True) for name, f in given.items() if name not in there]
    return merged


def _type(table: pa.DataType, batch: pa.DataType, fill: bool, path: str) -> pa.DataType:
    if table == batch or is_wider(table, batch) or (table, batch) in _ALIKE:
        return table
    if is_wider(batch, table):
        return batch
    if pat.is_struct(table) and pat.is_struct(batch):
        return pa.struct(_fields(table, batch, fill, f"{path}."))
    if is_list(table) and is_list(batch):
        item = _type(table.value_type, batch.value_type, fill, f"{path}.element")
        return pa.list_(pa.field("element", item))
    if pat.is_map(table) and pat.is_map(batch):
        item = _type(table.item_type, batch.item_type, fill, f"{path}.value")
        return pa.map_(pa.string(), pa.field("value", item))
    raise SchemaError(
        f"column {path!r} is of type {batch}, and the table has {table}: neither becomes the other"
    )


def fit(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert `values` of an older or narrower type to `kind`. Nested fields match by name; missing are null.

    Raises ArrowInvalid or ArrowNotImplementedError if the types are incompatible, DataError for bytes that
    are not text.
    """
    if values.type == kind:
        return values
    if pat.is_struct(kind) and pat.is_struct(values.type):
        return _fit_struct(values, kind)
    if is_list(kind) and (pat.is_list(values.type) or pat.is_large_list(values.type)):
        if pat.is_large_list(values.type):
            values = values.cast(pa.list_(values.type.value_field))
        return _around(values, kind, fit(values.values, kind.value_type))
    if pat.is_map(kind) and pat.is_map(values.type):
        keys, items = fit(values.keys, kind.key_type), fit(values.items, kind.item_type)
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[kind.key_field, kind.item_field]
        )
        return _around(values, kind, entries)
    return _fit_leaf(values, kind)


def _fit_leaf(values: pa.Array, kind: pa.DataType) -> pa.Array:
    narrow = values.type
    if pat.is_string(kind) and (pat.is_integer(narrow) or pat.is_floating(narrow)):
        return java_text(values)
    if pat.is_float64(kind) and pat.is_float32(narrow):
        # as Hudi does: through the digits, so that 0.1 stays 0.1
        return values.cast(pa.string()).cast(kind)
    if pat.is_floating(kind) and pat.is_integer(narrow):
        return values.cast(kind, safe=False)  # rounds to the nearest, as Java does
    if pat.is_string(kind) and pat.is_binary(narrow):
        try:
            return values.cast(kind)
        except pa.ArrowInvalid as exc:
            raise DataError(f"a value of a column of text is not UTF-8: {exc}") from exc
    return values.cast(kind)


def _fit_struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    there = {values.type.field(i).name: i for i in range(values.type.num_fields)}
    children = [
        fit(values.field(there[f.name]), f.type)
        if f.name in there
        else pa.nulls(len(values), f.type)
        for f in kind
    ]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _around(values: pa.Array, kind: pa.DataType, children: pa.Array) -> pa.Array:
    """A list or map with the offsets and nulls of `values` and the given children."""
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), buffers, values.null_count, values.offset, [children]
    )
