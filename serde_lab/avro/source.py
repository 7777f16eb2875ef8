"""Reads numbers and lengths from the bytes of Avro datums, and skips values in them, with bounds checks.

Every count and length is checked against the end of its datum before it is used. So damaged bytes raise
`DamagedError`; they never cause a read outside the buffer, a long loop or a large array. `decoder.py`
builds the Arrow arrays.

Positions are offsets into the buffer, int64, one per value. Functions that take `at` and `end` read the
value at each position of `at` and move `at` behind it, in place. An Avro list has no index of its items,
so the start of an item is known only after the items before it are skipped. This happens in rounds: the
first item of every list at once, then the second, and so on. The few lists that are longer than all
others are finished one by one in plain loops, with one function per type (`skipper`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from serde_lab.avro.tree import Node
from serde_lab.avro.varint import MAX_VARINT_BYTES, Bytes, Mask, Positions, unzigzag, varints_at

Skip = Callable[[bytes, int, int], int]
"""(data, at, end) -> the position behind the value at `at`. Raises ValueError or IndexError if the
value does not end by `end`."""


def skipper(node: Node) -> Skip:
    """The function that skips values of type `node`."""
    inner = _skipper(node)
    if node.null_branch is None:
        return inner
    value, null = 2 * node.value_branch, 2 * node.null_branch

    def union(data: bytes, at: int, end: int) -> int:
        branch = data[at]
        if branch == value:
            return inner(data, at + 1, end)
        if branch != null or at >= end:
            raise ValueError
        return at + 1

    return union


def _skipper(node: Node) -> Skip:
    if node.kind in ("int", "long"):
        return _skip_number
    if node.kind in ("string", "bytes"):
        return _skip_text
    if node.kind == "record":
        return _record(tuple(skipper(child) for child in node.children))
    if node.kind in ("array", "map"):
        return _blocks(skipper(node.children[0]), node.children[0].least_bytes())
    return _fixed({"boolean": 1, "float": 4, "double": 8}.get(node.kind, node.size))


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    # not by varint_at: that would be one more call for each value
    folded = shift = 0
    while True:
        byte = data[at]
        at += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if at > end or folded >= 1 << 64:
        raise ValueError
    return folded >> 1 ^ -(folded & 1), at


def _skip_number(data: bytes, at: int, end: int) -> int:
    start = at
    while data[at] > 0x7F:
        at += 1
    at += 1
    if at > end or at - start > MAX_VARINT_BYTES:
        raise ValueError
    return at


def _skip_text(data: bytes, at: int, end: int) -> int:
    size, at = _number(data, at, end)
    if not 0 <= size <= end - at:
        raise ValueError
    return at + size


def _fixed(size: int) -> Skip:
    def skip(data: bytes, at: int, end: int) -> int:
        if at + size > end:
            raise ValueError
        return at + size

    return skip


def _record(fields: tuple[Skip, ...]) -> Skip:
    def skip(data: bytes, at: int, end: int) -> int:
        for field in fields:
            at = field(data, at, end)
        return at

    return skip


def _blocks(item: Skip, least_bytes: int) -> Skip:
    def skip(data: bytes, at: int, end: int) -> int:
        while True:
            count, at = _number(data, at, end)
            if count == 0:
                return at
            if count < 0:
                count = -count
                size, at = _number(data, at, end)
                if not 0 <= size <= end - at:
                    raise ValueError
            if count > (end - at) // least_bytes:
                raise ValueError
            for _ in range(count):
                at = item(data, at, end)

    return skip


_FEW = 24
"""With fewer lists than this left, finishing them one by one is cheaper."""

_PADDING_BYTES = 64


class DamagedError(Exception):
    """Bytes that are not a datum: the index of the damaged value, and what is wrong with it."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index, self.problem = index, problem


