"""Encoding and decoding of delete blocks: deleted record keys, each with an ordering value.

The content is HoodieDeleteRecordList in Avro, with ordering values in a wrapper union. A record with a known
union branch reads like a record with an int (the branch) and a value, so the vectorised codec takes lists of
one branch whole; lists that mix branches are read record by record. Source: HoodieDeleteBlock (version 3),
org.apache.hudi.avro.HoodieAvroWrapperUtils (Hudi 1.2.0).

Hudi wraps a value by its Java type, and compares the unwrapped value with those of Spark's rows, where
timestamps are longs and dates are ints. So Hudi writes timestamps as `LongWrapper` and dates as `IntWrapper`,
and fails on `TimestampMicrosWrapper` and `DateWrapper`; these can be read here too.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.avro.codec import AvroCodec
from serde_lab.avro.container import hudi_schema
from serde_lab.avro.source import number_at
from serde_lab.errors import DataError, DecodeError, TableError

# branches of the union, in Hudi's order of wrapper records
NULL, _BOOLEAN, INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING, _DATE = range(9)
_DECIMAL, _TIME, _TIMESTAMP = range(9, 12)
_LOCAL_DATE = 12  # only inside an array; in the outer union this branch is the array
_DECIMAL_SCALE, _DECIMAL_PRECISION = 15, 30  # of Hudi's DecimalWrapper, whatever the column has

_LIST = hudi_schema("HoodieDeleteRecordList")
_UNION = _LIST["fields"][0]["type"]["items"]["fields"][2]["type"]
# the records of the union, the array of them left out; each has a field of its own name
_WRAPPERS = [*_UNION[1:-1], _UNION[-1]["fields"][0]["type"][1]["items"][-1]]
_NAMES = ["null", *(wrapper["name"] for wrapper in _WRAPPERS)]
_FIELDS = ["null", *(wrapper["fields"][0]["name"] for wrapper in _WRAPPERS)]
_ARRAY_FIELD = "wrappedValues"
AVRO_TYPES: dict[int, str] = {
    branch: wrapper["fields"][0]["type"] for branch, wrapper in enumerate(_WRAPPERS, start=1)
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
    wrappers = [(_NAMES[branch], {_FIELDS[branch]: value}) for branch, value in parts]
    return "ArrayWrapper", {_ARRAY_FIELD: wrappers}


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


_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
DELETE_LIST_SCHEMA = fastavro.parse_schema(_LIST)


_VERSION = 3
_HEAD = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """Deleted keys in order. `ordering` has one array per ordering field, null where `commit_time`.

    A delete by commit time has no ordering value (Hudi writes the int 0) and wins over everything before it.
    `ordering` is empty if all deletes are of this kind.
    """

    keys: pa.Array
    commit_time: npt.NDArray[np.bool_]
    ordering: tuple[pa.Array, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)


def encode_deletes(
    keys: pa.Array, partition_path: str, ordering: Sequence[pa.Array] = ()
) -> pa.Buffer:
    """The content of a delete block. `ordering` has one array per ordering field; none means deletes by
    commit time.

    Raises DataError for an ordering value that Hudi's wrapper cannot hold.
    """
    if len(ordering) > 1:
        return _encode_each(keys, partition_path, ordering)
    branch, values = (
        wrapped(ordering[0]) if ordering else (INT, pa.array(np.zeros(len(keys), np.int32)))
    )
    codec, rows = _codec(branch), len(keys)
    listed = codec.schema.field(0).type
    records = pa.StructArray.from_arrays(
        [
            keys,
            pa.repeat(partition_path, rows),
            pa.repeat(pa.scalar(branch, pa.int32()), rows),
            values,
        ],
        fields=list(listed.value_type),
    )
    column = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), records, type=listed)
    return _content(codec.encode(pa.record_batch([column], schema=codec.schema))[0].as_buffer())


def _content(datum: bytes | pa.Buffer) -> pa.Buffer:
    return pa.py_buffer(_HEAD.pack(_VERSION, len(datum)) + bytes(datum))


def decode_deletes(
    content: pa.Buffer, ordering_types: tuple[pa.DataType, ...], where: str
) -> DeletedKeys:
    """The deletes of a block, with ordering values in `ordering_types`. Raises TableError."""
    view = memoryview(content)
    if len(view) < _HEAD.size:
        raise TableError(f"{where}: its content has {len(view)} bytes, too few for a delete block")
    version, size = _HEAD.unpack_from(view)
    if version != _VERSION:
        raise TableError(f"{where}: is a delete block of version {version}; {_VERSION} is known")
    if size < 0 or _HEAD.size + size > len(view):
        raise TableError(
            f"{where}: its list states {size} bytes, and {len(view) - _HEAD.size} follow"
        )
    datum = content.slice(_HEAD.size, size)
    fast = _decode_uniform(datum, ordering_types, where)
    return _decode_each(datum, ordering_types, where) if fast is None else fast


def _encode_each(keys: pa.Array, partition_path: str, ordering: Sequence[pa.Array]) -> pa.Buffer:
    """Encode several ordering fields: an array of wrappers per record, which has no vectorised form."""
    columns = [
        [(branch, value) for value in values.to_pylist()]
        for branch, values in map(wrapped, ordering)
    ]
    records = [
        {
            "recordKey": key,
            "partitionPath": partition_path,
            "orderingVal": array_of_wrappers(parts),
        }
        for key, *parts in zip(keys.to_pylist(), *columns, strict=True)
    ]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, DELETE_LIST_SCHEMA, {"deleteRecordList": records})
    return _content(out.getvalue())


@lru_cache(maxsize=16)
def _codec(branch: int) -> AvroCodec:
    """The codec of a list of deletes whose ordering values all have this branch."""
    record = {
        "type": "record",
        "name": "HoodieDeleteRecord",
        "fields": [
            {"name": "recordKey", "type": ["null", "string"]},
            {"name": "partitionPath", "type": ["null", "string"]},
            {"name": "branch", "type": "int"},
            {"name": "value", "type": AVRO_TYPES[branch]},
        ],
    }
    records = {"name": "deleteRecordList", "type": {"type": "array", "items": record}}
    return AvroCodec({"type": "record", "name": "HoodieDeleteRecordList", "fields": [records]})


def _decode_uniform(
    datum: pa.Buffer, ordering_types: tuple[pa.DataType, ...], where: str
) -> DeletedKeys | None:
    """Decode all records at once; None if they differ in form."""
    try:
        branch = _first_branch(datum.to_pybytes())
        whole = np.array([datum.size])
        listed = _codec(branch).decode_spans(datum, np.zeros(1, np.int64), whole, where)
    except (DecodeError, IndexError, KeyError, ValueError):
        return None
    keys, _, branches, values = listed.column(0).flatten().flatten()
    if keys.null_count or pc.any(pc.not_equal(branches, branch)).as_py():
        return None
    commit_time = values.to_numpy() == 0 if branch == INT else np.zeros(len(keys), np.bool_)
    if commit_time.all() or not ordering_types:
        return DeletedKeys(keys, commit_time)
    return DeletedKeys(keys, commit_time, (unwrapped(branch, values, ordering_types[0], where),))


def _first_branch(data: bytes) -> int:
    """The union's branch in the first delete of a list.

    Raises IndexError or ValueError if the list or its first delete has another form than most.
    """
    end = len(data)
    count, at = number_at(data, 0, end)
    if count < 0:
        _, at = number_at(data, at, end)  # the size of this part of the array in bytes
    for _ in range(2):
        if data[at] != 2:  # null: branch 0 of ["null", "string"]
            raise ValueError
        size, at = number_at(data, at + 1, end)
        at += size
    branch, _ = number_at(data, at, end)
    if branch == _LOCAL_DATE:  # an array of wrappers
        raise ValueError
    return branch


def _decode_each(
    datum: pa.Buffer, ordering_types: tuple[pa.DataType, ...], where: str
) -> DeletedKeys:
    """Decode record by record: for blocks that mix branches or have several ordering fields."""
    try:
        found: Any = fastavro.schemaless_reader(io.BytesIO(datum), DELETE_LIST_SCHEMA, None)
    except (ValueError, EOFError, IndexError, KeyError, TypeError) as exc:
        raise TableError(f"{where}: its list of deletes cannot be read: {exc}") from exc
    keys: list[str] = []
    commit_time: list[bool] = []
    columns: list[list[tuple[int, Any]]] = [[] for _ in ordering_types]
    for record in found["deleteRecordList"]:
        parts = parts_of(record["orderingVal"])
        # null and the int 0 both mean "no ordering value"
        bare = parts in ([(NULL, None)], [(INT, 0)])
        if bare:
            parts = [(NULL, None)] * len(columns)
        if columns and len(parts) != len(columns):
            raise TableError(
                f"{where}: a delete has {len(parts)} ordering values; the table has {len(columns)}"
            )
        keys.append(record["recordKey"])
        commit_time.append(bare)
        for column, part in zip(columns, parts, strict=False):
            column.append(part)
    ordering = tuple(
        assembled(column, kind, where) for column, kind in zip(columns, ordering_types, strict=True)
    )
    return DeletedKeys(pa.array(keys, pa.string()), np.array(commit_time, np.bool_), ordering)
