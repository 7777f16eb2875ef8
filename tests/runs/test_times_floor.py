"""How many times the floor of the work an arm takes, from rounds with made-up seconds."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.analysis.arm_ratios import times_floor
from serde_lab.analysis.cell_values import CellValues, cell_values
from serde_lab.runs.model import MeasuredCell, Sample

MERGED = {"type": "COPY_ON_WRITE"}
SECONDS = {"floor": 2.0, "arrow": 3.0, "native": 5.0, "frames": 1.0, "cow_floor": 4.0, "cow": 10.0}
CONTENT: dict[str, Any] = {
    "arm": [
        {"name": "floor", "control": "work_floor"},
        {"name": "arrow", "strategy": "arrow"},
        {"name": "native", "control": "spark_native"},
        {"name": "frames", "control": "exchange_only"},
        {"name": "cow_floor", "control": "work_floor", "table": MERGED},
        {"name": "cow", "strategy": "arrow", "table": MERGED},
    ]
}


def arms() -> list[dict[str, Any]]:
    kinds = {one["name"]: "strategy" if "strategy" in one else "control" for one in CONTENT["arm"]}
    made = [{"arm": name, "kind": kind} for name, kind in kinds.items()]
    return [arm | ({"table": MERGED} if "cow" in arm["arm"] else {}) for arm in made]


def timed(*, cpu: bool = True, rounds: int = 4, lacking: str = "") -> dict[str, Any]:
    """Each round is slower than the one before by a tenth; CPU seconds are twice the seconds."""
    found: dict[str, dict[int, CellValues]] = {name: {} for name in SECONDS}
    for name, seconds in SECONDS.items():
        for n in range(1, rounds + 1):
            took = seconds * 1.1**n * (1 + 0.01 * (n % 2) * (name == "arrow"))
            samples = [Sample("seconds", took)]
            if cpu:
                samples.append(Sample("tree_cpu_s", 2 * took * (3 if name == "cow" else 1)))
            cell = MeasuredCell(f"r{n}-{name}", name, n, False, 0, "", "ok", None, tuple(samples))
            if name != lacking:
                found[name][n] = cell_values(cell)
    return found


def test_each_arm_is_over_the_floor_of_its_own_table() -> None:
    found = {one.arm: one for one in times_floor(arms(), CONTENT, timed())}
    assert {name: one.floor for name, one in found.items()} == {
        "arrow": "floor",
        "native": "floor",
        "cow": "cow_floor",
    }
    assert found["native"].seconds.value == pytest.approx(2.5)
    assert found["cow"].seconds.value == pytest.approx(2.5)
    cpu = found["cow"].cpu
    assert cpu is not None
    assert cpu.value == pytest.approx(7.5)
    arrow = found["arrow"].seconds
    assert arrow.low is not None
    assert arrow.high is not None
    assert arrow.low < 1.5075 < arrow.high
    assert arrow.value == pytest.approx(1.5075, abs=1e-4)
    assert arrow.rounds == 4
    shown = found["arrow"].to_json()
    assert (shown["times"], shown["low"], shown["high"]) == (arrow.value, arrow.low, arrow.high)


def test_without_cpu_time_there_is_no_multiple_of_it() -> None:
    found = times_floor(arms(), CONTENT, timed(cpu=False))
    assert {one.cpu for one in found} == {None}
    assert {one.to_json()["cpu"] for one in found} == {None}


def test_a_floor_that_cannot_be_shown_is_nobody_s() -> None:
    assert [one.arm for one in times_floor(arms(), CONTENT, timed(lacking="floor"))] == ["cow"]
    assert times_floor(arms()[1:4], CONTENT, timed()) == []


def test_a_swept_arm_is_over_the_floor_at_its_value() -> None:
    swept = [
        arm | {"arm": f"{arm['arm']}-{value}", "swept": {"arm": arm["arm"], "value": value}}
        for value in (1, 2)
        for arm in arms()[:2]
    ]
    rounds = timed()
    both = {f"{name}-{value}": rounds[name] for name in ("floor", "arrow") for value in (1, 2)}
    found = times_floor(swept, CONTENT, both)
    assert [(one.arm, one.floor) for one in found] == [
        ("arrow-1", "floor-1"),
        ("arrow-2", "floor-2"),
    ]
