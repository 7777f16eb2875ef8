"""Key generation: record keys and partition paths from data columns, vectorised.

Owns Hudi's encoding (SimpleKeyGenerator, ComplexKeyGenerator, NonpartitionedKeyGenerator and
PartitionPathEncodeUtils): one key field gives the bare value, several give `f1:v1,f2:v2`. Must not know
tables or strategies.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.schema import DELETE, ENVELOPE, INSERT, RecordSchema

OrderingNulls = Literal["refuse", "lowest"]

NULL_KEY = "__null__"
EMPTY_KEY = "__empty__"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# no storage has these in a name
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# the folder itself, the one above, and the table's own, in which no reader looks for data
_TAKEN = frozenset({".", "..", ".hoodie"})

# PartitionPathEncodeUtils.CHAR_TO_ESCAPE
_ESCAPED = {chr(code) for code in [*range(0x20), 0x7F]} | set("\"#%'*/:=?\\{[]^")


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """Makes the envelope of a batch. `hive_style` and `url_encode` are the table's own settings.

    `ordering_nulls`: whether a null ordering value is refused, or counts as lower than any other.
    """

    schema: RecordSchema
    hive_style: bool = False
    url_encode: bool = False
    ordering_nulls: OrderingNulls = "refuse"

    def __post_init__(self) -> None:
        for role, names in (
            ("record key", self.schema.record_key),
            ("partition", self.schema.partition),
        ):
            for name in names:
                _check_key_type(role, name, self.schema.data.field(name).type)

    @property
    def complex(self) -> bool:
        """Whether keys are written `field:value`: several key fields, or several partition fields."""
        return len(self.schema.record_key) > 1 or len(self.schema.partition) > 1

    def record_keys(self, data: pa.RecordBatch) -> pa.StringArray:
        """Record keys, one a row. Raises DataError where every key field of a row is null or empty."""
        fields = self.schema.record_key
        if not self.complex:
            (name,) = fields
            values = text_of(data.column(name))
            bad = values.null_count + pc.sum(pc.equal(values, ""), min_count=0).as_py()
            if bad:
                raise DataError(f"record key column {name!r} is null or empty in {bad} rows")
            return values
        parts: list[pa.Array | pa.Scalar] = []
        missing: pa.Array | None = None
        always_there = False
        for position, name in enumerate(fields):
            values = text_of(data.column(name))
            if values.null_count or not pa.types.is_integer(data.column(name).type):
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
        """Partition paths, one a row; "" in a table that is not partitioned."""
        fields = self.schema.partition
        if not fields:
            return pa.repeat(pa.scalar(""), data.num_rows)
        segments = []
        for name in fields:
            encoded = text_of(data.column(name)).dictionary_encode()
            # few distinct values: escape each of them once
            distinct = [self._segment(name, value) for value in encoded.dictionary.to_pylist()]
            names = pa.array([*distinct, self._segment(name, None)], pa.string())
            indices = pc.fill_null(encoded.indices, len(distinct))
            segments.append(names.take(indices))
        return segments[0] if len(segments) == 1 else pc.binary_join_element_wise(*segments, "/")

    def _segment(self, name: str, value: str | None) -> str:
        text = value or DEFAULT_PARTITION
        if self.url_encode:
            text = escape(text)
        elif "/" in text or _CONTROL.search(text):
            raise DataError(
                f"partition column {name!r} holds {text!r}, which is no single folder name",
                hint="set hoodie.datasource.write.partitionpath.urlencode=true",
            )
        segment = f"{name}={text}" if self.hive_style else text
        if segment in _TAKEN:
            raise DataError(
                f"partition column {name!r} holds {text!r}, a folder name that has a meaning already",
                hint="set hoodie.datasource.write.hive_style_partitioning=true",
            )
        return segment

    @property
    def identity(self) -> pa.Schema:
        """The columns that a record is told by: key and partition columns, in table order."""
        told_by = {*self.schema.record_key, *self.schema.partition}
        return pa.schema([field for field in self.schema.data if field.name in told_by])

    def envelop(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """`data` (the schema's data columns, in order) with its envelope in front."""
        columns = [data.column(name) for name in self.schema.data.names]
        for name in self.schema.ordering:
            nulls = data.column(name).null_count
            if nulls and self.ordering_nulls == "refuse":
                raise DataError(
                    f"ordering column {name!r} is null in {nulls} rows, which Apache Hudi cannot merge",
                    hint="serde_lab.ordering_nulls=lowest writes them for other readers",
                )
        return self._batch(data, INSERT, columns)

    def envelop_deletes(self, identity: pa.RecordBatch) -> pa.RecordBatch:
        """Records that delete the keys of `identity`, which has at least the identity columns.

        They have no row: all data columns are null, the ordering fields too, since Hudi's datasource
        deletes by commit time.
        """
        columns = [pa.nulls(identity.num_rows, field.type) for field in self.schema.data]
        return self._batch(identity, DELETE, columns)

    def _batch(
        self, identity: pa.RecordBatch, operation: str, columns: list[pa.Array]
    ) -> pa.RecordBatch:
        rows = identity.num_rows
        empty = pa.repeat(pa.scalar(""), rows)
        envelope = [
            self.record_keys(identity),
            self.partition_paths(identity),
            empty,
            empty,
            pa.repeat(pa.scalar(operation), rows),
            pa.array(np.zeros(rows, np.bool_)),
        ]
        return pa.RecordBatch.from_arrays([*envelope, *columns], schema=self.schema.batch_schema)


def envelope_names() -> list[str]:
    """Names of the envelope columns, in order."""
    return list(ENVELOPE.names)


def text_of(values: pa.Array) -> pa.StringArray:
    """Values as Java's toString writes them in a record key; nulls stay null."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    # decimals too: Arrow turns to an exponent below 1e-6, as BigDecimal.toString and so Hudi 1.2.0 do
    return values.cast(pa.string())


def escape(text: str) -> str:
    """PartitionPathEncodeUtils.escapePathName: %XX for the characters that paths cannot hold."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """What `escape` was given."""
    return urllib.parse.unquote(text)


def _check_key_type(role: str, name: str, kind: pa.DataType) -> None:
    plain = (
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal(kind)
    )
    if not plain:
        raise SchemaError(
            f"{role} column {name!r} is of type {kind}, expected a string, integer, boolean, date or"
            " decimal"
        )