class Source:
    """A buffer of datums, padded so that a few bytes behind any position may be read."""

    def __init__(self, buffer: pa.Buffer | bytes) -> None:
        raw = np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)
        self.data: Bytes = np.zeros(len(raw) + _PADDING_BYTES, np.uint8)
        self.data[: len(raw)] = raw
        # words[p] is the word of bytes p to p + 7; numpy can read unaligned words
        self.words = np.ndarray((len(self.data) - 8,), "<u8", self.data, 0, (1,))
        self.buffer = pa.py_buffer(self.data)
        self._skips: dict[int, tuple[Node, Skip]] = {}
        self._bytes: bytes | None = None

    def check(self, at: Positions, end: Positions) -> None:
        """Raise DamagedError if a value runs over the end of its datum."""
        over = at > end
        if over.any():
            raise DamagedError(int(over.argmax()), "it ends in the middle of a value")

    def valid(self, node: Node, at: Positions) -> Mask | None:
        """Read the branch of a union with null. Returns which values are not null; None: all."""
        branch = self.data[at]
        at += 1
        is_value = branch == 2 * node.value_branch
        if is_value.all():
            return None
        wrong = ~is_value & (branch != 2 * (node.null_branch or 0))
        if wrong.any():
            bad = int(wrong.argmax())
            raise DamagedError(bad, f"field {node.name!r} has no union branch {branch[bad]:#04x}")
        return is_value

    def longs(self, at: Positions, end: Positions) -> Positions:
        """Read zig-zag varints of at most 64 bits."""
        folded, sizes, too_long = varints_at(self.data, self.words, at)
        if too_long is not None:
            raise DamagedError(int(too_long.argmax()), "a number has more than 64 bits")
        at += sizes
        self.check(at, end)
        return unzigzag(folded)

    def lengths(self, at: Positions, end: Positions) -> Positions:
        """Read the lengths of strings and move `at` to their first bytes. All end within bounds."""
        sizes = self.longs(at, end)
        wrong = (sizes < 0) | (sizes > end - at)
        if wrong.any():
            bad = int(wrong.argmax())
            raise DamagedError(
                bad, f"it has text of {sizes[bad]} bytes where {end[bad] - at[bad]} are left"
            )
        return sizes

    def items(self, item: Node, at: Positions, end: Positions) -> tuple[Positions, Positions]:
        """Read the blocks of arrays or maps. Returns each one's number of items, and every item's start."""
        found: list[Positions] = []
        counts = self._blocks(item, at, end, found.append)
        positions = np.concatenate(found) if found else np.empty(0, np.int64)
        # positions were found round by round; sorting groups them by list
        positions.sort()
        return counts, positions

    def skip(self, node: Node, at: Positions, end: Positions) -> None:
        """Move behind one value of type `node` at each position."""
        if node.null_branch is not None:
            valid = self.valid(node, at)
            if valid is not None:
                rows = np.flatnonzero(valid)
                inner = at[rows]
                with inside(rows):
                    self._skip_value(node, inner, end[rows])
                at[rows] = inner
                self.check(at, end)
                return
        self._skip_value(node, at, end)

    def _skip_value(self, node: Node, at: Positions, end: Positions) -> None:
        if not len(at):
            return
        if node.kind in ("string", "bytes"):
            at += self.lengths(at, end)
        elif node.kind in ("int", "long"):
            self.longs(at, end)
        elif node.kind == "record":
            for child in node.children:
                self.skip(child, at, end)
        elif node.kind in ("array", "map"):
            self._blocks(node.children[0], at, end, None)
        else:
            at += {"boolean": 1, "float": 4, "double": 8}.get(node.kind, node.size)
            self.check(at, end)

    def _blocks(
        self, item: Node, at: Positions, end: Positions, found: Callable[[Positions], None] | None
    ) -> Positions:
        """Read all blocks and pass the starts of items to `found`. Returns each list's number of items."""
        counts = np.zeros(len(at), np.int64)
        rows = np.arange(len(at))
        least = item.least_bytes()
        while len(rows):
            inner, limit = at[rows], end[rows]
            with inside(rows):
                block = self.longs(inner, limit)
                sized = block < 0
                if sized.any():
                    # after a negative count comes the block's size in bytes, for readers that skip it
                    np.negative(block, out=block, where=sized)
                    tail = inner[sized]
                    with inside(np.flatnonzero(sized)):
                        self.lengths(tail, limit[sized])
                    inner[sized] = tail
                wrong = (block < 0) | (block > (limit - inner) // least)
                if wrong.any():
                    bad = int(wrong.argmax())
                    left = limit[bad] - inner[bad]
                    raise DamagedError(
                        bad, f"it has {block[bad]} items where {left} bytes are left"
                    )
                self._walk(item, inner, limit, block, found)
            at[rows] = inner
            counts[rows] += block
            rows = rows[block != 0]
        return counts

    def _walk(
        self,
        item: Node,
        at: Positions,
        end: Positions,
        counts: Positions,
        found: Callable[[Positions], None] | None,
    ) -> None:
        """Move behind `counts` items at each position."""
        done = 0
        rows = np.flatnonzero(counts)
        while len(rows) >= _FEW:
            inner = at[rows]
            if found is not None:
                found(inner.copy())
            with inside(rows):
                self.skip(item, inner, end[rows])
            at[rows] = inner
            done += 1
            rows = rows[counts[rows] > done]
        for row in rows.tolist():
            items = int(counts[row]) - done
            try:
                at[row] = self._walk_one(item, int(at[row]), int(end[row]), items, found)
            except (IndexError, ValueError) as exc:
                raise DamagedError(row, "it ends in the middle of a value") from exc

    def _walk_one(
        self,
        item: Node,
        at: int,
        end: int,
        items: int,
        found: Callable[[Positions], None] | None,
    ) -> int:
        if self._bytes is None:
            self._bytes = self.data.tobytes()
        if id(item) not in self._skips:
            # keep the node: Python could reuse the id of a freed one
            self._skips[id(item)] = (item, skipper(item))
        data, skip = self._bytes, self._skips[id(item)][1]
        positions = np.empty(items if found is not None else 0, np.int64)
        for index in range(items):
            if found is not None:
                positions[index] = at
            at = skip(data, at, end)
        if found is not None:
            found(positions)
        return at


class inside:  # noqa: N801 -- reads as a word of the `with` statement
    """Turns the index of a DamagedError in a selection of rows into the index before the selection."""

    def __init__(self, rows: Positions) -> None:
        self._rows = rows

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, DamagedError):
            raise DamagedError(int(self._rows[error.index]), error.problem) from None


assert _PADDING_BYTES > 2 * MAX_VARINT_BYTES
