"""Successive halving: the rules, and how often it finds a known best among many candidates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from serde_lab.analysis.ratios import Ratio, ratio_of
from serde_lab.analysis.search import CandidateRatios, decide, halve

ROUNDS = (3, 3, 6)


def seen(low: float, high: float, cpu: tuple[float, float] | None = None) -> CandidateRatios:
    """The evidence of an interval whose middle is the ratio."""
    wall, of_cpu = (
        None if one is None else Ratio(math.sqrt(one[0] * one[1]), *one, 5)
        for one in ((low, high), cpu)
    )
    assert wall is not None
    return CandidateRatios(wall, of_cpu)


def test_the_better_half_stays_and_what_is_surely_worse_goes() -> None:
    entrants = {
        "worse": seen(1.05, 1.2),
        "slow": seen(0.95, 1.2),
        "best": seen(0.8, 0.9),
        "good": seen(0.85, 0.95),
    }
    fates = halve(entrants, spare=0)
    assert list(fates) == list(entrants)
    assert {name for name, fate in fates.items() if fate.stays} == {"best", "good"}
    assert "worse than its start: 1." in fates["worse"].why
    assert "in the worse half, and not the best" in fates["slow"].why


def test_one_that_might_be_the_best_goes_only_if_the_budget_has_no_room_and_it_says_so() -> None:
    entrants = {name: seen(0.7 + n / 100, 1.3 + n / 100) for n, name in enumerate("abcdef")}
    staying = {
        spare: [name for name, fate in halve(entrants, spare).items() if fate.stays]
        for spare in (0, 2, 9)
    }
    assert staying == {0: list("abc"), 2: list("abcde"), 9: list("abcdef")}
    assert "though it might be the best" in halve(entrants, 0)["d"].why
    assert halve(entrants, 2)["e"].why == "in the worse half, but might be the best"


def test_what_an_interval_supports_stays_beside_a_better_half_and_either_measure_can_support() -> (
    None
):
    entrants = {"a": seen(0.5, 0.6), "b": seen(0.5, 0.7), "c": seen(0.9, 0.98), "d": seen(0.9, 1.3)}
    assert [n for n, fate in halve(entrants, 0).items() if fate.stays] == ["a", "b", "c"]
    assert seen(0.9, 1.1, cpu=(0.8, 0.9)).better
    assert not seen(0.8, 0.9, cpu=(1.1, 1.2)).better
    assert not seen(0.9, 1.1).better
    fates = decide({"by_cpu": seen(0.9, 1.1, cpu=(0.8, 0.9)), "by_neither": seen(0.9, 1.1)})
    assert [fate.stays for fate in fates.values()] == [True, False]
    assert "of the CPU" in fates["by_cpu"].why


def test_a_single_round_decides_nothing() -> None:
    once = CandidateRatios(ratio_of([math.log(0.5)]))
    assert not once.better
    assert not once.worse
    assert all(fate.stays for fate in halve({"a": once, "b": once}, spare=1).values())


def search(effects: np.ndarray, rng: np.random.Generator, noise: float) -> list[int]:
    """The candidates that win a search in which candidate n takes exp(effects[n]) of its start's time."""
    rounds: dict[int, list[float]] = {n: [] for n in range(len(effects))}
    left = list(rounds)
    for rung, more in enumerate(ROUNDS, start=1):
        for n in left:
            # of the candidate and of its start in the same round
            rounds[n] += list(effects[n] + rng.normal(0, noise * math.sqrt(2), more))
        evidence = {str(n): CandidateRatios(ratio_of(rounds[n])) for n in left}
        fates = decide(evidence) if rung == len(ROUNDS) else halve(evidence, spare=2)
        left = [n for n in left if fates[str(n)].stays]
    return left


@pytest.mark.parametrize(("noise", "found"), [(0.03, 0.99), (0.08, 0.9)])
def test_a_known_best_is_found_and_candidates_without_effect_seldom_win(
    noise: float, found: float
) -> None:
    rng = np.random.default_rng(84)
    tries, known, false, idle = 100, 0, 0, 0
    for _ in range(tries):
        effects = np.zeros(20)
        effects[7] = math.log(0.8)
        effects[8:14] = math.log(1.1)
        won = search(effects, rng, noise)
        known += 7 in won
        nothing = [n for n in range(20) if effects[n] == 0]
        false += len(set(won) & set(nothing))
        idle += len(nothing)
    assert known >= found * tries
    # one side of a 95 % interval, and halving drops most of them before
    assert false <= 0.05 * idle


def test_an_interval_that_ends_at_1_as_shown_supports_nothing() -> None:
    assert seen(0.9, 0.9996).known[0].range == "0.90 to 1.00"
    assert not seen(0.9, 0.9996).better
    assert not seen(1.0004, 1.1).worse
