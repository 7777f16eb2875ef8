"""What of a run stands against RFC-84's figures."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.analysis.rfc84 import claims, percentage, rfc84_json, rounds_said

CONTENT = {"data": {"key_range": "third"}}


def arm(strategy: str, scale: float, **more: Any) -> dict[str, Any]:
    phases = {
        "map.from_arrow": 10.0, "map.encode": 30.0, "map.keygen": 99.0,
        "reduce.decode": 60.0, "reduce.to_arrow": 4.0, "reduce.write": 99.0,
    }  # fmt: skip
    return {
        "arm": strategy,
        "strategy": strategy,
        "rounds": 1,
        "seconds": {"median": 300 * scale},
        "frame_bytes": 10_000_000 * scale,
        "phases": {name: {"cpu_s": s * scale} for name, s in phases.items()},
        **more,
    }


def test_the_four_quantities_are_set_beside_the_rfcs() -> None:
    found = claims({"arms": [arm("avro", 1), arm("internal_row", 0.25)]}, CONTENT)
    assert [(c.quantity, c.before, c.rfc_change) for c in found] == [
        ("serialise, CPU", 40.0, -0.799),
        ("deserialise, CPU", 64.0, -0.958),
        ("bytes between operators", 10.0, -0.299),
        ("total time", 300.0, -0.311),
    ]
    assert [c.change for c in found] == pytest.approx([-0.75] * 4)
    assert found[0].cells()[4:] == ("−75.0 %", "−79.9 %")


def test_one_round_is_a_single_sample() -> None:
    one = {"arms": [arm("avro", 1), arm("internal_row", 0.5)]}
    assert rounds_said(one) == "a single sample"
    more = {"arms": [arm("avro", 1, rounds=3), arm("internal_row", 0.5, rounds=3)]}
    assert rounds_said(more) == "medians of 3 rounds"
    told = rfc84_json(one, CONTENT, {"rows": {"1": 60}, "different_keys": {"1": 20}})
    assert (told["samples"], told["different_keys"]) == ("a single sample", {"1": 20})


def test_a_wrong_arm_and_another_workload_have_no_claims() -> None:
    arms = [arm("avro", 1), arm("internal_row", 0.5, seconds=None)]
    assert claims({"arms": arms}, CONTENT) == []
    right = {"arms": [arm("avro", 1), arm("internal_row", 0.5)]}
    assert claims(right, {"data": {"key_range": "whole"}}) == []
    assert rfc84_json(right, {"data": {}}, {}) == {}


def test_a_change_has_its_sign() -> None:
    assert percentage(0.186) == "+18.6 %"
    assert percentage(-0.311) == "−31.1 %"
