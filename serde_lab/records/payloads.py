"""Record payloads: the older way to say how two versions of a record merge, one Avro datum at a time.

Owns the interface (HoodieRecordPayload) and Hudi's own payload classes under their Java names. A user's
class derives from `RecordPayload` and is named as package.module:Class. Must not know batches. Sources:
org.apache.hudi.common.model.OverwriteWithLatestAvroPayload, DefaultHoodieRecordPayload,
EventTimeAvroPayload, OverwriteNonDefaultsWithLatestAvroPayload, PartialUpdateAvroPayload.

A datum is a dict as fastavro reads it; None in place of one means a delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from serde_lab.records.named_class import named_class
from serde_lab.records.schema import DELETE

Datum = dict[str, Any]
Decode = Callable[[bytes], Datum]

_IS_DELETED = "_hoodie_is_deleted"


class RecordPayload:
    """One version of a record: its Avro bytes and its ordering value.

    `avro` is empty for a delete, `ordering` a tuple with a value per ordering field that compares as Java
    compares them (empty by commit time). `decode` reads bytes of the record's schema.
    """

    __slots__ = ("avro", "decode", "ordering")

    def __init__(self, avro: bytes, ordering: tuple[Any, ...], decode: Decode) -> None:
        self.avro, self.ordering, self.decode = avro, ordering, decode

    def pre_combine(self, older: Self, properties: Mapping[str, str]) -> Self:
        """Which of two records of one batch stands, or what is made of both; `older` came before."""
        raise NotImplementedError

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """What becomes of the stored record `current` now that this one has come; None deletes it."""
        raise NotImplementedError

    def get_insert_value(self, properties: Mapping[str, str]) -> Datum | None:
        """The record as it is stored where there was none; None for a delete."""
        if not self.avro:
            return None
        datum = self.decode(self.avro)
        return None if self.is_delete(datum, properties) else datum

    def is_delete(self, datum: Datum, properties: Mapping[str, str]) -> bool:
        """Whether a datum says of itself that it is a delete."""
        return datum.get(_IS_DELETED) is True


class OverwriteWithLatestAvroPayload(RecordPayload):
    """The later record, but within a batch that of the higher ordering value."""

    __slots__ = ()

    def pre_combine(self, older: Self, properties: Mapping[str, str]) -> Self:
        """Ties go to the newer, as the lab's batches have it."""
        return older if older.ordering > self.ordering else self

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """Whatever was stored is replaced."""
        return self.get_insert_value(properties)


class DefaultHoodieRecordPayload(OverwriteWithLatestAvroPayload):
    """The record of the higher ordering value, the newer of equals; a field of its own marks deletes."""

    __slots__ = ()

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """The stored record stays where its ordering value is higher."""
        if self.ordering and ordering_of(current, properties) > self.ordering:
            return current
        return self.get_insert_value(properties)

    def is_delete(self, datum: Datum, properties: Mapping[str, str]) -> bool:
        """By the field and marker that the table states, or by `_hoodie_is_deleted`."""
        key = properties.get("hoodie.payload.delete.field")
        if not key or key not in datum:
            return super().is_delete(datum, properties)
        marker = properties.get("hoodie.payload.delete.marker", DELETE)
        return datum[key] is not None and str(datum[key]) == marker


class EventTimeAvroPayload(DefaultHoodieRecordPayload):
    """As DefaultHoodieRecordPayload, without a field of its own for deletes."""

    __slots__ = ()

    def is_delete(self, datum: Datum, properties: Mapping[str, str]) -> bool:
        """By `_hoodie_is_deleted` alone."""
        return RecordPayload.is_delete(self, datum, properties)


class OverwriteNonDefaultsWithLatestAvroPayload(OverwriteWithLatestAvroPayload):
    """The later record, but for fields that are at their default (null): those keep what was stored."""

    __slots__ = ()

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """Field by field."""
        if not self.avro:
            return None
        new = self.decode(self.avro)
        if self.is_delete(new, properties):
            return None
        return _filled(new, current)


class PartialUpdateAvroPayload(OverwriteNonDefaultsWithLatestAvroPayload):
    """Fields that the record of the higher ordering value leaves null are the other's."""

    __slots__ = ()

    def pre_combine(self, older: Self, properties: Mapping[str, str]) -> Self:
        """Two records of a batch are filled from each other as well."""
        if not older.avro or not self.avro:
            return super().pre_combine(older, properties)
        stands, other = (older, self) if older.ordering > self.ordering else (self, older)
        top, below = self.decode(stands.avro), self.decode(other.avro)
        if self.is_delete(top, properties) or self.is_delete(below, properties):
            return stands
        datum = _filled(top, below)
        # what it is made of has no bytes, and needs none
        return type(self)(stands.avro, stands.ordering, lambda _: datum)

    def combine_and_get_update_value(
        self, current: Datum, properties: Mapping[str, str]
    ) -> Datum | None:
        """The stored record stands where its ordering value is higher, and is filled from this one."""
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
    """The value at the end of a path, null where a record on the way is."""
    value: Any = datum
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def comparable(value: Any) -> Any:
    """A value that Python compares as Apache Hudi would: NaN above, -0.0 below 0.0."""
    if value is None:
        # below everything
        return (False,)
    if isinstance(value, float):
        not_number = value != value
        return True, not_number, 0.0 if not_number else value, not str(value).startswith("-")
    # Python orders strings by code point, which is the order of their bytes of UTF-8
    return True, value


_MODEL = "org.apache.hudi.common.model"
HUDIS: Mapping[str, type[RecordPayload]] = {
    f"{_MODEL}.{payload.__name__}": payload
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
    if name in HUDIS:
        return HUDIS[name]
    return named_class(name, RecordPayload, f"payload class is {name!r}", HUDIS)
