"""Golden outputs: every verdict in every format; SERDE_LAB_UPDATE_GOLDEN=1 remakes them."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from serde_lab.errors import UsageError
from serde_lab.gate.baseline import store as baseline
from serde_lab.gate.compare.comparison import compare_sides
from serde_lab.gate.compare.rows import Comparison
from serde_lab.gate.compare.sides import Side
from serde_lab.gate.decision import Policy
from serde_lab.gate.gating import gate_sides
from serde_lab.gate.history import history
from serde_lab.gate.output.list_pages import render_baselines, render_history, render_self_test
from serde_lab.gate.output.verdict_pages import render_comparison, render_gate
from serde_lab.gate.pool import Pool, PoolRound
from serde_lab.gate.self_test import self_test
from serde_lab.gate.statistics import AlphaSpending
from serde_lab.runs.directory import load_run
from tests.gate.made_up_sides import STEADY, arm, calm, log_normal, side, write_run

GOLDEN = Path(__file__).parent / "golden"
NASTY = 'row <7> & "l_tax" | `x` \x00 differs'


def before() -> Side:
    small = {"seconds": STEADY[:2]}
    return side(
        "20260101T000000Z",
        arm("avro", {"seconds": STEADY, "frame_bytes": [5000] * 8, "shuffle_bytes": [3000] * 8}),
        arm("arrow", {"seconds": STEADY, "frame_bytes": [4000] * 8}),
        arm("noisy", {"seconds": log_normal(1, 5, 0.3)}),
        arm("few", small),
        arm("gone", {"seconds": STEADY}),
        arm("wrong", {"seconds": STEADY}),
        arm("options", {"seconds": STEADY}, definition={"options": {"rows_per_frame": 1}}),
        calibration=calm(8),
    )


def after() -> Side:
    return side(
        "20260102T000000Z",
        arm(
            "avro",
            {
                "seconds": [*(1.2 * v for v in STEADY[:7]), 3.0],
                "frame_bytes": [5001] * 8,
                "shuffle_bytes": [3006] * 8,
            },
        ),
        arm("arrow", {"seconds": [0.7 * v for v in STEADY], "frame_bytes": [4000] * 8}),
        arm("noisy", {"seconds": log_normal(2, 5, 0.3)}, errors=["round 6 raised: boom"]),
        arm("few", {"seconds": STEADY[:2]}),
        arm("wrong", {"seconds": STEADY}, failures=[f"oracle: {NASTY}"]),
        arm("options", {"seconds": STEADY}, definition={"options": {"rows_per_frame": 9}}),
        arm("new", {"seconds": STEADY}),
        calibration={**calm(8), 4: {"numpy": 0.2}},
        environment={"packages": {"pyarrow": "26"}},
    )


def comparison() -> Comparison:
    return compare_sides(before(), after())


def made_up_history(folder: Path) -> str:
    for i, level in enumerate([1.0] * 5 + [1.4] * 4):
        write_run(folder, f"r{i}", {"avro": [level * v for v in STEADY[:3]]})
    return render_history(history("smoke", folder, metrics=["seconds", "frame_bytes"]))


def made_up_baselines(folder: Path) -> str:
    run = load_run(write_run(folder, "r1", {"avro": STEADY}))
    baseline.save(run, folder / "b", by="ada", at=datetime(2026, 1, 2, tzinfo=UTC))
    return render_baselines(baseline.list_baselines(folder / "b"), "md")


def made_up_self_test() -> str:
    plain, again, slowed = (log_normal(seed, 90, 0.02) for seed in (1, 2, 3))
    rounds = zip(plain, again, (1.1 * v for v in slowed), strict=True)
    pool = Pool("gate_smoke", 0.1, tuple(PoolRound(*one) for one in rounds), "linux-8c")
    return render_self_test(self_test(pool, AlphaSpending(6, 3, 12)))


OUTPUTS: dict[str, Callable[[Path], str]] = {
    "compare.txt": lambda _: render_comparison(comparison()),
    "compare_changed.txt": lambda _: render_comparison(
        comparison(), only_changed=True, sort="verdict", group_by="metric"
    ),
    "compare.md": lambda _: render_comparison(comparison(), "md"),
    "compare.csv": lambda _: render_comparison(comparison(), "csv"),
    "compare.json": lambda _: render_comparison(comparison(), "json"),
    "gate.txt": lambda _: render_gate(gate_sides(before(), after(), Policy())),
    "gate.md": lambda _: render_gate(gate_sides(before(), after(), Policy()), "md"),
    "gate.xml": lambda _: render_gate(gate_sides(before(), after(), Policy()), "junit"),
    "gate.csv": lambda _: render_gate(gate_sides(before(), after(), Policy()), "csv"),
    "gate.json": lambda _: render_gate(gate_sides(before(), after(), Policy()), "json"),
    "history.txt": made_up_history,
    "baselines.md": made_up_baselines,
    "self_test.txt": lambda _: made_up_self_test(),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_golden(name: str, tmp_path: Path) -> None:
    output = OUTPUTS[name](tmp_path)
    if os.environ.get("SERDE_LAB_UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(output, encoding="utf-8")
    assert output == (GOLDEN / name).read_text(encoding="utf-8")


def test_junit_is_xml_that_counts_right() -> None:
    for strict in (False, True):
        result = gate_sides(before(), after(), Policy(), strict=strict)
        suite = ElementTree.fromstring(render_gate(result, "junit"))
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        for kind in ("failure", "error", "skipped"):
            plural = {"failure": "failures", "error": "errors"}.get(kind, kind)
            assert suite.get(plural) == str(len(suite.findall(f"testcase/{kind}")))
        assert not (strict and suite.findall("testcase/skipped"))
        assert "\x00" not in "".join(suite.itertext())


def test_json_is_whole_and_finite() -> None:
    document = json.loads(render_comparison(comparison(), "json", only_changed=True))
    assert len(document["rows"]) == len(comparison().rows)
    row = next(r for r in document["rows"] if r["arm"] == "avro" and r["metric"] == "seconds")
    assert row["before"]["values"] == STEADY
    assert row["after"]["outlying_rounds"] == [8]
    assert {one["what"].split(",")[0] for one in row["inequalities"]} == {
        "p of exact Mann-Whitney",
        "change against the noise floor (calibration)",
        "nearer end of the interval against 1",
    }


def test_what_is_shown_is_what_was_decided_on() -> None:
    """Every ratio in the text is the one in the data, to the digit."""
    text = render_comparison(comparison())
    for row in json.loads(render_comparison(comparison(), "json"))["rows"]:
        if row["ratio"] is not None:
            assert f"{row['ratio']:.3f}" in text
            assert row["ratio"] == round(row["ratio"], 3)


@pytest.mark.parametrize(("sort", "group_by"), [("size", ""), ("name", "table")])
def test_unknown_orders_are_refused(sort: str, group_by: str) -> None:
    with pytest.raises(UsageError, match="known are"):
        render_comparison(comparison(), sort=sort, group_by=group_by)  # type: ignore[arg-type]


def test_a_passing_gate_is_short() -> None:
    one, two = (side(label, arm("avro", {"seconds": STEADY})) for label in "ab")
    result = gate_sides(one, two)
    text = render_gate(result)
    assert "passed (exit 0)" in text.splitlines()[0]
    assert len(text.splitlines()) < 5
