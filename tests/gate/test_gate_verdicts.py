"""Each verdict, reached with made-up samples; what may be compared; which rounds count."""

import json
from dataclasses import replace
from statistics import median
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.analysis.rounding import shown_ratio, shown_value
from serde_lab.cli.app import main
from serde_lab.errors import UsageError
from serde_lab.gate.compare.comparability import HostMismatch, obstacles
from serde_lab.gate.compare.comparison import compare_sides
from serde_lab.gate.compare.evidence import gather, rounds_needed
from serde_lab.gate.compare.rows import CompareOptions, Comparison, Row
from serde_lab.gate.compare.sides import Side
from serde_lab.gate.compare.verdict import NoisyLimits, Verdict, judge_noisy
from serde_lab.gate.decision import GateResult, Policy
from serde_lab.gate.gating import gate_sides
from serde_lab.gate.output.verdict_pages import render_gate
from serde_lab.measure.code_version import CLOCK, SAMPLES, TASKS
from tests.gate.made_up_sides import MACHINE, STEADY, arm, calm, log_normal, one_metric, side

SLOWER_BY_A_FIFTH = [1.2 * value for value in STEADY]


def seconds_row(before: Side, after: Side, options: CompareOptions | None = None) -> Row:
    comparison = compare_sides(before, after, options)
    return next(row for row in comparison.rows if row.quantity.metric == "seconds")


def only_row(comparison: Comparison) -> Row:
    return next(row for row in comparison.rows if row.quantity.metric != "contents")


def test_slower_and_faster() -> None:
    before, after = one_metric("a", STEADY), one_metric("b", SLOWER_BY_A_FIFTH)
    row = seconds_row(before, after)
    assert row.verdict is Verdict.SLOWER
    assert row.ratio == 1.2
    assert [one.holds for one in row.judgement.inequalities] == [True, True, True]
    assert seconds_row(after, before).verdict is Verdict.FASTER


def test_a_verdict_goes_the_way_of_the_rounds_though_the_medians_went_the_other() -> None:
    """Rounds that differ much from each other: slower in eleven of twelve, and yet the medians fall."""
    before = [0.71, 0.74, 0.8, 0.84, 0.93, 0.97, 1.1, 1.2, 1.25, 1.31, 1.38, 1.6]
    after = [1.03 * value for value in before]
    after[6] = 0.3
    assert sorted(after)[5] + sorted(after)[6] < sorted(before)[5] + sorted(before)[6]
    first, second = one_metric("a", before, ab="s"), one_metric("b", after, ab="s")
    row = seconds_row(first, second)
    assert (row.verdict, row.ratio) == (Verdict.SLOWER, 1.03)
    row = seconds_row(second, first)
    assert (row.verdict, row.ratio) == (Verdict.FASTER, 0.971)
    (note,) = compare_sides(first, second).notes
    assert note.startswith("avro, seconds: the medians differ in the other direction")


@settings(deadline=None)
@given(
    metric=st.sampled_from(["seconds", "rows_per_s"]),
    rounds=st.integers(3, 24),
    shift=st.sampled_from([0.9, 0.97, 1.0, 1.03, 1.1]),
    noise=st.sampled_from([0.0, 0.005, 0.05]),
    drift=st.sampled_from([0.0, 0.3, 0.6]),
    odd=st.sampled_from([0.3, 0.9995, 1.0, 1.0005, 3.0]),
    odd_rounds=st.integers(0, 12),
    seed=st.integers(0, 999),
    paired=st.booleans(),
)
def test_verdict_interval_p_and_every_output_show_one_direction(
    metric: str,
    rounds: int,
    shift: float,
    noise: float,
    drift: float,
    odd: float,
    odd_rounds: int,
    seed: int,
    paired: bool,
) -> None:
    machine = log_normal(seed, rounds, drift)
    before = [a * b for a, b in zip(machine, log_normal(seed + 1, rounds, noise), strict=True)]
    after = [
        a * b for a, b in zip(machine, log_normal(seed + 2, rounds, noise, shift), strict=True)
    ]
    for place in range(odd_rounds):
        after[(seed + place) % rounds] *= odd
    sides = (
        one_metric(label, of, metric, ab="s" if paired else "")
        for label, of in (("a", before), ("b", after))
    )
    result = gate_sides(*sides, Policy(relative=0.02, absolute=0.0, metrics=(metric,)))
    row = only_row(result.comparison)
    found, level = row.evidence, result.level_of(row)
    assert found is not None
    assert found.interval is not None
    assert found.paired == paired
    assert level != "regression" or row.verdict is Verdict.SLOWER
    assert row.verdict is not Verdict.FASTER or level == "passed"
    if row.verdict in (Verdict.SLOWER, Verdict.FASTER):
        rose = (row.verdict is Verdict.SLOWER) == (metric == "seconds")
        assert found.way == (1 if rose else -1)
        assert found.adjusted_p <= row.alpha
        assert found.interval.low > 1 if rose else found.interval.high < 1
        assert (found.interval.ratio > 1) == rose
        if paired:
            ratios = [b / a for a, b in zip(before, after, strict=True)]
            assert (median(ratios) > 1) == rose
            went = [ratio > 1 for ratio in ratios]
            assert went.count(rose) > went.count(not rose)
        else:
            assert (median(after) > median(before)) == rose
        assert ("a rise of" in row.judgement.because) == rose
        assert ("a fall of" in row.judgement.because) != rose
    _shows_the_same(result, row, level)


