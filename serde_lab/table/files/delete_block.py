"""Encoding and decoding of delete blocks: deleted record keys, each with an ordering value.

The content is HoodieDeleteRecordList in Avro, with ordering values in a wrapper union. A record with a known
union branch reads like a record with an int (the branch) and a value, so the vectorised codec takes blocks of
one branch whole; blocks that mix branches are read record by record. Source: HoodieDeleteBlock (version 3),
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
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.avro.codec import AvroCodec, hudi_schema, long_bytes
from serde_lab.avro.tree import PRIMITIVES
from serde_lab.avro.varint import varint_at
from serde_lab.errors import DataError, DecodeError, TableError
from serde_lab.records.buffers import data_of
from serde_lab.records.conversion import fit

# branches of the union, in Hudi's order of wrapper records
NULL, _BOOLEAN, INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING, _DATE = range(9)
_DECIMAL, _TIME, _TIMESTAMP = range(9, 12)
_LOCAL_DATE = 12  # only inside an array; in the outer union this branch is the array
_DECIMAL_SCALE, _DECIMAL_PRECISION = 15, 30  # of Hudi's DecimalWrapper, whatever the column has
_EXACT = Context(prec=60)  # Python's own has 28 digits

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
    unscaled = int(value.scaleb(_DECIMAL_SCALE, _EXACT))
    if abs(unscaled) >= 10**_DECIMAL_PRECISION or value != _decimal(unscaled):
        raise DataError(
            f"the ordering value {value} does not fit into decimal({_DECIMAL_PRECISION}, "
            f"{_DECIMAL_SCALE}), which is what a delete block holds"
        )
    # the fewest bytes that hold it, as BigInteger#toByteArray gives them
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal(unscaled: int) -> Decimal:
    return Decimal(unscaled).scaleb(-_DECIMAL_SCALE, _EXACT)


def unwrapped(branch: int, values: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Convert wrapped values to the type of the table's ordering field."""
    if branch in (_DATE, _LOCAL_DATE):
        values = values.view(pa.date32())
    elif branch == _TIMESTAMP:
        values = values.view(pa.timestamp("us", "UTC"))
    elif branch == _DECIMAL:
        values = pa.array(
            [
                None if v is None else _decimal(int.from_bytes(v, "big", signed=True))
                for v in values.to_pylist()
            ],
            pa.decimal128(38, _DECIMAL_SCALE),
        )
    try:
        # as the rows' own values are converted, so that the two compare as they did when both were written
        return fit(values, kind)
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
        of_branch = pa.array(own, PRIMITIVES[AVRO_TYPES[branch]])
        values = pc.coalesce(values, unwrapped(branch, of_branch, kind, where))
    return values


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
    codec = _codec(branch)
    rows = len(keys)
    partitions = pa.array([partition_path]).take(pa.array(np.zeros(rows, np.int64)))
    branches = pa.array(np.full(rows, branch, np.int32))
    batch = pa.RecordBatch.from_arrays([keys, partitions, branches, values], schema=codec.schema)
    records = data_of(codec.encode(batch)).to_pybytes()
    # an Avro array: item count, items, and 0 for its end
    listed = (long_bytes(rows) + records if rows else b"") + b"\x00"
    return pa.py_buffer(_HEAD.pack(_VERSION, len(listed)) + listed)


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
    return pa.py_buffer(_HEAD.pack(_VERSION, out.tell()) + out.getvalue())


@lru_cache(maxsize=16)
def _codec(branch: int) -> AvroCodec:
    """The codec of a delete record whose ordering value has this branch."""
    return AvroCodec(
        {
            "type": "record",
            "name": "HoodieDeleteRecord",
            "fields": [
                {"name": "recordKey", "type": ["null", "string"]},
                {"name": "partitionPath", "type": ["null", "string"]},
                {"name": "branch", "type": "int"},
                {"name": "value", "type": AVRO_TYPES[branch]},
            ],
        }
    )


def _decode_uniform(
    datum: pa.Buffer, ordering_types: tuple[pa.DataType, ...], where: str
) -> DeletedKeys | None:
    """Decode all records at once; None if they differ in form."""
    data = datum.to_pybytes()
    try:
        branch, starts, ends = _spans(data)
        records = _codec(branch).decode_spans(datum, starts, ends, where)
    except (DecodeError, IndexError, KeyError, _UnlikeError):
        return None
    keys, values = records.column(0), records.column(3)
    if keys.null_count:
        return None
    commit_time = values.to_numpy() == 0 if branch == INT else np.zeros(len(keys), np.bool_)
    if commit_time.all() or not ordering_types:
        return DeletedKeys(keys, commit_time)
    return DeletedKeys(keys, commit_time, (unwrapped(branch, values, ordering_types[0], where),))


class _UnlikeError(Exception):
    """Some record differs in form from the first one."""


def _spans(data: bytes) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The branch of all records, and where each of them begins and ends.

    Raises IndexError if the data ends too early, _UnlikeError or KeyError if it needs `_decode_each`.
    """
    starts: list[int] = []
    ends: list[int] = []
    branch, at = -1, 0
    count, at = _long(data, at)
    while count:
        if count < 0:
            count = -count
            _, at = _long(data, at)  # the size of this part of the array in bytes
        for _ in range(count):
            starts.append(at)
            for _ in range(2):
                if data[at] != 2:  # null: branch 0 of ["null", "string"]
                    raise _UnlikeError
                size = data[at + 1]
                if size < 0x80:
                    at += 2 + (size >> 1)
                else:
                    size, at = _long(data, at + 1)
                    at += size
            found, at = data[at] >> 1, at + 1
            if found != branch:
                if branch >= 0:
                    raise _UnlikeError
                branch = found
            width = WIDTHS[branch]
            if width > 0:
                at += width
            elif width == OF_VARINT:
                while data[at] >= 0x80:
                    at += 1
                at += 1
            else:
                size, at = _long(data, at)
                at += size
            ends.append(at)
        count, at = _long(data, at)
    if branch < 0 or at != len(data):
        raise _UnlikeError
    return branch, np.array(starts, np.int64), np.array(ends, np.int64)


def _long(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag number at an offset, and the offset after it."""
    folded, at = varint_at(data, at)
    return folded >> 1 ^ -(folded & 1), at


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
