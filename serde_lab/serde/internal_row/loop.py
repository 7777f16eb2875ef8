"""Row execution of `internal_row`: reads and writes one record at a time, with `struct`.

It is the readable reference for `internal_row/write.py` and `internal_row/read.py`, which work on whole
columns; a property test checks that both give the same bytes and values. Values are stored as in Arrow:
integers for dates and times, unscaled integers for decimals, and the bits of floats.
`internal_row/layout.py` describes the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from serde_lab.errors import DataError
from serde_lab.records.plain_form import reinterpret, to_plain
from serde_lab.records.schema import (
    ENVELOPE,
    IS_INDEX_RECORD,
    RECORD_KEY,
)
from serde_lab.serde.internal_row.layout import (
    INDEX,
    MARK,
    MOST_BYTES,
    STRINGS_BEFORE_ROW,
    WITH_ROW,
    RowLayout,
)
from serde_lab.serde.internal_row.loop_values import RowCode, Wrong, stored_type
from serde_lab.serde.internal_row.rows import Damaged

_ENVELOPE_CODES = "BBIBBHHI"


def write_records(batch: pa.RecordBatch, layout: RowLayout, fingerprint: int) -> pa.BinaryArray:
    """The records of `batch`, which is in plain form: one binary value each.

    Raises DataError if an index record has data, or if a string of the envelope is too long.
    """
    columns = [stored_values(column) for column in batch.columns]
    return write_values(columns, layout, fingerprint)


def stored_values(column: pa.Array) -> list[Any]:
    """The values of a plain column in the form in which records store them."""
    values: list[Any] = reinterpret(column, stored_type(column.type)).to_pylist()
    return values


def write_values(
    columns: Sequence[Sequence[Any]], layout: RowLayout, fingerprint: int
) -> pa.BinaryArray:
    """The records of these columns of stored values, envelope first. Raises DataError as `write_records`."""
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
    return pa.array(records, pa.binary())


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


class RecordReader:
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
                raise Damaged(number, f"it ends too early: {exc}") from exc
            except UnicodeDecodeError as exc:
                raise Damaged(number, "a string of it is not UTF-8") from exc
            except Wrong as exc:
                raise Damaged(number, str(exc)) from exc
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
        raise Wrong("it is no record of this strategy and schema")
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
        raise Wrong("the lengths that it states are not those of its bytes")
    return [*texts, key, form == INDEX, *row]
