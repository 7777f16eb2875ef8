"""Which record survives: against a plain-Python reading of Hudi's rules, one record at a time."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import SchemaError
from serde_lab.merging.survivors import MergeMode, match, merge, precombine, ranks
from serde_lab.records.buffers import hash64

KEYS = st.text(alphabet="ab\0é\U0001f600", max_size=4)
ROWS = st.lists(st.tuples(KEYS, st.integers(-3, 3)), max_size=30)


def keys_and_values(rows: list[tuple[str, int]]) -> tuple[pa.Array, pa.Array]:
    return pa.array([k for k, _ in rows], pa.string()), pa.array([v for _, v in rows], pa.int64())


def survivors(rows: list[tuple[str, int]]) -> list[int]:
    best: dict[str, int] = {}
    for position, (key, value) in enumerate(rows):
        if key not in best or value >= rows[best[key]][1]:
            best[key] = position
    return sorted(best.values())


@given(ROWS)
@settings(deadline=None)
def test_precombine_keeps_the_highest_value_and_the_later_of_equals(
    rows: list[tuple[str, int]],
) -> None:
    keys, values = keys_and_values(rows)
    kept = precombine(keys, [values])
    expected = survivors(rows)
    assert (list(range(len(rows))) if kept is None else kept.tolist()) == expected


@given(ROWS)
@settings(deadline=None)
def test_precombine_says_none_exactly_when_no_key_occurs_twice(rows: list[tuple[str, int]]) -> None:
    keys, values = keys_and_values(rows)
    assert (precombine(keys, [values]) is None) == (len({k for k, _ in rows}) == len(rows))


def test_precombine_gives_ties_to_the_later_record_and_keeps_the_input_order() -> None:
    keys, values = keys_and_values([("a", 1), ("b", 1), ("a", 1)])
    kept = precombine(keys, [values])
    assert kept is not None
    assert kept.tolist() == [1, 2]


@given(ROWS, ROWS, st.sampled_from(MergeMode))
@settings(deadline=None)
def test_merge_equals_hudis_rule_record_by_record(
    stored: list[tuple[str, int]], incoming: list[tuple[str, int]], mode: MergeMode
) -> None:
    stored = [stored[i] for i in survivors(stored)]
    incoming = [incoming[i] for i in survivors(incoming)]
    old_keys, old_values = keys_and_values(stored)
    new_keys, new_values = keys_and_values(incoming)
    outcome = merge(old_keys, [old_values], new_keys, [new_values], mode)
    result = {stored[i] for i in np.flatnonzero(outcome.stored_kept)}
    result |= {incoming[i] for i in outcome.incoming}
    expected = dict(stored)
    updates = 0
    for key, value in incoming:
        wins = mode is MergeMode.COMMIT_TIME or key not in expected or value >= expected[key]
        updates += wins and key in expected
        if wins:
            expected[key] = value
    assert result == set(expected.items())
    assert outcome.updates == updates


def test_a_key_stored_twice_matches_its_first_row() -> None:
    stored = pa.array(["a", "b", "a"])
    assert match(stored, pa.array(["a", "c", "b"])).tolist() == [0, -1, 1]


@given(st.lists(st.floats(width=64), max_size=20))
@settings(deadline=None)
def test_floats_rank_as_javas_double_compare(values: list[float]) -> None:
    def java(value: float) -> tuple[int, int]:
        if math.isnan(value):
            return (1, 0)
        bits = struct.unpack("<q", struct.pack("<d", value))[0]
        return (0, bits if bits >= 0 else -(2**63) - bits - 1)

    found = ranks(pa.array(values, pa.float64())).tolist()
    assert sorted(range(len(values)), key=lambda i: (found[i], i)) == sorted(
        range(len(values)), key=lambda i: (java(values[i]), i)
    )


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=20))
@settings(deadline=None)
def test_strings_rank_by_bytes_of_utf8(values: list[str]) -> None:
    found = ranks(pa.array(values, pa.string())).tolist()
    for i, left in enumerate(values):
        for j, right in enumerate(values):
            a, b = left.encode(), right.encode()
            assert (found[i] > found[j]) == (a > b)
            assert (found[i] == found[j]) == (a == b)


def test_nulls_rank_below_everything_and_nested_values_are_refused() -> None:
    found = ranks(pa.array([np.iinfo(np.int64).min, None, 3]))
    assert found[1] < found[0] < found[2]
    with pytest.raises(SchemaError, match="list"):
        ranks(pa.array([[1]]))


@given(st.lists(st.text(max_size=40), max_size=40))
@settings(deadline=None)
def test_equal_strings_hash_alike_wherever_they_stand(values: list[str]) -> None:
    values = [v.encode("utf-8", "ignore").decode() for v in values]
    found = hash64(pa.array(values, pa.string()))
    for value, one in zip(values, found, strict=True):
        assert hash64(pa.array(["other", value]).slice(1))[0] == one
        assert hash64(pa.array([value], pa.large_string()))[0] == one
    assert len(set(found.tolist())) == len(set(values))


def test_long_strings_hash_alike_too() -> None:
    texts = ["x" * 300, "x" * 301, "y" * 5, "x" * 300]
    found = hash64(pa.array(texts))
    assert found[0] == found[3]
    assert len(set(found.tolist())) == 3
