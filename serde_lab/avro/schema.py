"""Converts Arrow schemas to Avro schemas and back, with Hudi's names for nested types.

Every name is checked against Avro's rules. `codec.py` converts the values.

| Arrow                                    | Avro                                                        |
|------------------------------------------|-------------------------------------------------------------|
| bool                                     | boolean                                                     |
| int8, int16, int32 / int64               | int / long                                                  |
| float / double                           | float / double                                              |
| decimal(p, s), in any width              | fixed, logicalType decimal, the fewest bytes that hold p    |
| string, large_string, string_view        | string                                                      |
| binary, large_binary, binary_view        | bytes                                                       |
| date32                                   | int, logicalType date                                       |
| timestamp[us, tz] / timestamp[us]        | long, timestamp-micros / local-timestamp-micros             |
| list, in any layout                      | array of ["null", item]                                     |
| map with string keys                     | map of ["null", value]                                      |
| struct                                   | record, named like its field                                |

A nullable field is the union ["null", T] with default null. The namespace of a named type is the path
to it, as in Hudi's HoodieAvroUtils and Spark's SchemaConverters. In the record `hoodie.t.t_record` a
struct `s` is the record `s` with namespace `hoodie.t.t_record`, and a decimal `d` is the fixed `fixed`
with namespace `hoodie.t.t_record.d`. A round trip loses three things: int8 and int16 become int32, a
time zone becomes UTC, and layouts become their plain form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.avro.tree import parse
from serde_lab.errors import SchemaError
from serde_lab.records.schema import is_binary, is_decimal, is_list, is_string

AvroSchema = Any
"""An Avro schema as the JSON that describes it: str, list or dict."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def arrow_to_avro(schema: pa.Schema, name: str, namespace: str) -> dict[str, AvroSchema]:
    """The Avro record `namespace`.`name` with the columns of `schema`.

    Raises SchemaError naming the column if Avro does not allow its name or has no form for its type.
    """
    for part in (name, *namespace.split(".")):
        if not _NAME.fullmatch(part):
            raise SchemaError(
                f"{part!r} in the record name {namespace}.{name} is not an Avro name",
                "letters, digits and _, not beginning with a digit",
            )
    return _record(schema, name, namespace, ())


def avro_to_arrow(schema: AvroSchema) -> pa.Schema:
    """The columns of the Avro record `schema`, given as JSON text or parsed.

    Raises SchemaError naming the column if Arrow or the codec has no form for its type.
    """
    return pa.schema(parse(schema).arrow_fields())


def with_avro_names(schema: pa.Schema) -> pa.Schema:
    """`schema` with every name that Avro does not allow replaced by one that it does.

    For Avro whose readers do not look fields up by name. A new name contains the field's position,
    `_2_l_tax` for `l-tax` as the third field, and is unique.
    """
    return pa.schema(_renamed(schema))


def _renamed(fields: Iterable[pa.Field]) -> list[pa.Field]:
    fields = list(fields)
    taken = {field.name for field in fields}
    renamed = []
    for place, field in enumerate(fields):
        name = field.name
        if not _NAME.fullmatch(name):
            name = f"_{place}_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
            while name in taken:
                name += "_"
            taken.add(name)
        renamed.append(pa.field(name, _renamed_type(field.type), field.nullable))
    return renamed


def _renamed_type(t: pa.DataType) -> pa.DataType:
    if is_list(t):
        return pa.list_(pa.field("element", _renamed_type(t.value_type)))
    if pat.is_map(t):
        return pa.map_(t.key_type, pa.field("value", _renamed_type(t.item_type)))
    return pa.struct(_renamed(t)) if pat.is_struct(t) else t


def decimal_bytes(precision: int) -> int:
    """The fewest bytes whose two's complement holds every decimal of `precision` digits."""
    return ((10**precision - 1).bit_length() + 8) // 8


def _record(
    fields: Iterable[pa.Field], name: str, namespace: str, path: tuple[str, ...]
) -> dict[str, AvroSchema]:
    fields = list(fields)
    for field_name, times in Counter(field.name for field in fields).items():
        column = ".".join((*path, field_name))
        if not _NAME.fullmatch(field_name):
            raise SchemaError(
                f"column {column!r} has a name that Avro does not allow",
                "letters, digits and _, not beginning with a digit",
            )
        if times > 1:
            raise SchemaError(f"column {column!r} occurs {times} times, expected once")
    inside = f"{namespace}.{name}"
    described = [_field(field, inside, (*path, field.name)) for field in fields]
    return {"type": "record", "name": name, "namespace": namespace, "fields": described}


def _field(field: pa.Field, namespace: str, path: tuple[str, ...]) -> dict[str, AvroSchema]:
    avro = _type(field.type, field.name, namespace, path)
    if not field.nullable:
        return {"name": field.name, "type": avro}
    return {"name": field.name, "type": ["null", avro], "default": None}


def _type(t: pa.DataType, name: str, namespace: str, path: tuple[str, ...]) -> AvroSchema:
    """The Avro type of a value of the field `name`, whose record's full name is `namespace`."""
    if is_string(t):
        return "string"
    if is_binary(t):
        return "bytes"
    if is_decimal(t):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(t.precision),
            "logicalType": "decimal",
            "precision": t.precision,
            "scale": t.scale,
        }
    if pat.is_timestamp(t) and t.unit == "us":
        logical = "local-timestamp-micros" if t.tz is None else "timestamp-micros"
        return {"type": "long", "logicalType": logical}
    if is_list(t):
        items = _type(t.value_type, name, namespace, (*path, "element"))
        return {"type": "array", "items": ["null", items]}
    if pat.is_map(t):
        if not is_string(t.key_type):
            raise SchemaError(
                f"column {'.'.join(path)!r} of type {t} has map keys of type {t.key_type}, "
                "expected string, the only one that Avro has"
            )
        values = _type(t.item_type, name, namespace, (*path, "value"))
        return {"type": "map", "values": ["null", values]}
    if pat.is_struct(t) and t.num_fields:
        return _record(t, name, namespace, path)
    if t not in _PRIMITIVES:
        raise SchemaError(f"column {'.'.join(path)!r} has the type {t}, which Avro has no form for")
    primitive = _PRIMITIVES[t]
    return dict(primitive) if isinstance(primitive, dict) else primitive


_PRIMITIVES: dict[pa.DataType, AvroSchema] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
