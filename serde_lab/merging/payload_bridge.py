"""Payload classes, and the merger that calls them, which is RFC-46's HoodieAvroRecordMerger.

A payload is Hudi's older way to define how two versions of a record merge, one Avro datum at a time. A
user's class derives from `RecordPayload` and is named as package.module:Class. The merger shows what this
detour costs: each row becomes Avro bytes, a payload object and a decoded datum, is merged in Python, and
becomes Avro bytes and columns again. Its time is the phase `payload`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Self

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.avro.codec import AvroCodec, check_maps
from serde_lab.avro.schema import arrow_to_avro
from serde_lab.errors import DataError, OptionError
from serde_lab.merging.merger import (
    MODEL,
    PAYLOAD_CLASS,
    PAYLOAD_STRATEGY,
    Merged,
    MergedTable,
    RecordMerger,
    named_class,
)
from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import DELETE, IS_DELETED, META_NAMES, is_list, values_at

Datum = dict[str, Any]
Decode = Callable[[bytes], Datum]


class RecordPayload:
    """One version of a record: its Avro bytes and its ordering value.

    `avro` is empty for a delete. `ordering` is a tuple with one value per ordering field, which compares as
    in Apache Hudi (empty by commit time). `decode` reads bytes of the record's schema.
    """

    __slots__ = ("avro", "decode", "ordering")

    def __init__(self, avro: bytes, ordering: tuple[Any, ...], decode: Decode) -> None:
        self.avro, self.ordering, self.decode = avro, ordering, decode

    def pre_combine(self, older: Self, properties: Mapping[str, str]) -> Self:
        """The winner of two records of one batch, or a merge of both; `older` was written first."""
        raise NotImplementedError

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """The stored record `current` after the merge with this one; None deletes it. It may be `current`
        itself, changed.
        """
        raise NotImplementedError

    def get_insert_value(self, properties: Mapping[str, str]) -> Datum | None:
        """The record, as Hudi stores it if none is stored yet; None for a delete.

        Rows of new keys are stored as they come, so a class of the user's cannot have its own.
        """
        if not self.avro:
            return None
        datum = self.decode(self.avro)
        return None if self.is_delete(datum, properties) else datum

    def is_delete(self, datum: Datum, properties: Mapping[str, str]) -> bool:
        """Whether a datum is marked as a delete; not for a class of the user's to change, either."""
        return datum.get(IS_DELETED) is True


class OverwriteWithLatestAvroPayload(RecordPayload):
    """Takes the later record, but within a batch the one with the higher ordering value."""

    __slots__ = ()

    def pre_combine(self, older: Self, properties: Mapping[str, str]) -> Self:
        """The record with the higher ordering value; ties go to the newer, as in all of the lab's batches."""
        return older if older.ordering > self.ordering else self

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """Replaces the stored record."""
        return self.get_insert_value(properties)


class DefaultHoodieRecordPayload(OverwriteWithLatestAvroPayload):
    """Takes the record with the higher ordering value, the newer of equals; a table's field marks deletes."""

    __slots__ = ()

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """The stored record stays if its ordering value is higher."""
        if self.ordering and ordering_of(current, properties) > self.ordering:
            return current
        return self.get_insert_value(properties)

    def is_delete(self, datum: Datum, properties: Mapping[str, str]) -> bool:
        """Decides by the field and marker that the table defines, or by `_hoodie_is_deleted`."""
        key = properties.get("hoodie.payload.delete.field")
        if not key or key not in datum:
            return super().is_delete(datum, properties)
        marker = properties.get("hoodie.payload.delete.marker", DELETE)
        return datum[key] is not None and str(datum[key]) == marker


class EventTimeAvroPayload(DefaultHoodieRecordPayload):
    """Like DefaultHoodieRecordPayload, without the table's field for deletes."""

    __slots__ = ()

    def is_delete(self, datum: Datum, properties: Mapping[str, str]) -> bool:
        """Decides by `_hoodie_is_deleted` alone."""
        return RecordPayload.is_delete(self, datum, properties)


class OverwriteNonDefaultsWithLatestAvroPayload(OverwriteWithLatestAvroPayload):
    """Takes the later record; fields that are at their default (null) in it keep the stored value."""

    __slots__ = ()

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """Merges field by field."""
        if not self.avro:
            return None
        new = self.decode(self.avro)
        if self.is_delete(new, properties):
            return None
        return _filled(new, current)


