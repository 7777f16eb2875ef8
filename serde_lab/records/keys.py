"""Generates record keys and partition paths from data columns, vectorised.

The encoding is Hudi's (SimpleKeyGenerator, ComplexKeyGenerator, NonpartitionedKeyGenerator,
TimestampBasedKeyGenerator, CustomKeyGenerator, AutoRecordGenWrapperKeyGenerator and
PartitionPathEncodeUtils). A key is the value of its one field, or `f1:v1,f2:v2` (`KeyGenerator.complex` says
when); without key fields it is made from the row's position in the input. Fields are named by path
(`schema.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, LabError, OptionError, SchemaError
from serde_lab.records.conversion import has_text, java_text, varies_with_java
from serde_lab.records.partition_time import TimeRule
from serde_lab.records.schema import DELETE, INSERT, RecordSchema, columns_of, type_at, values_at

OrderingNulls = Literal["refuse", "lowest"]
PartitionKind = Literal["SIMPLE", "TIMESTAMP"]
"""How the key generator CUSTOM names a field's partition folder: by its text, or by time."""

NULL_KEY = "__null__"
EMPTY_KEY = "__empty__"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# characters that storage systems do not allow in names
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# the folder itself, its parent, and the table's metadata folder, where readers do not look for data
_TAKEN = frozenset({".", "..", ".hoodie"})

# PartitionPathEncodeUtils.CHAR_TO_ESCAPE
_ESCAPED = {chr(code) for code in [*range(0x20), 0x7F]} | set("\"#%'*/:=?\\{[]^")


@dataclass(frozen=True, slots=True)
class RowPlace:
    """The position of a batch's rows in a write's input, from which keys are made if no column is a key.

    `partition` is the number of the input partition, `first` that of the batch's first row in it.
    """

    instant: str
    partition: int
    first: int = 0


