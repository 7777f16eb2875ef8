"""Checks writes whose records leave out table columns and keep their stored values (Hudi's KEEP_VALUES).

On merge-on-read such records become log blocks of their columns (`IS_PARTIAL` in the header), and readers
take the other values from older rows. Apache Hudi 1.2.0 does so in snapshots and compactions; an
incremental query, which reads changes alone, returns arbitrary memory for the missing columns. Sources:
HoodieAppendHandle, PartialUpdateBufferedRecordMerger, SparkRecordMergingUtils#mergePartialRecords.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from serde_lab.errors import OptionError, SchemaError
from serde_lab.pipeline.plan import Operation
from serde_lab.records.schema import RecordSchema
from serde_lab.table.config import TableConfig

PARTIAL_UPDATES = "serde_lab.partial_updates"


def check_partial_updates(operation: Operation, table: TableConfig) -> None:
    """Raises OptionError for a write or a table that cannot have partial log blocks."""
    problem = _problem(operation, table)
    if problem:
        raise OptionError(f"{PARTIAL_UPDATES} is true, and {problem}")


def _problem(operation: Operation, table: TableConfig) -> str:
    if operation is not Operation.UPSERT:
        return f"the operation is {operation}, which updates nothing"
    if not table.is_mor:
        return f"the table {table.name} is {table.table_type}, which has no logs to hold them"
    if table.version < 8:
        return f"the table {table.name} is of version {table.version}, whose readers know none"
    if table.index_type not in ("", "BUCKET"):
        return (
            f"the table {table.name} has the index {table.index_type}, under which inserts may join a"
            " base file, and so would rows that leave columns out"
        )
    if table.partial_update_mode:
        return f"the table {table.name} fills gaps already, by {table.partial_update_mode}"
    if table.merge_mode == "CUSTOM" or table.merger_classes:
        return f"the table {table.name} has a merger of its own here, which wants whole rows"
    return ""


def partial_records(
    table_schema: RecordSchema, given: Collection[str], table: TableConfig
) -> RecordSchema | None:
    """The schema of records with the columns `given`; None if no table column is missing.

    Raises SchemaError for a table with a column that marks deletes: Apache Hudi looks for it in partial
    rows at its position in whole rows, and takes other rows for deletes.
    """
    columns = table_schema.data
    if columns.names == [name for name in columns.names if name in given]:
        return None
    for name in table.merge_rules.markers.used_in(columns.names):
        raise SchemaError(
            f"column {name!r} of the table marks deletes, which Apache Hudi cannot tell from rows that"
            " leave columns out",
            hint="write whole rows, or hoodie.write.set.null.for.missing.columns=true",
        )
    data = pa.schema([field for field in columns if field.name in given])
    return replace(table_schema, data=data)
