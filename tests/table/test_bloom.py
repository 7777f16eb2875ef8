"""Bloom filters against a plain murmur2 written from its description, key by key and byte by byte."""

from __future__ import annotations

import base64
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serde_lab.errors import TableError
from serde_lab.table.files.key_footer import (
    DYNAMIC_V0,
    SIMPLE,
    BloomBuilder,
    BloomFilter,
    bits_of,
    rounds_of,
)


def murmur2(data: bytes, seed: int) -> int:
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (seed ^ len(data)) & mask
    for start in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    left = len(data) % 4
    if left:
        tail = list(reversed(data[-left:]))
        for place, byte in enumerate(tail):
            signed = byte - 256 if byte > 127 else byte
            h ^= (signed << 8 * place) & mask
        h = h * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def bits_of_key(key: str, rounds: int, bits: int) -> set[int]:
    found, seed = set(), 0
    for _ in range(rounds):
        seed = murmur2(key.encode(), seed)
        signed = seed - (1 << 32) if seed >= 1 << 31 else seed
        found.add(abs(int(math.fmod(signed, bits))))
    return found


@pytest.mark.slow
@given(st.lists(st.text(max_size=40), min_size=1, max_size=30, unique=True))
@example(["é" * 1500, "x" * 9001, "y" * 9001, "z" * 9003, "short"])
def test_bits_are_those_of_a_plain_murmur(keys: list[str]) -> None:
    builder = BloomBuilder(len(keys))
    builder.add(pa.array(keys))
    raw = base64.b64decode(builder.to_footer())
    bits = bits_of(len(keys))
    rounds = rounds_of()
    assert struct.unpack_from(">iibi", raw) == (-1, rounds, 1, bits)
    expected = set().union(*(bits_of_key(key, rounds, bits) for key in keys))
    stored = np.unpackbits(np.frombuffer(raw[13:], np.uint8), bitorder="little")[:bits]
    assert set(np.flatnonzero(stored).tolist()) == expected


@pytest.mark.parametrize("rate", [1e-9, 1e-6, 0.01, 0.3])
def test_a_full_filter_has_the_rate_that_was_asked_for(rate: float) -> None:
    keys, bits, rounds = 60_000, bits_of(60_000, rate), rounds_of(rate)
    filled = 1 - (1 - 1 / bits) ** (keys * rounds)
    assert filled**rounds == pytest.approx(rate, rel=0.01)


def test_fewer_rounds_than_in_hudis_smallest_filter_take_a_few_more_bits() -> None:
    # BloomFilterUtils: 60,000 keys at 1e-9 come to 2,587,966 bits and 30 rounds
    assert rounds_of() == 20
    assert bits_of(60_000) / 2_587_966 == pytest.approx(1.06, abs=0.005)


def test_other_keys_pass_as_rarely_as_was_asked_for() -> None:
    keys, others = ([f"{name}:{n}" for n in range(20_000)] for name in ("in", "out"))
    builder = BloomBuilder(len(keys), 0.01)
    builder.add(pa.array(keys))
    bloom = BloomFilter.from_footer(builder.to_footer(), SIMPLE, "f")
    assert bloom.may_contain(pa.array(keys)).all()
    assert bloom.may_contain(pa.array(others)).mean() == pytest.approx(0.01, rel=0.3)


def test_keys_are_found_and_others_hardly_ever() -> None:
    keys = pa.array([f"l_orderkey:{n},l_linenumber:{n % 7}" for n in range(20_000)])
    builder = BloomBuilder(len(keys))
    for start in range(0, len(keys), 3000):
        builder.add(keys.slice(start, 3000))
    bloom = BloomFilter.from_footer(builder.to_footer(), SIMPLE, "f")
    assert bloom.may_contain(keys).all()
    others = pa.array([f"l_orderkey:{n},l_linenumber:9" for n in range(20_000)])
    assert not bloom.may_contain(others).any()


def test_an_empty_file_has_an_empty_filter() -> None:
    bloom = BloomFilter.from_footer(BloomBuilder(0).to_footer(), SIMPLE, "f")
    assert not bloom.may_contain(pa.array(["a"])).any()


def test_the_dynamic_form_is_read() -> None:
    bits, rounds = 1000, 5
    rows = [{"a", "b"}, {"c"}]
    raw = struct.pack(">iibi", -1, rounds, 1, bits) + struct.pack(">iii", 2, 1, len(rows))
    for row in rows:
        flags = np.zeros(bits, np.uint8)
        flags[list(set().union(*(bits_of_key(key, rounds, bits) for key in row)))] = 1
        raw += struct.pack(">iibi", -1, rounds, 1, bits)
        raw += np.packbits(flags, bitorder="little").tobytes()
    bloom = BloomFilter.from_footer(base64.b64encode(raw).decode(), DYNAMIC_V0, "f")
    assert bloom.may_contain(pa.array(["a", "b", "c", "d"])).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("!", SIMPLE),
        ("", SIMPLE),
        (base64.b64encode(struct.pack(">iibi", -1, 3, 1, 800)).decode(), SIMPLE),
        (base64.b64encode(struct.pack(">iibi", 1, 3, 1, 8) + b"0").decode(), SIMPLE),
        (base64.b64encode(struct.pack(">iibi", -1, 3, 1, 8) + b"0").decode(), "OTHER"),
    ],
)
def test_a_damaged_filter_is_a_sentence(text: str, code: str) -> None:
    with pytest.raises(TableError, match=rf"^f: its bloom filter \({code}\) is damaged"):
        BloomFilter.from_footer(text, code, "f")


@pytest.mark.parametrize("count", [2, 65, 1024, 1025])
def test_few_keys_of_many_lengths_have_the_bits_of_each_alone(count: int) -> None:
    """They are padded to one length; more of them, or longer ones, are sorted by length."""
    keys = [("é" * (n % 33))[: n % 33] + "x" * (n % 4) + str(n) for n in range(count)]
    keys = [key for key in keys if len(key.encode()) <= 64]
    together, alone = BloomBuilder(count), BloomBuilder(count)
    half = len(keys) // 2
    together.add(pa.chunked_array([keys[:half], keys[half:]], pa.string()))
    for key in keys:
        alone.add(pa.array([key]))
    assert together.to_footer() == alone.to_footer()
