"""The exact tests against scipy's own answers, and what each number of rounds can reach."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from serde_lab.gate.statistics import (
    holm,
    outlier_positions,
    paired_test,
    ratio_interval,
    separated,
    smallest_paired_p,
    smallest_unpaired_p,
    student_p,
    unpaired_test,
    wilson,
)

ROUNDS = range(1, 31)


@pytest.mark.parametrize("n", ROUNDS)
def test_paired_p_is_scipys_exact_wilcoxon(n: int) -> None:
    generator = np.random.default_rng(n)
    for shift in (0.0, 0.02, 0.2):
        differences = generator.normal(shift, 0.05, n)
        expected = stats.wilcoxon(differences, method="exact").pvalue
        assert paired_test(differences).p == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", ROUNDS)
@pytest.mark.parametrize("extra", [0, 3])
def test_unpaired_p_is_scipys_exact_mann_whitney(n: int, extra: int) -> None:
    generator = np.random.default_rng(n)
    for shift in (0.0, 0.05, 0.5):
        before = generator.lognormal(0, 0.05, n)
        after = generator.lognormal(shift, 0.05, n + extra)
        expected = stats.mannwhitneyu(before, after, method="exact").pvalue
        assert unpaired_test(before, after).p == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", ROUNDS)
def test_smallest_p_is_what_scipy_gives_perfectly_separated_samples(n: int) -> None:
    low, high = np.arange(1.0, n + 1), np.arange(101.0, n + 101)
    assert smallest_paired_p(n) == pytest.approx(stats.wilcoxon(low, method="exact").pvalue)
    expected = stats.mannwhitneyu(low, high, method="exact").pvalue
    assert smallest_unpaired_p(n, n) == pytest.approx(expected)
    assert paired_test(low).p == pytest.approx(smallest_paired_p(n))
    assert unpaired_test(low, high).p == pytest.approx(smallest_unpaired_p(n, n))


@pytest.mark.parametrize("n", range(2, 31))
def test_t_tests_are_scipys(n: int) -> None:
    generator = np.random.default_rng(n)
    before, after = generator.lognormal(0, 0.05, n), generator.lognormal(0.05, 0.08, n)
    logs = np.log(after) - np.log(before)
    expected = stats.ttest_1samp(logs, 0).pvalue
    assert student_p(before, after, paired=True) == pytest.approx(expected)
    expected = stats.ttest_ind(np.log(before), np.log(after), equal_var=False).pvalue
    assert student_p(before, after, paired=False) == pytest.approx(expected)


@pytest.mark.parametrize(
    "differences",
    [[1, 1, 2, -1, 3], [0, 0, 1, 2, -2], [0, 1, 1, 1, 1, 1], [2, 2, 2, 2], [0, 0, 0], [-1, 0]],
)
def test_paired_p_is_exact_with_ties_and_zeros(differences: list[float]) -> None:
    """Counted one by one over all signs; scipy's exact answer supposes that there are no ties."""
    values = np.asarray(differences, float)
    ranks = np.where(values == 0, 0, stats.rankdata(np.abs(values)))
    observed = ranks[values > 0].sum()
    sums = np.asarray([(ranks * signs).sum() for signs in product([0, 1], repeat=len(differences))])
    expected = min(1, 2 * min((sums <= observed).mean(), (sums >= observed).mean()))
    assert paired_test(differences).p == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [([1, 1, 2], [2, 2, 3]), ([1, 2, 2, 5], [2, 2, 2]), ([1, 1], [1, 1]), ([4], [4, 5, 5, 6])],
)
def test_unpaired_p_is_exact_with_ties(before: list[float], after: list[float]) -> None:
    ranks = stats.rankdata([*before, *after])
    observed = ranks[: len(before)].sum()
    sums = np.asarray([sum(chosen) for chosen in combinations(ranks, len(before))])
    expected = min(1, 2 * min((sums <= observed).mean(), (sums >= observed).mean()))
    assert unpaired_test(before, after).p == pytest.approx(expected)


def test_large_samples_take_scipys_asymptotic_test_and_say_so() -> None:
    generator = np.random.default_rng(0)
    before, after = generator.normal(0, 1, 80), generator.normal(0.3, 1, 80)
    outcome = unpaired_test(before, after)
    assert outcome.method.startswith("asymptotic")
    assert outcome.p == pytest.approx(stats.mannwhitneyu(before, after).pvalue)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_paired_p_does_not_care_for_direction_or_order(differences: list[float]) -> None:
    p = paired_test(differences).p
    assert 0 < p <= 1
    assert paired_test([-value for value in differences]).p == pytest.approx(p)
    assert paired_test(differences[::-1]).p == pytest.approx(p)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_what_holm_rejects(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    rejecting = True
    for position, i in enumerate(order):
        rejecting = rejecting and p_values[i] * (len(p_values) - position) <= 0.05
        assert (adjusted[i] <= 0.05) == rejecting
        assert adjusted[i] >= p_values[i]


def test_separation() -> None:
    assert separated([1, 2, 3], [3.1, 4, 5], paired=False)
    assert not separated([1, 2, 3], [3, 4, 5], paired=False)
    assert separated([1, 2, 3], [1.1, 2.1, 3.1], paired=True)
    assert not separated([1, 2, 3], [1.1, 2.0, 3.1], paired=True)
    assert not separated([], [1], paired=False)


def test_outliers_are_found_and_steady_values_are_not() -> None:
    assert outlier_positions([1.0, 1.01, 0.99, 1.02, 1.6]) == (4,)
    assert outlier_positions([1.0, 1.0, 1.0, 1.0, 1.001]) == ()
    assert outlier_positions([1, 9]) == ()


@pytest.mark.parametrize("rounds", [6, 7, 8, 9, 10, 13, 15, 21, 40])
def test_a_paired_interval_covers_as_often_as_it_says(rounds: int) -> None:
    hits = 0
    for seed in range(1000):
        generator = np.random.default_rng([seed, rounds])
        shared = generator.normal(0, 0.05, rounds)
        before = np.exp(shared + generator.normal(0, 0.03, rounds))
        after = 1.1 * np.exp(shared + generator.normal(0, 0.03, rounds))
        interval = ratio_interval(before, after, paired=True)
        assert interval.method == "ranks of rounds"
        hits += interval.low <= 1.1 <= interval.high
    found = wilson(hits, 1000)
    assert found.low <= 0.95 <= found.high + 0.01
    assert found.rate >= 0.93


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [2, 3, 5, 6, 12])
def test_intervals_hold_their_ratio_and_repeat(n: int, paired: bool) -> None:
    generator = np.random.default_rng(n)
    before, after = generator.lognormal(0, 0.2, n), generator.lognormal(0, 0.2, n)
    first, second = (ratio_interval(before, after, paired=paired) for _ in range(2))
    assert first == second
    assert first.low <= first.ratio <= first.high
    wide = ratio_interval(before, after, paired=paired, confidence=0.99)
    assert wide.low <= first.low
    assert wide.high >= first.high


def test_one_value_a_side_bounds_nothing() -> None:
    interval = ratio_interval([1.0], [2.0], paired=False)
    assert (interval.ratio, interval.low, interval.high) == (2.0, 0.0, float("inf"))


def test_wilson_is_scipys() -> None:
    expected = stats.binomtest(3, 80).proportion_ci(method="wilson")
    found = wilson(3, 80)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
