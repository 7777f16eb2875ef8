"""Key range and bloom filter in base files' footers, and a cache of them.

Base files never change under their name, so cached entries stay valid. Source:
org.apache.hudi.io.HoodieKeyLookupHandle and HoodieRangeInfoHandle.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from serde_lab.table.files.base_file import (
    BLOOM_KEY,
    BLOOM_TYPE_KEY,
    MAX_KEY,
    MIN_KEY,
    BaseFileReader,
)
from serde_lab.table.files.bloom import DYNAMIC_V0, BloomFilter
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
