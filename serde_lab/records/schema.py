"""Defines the schema of a batch of records, how fields are named, and the supported types in their two forms.

A batch has envelope columns (RFC-84's metadata fields), then data columns. `RecordSchema` has the facts about
a table's columns that every strategy and stage needs. A field is named by path: `a` is a column, `a.b` is
field b of the structs in column a. Names contain no dot (Avro's have none), so a path has one meaning. Paths
do not lead into lists and maps. Source: HoodieAvroUtils#getNestedFieldVal, where a field of a null struct is
null.

Strategies see values in their plain form (`plain_form.py` converts them), files hold them as stored:

| type of a data column                                       | plain form       | as stored      |
|-------------------------------------------------------------|------------------|----------------|
| bool, int32, int64, float, double, date32                   | unchanged        | unchanged      |
| int8, int16                                                 | unchanged        | int32          |
| decimal32, decimal64, decimal128(p <= 38, 0 <= scale <= p)  | decimal128(p, s) | decimal128     |
| string, large_string, string_view                           | string           | string         |
| binary, large_binary, binary_view                           | binary           | binary         |
| timestamp[us], timestamp[us, tz]                            | unchanged        | zone becomes UTC |
| list, large_list, list_view, large_list_view                | list             | list           |
| map with string keys                                        | map              | map            |
| struct with at least one field                              | struct           | struct         |

The plain form has few types, and its nested fields are nullable and have fixed names. The storage form
follows what Hudi writes to Parquet, which has no integers under 32 bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.lib as lib
import pyarrow.types as pat

from serde_lab.errors import SchemaError

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_NAMES = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""Hudi's meta columns, which come before the data columns of a stored row."""

FILE_ID = "_hoodie_file_id"
INSTANT_TIME = "_hoodie_instant_time"
OPERATION = "_hoodie_operation"
IS_INDEX_RECORD = "_hoodie_is_index_record"
IS_DELETED = "_hoodie_is_deleted"
"""A boolean data column of Hudi's by which a writer marks a row as a delete."""

ENVELOPE = pa.schema(
    [
        pa.field(RECORD_KEY, pa.string(), nullable=False),
        pa.field(PARTITION_PATH, pa.string(), nullable=False),
        # "" until an index or a bucket assigner has found the file group
        pa.field(FILE_ID, pa.string(), nullable=False),
        # "" until located, then "I" (new file group) or "U" (existing one), as in Hudi's Flink writer
        pa.field(INSTANT_TIME, pa.string(), nullable=False),
        # I, -U, +U, D: org.apache.hudi.common.model.HoodieOperation's short names
        pa.field(OPERATION, pa.string(), nullable=False),
        # an index record has no row: all its data columns are null
        pa.field(IS_INDEX_RECORD, pa.bool_(), nullable=False),
    ]
)

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "I", "-U", "+U", "D"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The data columns of a table and the roles that some of them play.

    `data` holds the data columns in table order, with Arrow types. `record_key`, `partition` and
    `ordering` are paths of fields in it. A batch of records has the columns of `batch_schema`.
    """

    data: pa.Schema
    record_key: tuple[str, ...]
    partition: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()

    @property
    def batch_schema(self) -> pa.Schema:
        """Envelope columns, then data columns: the columns that pass between stages of one worker.

        Data columns are nullable here whatever `data` says, because index records and deletes have no row.
        """
        return pa.schema([*ENVELOPE, *(field.with_nullable(True) for field in self.data)])


def column_of(path: str) -> str:
    """The column in which the path begins."""
    return path.partition(".")[0]


def columns_of(paths: Iterable[str]) -> list[str]:
    """The columns in which the paths begin, each once."""
    return list(dict.fromkeys(map(column_of, paths)))


def leads_into_struct(path: str) -> bool:
    return "." in path


def find_field(schema: pa.Schema, path: str) -> pa.Field | None:
    """The field at the end of the path; None if there is none."""
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
    """The type of the field at the end of the path, which must exist."""
    field = find_field(schema, path)
    if field is None:
        raise KeyError(path)
    return field.type


def values_at(rows: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """The values of the field, null where a struct on the path is null; the field must exist."""
    return values_in(rows.column(column_of(path)), path)


def values_in(column: pa.Array | pa.ChunkedArray, path: str) -> pa.Array | pa.ChunkedArray:
    """Like `values_at`, given the column in which the path begins."""
    _, *inner = path.split(".")
    return pc.struct_field(column, inner) if inner else column


MAX_DEPTH = 3
"""The most levels of list, map and struct around a value."""

POSITION, SALT = "_serde_lab_position", "_serde_lab_salt"
"""Columns beside a source's own on the way of a sorted bulk_insert."""

_RESERVED = frozenset(
    [
        *(*META_NAMES, *ENVELOPE.names),
        # the last is Spark's own, for the number of a row in its file
        *(POSITION, SALT, "_tmp_metadata_row_index"),
    ]
)


# type ids, since these checks run for every column of every batch
_STRINGS = frozenset([lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW])
_BINARIES = frozenset([lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW])
_LISTS = frozenset(
    [lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW]
)
_DECIMALS = frozenset([lib.Type_DECIMAL32, lib.Type_DECIMAL64, lib.Type_DECIMAL128])
_NESTED = _LISTS | {lib.Type_MAP, lib.Type_STRUCT}


EXAMPLES: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(38, 10),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp with zone": pa.timestamp("us", "UTC"),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": pa.struct([pa.field("a", pa.int64())]),
}
"""One type of each kind that a table supports, by a readable name."""
_PRIMITIVES = frozenset(
    EXAMPLES[kind]
    for kind in ("bool", "int8", "int16", "int32", "int64", "float", "double", "date")
)


