"""Describes in words how the rows of one table differ from the expected rows.

Rows are matched by key, and the sentence names the first difference in key order. The comparison makes passes
over both tables and keeps 16 bytes per row, so that tables need not fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.records.schema import storage_type, values_at
from serde_lab.verify.contents import (
    Fingerprinter,
    RowSource,
    data_names,
    rows_of,
    schema_difference,
    steps,
    type_name,
)
from serde_lab.verify.row_hash import Hashes, hash_column, mix

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class RowDifference:
    """How two tables differ. Counts are of keys; `words` is the complete text, one or more sentences."""

    words: str
    missing: int = 0
    extra: int = 0
    duplicated: int = 0
    differing: int = 0
    first_key: str = ""
    column: str = ""


@dataclass(frozen=True, slots=True)
class _Keys:
    """The distinct keys of a table by hash, sorted: rows of each, and the sum of those rows' hashes."""

    hashes: Hashes
    counts: npt.NDArray[np.int64]
    sums: Hashes
    rows: int


def first_difference(
    expected: RowSource | pa.Table, actual: RowSource | pa.Table, key: Sequence[str]
) -> RowDifference | None:
    """None if both hold the same rows; `key` names the columns that identify a record, in key order."""
    left, right = rows_of(expected), rows_of(actual)
    schema = schema_difference(_types(left.schema), _types(right.schema))
    if schema is not None:
        return RowDifference(schema)
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
    first_key = column = ""
    if unlike.any():
        row = _first_row(left, key, common[unlike])
        first_key = key_words(row, key)
        held = _first_row(right, key, hash_keys(row, key))
        column, found = _first_column(row, held)
        sentences.append(
            f"{_count(unlike, 'row')} of {mine.rows:,}, first (in key order) {first_key}: {found}"
        )
    for hashes, source, what in (
        (missing, left, "missing"),
        (common[fewer], left, "in fewer rows than expected"),
        (extra, right, "unexpected"),
        (common[more], right, "in more rows than expected"),
    ):
        if len(hashes):
            words = key_words(_first_row(source, key, hashes), key)
            first_key = first_key or words
            sentences.append(f"{_count(hashes, 'key')} {what}; first {words}")
    if not sentences:
        return None
    return RowDifference(
        words=". ".join(sentences),
        missing=len(missing) + int(fewer.sum()),
        extra=len(extra),
        duplicated=int(more.sum()),
        differing=int(unlike.sum()),
        first_key=first_key,
        column=column,
    )


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


def _first_column(expected: pa.RecordBatch, actual: pa.RecordBatch) -> tuple[str, str]:
    """The first column, in expected order, whose value differs, and both values in words."""
    for name in data_names(expected.schema):
        wanted, found = expected.column(name), actual.column(name)
        if hash_column(name, wanted)[0] != hash_column(name, found)[0]:
            return name, f"{name} is {in_words(found[0])}, expected {in_words(wanted[0])}"
    return "", "the table has different rows with this key"


def _count(items: npt.NDArray[np.generic], what: Literal["row", "key"]) -> str:
    number = int(items.sum()) if items.dtype == np.bool_ else len(items)
    if what == "row":
        return f"{number:,} row{' differs' if number == 1 else 's differ'}"
    return f"{number:,} key{' is' if number == 1 else 's are'}"
