"""Row execution of `internal_row`: one record after the other, with `struct`. The readable reference.

It says in plain Python what `internal_row_write.py` and `internal_row_read.py` do to whole columns, and
gives the same bytes and values, which a property test holds them to. Values are what Arrow stores:
integers for dates and times, unscaled integers for decimals, and the bits of floats.
Owns this loop; `internal_row_layout.py` says what is written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DataError
from serde_lab.records.plain_form import reinterpret, to_plain
from serde_lab.records.schema import (
    ENVELOPE,
    FILE_ID,
    INSTANT_TIME,
    IS_INDEX_RECORD,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
)
from serde_lab.records.types import is_decimal, is_list
from serde_lab.serde.internal_row_layout import (
    ENVELOPE_BYTES,
    INDEX,
    MARK,
    MOST_BYTES,
    STRINGS_BEFORE_ROW,
    WITH_ROW,
    RowLayout,
    slot_dtype,
    struct_layout,
)
from serde_lab.serde.internal_row_read import Damaged

_ENVELOPE = struct.Struct("<BBIBBHHI")
_LENGTH = struct.Struct("<I")
_INTEGERS = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}


def stored_type(t: pa.DataType) -> pa.DataType:
    """The type with the same layout in memory whose Python values are what a record holds."""
    if is_decimal(t):
        return pa.binary(16)
    if pat.is_date(t) or pat.is_float32(t):
        return pa.int32()
    if pat.is_timestamp(t) or pat.is_float64(t):
        return pa.int64()
    if is_list(t):
        return pa.list_(pa.field("element", stored_type(t.value_type)))
    if pat.is_map(t):
        return pa.map_(stored_type(t.key_type), stored_type(t.item_type))
    if pat.is_struct(t):
        return pa.struct([pa.field(f.name, stored_type(f.type)) for f in t])
    return t


# -- writing -----------------------------------------------------------------------------------


def write_records(batch: pa.RecordBatch, layout: RowLayout, fingerprint: int) -> pa.BinaryArray:
    """The records of `batch`, which is in plain form: one binary value each.

    Raises DataError where an index record has data, or a string of the envelope is too long.
    """
    columns = [reinterpret(c, stored_type(c.type)).to_pylist() for c in batch.columns]
    write_row = row_writer(layout)
    records = []
    for values in zip(*columns, strict=True):
        envelope = dict(zip(ENVELOPE.names, values, strict=False))
        strings = {}
        for name in (*STRINGS_BEFORE_ROW, RECORD_KEY):
            strings[name] = envelope[name].encode()
            if len(strings[name]) > MOST_BYTES[name]:
                raise DataError(
                    f"{name} has {len(strings[name])} bytes in one record, "
                    f"expected at most {MOST_BYTES[name]}"
                )
        row = values[len(ENVELOPE) :]
        if envelope[IS_INDEX_RECORD]:
            for name, value in zip(batch.schema.names[len(ENVELOPE) :], row, strict=True):
                if value is not None:
                    raise DataError(
                        f"column {name!r} of an index record has a value, expected null"
                    )
            form, fixed, variable = INDEX, b"", b""
        else:
            form = WITH_ROW
            fixed, variable = write_row(row)
        head = _ENVELOPE.pack(
            MARK,
            form,
            fingerprint,
            len(strings[OPERATION]),
            len(strings[INSTANT_TIME]),
            len(strings[FILE_ID]),
            len(strings[PARTITION_PATH]),
            len(strings[RECORD_KEY]),
        )
        before = b"".join(strings[name] for name in STRINGS_BEFORE_ROW)
        records.append(head + fixed + before + variable + strings[RECORD_KEY])
    return pa.array(records, pa.binary())


def row_writer(layout: RowLayout) -> Callable[[tuple[Any, ...]], tuple[bytes, bytes]]:
    """A function from a row's values to its fixed and its variable part."""
    slots = [(f.number, slot_writer(f.type)) for f in layout.fixed]
    bodies = [(f.number, body_writer(f.type)) for f in layout.variable]
    null_bytes = layout.null_bytes

    def write(values: tuple[Any, ...]) -> tuple[bytes, bytes]:
        nulls = sum(1 << i for i, value in enumerate(values) if value is None)
        fixed = [nulls.to_bytes(null_bytes, "little")]
        fixed += [slot(values[i]) for i, slot in slots]
        variable = [b"" if values[i] is None else body(values[i]) for i, body in bodies]
        fixed += [_LENGTH.pack(len(part)) for part in variable]
        return b"".join(fixed), b"".join(variable)

    return write


