"""What a table may hold although some version of Hudi cannot: found by type or by value, and said.

Owns which columns these are and the words of the warning, which names versions and settings. Must not
know who writes. Each case is shown by a test that `tests/readers.toml` names.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import PortabilityWarning
from serde_lab.records.types import child_fields, is_list

ZONELESS = (
    "hudi-rs 0.5.0 cannot read a table with timestamps without zone (not yet implemented); Apache Hudi"
    " 1.2.0 can. Cast to a timestamp in UTC to be read by both"
)
NULL_ELEMENTS = (
    "Apache Hudi 1.2.0 with its AVRO record type, the default, cannot write lists with null elements"
    " into base files or Parquet log blocks, not even those of rows that it only carries over; its SPARK"
    " record type can, and AVRO where Hadoop's property parquet.avro.write-old-list-structure is false"
)


def zoneless_columns(schema: pa.Schema) -> list[str]:
    """Columns that are, or hold at any depth, timestamps without zone."""
    return [field.name for field in schema if _is_zoneless(field.type)]


def list_columns(schema: pa.Schema) -> list[str]:
    """Columns that are, or hold at any depth, lists: where null elements can be."""
    return [field.name for field in schema if _holds_list(field.type)]


def null_elements(values: pa.Array) -> int:
    """Null elements of all lists in `values`, at any depth; those of rows that are null do not count."""
    kind = values.type
    if not _holds_list(kind):
        return 0
    if is_list(kind):
        elements = pc.list_flatten(values)
        return int(elements.null_count) + null_elements(elements)
    if pa.types.is_map(kind):
        # a map is a list of entries; its own children know nothing of slices and null rows
        fields = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
        entries = pc.list_flatten(values.cast(pa.list_(pa.struct(fields))))
        return null_elements(entries.field(1))
    return sum(null_elements(part) for part in values.flatten())


def warn_of_types(schema: pa.Schema, stacklevel: int) -> None:
    """Warn of the columns of `schema` whose type some reader cannot read."""
    _warn(zoneless_columns(schema), ZONELESS, stacklevel + 1)


def warn_of_null_elements(columns: Iterable[str], stacklevel: int) -> None:
    """Warn of `columns`, in whose lists null elements were found."""
    _warn(sorted(columns), NULL_ELEMENTS, stacklevel + 1)


def _warn(columns: Sequence[str], why: str, stacklevel: int) -> None:
    if columns:
        named = f"column{'' if len(columns) == 1 else 's'} {', '.join(columns)}"
        warnings.warn(f"{named}: {why}", PortabilityWarning, stacklevel=stacklevel + 1)


def _is_zoneless(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_is_zoneless(field.type) for field in child_fields(kind))


def _holds_list(kind: pa.DataType) -> bool:
    return is_list(kind) or any(_holds_list(field.type) for field in child_fields(kind))
