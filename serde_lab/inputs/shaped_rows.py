"""Makes rows of a wanted shape: so many columns, strings of so many bytes, nulls, nesting, keys, partitions.

Rows are made in blocks whose size is bounded in bytes. Each value is a function of the seed, its column
and its row, so equal shapes give equal rows on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import PartFolder, write_parts
from serde_lab.inputs.random_choices import draw, stream

GENERATOR = "shapes 1"
"""The number grows when equal shapes begin to give different rows, so that kept rows are made again."""

Keys = Literal["long", "uuid", "five"]
Nesting = Literal["none", "structs", "lists", "maps"]

KEY_COLUMNS: dict[Keys, tuple[str, ...]] = {
    "long": ("id",),
    "uuid": ("id",),
    "five": ("tenant", "region", "opened", "account", "line"),
}
PARTITION = "part"
HOT_BUCKETS = 16
"""Keys of a hot bucket are in bucket 0 of every table whose number of buckets divides this."""

_BLOCK_BYTES = 32 << 20
_MOST_BLOCK_ROWS = 1 << 16
_ROWS_PER_PART = 1_000_000
_NUMBER_BYTES, _DECIMAL_BYTES, _NESTED_BYTES, _KEY_BYTES = 7, 16, 40, 20

Ints = npt.NDArray[np.int64]
Draws = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows look like.

    `columns` counts those of key and partition; the others are the payload. `strings`, `decimals` and
    `nested` are shares of the payload's columns, rounded to whole columns; `nulls` is that of its values.
    Strings have `string_bytes` bytes on average, from half to one and a half times as many. Decimals have 38
    digits.
    `hot_bucket`: every other key is in bucket 0 (`HOT_BUCKETS`); keys are longs then.
    """

    rows: int
    columns: int = 20
    strings: float = 0.2
    string_bytes: int = 80
    nulls: float = 0.2
    decimals: float = 0.0
    nesting: Nesting = "none"
    nested: float = 0.2
    keys: Keys = "long"
    partitions: int = 1
    hot_bucket: bool = False
    seed: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the record key."""
        return KEY_COLUMNS[self.keys]

    @property
    def payload(self) -> int:
        """The number of columns that are neither key nor partition; below 1 if there is no place for any."""
        return self.columns - len(self.key) - (self.partitions > 1)

    @property
    def kinds(self) -> dict[str, int]:
        """How many columns of the payload are strings, decimals, nested and numbers."""
        counts = {
            "strings": round(self.strings * self.payload),
            "decimals": round(self.decimals * self.payload),
            "nested": 0 if self.nesting == "none" else round(self.nested * self.payload),
        }
        return {**counts, "numbers": self.payload - sum(counts.values())}

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row has as Arrow holds it, without nulls."""
        kinds = self.kinds
        return (
            _KEY_BYTES * (len(self.key) + 1)
            + kinds["strings"] * (self.string_bytes + 4)
            + kinds["decimals"] * _DECIMAL_BYTES
            + kinds["nested"] * _NESTED_BYTES
            + kinds["numbers"] * _NUMBER_BYTES
        )

    @property
    def folder_name(self) -> str:
        """A name for a folder that holds these rows and no others."""
        request = json.dumps({"generator": GENERATOR, **asdict(self)}, sort_keys=True)
        return f"{self.rows}-{hashlib.sha256(request.encode()).hexdigest()[:12]}"

    @property
    def block_rows(self) -> int:
        """How many rows are made at a time."""
        return max(256, min(_MOST_BLOCK_ROWS, _BLOCK_BYTES // self.row_bytes))


def write_rows(shape: Shape, folder: Path) -> tuple[ParquetRows, bool]:
    """The rows of `shape` in a folder below `folder`, and whether they were there already.

    Raises UsageError if that folder holds something else.
    """
    target = PartFolder(folder / shape.folder_name)
    there = target.manifest()
    if there is not None:
        return ParquetRows(there.files(target.folder)), True
    target.begin()
    parts = max(1, -(-shape.rows // _ROWS_PER_PART))
    tables = (pa.Table.from_batches([batch]) for batch in shaped_rows(shape))
    written = list(write_parts(target.folder, tables, schema_of(shape), shape.rows, parts))
    made = target.finish({"generator": GENERATOR, **asdict(shape)}, written, {})
    return ParquetRows(made.files(target.folder)), False


def schema_of(shape: Shape) -> pa.Schema:
    """The columns of the rows: key, partition, payload."""
    return next(shaped_rows(shape, 0)).schema


def shaped_rows(shape: Shape, rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """The first `rows` rows of `shape`, by default all, block by block; at least one block, perhaps empty."""
    rows = shape.rows if rows is None else rows
    for first in range(0, max(1, rows), shape.block_rows):
        number = np.arange(first, min(rows, first + shape.block_rows), dtype=np.uint64)
        yield _Block(shape, number).batch()


def innermost_values(array: pa.Array) -> int:
    """How many values without nesting an array holds, nulls with them."""
    if pa.types.is_struct(array.type):
        return sum(innermost_values(member) for member in array.flatten())
    if pa.types.is_list(array.type):
        return innermost_values(array.flatten())
    if pa.types.is_map(array.type):
        # keys and items are those of the whole array, even if this is a slice of it
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        inner = (child.slice(first, last - first) for child in (array.keys, array.items))
        return sum(map(innermost_values, inner))
    return len(array)


class _Block:
    """The rows with the numbers `number`, which are consecutive."""

    def __init__(self, shape: Shape, number: Draws) -> None:
        self._shape, self._number, self._rows = shape, number, len(number)

    def batch(self) -> pa.RecordBatch:
        shape = self._shape
        columns = dict(zip(shape.key, self._key(), strict=True))
        if shape.partitions > 1:
            columns[PARTITION] = self._named("p", 4, self._below("partition", shape.partitions))
        nested: dict[Nesting, Callable[[str], pa.Array]] = {
            "structs": self._structs, "lists": self._lists, "maps": self._maps, "none": self._numbers,
        }  # fmt: skip
        kinds: dict[str, Callable[[str], pa.Array]] = {
            "strings": lambda name: self._texts(name, self._number, shape.string_bytes),
            "decimals": self._decimals,
            "nested": nested[shape.nesting],
            "numbers": self._numbers,
        }
        places = (kind for kind, columns_ in shape.kinds.items() for _ in range(columns_))
        for place, kind in enumerate(places):
            name = f"c{place:03d}"
            columns[name] = self._with_nulls(name, kinds[kind](name))
        return pa.RecordBatch.from_pydict(columns)

    def _draw(self, purpose: str, counters: Draws | None = None) -> Draws:
        return draw(
            stream(self._shape.seed, purpose), self._number if counters is None else counters
        )

    def _below(self, purpose: str, limit: int, counters: Draws | None = None) -> Ints:
        return (self._draw(purpose, counters) % np.uint64(limit)).astype(np.int64)

    def _fractions(self, purpose: str) -> npt.NDArray[np.float64]:
        """From 0 up to, but not including, 1."""
        return (self._draw(purpose) >> np.uint64(11)).astype(np.float64) / 2.0**53

    def _with_nulls(self, name: str, values: pa.Array) -> pa.Array:
        if not self._shape.nulls:
            return values
        chance = self._fractions(f"{name}/null")
        # `take` gives null for a null index, for every type
        at = np.arange(self._rows, dtype=np.int64)
        return values.take(pa.array(at, mask=chance < self._shape.nulls))

    def _key(self) -> list[pa.Array]:
        ids = self._number.astype(np.int64) + 1
        if self._shape.keys == "uuid":
            return [self._uuids()]
        if self._shape.keys == "long":
            tail = self._below("key", 1000)
            if self._shape.hot_bucket:
                tail = np.where(ids % 2 == 0, _hot_tails(ids), tail)
            return [pa.array(ids * 1000 + tail)]
        opened = self._below("opened", 2557) + 8035
        return [
            self._named("tenant-", 3, self._below("tenant", 500)),
            pa.array(self._below("region", 100).astype(np.int32)),
            pa.array(opened.astype(np.int32)).cast(pa.date32()),
            pa.array(ids),
            self._named("line-", 1, self._below("line", 7)),
        ]

    def _uuids(self) -> pa.Array:
        halves = np.stack([self._draw("key/1"), self._draw("key/2")], axis=1).astype(">u8")
        octets = halves.view(np.uint8).reshape(self._rows, 16)
        digits = np.frombuffer(b"0123456789abcdef", np.uint8)
        hexed = digits[np.stack([octets >> 4, octets & 15], axis=2)].reshape(self._rows, 32)
        text = np.full((self._rows, 36), ord("-"), np.uint8)
        start, at = 0, 0
        for length in (8, 4, 4, 4, 12):
            text[:, at : at + length] = hexed[:, start : start + length]
            start, at = start + length, at + length + 1
        return _strings_of(np.full(self._rows, 36), text)

    def _named(self, prefix: str, digits: int, values: Ints) -> pa.Array:
        """Texts such as `p0042`."""
        powers = 10 ** np.arange(digits - 1, -1, -1)
        code = (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)
        head = np.tile(np.frombuffer(prefix.encode(), np.uint8), (self._rows, 1))
        text = np.concatenate([head, code], axis=1)
        return _strings_of(np.full(self._rows, text.shape[1]), text)

    def _numbers(self, name: str) -> pa.Array:
        place = int(name[1:]) % 5
        if place == 0:
            return pa.array(self._below(name, 10**12))
        if place == 1:
            return self._doubles(name)
        if place == 2:
            return pa.array(self._below(name, 10**6).astype(np.int32))
        if place == 3:
            days = (self._below(name, 2557) + 8035).astype(np.int32)
            return pa.array(days).cast(pa.date32())
        seconds = self._below(name, 31_536_000) + 1_704_067_200
        return pa.array(seconds * 1_000_000).cast(pa.timestamp("us", tz="UTC"))

    def _texts(self, purpose: str, counters: Draws, mean: int) -> pa.Array:
        """Texts of words, `mean` bytes long on average."""
        lengths = mean - mean // 2 + self._below(f"{purpose}/length", 2 * (mean // 2) + 1, counters)
        words = -(-int(lengths.sum()) // 8)
        first = counters[0] * np.uint64(2 * mean) if len(counters) else np.uint64(0)
        at = self._draw(f"{purpose}/word", first + np.arange(words, dtype=np.uint64))
        vocabulary = _words(self._shape.seed)
        return _strings_of(lengths, vocabulary[at % np.uint64(len(vocabulary))].view(np.uint8))

    def _decimals(self, name: str) -> pa.Array:
        # below 10^38: the greatest high half is 10^38 / 2^64, rounded down, less 1
        low = self._draw(f"{name}/low")
        high = self._draw(f"{name}/high") % np.uint64(10**38 >> 64)
        negative = self._below(f"{name}/sign", 2).astype(bool)
        halves = np.stack([np.where(negative, ~h, h) for h in (low, high)], axis=1)
        return pa.Array.from_buffers(
            pa.decimal128(38, 10), self._rows, [None, pa.py_buffer(halves.tobytes())]
        )

    def _structs(self, name: str) -> pa.Array:
        inner = pa.StructArray.from_arrays(
            [self._texts(f"{name}/text", self._number, 8), self._doubles(f"{name}/double")],
            ["text", "amount"],
        )
        return pa.StructArray.from_arrays(
            [pa.array(self._below(f"{name}/id", 10**12)), inner], ["id", "inner"]
        )

    def _doubles(self, purpose: str) -> pa.Array:
        return pa.array(self._fractions(purpose) * 2.0**20)

    def _lists(self, name: str) -> pa.Array:
        outer, inner = self._two_deep(name)
        items = self._items(outer, inner)
        values = pa.array(self._below(f"{name}/item", 10**12, items))
        lists = pa.ListArray.from_arrays(pa.array(_ends(inner)), values)
        return pa.ListArray.from_arrays(pa.array(_ends(outer)), lists)

    def _maps(self, name: str) -> pa.Array:
        outer, inner = self._two_deep(name)
        items = self._items(outer, inner)
        values = pa.array(self._below(f"{name}/item", 10**12, items))
        maps = pa.MapArray.from_arrays(pa.array(_ends(inner)), _places(inner), values)
        return pa.MapArray.from_arrays(pa.array(_ends(outer)), _places(outer), maps)

    def _two_deep(self, name: str) -> tuple[Ints, Ints]:
        """The sizes, from 1 to 3, of the outer lists or maps, one per row, and of those within them."""
        outer = self._below(f"{name}/outer", 3) + 1
        owners = np.repeat(self._number, outer) * np.uint64(3) + _within(outer).astype(np.uint64)
        return outer, self._below(f"{name}/inner", 3, owners) + 1

    def _items(self, outer: Ints, inner: Ints) -> Draws:
        """A number for each innermost item, unlike that of any other item of the column."""
        of_row = np.repeat(np.repeat(self._number, outer), inner) * np.uint64(9)
        place = np.repeat(_within(outer), inner) * 3 + _within(inner)
        return of_row + place.astype(np.uint64)


@cache
def _words(seed: int) -> npt.NDArray[np.uint64]:
    """4,096 words of seven letters and a space, eight bytes each."""
    octets = draw(stream(seed, "words"), np.arange(4096, dtype=np.uint64)).view(np.uint8)
    letters = (octets % 26 + ord("a")).astype(np.uint8)
    letters[7::8] = ord(" ")
    return letters.view(np.uint64)


def _strings_of(lengths: npt.NDArray[np.integer], data: npt.NDArray[np.uint8]) -> pa.Array:
    """Strings of these lengths, cut one after the other from `data`."""
    return pa.StringArray.from_buffers(
        len(lengths), pa.py_buffer(_ends(lengths).tobytes()), pa.py_buffer(data.tobytes())
    )


def _ends(lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Where each of these lengths begins when they follow each other, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _within(lengths: Ints) -> Ints:
    """0, 1, … for each of these lengths, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _places(lengths: Ints) -> pa.Array:
    """The keys of maps of these sizes: `k0`, `k1`, …"""
    places = _within(lengths)
    text = np.stack([np.full(len(places), ord("k")), places + ord("0")], axis=1).astype(np.uint8)
    return _strings_of(np.full(len(places), 2), text)


def _hot_tails(ids: Ints) -> Ints:
    """Three last digits for each id, with which its key is in bucket 0 (`HOT_BUCKETS`).

    Hudi's bucket index hashes the key as Java hashes the list of its text: 31 plus the text's hash, in which
    each digit counts 31 times as much as the next.
    """
    tails = np.arange(1000)
    digits = [tails // 100, tails // 10 % 10, tails % 10]
    of_tail = sum((d + ord("0")) * 31 ** (2 - place) for place, d in enumerate(digits))
    hashes = np.asarray(of_tail) % HOT_BUCKETS
    tail_with = np.array([np.flatnonzero(hashes == rest)[0] for rest in range(HOT_BUCKETS)])
    head, left, power = np.zeros(len(ids), np.int64), ids.copy(), 31**3
    while left.any():
        head += np.where(left > 0, (left % 10 + ord("0")) * power, 0) % HOT_BUCKETS
        left, power = left // 10, power * 31 % HOT_BUCKETS
    return tail_with[-(31 + head) % HOT_BUCKETS]
