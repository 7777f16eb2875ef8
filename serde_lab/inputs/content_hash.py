"""Computes a checksum of rows that does not depend on the Parquet file they are stored in.

It defines "the same data" across machines. Column names, types, values, nulls and row order count;
writer version, codec, row groups and Arrow's memory layout do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import child_fields, is_binary, is_list, is_string, plain_schema


class ContentHash:
    """SHA-256 over rows that arrive in pieces; how the rows are cut into pieces does not change it."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = plain_schema(schema)
        self._columns = [_Column(field.type) for field in self._schema]
        self.rows = 0

    def update(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows, which have the columns of the schema in its order."""
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            for column, array in zip(self._columns, batch.columns, strict=True):
                column.update(to_plain(array))
            self.rows += len(batch)

    def hexdigest(self) -> str:
        """`sha256:` and 64 hex digits."""
        whole = hashlib.sha256(f"rows {self.rows}\n".encode())
        for field, column in zip(self._schema, self._columns, strict=True):
            # with the length in front, different schemas cannot give the same text
            whole.update(f"{len(field.name)} {field.name} {field.type}\n".encode())
            whole.update(column.digest())
        return f"sha256:{whole.hexdigest()}"


def checksum(rows: pa.Table) -> str:
    """The content checksum of a whole table."""
    content = ContentHash(rows.schema)
    content.update(rows)
    return content.hexdigest()


def combined(checksums: Iterable[str]) -> str:
    """One checksum for consecutive pieces, such as the parts of a folder."""
    return f"sha256:{hashlib.sha256(' '.join(checksums).encode()).hexdigest()}"


class _Column:
    """Hashes one column's nulls, lengths, bytes and children separately, so that cuts do not matter."""

    def __init__(self, t: pa.DataType) -> None:
        self._nulls, self._lengths, self._data = (hashlib.sha256() for _ in range(3))
        self._children = [_Column(field.type) for field in child_fields(t)]
        self._rows = 0

    def update(self, array: pa.Array) -> None:
        if array.null_count:
            nulls = np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False))
            self._nulls.update((nulls + self._rows).astype("<i8").tobytes())
        self._rows += len(array)
        t = array.type
        if pat.is_struct(t):
            for i, child in enumerate(self._children):
                child.update(array.field(i))
        elif pat.is_map(t):
            self._add_lengths(array)
            self._children[0].update(array.keys)
            self._children[1].update(array.items)
        elif is_list(t):
            self._add_lengths(array)
            self._children[0].update(array.values)
        elif is_string(t) or is_binary(t):
            self._add_lengths(array)
            if len(array):
                self._data.update(array.buffers()[2] or b"")
        elif pat.is_boolean(t):
            # one byte per value: the bits of two pieces would have to be shifted together
            bits = array.fill_null(False).to_numpy(zero_copy_only=False)
            self._data.update(bits.astype(np.uint8).tobytes())
        elif len(array):
            # the buffer may be longer than its array
            self._data.update(array.buffers()[1].slice(0, len(array) * t.bit_width // 8))

    def _add_lengths(self, array: pa.Array) -> None:
        if len(array):
            offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)
            self._lengths.update(np.diff(offsets).astype("<i4").tobytes())

    def digest(self) -> bytes:
        """The hash of the digests of nulls, lengths, bytes and children; each digest has 32 bytes."""
        pieces = [part.digest() for part in (self._nulls, self._lengths, self._data)]
        pieces += [child.digest() for child in self._children]
        return hashlib.sha256(b"".join(pieces)).digest()
