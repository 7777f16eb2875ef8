"""The simple bucket index: the bucket of each record key and the file ids of buckets; and xxHash32, which
consistent hashing uses instead.

The hashes equal Hudi's, bit for bit: a wrong one would silently duplicate keys. Source:
org.apache.hudi.index.bucket.BucketIdentifier and KeyGenUtils#extractRecordKeysByFields of Hudi 1.1 and later.

Java's string hashes come from prefix sums, so that a substring costs as little as a whole string: with c(q)
the code unit at q, S(q) = Σ c(p)·31⁻ᵖ over p < q, and hash[a, b) = 31ᵇ⁻¹·(S(b) − S(a)) mod 2³².
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import TableError
from serde_lab.records.buffers import StringBytes, rotate_left
from serde_lab.records.keys import EMPTY_KEY, NULL_KEY
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_system_view import FileSlice

_COLON, _COMMA = ord(":"), ord(",")
_INT_MAX = 0x7FFFFFFF


def bucket_ids(
    record_keys: pa.Array | pa.ChunkedArray,
    key_fields: Sequence[str],
    hash_fields: Sequence[str],
    bucket_count: int | npt.NDArray[np.integer],
) -> npt.NDArray[np.int32]:
    """The bucket of each record key, shape (rows,).

    `bucket_count`: one for all records, or one per record, shape (rows,), if it differs by partition.
    `key_fields` are the table's record key fields in their order, `hash_fields` those of them that the index
    hashes. A key that lacks `,` or `:` is hashed whole; any other is split into `field:value` pairs. Keys
    whose values hold `,` or `:` themselves are split one by one.
    """
    keys = StringBytes.of(record_keys)
    units = _Units.of(keys)
    colons = np.flatnonzero(keys.data == _COLON)
    commas = np.flatnonzero(keys.data == _COMMA)
    colon_counts = _counts(colons, keys.offsets)
    comma_counts = _counts(commas, keys.offsets)
    whole = (colon_counts == 0) | (comma_counts == 0)
    hashes = np.zeros(len(keys), np.uint32)
    if whole.any():
        starts, ends = keys.offsets[:-1][whole], keys.offsets[1:][whole]
        hashes[whole] = np.uint32(31) + units.hashes(starts, ends)
    fields = len(key_fields)
    regular = ~whole & (colon_counts == fields) & (comma_counts == fields - 1)
    if regular.any():
        wanted = [name in hash_fields for name in key_fields]
        places = np.flatnonzero(regular)
        hashed, proven = _regular_hashes(
            keys, units, places, colons, commas, colon_counts, comma_counts, key_fields, wanted
        )
        hashes[places] = hashed
        regular[places[~proven]] = False
    for row in np.flatnonzero(~whole & ~regular):
        key = bytes(keys.data[keys.offsets[row] : keys.offsets[row + 1]]).decode()
        hashes[row] = list_hash(hash_values(key, hash_fields))
    return _buckets(hashes, bucket_count)


def bucket_ids_of_integers(
    values: Sequence[npt.NDArray[np.integer]], bucket_count: int | npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    """The bucket of each record from the integers in its index fields, in the order of the key.

    The result equals `bucket_ids` if all fields of the record key are integers without nulls (digits hold
    neither `,` nor `:`) and the key is either one bare value or several pairs. It takes a fifth of the time
    of splitting keys.
    """
    hashes = np.ones(len(values[0]), np.uint32)
    for column in values:
        hashes *= np.uint32(31)
        hashes += _digit_hashes(column)
    return _buckets(hashes, bucket_count)


def _buckets(
    hashes: npt.NDArray[np.uint32], bucket_count: int | npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    return ((hashes & np.uint32(_INT_MAX)) % np.asarray(bucket_count, np.uint32)).astype(np.int32)


def _digit_hashes(values: npt.NDArray[np.integer]) -> npt.NDArray[np.uint32]:
    """String#hashCode of each integer's text in Java."""
    wide = values.astype(np.int64)
    size = np.abs(wide).view(np.uint64)  # |-2⁶³| stays itself, which is right without a sign
    largest = int(size.max(initial=0))
    left = size.astype(np.uint32) if largest < 1 << 32 else size
    hashes = np.zeros(len(wide), np.uint32)
    power = 1
    for number in range(len(str(largest))):
        rest = left // left.dtype.type(10)
        code = (left - rest * left.dtype.type(10) + left.dtype.type(ord("0"))).astype(np.uint32)
        code *= np.uint32(power)
        if number:
            code *= left > 0  # the number may have fewer digits
        hashes += code
        left, power = rest, power * 31 & 0xFFFFFFFF
    signed = np.flatnonzero(wide < 0)
    if len(signed):
        tens = np.uint64(10) ** np.arange(1, 20, dtype=np.uint64)
        digits = np.searchsorted(tens, size[signed], side="right") + 1
        powers = np.array([pow(31, n, 1 << 32) for n in range(21)], np.uint32)
        hashes[signed] += powers[digits] * np.uint32(ord("-"))
    return hashes