NOWHERE = RowPlace("0" * 17, 0)
"""The place of rows that do not come from a write."""


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """Makes the envelope columns of a batch. `hive_style` and `url_encode` are the table's settings.

    `ordering_nulls`: whether a null ordering value is refused, or counts as lower than any other.
    `time`: how folders are named by time; without `kinds` the key generator is TIMESTAMP, which has one
    partition field. `kinds`: the key generator is CUSTOM; one entry per partition field. `named`: the key
    generator is COMPLEX, whose keys have the names of their fields even if there is one only.
    """

    schema: RecordSchema
    hive_style: bool = False
    url_encode: bool = False
    ordering_nulls: OrderingNulls = "refuse"
    time: TimeRule | None = None
    kinds: tuple[PartitionKind, ...] = ()
    named: bool = False

    def __post_init__(self) -> None:
        for name in self.schema.record_key:
            _check_key_type("record key", name, type_at(self.schema.data, name))
        for name, rule in self._partition_rules():
            kind = type_at(self.schema.data, name)
            if rule is None:
                _check_key_type("partition", name, kind)
            elif not rule.takes(kind):
                wanted = "a string" if rule.reads_text else "a number, a date or a timestamp"
                raise SchemaError(
                    f"partition column {name!r} is of type {kind}, expected {wanted}, which the key"
                    f" generator {'CUSTOM' if self.kinds else 'TIMESTAMP'} reads as {rule.input_type}"
                )
        if "TIMESTAMP" in self.kinds and self.time is None:
            raise OptionError(
                "the key generator CUSTOM has a field of kind TIMESTAMP, but no hoodie.keygen.timebased"
                " options"
            )
        timestamp = self.time is not None and not self.kinds
        if timestamp and (len(self.schema.partition), self.complex) != (1, False):
            raise OptionError("the key generator TIMESTAMP takes one key and one partition column")

    @property
    def complex(self) -> bool:
        """Whether keys have the form `field:value`.

        They do under COMPLEX, with several key fields and, except for CUSTOM, with several partition fields.
        """
        several = len(self.schema.partition) > 1 and not self.kinds
        return self.named or several or len(self.schema.record_key) > 1

    def _partition_rules(self) -> list[tuple[str, TimeRule | None]]:
        """Each partition field with its rule for naming folders by time, or None."""
        kinds = self.kinds or ("TIMESTAMP",) * len(self.schema.partition)
        return [
            (name, self.time if kind == "TIMESTAMP" else None)
            for name, kind in zip(self.schema.partition, kinds, strict=True)
        ]

    @property
    def folders_by_text(self) -> tuple[str, ...]:
        """The partition fields whose folder is the value's text, and not named by time."""
        return tuple(name for name, rule in self._partition_rules() if rule is None)

    def record_keys(self, data: pa.RecordBatch) -> pa.StringArray:
        """Record keys, one per row.

        Raises DataError if all key fields of a row are null or empty, if one of several key fields is in a
        struct that is null, or for a number whose text varies with Java.
        """
        fields = self.schema.record_key
        if not self.complex:
            (name,) = fields
            values = _text_of("record key", name, values_at(data, name))
            bad = values.null_count + pc.sum(pc.equal(values, ""), min_count=0).as_py()
            if bad:
                raise DataError(f"record key column {name!r} is null or empty in {bad} rows")
            return values
        parts: list[pa.Array | pa.Scalar] = []
        missing: pa.Array | None = None
        always_there = False
        for position, name in enumerate(fields):
            _check_struct(data, name)
            given = values_at(data, name)
            values = _text_of("record key", name, given)
            if values.null_count or not pa.types.is_integer(given.type):
                empty = pc.fill_null(pc.equal(values, ""), False)
                absent = pc.or_(values.is_null(), empty)
                missing = absent if missing is None else pc.and_(missing, absent)
                values = pc.fill_null(pc.if_else(empty, EMPTY_KEY, values), NULL_KEY)
            else:
                always_there = True
            parts += [pa.scalar(f"{',' if position else ''}{name}:"), values]
        if missing is not None and not always_there and pc.any(missing).as_py():
            raise DataError(
                f"record key columns {', '.join(fields)} are all null or empty in"
                f" {pc.sum(missing).as_py()} rows"
            )
        return pc.binary_join_element_wise(*parts, "")

    def partition_paths(self, data: pa.RecordBatch) -> pa.StringArray:
        """Partition paths, one per row; "" in a table that is not partitioned."""
        if not self.schema.partition:
            return pa.repeat(pa.scalar(""), data.num_rows)
        segments: list[pa.Array] = []
        for name, rule in self._partition_rules():
            values = values_at(data, name)
            texts = rule.folders(values) if rule else _text_of("partition", name, values)
            encoded = texts.dictionary_encode()
            # few distinct values: escape each of them once
            distinct = [*encoded.dictionary.to_pylist(), None]
            first = not segments
            names = pa.array([self._segment(name, v, rule, first) for v in distinct], pa.string())
            indices = pc.fill_null(encoded.indices, len(distinct) - 1)
            segments.append(names.take(indices))
        return segments[0] if len(segments) == 1 else pc.binary_join_element_wise(*segments, "/")

    def _segment(self, name: str, value: str | None, rule: TimeRule | None, first: bool) -> str:
        text = value or DEFAULT_PARTITION
        if self.url_encode:
            text = escape(text)
        elif ("/" in text and rule is None) or _CONTROL.search(text):
            raise DataError(
                f"partition column {name!r} holds {text!r}, which is not a single folder name",
                hint="set hoodie.datasource.write.partitionpath.urlencode=true",
            )
        elif first and ":" in text.partition("/")[0]:
            raise DataError(
                f"partition column {name!r} holds {text!r}: Apache Hudi takes what stands before a colon for"
                " the scheme of a URI, and cannot read a table with such a folder",
                hint="set hoodie.datasource.write.partitionpath.urlencode=true",
            )
        segment = f"{name}={text}" if self.hive_style else text
        # a rule may name folders inside each other
        if _TAKEN.intersection(segment.split("/")):
            raise DataError(
                f"partition column {name!r} holds {text!r}, which is a reserved folder name",
                hint="set hoodie.datasource.write.hive_style_partitioning=true",
            )
        return segment

    @property
    def identity(self) -> pa.Schema:
        """The columns that identify a record: those of key and partition fields, in table order."""
        identifying = set(columns_of([*self.schema.record_key, *self.schema.partition]))
        return pa.schema([field for field in self.schema.data if field.name in identifying])

    def envelop(self, data: pa.RecordBatch, place: RowPlace | None = None) -> pa.RecordBatch:
        """`data` (the schema's data columns, in order) with its envelope columns in front.

        In a table without key columns the keys are made from `place`.
        """
        columns = [data.column(name) for name in self.schema.data.names]
        for name in self.schema.ordering:
            nulls = values_at(data, name).null_count
            if nulls and self.ordering_nulls == "refuse":
                raise DataError(
                    f"ordering column {name!r} is null in {nulls} rows, which Apache Hudi cannot merge",
                    hint="serde_lab.ordering_nulls=lowest writes them for other readers",
                )
        if self.schema.record_key:
            return self._batch(data, INSERT, columns, self.record_keys(data))
        if place is None:
            raise LabError(
                "internal error: a record without key columns has no position in the input"
            )
        return self._batch(data, INSERT, columns, auto_keys(place, data.num_rows))

    def envelop_deletes(self, identity: pa.RecordBatch) -> pa.RecordBatch:
        """Records that delete the keys of `identity`, which has at least the identity columns.

        They have no row: all data columns are null. The ordering fields are null too, because Hudi's
        datasource deletes by commit time.
        """
        columns = [pa.nulls(identity.num_rows, field.type) for field in self.schema.data]
        return self._batch(identity, DELETE, columns, self.record_keys(identity))

    def _batch(
        self, identity: pa.RecordBatch, operation: str, columns: list[pa.Array], keys: pa.Array
    ) -> pa.RecordBatch:
        rows = identity.num_rows
        empty = pa.repeat(pa.scalar(""), rows)
        envelope = [
            keys,
            self.partition_paths(identity),
            empty,
            empty,
            pa.repeat(pa.scalar(operation), rows),
            pa.array(np.zeros(rows, np.bool_)),
        ]
        return pa.RecordBatch.from_arrays([*envelope, *columns], schema=self.schema.batch_schema)


