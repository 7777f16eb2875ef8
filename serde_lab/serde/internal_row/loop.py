"""Row execution of `internal_row`: reads and writes one record at a time, with `struct`.

It is the readable reference for `internal_row/write.py` and `internal_row/read.py`, which work on whole
columns; a property test checks that both give the same bytes and values. Values are stored as in Arrow:
integers for dates and times, unscaled integers for decimals, and the bits of floats. Each type has a function
that writes a value and one that reads it, made once for a schema; those of nested types call those of their
children. `internal_row/layout.py` describes the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DataError
from serde_lab.records.buffers import binaries
from serde_lab.records.plain_form import reinterpret, to_plain
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RECORD_KEY, is_decimal, is_list
from serde_lab.serde.framing import Damaged
from serde_lab.serde.internal_row.layout import (
    INDEX,
    MARK,
    MOST_BYTES,
    STRINGS_BEFORE_ROW,
    WITH_ROW,
    RowLayout,
    slot_dtype,
    struct_layout,
)

_LENGTH = struct.Struct("<I")
_INTEGER_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


def stored_type(t: pa.DataType) -> pa.DataType:
    """The type of the same memory layout whose Python values are what a record stores."""
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


def slot_code(t: pa.DataType) -> str:
    """The format code of `struct` for a slot."""
    dtype = slot_dtype(t)
    assert dtype is not None
    if pat.is_boolean(t):
        return "B"
    # `struct` truncates a decimal's 16 bytes to the low ones; the others only repeat the sign
    return f"{dtype.itemsize}s" if is_decimal(t) else _INTEGER_CODES[dtype.itemsize]


def slot_check(t: pa.DataType) -> Callable[[Any], Any] | None:
    """A function from what `struct` reads in a slot to the checked value; None if no step is needed."""
    if pat.is_boolean(t):
        return _to_bool
    if is_decimal(t):
        limit = 10**t.precision

        def to_decimal(low: bytes) -> bytes:
            unscaled = int.from_bytes(low, "little", signed=True)
            if not -limit < unscaled < limit:
                raise Damaged(f"a decimal has more than {t.precision} digits")
            return unscaled.to_bytes(16, "little", signed=True)

        return to_decimal
    return None


def _to_bool(value: int) -> bool:
    if value > 1:
        raise Damaged("a boolean is neither 0 nor 1")
    return bool(value)


class RowCode:
    """Writes and reads rows of one layout; `prefix` has the `struct` codes of what precedes the null bits."""

    def __init__(self, layout: RowLayout, prefix: str = "") -> None:
        self._names = [f.name for f in layout.fields]
        self._null_bytes = layout.null_bytes
        codes = [slot_code(f.type) for f in layout.fixed]
        lengths = "I" * len(layout.variable)
        self.fixed = struct.Struct(f"<{prefix}{layout.null_bytes}s{''.join(codes)}{lengths}")
        self._slots = [f.number for f in layout.fixed]
        self._zeros = [b"" if code.endswith("s") else 0 for code in codes]
        self._checks = [
            (f.number, check) for f in layout.fixed if (check := slot_check(f.type)) is not None
        ]
        self._writers = [(f.number, body_writer(f.type)) for f in layout.variable]
        self._readers = [(f.number, body_reader(f.type)) for f in layout.variable]

    def parts(self, values: Sequence[Any]) -> tuple[list[Any], list[bytes]]:
        """The arguments for `fixed.pack` of a row, without prefix, and the row's variable parts."""
        nulls = sum(1 << i for i, value in enumerate(values) if value is None)
        slots = [values[i] for i in self._slots]
        if nulls:
            slots = [z if v is None else v for v, z in zip(slots, self._zeros, strict=True)]
        bodies = [b"" if values[i] is None else write(values[i]) for i, write in self._writers]
        nulls_first = [nulls.to_bytes(self._null_bytes, "little"), *slots]
        return nulls_first + [len(body) for body in bodies], bodies

    def pack(self, values: Sequence[Any]) -> bytes:
        """The bytes of a row, without prefix."""
        numbers, bodies = self.parts(values)
        return self.fixed.pack(*numbers) + b"".join(bodies)

    def values(self, numbers: Sequence[Any], data: bytes, at: int) -> tuple[list[Any], int]:
        """The values of a row, and where its variable part ends, which may be past the end of `data`.

        `numbers` is what `fixed` unpacks, without prefix; the variable part begins at `at`.
        """
        nulls = int.from_bytes(numbers[0], "little")
        if nulls >> len(self._names):
            raise Damaged("null bits are set after its last field")
        values: list[Any] = [None] * len(self._names)
        for i, value in zip(self._slots, numbers[1:], strict=False):
            values[i] = value
        for i, check in self._checks:
            values[i] = check(values[i])
        lengths = numbers[1 + len(self._slots) :]
        for (i, read), length in zip(self._readers, lengths, strict=True):
            # a slice of `data` may be too short; the caller checks where the variable part ends
            is_null = nulls >> i & 1
            values[i] = (length or None) if is_null else read(data[at : at + length])
            at += length
        if nulls:
            for i in range(len(values)):
                if nulls >> i & 1:
                    if values[i] and (not isinstance(values[i], bytes) or any(values[i])):
                        raise Damaged("a null has bytes that are not zero")
                    values[i] = None
        return values, at

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The values of a row without prefix, by name. Raises Damaged unless it fills `data`."""
        values, end = self.values(self.fixed.unpack_from(data), data, self.fixed.size)
        if end != len(data):
            raise Damaged("the lengths that it states are not those of its bytes")
        return dict(zip(self._names, values, strict=True))


def body_writer(t: pa.DataType) -> Callable[[Any], bytes]:
    """A function that writes the variable part of a value."""
    if pat.is_string(t):
        return str.encode
    if pat.is_binary(t):
        return bytes
    if pat.is_struct(t):
        code = RowCode(struct_layout(t))
        return lambda value: code.pack(list(value.values()))
    if pat.is_map(t):
        keys = sequence_writer(t.key_type, nullable=False)
        items = sequence_writer(t.item_type)
        return lambda value: (
            _LENGTH.pack(len(value)) + keys([k for k, _ in value]) + items([v for _, v in value])
        )
    write_items = sequence_writer(t.value_type)
    return lambda value: _LENGTH.pack(len(value)) + write_items(value)


def sequence_writer(t: pa.DataType, *, nullable: bool = True) -> Callable[[list[Any]], bytes]:
    """A function that writes values as a sequence."""
    code = slot_code(t) if slot_dtype(t) is not None else None
    write_body = body_writer(t) if code is None else None

    def write(values: list[Any]) -> bytes:
        nulls = sum(1 << i for i, value in enumerate(values) if value is None)
        bits = nulls.to_bytes((len(values) + 7) // 8, "little") if nullable else b""
        if write_body is not None:
            bodies = [b"" if value is None else write_body(value) for value in values]
            return b"".join([bits, *(_LENGTH.pack(len(body)) for body in bodies), *bodies])
        zero = b"" if code is not None and code.endswith("s") else 0
        slots = [zero if value is None else value for value in values]
        return bits + b"".join(struct.pack(f"<{code}", slot) for slot in slots)

    return write


def body_reader(t: pa.DataType) -> Callable[[bytes], Any]:
    """A function that reads a value from its variable part."""
    if pat.is_string(t):
        return bytes.decode
    if pat.is_binary(t):
        return bytes
    if pat.is_struct(t):
        return RowCode(struct_layout(t)).unpack
    is_map = pat.is_map(t)
    read_keys = sequence_reader(t.key_type, nullable=False) if is_map else None
    read_items = sequence_reader(t.item_type if is_map else t.value_type)

    def read_list(data: bytes) -> list[Any]:
        (count,), at = _LENGTH.unpack_from(data), _LENGTH.size
        keys: list[Any] = []
        if read_keys is not None:
            keys, at = read_keys(data, at, count)
        items, at = read_items(data, at, count)
        if at != len(data):
            raise Damaged("its items do not fill its bytes")
        return list(zip(keys, items, strict=True)) if is_map else items

    return read_list


def sequence_reader(
    t: pa.DataType, *, nullable: bool = True
) -> Callable[[bytes, int, int], tuple[list[Any], int]]:
    """A function of bytes, start and count that reads a sequence and returns its values and its end."""
    slot = slot_dtype(t)
    code = slot_code(t) if slot is not None else "I"
    width = slot.itemsize if slot is not None else _LENGTH.size
    check = slot_check(t) if slot is not None else None
    read_body = body_reader(t) if slot is None else None

    def read(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
        null_bytes = (count + 7) // 8 if nullable else 0
        if at + null_bytes + count * width > len(data):
            raise Damaged("it ends inside its items")
        nulls = int.from_bytes(data[at : at + null_bytes], "little")
        if nulls >> count:
            raise Damaged("null bits are set after its last item")
        at += null_bytes
        found: list[Any] = [
            n for (n,) in struct.iter_unpack(f"<{code}", data[at : at + count * width])
        ]
        at += count * width
        stray = [n for i, n in enumerate(found) if nulls >> i & 1 and n and n != bytes(width)]
        if stray:
            raise Damaged("a null has bytes that are not zero")
        if read_body is None:
            values = found if check is None else [check(n) for n in found]
        else:
            values = []
            for i, length in enumerate(found):
                values.append(None if nulls >> i & 1 else read_body(data[at : at + length]))
                at += length
        return [None if nulls >> i & 1 else v for i, v in enumerate(values)], at

    return read


_ENVELOPE_CODES = "BBIBBHHI"


def stored_values(column: pa.Array) -> list[Any]:
    """The values of a plain column in the form in which records store them."""
    values: list[Any] = reinterpret(column, stored_type(column.type)).to_pylist()
    return values


def write_values(
    columns: Sequence[Sequence[Any]], layout: RowLayout, fingerprint: int
) -> pa.BinaryArray:
    """The records of these columns of stored values, envelope first.

    Raises DataError if an index record has data, or if a string of the envelope is too long.
    """
    key, partition, file_id, instant, operation, is_index = columns[: len(ENVELOPE)]
    before_row = zip(operation, instant, file_id, partition, strict=True)
    data_names = [field.name for field in layout.fields]
    rows: Iterator[tuple[Any, ...]] = zip(*columns[len(ENVELOPE) :], strict=True)
    with_row = RowCode(layout, _ENVELOPE_CODES)
    index = struct.Struct(f"<{_ENVELOPE_CODES}")
    records = []
    for strings, record_key, no_row, row in zip(before_row, key, is_index, rows, strict=True):
        texts = [text.encode() for text in (*strings, record_key)]
        lengths = _checked_lengths(texts)
        if no_row:
            check_no_row(data_names, row)
            head = index.pack(MARK, INDEX, fingerprint, *lengths)
            records.append(head + b"".join(texts))
        else:
            numbers, bodies = with_row.parts(row)
            head = with_row.fixed.pack(MARK, WITH_ROW, fingerprint, *lengths, *numbers)
            records.append(b"".join([head, *texts[:-1], *bodies, texts[-1]]))
    return binaries(records)


def _checked_lengths(texts: list[bytes]) -> list[int]:
    lengths = [len(text) for text in texts]
    for name, length in zip((*STRINGS_BEFORE_ROW, RECORD_KEY), lengths, strict=True):
        if length > MOST_BYTES[name]:
            raise DataError(
                f"{name} has {length} bytes in one record, expected at most {MOST_BYTES[name]}"
            )
    return lengths


def check_no_row(names: Sequence[str], row: tuple[Any, ...]) -> None:
    for name, value in zip(names, row, strict=True):
        if value is not None:
            raise DataError(f"column {name!r} of an index record has a value, expected null")


class LoopReader:
    """Reads all columns of the records, one record at a time, in its constructor."""

    names: ClassVar[Sequence[str]] = (*STRINGS_BEFORE_ROW, RECORD_KEY, IS_INDEX_RECORD)
    """The envelope's columns, in the order in which they are read."""

    def __init__(self, records: pa.BinaryArray, layout: RowLayout, fingerprint: int) -> None:
        """Raises Damaged unless every record has the form that `layout` prescribes."""
        self.layout = layout
        names = [*self.names, *(f.name for f in layout.fields)]
        self._types = {f.name: f.type for f in (*ENVELOPE, *layout.fields)}
        read_record = self._record_reader(layout, fingerprint)
        read: list[Sequence[Any]] = []
        for number, record in enumerate(records.to_pylist()):
            try:
                read.append(read_record(record))
            except struct.error as exc:
                raise Damaged(f"it ends too early: {exc}", number) from exc
            except UnicodeDecodeError as exc:
                raise Damaged("a string of it is not UTF-8", number) from exc
            except Damaged as exc:
                raise Damaged(exc.problem, number) from exc
        columns = zip(*read, strict=True) if read else [()] * len(names)
        self._columns = dict(zip(names, columns, strict=True))

    def _record_reader(
        self, layout: RowLayout, fingerprint: int
    ) -> Callable[[bytes], Sequence[Any]]:
        """A function from a record's bytes to the values of `names` and of its row."""
        code = RowCode(layout, _ENVELOPE_CODES)
        return lambda record: _read_record(record, code, len(layout.fields), fingerprint)

    def __len__(self) -> int:
        return len(self._columns[RECORD_KEY])

    def values(self, name: str) -> Sequence[Any]:
        """One column as stored values."""
        return self._columns[name]

    def column(self, name: str) -> pa.Array:
        """One column in plain form."""
        t = self._types[name]
        return to_plain(reinterpret(to_plain(pa.array(self._columns[name], stored_type(t))), t))


def _read_record(record: bytes, code: RowCode, fields: int, fingerprint: int) -> list[Any]:
    """Operation, instant time, file id, partition path, record key, is-index flag, then the row's values."""
    form = record[1]
    fixed = code.fixed if form == WITH_ROW else struct.Struct(f"<{_ENVELOPE_CODES}")
    mark, form, found, *lengths_and_row = fixed.unpack_from(record)
    if (mark, found) != (MARK, fingerprint) or form not in (WITH_ROW, INDEX):
        raise Damaged("it is not a record of this strategy and schema")
    at = fixed.size
    texts = []
    for length in lengths_and_row[:4]:
        texts.append(record[at : at + length].decode())
        at += length
    row: list[Any] = [None] * fields
    if form == WITH_ROW:
        row, at = code.values(lengths_and_row[5:], record, at)
    key = record[at : at + lengths_and_row[4]].decode()
    if at + lengths_and_row[4] != len(record):
        raise Damaged("the lengths that it states are not those of its bytes")
    return [*texts, key, form == INDEX, *row]
