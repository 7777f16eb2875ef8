"""Looks, the level that each may spend, and which arms go on."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import UsageError
from serde_lab.gate.compare.sides import Side
from serde_lab.gate.decision import GateResult, Policy
from serde_lab.gate.gating import gate_ab, gate_sides, look, run_adaptively
from serde_lab.gate.statistics import DEFAULT_LOOKS, AlphaSpending, smallest_paired_p, wilson
from serde_lab.runs.directory import load_run
from tests.gate.made_up_sides import STEADY, arm, log_normal, side, write_run

pytestmark = pytest.mark.slow

PLAN = DEFAULT_LOOKS


def test_looks() -> None:
    assert AlphaSpending(6, 4, 15).looks == (6, 10, 14, 15)
    assert AlphaSpending(8, 4, 8).looks == (8,)


@given(st.integers(3, 20), st.integers(1, 6), st.integers(0, 20), st.integers(1, 40))
def test_levels_never_spend_more_than_alpha(first: int, step: int, more: int, family: int) -> None:
    plan = AlphaSpending(first, step, first + more, family=family)
    levels = plan.levels()
    assert sum(levels.values()) <= plan.alpha + 1e-12
    assert levels[plan.maximum] > 0
    for rounds, level in levels.items():
        reachable = smallest_paired_p(rounds) * family <= level
        assert level == 0 or reachable or rounds == plan.maximum


def test_the_level_of_a_cell_is_that_of_the_look_it_reached() -> None:
    levels = PLAN.levels()
    assert PLAN.level(5) == 0
    assert PLAN.level(9) == levels[8]
    assert PLAN.level(99) == levels[20]


@pytest.mark.parametrize(("first", "step", "maximum"), [(2, 1, 9), (9, 1, 8), (6, 0, 9)])
def test_impossible_looks_are_refused(first: int, step: int, maximum: int) -> None:
    with pytest.raises(UsageError, match="expected"):
        AlphaSpending(first, step, maximum)


def both(before: list[float], after: list[float]) -> tuple[Side, Side]:
    return (
        side("a", arm("avro", {"seconds": before}), ab="s"),
        side("b", arm("avro", {"seconds": after}), ab="s"),
    )


def looked(before: list[float], after: list[float], policy: Policy | None = None) -> GateResult:
    return gate_sides(*both(before, after), policy or Policy(), spending=PLAN)


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        (STEADY, [1.3 * v for v in STEADY], False),
        (STEADY, STEADY[::-1], False),
        (log_normal(1, 8, 0.06), log_normal(2, 8, 0.06, 1.06), True),
        (log_normal(1, 8, 0.6), log_normal(2, 8, 0.6), True),
        (log_normal(1, 8, 0.3), log_normal(2, 8, 0.3, 0.2), False),
    ],
    ids=["regression", "same", "between", "noisy", "far better"],
)
def test_only_undecided_cells_go_on(before: list[float], after: list[float], goes_on: bool) -> None:
    found = look(8, looked(before, after), PLAN, Policy())
    assert found.go_on == (("avro",) if goes_on else ())
    assert min(later for later in PLAN.looks if later > found.rounds) == 10
    assert look(20, looked(before, after), PLAN, Policy()).go_on == ()


def test_a_cell_that_no_round_can_decide_does_not_go_on() -> None:
    """Close to the limit, between both verdicts, with too few rounds left to tell."""
    generator = np.random.default_rng(4)
    before = [float(v) for v in np.exp(generator.normal(0, 0.02, 18))]
    after = [
        v * 1.04 * float(np.exp(e))
        for v, e in zip(before, generator.normal(0, 0.08, 18), strict=True)
    ]
    policy = Policy(relative=0.001, absolute=0.0)
    result = looked(before, after, policy)
    assert {f.level for f in result.findings if f.row and f.row.evidence} == {"undecided"}
    assert look(18, result, AlphaSpending(6, 2, 20), policy).go_on == ()
    assert look(18, result, AlphaSpending(6, 2, 2000), policy).go_on == ("avro",)


def test_an_ab_measurement_measures_open_arms_only_and_stops() -> None:
    generator = np.random.default_rng(11)
    truth = {"clear": 1.5, "same": 1.0, "close": 1.07}
    noise = {"clear": 0.01, "same": 0.01, "close": 0.08}
    values: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in truth}
    asked: list[tuple[int, tuple[str, ...]]] = []

    def measure(until: int, arms: tuple[str, ...]) -> None:
        asked.append((until, arms))
        for name in arms or truth:
            for which, factor in enumerate((1.0, truth[name])):
                column = values[name][which]
                while len(column) < until:
                    column.append(factor * float(np.exp(generator.normal(0, noise[name]))))

    def judge(plan: AlphaSpending) -> GateResult:
        sides = [
            side(label, *(arm(n, {"seconds": v[i]}) for n, v in values.items()), ab="s")
            for i, label in enumerate("ab")
        ]
        return gate_sides(*sides, Policy(), spending=plan)

    looks = run_adaptively(PLAN, Policy(), measure, judge)
    assert asked[0] == (6, ())
    # Among three cells no p is small enough before ten rounds.
    assert asked[1:3] == [(8, ("clear", "close")), (10, ("clear", "close"))]
    assert {arms for _, arms in asked[3:]} == {("close",)}
    assert len(values["same"][0]) < 10
    levels = {
        f.row.after_arm: f.level for f in looks[-1].result.findings if f.row and f.row.evidence
    }
    assert levels["clear"] == "regression"
    assert levels["same"] == "passed"
    assert looks[-1].go_on == ()


def test_peeking_holds_the_error_rate() -> None:
    """Significance alone, no limits and no floor, on equal arms: at most alpha over all looks."""
    policy = Policy(relative=0.0, absolute=0.0)
    generator = np.random.default_rng(8)
    alarms = {"spending": 0, "naive": 0}
    trials = 200
    looks = AlphaSpending(first=6, step=4, maximum=18)
    for _ in range(trials):
        before, after = (
            [float(v) for v in np.exp(generator.normal(0, 0.04, 18))] for _ in range(2)
        )
        for name in alarms:
            for rounds in looks.looks:
                sides = both(before[:rounds], after[:rounds])
                plan = looks if name == "spending" else None
                result = gate_sides(*sides, policy, spending=plan)
                verdicts = {str(f.row.verdict) for f in result.findings if f.row}
                if verdicts & {"slower", "faster"}:
                    alarms[name] += 1
                    break
    assert alarms["spending"] / trials <= 0.05
    assert wilson(alarms["naive"], trials).low > 0.05


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_judging_a_finished_ab_measurement_again_gives_the_same(seed: int) -> None:
    before, after = log_normal(seed, 20, 0.05), log_normal(seed + 1, 20, 0.05, 1.08)
    for rounds in PLAN.looks:
        result = looked(before[:rounds], after[:rounds])
        if not look(rounds, result, PLAN, Policy()).go_on:
            break
    assert looked(before[:rounds], after[:rounds]) == result


def test_an_ab_measurement_of_two_runs_is_paired_and_has_its_own_floor(tmp_path: Path) -> None:
    wave = [1 + 0.3 * (n % 4) for n in range(8)]
    runs = [
        load_run(
            write_run(
                tmp_path,
                name,
                {"avro": [w * factor * s for w, s in zip(wave, shifted, strict=True)]},
                settings={"sitting": "pull 7"},
            )
        )
        for name, factor, shifted in (
            ("a", 1.0, STEADY),
            ("b", 1.1, STEADY[::-1]),
            ("a2", 1.0, STEADY[3:] + STEADY[:3]),
        )
    ]
    result = gate_ab(*runs)
    assert result.exit_status == 3
    row = next(f.row for f in result.of_level("regression") if f.row)
    assert row.evidence is not None
    assert row.evidence.paired
    assert row.floor.source == "A/A of avro"
    stranger = load_run(write_run(tmp_path, "c", {"avro": STEADY}))
    with pytest.raises(UsageError, match="A/B measurement"):
        gate_ab(runs[0], stranger)


def test_option_sets_are_compared_on_request(tmp_path: Path) -> None:
    runs = [
        load_run(
            write_run(
                tmp_path,
                name,
                {"avro": STEADY},
                settings={"sitting": "s"},
                arms=[{"arm": "avro", "strategy": "avro", "options": {"rows_per_frame": rows}}],
            )
        )
        for name, rows in (("a", 1), ("b", 1000))
    ]
    assert gate_ab(*runs).exit_status == 1
    assert gate_ab(*runs, across_options=True).exit_status == 0
