"""The steps between Apache Hudi and an arm of ours, from rounds with made-up seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from serde_lab.analysis.arm_ratios import STEPS, TWO_STEPS, hudi_steps
from serde_lab.analysis.cell_values import CellValues, cell_values
from serde_lab.analysis.ratios import Share
from serde_lab.report.page import Sentence, Table
from serde_lab.report.run.beside_hudi import steps_blocks
from serde_lab.runs.model import MeasuredCell, Sample

SECONDS = {
    "slow": 20.0,
    "one": 10.0,
    "native": 4.0,
    "spark_reads": 5.0,
    "ours": 4.0,
    "tuned": 9.0,
    "bytes": 3.2,
}
CONTENT: dict[str, Any] = {
    "arm": [
        {"name": "slow", "peer": "hudi_spark"},
        {"name": "one", "peer": "hudi_one_exchange"},
        {"name": "native", "control": "spark_native"},
        {"name": "spark_reads", "strategy": "internal_row"},
        {"name": "ours", "strategy": "internal_row"},
        {"name": "tuned", "peer": "hudi_spark_tuned"},
    ]
}


def arms() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"arm": name, "strategy": None, "options": {}} for name in SECONDS
    ]
    for arm in made:
        if arm["arm"] in ("spark_reads", "ours"):
            arm |= {"strategy": "internal_row", "options": {"rows_per_frame": 8}}
    made[3]["options"] = {"rows_per_frame": 8, "source_reader": "spark"}
    return made


def timed(rounds: int = 4, **without: int) -> dict[str, dict[int, CellValues]]:
    """Each round is slower than the one before by a tenth, and no two arms by quite as much."""
    found: dict[str, dict[int, CellValues]] = {}
    for place, (arm, seconds) in enumerate(SECONDS.items()):
        for n in range(1, rounds + 1):
            if without.get(arm) == n:
                continue
            took = seconds * 1.1**n * (1 + 0.01 * ((place * n) % 3))
            samples = tuple(Sample("seconds", took * k, commit) for commit, k in ((1, 1), (2, 2)))
            cell = MeasuredCell(f"r{n}-{arm}", arm, n, False, place, "", "ok", None, samples)
            found.setdefault(arm, {})[n] = cell_values(cell)
    return found


def test_the_steps_multiply_to_the_whole_and_their_shares_to_one() -> None:
    found = hudi_steps(arms(), CONTENT, timed())
    assert found is not None
    assert [one.name for one in found.steps] == [name for name, _ in STEPS[:4]]
    assert [(one.against, one.arm) for one in found.steps] == [
        ("slow", "one"),
        ("one", "native"),
        ("native", "spark_reads"),
        ("spark_reads", "ours"),
    ]
    assert (found.whole.arm, found.whole.against) == ("ours", "slow")
    values = [one.ratio.value for one in found.steps]
    assert math.prod(values) == pytest.approx(found.whole.ratio.value)
    assert values == pytest.approx([2.0, 2.5, 0.8, 1.25], rel=0.03)
    assert sum(one.share.value for one in found.steps) == pytest.approx(1)
    # the record format costs time here
    assert found.steps[2].share.value < 0
    assert found.steps[2].share.percent.startswith("−")
    for step in found.steps:
        assert step.share.low is not None
        assert step.share.high is not None
        assert step.share.low < step.share.value < step.share.high
        assert step.share.range.endswith(" %")
    assert (found.whole.share.value, found.whole.share.range) == (1.0, "")
    for one in (*found.steps, found.whole):
        assert one.ratio.low is not None
        assert one.ratio.high is not None
        assert one.ratio.low < one.ratio.value < one.ratio.high
    assert [entry["step"] for entry in found.to_json()][-1] == "in all"


def test_the_interval_of_a_share_holds_the_true_one_in_95_of_100_cases() -> None:
    """A step of 0.5 in a whole of 2.0, with noise that both have and noise of their own."""
    draw, held, trials = np.random.default_rng(5), 0, 4000
    for _ in range(trials):
        step, others = draw.normal([[0.5], [1.5]], [[0.05], [0.1]], (2, 8)) + draw.normal(
            0, 0.05, 8
        )
        share = Share.of(list(step), list(step + others))
        assert share.low is not None
        assert share.high is not None
        held += share.low <= 0.25 <= share.high
    assert held / trials == pytest.approx(0.95, abs=0.015)


def test_a_share_of_one_round_or_of_nothing_has_no_interval() -> None:
    assert Share.of([0.5], [2.0]) == Share(0.25)
    assert Share(0.25).range == ""
    assert Share.of([0.5, -0.5], [1.0, -1.0]) == Share(0.0)


def test_a_share_of_next_to_nothing_has_no_sign() -> None:
    assert Share(-0.003).percent == "0 %"


@pytest.mark.parametrize(("ours", "shares"), [(4.0, True), (20.0, False), (24.0, False)])
def test_only_an_arm_that_is_faster_has_a_factor_to_divide(
    monkeypatch: pytest.MonkeyPatch, ours: float, shares: bool
) -> None:
    monkeypatch.setitem(SECONDS, "ours", ours)
    found = hudi_steps(arms(), CONTENT, timed())
    assert found is not None
    sentence, table = steps_blocks(found)
    assert isinstance(sentence, Sentence)
    assert isinstance(table, Table)
    words = "is faster than" if shares else "is not shown to be faster than"
    assert sentence.text.startswith(f"`ours` {words} `slow`: ")
    assert ("of this factor" in sentence.text.lower()) == shares
    cells = [dict(zip([c.key for c in table.columns], r, strict=True)) for r in table.rows]
    assert [cell["share"].value is not None for cell in cells] == [shares] * len(cells)


def test_frames_that_cross_as_bytes_are_a_step_of_their_own() -> None:
    with_bytes = arms()
    with_bytes[-1] |= {
        "strategy": "internal_row",
        "options": {"rows_per_frame": 8, "shuffle": "rdd"},
    }
    found = hudi_steps(with_bytes, CONTENT, timed())
    assert found is not None
    assert [one.name for one in found.steps] == [name for name, _ in STEPS]
    assert (found.steps[-1].against, found.steps[-1].arm) == ("ours", "bytes")
    assert found.steps[-1].ratio.value == pytest.approx(1.25, rel=0.03)
    assert (found.whole.arm, found.whole.against) == ("bytes", "slow")
    # without the arm between them, the last two steps are one
    spread = [one for one in with_bytes if one["arm"] != "ours"]
    both = hudi_steps(spread, CONTENT, timed())
    assert both is not None
    assert [one.name for one in both.steps] == [*(name for name, _ in STEPS[:3]), TWO_STEPS[0]]
    assert both.steps[-1].ratio.value == pytest.approx(5 / 3.2, rel=0.03)
    assert both.whole.ratio.value == pytest.approx(found.whole.ratio.value)
    # an arm that also differs in another option is no step
    with_bytes[-1]["options"] = {"rows_per_frame": 9, "shuffle": "rdd"}
    fewer = hudi_steps(with_bytes, CONTENT, timed())
    assert fewer is not None
    assert fewer.whole.arm == "ours"


def test_only_rounds_in_which_every_arm_was_timed_count() -> None:
    found = hudi_steps(arms(), CONTENT, timed(one=2, ours=3))
    assert found is not None
    assert {one.ratio.rounds for one in (*found.steps, found.whole)} == {2}
    values = [one.ratio.value for one in found.steps]
    assert math.prod(values) == pytest.approx(found.whole.ratio.value)


@pytest.mark.parametrize("missing", ["slow", "one", "native", "spark_reads", "ours"])
def test_there_are_no_steps_without_one_of_the_arms(missing: str) -> None:
    fewer = [arm for arm in arms() if arm["arm"] != missing]
    assert hudi_steps(fewer, CONTENT, timed()) is None
    # or without a timing that can be shown
    assert hudi_steps(arms(), CONTENT, timed() | {missing: {}}) is None


def test_the_two_readers_differ_in_nothing_else() -> None:
    changed = arms()
    changed[4]["options"] = {"rows_per_frame": 9}
    assert hudi_steps(changed, CONTENT, timed()) is None
    other_table = arms()
    other_table[0]["table"] = {"type": "COPY_ON_WRITE"}
    assert hudi_steps(other_table, CONTENT, timed()) is None
