"""Ordering values as Hudi wraps them in delete blocks: a union of one record a type.

Owns the union's branches and the form of a value under each; must not know blocks. Source:
org.apache.hudi.avro.HoodieAvroWrapperUtils and HoodieDeleteRecord.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

from serde_lab.errors import DataError, TableError

# branches of the union, by Hudi's order of wrapper records
_NULL, _BOOLEAN, INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING, _DATE = range(9)
_DECIMAL, _TIME, _TIMESTAMP, _ARRAY = range(9, 13)
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
}

# bytes of a value where they are always the same
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
    """The union's branch for a column's type, and its values in the wrapper's form."""
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
        return _DATE, ordering.view(pa.int32())
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP, ordering.view(pa.int64())
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
    # as few bytes as hold it, as BigInteger#toByteArray gives them
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def unwrapped(branch: int, values: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Wrapped values in the type of the table's ordering field."""
    if branch == _DATE:
        values = values.view(pa.date32())
    elif branch == _TIMESTAMP:
        values = values.view(pa.timestamp("us", "UTC"))
    elif branch == _DECIMAL:
        values = pa.array(
            [
                Decimal(int.from_bytes(v, "big", signed=True)).scaleb(-_DECIMAL_SCALE)
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


def wrapper_of(branch: int, value: Any) -> tuple[str, dict[str, Any]]:
    """A wrapped value as a record of the union, for a writer that goes record by record."""
    record = _WRAPPERS[branch]
    return record["name"], {record["fields"][0]["name"]: value}


def plain_parts(wrapper: dict[str, Any] | None) -> list[Any]:
    """The value of a wrapper record, or the values of an array of them."""
    if wrapper is None:
        return [None]
    value = next(iter(wrapper.values()))
    if "wrappers" in wrapper:
        return [part for entry in value for part in plain_parts(entry)]
    return [value]


def _wrapper(name: str, field: str, kind: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}


_WRAPPERS: list[Any] = [
    "null",
    _wrapper("BooleanWrapper", "boolean", "boolean"),
    _wrapper("IntWrapper", "int", "int"),
    _wrapper("LongWrapper", "long", "long"),
    _wrapper("FloatWrapper", "float", "float"),
    _wrapper("DoubleWrapper", "double", "double"),
    _wrapper("BytesWrapper", "bytes", "bytes"),
    _wrapper("StringWrapper", "string", "string"),
    _wrapper("DateWrapper", "date", {"type": "int", "logicalType": "date"}),
    _wrapper(
        "DecimalWrapper",
        "decimal",
        {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": _DECIMAL_PRECISION,
            "scale": _DECIMAL_SCALE,
        },
    ),
    _wrapper("TimeMicrosWrapper", "time", {"type": "long", "logicalType": "time-micros"}),
    _wrapper("TimestampMicrosWrapper", "at", {"type": "long", "logicalType": "timestamp-micros"}),
]
_NAMES = ["null", *(wrapper["name"] for wrapper in _WRAPPERS[1:])]
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
                                "type": [
                                    *_WRAPPERS,
                                    _wrapper(
                                        "ArrayWrapper",
                                        "wrappers",
                                        {"type": "array", "items": _NAMES},
                                    ),
                                ],
                            },
                        ],
                    },
                },
            }
        ],
    }
)
