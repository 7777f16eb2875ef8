"""Baselines: small files, never loosened by themselves, and what a gate does without one."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from serde_lab.errors import RunError, UsageError
from serde_lab.gate.baseline import store as baseline
from serde_lab.gate.baseline.file_format import entry_of_side, side_of_entry
from serde_lab.gate.compare.sides import side_of_run
from serde_lab.gate.gating import gate_measured, gate_run
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import ArmEntry, Run
from tests.gate.made_up_sides import MACHINE, STEADY, write_run

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SLOWER = [1.2 * v for v in STEADY]


def run_of(results: Path, name: str, **how: object) -> Run:
    seconds = how.pop("seconds", {"avro": STEADY, "arrow": STEADY})
    return load_run(write_run(results, name, seconds, **how))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "baselines"


def saved(tmp_path: Path, folder: Path) -> Run:
    run = run_of(tmp_path, "r1")
    baseline.save(run, folder, by="ada", at=WHEN)
    return run


def test_a_run_passes_against_itself(tmp_path: Path, folder: Path) -> None:
    run = saved(tmp_path, folder)
    result = gate_run(run, folder=folder, strict=True)
    assert result.exit_status == 0
    assert len(result.findings) == 10  # contents, seconds, serde_cpu_s, rows, frame_bytes of two


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"seconds": {"avro": SLOWER, "arrow": STEADY}}, 3),
        ({"frame_bytes": {"avro": 5001}}, 3),
        ({"failing": ["avro"]}, 4),
        ({"seconds": {"avro": STEADY}}, 1),
        ({"failed_rounds": {"avro": 2}}, 1),
        ({"gate": {"relative": 0.5}, "seconds": {"avro": SLOWER, "arrow": STEADY}}, 0),
    ],
    ids=["slower", "one byte fatter", "wrong", "arm vanished", "raised", "limit of the scenario"],
)
def test_what_fails_a_gate(
    tmp_path: Path, folder: Path, change: dict[str, object], status: int
) -> None:
    saved(tmp_path, folder)
    assert gate_run(run_of(tmp_path, "r2", **change), folder=folder).exit_status == status


def test_a_missing_baseline_is_never_a_pass(tmp_path: Path, folder: Path) -> None:
    run = run_of(tmp_path, "r1")
    with pytest.raises(RunError, match="no baseline 'main'") as caught:
        gate_run(run, folder=folder)
    assert caught.value.exit_status == 1
    saved(tmp_path / "other", folder)
    with pytest.raises(RunError, match="no baseline 'nightly'"):
        gate_run(run, folder=folder, baseline="nightly")


def test_another_machine_class_is_named_and_taken_only_when_asked(
    tmp_path: Path, folder: Path
) -> None:
    kinds = {"floor": "control"}
    seconds = {"avro": STEADY, "floor": STEADY}
    baseline.save(run_of(tmp_path, "r1", seconds=seconds, kinds=kinds), folder, by="ada", at=WHEN)
    fast = {name: [v / 3 for v in values] for name, values in seconds.items()}
    other = run_of(tmp_path, "r2", seconds=fast, kinds=kinds, machine_class="other")
    with pytest.raises(RunError, match=f"other machine classes have one: {MACHINE}"):
        gate_run(other, folder=folder)
    result = gate_run(other, folder=folder, host_mismatch="ratios")
    assert result.exit_status == 0
    assert "regression" not in {finding.level for finding in result.findings}
    slow = {"avro": [v / 1.5 for v in STEADY], "floor": fast["floor"]}
    slower = run_of(tmp_path, "r3", seconds=slow, kinds=kinds, machine_class="other")
    assert gate_run(slower, folder=folder, host_mismatch="ratios").exit_status == 3


def test_a_baseline_is_not_replaced_but_promoted_with_a_reason(
    tmp_path: Path, folder: Path
) -> None:
    saved(tmp_path, folder)
    slower = run_of(
        tmp_path, "r2", seconds={"avro": SLOWER, "arrow": STEADY}, frame_bytes={"arrow": 5001}
    )
    before = baseline.baseline_file(folder, MACHINE, "smoke").read_bytes()
    with pytest.raises(UsageError, match="promote"):
        baseline.save(slower, folder, by="ada")
    with pytest.raises(UsageError, match="needs a reason"):
        baseline.promote(slower, folder, by="ada", reason=" ")
    assert gate_run(slower, folder=folder).exit_status == 3
    assert baseline.baseline_file(folder, MACHINE, "smoke").read_bytes() == before
    change = baseline.promote(slower, folder, by="bob", reason="checksums are worth it", at=WHEN)
    assert change.loosened == (
        "arrow: frame_bytes 5000 -> 5001",
        "avro: seconds 1.002 -> 1.203",
        "avro: serde_cpu_s 0.5012 -> 0.6015",
    )
    assert gate_run(slower, folder=folder).exit_status == 0
    kept = baseline.show(change.file)["events"]
    assert [(event["event"], event["by"]) for event in kept] == [
        ("save", "ada"),
        ("promote", "bob"),
    ]
    assert kept[1]["reason"] == "checksums are worth it"
    assert kept[1]["replaced"] == "r1"


def test_named_baselines_stand_side_by_side_and_are_removed_with_a_reason(
    tmp_path: Path, folder: Path
) -> None:
    run = saved(tmp_path, folder)
    baseline.save(run, folder, by="ada", name="before-rewrite", at=WHEN)
    names = [entry.name for entry in baseline.list_baselines(folder)]
    assert names == ["before-rewrite", "main"]
    with pytest.raises(UsageError, match="reason"):
        baseline.remove(folder, MACHINE, "smoke", name="main", by="ada", reason="")
    change = baseline.remove(
        folder, MACHINE, "smoke", name="before-rewrite", by="ada", reason="done", at=WHEN
    )
    assert [entry.name for entry in baseline.list_baselines(folder)] == ["main"]
    assert "done" in change.file.read_text()
    with pytest.raises(RunError, match="it has main"):
        baseline.load(change.file, "before-rewrite")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"failing": ["avro"]}, "a check failed"),
        ({"state": "interrupted"}, "it is interrupted"),
        ({"failed_rounds": {"avro": 1}}, "cells raised"),
        ({"seconds": {"avro": [], "arrow": []}}, "measured nothing"),
    ],
)
def test_unfit_runs_are_refused(
    tmp_path: Path, folder: Path, how: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        baseline.save(run_of(tmp_path, "r1", **how), folder, by="ada")
    assert not folder.exists()


def test_the_file_is_small_deterministic_and_a_line_a_quantity(
    tmp_path: Path, folder: Path
) -> None:
    saved(tmp_path, folder)
    file = baseline.baseline_file(folder, MACHINE, "smoke")
    assert file == folder / MACHINE / "smoke.json"
    first = file.read_bytes()
    again = tmp_path / "again"
    baseline.save(load_run(tmp_path / "smoke" / "r1"), again, by="ada", at=WHEN)
    assert baseline.baseline_file(again, MACHINE, "smoke").read_bytes() == first
    lines = first.decode().splitlines()
    assert len(first) < 6000
    line = next(line for line in lines if '"seconds"' in line)
    assert line.count(",") == len(STEADY) - (0 if line.endswith(",") else 1)
    assert any(line.strip().rstrip(",") == '"frame_bytes": 5000' for line in lines)
    assert json.loads(first)["scenario"] == "smoke"


def test_a_side_survives_its_record(tmp_path: Path) -> None:
    side = replace(side_of_run(run_of(tmp_path, "r1")), instruments={"event log": "1"})
    record = json.loads(json.dumps(entry_of_side(side)))
    back = side_of_entry(record, "main", side.scenario, side.machine_class)
    for number, parts in side.calibration.items():
        assert back.calibration[number] == pytest.approx(parts)
    assert back.asked == side.asked
    assert back.measuring_code == side.measuring_code
    assert back.instruments == side.instruments
    for name, arm in side.arms.items():
        assert back.arms[name].definition == arm.definition
        assert back.arms[name].checks_passed == arm.checks_passed
        for quantity, values in back.arms[name].values.items():
            assert values == pytest.approx(arm.values[quantity], rel=1e-5)
    kept = {quantity.metric for quantity in back.arms["avro"].values}
    assert kept >= {"seconds", "serde_cpu_s", "frame_bytes", "rows", "phase_cpu_s"}


@pytest.mark.parametrize("text", ["{", "[]", '{"format_version": 9}', '{"format_version": 1}'])
def test_damaged_files_are_named(tmp_path: Path, folder: Path, text: str) -> None:
    file = baseline.baseline_file(folder, MACHINE, "smoke")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(RunError, match=r"smoke\.json"):
        gate_run(run_of(tmp_path, "r1"), folder=folder)
    file.write_text(
        json.dumps(
            {
                "format_version": 1,
                "scenario": "smoke",
                "machine_class": MACHINE,
                "baselines": {"main": {"run": "r0"}},
                "events": [],
            }
        )
    )
    with pytest.raises(RunError, match=r"is damaged, key 'baselines.main\."):
        gate_run(run_of(tmp_path, "r2"), folder=folder)


def test_an_interrupted_run_is_never_a_pass(tmp_path: Path, folder: Path) -> None:
    saved(tmp_path, folder)
    with pytest.raises(RunError, match="r2 was interrupted, so cells and checks are missing"):
        gate_run(run_of(tmp_path, "r2", state="interrupted"), folder=folder)


@pytest.mark.parametrize("frame_bytes", [5000, 6000])
def test_what_a_run_measured_is_no_setting_of_its_arm(
    tmp_path: Path, folder: Path, frame_bytes: int
) -> None:
    """An arm of a sweep, whose name no scenario knows."""
    arms = ("avro@0.1", "arrow@0.1")

    def swept(name: str, size: int) -> Run:
        entries = [
            ArmEntry(
                arm=arm,
                strategy=arm.partition("@")[0],
                swept={"arm": arm.partition("@")[0], "value": 0.1},
                column_bytes={"a": size / 1000},
                prediction={"us": size / 7},
            )
            for arm in arms
        ]
        return run_of(
            tmp_path,
            name,
            seconds=dict.fromkeys(arms, STEADY),
            frame_bytes={"avro@0.1": size},
            arms=entries,
        )

    baseline.save(swept("r1", 5000), folder, by="ada", at=WHEN)
    result = gate_run(swept("r2", frame_bytes), folder=folder)
    assert result.exit_status == (0 if frame_bytes == 5000 else 3)
    assert "undecided" not in {finding.level for finding in result.findings}


class TestSecondMeasurement:
    def result(
        self, tmp_path: Path, folder: Path, first: dict[str, object], second: dict[str, object]
    ) -> tuple[int, list[tuple[str, ...]], list[str]]:
        saved(tmp_path, folder)
        asked: list[tuple[str, ...]] = []
        plans = [first, second]

        def measure(arms: tuple[str, ...]) -> Run:
            asked.append(arms)
            return run_of(tmp_path, f"again{len(asked)}", **plans[len(asked) - 1])

        result = gate_measured(measure, partial(gate_run, folder=folder))
        return result.exit_status, asked, [f.text for f in result.findings]

    def test_a_passing_run_is_not_measured_again(self, tmp_path: Path, folder: Path) -> None:
        status, asked, _ = self.result(tmp_path, folder, {}, {})
        assert (status, asked) == (0, [()])

    def test_a_regression_stands_when_it_shows_again(self, tmp_path: Path, folder: Path) -> None:
        slow: dict[str, object] = {"seconds": {"avro": SLOWER, "arrow": STEADY}}
        alone: dict[str, object] = {"seconds": {"avro": SLOWER}}
        status, asked, texts = self.result(tmp_path, folder, slow, alone)
        assert (status, asked) == (3, [(), ("avro",)])
        assert any("confirmed by a second measurement" in text for text in texts)

    def test_the_strategy_that_others_are_judged_by_is_measured_again_too(
        self, tmp_path: Path, folder: Path
    ) -> None:
        gate = {"control": "arrow"}
        baseline.save(run_of(tmp_path, "r1", gate=gate), folder, by="ada", at=WHEN)
        asked: list[tuple[str, ...]] = []
        slow = {"avro": [2 * v for v in STEADY], "arrow": STEADY}

        def measure(arms: tuple[str, ...]) -> Run:
            asked.append(arms)
            seconds = {name: slow[name] for name in arms or slow}
            return run_of(tmp_path, f"again{len(asked)}", seconds=seconds, gate=gate)

        judge = partial(gate_run, folder=folder, host_mismatch="shared")
        assert gate_measured(measure, judge).exit_status == 3
        assert asked == [(), ("avro", "arrow")]

    def test_a_regression_that_does_not_show_again_is_undecided(
        self, tmp_path: Path, folder: Path
    ) -> None:
        slow: dict[str, object] = {"seconds": {"avro": SLOWER, "arrow": STEADY}}
        status, _, texts = self.result(tmp_path, folder, slow, {"seconds": {"avro": STEADY}})
        assert status == 0
        assert any("not confirmed" in text for text in texts)

    def test_arms_that_are_not_asked_for_are_measured_and_not_judged(
        self, tmp_path: Path, folder: Path
    ) -> None:
        saved(tmp_path, folder)

        def measure(arms: tuple[str, ...]) -> Run:
            assert arms == ()
            return run_of(tmp_path, "again", seconds={"avro": SLOWER, "arrow": STEADY})

        result = gate_measured(measure, partial(gate_run, folder=folder), ["arrow"])
        assert result.exit_status == 0
        assert {f.row.after_arm for f in result.findings if f.row} == {"arrow"}

    def test_an_exact_regression_is_not_measured_again(self, tmp_path: Path, folder: Path) -> None:
        status, asked, _ = self.result(tmp_path, folder, {"frame_bytes": {"avro": 5001}}, {})
        assert (status, asked) == (3, [()])

    def test_a_wrong_answer_of_the_second_run_counts(self, tmp_path: Path, folder: Path) -> None:
        slow: dict[str, object] = {"seconds": {"avro": SLOWER, "arrow": STEADY}}
        wrong: dict[str, object] = {"seconds": {"avro": STEADY}, "failing": ["avro"]}
        assert self.result(tmp_path, folder, slow, wrong)[0] == 4


@pytest.mark.parametrize(
    ("place", "value", "key"),
    [
        (("baselines",), [], "baselines"),
        (("baselines", "main", "arms", "avro", "rounds"), None, "rounds"),
        (("baselines", "main", "calibration"), {}, "calibration.rounds"),
        (("baselines", "main", "run"), 7, "baselines.main.run"),
        (("events", 0), {"event": "save"}, "events.0.baseline"),
        (("machine_class",), None, "machine_class"),
        (("scenario",), float("nan"), "NaN is not JSON"),
    ],
    ids=str,
)
def test_a_damaged_file_of_baselines_is_named_with_its_key(
    place: tuple[str | int, ...], value: object, key: str, tmp_path: Path, folder: Path
) -> None:
    saved(tmp_path, folder)
    (file,) = folder.glob("*/*.json")
    document = at = json.loads(file.read_text())
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    file.write_text(json.dumps(document))
    for use in (baseline.load, baseline.show, baseline.seal):
        with pytest.raises(RunError) as caught:
            use(file)
        assert str(file) in caught.value.message
        assert key in caught.value.message
    with pytest.raises(RunError, match="json"):
        baseline.list_baselines(folder)