def is_string(t: pa.DataType) -> bool:
    """Whether `t` is text, in any of Arrow's three layouts."""
    return t.id in _STRINGS


def holds_strings(t: pa.DataType) -> bool:
    """Whether `t` is text or contains text."""
    if t.id == lib.Type_DICTIONARY:
        return holds_strings(t.value_type)
    return is_string(t) or any(holds_strings(field.type) for field in child_fields(t))


def is_binary(t: pa.DataType) -> bool:
    """Whether `t` is bytes of any length, in any of Arrow's three layouts."""
    return t.id in _BINARIES


def is_list(t: pa.DataType) -> bool:
    """Whether `t` is a list, in any of Arrow's four layouts of variable length."""
    return t.id in _LISTS


def is_decimal(t: pa.DataType) -> bool:
    """Whether `t` is a decimal of at most 38 digits, in any of Arrow's widths."""
    return t.id in _DECIMALS


def is_nested(t: pa.DataType) -> bool:
    """Whether `t` is a list, a map or a struct."""
    return t.id in _NESTED


def child_fields(t: pa.DataType) -> list[pa.Field]:
    """The fields one level down: a list's item, a map's key and value, a struct's fields; else none."""
    if is_list(t):
        return [t.value_field]
    if pat.is_map(t):
        return [t.key_field, t.item_field]
    if pat.is_struct(t):
        return list(t)
    return []


def depth(t: pa.DataType) -> int:
    """Levels of nesting: 0 for a number or a string, 1 for a list of them."""
    return 1 + max(depth(f.type) for f in child_fields(t)) if child_fields(t) else 0


def check_supported(schema: pa.Schema) -> None:
    """Raise SchemaError, naming column and type, unless every data column of `schema` is supported."""
    for name, times in Counter(schema.names).items():
        if times > 1:
            raise SchemaError(f"column {name!r} occurs {times} times in the schema, expected once")
        if name.lower() in _RESERVED:
            raise SchemaError(f"column {name!r} has a name that is reserved for record metadata")
        if not name:
            raise SchemaError("a column has an empty name")
    for field in schema:
        _check(field.type, field.name, field.type)
        if depth(field.type) > MAX_DEPTH:
            raise SchemaError(
                f"column {field.name!r} of type {field.type} nests {depth(field.type)} levels, "
                f"expected at most {MAX_DEPTH}"
            )


def _check(t: pa.DataType, path: str, whole: pa.DataType) -> None:
    hint = _problem(t)
    if hint is not None:
        inside = "" if t.equals(whole) else f" (inside {whole})"
        raise SchemaError(f"column {path!r} has the unsupported type {t}{inside}", hint or None)
    for field in child_fields(t):
        _check(field.type, f"{path}.{field.name}", whole)


def _problem(t: pa.DataType) -> str | None:
    """None if `t` itself is supported, else a hint what to do instead, which may be ""."""
    if is_string(t) or is_binary(t) or is_list(t) or t in _PRIMITIVES:
        return None
    if pat.is_timestamp(t):
        return None if t.unit == "us" else "cast it to timestamp in microseconds"
    if is_decimal(t):
        return None if 0 <= t.scale <= t.precision else "the scale must lie in 0..precision"
    if pat.is_map(t):
        return None if is_string(t.key_type) else "map keys must be strings, as in Avro"
    if pat.is_struct(t):
        names = [f.name for f in t]
        if not names:
            return "a struct needs at least one field"
        return None if len(set(names)) == len(names) else "two of its fields have the same name"
    if pat.is_unsigned_integer(t):
        return "cast it to a signed integer"
    if pat.is_dictionary(t):
        return f"cast it to {t.value_type}"
    return ""


@lru_cache(maxsize=4096)
def plain_type(t: pa.DataType) -> pa.DataType:
    """The form of `t` that strategies work on; equal for types that hold the same values."""
    return _rebuild(
        t, lambda leaf: pa.decimal128(leaf.precision, leaf.scale) if is_decimal(leaf) else leaf
    )


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with every column in its plain form, without metadata."""
    return pa.schema([pa.field(f.name, plain_type(f.type), f.nullable) for f in schema])


def storage_type(t: pa.DataType) -> pa.DataType:
    """How the table stores `t`: in its plain form, with integers of at least 32 bits and zones as UTC."""

    def leaf(t: pa.DataType) -> pa.DataType:
        if t in (pa.int8(), pa.int16()):
            return pa.int32()
        if pat.is_timestamp(t) and t.tz is not None:
            return pa.timestamp("us", "UTC")
        return t

    return _rebuild(plain_type(t), leaf)


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with every column as the table stores it, without metadata."""
    return pa.schema([pa.field(f.name, storage_type(f.type), f.nullable) for f in schema])


def microsecond_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with every timestamp in microseconds, the only ones that Spark takes."""

    def leaf(t: pa.DataType) -> pa.DataType:
        return pa.timestamp("us", t.tz) if pat.is_timestamp(t) else t

    return pa.schema([pa.field(f.name, _rebuild(f.type, leaf), f.nullable) for f in schema])


def _rebuild(t: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if is_string(t):
        return pa.string()
    if is_binary(t):
        return pa.binary()
    if is_list(t):
        return pa.list_(pa.field("element", _rebuild(t.value_type, leaf)))
    if pat.is_map(t):
        return pa.map_(pa.string(), pa.field("value", _rebuild(t.item_type, leaf)))
    if pat.is_struct(t):
        return pa.struct([pa.field(f.name, _rebuild(f.type, leaf)) for f in t])
    return leaf(t)
