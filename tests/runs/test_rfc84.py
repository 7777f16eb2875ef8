"""What of a run stands against RFC-84's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from serde_lab.analysis.cell_values import CellValues, cell_values
from serde_lab.analysis.rfc84 import (
    BY_COLUMN,
    ROW_BY_ROW,
    Claim,
    claims,
    percentage,
    rfc84_json,
    rounds_said,
)
from serde_lab.measure.phases import PhaseSeconds
from serde_lab.report.run.beside_hudi import claim_cells
from serde_lab.runs.model import MeasuredCell, Sample

CONTENT = {"data": {"key_range": "third"}}


def arm(strategy: str, scale: float, execution: str = "batch", **more: Any) -> dict[str, Any]:
    phases = {
        "map.from_arrow": 10.0, "map.encode": 30.0, "map.keygen": 99.0,
        "reduce.decode": 60.0, "reduce.read_columns": 8.0, "reduce.to_arrow": 4.0, "reduce.write": 99.0,
    }  # fmt: skip
    return {
        "arm": strategy,
        "strategy": strategy,
        "options": {"execution": execution},
        "rounds": 1,
        "seconds": {"median": 300 * scale},
        "frame_bytes": 10_000_000 * scale,
        "phases": {name: {"cpu_s": s * scale} for name, s in phases.items()},
        **more,
    }


def claims_of(*arms: Mapping[str, Any], content: Mapping[str, Any] = CONTENT) -> list[Claim]:
    """The claims of arms with one round each."""
    named = [{**one, "arm": str(n)} for n, one in enumerate(arms)]
    timed = {
        one["arm"]: {
            1: CellValues(
                {},
                {name: PhaseSeconds(0.0, t["cpu_s"]) for name, t in one["phases"].items()},
                (),
            )
        }
        for one in named
    }
    return claims({"arms": named}, content, timed)


def test_the_four_quantities_are_set_beside_the_rfcs() -> None:
    found = claims_of(arm("avro", 1), arm("internal_row", 0.25))
    assert [(c.quantity, c.before, c.rfc_change) for c in found] == [
        ("serialise, CPU", 40.0, -0.799),
        ("deserialise, CPU", 72.0, -0.958),
        ("bytes between operators", 10.0, -0.299),
        ("total time", 300.0, -0.311),
    ]
    assert [c.change for c in found] == pytest.approx([-0.75] * 4)
    cells = claim_cells(found[0])[4:]
    shown = ["−75.0 %", "nothing", "−70.2 %", "−79.9 %", "not the same thing"]
    assert [cell.text for cell in cells] == shown
    assert [c.said_when_merged for c in found] == ["−70.2 %", "nothing", "nothing", "−15.0 %"]
    assert {c.pair for c in found} == {BY_COLUMN}
    assert [c.verdict for c in found] == [
        *["not the same thing"] * 2,
        "contradicts",
        "cannot tell",
    ]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.2, -0.1, "agrees"),
        (-0.25, -0.01, "agrees"),
        (-0.4, -0.26, "contradicts"),
        (0.01, 0.2, "contradicts"),
        (-0.3, -0.1, "cannot tell"),
        (-0.1, 0.1, "cannot tell"),
        # as shown they end at 0 and at the promised most
        (-0.24, -0.0002, "cannot tell"),
        (-0.4, -0.2502, "cannot tell"),
        (None, None, "cannot tell"),
    ],
)
def test_an_interval_is_held_against_the_range_of_the_rfc(
    low: float | None, high: float | None, verdict: str
) -> None:
    assert Claim("total time", 1, 1, "s", -0.311, low, high, -0.25).verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.35, -0.25, "agrees"),
        (-0.4, 0.1, "cannot tell"),
        (-0.2, -0.1, "contradicts"),
        (0.156, 0.156, "contradicts"),
        # an exact change, against one that was rounded when it was published
        (-0.2993, -0.2993, "agrees"),
        (-0.301, -0.301, "contradicts"),
    ],
)
def test_an_interval_is_held_against_the_figure_of_the_prototype(
    low: float, high: float, verdict: str
) -> None:
    assert Claim("bytes", 1, 1, "MB", -0.299, low, high).verdict == verdict


def test_the_interval_is_that_of_the_ratios_of_paired_rounds() -> None:
    def cell(arm: str, n: int, seconds: float) -> CellValues:
        sample = Sample("seconds", seconds, None, None)
        return cell_values(MeasuredCell(f"r{n}-{arm}", arm, n, False, 1, "", "ok", None, (sample,)))

    timed = {
        "avro": {n: cell("avro", n, 10.0 * n) for n in (1, 2, 3)},
        "internal_row": {
            n: cell("internal_row", n, 10.0 * n * r) for n, r in ((1, 0.8), (2, 0.9), (3, 0.85))
        },
    }
    arms = {"arms": [arm("avro", 1), arm("internal_row", 0.9)]}
    *_, total = claims(arms, CONTENT, timed)
    told = stats.ttest_1samp(np.log([0.8, 0.9, 0.85]), 0).confidence_interval(0.95)
    assert (total.low, total.high) == pytest.approx((np.exp(told.low) - 1, np.exp(told.high) - 1))
    assert total.change == pytest.approx((0.8 * 0.9 * 0.85) ** (1 / 3) - 1)
    assert total.verdict == "cannot tell"


def test_arms_of_one_execution_are_compared_and_envelopes_of_their_own_come_first() -> None:
    own = {"execution": "row", "envelope": "record"}
    arms = [
        arm("avro", 5, "row"),
        {**arm("avro", 6, "row"), "options": own},
        arm("internal_row", 3, "row"),
        arm("avro", 2),
        arm("internal_row", 1),
    ]
    found = claims_of(*arms)
    assert [(c.pair, c.before, c.after) for c in found if c.unit == "MB"] == [
        (ROW_BY_ROW, 60.0, 30.0),
        (BY_COLUMN, 20.0, 10.0),
    ]
    # without a typed row of the same execution there is no pair
    assert {c.pair for c in claims_of(*arms[:2], *arms[3:])} == {BY_COLUMN}


def test_another_index_is_held_against_the_rfcs_text_alone() -> None:
    def with_index(strategy: str, scale: float, name: str) -> dict[str, Any]:
        return {**arm(strategy, scale), "options": {"execution": "batch", "topology": name}}

    arms = [
        *(arm("avro", 4), arm("internal_row", 3)),
        *(with_index("avro", 2, "state"), with_index("internal_row", 1, "state")),
        # without an Avro arm of its own, it has no pair
        with_index("internal_row", 1, "consistent"),
    ]
    found = claims_of(*arms)
    assert [c.pair for c in found] == [BY_COLUMN] * 4 + ["by column, Flink's state"] * 4
    assert [(c.quantity, c.before, c.promised) for c in found[4:]] == [
        ("serialise, CPU", 80.0, "nothing"),
        ("deserialise, CPU", 144.0, "nothing"),
        ("bytes between operators", 20.0, "nothing"),
        ("total time", 600.0, "up to −25.0 %"),
    ]
    assert {(c.said_of_prototype, c.said_when_merged) for c in found[4:]} == {
        ("nothing", "nothing")
    }
    assert [c.verdict for c in found[4:]] == [*["not the same thing"] * 3, "cannot tell"]
    # a whole scenario with one topology has its arms in it
    whole = claims_of(*arms[:2], content={**CONTENT, "topology": {"name": "state"}})
    assert {c.pair for c in whole} == {"by column, Flink's state"}


def test_one_round_is_a_single_sample() -> None:
    one = {"arms": [arm("avro", 1), arm("internal_row", 0.5)]}
    assert rounds_said(one) == "a single sample"
    more = {"arms": [arm("avro", 1, rounds=3), arm("internal_row", 0.5, rounds=3)]}
    assert rounds_said(more) == "medians of 3 rounds"
    described = rfc84_json(
        claims_of(*one["arms"]), one, {"rows": {"1": 60}, "different_keys": {"1": 20}}
    )
    assert (described["samples"], described["different_keys"]) == ("a single sample", {"1": 20})


def test_a_wrong_arm_and_another_workload_have_no_claims() -> None:
    arms = [arm("avro", 1), arm("internal_row", 0.5, seconds=None)]
    assert claims_of(*arms) == []
    right = {"arms": [arm("avro", 1), arm("internal_row", 0.5)]}
    assert claims_of(*right["arms"], content={"data": {"key_range": "whole"}}) == []
    assert rfc84_json(claims_of(*right["arms"], content={"data": {}}), right, {}) == {}


def test_a_change_has_its_sign() -> None:
    assert percentage(0.186) == "+18.6 %"
    assert percentage(-0.311) == "−31.1 %"
