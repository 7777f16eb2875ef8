"""What the verbs of the record API take and give: places, metadata to set, which records are deletes.

Owns these values and their rules, as arithmetic on envelope columns. Must not know strategies: they hand
in columns, however they hold them (`interface.py` has the verbs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.schema import (
    DELETE,
    FILE_ID,
    INSERT,
    INSTANT_TIME,
    IS_INDEX_RECORD,
    OPERATION,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)

OPERATIONS = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
"""The names of org.apache.hudi.common.model.HoodieOperation; "" is none yet."""

NEW_FILE_GROUP = "I"
"""The instant time of a record that opens a file group: RFC-84's bucket type, before there is a time."""

IS_DELETED = "_hoodie_is_deleted"
"""A boolean data column by which a row says that it deletes its record."""

ColumnOf = Callable[[str], pa.Array]
"""The column of this name, in the type of the batch schema."""


@dataclass(frozen=True, slots=True)
class Locations:
    """Where records are, one value a record in both arrays, null where there is no place."""

    instant_time: pa.StringArray
    file_id: pa.StringArray

    @classmethod
    def current(cls, column: ColumnOf) -> Locations:
        """Where records are stored now: nowhere unless they are located in a file group that exists."""
        file_id, instant = column(FILE_ID), column(INSTANT_TIME)
        nowhere = pc.or_(pc.equal(file_id, ""), pc.equal(instant, NEW_FILE_GROUP))
        return cls(*(pc.if_else(nowhere, _NO_TEXT, column) for column in (instant, file_id)))

    @classmethod
    def new(cls, column: ColumnOf, instant_time: str) -> Locations:
        """Where a write of this instant puts records: nowhere while no file group is found for them."""
        file_id = column(FILE_ID)
        nowhere = pc.equal(file_id, "")
        instant = pc.if_else(nowhere, _NO_TEXT, pa.scalar(instant_time))
        return cls(instant, pc.if_else(nowhere, _NO_TEXT, file_id))


_NO_TEXT = pa.scalar(None, pa.string())


@dataclass(frozen=True, slots=True)
class MetadataValues:
    """The metadata that may be set along the way: one text for all records, or one each; None keeps it.

    Record key, partition path and whether a record is an index record have no place here: they are
    final (RFC-84).
    """

    file_id: str | pa.StringArray | None = None
    instant_time: str | pa.StringArray | None = None
    operation: str | pa.StringArray | None = None

    def columns(self, rows: int) -> Mapping[str, str | pa.StringArray]:
        """What is set, by name of its envelope column.

        Raises DataError, naming the column, for values that are null, too few or too many, and for an
        operation that Hudi has not.
        """
        given = {
            FILE_ID: self.file_id,
            INSTANT_TIME: self.instant_time,
            OPERATION: self.operation,
        }
        found = {name: value for name, value in given.items() if value is not None}
        for name, value in found.items():
            if isinstance(value, str):
                continue
            if not pat.is_string(value.type) or value.null_count or len(value) != rows:
                raise DataError(
                    f"{name} is set by {len(value)} values of type {value.type}, "
                    f"{value.null_count} of them null, expected {rows} strings"
                )
        if OPERATION in found:
            _check_operations(found[OPERATION])
        return MappingProxyType(found)

    def arrays(self, rows: int) -> Mapping[str, pa.StringArray]:
        """The same with one value a record. Raises DataError as `columns` does."""
        return {
            name: pa.repeat(value, rows) if isinstance(value, str) else value
            for name, value in self.columns(rows).items()
        }


def _check_operations(value: str | pa.StringArray) -> None:
    used = {value} if isinstance(value, str) else set(pc.unique(value).to_pylist())
    unknown = sorted(used - {*OPERATIONS, ""})
    if unknown:
        raise DataError(
            f"{OPERATION} is set to {unknown[0]!r}, expected one of {', '.join(OPERATIONS)}"
        )


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Which records delete: those of operation D or -U, those that say so in a column of their row.

    The column is `_hoodie_is_deleted` where it is true, and the column `field` where it is `marker`
    (Hudi's `hoodie.payload.delete.field` and `hoodie.payload.delete.marker`).
    """

    field: str | None = None
    marker: str | None = None

    def __post_init__(self) -> None:
        if (self.field is None) != (self.marker is None):
            raise SchemaError("a delete needs both, the field and its marker, or neither")

    def is_delete(self, data: pa.Schema, column: ColumnOf) -> pa.BooleanArray:
        """Whether each record deletes; an index record never does.

        Raises SchemaError naming a column that is missing or of a type that cannot hold the marker.
        """
        found = pc.is_in(column(OPERATION), value_set=pa.array([DELETE, UPDATE_BEFORE]))
        if IS_DELETED in data.names and pat.is_boolean(data.field(IS_DELETED).type):
            found = pc.or_(found, column(IS_DELETED).fill_null(False))
        if self.field is not None:
            found = pc.or_(found, self._is_marked(self.field, data, column))
        return pc.and_not(found, column(IS_INDEX_RECORD))

    def _is_marked(self, field: str, data: pa.Schema, column: ColumnOf) -> pa.BooleanArray:
        if field not in data.names:
            raise SchemaError(f"the delete field {field!r} is no column of the schema")
        t = data.field(field).type
        textual = pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t)
        if not (textual or pat.is_boolean(t) or pat.is_integer(t)):
            raise SchemaError(
                f"the delete field {field!r} has type {t}, expected text, a boolean or an integer"
            )
        return pc.equal(column(field).cast(pa.string()), self.marker).fill_null(False)
