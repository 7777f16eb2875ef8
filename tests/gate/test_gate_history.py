"""Steps in results over time, and who acknowledged them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.cli.app import main
from serde_lab.errors import RunError, UsageError
from serde_lab.gate.change_points import find_change_points, find_changes
from serde_lab.gate.compare.evidence import side_values
from serde_lab.gate.compare.sides import Quantity
from serde_lab.gate.compare.verdict import Verdict, judge_compressed
from serde_lab.gate.history import (
    HistoryPoint,
    ScenarioHistory,
    Series,
    _steps,
    acknowledge,
    acknowledged,
    history,
)
from serde_lab.gate.statistics import wilson
from tests.gate.made_up_sides import log_normal, write_run


def test_one_step_is_found_where_it_is() -> None:
    series = [*log_normal(1, 12, 0.02), *log_normal(2, 9, 0.02, 1.15)]
    (step,) = find_change_points(series)
    assert step.index == 12
    assert step.ratio == pytest.approx(1.15, abs=0.03)
    assert step.before < step.after


def test_two_steps_up_and_down() -> None:
    levels = ((10, 1.0), (10, 1.3), (10, 0.9))
    series = [v for i, (n, level) in enumerate(levels) for v in log_normal(i, n, 0.02, level)]
    assert [step.index for step in find_change_points(series)] == [10, 20]


def test_one_wild_run_is_no_step() -> None:
    series = log_normal(3, 20, 0.02)
    series[9] = 3.0
    assert find_change_points(series) == ()


def test_a_small_change_is_no_step_however_sure() -> None:
    series = [*log_normal(1, 20, 0.001), *log_normal(2, 20, 0.001, 1.01)]
    assert find_change_points(series) == ()
    assert len(find_change_points(series, smallest_change=0.005)) == 1


@pytest.mark.parametrize("n", range(7))
def test_short_series_have_no_steps(n: int) -> None:
    assert find_change_points([1.0] * (n // 2) + [2.0] * (n - n // 2)) == ()


def test_false_steps_are_rare() -> None:
    false = sum(bool(find_change_points(log_normal(seed, 25, 0.04))) for seed in range(150))
    assert wilson(false, 150).low <= 0.05


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 2), max_size=30), st.floats(0.1, 50))
def test_steps_do_not_care_for_the_unit(series: list[float], factor: float) -> None:
    scaled = find_change_points([v * factor for v in series])
    assert [s.index for s in scaled] == [s.index for s in find_change_points(series)]


def test_every_change_of_an_exact_quantity_is_a_step() -> None:
    assert [(s.index, s.before, s.after) for s in find_changes([5, 5, 6, 6, 5])] == [
        (2, 5, 6),
        (4, 6, 5),
    ]


def fill(results: Path, seconds: list[float], frame_bytes: list[int] | None = None) -> None:
    generator = np.random.default_rng(7)
    for i, level in enumerate(seconds):
        rounds = [float(level * np.exp(v)) for v in generator.normal(0, 0.01, 3)]
        write_run(
            results,
            f"r{i:02d}",
            {"avro": rounds},
            frame_bytes={"avro": (frame_bytes or [5000] * len(seconds))[i]},
        )


def series(found: ScenarioHistory, metric: str) -> Series:
    return next(one for one in found.series if one.quantity.metric == metric)


def unacknowledged(found: ScenarioHistory) -> set[str]:
    """The metrics with a step for the worse that nobody has acknowledged."""
    return {
        one.quantity.metric
        for one in found.series
        for step in one.steps
        if step.acknowledgement is None and step.verdict is Verdict.SLOWER
    }


@pytest.mark.parametrize(("grown", "steps"), [(1_004_600, 0), (1_005_400, 1)])
def test_compressed_bytes_are_a_step_where_the_gate_sees_a_change(grown: int, steps: int) -> None:
    """Both ratios are 1.005 with three decimals; the gate allows 0.5 %."""
    sizes = (1_000_000.0, float(grown))
    points = [HistoryPoint(f"r{n}", "t", size, (size,), 0) for n, size in enumerate(sizes)]
    assert len(_steps(points, "avro", Quantity("table_bytes"), ())) == steps
    verdict = judge_compressed(*(side_values({1: size}) for size in sizes), 0.005, "lower").verdict
    assert (verdict is Verdict.SLOWER) == bool(steps)


def test_history_finds_steps_of_times_and_bytes(tmp_path: Path) -> None:
    fill(tmp_path, [1.0] * 6 + [1.3] * 6, [5000] * 4 + [5001] * 8)
    found = history("smoke", tmp_path)
    (step,) = series(found, "seconds").steps
    assert (step.run, step.verdict) == ("r06", Verdict.SLOWER)
    (byte,) = series(found, "frame_bytes").steps
    assert (byte.run, byte.step.before, byte.step.after) == ("r04", 5000, 5001)
    assert len(series(found, "seconds").points) == 12
    assert unacknowledged(found) == {"seconds", "serde_cpu_s", "frame_bytes"}
    assert found.exit_status == 0


def test_an_acknowledged_step_says_who_and_why(tmp_path: Path) -> None:
    fill(tmp_path, [1.0] * 6 + [1.3] * 6)
    folder = tmp_path / "acknowledged"
    acknowledge(folder, "smoke", run="r06", by="ada", why="checksums", metric="seconds")
    found = history("smoke", tmp_path)
    (step,) = series(found, "seconds").steps
    assert step.acknowledgement is not None
    assert (step.acknowledgement.by, step.acknowledgement.why) == ("ada", "checksums")
    assert unacknowledged(found) == {"serde_cpu_s"}
    assert acknowledged(folder, "other") == ()


def test_an_acknowledgement_needs_a_name_and_a_reason(tmp_path: Path) -> None:
    for by, why in (("", "x"), ("ada", " ")):
        with pytest.raises(UsageError):
            acknowledge(tmp_path, "smoke", run="r06", by=by, why=why)
    (tmp_path / "smoke.json").write_text("[]")
    with pytest.raises(RunError, match="has format_version None"):
        acknowledged(tmp_path, "smoke")


def test_acknowledging_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, [1.0] * 6 + [1.3] * 6)
    command = ["history", "smoke", "--results", str(tmp_path)]
    assert main(command) == 0
    assert "not acknowledged" in capsys.readouterr().out
    step = [*command, "--acknowledge", "r06", "--by", "ada"]
    assert main(step) == 2
    assert "needs a reason" in capsys.readouterr().err
    assert main([*command, "--acknowledge", "r05", "--why", "x"]) == 2
    assert "no step first seen in run 'r05'; runs with steps: r06" in capsys.readouterr().err
    assert main([*command, "--why", "x"]) == 2
    assert main([*step, "--why", "checksums", "--arm", "avro", "--metric", "seconds"]) == 0
    out = capsys.readouterr().out
    assert "acknowledged by ada: checksums" in out
    assert "not acknowledged" not in out
    assert main([*step, "--arm", "gone", "--why", "x"]) == 2
    capsys.readouterr()
    assert main([*step, "--why", "everything"]) == 0
    found = history("smoke", tmp_path)
    assert unacknowledged(found) == set()


def test_a_series_breaks_where_something_else_was_asked(tmp_path: Path) -> None:
    fill(tmp_path, [1.0] * 5)
    changed = {"scenario_content": {"table": {"buckets": 4}}}
    for i in range(5, 10):
        write_run(tmp_path, f"r{i:02d}", {"avro": [2.0, 2.01, 2.02]}, **changed)
    write_run(tmp_path, "r10", {"avro": [1.0] * 3}, machine_class="other", **changed)
    found = history("smoke", tmp_path)
    times = series(found, "seconds")
    assert times.steps == ()
    assert [run for run, _ in times.breaks] == ["r05", "r10"]
    assert "table.buckets" in times.breaks[0][1]
    assert [point.stretch for point in times.points] == [0] * 5 + [1] * 5 + [2]
    # Bytes do not depend on the machine.
    assert [run for run, _ in series(found, "frame_bytes").breaks] == ["r05"]
    only = history("smoke", tmp_path, machine_class="other", metrics=["seconds"])
    assert [len(one.points) for one in only.series] == [1]


def test_wrong_answers_and_damaged_runs_are_left_out_by_name(tmp_path: Path) -> None:
    fill(tmp_path, [1.0] * 3)
    write_run(tmp_path, "r03", {"avro": [9.0] * 3}, failing=["avro"])
    (tmp_path / "smoke" / "r01" / "run.json").write_text("{")
    found = history("smoke", tmp_path)
    assert [point.run for point in series(found, "seconds").points] == ["r00", "r02"]
    assert any("r01 is left out" in message for message in found.messages)
    assert any("wrong answer of avro" in message for message in found.messages)
    with pytest.raises(RunError, match="no run of 'nothing'"):
        history("nothing", tmp_path)


def test_quantities_of_phases_on_request(tmp_path: Path) -> None:
    fill(tmp_path, [1.0] * 2)
    found = history("smoke", tmp_path, metrics=["phase_cpu_s"], arms=["avro"])
    assert [one.quantity for one in found.series] == [Quantity("phase_cpu_s", "map.encode")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "it is not JSON, at line 1"),
        ("[]", "has format_version None"),
        ('{"format_version": 1}', "changes is no list"),
        ('{"format_version": 1, "changes": [null]}', "changes is no list"),
        ('{"format_version": 1, "changes": [{"run": 1}]}', "changes is no list"),
        (
            '{"format_version": 1, "changes": [{"run": 1, "by": "", "why": "", "at": ""}]}',
            "changes is no list",
        ),
    ],
)
def test_damaged_acknowledgements_are_named_and_kept(
    content: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "smoke.json"
    file.write_text(content)
    with pytest.raises(RunError) as caught:
        acknowledge(tmp_path, "smoke", run="r06", by="ada", why="checksums")
    assert str(file) in caught.value.message
    assert problem in caught.value.message
    assert file.read_text() == content