def _shows_the_same(result: GateResult, row: Row, level: str) -> None:
    """Terminal, JSON and JUnit have the level, ratio, interval and sentence of `row`."""
    assert row.evidence is not None
    assert row.evidence.interval is not None
    document = json.loads(render_gate(result, "json"))
    (in_json,) = (one for one in document["comparison"]["rows"] if one["test"])
    (finding,) = (one for one in document["findings"] if one["quantity"] == row.quantity.label)
    assert (in_json["level"], in_json["verdict"]) == (level, row.verdict)
    assert (finding["level"], finding["verdict"]) == (level, row.verdict)
    interval = row.evidence.interval
    ends = in_json["interval"]["low"], in_json["interval"]["high"]
    assert (in_json["ratio"], *ends) == (interval.ratio, interval.low, interval.high)
    assert in_json["test"]["adjusted_p"] == row.evidence.adjusted_p
    suite = ElementTree.fromstring(render_gate(result, "junit"))
    (case,) = suite.findall(f"testcase[@name='{row.quantity.label}']")
    failure = case.find("failure")
    assert (failure is not None) == (level == "regression")
    assert failure is None or failure.get("message") == finding["text"]
    line = next(
        x for x in render_gate(result, cells=True).splitlines() if f" {row.quantity.label} " in x
    )
    assert f" {shown_ratio(interval.ratio)} " in line
    assert f" {shown_ratio(interval.low)}..{shown_ratio(interval.high)} " in line
    assert line.rstrip().endswith(level)


def test_two_lumps_whose_medians_and_ranks_differ_are_undecided() -> None:
    """Most of the slower values are above the faster ones, but the median is below."""
    before = [0.5 + n / 1e4 for n in range(16)] + [1 + n / 1e4 for n in range(24)]
    after = [0.9 + n / 1e4 for n in range(24)] + [2 + n / 1e4 for n in range(16)]
    row = seconds_row(one_metric("a", before), one_metric("b", after))
    assert row.verdict is Verdict.INCONCLUSIVE
    assert "shows a rise, but the interval" in row.judgement.because


def test_higher_can_be_better() -> None:
    options = CompareOptions(metrics=("rows_per_s",))
    before = one_metric("a", STEADY, "rows_per_s")
    after = one_metric("b", SLOWER_BY_A_FIFTH, "rows_per_s")
    assert only_row(compare_sides(before, after, options)).verdict is Verdict.FASTER


def test_same_needs_an_interval_within_the_margin() -> None:
    row = seconds_row(one_metric("a", STEADY), one_metric("b", STEADY[::-1]))
    assert row.verdict is Verdict.SAME
    wide = log_normal(1, 8, 0.2), log_normal(2, 8, 0.2)
    row = seconds_row(one_metric("a", wide[0]), one_metric("b", wide[1]))
    assert row.verdict is Verdict.INCONCLUSIVE
    assert "too wide" in row.judgement.because


