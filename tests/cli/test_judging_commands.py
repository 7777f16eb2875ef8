"""`compare` and `gate` as they are typed: every option of the issue, on made-up runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.gate.made_up_sides import STEADY, write_run

SLOW = [1.3 * value for value in STEADY]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    results = tmp_path / "results"
    write_run(results, "r1", {"avro": STEADY, "arrow": STEADY})
    write_run(results, "r2", {"avro": SLOW, "arrow": STEADY}, frame_bytes={"arrow": 5001})
    return results


def marks(out: str) -> dict[tuple[str, str], str]:
    """Verdict by arm and quantity, of a CSV."""
    header, *lines = [line.split(",") for line in out.splitlines()]
    at = {name: i for i, name in enumerate(header)}
    return {(one[at["arm"]], one[at["metric"]]): one[at["verdict"]] for one in lines}


def test_two_runs(call: Call, runs: Path) -> None:
    said = call("compare", "r1", "r2", "--format", "csv")
    assert said.status == 0
    found = marks(said.out)
    assert found["avro", "seconds"] == found["arrow", "frame_bytes"] == "slower"
    assert found["arrow", "seconds"] == "same"


def test_arms_metrics_and_what_changed(call: Call, runs: Path) -> None:
    only = ("--arm", "arrow", "--metric", "frame_bytes", "--metric", "frames", "--only-changed")
    found = marks(call("compare", "r1", "r2", *only, "--format", "csv").out)
    assert found == {("arrow", "frame_bytes"): "slower"}


def test_two_arms_of_one_run_either_way(call: Call, runs: Path) -> None:
    named = call("compare", "r2#arrow", "r2#avro", "--metric", "seconds", "--format", "csv")
    asked = call(
        *("compare", "r2", "r2", "--arm", "arrow", "--arm", "avro", "--metric", "seconds"),
        *("--format", "csv"),
    )
    assert named.out == asked.out
    assert marks(named.out)["arrow -> avro", "seconds"] == "slower"
    assert call("compare", "r2", "r2").status == 2


@pytest.mark.slow
def test_orders_and_groups(call: Call, runs: Path) -> None:
    lines = call("compare", "r1", "r2", "--sort", "verdict", "--format", "csv").out.splitlines()
    verdicts = [line.split(",") for line in lines[1:]]
    worse = ["slower" in line for line in verdicts]
    assert worse == sorted(worse, reverse=True)
    assert any(worse)
    for group in ("arm", "metric", "phase", "commit"):
        assert call("compare", "r1", "r2", "--group-by", group).status == 0
    phases = call("compare", "r1", "r2", "--group-by", "phase", "--format", "csv").out
    assert "map.encode" in phases
    for option, sentence in (("--group-by", "cannot group"), ("--sort", "cannot sort")):
        said = call("compare", "r1", "r2", option, "moon")
        assert (said.status, sentence in said.sentence) == (2, True)


def test_other_machines(call: Call, runs: Path) -> None:
    controls = {"floor": "control"}
    for name, machine, factor in (("m1", "one", 1.0), ("m2", "two", 3.0)):
        seconds = {"avro": [factor * v for v in STEADY], "floor": [factor * v for v in STEADY]}
        write_run(runs, name, seconds, machine_class=machine, kinds=controls)
    expected = {"refuse": "not comparable", "ratios": "same", "ignore": "slower"}
    for choice, verdict in expected.items():
        said = call("compare", "m1", "m2", "--host-mismatch", choice, "--format", "csv")
        assert marks(said.out)["avro", "seconds"] == verdict


@pytest.mark.slow
def test_a_baseline_its_gate_and_all_formats(call: Call, runs: Path) -> None:
    assert call("gate", "r2").status == 1  # there is none: never a pass
    assert call("baseline", "save", "r1", "--by", "ada", "--reason", "the first").status == 0
    assert call("gate", "r1").status == 0
    assert call("gate", "r2", "--arm", "avro").status == 3
    said = call("gate", "r2", "--format", "json", "--report", "gate.html")
    assert said.status == 3
    document = json.loads(said.out)
    assert {one["arm"] for one in document["findings"] if one["level"] == "regression"} == {
        "avro",
        "arrow",
    }
    assert Path("gate.html").is_file()
    for form in ("table", "md", "csv", "junit"):
        assert call("gate", "r2", "--format", form).status == 3
    assert call("compare", "baseline:smoke", "r2", "--only-changed").status == 0
    assert call("baseline", "promote", "r2", "--by", "ada").status == 2
    assert call("baseline", "promote", "r2", "--by", "ada", "--reason", "checksums").status == 0
    assert call("gate", "r2").status == 0
