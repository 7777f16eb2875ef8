"""The BLOOM index: finds the stored file group, if any, that holds each record key.

A lookup has three steps, each for many keys at once: find the files whose key range spans a key, keep those
whose filter may contain it, and read their key columns to see which one holds it. Base files never change
under their name, so their footers are cached. Source: org.apache.hudi.index.bloom.HoodieBloomIndex and
HoodieGlobalBloomIndex, org.apache.hudi.io.HoodieKeyLookupHandle and HoodieRangeInfoHandle.

This index knows base files only. That is enough for merge-on-read because a key enters a file group with its
base file: inserts go to new base files or rewrite a small one without logs, never to a log; updates and
deletes go to the log of the group whose base file has the key (a key that a log deleted is still found there,
so that writing it again reaches the same group). File groups that begin with a log, as other indexes make
them, are refused: their keys would silently be duplicated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, TableError
from serde_lab.records.buffers import StringBytes, rows_by_value
from serde_lab.records.schema import RECORD_KEY
from serde_lab.table.files.base_file import (
    BLOOM_KEY,
    BLOOM_TYPE_KEY,
    MAX_KEY,
    MIN_KEY,
    BaseFileReader,
)
from serde_lab.table.files.file_system_view import BaseFile, FileSlice
from serde_lab.table.files.key_footer import DYNAMIC_V0, BloomFilter
from serde_lab.table.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class KeyFooter:
    """Least and greatest key, in Java's order, and the bloom filter; None if the footer has none."""

    least: str | None
    greatest: str | None
    bloom: BloomFilter | None

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        return 0 if self.bloom is None else sum(row.nbytes for row in self.bloom.rows)


class FooterCache:
    """Key footers by storage and path; the least recently used are dropped first."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._kept: OrderedDict[tuple[str, str], KeyFooter] = OrderedDict()
        self.hits = self.reads = 0

    def get(self, storage: Storage, path: str) -> KeyFooter:
        """The footer, from the cache or the file. Raises TableError for a file that cannot be read."""
        place = (storage.url, path)
        kept = self._kept.get(place)
        if kept is not None:
            self._kept.move_to_end(place)
            self.hits += 1
            return kept
        self.reads += 1
        found = self._kept[place] = read_key_footer(storage, path)
        self._bytes += found.size_bytes
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size_bytes
        return found


def read_key_footer(storage: Storage, path: str) -> KeyFooter:
    """Read key range and bloom filter of one base file. Raises TableError if the filter is damaged."""
    footer = BaseFileReader(storage, path).footer
    bloom = None
    if BLOOM_KEY in footer:
        kind = footer.get(BLOOM_TYPE_KEY, DYNAMIC_V0)
        bloom = BloomFilter.from_footer(footer[BLOOM_KEY], kind, storage.describe(path))
    return KeyFooter(footer.get(MIN_KEY), footer.get(MAX_KEY), bloom)


NOWHERE = -1

BloomFile = tuple[str, str, str]
"""Partition path, file id, and the path of the newest base file, relative to the table."""


@dataclass(slots=True)
class LookupCounts:
    """Counts of the work that lookups did: sums over all calls."""

    keys: int = 0
    in_range: int = 0
    """Pairs of a key and a file whose range spans it."""
    candidates: int = 0
    """Pairs that the file's filter did not rule out either."""
    found: int = 0
    files_read: int = 0


def base_file_seen(slice_: FileSlice, index: str) -> BaseFile:
    """The base file that has all keys of the file group, to an index that does not look into logs.

    Raises TableError for a file group without one: its keys would be taken for new, and stored twice.
    """
    if slice_.base_file is None:
        raise TableError(
            f"file group {slice_.file_id} of partition {slice_.partition_path!r} has no base file yet,"
            f" only logs, whose keys the {index} index does not cover",
            hint="compact the table first, or write it with the index that it was written with",
        )
    return slice_.base_file


def bloom_files(slices: Iterable[FileSlice]) -> tuple[BloomFile, ...]:
    """The files to give to BloomLookup, from the latest slices of a view.

    Raises TableError for a file group without a base file.
    """
    return tuple(
        (slice_.partition_path, slice_.file_id, base_file_seen(slice_, "BLOOM").path)
        for slice_ in slices
    )