def test_noise_is_a_difference_up_to_the_floor() -> None:
    slightly = [1.03 * value for value in STEADY]
    spread = {n: {"numpy": 0.1 * (0.92 if n % 2 else 1.08)} for n in range(1, 9)}
    before = one_metric("a", STEADY, calibration=spread)
    after = one_metric("b", slightly, calibration=spread)
    row = seconds_row(before, after)
    assert row.floor.source == "calibration"
    assert row.floor.change > 0.03
    assert row.verdict is Verdict.NOISE
    assert seconds_row(one_metric("a", STEADY), one_metric("b", slightly)).verdict is Verdict.SLOWER


@pytest.mark.parametrize("rounds", [1, 2])
def test_insufficient_below_three_rounds(rounds: int) -> None:
    row = seconds_row(one_metric("a", STEADY), one_metric("b", SLOWER_BY_A_FIFTH[:rounds]))
    assert row.verdict is Verdict.INSUFFICIENT


def test_missing_arm_and_missing_value() -> None:
    both = side("a", arm("avro", {"seconds": STEADY}), arm("arrow", {"seconds": STEADY}))
    comparison = compare_sides(both, one_metric("b", STEADY))
    gone = next(row for row in comparison.rows if row.after_arm == "arrow")
    assert gone.verdict is Verdict.MISSING
    assert not gone.new
    comparison = compare_sides(one_metric("b", STEADY), both)
    assert next(row for row in comparison.rows if row.after_arm == "arrow").new
    without = compare_sides(one_metric("a", STEADY), one_metric("b", [5.0] * 3, "frame_bytes"))
    assert {row.quantity.metric: row.verdict for row in without.rows} == {
        "contents": Verdict.SAME,
        "seconds": Verdict.MISSING,
        "frame_bytes": Verdict.MISSING,
    }


def test_wrong_answer_shows_no_timing() -> None:
    wrong = side("b", arm("avro", {"seconds": STEADY}, failures=["oracle: row 7 differs"]))
    comparison = compare_sides(one_metric("a", STEADY), wrong)
    assert [row.verdict for row in comparison.rows] == [Verdict.WRONG_ANSWER]
    assert comparison.rows[0].ratio is None
    assert comparison.exit_status() == 4
    whole = one_metric("b", STEADY, failures=("agreement: avro and arrow differ",))
    assert compare_sides(one_metric("a", STEADY), whole).rows[0].verdict is Verdict.WRONG_ANSWER


def test_unchecked_is_a_verdict_and_no_time_is_compared() -> None:
    checked = one_metric("a", STEADY)
    unchecked = side("b", arm("avro", {"seconds": STEADY}, checks_passed=0))
    for pair in ((checked, unchecked), (unchecked, checked)):
        comparison = compare_sides(*pair)
        assert [row.verdict for row in comparison.rows] == [Verdict.UNCHECKED]
        assert comparison.exit_status() == 1


def test_a_wide_noise_floor_makes_nothing_the_same() -> None:
    rows = [1.0, 1.3, 0.75, 1.2, 0.8, 1.1]
    found = gather(
        dict(enumerate(rows)), dict(enumerate(0.9 * v for v in rows)), paired=False, family=1
    )
    judged = judge_noisy(found, NoisyLimits(floor=2.0, floor_source="the control"), "lower")
    assert judged.verdict is Verdict.NOISE
    assert "lies within the noise floor" in judged.because


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("asked", {"table": {"buckets": 4}}, "table.buckets changed from 8 to 4"),
        ("data_checksums", {"commit 1": "bb"}, "checksum of commit 1"),
        ("measuring_code", "m2", "measuring code"),
        ("results_format", 2, "results format"),
    ],
)
def test_not_comparable_when_something_else_is_asked(field: str, value: object, words: str) -> None:
    before = side("a", arm("avro", {"seconds": STEADY, "frame_bytes": [9] * 3}))
    after = replace(before, label="b", **{field: value})
    comparison = compare_sides(before, after)
    rows = [row for row in comparison.rows if row.quantity.metric != "contents"]
    assert {row.verdict for row in rows} == {Verdict.NOT_COMPARABLE}
    assert words in rows[0].judgement.because
    assert comparison.judged == 0
    assert comparison.exit_status() == 1