def hash_values(record_key: str, hash_fields: Sequence[str]) -> list[str | None]:
    """The values that the bucket hash takes from one record key: the readable reference.

    A value ends at the last `,` before the next `:`; a `:` without a `,` before it is part of the value. So a
    value may hold either, as long as a `field:` follows it.
    """
    if "," not in record_key or ":" not in record_key:
        return [record_key]
    values: list[str | None] = []
    start = 0
    while 0 <= start < len(record_key):
        colon = record_key.find(":", start)
        if colon < 0:
            break
        name = record_key[start:colon]
        end, last, next_colon = -1, colon, record_key.find(":", colon + 1)
        while end < 0 <= next_colon:
            end = record_key.rfind(",", last + 1, next_colon)
            last, next_colon = next_colon, record_key.find(":", next_colon + 1)
        value = record_key[colon + 1 :] if end < 0 else record_key[colon + 1 : end]
        if not hash_fields or name in hash_fields:
            values.append({NULL_KEY: None, EMPTY_KEY: ""}.get(value, value))
        start = len(record_key) if end < 0 else end + 1
    return values or [record_key]


def string_hash(text: str) -> int:
    """java.lang.String#hashCode as an unsigned 32-bit number."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
    result = 0
    for unit in units.tolist():
        result = (31 * result + unit) & 0xFFFFFFFF
    return result


def list_hash(values: Sequence[str | None]) -> int:
    """java.util.List#hashCode of strings as an unsigned 32-bit number; a null counts as 0."""
    result = 1
    for value in values:
        result = (31 * result + (0 if value is None else string_hash(value))) & 0xFFFFFFFF
    return result


def bucket_file_id(bucket: int, partition_path: str, seed: int) -> str:
    """The file id of a new bucket: `%08d-` and the rest of a UUID derived from the seed, then `-0`.

    Equal seeds give equal ids, so that two runs write the same names and the same bytes.
    """
    drawn = uuid.uuid5(uuid.NAMESPACE_URL, f"{seed}/{partition_path}/{bucket}")
    return f"{bucket:08d}{str(uuid.UUID(bytes=drawn.bytes, version=4))[8:]}-0"


def bucket_of_file_id(file_id: str) -> int:
    """The bucket in a file id. Raises TableError if the id has none."""
    if not file_id[:8].isdigit() or file_id[8:9] != "-":
        raise TableError(f"file id {file_id!r} names no bucket; it must begin with 8 digits and -")
    return int(file_id[:8])


def task_of_bucket(partition_path: str, bucket: int, bucket_count: int, tasks: int) -> int:
    """The task, of `tasks`, that owns a bucket: spreads the buckets of a partition, then partitions.

    Source: BucketIndexUtil#getPartitionBucketIdFunc.
    """
    first = (string_hash(partition_path) & _INT_MAX) % tasks * bucket_count
    return (first + bucket) % tasks


