"""The triple rule, what is never a pass, and which exit status wins."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.errors import ScenarioError, worst
from serde_lab.gate.compare.rows import Comparison
from serde_lab.gate.compare.sides import Side
from serde_lab.gate.compare.verdict import Status
from serde_lab.gate.decision import GateResult, Policy, decide
from serde_lab.gate.gating import gate_sides
from tests.gate.made_up_sides import STEADY, arm, calm, log_normal, one_metric, side

LAX = Policy(relative=0.05, absolute=0.02)


def times(factor: float) -> list[float]:
    return [factor * value for value in STEADY]


def gated(after: Side, policy: Policy = LAX, before: Side | None = None, **how: bool) -> GateResult:
    return gate_sides(before or one_metric("a", STEADY), after, policy, **how)


def levels(result: GateResult) -> set[str]:
    return {
        finding.level
        for finding in result.findings
        if finding.row is None
        or (finding.row.quantity.metric != "contents" or finding.level != "passed")
    }


@pytest.mark.parametrize(
    ("factor", "policy", "status"),
    [
        (1.2, Policy(relative=0.05, absolute=0.02), 3),
        (1.2, Policy(relative=0.25, absolute=0.02), 0),
        (1.2, Policy(relative=0.05, absolute=0.25), 0),
        (1.04, Policy(relative=0.05, absolute=0.02), 0),
        (0.8, Policy(relative=0.05, absolute=0.02), 0),
    ],
    ids=["all three", "within relative", "within absolute", "small", "faster"],
)
def test_a_regression_is_significant_and_beyond_both_limits(
    factor: float, policy: Policy, status: int
) -> None:
    assert gated(one_metric("b", times(factor)), policy).exit_status == status


def test_a_regression_must_be_significant() -> None:
    mixed = one_metric("b", [1.4, 0.97, 1.3, 1.31, 1.35, 1.32])
    before = one_metric("a", STEADY[:6])
    assert gated(mixed, before=before).exit_status == 0
    assert gated(mixed, replace(LAX, alpha=0.9), before=before).exit_status == 3


def test_a_regression_must_be_above_the_noise_floor() -> None:
    twin = {"kind": "strategy", "strategy": "avro"}

    def run(label: str, factor: float) -> Side:
        noisy = [v * (1.3 if n % 2 else 1) for n, v in enumerate(times(factor))]
        again = arm("again", {"seconds": noisy}, definition=twin, place=1)
        return side(label, arm("avro", {"seconds": times(factor)}), again)

    result = gated(run("b", 1.1), before=run("a", 1.0))
    assert "regression" not in levels(result)
    assert result.exit_status == 0
    assert gated(run("b", 1.6), before=run("a", 1.0)).exit_status == 3


def test_the_limit_is_compared_as_it_is_shown() -> None:
    """5.04 % is shown as 1.050 and is not beyond a limit of 5 %; 5.06 % is shown as 1.051."""
    policy = Policy(relative=0.05, absolute=0.0)
    assert gated(one_metric("b", times(1.0504)), policy).exit_status == 0
    assert gated(one_metric("b", times(1.0506)), policy).exit_status == 3


def test_what_might_be_a_regression_is_undecided_and_not_passed() -> None:
    noisy = one_metric("a", log_normal(1, 5, 0.2)), one_metric("b", log_normal(2, 5, 0.2))
    result = gated(noisy[1], before=noisy[0])
    assert levels(result) == {"undecided"}
    assert result.exit_status == 0
    assert gated(noisy[1], before=noisy[0], strict=True).exit_status == 5
    assert "not excluded" in result.of_level("undecided")[0].text


@pytest.mark.parametrize("faster_by", [1.0, 1.04, 1.3, 1.46])
def test_a_machine_that_moved_by_more_than_the_limits_lets_no_time_pass(faster_by: float) -> None:
    """It hid a regression: times a fifth lower on a machine that is 1.46 times as fast had passed."""
    before = one_metric("a", STEADY, calibration=calm(8, 0.1 * faster_by))
    after = one_metric("b", times(1.17 / faster_by), calibration=calm(8))
    assert "passed" not in levels(gated(after, before=before))
    unchanged = one_metric("b", STEADY, calibration=calm(8))
    wanted = {"passed"} if faster_by < 1.05 else {"undecided"}
    assert levels(gated(unchanged, before=before)) == wanted


def test_too_few_rounds_and_other_machines_are_undecided() -> None:
    both = side("a", arm("avro", {"seconds": STEADY, "frame_bytes": [5.0] * 8}))
    few = side("b", arm("avro", {"seconds": [1.0, 1.0], "frame_bytes": [5.0] * 2}))
    assert gated(few, before=both, strict=True).exit_status == 5
    other = replace(both, label="b", machine_class="other")
    assert gated(other, before=both).exit_status == 0
    assert gated(other, before=both, strict=True).exit_status == 5


def test_across_machines_all_that_the_rounds_allow_must_lie_beyond_the_limit() -> None:
    native = {"kind": "control", "control": "spark_native"}

    def run(label: str, values: list[float]) -> Side:
        arms = (arm("avro", {"seconds": values}), arm("n", {"seconds": STEADY}, definition=native))
        return side(label, *arms, machine_class=label)

    def status(values: list[float]) -> int:
        options: dict[str, Any] = {"host_mismatch": "ratios", "strict": True}
        policy = Policy(metrics=("seconds",), control="n")
        found = gate_sides(run("a", STEADY), run("b", values), policy, **options)
        assert [f.level for f in found.of_level("regression")] in ([], ["regression"])
        return found.exit_status

    assert status(times(1.6)) == 3
    assert status([1.2, 1.25, 1.3, 1.75, 1.8, 1.85, 1.9, 1.95]) == 5


def test_a_shared_machine_has_no_time_but_cpu_time_beside_cpu_time() -> None:
    """Not even where it is of the same class."""

    def run(label: str, wall: float, cpu: float) -> Side:
        phases = {"serde_cpu_s": times(cpu), "phase_cpu_s map.encode": times(cpu)}
        fixed = {"serde_cpu_s": STEADY, "phase_cpu_s map.encode": STEADY}
        arms = (
            arm("avro", {"seconds": times(wall), **phases}),
            arm("arrow", {"seconds": STEADY, **fixed}),
        )
        return side(label, *arms)

    def levels_of(after: Side, control: str) -> dict[str, str]:
        policy = Policy(metrics=("seconds", "serde_cpu_s"), control=control)
        found = gate_sides(run("a", 1, 1), after, policy, host_mismatch="shared")
        rows = [f for f in found.findings if f.row and f.row.arm == "avro"]
        return {f.row.quantity.metric: f.level for f in rows if f.row}

    slow = run("b", 9, 1)
    assert levels_of(slow, "arrow") == {
        "contents": "passed", "seconds": "undecided", "serde_cpu_s": "passed",
    }  # fmt: skip
    assert levels_of(run("b", 1, 2), "arrow")["serde_cpu_s"] == "regression"
    native = {"kind": "control", "control": "spark_native"}
    walls = [
        replace(one, arms={**one.arms, "n": arm("n", {"seconds": STEADY}, definition=native)})
        for one in (run("a", 1, 1), run("b", 9, 9))
    ]
    policy = Policy(metrics=("seconds", "serde_cpu_s", "frames"), control="n")
    found = gate_sides(*walls, policy, host_mismatch="shared")
    assert "nothing was compared" in found.findings[0].text


def test_one_byte_fails_the_gate_and_one_byte_less_does_not() -> None:
    before = one_metric("a", [1000.0], "frame_bytes")
    assert gated(one_metric("b", [1001.0], "frame_bytes"), before=before).exit_status == 3
    assert gated(one_metric("b", [999.0], "frame_bytes"), before=before).exit_status == 0


class TestNeverAPass:
    def test_a_wrong_answer(self) -> None:
        wrong = side("b", arm("avro", {"seconds": STEADY}, failures=["oracle: row 7"]))
        assert gated(wrong).exit_status == 4

    def test_an_arm_that_vanished(self) -> None:
        before = side("a", arm("avro", {"seconds": STEADY}), arm("arrow", {"seconds": STEADY}))
        result = gated(one_metric("b", STEADY), before=before)
        assert result.exit_status == 1
        assert "arrow" in {f.row.arm for f in result.of_level("failed") if f.row}

    def test_a_value_that_vanished(self) -> None:
        before = side("a", arm("avro", {"seconds": STEADY, "frame_bytes": [9.0]}))
        assert gated(one_metric("b", STEADY), before=before).exit_status == 1

    def test_an_arm_that_raised(self) -> None:
        some = arm("avro", {"seconds": STEADY}, errors=["round 3 raised: boom"])
        assert gated(side("b", some)).exit_status == 1
        assert gated(side("b", arm("avro", {}, errors=["round 1 raised: boom"]))).exit_status == 1

    def test_an_arm_whose_contents_went_unchecked(self) -> None:
        unchecked = side("b", arm("avro", {"seconds": STEADY}, checks_passed=0))
        assert gated(unchecked).exit_status == 1

    def test_an_empty_comparison(self) -> None:
        assert gated(side("b"), before=side("a")).exit_status == 1
        other = one_metric("b", STEADY, asked={"table": {"buckets": 4}})
        result = gated(other)
        assert result.exit_status == 1
        assert "nothing was compared" in result.findings[0].text

    def test_a_comparison_of_contents_alone(self) -> None:
        only = one_metric("a", STEADY, "worker_start_s")
        assert gated(replace(only, label="b"), before=only).exit_status == 1

    def test_metrics_that_nobody_measured(self) -> None:
        policy = Policy(metrics=("frames",))
        assert gated(one_metric("b", STEADY), policy).exit_status == 1


def test_a_new_arm_has_nothing_to_be_held_against() -> None:
    after = side("b", arm("avro", {"seconds": STEADY}), arm("new", {"seconds": STEADY}))
    assert gated(after).exit_status == 0
    assert gated(after, strict=True).exit_status == 5


@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5]), min_size=1, max_size=8))
def test_precedence_is_1_2_4_3_5(statuses: list[int]) -> None:
    expected = next(s for s in (1, 2, 4, 3, 5, 0) if s in statuses)
    assert worst(statuses) == expected
    assert all(worst(order) == expected for order in list(permutations(statuses))[:24])


def test_precedence_reaches_the_exit_status() -> None:
    arms = {
        "slow": arm("slow", {"seconds": times(1.5)}),
        "noisy": arm("noisy", {"seconds": log_normal(1, 5, 0.3)}),
        "wrong": arm("wrong", {"seconds": STEADY}, failures=["oracle: no"]),
        "fine": arm("fine", {"seconds": STEADY}),
    }
    before = side("a", *(arm(name, {"seconds": STEADY}) for name in arms))

    def status(*names: str, gone: bool = False) -> int:
        base = replace(before, arms={n: before.arms[n] for n in (*names, *(["fine"] * gone))})
        return gated(side("b", *(arms[n] for n in names)), before=base, strict=True).exit_status

    assert status("fine") == 0
    assert status("noisy") == 5
    assert status("slow", "noisy") == 3
    assert status("wrong", "slow", "noisy") == 4
    assert status("wrong", "slow", "noisy", gone=True) == 1


class TestPolicy:
    def test_overrides_narrow_and_the_last_that_fits_wins(self) -> None:
        table = {
            "relative": 0.05,
            "limit": [
                {"metric": "seconds", "relative": 0.1, "arm": None},
                {"arm": "avro", "metric": "seconds", "relative": 0.3},
                {"arm": "arrow", "relative": 0.2, "absolute": 0.5},
            ],
        }
        policy = Policy.from_table(table)
        rows = {
            name: gated(
                side("b", arm(name, {"seconds": times(1.25)})),
                policy,
                before=side("a", arm(name, {"seconds": STEADY})),
            )
            for name in ("avro", "arrow", "pickle")
        }
        assert {name: result.exit_status for name, result in rows.items()} == {
            "avro": 0,
            "arrow": 0,
            "pickle": 3,
        }

    def test_a_phase_is_gated_where_a_limit_names_it(self) -> None:
        def run(label: str, factor: float) -> Side:
            phases = {f"phase_cpu_s map.{v}": times(factor) for v in ("encode", "decode")}
            return side(label, arm("avro", {"seconds": STEADY, **phases}))

        assert gated(run("b", 2), before=run("a", 1)).exit_status == 0
        policy = Policy.from_table({"limit": [{"phase": "map.encode", "relative": 0.2}]})
        result = gated(run("b", 2), policy, before=run("a", 1))
        assert result.exit_status == 3
        judged = {f.row.quantity.phase for f in result.findings if f.row} - {""}
        assert judged == {"map.encode"}

    def test_memory_has_a_wide_limit_of_its_own(self) -> None:
        def run(label: str, factor: float) -> Side:
            return one_metric(label, [2e8 * v for v in times(factor)], "peak_worker_rss_bytes")

        assert gated(run("b", 1.25), before=run("a", 1)).exit_status == 0
        assert gated(run("b", 1.4), before=run("a", 1)).exit_status == 3

    def test_a_limit_of_an_arms_times_is_none_of_its_memory(self) -> None:
        policy = Policy.from_table({"limit": [{"relative": 0.01, "absolute": 0.005}]})
        before, after = (
            one_metric(label, [1e8 * v for v in times(factor)], "peak_worker_rss_bytes")
            for label, factor in (("a", 1), ("b", 1.25))
        )
        assert gated(after, policy, before=before).exit_status == 0
        named = {"metric": "peak_worker_rss_bytes", "relative": 0.1, "absolute": 1e6}
        policy = Policy.from_table({"limit": [named]})
        assert gated(after, policy, before=before).exit_status == 3

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ({"tolerance": 0.1}, "no key 'tolerance'; known are absolute, alpha"),
            ({"limit": [{"stage": "map"}]}, r"\[gate.limit\] has no key 'stage'"),
            ({"relative": -1}, "relative is -1"),
            ({"absolute": True}, "absolute is True"),
            ({"metrics": ["second"]}, "'second' is no metric"),
        ],
    )
    def test_mistakes_are_named(self, table: dict[str, object], words: str) -> None:
        with pytest.raises(ScenarioError, match=words):
            Policy.from_table(table)

    def test_the_scenarios_own_table_is_the_default(self) -> None:
        after = one_metric("b", times(1.2), gate_table={"relative": 0.5})
        assert gate_sides(one_metric("a", STEADY), after).exit_status == 0

    def test_what_a_scenario_file_may_say_the_gate_understands(self) -> None:
        from serde_lab.scenario.sections import Gate, GateLimit

        limit = {"arm": "avro", "phase": "map.encode", "metric": "phase_cpu_s", "relative": 0.2}
        full = Gate(
            relative=0.1,
            absolute=0.1,
            bytes=0.01,
            memory=0.4,
            alpha=0.01,
            metrics=("seconds",),
            control="x",
            limit=(GateLimit(**limit, absolute=0.1),),
        )
        for gate in (full, Gate()):
            Policy.from_table(gate.model_dump(mode="json", by_alias=True))
        assert set(Gate.model_fields) == set(Policy.__slots__)


def test_nothing_at_all_is_a_failure() -> None:
    assert decide(Comparison("a", "b", "smoke", ()), Policy()).exit_status == Status.FAILED
