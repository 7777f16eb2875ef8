"""Computes how many times the floor of the work, the control `work_floor`, each arm takes.

By seconds, and by CPU time. An arm is compared with the floor that writes the same kind of table, from the
same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serde_lab.analysis.cell_values import Rounds, by_round
from serde_lab.analysis.ratios import Ratio, paired_ratio

FLOOR = "work_floor"
_PART_OF_THE_WORK = ("exchange_only", "parquet_floor")
"""Controls that a multiple of the whole work says nothing about."""


@dataclass(frozen=True, slots=True)
class TimesFloor:
    """`arm` over `floor`, an arm of the control: above 1 it takes longer.

    `cpu` is the same of the CPU time of all processes, None where it was not measured.
    """

    arm: str
    kind: str
    floor: str
    seconds: Ratio
    cpu: Ratio | None

    def to_json(self) -> dict[str, Any]:
        """For `show --format json`."""
        cpu = self.cpu
        return {
            "arm": self.arm,
            "floor": self.floor,
            "times": self.seconds.value,
            "low": self.seconds.low,
            "high": self.seconds.high,
            "rounds": self.seconds.rounds,
            "cpu": None if cpu is None else [cpu.value, cpu.low, cpu.high],
        }


def times_floor(
    arms: Sequence[Mapping[str, Any]], content: Mapping[str, Any], timed: Mapping[str, Rounds]
) -> list[TimesFloor]:
    """The multiples of a run, in the order of its arms; empty without a floor that can be shown.

    `arms` are those of the run's summary, `content` is its scenario, `timed` the rounds of each arm with a
    timing that can be shown.
    """
    controls = {one.get("name"): one.get("control") for one in content.get("arm") or ()}

    def control(arm: Mapping[str, Any]) -> Any:
        return controls.get(_swept(arm).get("arm", arm["arm"]))

    floors = [arm for arm in arms if control(arm) == FLOOR]
    found = []
    for arm in arms:
        floor = next((one for one in floors if _alike(one, arm)), None)
        if floor is None or control(arm) in (FLOOR, *_PART_OF_THE_WORK):
            continue
        seconds, cpu = (
            paired_ratio(*(by_round(timed[one["arm"]], metric) for one in (arm, floor)))
            for metric in ("seconds", "tree_cpu_s")
        )
        if seconds is not None:
            found.append(TimesFloor(arm["arm"], arm["kind"], floor["arm"], seconds, cpu))
    return found


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two arms write the same kind of table, at the same value of a sweep."""
    values = [{k: v for k, v in _swept(arm).items() if k != "arm"} for arm in (one, other)]
    return one.get("table") == other.get("table") and values[0] == values[1]


def _swept(arm: Mapping[str, Any]) -> Mapping[str, Any]:
    return arm.get("swept") or {}
