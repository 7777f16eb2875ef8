"""Reduces input rows to what decides which of them survive: key, ordering values, position.

Keys and ordering values become columns that DuckDB groups and sorts as Hudi would: keys without nulls,
strings ordered by their bytes of UTF-8, and floats in the order of Java's compareTo (NaN highest, -0.0 below
0.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.schema import (
    columns_of,
    is_decimal,
    is_string,
    storage_type,
    type_at,
    values_at,
)
from serde_lab.verify.key_text import in_types, partition_paths, record_keys, text_of
from serde_lab.verify.table_rules import TableRules

POSITION_BITS = 40
"""A position is the file's place shifted by this, plus the row."""

_ROWS_PER_STEP = 1 << 18
_LOWEST = np.int64(np.iinfo(np.int64).min)


class NarrowRows:
    """Reads input files as narrow rows: columns `keys`, `group`, `ordering`, commit and position.

    `group` identifies file groups; it is empty on COPY_ON_WRITE, where they do not matter.
    """

    def __init__(self, rules: TableRules) -> None:
        self._rules = rules
        schema = rules.schema
        types = [storage_type(type_at(schema.data, name)) for name in schema.record_key]
        # typed keys are smaller than their text, and replace it if different values never share a
        # text
        self._keyless = not types
        bare_text = len(types) == 1 and is_string(types[0])
        self._typed = self._keyless or bare_text or all(map(_is_number, types))
        # under a global index a key is one row, whichever partitions its versions name
        self.partition = ("path",) if schema.partition and not rules.key_is_global else ()
        keys = tuple(f"k{i}" for i in range(len(types))) if self._typed else ("k",)
        if self._keyless:
            keys = ("row_commit", "row_position")
        nulls = ("k_nulls",) if self._typed and len(types) > 1 else ()
        self.keys = (*self.partition, *keys, *nulls)
        self.group = ("bucket",) if rules.table_type == "MERGE_ON_READ" else ()
        fields = schema.ordering if rules.by_event_time else ()
        self.ordering = tuple(f"o{i}" for i in range(len(fields)))

    def schema(self, deletes: bool) -> pa.Schema:
        """Names and types of the narrow rows; rows of the operation `delete` have no ordering values."""
        data = self._rules.schema.data
        empty = pa.record_batch([pa.array([], t) for t in data.types], names=data.names)
        return self._narrow(empty, 0, 0, deletes, Path()).schema

    def read(self, path: Path, commit: int, place: int, deletes: bool) -> Iterator[pa.RecordBatch]:
        """The rows of one file. Raises DataError, naming the file, for a missing column or a null key."""
        schema = self._rules.schema
        wanted = [*schema.partition, *schema.record_key, *(() if deletes else schema.ordering)]
        if self.group and not deletes:
            wanted += self._rules.bucket_fields
        if not deletes:
            wanted += self._rules.marker_columns
        names = columns_of(wanted)
        file = pq.ParquetFile(path)
        for name in names:
            if name not in file.schema_arrow.names:
                raise DataError(f"{path} has no column {name!r}; it has {file.schema_arrow.names}")
        position = place << POSITION_BITS
        wide = pa.schema([schema.data.field(name) for name in names])
        for batch in file.iter_batches(batch_size=_ROWS_PER_STEP, columns=names):
            if batch.num_columns == len(names) and batch.select(names).schema.types != wide.types:
                batch = in_types(batch, wide)
            yield self._narrow(batch, commit, position, deletes, path)
            position += batch.num_rows

    def _narrow(
        self, batch: pa.RecordBatch, commit: int, start: int, deletes: bool, path: Path
    ) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        if self.partition:
            columns["path"] = partition_paths(batch, self._rules).combine_chunks()
        if not self._keyless:
            columns |= self._key_columns(batch, path)
        if self.group and not deletes:
            columns["bucket"] = self._buckets(batch)
        if not deletes:
            for column, name in zip(self.ordering, self._rules.schema.ordering, strict=False):
                values = values_at(batch, name)
                if values.null_count and self._rules.ordering_nulls == "refuse":
                    raise DataError(
                        f"ordering column {name!r} of {path} has {values.null_count} nulls"
                    )
                columns[column] = orderable(values, name)
            if self._rules.marker_columns:
                columns |= self._marks(batch, path)
        rows = batch.num_rows
        number = pa.array(np.full(rows, commit, np.int32))
        position = pa.array(np.arange(start, start + rows, dtype=np.int64))
        if self._keyless:
            columns |= {"row_commit": number, "row_position": position}
        return pa.record_batch({**columns, "commit": number, "position": position})

    def _marks(self, batch: pa.RecordBatch, path: Path) -> dict[str, pa.Array]:
        """Which rows are deletes, and which of these apply by commit time.

        These are all deletes if ordering values do not decide, and those whose single ordering value is the
        int 0, which Hudi takes for none; to Hudi, dates are ints. Raises DataError for a delete whose
        ordering value is null.
        """
        rules = self._rules
        deleted = pa.array(np.zeros(batch.num_rows, np.bool_))
        for name in rules.marker_columns:
            if name == rules.delete_field:
                says = pc.equal(text_of(batch, name).combine_chunks(), rules.delete_marker)
            else:
                says = batch.column(name)
            deleted = pc.or_(deleted, pc.fill_null(says, False))
        always = pa.array(np.full(batch.num_rows, not self.ordering))
        fields = rules.schema.ordering if self.ordering else ()
        for name in fields:
            values = values_at(batch, name)
            if values.null_count and pc.any(pc.and_(deleted, values.is_null())).as_py():
                raise DataError(
                    f"{path} has rows that are marked as deletes and have null in {name!r}"
                )
            kind = storage_type(values.type)
            if len(fields) == 1 and kind in (pa.int32(), pa.date32()):
                zero = pa.scalar(0, pa.int32()).cast(kind)
                always = pc.or_(always, pc.fill_null(pc.equal(values.cast(kind), zero), False))
        return {"deleted": deleted, "always": pc.and_(deleted, always)}

    def _key_columns(self, batch: pa.RecordBatch, path: Path) -> dict[str, pa.Array]:
        fields = self._rules.schema.record_key
        text = [text_of(batch, name).combine_chunks() for name in fields if not self._typed]
        values = text or [values_at(batch, name) for name in fields]
        absent = [_absent(column) for column in values]
        unusable = np.logical_and.reduce(absent)
        if unusable.any():
            raise DataError(
                f"{path}: the record key ({', '.join(fields)}) is null or empty in "
                f"{int(unusable.sum())} rows"
            )
        if not self._typed:
            return {"k": record_keys(batch, self._rules).combine_chunks()}
        columns = {f"k{i}": _grouping(column) for i, column in enumerate(values)}
        if len(fields) > 1:
            bits = sum(mask.astype(np.int64) << i for i, mask in enumerate(absent))
            columns["k_nulls"] = pa.array(bits)
        return columns

    def _buckets(self, batch: pa.RecordBatch) -> pa.Array:
        if not self._rules.buckets:
            return pa.array(np.zeros(batch.num_rows, np.int32))
        key = self._rules.schema.record_key
        if len(key) == 1:
            # a single key is hashed whole, including the name of its field if the key contains it
            text = [record_keys(batch, self._rules).combine_chunks()]
        else:
            fields = self._rules.bucket_fields or key
            text = [text_of(batch, name).combine_chunks() for name in fields]
        return pa.array(bucket_ids(text, self._rules.buckets))