@dataclass(frozen=True, slots=True)
class _Units:
    """Prefix sums over the UTF-16 units of all strings, addressed by byte offsets of the UTF-8 data."""

    sums: npt.NDArray[np.uint32]  # S at each unit, and after the last one
    unit_of_byte: npt.NDArray[np.int64] | None  # None for ASCII: one unit per byte

    @classmethod
    def of(cls, keys: StringBytes) -> _Units:
        if keys.is_ascii:
            units: npt.NDArray[np.uint32] = keys.data.astype(np.uint32)
            unit_of_byte = None
        else:
            text = keys.data.tobytes().decode()
            units = np.frombuffer(text.encode("utf-16-le"), "<u2").astype(np.uint32)
            # a continuation byte starts no unit, the lead byte of four starts two
            starts = ((keys.data & 0xC0) != 0x80).astype(np.int64) + (keys.data >= 0xF0)
            unit_of_byte = np.concatenate([[0], np.cumsum(starts)])
        sums = np.zeros(len(units) + 1, np.uint32)
        units *= _powers(len(units) + 1).inverse[: len(units)]
        np.cumsum(units, dtype=np.uint32, out=sums[1:])
        return cls(sums, unit_of_byte)

    def hashes(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint32]:
        """String#hashCode of data[start:end] for each pair of byte offsets."""
        if self.unit_of_byte is not None:
            starts, ends = self.unit_of_byte[starts], self.unit_of_byte[ends]
        last = np.maximum(ends - 1, 0)
        spans: npt.NDArray[np.uint32] = self.sums[ends] - self.sums[starts]
        powers = _powers(len(self.sums)).plain
        return spans * powers[last]


@dataclass(frozen=True, slots=True)
class _Powers:
    plain: npt.NDArray[np.uint32]
    inverse: npt.NDArray[np.uint32]


def _powers(count: int) -> _Powers:
    # sizes are powers of two, so that a few tables serve all batches
    return _powers_table(1 << max(10, (count - 1).bit_length()))


@lru_cache(maxsize=4)
def _powers_table(count: int) -> _Powers:
    def table(factor: int) -> npt.NDArray[np.uint32]:
        values = np.full(count, factor, np.uint32)
        values[0] = 1
        return np.multiply.accumulate(values, dtype=np.uint32)

    return _Powers(table(31), table(pow(31, -1, 1 << 32)))


