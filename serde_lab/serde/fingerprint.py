"""Computes a schema's fingerprint, by which a decoder recognises frames of another schema.

The fingerprint is a checksum of a text form of the schema. Golden frames hold it, so the text form must
never change.
"""

from __future__ import annotations

import google_crc32c
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import (
    child_fields,
    is_binary,
    is_decimal,
    is_list,
    is_string,
)


def schema_fingerprint(schema: RecordSchema) -> int:
    """CRC-32C of the names and plain types of the columns of a batch, in order: 32 bits.

    Equal for schemas that differ only in layout (string, large_string) or in the roles of columns.
    """
    text = ",".join(_field(f.name, f.type) for f in schema.batch_schema)
    return int(google_crc32c.value(text.encode()))


def _field(name: str, t: pa.DataType) -> str:
    # the length keeps names with commas and brackets unambiguous
    return f"{len(name.encode())}:{name} {_text(t)}"


def _text(t: pa.DataType) -> str:
    if is_string(t):
        return "string"
    if is_binary(t):
        return "binary"
    if is_decimal(t):
        return f"decimal({t.precision},{t.scale})"
    if pat.is_timestamp(t):
        return f"timestamp({t.tz or ''})"
    if is_list(t):
        return f"list<{_text(t.value_type)}>"
    if pat.is_map(t):
        return f"map<{_text(t.item_type)}>"
    if pat.is_struct(t):
        return f"struct<{','.join(_field(f.name, f.type) for f in child_fields(t))}>"
    return _PRIMITIVES[t]


_PRIMITIVES = {
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
