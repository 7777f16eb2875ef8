"""Computes the simple bucket of a record key as Hudi does, vectorised.

Implements Java's String.hashCode and List.hashCode over columns of text, independently of the table's own
hash, which it judges. Source: org.apache.hudi.index.bucket.BucketIdentifier.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.uint32]


def bucket_ids(fields: list[pa.Array], buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of each row from the text of its bucket fields; null has Java's hash of null."""
    rows = len(fields[0])
    combined = np.ones(rows, np.uint32)
    for text in fields:
        combined = combined * np.uint32(31) + string_hashes(text)
    positive = (combined & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return (positive % buckets).astype(np.int32)


def string_hashes(text: pa.Array) -> Ints:
    """Java's String.hashCode as unsigned ints, shape (len(text),); 0 for null."""
    distinct = text.dictionary_encode()
    values = distinct.dictionary.cast(pa.string())
    if not len(values):
        return np.zeros(len(text), np.uint32)
    units, starts, lengths = _utf16(values)
    hashes = np.zeros(len(values), np.uint32)
    rows = np.arange(len(values))
    for place in range(int(lengths.max(initial=0))):
        rows = rows[lengths[rows] > place]
        hashes[rows] = hashes[rows] * np.uint32(31) + units[starts[rows] + place]
    with_null = np.append(hashes, np.uint32(0))
    index = pc.fill_null(distinct.indices, len(values)).to_numpy()
    return with_null[index]


def _utf16(
    values: pa.Array,
) -> tuple[Ints, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """UTF-16 code units of all values in sequence, with the start and length of each value."""
    encoded = [text.encode("utf-16-le", "surrogatepass") for text in values.to_pylist()]
    lengths = np.array([len(item) // 2 for item in encoded], np.int64)
    units = np.frombuffer(b"".join(encoded), np.uint16).astype(np.uint32)
    return units, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)[:-1]]), lengths
