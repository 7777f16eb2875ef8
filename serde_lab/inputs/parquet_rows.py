"""Reads rows of Parquet files by position, without holding a file in memory.

The files, in a given order, form one long table, and any range of it can be read. Columns have their
plain types (`serde_lab.records.schema`), because some writers store view types.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.buffers import parquet_errors
from serde_lab.records.schema import check_supported, plain_schema

_CACHED_ROW_GROUPS = 4


class ParquetRows:
    """The rows of `files`, numbered from 0 across all files in their order.

    `schema` has plain types and nullable columns, as Spark reads Parquet. Raises DataError for a file
    that is not Parquet, SchemaError for an unsupported type or for files with different schemas. Without
    `columns` each file has the same ones.
    """

    def __init__(self, files: Sequence[Path], columns: Sequence[str] | None = None) -> None:
        if not files:
            raise DataError("expected at least one parquet file")
        self.files = tuple(files)
        self._readers = [_reader(file) for file in self.files]
        first = _plain(self._readers[0].schema_arrow, self.files[0], columns)
        self.schema = first
        starts, groups, position = [], [], 0
        for number, reader in enumerate(self._readers):
            other = _plain(reader.schema_arrow, self.files[number], first.names)
            _same(first, self.files[0], other, self.files[number])
            for name in reader.schema_arrow.names if columns is None else ():
                if name not in first.names:
                    where = f"{self.files[number]}: has a column {name!r}"
                    raise SchemaError(f"{where} that is not in {self.files[0]}")
            for group in range(reader.metadata.num_row_groups):
                rows = reader.metadata.row_group(group).num_rows
                if rows:
                    starts.append(position)
                    groups.append((self.files[number], reader, group))
                    position += rows
        self._starts = starts
        self.rows = position
        # not a method's, which would hold this object: its tables go with it
        self._group = lru_cache(_CACHED_ROW_GROUPS)(partial(_row_group, groups, first))

    @property
    def footers(self) -> list[pq.FileMetaData]:
        return [reader.metadata for reader in self._readers]

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows from `start` up to, not including, `stop`; `columns` in the given order, by default all."""
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows {start} to {stop} of {self.rows}")
        names = tuple(self.schema.names if columns is None else columns)
        pieces = []
        at = bisect_right(self._starts, start) - 1
        while start < stop:
            piece = self._group(at, names).slice(start - self._starts[at], stop - start)
            pieces.append(piece)
            start += len(piece)
            at += 1
        return pa.concat_tables(pieces) if pieces else _chosen(self.schema, names).empty_table()

    def read_around(self, start: int, rows: int, columns: Sequence[str]) -> pa.Table:
        """`rows` rows from `start` on; after the last row it continues at row 0, as often as needed."""
        pieces = []
        while rows:
            first = start % self.rows
            stop = min(self.rows, first + rows)
            pieces.append(self.read(first, stop, columns))
            rows -= stop - first
            start += stop - first
        return pa.concat_tables(pieces) if pieces else self.read(0, 0, columns)

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows in order, at most `rows` at a time."""
        for start in range(0, self.rows, rows):
            yield self.read(start, min(self.rows, start + rows), columns)

    def extent(self, column: str) -> tuple[object, object] | None:
        """Least and greatest value of a column, or None if it has only nulls or no rows."""
        least: object = None
        greatest: object = None
        for batch in self.batches(1 << 20, [column]):
            ends = pc.min_max(batch.column(0))
            try:
                low, high = ends["min"].as_py(), ends["max"].as_py()
            except (OverflowError, ValueError) as exc:
                raise DataError(
                    f"column {column!r} has values that are no times of the years 1 to 9999: {exc}"
                ) from exc
            if low is not None:
                least = low if least is None else min(least, low)
                greatest = high if greatest is None else max(greatest, high)
        return None if least is None else (least, greatest)


def _row_group(
    groups: Sequence[tuple[Path, pq.ParquetFile, int]],
    schema: pa.Schema,
    at: int,
    names: tuple[str, ...],
) -> pa.Table:
    file, reader, group = groups[at]
    with parquet_errors(str(file), DataError):
        table = reader.read_row_group(group, columns=list(names))
        return table.select(list(names)).cast(_chosen(schema, names))


def _chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _reader(file: Path) -> pq.ParquetFile:
    if not file.exists():
        raise DataError(f"{file}: no such file")
    with parquet_errors(str(file), DataError):
        return pq.ParquetFile(file)


def _plain(found: pa.Schema, file: Path, columns: Sequence[str] | None) -> pa.Schema:
    """The plain schema of a file, or of only `columns`, in that order."""
    names = list(found.names if columns is None else columns)
    missing = [name for name in names if name not in found.names]
    if missing:
        raise SchemaError(
            f"{file}: has no column {', '.join(map(repr, missing))}, "
            f"its columns are {', '.join(found.names)}"
        )
    chosen = pa.schema([found.field(name) for name in names]) if columns is not None else found
    try:
        check_supported(chosen)
    except SchemaError as exc:
        raise SchemaError(f"{file}: {exc.message}", exc.hint) from exc
    return pa.schema([field.with_nullable(True) for field in plain_schema(chosen)])


def _same(first: pa.Schema, file: Path, other: pa.Schema, other_file: Path) -> None:
    for field in first:
        found = other.field(field.name).type
        if found != field.type:
            raise SchemaError(
                f"{other_file}: column {field.name!r} has the type {found}, "
                f"expected {field.type} as in {file}"
            )
