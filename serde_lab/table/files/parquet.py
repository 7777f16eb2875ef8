"""How base files and Parquet log blocks are written: codec, encodings, statistics; and the calendar of dates
in files that others wrote.

The encodings are our own choice, by measurement: dictionaries pay off only for repeated values, shared
prefixes shrink keys and sequence numbers, and integers and dates are written fastest, and nearly always
smallest, as differences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import TableError

_SAMPLE_ROWS = 4096
_SHARED_PREFIXES = ("_hoodie_commit_seqno", "_hoodie_record_key")
# the footer keys by which Spark names itself, and legacy calendars: of dates and times, and of INT96
_SPARK = b"org.apache.spark.version"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
# from these on, all calendars that Spark has written agree
_DATES_ALIKE = date(1900, 1, 1)
_TIMES_ALIKE = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BaseFileFormat:
    """Compression and layout of base files. The level is always stated: pyarrow's default for gzip is the
    slowest level, forty times the cost of zstd at 1.

    `dictionaries`: columns that repeat their values have one. `page_bytes` and `row_group_bytes` are sizes
    before compression.
    """

    codec: str = "zstd"
    level: int | None = 1
    dictionaries: bool = True
    page_bytes: int = 1 << 20
    row_group_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.level is None and self.codec == "gzip":
            object.__setattr__(self, "level", 6)  # Hudi's default


def parquet_options(
    rows: pa.Table, format: BaseFileFormat, with_nan: frozenset[str]
) -> dict[str, Any]:
    """pyarrow's options for writing a table; `rows` show which columns repeat their values, and those
    `with_nan` get no statistics.
    """
    # a column has one encoding; columns not named here are plain
    encodings = {
        f.name: "DELTA_BINARY_PACKED"
        for f in rows.schema
        if pa.types.is_integer(f.type) or pa.types.is_date(f.type)
    }
    encodings |= {n: "DELTA_BYTE_ARRAY" for n in _SHARED_PREFIXES if n in rows.schema.names}
    others = [field.name for field in rows.schema if field.name not in encodings]
    return {
        "compression": format.codec,
        "compression_level": None if format.codec in ("none", "snappy") else format.level,
        "use_dictionary": [
            name for name in others if format.dictionaries and _repeats(rows.column(name))
        ],
        "column_encoding": encodings,
        "store_schema": False,  # Arrow's own schema would only repeat Parquet's
        "version": "2.6",
        "data_page_version": "1.0",
        "data_page_size": format.page_bytes,
        "write_batch_size": 8192,
        **statistics_without(with_nan, rows.schema),
    }


def columns_with_nan(rows: pa.Table) -> frozenset[str]:
    """The columns that have a NaN, or a struct that has one."""
    return frozenset(n for n, c in zip(rows.schema.names, rows.columns, strict=True) if _has_nan(c))


def _has_nan(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    return pa.types.is_struct(column.type) and any(map(_has_nan, column.flatten()))


def statistics_without(columns: frozenset[str], schema: pa.Schema) -> dict[str, Any]:
    """pyarrow's option for statistics of all columns but these.

    pyarrow leaves NaN out of minimum and maximum. Readers on the JVM, for which NaN is the greatest value,
    would skip its rows: the JVM's own writers give a column with a NaN no statistics.
    """
    if not columns:
        return {}
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty)
    leaves = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    paths = [leaves.column(number).path for number in range(len(leaves))]
    of_column = {path for path in paths for name in columns if f"{path}.".startswith(f"{name}.")}
    return {"write_statistics": [path for path in paths if path not in of_column]}


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        return True
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return False
    sample = column.slice(0, _SAMPLE_ROWS)
    return len(sample) == 0 or pc.count_distinct(sample).as_py() * 3 <= len(sample)


def check_calendar(footer: pq.FileMetaData, columns: Collection[str] | None, where: str) -> None:
    """Raise TableError if `columns` (all of them if None) may hold a date or time of Spark's legacy calendar
    that today's would take for another day.

    Only a file that says so is of that calendar, and only dates before 1582 and times before 1900 differ.
    Source: DataSourceUtils#datetimeRebaseSpec and #int96RebaseSpec.
    """
    if not has_legacy_calendar(footer):
        return
    dated = _dated_leaves(footer, columns)
    old = sorted(path for path in dated if not dates_are_alike(footer, {path}))
    if old:
        raise TableError(
            f"{where}: column {old[0]!r} may hold dates or times before 1900 in the legacy calendar of older"
            " Spark releases, which would be read as other days",
            hint="write the table anew with Spark 3, which converts them",
        )


def has_legacy_calendar(footer: pq.FileMetaData) -> bool:
    """Whether the file says that Spark wrote it by the calendar that was used before Spark 3.0."""
    stated = footer.metadata or {}
    version = stated.get(_SPARK)
    return any(key in stated for key in _LEGACY) or (version is not None and version < b"3")


def dates_are_alike(footer: pq.FileMetaData, leaves: Collection[str]) -> bool:
    """Whether the statistics of `leaves`, columns by their path, show no date or time before 1900."""
    return all(
        _after_the_change(column.statistics)
        for column in _column_chunks(footer)
        if column.path_in_schema in leaves
    )


def _column_chunks(footer: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield from map(group.column, range(group.num_columns))


def _dated_leaves(footer: pq.FileMetaData, columns: Collection[str] | None) -> set[str]:
    leaves = [footer.schema.column(number) for number in range(len(footer.schema))]
    return {
        leaf.path
        for leaf in leaves
        if (leaf.logical_type.type in ("DATE", "TIMESTAMP") or leaf.physical_type == "INT96")
        and (columns is None or any(f"{leaf.path}.".startswith(f"{name}.") for name in columns))
    }


def _after_the_change(statistics: pq.Statistics | None) -> bool:
    if statistics is None:
        return False
    if not statistics.has_min_max:
        return bool(statistics.has_null_count and statistics.num_values == 0)
    try:
        least = statistics.min
    except (ValueError, OverflowError):
        # a year that Python does not know, such as one before the first
        return False
    if isinstance(least, datetime):
        return (least if least.tzinfo else least.replace(tzinfo=UTC)) >= _TIMES_ALIKE
    return isinstance(least, date) and least >= _DATES_ALIKE
