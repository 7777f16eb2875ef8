"""Takes columns apart into planes, the buffers of `pickle_columns` frames, and puts them together again.

The planes of a column in plain form (`records/plain_form.py`) are, depth first:

    validity    a bit a value, 1 where it is not null; None if nothing in the frame is null
    bool        a bit a value
    number, decimal, date, timestamp    the values, as Arrow stores them
    string, binary    the lengths, i32; then the bytes
    list        the lengths, i32; then the planes of the items
    map         the lengths, i32; then the planes of the keys and of the values
    struct      the planes of its fields

Bits fill bytes from the lowest one. Lengths take the place of Arrow's offsets, so that the planes of all
frames can be joined without changing them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.buffers import MOST_BYTES, offsets_of
from serde_lab.records.plain_form import null_mask, validity_buffer
from serde_lab.records.schema import is_binary, is_list, is_string
from serde_lab.serde.framing import Damaged

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plane:
    """One buffer of a column, of all records. A frame gets the part between two of its edges.

    `hops` are Arrow's offsets on the way to this plane: through each, edges between records become edges
    between what the records hold. `width` is the bytes of an item; 0 if an item is a bit, and `data` then
    has a byte an item. `nulls` is there for validity: the number of nulls up to each item.
    """

    data: memoryview
    width: int
    hops: tuple[npt.NDArray[np.int32], ...]
    nulls: Positions | None = None

    def edges(self, edges: Positions) -> Positions:
        """The edges between frames, in items of this plane."""
        for hop in self.hops:
            edges = hop[edges].astype(np.int64)
        return edges

    def sizes(self, edges: Positions) -> Positions:
        """The bytes of each frame's part, or a few more."""
        items = np.diff(self.edges(edges))
        return items * self.width if self.width else -(-items // 8)

    def parts(self, edges: Positions) -> list[pickle.PickleBuffer | None]:
        at = self.edges(edges)
        data = self.data
        if self.width:
            return [pickle.PickleBuffer(data[a:b]) for a, b in pairwise((at * self.width).tolist())]
        found: list[pickle.PickleBuffer | None] = []
        nulls = None if self.nulls is None else np.diff(self.nulls[at]).tolist()
        for number, (a, b) in enumerate(pairwise(at.tolist())):
            if nulls is not None and not nulls[number]:
                found.append(None)
                continue
            items = np.frombuffer(data[a:b], np.uint8)
            found.append(pickle.PickleBuffer(np.packbits(items, bitorder="little").tobytes()))
        return found


def planes_of(
    array: pa.Array, hops: tuple[npt.NDArray[np.int32], ...] = ()
) -> Iterator[Plane | None]:
    """The planes of a plain array; None for the validity of an array without nulls."""
    t = array.type
    mask = null_mask(array)
    if mask is None:
        yield None
    else:
        counted = np.append(0, np.cumsum(mask))
        yield Plane(_view(~mask), 0, hops, counted)
    if pat.is_struct(t):
        for i in range(t.num_fields):
            yield from planes_of(array.field(i), hops)
    elif pat.is_boolean(t):
        filled = array if mask is None else array.fill_null(False)
        yield Plane(_view(filled.to_numpy(zero_copy_only=False)), 0, hops)
    elif is_string(t) or is_binary(t) or is_list(t) or pat.is_map(t):
        offsets = offsets_of(array)
        yield Plane(_view(np.diff(offsets)), 4, hops)
        inside = (*hops, offsets)
        if is_list(t):
            yield from planes_of(array.values, inside)
        elif pat.is_map(t):
            yield from planes_of(array.keys, inside)
            yield from planes_of(array.items, inside)
        else:
            yield Plane(_view(array.buffers()[2] or b""), 1, inside)
    else:
        yield Plane(_view(array.buffers()[1] or b""), t.bit_width // 8, hops)


def _view(data: Any) -> memoryview:
    view = memoryview(data)
    # a view of nothing cannot be cast
    return (view.cast("B") if view.nbytes else memoryview(b"")).toreadonly()


class PlanesOfFrames:
    """The planes of one column in several frames, read one after the other."""

    def __init__(self, columns: Sequence[Any], frames: Positions) -> None:
        self._frames = frames
        if set(map(type, columns)) - {tuple}:
            raise Damaged("a column is neither constant nor planes")
        if len(set(map(len, columns))) > 1:
            raise Damaged("columns of one type have unlike numbers of planes")
        self._planes = list(zip(*columns, strict=True))
        self._columns = len(columns)
        self._at = 0

    def array(self, t: pa.DataType, rows: Positions) -> pa.Array:
        """The array of type `t` with `rows[i]` values in frame i."""
        found = self._array(t, rows)
        if self._at < len(self._planes):
            raise Damaged("a column has more planes than its type")
        return found

    def _array(self, t: pa.DataType, rows: Positions) -> pa.Array:
        total = int(rows.sum())
        mask = None
        validity = self._next()
        if any(part is not None for part in validity):
            mask = ~self._bits(validity, rows)
        buffers: list[Any] = [validity_buffer(mask)]
        children: list[pa.Array] = []
        if pat.is_struct(t):
            children = [self._array(f.type, rows) for f in t]
        elif pat.is_boolean(t):
            buffers.append(
                pa.py_buffer(np.packbits(self._bits(self._next(), rows), bitorder="little"))
            )
        elif is_string(t) or is_binary(t) or is_list(t) or pat.is_map(t):
            offsets, inside = self._offsets(rows)
            buffers.append(pa.py_buffer(offsets))
            if is_list(t):
                children = [self._array(t.value_type, inside)]
            elif pat.is_map(t):
                pairs = [self._array(t.key_type, inside), self._array(t.item_type, inside)]
                children = [pa.StructArray.from_arrays(pairs, fields=[t.key_field, t.item_field])]
            else:
                buffers.append(self._bytes(inside))
        else:
            buffers.append(self._bytes(rows * (t.bit_width // 8)))
        return pa.Array.from_buffers(t, total, buffers, -1, 0, children or None)

    def _next(self) -> Sequence[Any]:
        """The parts of the next plane."""
        if not self._columns:
            return ()
        if self._at == len(self._planes):
            raise Damaged("a column has fewer planes than its type")
        self._at += 1
        return self._planes[self._at - 1]

    def _bytes(self, sizes: Positions) -> pa.Buffer:
        """The next plane, whose parts must have these sizes."""
        parts = self._next()
        if set(map(type, parts)) - {memoryview}:
            raise Damaged("a plane is not a buffer")
        found = np.fromiter(map(len, parts), np.int64, len(parts))
        refuse(found != sizes, self._frames, "a buffer is longer or shorter than its values")
        return pa.py_buffer(b"".join(parts))

    def _offsets(self, rows: Positions) -> tuple[npt.NDArray[np.int32], Positions]:
        """Arrow's offsets from the next plane, and how much lies between them in each frame."""
        lengths = np.frombuffer(self._bytes(4 * rows), np.int32)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
        if len(lengths) and lengths.min() < 0:
            raise Damaged("a length is below 0")
        if offsets[-1] > MOST_BYTES:
            raise Damaged(
                f"a column has {offsets[-1]} bytes or items, expected at most {MOST_BYTES}"
            )
        return offsets.astype(np.int32), np.diff(offsets[np.append(0, np.cumsum(rows))])

    def _bits(self, parts: Sequence[Any], rows: Positions) -> npt.NDArray[np.bool_]:
        """The bits of these parts, all 1 where a part is None."""
        bits = np.ones(int(rows.sum()), np.uint8)
        at = 0
        for number, (part, count) in enumerate(zip(parts, rows.tolist(), strict=True)):
            if part is not None:
                if type(part) is not memoryview or len(part) != -(-count // 8):
                    problem = "a buffer of bits is longer or shorter than its values"
                    raise Damaged(problem, int(self._frames[number]))
                packed = np.frombuffer(part, np.uint8)
                bits[at : at + count] = np.unpackbits(packed, count=count, bitorder="little")
            at += count
        return bits.view(np.bool_)


def refuse(wrong: npt.NDArray[np.bool_], frames: Positions, problem: str) -> None:
    if wrong.any():
        raise Damaged(problem, int(frames[wrong.argmax()]))