def test_an_instrument_that_changed_leaves_the_metrics_of_others_comparable() -> None:
    metrics = {"seconds": STEADY, "frame_bytes": [9] * 3, "serde_cpu_s": STEADY}
    before = side("a", arm("avro", metrics), instruments={TASKS: "1", CLOCK: "1", SAMPLES: "1"})
    after = replace(
        before, label="b", measuring_code="m2", instruments={**before.instruments, TASKS: "2"}
    )
    rows = {row.quantity.metric: row for row in compare_sides(before, after).rows}
    assert rows["serde_cpu_s"].verdict is Verdict.NOT_COMPARABLE
    assert rows["serde_cpu_s"].judgement.because == "the measuring code changed: clock of tasks"
    assert rows["frame_bytes"].verdict is Verdict.SAME
    assert rows["seconds"].verdict is Verdict.SAME


def test_a_side_without_instruments_is_compared_by_the_whole_measuring_code() -> None:
    older = side("a", arm("avro", {"seconds": STEADY}))
    newer = replace(older, label="b", instruments={CLOCK: "1"})
    seconds = compare_sides(older, newer).rows[1]
    assert seconds.verdict is Verdict.SAME
    seconds = compare_sides(older, replace(newer, measuring_code="m2")).rows[1]
    assert seconds.verdict is Verdict.NOT_COMPARABLE
    assert "measuring code" in seconds.judgement.because


def test_an_arm_asked_differently_leaves_the_others_comparable() -> None:
    def two(rows_per_frame: int) -> Side:
        changed = {"kind": "strategy", "options": {"rows_per_frame": rows_per_frame}}
        return side(
            "a",
            arm("avro", {"seconds": STEADY}),
            arm("arrow", {"seconds": STEADY}, definition=changed),
        )

    comparison = compare_sides(two(1), two(1000))
    verdicts = {row.after_arm: row for row in comparison.rows if row.quantity.metric == "seconds"}
    assert verdicts["avro"].verdict is Verdict.SAME
    assert verdicts["arrow"].verdict is Verdict.NOT_COMPARABLE
    assert "rows_per_frame is 1 before and 1000 after" in verdicts["arrow"].judgement.because


def test_judged_code_never_stands_in_the_way() -> None:
    """Only the measuring code is a part of a side: another commit of a strategy is the subject."""
    assert obstacles(one_metric("a", STEADY), one_metric("b", STEADY), "refuse").everything == ""


class TestOtherMachines:
    values = staticmethod(
        lambda factor, slower=1.0: side(
            "a",
            arm("avro", {"seconds": [factor * slower * v for v in STEADY], "frame_bytes": [9] * 8}),
            arm(
                "spark_native",
                {"seconds": [factor * 0.5 * v for v in STEADY]},
                definition={"kind": "control", "control": "spark_native"},
            ),
        )
    )

    def rows(self, mismatch: HostMismatch, slower: float = 1.0) -> dict[tuple[str, str], Row]:
        before = self.values(1.0)
        after = replace(self.values(3.0, slower), label="b", machine_class="other")
        options = CompareOptions(host_mismatch=mismatch)
        rows = compare_sides(before, after, options).rows
        return {(row.after_arm, row.quantity.metric): row for row in rows}

    def test_refuse_compares_exact_quantities_only(self) -> None:
        rows = self.rows("refuse")
        assert rows["avro", "seconds"].verdict is Verdict.NOT_COMPARABLE
        assert MACHINE in rows["avro", "seconds"].judgement.because
        assert rows["avro", "frame_bytes"].verdict is Verdict.SAME

    def test_ratios_hold_times_against_the_control_arm_with_a_wide_limit(self) -> None:
        row = self.rows("ratios")["avro", "seconds"]
        assert row.scale == "x spark_native"
        assert row.verdict is Verdict.SAME
        assert self.rows("ratios", slower=1.4)["avro", "seconds"].verdict is Verdict.NOISE
        assert self.rows("ratios", slower=1.6)["avro", "seconds"].verdict is Verdict.SLOWER
        control = self.rows("ratios")["spark_native", "seconds"]
        assert control.verdict is Verdict.NOT_COMPARABLE

    def test_ignore_compares_as_if_it_were_one_machine(self) -> None:
        assert self.rows("ignore")["avro", "seconds"].verdict is Verdict.SLOWER

    def test_unknown_policies_are_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compare", "a", "b", "--host-mismatch", "perhaps"]) == 2
        assert "'refuse', 'ratios', 'ignore'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([100, 100], [100, 100, 100], Verdict.SAME),
        ([100], [101], Verdict.SLOWER),
        ([10**12], [10**12 + 1], Verdict.SLOWER),
        ([100], [99], Verdict.FASTER),
        ([100, 100], [100, 101], Verdict.SLOWER),
        ([100, 101], [100, 101], Verdict.INCONCLUSIVE),
        ([100, 103], [101, 102], Verdict.INCONCLUSIVE),
        ([100, 103], [99, 102], Verdict.FASTER),
    ],
)
def test_one_byte_is_a_change(before: list[float], after: list[float], verdict: Verdict) -> None:
    comparison = compare_sides(
        one_metric("a", before, "frame_bytes"), one_metric("b", after, "frame_bytes")
    )
    assert only_row(comparison).verdict is verdict


