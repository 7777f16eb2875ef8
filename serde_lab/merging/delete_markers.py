"""Finds the rows that are marked as deletes.

A row is marked by `_hoodie_is_deleted`, by a field and marker that the table defines, or by the row kind
that changelog writers store. Source: org.apache.hudi.common.table.read.DeleteContext.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import OptionError, SchemaError
from serde_lab.merging.survivors import Deletes
from serde_lab.records.keys import text_of
from serde_lab.records.schema import DELETE, OPERATION, UPDATE_BEFORE

IS_DELETED = "_hoodie_is_deleted"
"""A data column by which a writer marks a row as a delete."""

_KINDS = pa.array([DELETE, UPDATE_BEFORE])


class Columns(Protocol):
    """Rows whose columns are accessible by name: a batch, a table, or a strategy's records."""

    def column(self, name: str) -> pa.Array: ...  # or a pa.ChunkedArray

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DeleteMarkers:
    """The field that the table defines, and the text in it that marks a delete; both "" if there is none."""

    field: str = ""
    marker: str = ""

    def __post_init__(self) -> None:
        if bool(self.field) != bool(self.marker):
            given, missing = ("field", "marker") if self.field else ("marker", "field")
            raise OptionError(
                f"hoodie.payload.delete.{given} is given without hoodie.payload.delete.{missing};"
                " it takes both to tell a delete"
            )

    def check(self, schema: pa.Schema) -> None:
        """Raises SchemaError if `_hoodie_is_deleted` is not boolean or the table's field is missing."""
        if IS_DELETED in schema.names and not pa.types.is_boolean(schema.field(IS_DELETED).type):
            raise SchemaError(
                f"column {IS_DELETED!r} is of type {schema.field(IS_DELETED).type}, expected a boolean"
            )
        if self.field and self.field not in schema.names:
            raise SchemaError(
                f"hoodie.payload.delete.field is {self.field!r}, which is no column of the data"
            )

    def used_in(self, names: Collection[str]) -> list[str]:
        """The columns among `names` that may mark a delete."""
        return [name for name in (IS_DELETED, self.field) if name and name in names]

    def marked(self, rows: Columns, names: Collection[str]) -> npt.NDArray[np.bool_] | None:
        """Which rows are marked, shape (n,); None if none is. `names` are the columns that `rows` has."""
        found: npt.NDArray[np.bool_] | None = None
        for mask in self._masks(rows, names):
            flat = pc.fill_null(mask, False)
            if pc.any(flat).as_py():
                marks = flat.to_numpy(**_COPY) if isinstance(flat, pa.Array) else flat.to_numpy()
                found = marks if found is None else found | marks
        return found

    def _masks(self, rows: Columns, names: Collection[str]) -> Sequence[pa.Array]:
        masks = []
        if IS_DELETED in names and pa.types.is_boolean(rows.column(IS_DELETED).type):
            masks.append(rows.column(IS_DELETED))
        if self.field and self.field in names:
            masks.append(pc.equal(text_of(rows.column(self.field)), self.marker))
        if OPERATION in names:
            masks.append(pc.is_in(rows.column(OPERATION), value_set=_KINDS))
        return masks


_COPY = {"zero_copy_only": False}


def deletes_of(marked: npt.NDArray[np.bool_], ordering: Sequence[pa.Array]) -> Deletes:
    """Marked rows as deletes: by their ordering values if there are any, else by commit time.

    Hudi writes the int 0 for "no ordering value". So a row whose only ordering value is the int 0 deletes
    by commit time here too; the date 1970-01-01 is the int 0 to Hudi.
    """
    if not ordering:
        return Deletes(marked, marked.copy())
    always = np.zeros(len(marked), np.bool_)
    kind = ordering[0].type
    if len(ordering) == 1 and (pa.types.is_int32(kind) or pa.types.is_date32(kind)):
        zero = pa.scalar(0, pa.int32()).cast(kind)
        always = pc.fill_null(pc.equal(ordering[0], zero), False).to_numpy(**_COPY)
    return Deletes(marked, marked & always)


def null_among(ordering: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null ordering value, shape (n,); None if none has."""
    masks = [values.is_null().to_numpy(**_COPY) for values in ordering if values.null_count]
    return np.logical_or.reduce(masks) if masks else None