def auto_keys(place: RowPlace, rows: int) -> pa.StringArray:
    """Keys of rows without key columns: `<instant>_<partition>_<row>`, like Hudi's sequence numbers."""
    numbers = pa.array(np.arange(place.first, place.first + rows)).cast(pa.string())
    prefix = pa.scalar(f"{place.instant}_{place.partition}_")
    return pc.binary_join_element_wise(prefix, numbers, "")


def escape(text: str) -> str:
    """PartitionPathEncodeUtils.escapePathName: %XX for the characters that paths cannot contain."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def _text_of(role: str, name: str, values: pa.Array) -> pa.StringArray:
    """The values' text. Raises DataError if one has another text where Apache Hudi runs on another Java."""
    if pa.types.is_floating(values.type):
        varying = np.flatnonzero(varies_with_java(values))
        if len(varying):
            found = values[int(varying[0])].as_py()
            raise DataError(
                f"{role} column {name!r} holds {found!r}, whose text differs between versions of Java: Apache"
                " Hudi could miss the row",
                hint="cast the column to a decimal",
            )
    return java_text(values)


def _check_struct(data: pa.RecordBatch, path: str) -> None:
    """Raises DataError if the struct around a key field is null; a null field is allowed.

    Source: KeyGenUtils.getRecordKey, for which a field of a null struct does not exist.
    """
    struct, _, _ = path.rpartition(".")
    nulls = values_at(data, struct).null_count if struct else 0
    if nulls:
        raise DataError(
            f"record key field {path!r} does not exist in {nulls} rows, whose {struct!r} is null"
        )


def _check_key_type(role: str, name: str, kind: pa.DataType) -> None:
    if not has_text(kind):
        raise SchemaError(
            f"{role} column {name!r} is of type {kind}, which has no text in a key; expected a string,"
            " number, boolean, date, timestamp, decimal or binary"
        )