def test_any_change_of_what_must_stay_equal_is_worse() -> None:
    for rows in (99, 101):
        comparison = compare_sides(one_metric("a", [100], "rows"), one_metric("b", [rows], "rows"))
        assert only_row(comparison).verdict is Verdict.SLOWER


def test_a_byte_that_moved_between_commits_is_not_hidden_by_the_sum() -> None:
    before = side("a", arm("avro", {"frames": [20], "frames #1": [10], "frames #2": [10]}))
    after = side("b", arm("avro", {"frames": [20], "frames #1": [11], "frames #2": [9]}))
    verdicts = {r.quantity.label: r.verdict for r in compare_sides(before, after).rows}
    assert verdicts["frames"] is Verdict.SAME
    assert verdicts["frames #1"] is Verdict.SLOWER
    assert verdicts["frames #2"] is Verdict.FASTER


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (1005.0, Verdict.SAME),
        (1006.0, Verdict.SLOWER),
        (995.1, Verdict.SAME),
        (994.0, Verdict.FASTER),
    ],
)
def test_compressed_bytes_to_half_a_percent(after: float, verdict: Verdict) -> None:
    comparison = compare_sides(
        one_metric("a", [1000] * 3, "shuffle_bytes"), one_metric("b", [after] * 3, "shuffle_bytes")
    )
    assert only_row(comparison).verdict is verdict


def test_a_median_of_bytes_keeps_its_digits() -> None:
    """Of an even number of rounds it may end on a half, and was then shown with four digits and zeros."""
    row = only_row(
        compare_sides(
            one_metric("a", [455_218_260, 455_218_261] * 2, "shuffle_bytes"),
            one_metric("b", [455_216_514] * 4, "shuffle_bytes"),
        )
    )
    assert row.before is not None
    assert shown_value(row.before.median, row.unit) == "455,218,260 B"
    assert row.judgement.because == "a change of 0.00 %, within 0.50 %"


def test_a_difference_without_a_known_floor_is_not_said_to_be_above_one() -> None:
    judgement = seconds_row(
        one_metric("a", STEADY), one_metric("b", [2 * one for one in STEADY])
    ).judgement
    assert judgement.verdict is Verdict.SLOWER
    assert "a rise of 100.00 % is found, with no noise floor known" in judgement.because


def test_compressed_bytes_that_overlap_are_inconclusive() -> None:
    comparison = compare_sides(
        one_metric("a", [1000, 1000, 1020], "table_bytes"),
        one_metric("b", [1010, 1015, 1015], "table_bytes"),
    )
    assert only_row(comparison).verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(0.5, 1.0), min_size=3, max_size=9),
    st.lists(st.floats(1.0009765625, 5), min_size=3, max_size=9),
    st.integers(1, 40),
    st.floats(0, 0.2),
)
def test_perfectly_separated_samples_are_never_the_same(
    low: list[float], high: list[float], family: int, floor: float
) -> None:
    for before, after in ((low, high), (high, low)):
        sides = dict(enumerate(before)), dict(enumerate(after))
        found = gather(*sides, paired=False, family=family)
        assert found.separated
        verdict = judge_noisy(found, NoisyLimits(floor=floor), "lower").verdict
        assert verdict is not Verdict.SAME
        worse = {Verdict.SLOWER, Verdict.NOISE, Verdict.INCONCLUSIVE}
        assert verdict in (worse if before is low else worse - {Verdict.SLOWER} | {Verdict.FASTER})


