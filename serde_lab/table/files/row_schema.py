"""Conversion of stored batches to a schema: columns by name, missing ones null, narrower types widened.

Other writers name list children differently, order columns differently, and leave out columns that were added
later. `records.schema_evolution` converts the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from serde_lab.errors import TableError
from serde_lab.records.schema_evolution import fit


def conform(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`. Raises TableError, naming `where` and the column."""
    if batch.schema.equals(schema):
        return batch
    columns = [_column(batch, field, where) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform_table(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Like `conform`, for all batches of a table."""
    if table.schema.equals(schema):
        return table
    batches = [conform(batch, schema, where) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema)


def _column(batch: pa.RecordBatch, field: pa.Field, where: str) -> pa.Array:
    positions: Sequence[int] = batch.schema.get_all_field_indices(field.name)
    if not positions:
        if not field.nullable:
            raise TableError(f"{where}: column {field.name!r} is missing and must not be null")
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(positions[0])
    if column.type == field.type:
        return column
    try:
        return fit(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise TableError(
            f"{where}: column {field.name!r} is stored as {column.type} and the table has "
            f"{field.type}: {exc}"
        ) from exc