def _counts(
    positions: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    return np.diff(np.searchsorted(positions, offsets))


def _regular_hashes(
    keys: StringBytes,
    units: _Units,
    places: npt.NDArray[np.int64],
    colons: npt.NDArray[np.int64],
    commas: npt.NDArray[np.int64],
    colon_counts: npt.NDArray[np.int64],
    comma_counts: npt.NDArray[np.int64],
    key_fields: Sequence[str],
    wanted: Sequence[bool],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """List hashes of keys with as many pairs as fields; the mask is False if the pairs are not the fields."""
    first_colon = (np.cumsum(colon_counts) - colon_counts)[places]
    first_comma = (np.cumsum(comma_counts) - comma_counts)[places]
    hashes = np.ones(len(places), np.uint32)
    proven = np.ones(len(places), bool)
    previous_end = keys.offsets[places] - 1
    for index, name in enumerate(key_fields):
        colon = colons[first_colon + index]
        last = index == len(key_fields) - 1
        end = keys.offsets[places + 1] if last else commas[first_comma + index]
        proven &= (previous_end < colon) & (colon < end)
        named = units.hashes(previous_end + 1, np.maximum(colon, previous_end + 1))
        proven &= named == np.uint32(string_hash(name))
        previous_end = end
        if wanted[index]:
            value = units.hashes(colon + 1, np.maximum(end, colon + 1))
            hashes = hashes * np.uint32(31) + _without_placeholders(keys, value, colon + 1, end)
    return hashes, proven


def _without_placeholders(
    keys: StringBytes,
    hashes: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint32]:
    """Replace the hashes of the null and empty placeholders by 0, as which both count."""
    for text in (NULL_KEY, EMPTY_KEY):
        for row in np.flatnonzero(hashes == np.uint32(string_hash(text))):
            if keys.data[starts[row] : ends[row]].tobytes() == text.encode():
                hashes[row] = 0
    return hashes


def slices_by_bucket(
    slices: Iterable[FileSlice], config: TableConfig
) -> dict[tuple[str, int], FileSlice]:
    """The slices by partition path and bucket. Raises TableError if two share a bucket, or one has none."""
    found: dict[tuple[str, int], FileSlice] = {}
    usual = config.bucket_count or 0
    for one in slices:
        bucket = bucket_of_file_id(one.file_id)
        if bucket >= usual and bucket >= (config.buckets_of(one.partition_path) or usual):
            # Apache Hudi's clustering gives random ids, of which one in 43 begins with 8 digits
            raise TableError(f"file id {one.file_id!r} names none of its partition's buckets")
        other = found.setdefault((one.partition_path, bucket), one)
        if other is not one:
            raise TableError(
                f"bucket {one.file_id[:8]} of partition {one.partition_path!r} has two file groups,"
                f" {other.file_id!r} and {one.file_id!r}: a write would leave old rows in one of them"
            )
    return found


_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(prime) for prime in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)
_STRIPE = 16


def xxh32(strings: pa.Array | pa.ChunkedArray, seed: int = 0) -> npt.NDArray[np.uint32]:
    """xxHash32 of the UTF-8 bytes of each string, shape (n,)."""
    data = StringBytes.of(strings)
    hashes = np.zeros(len(data), np.uint32)
    lengths = data.lengths
    order = np.argsort(lengths, kind="stable")
    edges = [0, *(np.flatnonzero(np.diff(lengths[order])) + 1).tolist(), len(order)]
    for first, last in pairwise(edges):
        places = order[first:last]
        if not len(places):
            continue
        length = int(lengths[places[0]])
        starts = data.offsets[:-1][places]
        matrix = data.data[starts[:, None] + np.arange(length)]
        hashes[places] = _of_equal_length(matrix, seed)
    return hashes


def _of_equal_length(matrix: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint32]:
    """The hashes of strings of equal length, which are the rows of `matrix`."""
    count, length = matrix.shape
    whole = length // 4 * 4
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(matrix[:, :whole]).view(np.dtype("<u4"))
    done = 0
    start = np.uint32(seed)
    with np.errstate(over="ignore"):
        if length >= _STRIPE:
            done = length // _STRIPE * _STRIPE
            stripes = words[:, : done // 4].reshape(count, -1, 4) * _P2
            first = [start + _P1 + _P2, start + _P2, start, start - _P1]
            lanes = np.tile(np.array(first, np.uint32), (count, 1))
            for number in range(done // _STRIPE):
                lanes += stripes[:, number]
                lanes = rotate_left(lanes, 13) * _P1
            hashes = np.zeros(count, np.uint32)
            for lane, by in enumerate((1, 7, 12, 18)):
                hashes += rotate_left(lanes[:, lane], by)
        else:
            hashes = np.full(count, start + _P5, np.uint32)
        hashes += np.uint32(length)
        for word in range(done // 4, whole // 4):
            hashes = rotate_left(hashes + words[:, word] * _P3, 17) * _P4
        for byte in range(whole, length):
            hashes = rotate_left(hashes + matrix[:, byte].astype(np.uint32) * _P5, 11) * _P1
        hashes ^= hashes >> np.uint32(15)
        hashes *= _P2
        hashes ^= hashes >> np.uint32(13)
        hashes *= _P3
        hashes ^= hashes >> np.uint32(16)
    return hashes