@pytest.mark.parametrize("n", range(3, 31))
@pytest.mark.parametrize("paired", [True, False])
def test_a_large_clear_difference_is_decided_at_any_number_of_rounds(n: int, paired: bool) -> None:
    """Where the exact p cannot be small enough, separated samples are decided by Student's t."""
    noise = log_normal(n, 2 * n, 0.01)
    before = dict(enumerate(noise[:n]))
    after = dict(enumerate(value * 1.5 for value in noise[n:]))
    found = gather(before, after, paired=paired, family=1)
    judgement = judge_noisy(found, NoisyLimits(), "lower")
    assert judgement.verdict is Verdict.SLOWER
    assert found.reachable == (n >= rounds_needed(1, 0.05, paired=paired))
    if not found.reachable:
        assert "can be reached" in judgement.because
        assert "Student" in judgement.because


def test_rounds_needed_for_an_exact_p() -> None:
    assert rounds_needed(1, 0.05, paired=True) == 6
    assert rounds_needed(1, 0.05, paired=False) == 4
    assert rounds_needed(20, 0.05, paired=True) == 10


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.9, 1.1), min_size=1, max_size=12),
    st.lists(st.floats(0.9, 1.1), min_size=1, max_size=12),
)
def test_turning_the_sides_round_turns_the_verdict_round(
    before: list[float], after: list[float]
) -> None:
    turned = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    limits = NoisyLimits(floor=0.013)
    sides = dict(enumerate(before)), dict(enumerate(after))
    there = judge_noisy(gather(*sides, paired=False, family=1), limits, "lower").verdict
    back = judge_noisy(gather(*sides[::-1], paired=False, family=1), limits, "lower").verdict
    # A ratio and its inverse round apart in the last digit: only at a limit may that show.
    if {there, back} <= turned.keys():
        assert back is turned[there]
    assert (there, back) not in {(Verdict.SLOWER, Verdict.SLOWER), (Verdict.FASTER, Verdict.FASTER)}


def test_zero_has_no_ratio() -> None:
    options = CompareOptions(metrics=("phase_cpu_s",))
    before = one_metric("a", [0.0] * 8, "phase_cpu_s map.route")
    for rounds in (1, 5):
        none = one_metric("b", [0.0] * rounds, "phase_cpu_s map.route")
        comparison = compare_sides(before, none, options)
        assert only_row(comparison).verdict is Verdict.SAME
        assert comparison.family == 0
    after = one_metric("b", STEADY, "phase_cpu_s map.route")
    assert only_row(compare_sides(before, after, options)).verdict is Verdict.INCONCLUSIVE


def test_no_verdict_rests_on_marked_rounds_alone() -> None:
    moved = {n: {"numpy": 0.13 if n > 21 else 0.1} for n in range(1, 41)}
    before = one_metric("a", [1 + n % 3 / 1000 for n in range(40)], calibration=calm(40), ab="s")
    # Slow in 29 of 40 rounds, but in only ten of the 21 in which the machine was steady.
    values = [0.999] * 11 + [1.3 + n / 1000 for n in range(29)]
    after = one_metric("b", values, calibration=moved, ab="s")
    row = seconds_row(before, replace(after, calibration=calm(40)))
    assert row.verdict is Verdict.SLOWER
    row = seconds_row(before, after)
    assert row.marked_rounds == tuple(range(22, 41))
    assert row.verdict is Verdict.INCONCLUSIVE
    assert "speed moved" in row.judgement.because
    slow = one_metric("b", SLOWER_BY_A_FIFTH, calibration={**calm(8), 3: {"numpy": 0.2}})
    row = seconds_row(one_metric("a", STEADY, calibration=calm(8)), slow)
    assert row.marked_rounds == (3,)
    assert row.verdict is Verdict.SLOWER


