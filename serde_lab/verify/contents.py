"""Compares the contents of two tables by a fingerprint, and says in words where they differ.

All data columns are compared by value; the order of rows and columns does not matter, duplicates count, and
meta columns are left out (`table_checks.py` judges them). Types are compared as the table stores them
(`records.schema.storage_type`: int8 and int16 as int32, large and view types as plain ones). The docstring of
`row_hash.py` says which values are equal.

For the words, rows are matched by key, and the sentence names the first difference in key order. That
comparison makes passes over both tables and keeps 16 bytes per row, so that tables need not fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.schema import storage_type, values_at
from serde_lab.verify.row_hash import Hashes, hash_column, mix, seed
from serde_lab.verify.table_rules import META_COLUMNS, OPERATION_COLUMN

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


_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class _Keys:
    """The distinct keys of a table by hash, sorted: rows of each, and the sum of those rows' hashes."""

    hashes: Hashes
    counts: npt.NDArray[np.int64]
    sums: Hashes
    rows: int


def first_difference(
    expected: RowSource | pa.Table, actual: RowSource | pa.Table, key: Sequence[str]
) -> str | None:
    """How two tables differ, in one or more sentences with counts of keys; None if both hold the same rows.

    `key` names the columns that identify a record, in key order.
    """
    left, right = rows_of(expected), rows_of(actual)
    schema = schema_difference(_types(left.schema), _types(right.schema))
    if schema is not None:
        return schema
    mine, theirs = _keys(left, key), _keys(right, key)
    missing = np.setdiff1d(mine.hashes, theirs.hashes, assume_unique=True)
    extra = np.setdiff1d(theirs.hashes, mine.hashes, assume_unique=True)
    common, at_mine, at_theirs = np.intersect1d(
        mine.hashes, theirs.hashes, assume_unique=True, return_indices=True
    )
    more = theirs.counts[at_theirs] > mine.counts[at_mine]
    fewer = theirs.counts[at_theirs] < mine.counts[at_mine]
    unlike = (mine.sums[at_mine] != theirs.sums[at_theirs]) & ~more & ~fewer
    sentences: list[str] = []
    if unlike.any():
        row = _first_row(left, key, common[unlike])
        found = _first_value(row, _first_row(right, key, hash_keys(row, key)))
        sentences.append(
            f"{_count(unlike, 'row')} of {mine.rows:,}, first (in key order) {key_words(row, key)}: {found}"
        )
    for hashes, source, what in (
        (missing, left, "missing"),
        (common[fewer], left, "in fewer rows than expected"),
        (extra, right, "unexpected"),
        (common[more], right, "in more rows than expected"),
    ):
        if len(hashes):
            words = key_words(_first_row(source, key, hashes), key)
            sentences.append(f"{_count(hashes, 'key')} {what}; first {words}")
    return ". ".join(sentences) or None


def hash_keys(rows: pa.RecordBatch, key: Sequence[str]) -> Hashes:
    """One word per row, from the columns of `key`."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in key:
        hashes += hash_column(name, values_at(rows, name))
    return mix(hashes)


def key_words(row: pa.RecordBatch, key: Sequence[str]) -> str:
    """The key of the first row of `row`, column by column."""
    return ", ".join(f"{name} = {in_words(values_at(row, name)[0])}" for name in key)


def in_words(value: pa.Scalar) -> str:
    """A value for a reader: null, '' and NaN look different, long values are cut."""
    if not value.is_valid:
        return "null"
    try:
        python = value.as_py()
    except (ValueError, OverflowError):  # a date or timestamp beyond what Python can hold
        number = value.cast(pa.int64()) if pa.types.is_temporal(value.type) else value
        return f"{number} as {value.type}"
    if pa.types.is_date(value.type) or pa.types.is_timestamp(value.type):
        return str(value.cast(pa.string()))
    if isinstance(python, float):
        text = "NaN" if math.isnan(python) else repr(python)
    elif isinstance(python, bool):
        text = str(python).lower()
    elif isinstance(python, bytes):
        text = f"0x{python.hex()}"
    elif isinstance(python, str | list | dict):
        text = repr(python)
    else:
        text = str(python)
    return (
        text
        if len(text) <= _LONGEST_VALUE
        else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"
    )


def _types(schema: pa.Schema) -> dict[str, str]:
    return {name: type_name(schema.field(name).type) for name in data_names(schema)}


def _keys(source: RowSource, key: Sequence[str]) -> _Keys:
    rows = Fingerprinter(source.schema)
    key_parts, row_parts = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for batch in steps(source):
        row_parts.append(rows.add(batch))
        key_parts.append(hash_keys(batch, key))
    keys, hashes = np.concatenate(key_parts), np.concatenate(row_parts)
    order = np.argsort(keys)
    distinct, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    # apply a bijection to each hash before the sum: two rows cannot swap parts of their hashes
    sums = np.add.reduceat(mix(hashes[order]), starts) if len(starts) else hashes
    return _Keys(distinct, counts, sums, len(keys))


def _first_row(source: RowSource, key: Sequence[str], wanted: Hashes) -> pa.RecordBatch:
    """The first row in key order among those whose key hash is in `wanted`."""
    rows: list[pa.RecordBatch] = []
    keys: list[pa.Table] = []
    for batch in steps(source):
        hashes = hash_keys(batch, key)
        place = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)  # wanted is sorted
        here = np.flatnonzero(wanted[place] == hashes)
        if not len(here):
            continue
        found = _sortable_keys(batch, key).take(here)
        keys.append(found)
        rows.append(batch.slice(int(here[_first(found)]), 1))
        if len(rows) > 1:
            best = _first(pa.concat_tables([part.slice(_first(part), 1) for part in keys]))
            rows, keys = [rows[best]], [keys[best]]
    assert rows, "a key of this table has another hash when read again"
    return rows[0]


def _first(keys: pa.Table) -> int:
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return int(order[0].as_py())


def _sortable_keys(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Table:
    # as stored: views and small integers of the other side can neither be sorted nor concatenated
    columns = [values_at(batch, name) for name in key]
    columns = [column.cast(storage_type(column.type)) for column in columns]
    return pa.table(columns, names=[str(index) for index in range(len(key))])


def _first_value(expected: pa.RecordBatch, actual: pa.RecordBatch) -> str:
    """The first column, in expected order, whose value differs, and both values in words."""
    for name in data_names(expected.schema):
        wanted, found = expected.column(name), actual.column(name)
        if hash_column(name, wanted)[0] != hash_column(name, found)[0]:
            return f"{name} is {in_words(found[0])}, expected {in_words(wanted[0])}"
    return "the table has different rows with this key"


def _count(items: npt.NDArray[np.generic], what: Literal["row", "key"]) -> str:
    number = int(items.sum()) if items.dtype == np.bool_ else len(items)
    if what == "row":
        return f"{number:,} row{' differs' if number == 1 else 's differ'}"
    return f"{number:,} key{' is' if number == 1 else 's are'}"
