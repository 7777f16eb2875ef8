"""The schema of a batch of records: envelope columns first, then data columns, flat.

Owns the envelope's names and types (RFC-84's metadata fields) and the table-level schema facts that
every strategy and every stage needs. Must not know strategies, tables or Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

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
        # "" until located; then "I" (new file group) or "U" (existing one), as in Hudi's Flink writer
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

    `data` holds the data columns in table order, as Arrow types; `record_key`, `partition` and
    `ordering` name columns of it. A batch of records has the columns of `batch_schema`.
    """

    data: pa.Schema
    record_key: tuple[str, ...]
    partition: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()

    @property
    def batch_schema(self) -> pa.Schema:
        """Envelope columns, then data columns: what crosses between stages of one worker.

        Data columns are nullable here whatever `data` says: index records and deletes have no row.
        """
        return pa.schema([*ENVELOPE, *(field.with_nullable(True) for field in self.data)])