def orderable(values: pa.Array, name: str) -> pa.Array:
    """Values that DuckDB sorts as Apache Hudi compares these. Raises SchemaError for a type without order."""
    t = values.type
    if is_string(t):
        return values.cast(pa.binary())
    if pat.is_floating(t):
        floats = values.cast(pa.float64()).fill_null(0.0).to_numpy()
        bits = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
        folded = np.where(bits < 0, _LOWEST - bits - 1, bits)
        return pa.array(folded, mask=values.is_null().to_numpy(zero_copy_only=False))
    if pat.is_boolean(t):
        return values.cast(pa.int8())
    if is_decimal(t):
        return values.cast(pa.decimal128(t.precision, t.scale))
    if pat.is_date32(t) or pat.is_timestamp(t) or pat.is_signed_integer(t):
        return _as_int64(values)
    raise SchemaError(f"ordering column {name!r} of type {t} has no order")


def _is_number(t: pa.DataType) -> bool:
    """Whether values of the type are stored as whole numbers, each with one text."""
    return not (is_string(t) or pat.is_floating(t) or pat.is_binary(t))


def _grouping(values: pa.Array) -> pa.Array:
    """Key values with nulls filled (`k_nulls` marks them), equal if their key text is equal."""
    t = values.type
    if is_string(t):
        return values.cast(pa.string())
    if is_decimal(t):
        filled = pc.fill_null(values.cast(pa.decimal128(t.precision, t.scale)), 0)
        return filled.cast(pa.decimal128(t.precision, t.scale))
    return _as_int64(values).fill_null(0)


def _as_int64(values: pa.Array) -> pa.Array:
    t = values.type
    if pat.is_date32(t):
        values = values.view(pa.int32())
    if pat.is_timestamp(t):
        values = values.cast(pa.timestamp("us", t.tz)).view(pa.int64())
    return values.cast(pa.int64())


def _absent(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    absent = values.is_null()
    if is_string(values.type):
        absent = pc.or_(absent, pc.fill_null(pc.equal(values.cast(pa.string()), ""), False))
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = absent.to_numpy(zero_copy_only=False)
    return mask


def bucket_ids(fields: list[pa.Array], buckets: int) -> npt.NDArray[np.int32]:
    """The simple bucket of each row from the text of its bucket fields; null has Java's hash of null.

    Implements Java's String.hashCode and List.hashCode independently of the table's own hash, which it
    checks. Source: org.apache.hudi.index.bucket.BucketIdentifier.
    """
    rows = len(fields[0])
    combined = np.ones(rows, np.uint32)
    for text in fields:
        combined = combined * np.uint32(31) + string_hashes(text)
    positive = (combined & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return (positive % buckets).astype(np.int32)


def string_hashes(text: pa.Array) -> npt.NDArray[np.uint32]:
    """Java's String.hashCode as unsigned ints, shape (len(text),); 0 for null."""
    distinct = text.dictionary_encode()
    values = distinct.dictionary.cast(pa.string())
    if not len(values):
        return np.zeros(len(text), np.uint32)
    units, starts, lengths = _utf16(values)
    hashes = np.zeros(len(values), np.uint32)
    rows = np.arange(len(values))
    for place in range(int(lengths.max(initial=0))):
        rows = rows[lengths[rows] > place]
        hashes[rows] = hashes[rows] * np.uint32(31) + units[starts[rows] + place]
    with_null = np.append(hashes, np.uint32(0))
    index = pc.fill_null(distinct.indices, len(values)).to_numpy()
    return with_null[index]


def _utf16(
    values: pa.Array,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """UTF-16 code units of all values in sequence, with the start and length of each value."""
    encoded = [text.encode("utf-16-le", "surrogatepass") for text in values.to_pylist()]
    lengths = np.array([len(item) // 2 for item in encoded], np.int64)
    units = np.frombuffer(b"".join(encoded), np.uint16).astype(np.uint32)
    return units, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)[:-1]]), lengths
