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

from serde_lab.avro.varint import varint_at
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


def parquet_options(rows: pa.Table, format: BaseFileFormat) -> dict[str, Any]:
    """pyarrow's options for writing a table; `rows` show which columns repeat their values."""
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
        "write_page_checksum": True,  # as Parquet's own writers on the JVM
        "data_page_size": format.page_bytes,
        "write_batch_size": 8192,
    }


def columns_with_nan(rows: pa.Table) -> frozenset[str]:
    """The columns that have a NaN, or a struct that has one."""
    return frozenset(n for n, c in zip(rows.schema.names, rows.columns, strict=True) if _has_nan(c))


def _has_nan(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    return pa.types.is_struct(column.type) and any(map(_has_nan, column.flatten()))


def without_bounds(file: pa.Buffer, columns: Collection[str]) -> pa.Buffer:
    """The Parquet file without minimum and maximum of these columns; their null counts stay.

    pyarrow leaves NaN out of both. Readers on the JVM, for which NaN is the greatest value, would skip its
    rows. Without null counts, Hudi's column_stats would take the columns for null in every row. So the JVM's
    own writers do the same. pyarrow writes all statistics of a column or none; so the footer is edited.
    Sources: parquet.thrift, and Thrift's compact protocol.
    """
    if not columns:
        return file
    size = int.from_bytes(file[-8:-4], "little")
    footer, pages = bytes(file[-8 - size : -8]), file[: -8 - size]
    parts, at = [], 0
    for begin, nulls, end in _statistics(footer, columns):
        parts += [footer[at:begin], nulls]
        at = end
    edited = b"".join([*parts, footer[at:]])
    return pa.py_buffer(b"".join((pages, edited, len(edited).to_bytes(4, "little"), b"PAR1")))


_ROW_GROUPS, _COLUMNS, _META_DATA, _PATH_IN_SCHEMA, _STATISTICS, _NULL_COUNT = 4, 1, 3, 3, 12, 3
"""Numbers of fields in parquet.thrift, each of the struct before it."""
_I64, _LIST, _STRUCT = 6, 9, 12


def _statistics(footer: bytes, columns: Collection[str]) -> Iterator[tuple[int, bytes, int]]:
    """Begin and end of the columns' Statistics in a footer, and what stands in their place: null counts."""
    for group in _values(footer, 0, _ROW_GROUPS):
        for chunk in _values(footer, group, _COLUMNS):
            for column in _values(footer, chunk, _META_DATA):
                size, at = varint_at(footer, next(_values(footer, column, _PATH_IN_SCHEMA)))
                if footer[at : at + size].decode() not in columns:
                    continue
                for begin in _values(footer, column, _STATISTICS):
                    nulls = b"".join(
                        bytes([_NULL_COUNT << 4 | _I64]) + footer[value : _end(footer, value, _I64)]
                        for value in _values(footer, begin, _NULL_COUNT)
                    )
                    yield begin, nulls + b"\0", _end(footer, begin, _STRUCT)


def _values(data: bytes, struct: int, number: int) -> Iterator[int]:
    """Where the values of a struct's field begin: its elements if it is a list."""
    for found, kind, begin, _ in _fields(data, struct):
        if found == number:
            yield from [*_elements(data, begin)][:-1] if kind == _LIST else (begin,)


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, type, begin and end of each value of the struct at `at`."""
    number = 0
    while head := data[at]:
        step, kind, at = head >> 4, head & 15, at + 1
        if step:
            number += step
        else:
            folded, at = varint_at(data, at)
            number = folded >> 1 ^ -(folded & 1)
        end = _end(data, at, kind)
        yield number, kind, at, end
        at = end


def _elements(data: bytes, at: int) -> Iterator[int]:
    """Where each element of the list at `at` begins, and last where the list ends."""
    size, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if size == 15:
        size, at = varint_at(data, at)
    for _ in range(size):
        yield at
        at = _end(data, at, kind)
    yield at


def _end(data: bytes, at: int, kind: int) -> int:
    """Where a value of this type ends."""
    if kind in (1, 2):  # a boolean, which stands in its field's head
        return at
    if kind in (4, 5, _I64):
        return varint_at(data, at)[1]
    if kind == 8:  # binary
        size, at = varint_at(data, at)
        return at + size
    if kind == _LIST:
        return max(_elements(data, at))
    if kind == _STRUCT:
        return max((end for *_, end in _fields(data, at)), default=at) + 1
    return at + {3: 1, 7: 8}[kind]  # a byte, a double


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        return True
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return False
    sample = column.slice(0, _SAMPLE_ROWS)
    return len(sample) == 0 or pc.count_distinct(sample).as_py() * 3 <= len(sample)


def parquet_file(source: pa.NativeFile) -> pq.ParquetFile:
    """A Parquet file of any writer, whose pages are read only if they have the checksums that they state.

    Arrow's default reads INT96, which older Spark releases wrote, as nanoseconds, and takes times before 1677
    and after 2262 for others. Raises ArrowInvalid for a footer whose numbers of rows disagree.
    """
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
    footer = file.metadata
    # nothing else protects these numbers: if one is damaged, Arrow reads fewer rows, without an error
    total = sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    if total != footer.num_rows:
        raise pa.ArrowInvalid(
            f"its groups have {total} rows, and its footer states {footer.num_rows}"
        )
    return file


def check_calendar(footer: pq.FileMetaData, columns: Collection[str] | None, where: str) -> None:
    """Raise TableError if `columns` (all of them if None) may hold a date or time of Spark's legacy calendar
    that today's would take for another day.

    Only a file that says so is of that calendar, and only dates before 1582 and times before 1900 differ.
    Source: DataSourceUtils#datetimeRebaseSpec and #int96RebaseSpec.
    """
    old = legacy_dates(footer, columns)
    if old:
        raise TableError(
            f"{where}: column {old[0]!r} may hold dates or times before 1900 in the legacy calendar of older"
            " Spark releases, which would be read as other days",
            hint="write the table anew with Spark 3, which converts them",
        )


def legacy_dates(footer: pq.FileMetaData, columns: Collection[str] | None) -> list[str]:
    """The leaves of `columns` that may hold a date or time that the legacy calendar takes for another day."""
    if not has_legacy_calendar(footer):
        return []
    dated = _dated_leaves(footer, columns)
    return sorted(path for path in dated if not dates_are_alike(footer, {path}))


def has_legacy_calendar(footer: pq.FileMetaData) -> bool:
    """Whether the file says that Spark wrote it by the calendar that was used before Spark 3.0."""
    stated = footer.metadata or {}
    version = stated.get(_SPARK)
    return any(key in stated for key in _LEGACY) or (version is not None and version < b"3")


def dates_are_alike(footer: pq.FileMetaData, leaves: Collection[str]) -> bool:
    """Whether the statistics of `leaves`, columns by their path, show no date or time before 1900."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return all(_after_the_change(c.statistics) for c in chunks if c.path_in_schema in leaves)


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
