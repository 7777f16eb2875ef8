"""The five meta columns that Hudi puts before the data columns of every row.

Source: org.apache.hudi's HoodieRecord.
"""

from __future__ import annotations

import pyarrow as pa

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_NAMES = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
META_SCHEMA = pa.schema([pa.field(name, pa.string()) for name in META_NAMES])

OPERATION = "_hoodie_operation"
"""A sixth column that only changelog writers add; it is never part of the data."""


def with_meta_columns(data: pa.Schema) -> pa.Schema:
    """The schema of stored rows: meta columns, then the columns of `data`."""
    return pa.schema([*META_SCHEMA, *data])


def data_schema(stored: pa.Schema) -> pa.Schema:
    """The data columns of `stored`, without its meta columns."""
    hidden = {*META_NAMES, OPERATION}
    return pa.schema([field for field in stored if field.name not in hidden])
