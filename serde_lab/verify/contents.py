"""Compares the contents of two tables by a fingerprint, and says in words where they first differ.

All data columns are compared by value; the order of rows and columns does not matter, duplicates count, and
meta columns are left out (`meta_columns.py` judges them). Types are compared as the table stores them
(`records.schema.storage_type`: int8 and int16 as int32, large and view types as plain ones). The docstring of
`row_hash.py` says which values are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from serde_lab.records.schema import storage_type
from serde_lab.verify.row_hash import Hashes, hash_column, mix, seed
from serde_lab.verify.rules import META_COLUMNS, OPERATION_COLUMN

_ROWS_PER_STEP = 65_536
_LANES = (seed("serde_lab lane 1"), seed("serde_lab lane 2"))


@runtime_checkable
class RowSource(Protocol):
    """Rows that can be read more than once, batch by batch, in any order."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table in memory as a RowSource."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=_ROWS_PER_STEP)


@dataclass(frozen=True, slots=True)
class ColumnPrint:
    """A column's name, its type as stored, and the digest of its values (without their rows)."""

    name: str
    type: str
    digest: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The contents of a table in a few bytes: equal contents give equal fingerprints.

    `digest` is 128 bits over whole rows. `columns` are sorted by name and identify the columns in which two
    tables differ when the rows themselves are gone.
    """

    rows: int
    digest: str
    columns: tuple[ColumnPrint, ...]

    def difference(self, other: Fingerprint) -> str | None:
        """In words, how `other` differs from this one; None if it does not."""
        if self == other:
            return None
        schema = schema_difference(
            {c.name: c.type for c in self.columns}, {c.name: c.type for c in other.columns}
        )
        if schema is not None:
            return schema
        if self.rows != other.rows:
            return f"{other.rows:,} rows, expected {self.rows:,}"
        pairs = zip(self.columns, other.columns, strict=True)
        names = [mine.name for mine, others in pairs if mine.digest != others.digest]
        if not names:
            return "every column holds the expected values, but not in the expected rows"
        return f"values differ in column {', '.join(names)}"


class Fingerprinter:
    """Collects a fingerprint batch by batch; `add` returns the hash of each row for further use."""

    def __init__(self, schema: pa.Schema) -> None:
        self.names = tuple(sorted(data_names(schema)))
        self._types = tuple(type_name(schema.field(name).type) for name in self.names)
        self._rows = 0
        self._lanes = [np.uint64(0)] * 2
        self._columns = [np.uint64(0)] * len(self.names)

    def add(self, batch: pa.RecordBatch) -> Hashes:
        """Hash the rows of `batch`, which has every column of the schema."""
        rows = np.zeros(batch.num_rows, np.uint64)
        for index, name in enumerate(self.names):
            column = hash_column(name, batch.column(name))
            self._columns[index] = _sum(self._columns[index], column)
            rows += column
        rows = mix(rows)
        for lane, salt in enumerate(_LANES):
            self._lanes[lane] = _sum(self._lanes[lane], mix(rows ^ salt))
        self._rows += batch.num_rows
        return rows

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of everything added so far."""
        columns = zip(self.names, self._types, self._columns, strict=True)
        return Fingerprint(
            self._rows,
            "".join(f"{int(lane):016x}" for lane in self._lanes),
            tuple(ColumnPrint(name, t, f"{int(digest):016x}") for name, t, digest in columns),
        )


def fingerprint(source: RowSource | pa.Table) -> Fingerprint:
    """The fingerprint of all data columns and rows. Raises SchemaError for a type without equality."""
    rows = rows_of(source)
    collected = Fingerprinter(rows.schema)
    for batch in steps(rows):
        collected.add(batch)
    return collected.fingerprint()


def rows_of(source: RowSource | pa.Table) -> RowSource:
    return TableRows(source) if isinstance(source, pa.Table) else source


def steps(source: RowSource) -> Iterator[pa.RecordBatch]:
    """The batches of `source`, cut small enough to stay in a processor's cache."""
    for batch in source.batches():
        for start in range(0, batch.num_rows, _ROWS_PER_STEP):
            yield batch.slice(start, _ROWS_PER_STEP)


def data_names(schema: pa.Schema) -> list[str]:
    """Names of the columns of `schema` that are not meta columns."""
    return [name for name in schema.names if name not in (*META_COLUMNS, OPERATION_COLUMN)]


def type_name(t: pa.DataType) -> str:
    """The name of `t` as stored: equal for types that the table does not distinguish."""
    return str(storage_type(t))


def schema_difference(expected: dict[str, str], actual: dict[str, str]) -> str | None:
    """In words, the first column that is missing, unexpected or of another type; None if there is none."""
    for name, t in expected.items():
        if name not in actual:
            return f"column {name} is missing"
        if actual[name] != t:
            return f"column {name} has the type {actual[name]}, expected {t}"
    for name in actual:
        if name not in expected:
            return f"unexpected column {name}"
    return None


def _sum(total: np.uint64, words: Hashes) -> np.uint64:
    with np.errstate(over="ignore"):
        return np.uint64(total + words.sum(dtype=np.uint64))
