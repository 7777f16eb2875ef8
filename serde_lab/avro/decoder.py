"""Decodes Avro datums into Arrow arrays, one column at a time.

Each datum has a cursor. A step reads the same field of all rows and moves all cursors behind it. Rows
in which a field is null are skipped while that field is read. Items of lists are located first
(`source.py`), then all are decoded at once, like rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from serde_lab.avro.source import DamagedError, Source, inside
from serde_lab.avro.tree import Node
from serde_lab.avro.varint import Mask, Positions
from serde_lab.records.buffers import binary_array, first_invalid

CHUNK_ROWS = 8192


def decode(node: Node, source: Source, at: Positions, end: Positions) -> pa.Array:
    """The values of type `node` at the positions `at`, each within its `end`; moves `at` behind them.

    Positions must rise. Raises DamagedError with the index of the first damaged value found.
    """
    if len(at) <= CHUNK_ROWS:
        return _Columns(source).read(node, at, end)
    parts = []
    for start in range(0, len(at), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        with inside(np.arange(start, start + CHUNK_ROWS)):
            parts.append(_Columns(source).read(node, at[chunk], end[chunk]))
    return pa.concat_arrays(parts)


class _Columns:
    """Reads columns of at most a chunk of rows, so that intermediate values stay in the cache."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        """The values at the positions `at`; moves `at` behind them."""
        if node.null_branch is None:
            return self._value(node, at, end)
        valid = self._source.valid(node, at)
        if valid is None:
            return self._value(node, at, end)
        rows = np.flatnonzero(valid)
        inner = at[rows]
        with inside(rows):
            found = self._value(node, inner, end[rows])
        at[rows] = inner
        self._source.check(at, end)
        return _spread(found, valid)

    def _value(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        return _READ[node.kind](self, node, at, end)

    def _boolean(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        byte = self._source.data[at]
        at += 1
        self._source.check(at, end)
        _refuse(byte > 1, node, "is neither true nor false")
        bits = pa.py_buffer(np.packbits(byte, bitorder="little"))
        return pa.Array.from_buffers(node.type, len(at), [None, bits], 0)

    def _integer(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        values = self._source.longs(at, end)
        bits = node.type.bit_width
        if bits < 64:
            narrow = values.astype(f"i{bits // 8}")
            _refuse(narrow != values, node, f"has more than {bits} bits")
            values = narrow
        return _fixed_width(node, values)

    def _floating(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        width = node.type.bit_width // 8
        values = self._source.words[at].astype(f"u{width}", copy=False)
        at += width
        self._source.check(at, end)
        return _fixed_width(node, values)

    def _decimal(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        # big-endian two's complement: the last 8 bytes are the low word, the rest the high one
        words, high_bytes = self._source.words, node.size - 8
        halves = np.empty((len(at), 2), np.int64)
        if high_bytes > 0:
            halves[:, 1] = _signed(words[at], high_bytes)
            halves[:, 0] = words[at + high_bytes].byteswap().view(np.int64)
        else:
            low = _signed(words[at], node.size)
            halves[:, 0] = low
            halves[:, 1] = low >> 63
        at += node.size
        self._source.check(at, end)
        precision = node.type.precision
        _refuse(_too_large(halves, precision), node, f"has more than {precision} digits")
        return _fixed_width(node, halves)

    def _text(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        sizes = self._source.lengths(at, end)
        # every second piece of the buffer is a value; the pieces between them are other fields
        ends = np.empty(2 * len(at) + 1, np.int32)
        ends[:-1:2] = at
        at += sizes
        ends[1::2] = at
        ends[-1] = len(self._source.data)
        pieces = binary_array(ends, self._source.buffer)
        values = pieces.take(pa.array(np.arange(0, 2 * len(at), 2, dtype=np.int32)))
        return values if node.kind == "bytes" else _checked_text(node, values)

    def _list(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        counts, positions = self._source.items(node.children[0], at, end)
        offsets = np.zeros(len(at) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        with inside(np.repeat(np.arange(len(at)), counts)):
            items = decode(node.children[0], self._source, positions, np.repeat(end, counts))
        buffers = [None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(node.type, len(at), buffers, 0, 0, [items])

    def _record(self, node: Node, at: Positions, end: Positions) -> pa.Array:
        children = [self.read(child, at, end) for child in node.children]
        return pa.Array.from_buffers(node.type, len(at), [None], 0, 0, children)


def _fixed_width(node: Node, values: Any) -> pa.Array:
    return pa.Array.from_buffers(node.type, len(values), [None, pa.py_buffer(values)], 0)


def _refuse(wrong: Mask, node: Node, problem: str) -> None:
    if wrong.any():
        raise DamagedError(int(wrong.argmax()), f"field {node.name!r} {problem}")


def _signed(words: Any, size: int) -> Any:
    """The big-endian number in the first `size` bytes of each word."""
    return words.byteswap().view(np.int64) >> (64 - 8 * size)


def _too_large(halves: Any, precision: int) -> Mask:
    """Which 128-bit numbers, given as low and high words, have more digits than `precision`."""
    low, high = halves[:, 0].view(np.uint64), halves[:, 1]
    top = 10**precision
    if precision <= 18:
        signed = halves[:, 0]
        return (high != signed >> 63) | (signed >= top) | (signed <= -top)

    def below(limit: int) -> Mask:
        high_limit, low_limit = limit >> 64, np.uint64(limit & 0xFFFF_FFFF_FFFF_FFFF)
        return (high < high_limit) | ((high == high_limit) & (low < low_limit))

    return ~below(top) | below(1 - top)


def _checked_text(node: Node, values: pa.Array) -> pa.Array:
    """`values` as strings; raises DamagedError where one is not UTF-8."""
    _, offsets, data = values.buffers()
    size = np.frombuffer(offsets, np.int32)[len(values)] if len(values) else 0
    if not size or np.frombuffer(data, np.uint8, size).max() < 0x80:
        # all ASCII, so every value is valid UTF-8
        return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), 0)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as exc:
        row = first_invalid(values, lambda some: some.cast(pa.string()))
        raise DamagedError(row, f"field {node.name!r} is not UTF-8") from exc


def _spread(values: pa.Array, valid: Mask) -> pa.Array:
    """`values` where `valid`, null elsewhere."""
    if not len(values):
        return pa.nulls(len(valid), values.type)
    places = np.cumsum(valid, dtype=np.int32)
    places -= 1
    return values.take(pa.array(places, mask=~valid))


_READ = {
    "boolean": _Columns._boolean,
    "int": _Columns._integer,
    "long": _Columns._integer,
    "float": _Columns._floating,
    "double": _Columns._floating,
    "decimal": _Columns._decimal,
    "string": _Columns._text,
    "bytes": _Columns._text,
    "array": _Columns._list,
    "map": _Columns._list,
    "record": _Columns._record,
}