class BloomLookup:
    """Looks keys up in `files`. A cache that is kept reads each footer once, whatever the number of lookups.

    With `is_global` a key is looked for in every partition, else in its own. `counts` grows with every call.
    """

    def __init__(
        self,
        storage: Storage,
        files: Sequence[BloomFile],
        is_global: bool = False,
        cache: FooterCache | None = None,
    ) -> None:
        self._storage, self._files = storage, files
        self._cache = cache or FooterCache()
        self._by_partition: dict[str, list[int]] = {}
        for number, (partition, _, _) in enumerate(files):
            self._by_partition.setdefault("" if is_global else partition, []).append(number)
        self._is_global = is_global
        self.counts = LookupCounts()

    def find(
        self, keys: pa.Array, partition_paths: pa.Array | None = None
    ) -> npt.NDArray[np.int64]:
        """The index into `files` of the file that holds each key, NOWHERE (-1) if none does; shape (n,).

        `keys` must not have nulls; `partition_paths` may be None without partitions, or for a global index.
        Raises DataError if several files hold a key, except for a global index: there the key may have moved,
        and the first in `files` is returned.
        """
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        self.counts.keys += len(keys)
        found = np.full(len(keys), NOWHERE, np.int64)
        if self._is_global or partition_paths is None:
            self._find(keys, np.arange(len(keys)), self._by_partition.get("", []), found)
            return found
        for path, rows in rows_by_value(partition_paths):
            if path in self._by_partition:
                self._find(keys.take(pa.array(rows)), rows, self._by_partition[path], found)
        return found

    def candidates(self, keys: pa.Array, partition_paths: pa.Array) -> list[int]:
        """The indexes into `files` of those that may hold some of the keys, by ranges and filters alone."""
        found: list[int] = []
        for path, rows in rows_by_value(partition_paths):
            of_path = keys.take(pa.array(rows))
            for number, footer, places in self._spanned(of_path, self._by_partition.get(path, [])):
                if len(_not_ruled_out(footer, of_path, places)):
                    found.append(number)
        return found

    def _spanned(
        self, keys: pa.Array, files: Sequence[int]
    ) -> Iterator[tuple[int, KeyFooter, npt.NDArray[np.int64]]]:
        """Each of `files` with its footer, and the positions of the keys within its range."""
        footers = [(n, self._cache.get(self._storage, self._files[n][2])) for n in files]
        ordered = _Ordered(keys, [footer for _, footer in footers])
        for number, footer in footers:
            yield number, footer, ordered.spanned(footer)

    def _find(
        self,
        keys: pa.Array,
        rows: npt.NDArray[np.int64],
        files: Sequence[int],
        found: npt.NDArray[np.int64],
    ) -> None:
        """Look up `keys`, whose positions in the batch are `rows`, in `files`; sets `found`."""
        for number, footer, places in self._spanned(keys, files):
            self.counts.in_range += len(places)
            if self._is_global:
                places = places[found[rows[places]] == NOWHERE]
            places = _not_ruled_out(footer, keys, places)
            if not len(places):
                continue
            self.counts.candidates += len(places)
            held = self._held(self._files[number][2], keys.take(pa.array(places)))
            there = rows[places[held]]
            again = there[found[there] != NOWHERE]
            if len(again):
                raise stored_twice(keys[int(np.flatnonzero(rows == again[0])[0])].as_py())
            found[there] = number
            self.counts.found += int(held.sum())

    def _held(self, path: str, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Which of `keys` the file has. Source: HoodieIndexUtils#filterKeysFromFile."""
        self.counts.files_read += 1
        wanted = keys.cast(pa.string())
        held = np.zeros(len(keys), bool)
        for batch in BaseFileReader(self._storage, path).batches([RECORD_KEY]):
            stored = batch.column(0).cast(pa.string())
            held |= pc.is_in(wanted, value_set=stored).to_numpy(zero_copy_only=False)
        return held


def _not_ruled_out(
    footer: KeyFooter, keys: pa.Array, places: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Those of the positions `places` at whose keys the footer's filter says nothing against the file."""
    if not len(places) or footer.bloom is None:
        return places
    return places[footer.bloom.may_contain(keys.take(pa.array(places)))]


def stored_twice(key: str) -> DataError:
    """The error about a key of which a write would reach one copy only."""
    return DataError(
        f"record key {key!r} is stored in several file groups, as an insert leaves a key that is there"
        " already, and this write would reach one of them only",
        hint="compact a merge-on-read table, where a delete may wait in a log; or write the partition anew by"
        " insert_overwrite",
    )


class _Ordered:
    """Keys in the orders that ranges in footers may follow.

    Java's strings sort by units of UTF-16; Apache Hudi writes ranges so where it writes Avro records. Where
    it writes Spark's rows, they sort by bytes of UTF-8. The two differ beyond U+FFFF only. A footer does not
    say which is meant, so a key in the range by either order may be in the file.
    """

    def __init__(self, keys: pa.Array, footers: Sequence[KeyFooter]) -> None:
        bounds = [b for f in footers for b in (f.least, f.greatest) if b is not None]
        data = StringBytes.of(keys).data
        beyond = bool(len(data)) and int(data.max()) >= 0xF0
        self._orders = [_Order("utf-8", keys.cast(pa.string()).cast(pa.binary()))]
        if beyond or any(max(b, default="") > "\uffff" for b in bounds):
            units = [_form(key, "utf-16-be") for key in keys.to_pylist()]
            self._orders.append(_Order("utf-16-be", pa.array(units, pa.binary())))

    def spanned(self, footer: KeyFooter) -> npt.NDArray[np.int64]:
        """The positions of the keys within the footer's range; all of them if it states none."""
        if footer.least is None or footer.greatest is None:
            return np.arange(self._orders[0].keys)
        found = [order.between(footer.least, footer.greatest) for order in self._orders]
        return np.unique(np.concatenate(found))


class _Order:
    """Keys in the order of their bytes in one encoding."""

    def __init__(self, encoding: str, values: pa.BinaryArray) -> None:
        self._encoding, self.keys = encoding, len(values)
        self._order = pc.sort_indices(values).to_numpy().astype(np.int64)
        self._sorted = values.take(pa.array(self._order))

    def between(self, least: str, greatest: str) -> npt.NDArray[np.int64]:
        """The positions of the keys from `least` to `greatest`."""
        first = bisect_left(self._sorted, _form(least, self._encoding), key=_plain)
        last = bisect_right(self._sorted, _form(greatest, self._encoding), key=_plain)
        return self._order[first:last]


def _form(text: str, encoding: str) -> bytes:
    return text.encode(encoding, "surrogatepass")


def _plain(value: pa.Scalar) -> bytes:
    plain: bytes = value.as_py()
    return plain
