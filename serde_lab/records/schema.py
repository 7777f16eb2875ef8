"""Defines the schema of a batch of records: envelope columns, then data columns, and how fields are named.

The envelope has RFC-84's metadata fields. `RecordSchema` has the facts about a table's columns that every
strategy and stage needs. A field is named by path: `a` is a column, `a.b` is field b of the structs in
column a. Names contain no dot (Avro's have none), so a path has one meaning. Paths do not lead into lists
and maps. Source: HoodieAvroUtils#getNestedFieldVal, where a field of a null struct is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_ID = "_hoodie_file_id"
INSTANT_TIME = "_hoodie_instant_time"
OPERATION = "_hoodie_operation"
IS_INDEX_RECORD = "_hoodie_is_index_record"

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


def is_nested(path: str) -> bool:
    """Whether the path leads into a struct."""
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