class PartialUpdateAvroPayload(OverwriteNonDefaultsWithLatestAvroPayload):
    """Takes the record with the higher ordering value; its null fields are filled from the other."""

    __slots__ = ()

    def pre_combine(self, older: Self, properties: Mapping[str, str]) -> Self:
        """Fills the null fields of one record of a batch from the other as well."""
        if not older.avro or not self.avro:
            return super().pre_combine(older, properties)
        winner, other = (older, self) if older.ordering > self.ordering else (self, older)
        top, below = self.decode(winner.avro), self.decode(other.avro)
        if self.is_delete(top, properties) or self.is_delete(below, properties):
            return winner
        datum = _filled(top, below)
        # the merged datum needs no bytes of its own, since `decode` returns it
        return type(self)(winner.avro, winner.ordering, lambda _: datum)

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """The stored record wins if its ordering value is higher, and is then filled from this one."""
        if not self.avro:
            return None
        new = self.decode(self.avro)
        lower = bool(self.ordering) and ordering_of(current, properties) > self.ordering
        if self.is_delete(new, properties):
            return current if lower else None
        return _filled(current, new) if lower else _filled(new, current)


def _filled(top: Datum, below: Datum) -> Datum:
    return {key: below.get(key) if value is None else value for key, value in top.items()}


def ordering_of(datum: Datum, properties: Mapping[str, str]) -> tuple[Any, ...]:
    """The ordering values of a datum, comparable with `RecordPayload.ordering`."""
    fields = [
        name for name in properties.get("hoodie.table.ordering.fields", "").split(",") if name
    ]
    return tuple(comparable(_field_of(datum, name)) for name in fields)


def _field_of(datum: Datum, path: str) -> Any:
    """The value at the end of a path; None if a record on the way is null."""
    value: Any = datum
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def comparable(value: Any) -> Any:
    """A value that Python compares as Apache Hudi would: NaN is highest, -0.0 below 0.0."""
    if value is None:
        # null is below everything
        return (False,)
    if isinstance(value, float):
        not_number = value != value
        return True, not_number, 0.0 if not_number else value, not str(value).startswith("-")
    # Python orders strings by code point, which is the order of their bytes of UTF-8
    return True, value


HUDI_PAYLOADS: Mapping[str, type[RecordPayload]] = {
    f"{MODEL}.{payload.__name__}": payload
    for payload in (
        OverwriteWithLatestAvroPayload,
        DefaultHoodieRecordPayload,
        EventTimeAvroPayload,
        OverwriteNonDefaultsWithLatestAvroPayload,
        PartialUpdateAvroPayload,
    )
}


def load_payload(name: str) -> type[RecordPayload]:
    """One of Hudi's classes by its Java name, or a user's as package.module:Class. Raises OptionError."""
    if name in HUDI_PAYLOADS:
        return HUDI_PAYLOADS[name]
    found = named_class(name, RecordPayload, f"payload class is {name!r}", HUDI_PAYLOADS)
    for method in ("get_insert_value", "is_delete"):
        if getattr(found, method) not in {
            getattr(known, method) for known in HUDI_PAYLOADS.values()
        }:
            raise OptionError(
                f"payload class is {name!r}, which has a {method} of its own: the lab does not call it for"
                " rows of new keys, and stores them as they come",
                hint="hoodie.payload.delete.field marks deletes; change other values before the write",
            )
    return found


class AvroRecordMerger(RecordMerger):
    """Merges records of any type with the table's payload class."""

    strategy_id = PAYLOAD_STRATEGY
    phase = "payload"

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable) -> Merged:
        """Calls `combineAndGetUpdateValue` of the newer record."""
        bridge = _Bridge(newer.schema, table.schema.ordering)
        payload_class = load_payload(table.properties[PAYLOAD_CLASS])
        results: list[bytes | None] = []
        older_kept = np.zeros(newer.num_rows, np.bool_)
        current_avro, meta = bridge.encoded(older), bridge.meta_of(newer)
        for row, payload in enumerate(bridge.payloads(newer, payload_class)):
            current = bridge.decode(current_avro[row])
            result = payload.combine_and_get_update_value(current, table.properties)
            datum = None
            if result is not None:
                datum = bridge.encoded_datum(result, meta[row], payload_class)
            # a payload may give back the very record that it was given, with other values
            older_kept[row] = result is current and datum == current_avro[row]
            results.append(datum)
        return bridge.merged(results, newer, older_kept)

    def pre_combine(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable
    ) -> Merged:
        """Calls `preCombine`, as Hudi does for records of one batch."""
        bridge = _Bridge(newer.schema, table.schema.ordering)
        payload_class = load_payload(table.properties[PAYLOAD_CLASS])
        before = bridge.payloads(older, payload_class)
        after = bridge.payloads(newer, payload_class)
        results: list[bytes | None] = []
        older_kept = np.zeros(newer.num_rows, np.bool_)
        for row, (old, new) in enumerate(zip(before, after, strict=True)):
            kept = new.pre_combine(old, table.properties)
            if not (isinstance(kept, RecordPayload) and kept.avro):
                found = "one without bytes" if isinstance(kept, RecordPayload) else repr(kept)
                raise DataError(
                    f"payload class {_named(payload_class)}: pre_combine of two records gave {found},"
                    " expected a payload that holds a record"
                )
            older_kept[row] = kept is old
            # keep the whole record: the merge with the stored one decides whether it is a delete
            results.append(bridge.encoded_datum(kept.decode(kept.avro), {}, payload_class))
        return bridge.merged(results, newer, older_kept)


