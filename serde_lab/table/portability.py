"""Warnings about tables and values that some version of Hudi cannot read or write.

Each warning names the columns or fields, the versions and, if there is one, the setting that helps. Tests
named in `tests/readers.toml` show each case.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from serde_lab.errors import PortabilityWarning
from serde_lab.records.schema import child_fields, leads_into_struct, type_at
from serde_lab.table.config import TableConfig

ZONELESS = (
    "hudi-rs 0.5.0 cannot read a table with timestamps without zone (not yet implemented); Apache Hudi"
    " 1.2.0 can. Cast the column to a timestamp in UTC, which both can read"
)
NULL_ELEMENTS = (
    "Apache Hudi 1.2.0 with its AVRO record type, the default, cannot write lists with null elements"
    " into base files or Parquet log blocks, not even in rows that it copies unchanged; its SPARK record"
    " type can, and AVRO can if Hadoop's property parquet.avro.write-old-list-structure is false"
)

UNREADABLE_FOLDERS = (
    "Apache Hudi 1.2.0 takes the values of partition columns from folder names, of its own tables too: it"
    " reads a timestamp as null, and binary as the text of its hexadecimal digits. hudi-rs 0.5.0 reads both"
    " right, and so does Hudi a date, a number or a string"
)
KEPT_FOLDERS = (
    "a record that stays in its partition has the new values in these columns, and Apache Hudi 1.2.0 reads"
    " the folder's instead, of its own tables too; hudi-rs 0.5.0 and the lab read the record's. With"
    " update.partition.path=true all agree"
)
SEVERAL_ORDERING_FIELDS = (
    "hudi-rs 0.5.0 refuses to read a table with several ordering fields; Apache Hudi 1.2.0 can. Both can"
    " read a table with one"
)
NESTED_ORDERING_FIELDS = (
    "hudi-rs 0.5.0 silently merges log files by commit time if the ordering field is inside a struct; Apache"
    " Hudi 1.2.0 merges them right"
)
NESTED_PARTITION_FIELDS = (
    "hudi-rs 0.5.0 cannot read a table whose partition fields are inside structs; Apache Hudi 1.2.0 can. Both"
    " can read a table partitioned by columns"
)
CUSTOM_PARTITION_FIELDS = (
    "hudi-rs 0.5.0 cannot read a table of the key generator CUSTOM, because it takes a partition field with"
    " its kind (name:KIND) for a column name; Apache Hudi 1.2.0 can"
)
SLASHES_AMONG_SEVERAL = (
    "Apache Hudi 1.2.0 cannot read a table of several partition fields if the folder names of one contain /;"
    " with hive-style folders it can"
)


def unreadable_by_rust(config: TableConfig) -> str:
    """Why hudi-rs cannot read such a table, or reads it wrong; "" if it reads it right."""
    return next((why for _, why in _of_rust(config)), "")


def warn_of_kind(config: TableConfig, stacklevel: int) -> None:
    """Warn of settings of the table that some reader does not support."""
    for fields, why in [*_of_rust(config), *_of_java(config)]:
        _warn(fields, why, stacklevel + 1, kind="field")


def _of_rust(config: TableConfig) -> Iterator[tuple[Sequence[str], str]]:
    if len(config.ordering_fields) > 1:
        yield config.ordering_fields, SEVERAL_ORDERING_FIELDS
    elif config.is_mor and any(map(leads_into_struct, config.merge_ordering)):
        yield config.merge_ordering, NESTED_ORDERING_FIELDS
    stated = config.stated_partition_fields
    if stated != config.partition_fields:
        yield stated, CUSTOM_PARTITION_FIELDS
    elif any(map(leads_into_struct, stated)):
        yield [name for name in stated if leads_into_struct(name)], NESTED_PARTITION_FIELDS


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


def warn_of_columns(
    schema: pa.Schema, stacklevel: int, folders: Sequence[str] = (), kept: bool = False
) -> None:
    """Warn of columns in `schema` that some reader cannot read; the texts of `folders` name folders.

    `kept`: whether the write leaves records in the folders of older values.
    """
    _warn(zoneless_columns(schema), ZONELESS, stacklevel + 1)
    types = {name: type_at(schema, name) for name in folders}
    misread = [n for n, of in types.items() if pa.types.is_timestamp(of) or pa.types.is_binary(of)]
    _warn(misread, UNREADABLE_FOLDERS, stacklevel + 1)
    if kept:
        _warn(folders, KEPT_FOLDERS, stacklevel + 1)


def warn_of_null_elements(columns: Iterable[str], stacklevel: int) -> None:
    """Warn of `columns`, whose lists have null elements."""
    _warn(sorted(columns), NULL_ELEMENTS, stacklevel + 1)


def _warn(names: Sequence[str], why: str, stacklevel: int, kind: str = "column") -> None:
    if names:
        named = f"{kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"
        warnings.warn(f"{named}: {why}", PortabilityWarning, stacklevel=stacklevel + 1)


def _is_zoneless(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_is_zoneless(field.type) for field in child_fields(kind))
