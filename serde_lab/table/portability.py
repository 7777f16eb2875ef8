"""Warnings about tables and values that some version of Hudi cannot read or write.

Each warning names the columns or fields, the versions and, if there is one, the setting that helps. Tests
named in `tests/readers.toml` show each case.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import PortabilityWarning
from serde_lab.records.schema import is_nested
from serde_lab.records.types import child_fields, is_list
from serde_lab.table.config import TableConfig

ZONELESS = (
    "hudi-rs 0.5.0 cannot read a table with timestamps without zone (not yet implemented); Apache Hudi"
    " 1.2.0 can. Cast to a timestamp in UTC to be read by both"
)
NULL_ELEMENTS = (
    "Apache Hudi 1.2.0 with its AVRO record type, the default, cannot write lists with null elements"
    " into base files or Parquet log blocks, not even those of rows that it only carries over; its SPARK"
    " record type can, and AVRO where Hadoop's property parquet.avro.write-old-list-structure is false"
)


SEVERAL_ORDERING_FIELDS = (
    "hudi-rs 0.5.0 refuses to read a table with several ordering fields; Apache Hudi 1.2.0 can. Take one of"
    " them to be read by both"
)
NESTED_ORDERING_FIELDS = (
    "hudi-rs 0.5.0 looks for an ordering field among the columns only, and merges logs by commit time where"
    " it stands in a struct, without a word; Apache Hudi 1.2.0 merges them right"
)
NESTED_PARTITION_FIELDS = (
    "hudi-rs 0.5.0 cannot read a table whose partition fields stand in structs; Apache Hudi 1.2.0 can. Take"
    " columns to be read by both"
)
CUSTOM_PARTITION_FIELDS = (
    "hudi-rs 0.5.0 cannot read a table of the key generator CUSTOM, whose partition fields it takes for"
    " columns, kinds and all; Apache Hudi 1.2.0 can"
)
SLASHES_AMONG_SEVERAL = (
    "Apache Hudi 1.2.0 cannot read a table of several partition fields one of which has / in its folder"
    " names; with hive-style folders it can"
)


def unreadable_by_rust(config: TableConfig) -> str:
    """Why hudi-rs cannot read such a table, or reads it wrong; "" if it reads it right."""
    return next((why for _, why in _of_rust(config)), "")


def warn_of_kind(config: TableConfig, stacklevel: int) -> None:
    """Warn of settings of the table that some reader does not support."""
    for fields, why in [*_of_rust(config), *_of_java(config)]:
        named = f"field{'' if len(fields) == 1 else 's'} {', '.join(fields)}"
        warnings.warn(f"{named}: {why}", PortabilityWarning, stacklevel=stacklevel + 1)


def _of_rust(config: TableConfig) -> Iterator[tuple[Sequence[str], str]]:
    if len(config.ordering_fields) > 1:
        yield config.ordering_fields, SEVERAL_ORDERING_FIELDS
    elif config.is_mor and any(map(is_nested, config.merge_ordering)):
        yield config.merge_ordering, NESTED_ORDERING_FIELDS
    stated = config.stated_partition_fields
    if stated != config.partition_fields:
        yield stated, CUSTOM_PARTITION_FIELDS
    elif any(map(is_nested, stated)):
        yield [name for name in stated if is_nested(name)], NESTED_PARTITION_FIELDS


def _of_java(config: TableConfig) -> Iterator[tuple[Sequence[str], str]]:
    rule = config.time_rule
    slashes = rule is not None and "/" in rule.output_format
    if (
        slashes
        and len(config.partition_fields) > 1
        and not (config.hive_style or config.url_encode)
    ):
        yield config.partition_fields, SLASHES_AMONG_SEVERAL


def zoneless_columns(schema: pa.Schema) -> list[str]:
    """Columns that hold timestamps without zone, at any depth."""
    return [field.name for field in schema if _is_zoneless(field.type)]


def list_columns(schema: pa.Schema) -> list[str]:
    """Columns that hold lists, at any depth, and so may hold null elements."""
    return [field.name for field in schema if _holds_list(field.type)]


def null_elements(values: pa.Array) -> int:
    """Number of null elements in all lists of `values`, at any depth; elements of null rows do not count."""
    kind = values.type
    if not _holds_list(kind):
        return 0
    if is_list(kind):
        elements = pc.list_flatten(values)
        return int(elements.null_count) + null_elements(elements)
    if pa.types.is_map(kind):
        # a map is a list of entries; its child arrays ignore slices and null rows
        fields = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
        entries = pc.list_flatten(values.cast(pa.list_(pa.struct(fields))))
        return null_elements(entries.field(1))
    return sum(null_elements(part) for part in values.flatten())


def warn_of_types(schema: pa.Schema, stacklevel: int) -> None:
    """Warn of columns in `schema` whose type some reader cannot read."""
    _warn(zoneless_columns(schema), ZONELESS, stacklevel + 1)


def warn_of_null_elements(columns: Iterable[str], stacklevel: int) -> None:
    """Warn of `columns`, whose lists have null elements."""
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
