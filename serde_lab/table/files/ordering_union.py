"""Conversion of ordering values to and from Hudi's wrapper union, as delete blocks store them.

Hudi wraps a value by its Java type, and compares the unwrapped value with those of Spark's rows, where
timestamps are longs and dates are ints. So Hudi writes timestamps as `LongWrapper` and dates as `IntWrapper`,
and fails on `TimestampMicrosWrapper` and `DateWrapper`; these can be read here too. Source:
org.apache.hudi.avro.HoodieAvroWrapperUtils and the schema in HoodieDeleteRecord (Hudi 1.2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, TableError

# branches of the union, in Hudi's order of wrapper records
NULL, _BOOLEAN, INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING, _DATE = range(9)
_DECIMAL, _TIME, _TIMESTAMP = range(9, 12)
_LOCAL_DATE = 12  # only inside an array; in the outer union this branch is the array
_DECIMAL_SCALE, _DECIMAL_PRECISION = 15, 30  # of Hudi's DecimalWrapper, whatever the column has

AVRO_TYPES = {
    _BOOLEAN: "boolean",
    INT: "int",
    _LONG: "long",
    _FLOAT: "float",
    _DOUBLE: "double",
    _BYTES: "bytes",
    _STRING: "string",
    _DATE: "int",
    _DECIMAL: "bytes",
    _TIME: "long",
    _TIMESTAMP: "long",
    _LOCAL_DATE: "int",
}

# bytes per value, if fixed
OF_VARINT, _OF_LENGTH = 0, -1
WIDTHS = {
    _BOOLEAN: 1,
    INT: OF_VARINT,
    _LONG: OF_VARINT,
    _FLOAT: 4,
    _DOUBLE: 8,
    _BYTES: _OF_LENGTH,
    _STRING: _OF_LENGTH,
    _DATE: OF_VARINT,
    _DECIMAL: _OF_LENGTH,
    _TIME: OF_VARINT,
    _TIMESTAMP: OF_VARINT,
}


def wrapped(ordering: pa.Array) -> tuple[int, pa.Array]:
    """The union's branch for a column's type, and the values in the form of its wrapper."""
    kind = ordering.type
    if ordering.null_count:
        raise DataError("a delete has a null ordering value; Hudi's readers fail on it")
    if pa.types.is_boolean(kind):
        return _BOOLEAN, ordering
    if pa.types.is_int8(kind) or pa.types.is_int16(kind) or pa.types.is_int32(kind):
        return INT, ordering.cast(pa.int32())
    if pa.types.is_int64(kind):
        return _LONG, ordering
    if pa.types.is_float32(kind):
        return _FLOAT, ordering
    if pa.types.is_float64(kind):
        return _DOUBLE, ordering
    if pa.types.is_string(kind):
        return _STRING, ordering
    if pa.types.is_date32(kind):
        return INT, ordering.view(pa.int32())
    if pa.types.is_timestamp(kind):
        return _LONG, ordering.view(pa.int64())
    if pa.types.is_decimal(kind):
        return _DECIMAL, pa.array([_decimal_bytes(v) for v in ordering.to_pylist()], pa.binary())
    raise DataError(f"an ordering value of type {kind} has no form in a delete block")


def _decimal_bytes(value: Decimal) -> bytes:
    unscaled = int(value.scaleb(_DECIMAL_SCALE))
    if abs(unscaled) >= 10**_DECIMAL_PRECISION or value != Decimal(unscaled).scaleb(
        -_DECIMAL_SCALE
    ):
        raise DataError(
            f"the ordering value {value} does not fit into decimal({_DECIMAL_PRECISION}, "
            f"{_DECIMAL_SCALE}), which is what a delete block holds"
        )
    # the fewest bytes that hold it, as BigInteger#toByteArray gives them
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def unwrapped(branch: int, values: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Convert wrapped values to the type of the table's ordering field."""
    if branch in (_DATE, _LOCAL_DATE):
        values = values.view(pa.date32())
    elif branch == _TIMESTAMP:
        values = values.view(pa.timestamp("us", "UTC"))
    elif branch == _DECIMAL:
        values = pa.array(
            [
                None
                if v is None
                else Decimal(int.from_bytes(v, "big", signed=True)).scaleb(-_DECIMAL_SCALE)
                for v in values.to_pylist()
            ],
            pa.decimal128(38, _DECIMAL_SCALE),
        )
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise TableError(
            f"{where}: has ordering values of type {values.type}; the table has {kind}"
        ) from exc


def array_of_wrappers(parts: Sequence[tuple[int, Any]]) -> tuple[str, dict[str, Any]]:
    """The union's record for the values of several ordering fields, each given as a branch and a value."""
    wrappers = [(_WRAPPERS[branch]["name"], {_FIELDS[branch]: value}) for branch, value in parts]
    return _ARRAY["name"], {_ARRAY_FIELD: wrappers}


def parts_of(wrapper: dict[str, Any] | None) -> list[tuple[int, Any]]:
    """Branch and value of a wrapper record, or of each record in an array of them."""
    if wrapper is None:
        return [(NULL, None)]
    field, value = next(iter(wrapper.items()))
    if field == _ARRAY_FIELD:
        return [part for entry in value or () for part in parts_of(entry)]
    return [(_FIELDS.index(field), value)]


def assembled(parts: Sequence[tuple[int, Any]], kind: pa.DataType, where: str) -> pa.Array:
    """An ordering field's values from parts whose branches may differ; null for a missing value."""
    values = pa.nulls(len(parts), kind)
    for branch in sorted({branch for branch, _ in parts} - {NULL}):
        own = [value if found == branch else None for found, value in parts]
        of_branch = pa.array(own, _ARROW_TYPES[AVRO_TYPES[branch]])
        values = pc.coalesce(values, unwrapped(branch, of_branch, kind, where))
    return values


def _wrapper(name: str, field: str, kind: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}


_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# Records are named as in Hudi. Each has its own field name, which tells a value's branch; blocks do not
# contain names.
_NAMES = [
    "null",
    "BooleanWrapper",
    "IntWrapper",
    "LongWrapper",
    "FloatWrapper",
    "DoubleWrapper",
    "BytesWrapper",
    "StringWrapper",
    "DateWrapper",
    "DecimalWrapper",
    "TimeMicrosWrapper",
    "TimestampMicrosWrapper",
    "LocalDateWrapper",
]
_FIELDS = [name.removesuffix("Wrapper") for name in _NAMES]
_ARRAY_FIELD = "wrappedValues"
_WRAPPERS: list[Any] = [
    "null",
    *(_wrapper(_NAMES[branch], _FIELDS[branch], kind) for branch, kind in AVRO_TYPES.items()),
]
_ARRAY = _wrapper(
    "ArrayWrapper",
    _ARRAY_FIELD,
    ["null", {"type": "array", "items": [*_NAMES[:_LOCAL_DATE], _WRAPPERS[_LOCAL_DATE]]}],
)
DELETE_LIST_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"]},
                            {"name": "partitionPath", "type": ["null", "string"]},
                            {
                                "name": "orderingVal",
                                "type": [*_WRAPPERS[:_LOCAL_DATE], _ARRAY],
                            },
                        ],
                    },
                },
            }
        ],
    }
)
