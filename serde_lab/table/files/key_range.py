"""The least and greatest record key of a file, in Java's order of strings.

Java compares UTF-16 code units, not code points; the two orders differ beyond U+FFFF. Hudi's bloom index
compares these two keys of a footer with Java's compareTo.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.table.index.string_bytes import StringBytes


class KeyRange:
    """The range of all keys seen so far."""

    def __init__(self) -> None:
        self.least: str | None = None
        self.greatest: str | None = None

    def add(self, keys: pa.Array) -> None:
        """Widen the range to `keys`."""
        if not len(keys):
            return
        data = StringBytes.of(keys).data
        if len(data) and int(data.max()) >= 0xF0:
            # some character takes two UTF-16 units: UTF-8 bytes sort differently from Java
            ordered = keys.to_pylist()
            low, high = min(ordered, key=_java_order), max(ordered, key=_java_order)
        else:
            ends = pc.min_max(keys)
            low, high = ends["min"].as_py(), ends["max"].as_py()
        if self.least is None or _java_order(low) < _java_order(self.least):
            self.least = low
        if self.greatest is None or _java_order(high) > _java_order(self.greatest):
            self.greatest = high


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
