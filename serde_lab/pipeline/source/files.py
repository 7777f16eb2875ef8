"""Reads a write's Parquet files in map tasks, without the JVM, if their footers allow it.

A file qualifies only if Arrow gives exactly the rows that Spark would give, in the same types and order;
anything unusual is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import DataError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.records.buffers import batches_of, parquet_errors
from serde_lab.table.files.parquet import dates_are_alike, has_legacy_calendar

READ_SOURCE = "read_source"
"""The phase in which a map task reads its files."""

_MOST_FILES = 1000


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Local Parquet files, read whole and in order: paths by input partition, and the `columns` to read."""

    partitions: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]

    def batches(
        self, partition: int, rows: int, timeline: TaskTimeline
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, `rows` at a time except for the last batch of a file.

        All have one schema, though files differ.
        """
        schema: pa.Schema | None = None
        for path in self.partitions[partition]:
            with timeline.phase(READ_SOURCE):
                with parquet_errors(path, DataError):
                    file = pq.ParquetFile(path, memory_map=True)
                batches = batches_of(file, self.columns, rows, use_threads=False)
            while True:
                with timeline.phase(READ_SOURCE), parquet_errors(path, DataError):
                    batch = next(batches, None)
                if batch is None:
                    break
                with timeline.phase(READ_SOURCE):
                    if schema is None:
                        fields = [batch.schema.field(name) for name in self.columns]
                        schema = pa.schema([field.with_nullable(True) for field in fields])
                    batch = _like(batch, schema)
                yield batch
            with timeline.phase(READ_SOURCE):
                file.close()


def _like(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with this schema: files differ in layouts of text, order, and whether nulls are allowed."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def known_files(paths: Sequence[str], schema: pa.Schema) -> SourceFiles | None:
    """`paths` as one input partition each, in this order; None if Spark has to read them.

    `schema` has the stored columns, of which the files may lack some.
    """
    try:
        found = pq.read_schema(paths[0]).names
    except (pa.ArrowException, OSError):
        # leave the error message to Spark
        return None
    columns = pa.schema([field for field in schema if field.name in found])
    if not readable(paths, columns):
        return None
    return SourceFiles(tuple((path,) for path in paths), tuple(columns.names))


def readable(paths: Sequence[str], schema: pa.Schema) -> bool:
    """Whether Arrow reads the columns of `schema` from every file exactly as Spark does."""
    if not paths or len(paths) > _MOST_FILES:
        return False
    if any(pa.types.is_nested(field.type) for field in schema):
        # Spark and Arrow read older encodings of lists and maps differently
        return False
    try:
        return all(_alike(path, schema) for path in paths)
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        # leave the error message to Spark, and times beyond the year 9999
        return False


def _alike(path: str, schema: pa.Schema) -> bool:
    with pq.ParquetFile(path) as file:
        found, footer = file.schema_arrow, file.metadata
    names = [name.lower() for name in found.names]
    if len(set(names)) != len(names):
        return False
    for field in schema:
        number = found.get_field_index(field.name)
        if number < 0 or not _same(found.field(number).type, field.type):
            return False
    # no date or time may lie where calendars differ: Spark converts or refuses those
    dated = {f.name for f in schema if pa.types.is_date(f.type) or pa.types.is_timestamp(f.type)}
    return not dated or (not has_legacy_calendar(footer) and dates_are_alike(footer, dated))


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of type `found` equal those of `wanted`: Arrow has several string types."""
    if pa.types.is_string(wanted):
        return pa.types.is_string(found) or found in (pa.large_string(), pa.string_view())
    return bool(found == wanted)