class _Bridge:
    """Converts rows of one schema to datums and back."""

    def __init__(self, schema: pa.Schema, ordering: tuple[str, ...]) -> None:
        self._schema, self._ordering = schema, ordering
        self._codec, self._avro = _codec(schema)
        self._meta = [name for name in schema.names if name in META_NAMES]

    def encoded(self, rows: pa.RecordBatch) -> list[bytes]:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            plain = to_plain(column)
            check_maps(name, plain)
            _check_years(name, plain)
        found: list[bytes] = self._codec.encode(rows).to_pylist()
        return found

    def decode(self, datum: bytes) -> Datum:
        found: Any = fastavro.schemaless_reader(io.BytesIO(datum), self._avro, None)
        return found

    def payloads(
        self, rows: pa.RecordBatch, payload_class: type[RecordPayload]
    ) -> list[RecordPayload]:
        datums = self.encoded(rows)
        columns = [values_at(rows, name).to_pylist() for name in self._ordering]
        values = [tuple(map(comparable, each)) for each in zip(*columns, strict=True)]
        if not columns:
            values = [()] * rows.num_rows
        return [
            payload_class(datum, value, self.decode)
            for datum, value in zip(datums, values, strict=True)
        ]

    def merged(
        self, results: list[bytes | None], like: pa.RecordBatch, older_kept: npt.NDArray[np.bool_]
    ) -> Merged:
        deleted = np.array([result is None for result in results], np.bool_)
        datums = [result for result in results if result is not None]
        rows = self._codec.decode(pa.array(datums, pa.binary()), "payload")
        number = np.cumsum(~deleted) - 1
        if deleted.any():
            rows = rows.take(pa.array(number, mask=deleted))
        columns = [rows.column(field.name).cast(field.type) for field in like.schema]
        made = pa.RecordBatch.from_arrays(columns, schema=like.schema)
        return Merged(made, deleted if deleted.any() else None, older_kept)

    def meta_of(self, rows: pa.RecordBatch) -> list[Datum]:
        """The meta columns of stored rows, of which a payload need not know."""
        found: list[Datum] = rows.select(self._meta).to_pylist()
        return found if self._meta else [{}] * rows.num_rows

    def encoded_datum(self, datum: Datum, meta: Datum, made_by: type[RecordPayload]) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._avro, {**meta, **datum})
        except Exception as exc:
            # the error types differ by what is wrong with the datum
            raise DataError(
                f"payload class {_named(made_by)} gave {datum!r:.200}, which is no record of the table:"
                f" {exc}"
            ) from exc
        return out.getvalue()


def _named(payload_class: type[RecordPayload]) -> str:
    return f"{payload_class.__module__}:{payload_class.__qualname__}"


_FIRST, _LAST = np.datetime64("0001-01-01"), np.datetime64("9999-12-31T23:59:59.999999")


def _check_years(path: str, array: pa.Array) -> None:
    """Raise DataError naming the column if the plain `array` has a date or time that Python has none for."""
    if pa.types.is_date32(array.type) or pa.types.is_timestamp(array.type):
        dates = pa.types.is_date32(array.type)
        kind = f"datetime64[{'D' if dates else array.type.unit}]"
        first, last = (int(end.astype(kind).astype(np.int64)) for end in (_FIRST, _LAST))
        found = pc.min_max(array.cast(pa.int32() if dates else pa.int64())).as_py()
        if found["min"] is not None and (found["min"] < first or found["max"] > last):
            raise DataError(
                f"column {path!r} has a date or time outside the years 1 to 9999, which payload classes here"
                " cannot hold, since they are Python"
            )
    elif is_list(array.type):
        _check_years(f"{path}.element", array.flatten())
    elif pa.types.is_map(array.type):
        _check_years(f"{path}.value", array.items)
    elif pa.types.is_struct(array.type):
        for index, field in enumerate(array.type):
            _check_years(f"{path}.{field.name}", array.field(index))


@lru_cache(maxsize=16)
def _codec(schema: pa.Schema) -> tuple[AvroCodec, Any]:
    # every column is nullable here, because the row of a delete has no values
    plain = pa.schema([pa.field(f.name, f.type) for f in schema])
    avro = arrow_to_avro(plain, "record", "hoodie.payload")
    return AvroCodec(avro, plain), fastavro.parse_schema(avro)
