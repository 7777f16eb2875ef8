"""Ratios over rounds: the geometric mean, its interval, and no more digits than the interval supports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from serde_lab.analysis.ratios import Ratio, paired_ratio, ratio_of


def test_an_interval_that_is_shown_to_reach_1_decides_nothing() -> None:
    assert not Ratio(0.922, 0.852, 0.998, 5).decided
    assert Ratio(0.922, 0.852, 0.998, 5).range == "0.85 to 1.00"
    assert not Ratio(0.922, 0.852, 0.993, 5).decided
    assert Ratio(0.922, 0.852, 0.988, 5).decided


TIMES = st.lists(st.floats(0.01, 100), min_size=2, max_size=8)
LOGS = st.lists(st.floats(-3, 3), min_size=2, max_size=8)


@given(TIMES, st.floats(0.1, 10))
def test_a_constant_factor_is_found_exactly(times: list[float], factor: float) -> None:
    others = dict(enumerate(times))
    found = paired_ratio({n: factor * value for n, value in others.items()}, others)
    assert found is not None
    assert found.rounds == len(times)
    assert (found.low, found.value, found.high) == pytest.approx((factor,) * 3)


@given(LOGS)
def test_the_interval_is_that_of_a_paired_t_test(logs: list[float]) -> None:
    assume(np.ptp(logs) > 1e-6)
    found = ratio_of(logs)
    expected = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert math.log(found.value) == pytest.approx(np.mean(logs))
    assert found.low is not None
    assert found.high is not None
    assert (math.log(found.low), math.log(found.high)) == pytest.approx(
        tuple(expected), nan_ok=True
    )


def test_only_common_rounds_count() -> None:
    found = paired_ratio({1: 2.0, 2: 3.0, 4: 8.0}, {2: 1.0, 3: 5.0, 4: 2.0, 5: 1.0})
    assert found is not None
    assert (found.rounds, found.value) == (2, pytest.approx(math.sqrt(12)))
    assert paired_ratio({1: 2.0}, {2: 1.0}) is None


def test_a_single_round_has_no_interval_and_decides_nothing() -> None:
    found = paired_ratio({1: 3.0}, {1: 2.0})
    assert found is not None
    assert (found.low, found.high, found.range, found.at_least) == (None, None, "", "")
    assert not found.decided


@pytest.mark.parametrize(
    ("ratio", "text", "interval", "at_least"),
    [
        (Ratio(0.46781, 0.4312, 0.5075, 5), "0.47", "0.43 to 0.51", "0.43"),
        (Ratio(2.1376, 1.9704, 2.3191, 5), "2.14", "1.97 to 2.32", "1.97"),
        (Ratio(5.68, 4.1, 7.9, 3), "5.7", "4.1 to 7.9", "4.1"),
        (Ratio(9.1, 3.17, 15.4, 3), "9", "3 to 16", "3"),
        (Ratio(1.00312, 1.00211, 1.00413, 9), "1.003", "1.002 to 1.005", "1.002"),
        (Ratio(1.0, 1.0, 1.0, 3), "1.000", "", "1.000"),
    ],
)
def test_digits_are_those_that_the_interval_supports(
    ratio: Ratio, text: str, interval: str, at_least: str
) -> None:
    assert (ratio.text, ratio.range, ratio.at_least) == (text, interval, at_least)


def test_the_inverse_is_the_other_way_round() -> None:
    found = Ratio(0.5, 0.4, 0.8, 4)
    assert found.inverse == Ratio(2.0, 1.25, 2.5, 4)
    assert found.decided
    assert not Ratio(1.1, 0.9, 1.3, 4).decided


@pytest.mark.parametrize(
    ("effect", "spread", "rounds"), [(0.05, 0.10, 5), (0.02, 0.03, 3), (0.20, 0.40, 8)]
)
def test_the_rounds_asked_for_decide_four_of_five_times_and_one_less_does_not(
    effect: float, spread: float, rounds: int
) -> None:
    """By simulation with the ratio and spread that were measured: no formula is shared with the code."""
    noise = np.random.default_rng(7).normal(size=rounds)
    logs = effect + spread * (noise - noise.mean()) / noise.std(ddof=1)
    found = ratio_of(list(logs))
    assert not found.decided
    assert found.more_rounds is not None
    enough = rounds + found.more_rounds
    shares = []
    for n in (enough, round(0.7 * enough)):
        drawn = np.random.default_rng(n).normal(effect, spread, (20_000, n))
        p = stats.ttest_1samp(drawn, 0, axis=1).pvalue
        shares.append(float(np.mean((p < 0.05) & (drawn.mean(axis=1) > 0))))
    assert shares[0] == pytest.approx(0.8, abs=0.05)
    assert shares[1] < 0.75


def test_the_largest_of_several_ratios_is_seldom_called_one_when_all_are_equal() -> None:
    drawn = np.random.default_rng(3).normal(0, 0.1, (4_000, 4, 6))
    largest = drawn[np.arange(len(drawn)), drawn.mean(axis=2).argmax(axis=1)]
    shares = [
        np.mean(
            [(found := ratio_of(list(one), among)).decided and found.value > 1 for one in largest]
        )
        for among in (1, 4)
    ]
    assert shares[0] > 0.05  # what a single ratio's interval would claim
    assert shares[1] < 0.03


def test_doubts_are_put_in_words() -> None:
    assert Ratio(0.5, 0.4, 0.8, 4).doubt == ""
    assert Ratio(0.5, 0.4, 0.8, 4).more_rounds == 0
    assert Ratio(1.0, 1.0, 1.0, 3).doubt == ""
    assert Ratio(1.2, None, None, 1).doubt == "undecided: one round shows no spread"
    hopeless = Ratio(1.0001, 0.9, 1.12, 5)
    assert (hopeless.more_rounds, hopeless.doubt) == (None, "undecided: more than 1,000 rounds")
    close = Ratio(1.1, 0.98, 1.235, 5)
    assert close.finding == f"0.98 to 1.24, undecided: {close.more_rounds} more rounds"
    assert close.more_rounds in range(1, 10)


@pytest.mark.slow
@given(LOGS)
def test_a_wider_spread_never_needs_fewer_rounds(logs: list[float]) -> None:
    assume(np.ptp(logs) > 1e-3)
    mean = np.mean(logs)
    found = [ratio_of([mean + scale * (one - mean) for one in logs]) for scale in (1, 2)]
    needed = [math.inf if one.more_rounds is None else one.more_rounds for one in found]
    assert needed[0] <= needed[1]