def slot_writer(t: pa.DataType) -> Callable[[Any], bytes]:
    """A function from a value, or None, to its slot."""
    dtype = slot_dtype(t)
    assert dtype is not None
    width = dtype.itemsize
    if is_decimal(t):
        # the low bytes of 16: the others only repeat the sign
        return lambda value: bytes(width) if value is None else value[:width]
    pack = struct.Struct(_INTEGERS[width]).pack
    return lambda value: pack(value or 0)


def body_writer(t: pa.DataType) -> Callable[[Any], bytes]:
    """A function from a value to its variable part."""
    if pat.is_string(t):
        return lambda value: value.encode()
    if pat.is_binary(t):
        return lambda value: value
    if pat.is_struct(t):
        write_row = row_writer(struct_layout(t))
        return lambda value: b"".join(write_row(tuple(value.values())))
    if pat.is_map(t):
        keys = sequence_writer(t.key_type, nullable=False)
        items = sequence_writer(t.item_type)
        return lambda value: (
            _LENGTH.pack(len(value)) + keys([k for k, _ in value]) + items([v for _, v in value])
        )
    write_items = sequence_writer(t.value_type)
    return lambda value: _LENGTH.pack(len(value)) + write_items(value)


def sequence_writer(t: pa.DataType, *, nullable: bool = True) -> Callable[[list[Any]], bytes]:
    """A function from values to their sequence."""
    has_slots = slot_dtype(t) is not None
    one = slot_writer(t) if has_slots else body_writer(t)

    def write(values: list[Any]) -> bytes:
        nulls = sum(1 << i for i, value in enumerate(values) if value is None)
        bits = nulls.to_bytes((len(values) + 7) // 8, "little") if nullable else b""
        if has_slots:
            return bits + b"".join(map(one, values))
        bodies = [b"" if value is None else one(value) for value in values]
        return bits + b"".join([_LENGTH.pack(len(body)) for body in bodies] + bodies)

    return write


# -- reading -----------------------------------------------------------------------------------


class RecordReader:
    """Reads records one by one, all columns of them, when it is made."""

    def __init__(self, records: pa.BinaryArray, layout: RowLayout, fingerprint: int) -> None:
        """Raises Damaged unless every record has the form that `layout` says."""
        self._columns: dict[str, list[Any]] = {name: [] for name in ENVELOPE.names}
        self._columns |= {f.name: [] for f in layout.fields}
        self._types = {f.name: f.type for f in ENVELOPE} | {f.name: f.type for f in layout.fields}
        read_row = row_reader(layout)
        for number, record in enumerate(records.to_pylist()):
            try:
                for name, value in _read_record(record, layout, fingerprint, read_row):
                    self._columns[name].append(value)
            except struct.error as exc:
                raise Damaged(number, f"it ends too early: {exc}") from exc
            except UnicodeDecodeError as exc:
                raise Damaged(number, "a string of it is not UTF-8") from exc
            except _Wrong as exc:
                raise Damaged(number, str(exc)) from exc

    def column(self, name: str) -> pa.Array:
        """One column in plain form."""
        t = self._types[name]
        return to_plain(reinterpret(to_plain(pa.array(self._columns[name], stored_type(t))), t))


class _Wrong(Exception):  # noqa: N818 - it becomes Damaged, which knows the record
    """What is wrong with the record at hand."""


class _Cursor:
    """A place in a record; nothing is read behind the record's end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > len(self._data) - self._at:
            raise _Wrong("it ends inside a value")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """The next u32."""
        return int.from_bytes(self.take(_LENGTH.size), "little")

    def end(self) -> None:
        """Raise if anything is left."""
        if self._at != len(self._data):
            raise _Wrong("the lengths that it states are not those of its bytes")


RowReader = Callable[[_Cursor], tuple[list[Any], Callable[[], list[Any]]]]


def _read_record(
    record: bytes, layout: RowLayout, fingerprint: int, read_row: RowReader
) -> Iterator[tuple[str, Any]]:
    cursor = _Cursor(record)
    mark, form, found, *lengths = _ENVELOPE.unpack(cursor.take(ENVELOPE_BYTES))
    if (mark, found) != (MARK, fingerprint) or form not in (WITH_ROW, INDEX):
        raise _Wrong("it is no record of this strategy and schema")
    values, finish = read_row(cursor) if form == WITH_ROW else ([None] * len(layout.fields), None)
    for name, length in zip(STRINGS_BEFORE_ROW, lengths, strict=False):
        yield name, cursor.take(length).decode()
    if finish is not None:
        values = finish()
    yield RECORD_KEY, cursor.take(lengths[-1]).decode()
    cursor.end()
    yield IS_INDEX_RECORD, form == INDEX
    yield from zip((f.name for f in layout.fields), values, strict=True)


def row_reader(layout: RowLayout) -> RowReader:
    """A function that reads a row's fixed part, and gives one that reads its variable part.

    The second gives all values; between the two stand the strings of the envelope, in a record.
    """
    slots = [(f.number, slot_reader(f.type)) for f in layout.fixed]
    bodies = [(f.number, body_reader(f.type)) for f in layout.variable]

    def read(cursor: _Cursor) -> tuple[list[Any], Callable[[], list[Any]]]:
        nulls = int.from_bytes(cursor.take(layout.null_bytes), "little")
        if nulls >> len(layout.fields):
            raise _Wrong("null bits are set behind its last field")
        values: list[Any] = [None] * len(layout.fields)
        for i, slot in slots:
            values[i] = slot(cursor, bool(nulls >> i & 1))
        lengths = [cursor.number() for _ in bodies]

        def finish() -> list[Any]:
            for (i, body), length in zip(bodies, lengths, strict=True):
                values[i] = _read_body(cursor, body, length, bool(nulls >> i & 1))
            return values

        return values, finish

    return read


def _read_body(cursor: _Cursor, body: Callable[[bytes], Any], length: int, is_null: bool) -> Any:
    if is_null and length:
        raise _Wrong("bytes stand under a null")
    data = cursor.take(length)
    return None if is_null else body(data)


def slot_reader(t: pa.DataType) -> Callable[[_Cursor, bool], Any]:
    """A function that reads a slot."""
    dtype = slot_dtype(t)
    assert dtype is not None
    width = dtype.itemsize

    def read(cursor: _Cursor, is_null: bool) -> Any:
        data = cursor.take(width)
        if is_null:
            if any(data):
                raise _Wrong("bytes stand under a null")
            return None
        value = int.from_bytes(data, "little", signed=True)
        if is_decimal(t):
            if abs(value) >= 10**t.precision:
                raise _Wrong(f"a decimal has more than {t.precision} digits")
            return value.to_bytes(16, "little", signed=True)
        if pat.is_boolean(t):
            if value not in (0, 1):
                raise _Wrong("a boolean is neither 0 nor 1")
            return bool(value)
        return value

    return read


def body_reader(t: pa.DataType) -> Callable[[bytes], Any]:
    """A function from the variable part of a value to the value."""
    if pat.is_string(t):
        return lambda data: data.decode()
    if pat.is_binary(t):
        return lambda data: data
    if pat.is_struct(t):
        names = [f.name for f in t]
        read_row = row_reader(struct_layout(t))

        def read_struct(data: bytes) -> dict[str, Any]:
            cursor = _Cursor(data)
            values = read_row(cursor)[1]()
            cursor.end()
            return dict(zip(names, values, strict=True))

        return read_struct
    is_map = pat.is_map(t)
    read_keys = sequence_reader(t.key_type, nullable=False) if is_map else None
    read_items = sequence_reader(t.item_type if is_map else t.value_type)

    def read_list(data: bytes) -> list[Any]:
        cursor = _Cursor(data)
        count = cursor.number()
        keys = read_keys(cursor, count) if read_keys is not None else None
        items = read_items(cursor, count)
        cursor.end()
        return items if keys is None else list(zip(keys, items, strict=True))

    return read_list


def sequence_reader(
    t: pa.DataType, *, nullable: bool = True
) -> Callable[[_Cursor, int], list[Any]]:
    """A function that reads a sequence of this many values."""
    dtype = slot_dtype(t)
    slot = slot_reader(t) if dtype is not None else None
    body = body_reader(t) if dtype is None else None

    def read(cursor: _Cursor, count: int) -> list[Any]:
        nulls = int.from_bytes(cursor.take((count + 7) // 8), "little") if nullable else 0
        if nulls >> count:
            raise _Wrong("null bits are set behind its last item")
        if slot is not None:
            return [slot(cursor, bool(nulls >> i & 1)) for i in range(count)]
        assert body is not None
        lengths = [cursor.number() for _ in range(count)]
        return [
            _read_body(cursor, body, length, bool(nulls >> i & 1))
            for i, length in enumerate(lengths)
        ]

    return read
