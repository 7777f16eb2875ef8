"""Chance that is the same everywhere, and exact shares of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.inputs.random_choices import draw, share_of, shuffled, spread, stream


def test_values_are_frozen() -> None:
    # SplitMix64 of state 0, first outputs, as published with the algorithm (Vigna's splitmix64.c)
    values = draw(0, np.arange(1, 4, dtype=np.uint64))
    assert [hex(v) for v in values.tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_draws_do_not_change_their_counters() -> None:
    counters = np.arange(5, dtype=np.uint64)
    draw(1, counters)
    assert counters.tolist() == [0, 1, 2, 3, 4]


def test_streams_differ_by_seed_and_purpose() -> None:
    starts = {stream(s, n, p) for s in range(5) for n in range(5) for p in ("a", "b")}
    assert len(starts) == 50


@given(st.integers(0, 2**63), st.integers(0, 1000), st.integers(0, 300))
def test_a_shuffle_is_a_permutation(start: int, first: int, n: int) -> None:
    assert sorted(shuffled(start, first, n).tolist()) == list(range(n))


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 7))
def test_a_spread_picks_exactly(total: int, picks: int, pieces: int) -> None:
    picks = min(picks, total)
    chosen = [
        int(spread(np.arange(*share_of(total, piece, pieces)), picks, total).sum())
        for piece in range(pieces)
    ]
    assert sum(chosen) == picks
