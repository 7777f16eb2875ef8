"""Skipping one Avro value at a time: plain loops, for the few lists much longer than all others.

Owns a function per type that returns the position behind a value. Must not know numpy or Arrow.
"""

from __future__ import annotations

from collections.abc import Callable

from serde_lab.avro.tree import Node
from serde_lab.avro.varint import MAX_VARINT_BYTES

Skip = Callable[[bytes, int, int], int]
"""(data, at, end) -> the position behind the value at `at`. Raises ValueError or IndexError where the
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
