"""How base files and Parquet log blocks are written: codec, encodings, statistics.

The encodings are our own choice, by measurement: dictionaries pay off only for repeated values, shared
prefixes shrink keys and sequence numbers, and integers and dates are written fastest, and nearly always
smallest, as differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_SAMPLE_ROWS = 4096
_SHARED_PREFIXES = ("_hoodie_commit_seqno", "_hoodie_record_key")


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