def test_holm_holds_the_family() -> None:
    """A p that passes alone does not pass as one of many."""
    shifted = [1.02, 1.03, 1.015, 1.04, 1.012, 1.025]
    names = [f"arm{i}" for i in range(30)]
    before = side("a", *(arm(name, {"seconds": STEADY[:6]}) for name in names))
    after = side("b", *(arm(name, {"seconds": STEADY[:6]}) for name in names[1:]))
    after = replace(after, arms={"arm0": arm("arm0", {"seconds": shifted}), **after.arms})
    alone = compare_sides(before, after, CompareOptions(arms=(("arm0", "arm0"),)))
    assert only_row(alone).verdict is Verdict.SLOWER
    row = next(r for r in compare_sides(before, after).rows if r.quantity.metric == "seconds")
    assert row.after_arm == "arm0"
    assert row.evidence is not None
    assert row.evidence.family == 30
    assert row.verdict is not Verdict.SLOWER


def test_outliers_are_named_and_kept() -> None:
    row = seconds_row(one_metric("a", STEADY), one_metric("b", [*STEADY[:7], 3.0]))
    assert row.evidence is not None
    assert row.evidence.after.outlying_rounds == (8,)
    assert row.evidence.after.values[7] == 3.0


def test_the_floor_is_that_of_the_twins() -> None:
    twin = {"kind": "strategy", "strategy": "avro"}
    run = side(
        "a",
        arm("avro", {"seconds": STEADY}, place=0),
        arm("avro again", {"seconds": [v * 1.04 for v in STEADY]}, definition=twin, place=1),
        arm("arrow", {"seconds": [v * 1.03 for v in STEADY]}, place=2),
    )
    assert run.twins == (("avro", "avro again"),)
    row = seconds_row(run, run, CompareOptions(arms=(("avro", "arrow"),)))
    assert row.floor.source == "A/A of avro"
    assert 0.03 < row.floor.change <= 0.05
    assert row.verdict is Verdict.NOISE


def test_unknown_names_are_refused() -> None:
    before, after = one_metric("a", STEADY), one_metric("b", STEADY)
    with pytest.raises(UsageError, match="known are avro"):
        compare_sides(before, after, CompareOptions(arms=(("avr", "avr"),)))
    with pytest.raises(UsageError, match="must be named"):
        compare_sides(before, before)


def test_every_inequality_is_the_one_that_its_data_says() -> None:
    pairs = [(STEADY, SLOWER_BY_A_FIFTH), (STEADY, STEADY), (STEADY[:3], STEADY[3:6])]
    for first, second in pairs:
        for row in compare_sides(one_metric("a", first), one_metric("b", second)).rows:
            for one in row.judgement.inequalities:
                relation = {"<=": one.left <= one.right, ">": one.left > one.right}
                assert one.holds == relation[one.relation]
                assert f"{one.left:.10g} {one.relation} {one.right:.10g}" in one.text
                assert ("does not hold" in one.text) != one.holds


def test_a_mean_over_arms_counts_each_cell_once_though_commits_are_shown() -> None:
    """The second commit takes a hundredth of the cell, and doubles."""
    parts = {"seconds": 1.0, "seconds #1": 0.99, "seconds #2": 0.01}
    sides = [
        side(label, arm("avro", {name: [s * v for v in STEADY] for name, s in of.items()}))
        for label, of in (
            ("a", parts),
            ("b", {"seconds": 1.01, "seconds #1": 0.99, "seconds #2": 0.02}),
        )
    ]
    by_commit = compare_sides(*sides, CompareOptions(by=frozenset({"commit"})))
    assert len([row for row in by_commit.rows if row.evidence]) == len(parts)
    assert by_commit.geometric_means() == compare_sides(*sides).geometric_means()
    assert by_commit.geometric_means() == {"seconds": 1.01}


def test_arms_that_all_move_one_way_are_pointed_out() -> None:
    names = "abcdef"
    before = side("a", *(arm(name, {"seconds": STEADY}) for name in names))
    after = side("b", *(arm(name, {"seconds": SLOWER_BY_A_FIFTH}) for name in names))
    comparison = compare_sides(before, after)
    assert any("all 6 arms" in note for note in comparison.notes)
    assert comparison.geometric_means() == {"seconds": 1.2}
    assert (comparison.worse, comparison.better, comparison.undecided) == (6, 0, 0)
