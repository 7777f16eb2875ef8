"""Estimates the noise floor: how far two medians of the same thing lie apart on this machine right now.

The floor is the change between two medians that should be equal, with four of five resamples below it. The
medians come from two arms that do exactly the same (A/A) if a run has such arms, else from the calibration
cell, which also bounds the drift between two sittings. The significance test, not the floor, decides whether
a difference is real: in simulations the 95th percentile in its place cost up to a quarter of the detections
and saved less than one false alarm in a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serde_lab.gate.compare.evidence import SMALLEST_SAMPLE, Values
from serde_lab.gate.compare.sides import Quantity, Side, interleaved
from serde_lab.gate.statistics.intervals import resampled_log_ratios
from serde_lab.gate.statistics.rounding import rounded_change
from serde_lab.measure.metrics import metric

_PERCENTILE = 0.80


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """A relative change (0.03 is 3 %) that is no evidence of a difference, and its source."""

    change: float = 0.0
    source: str = "no noise floor known"

    @property
    def known(self) -> bool:
        """Whether there was data to estimate a floor."""
        return self != NoiseFloor()


def spread_of_equals(first: Values, second: Values, *, paired: bool) -> float | None:
    """The 80th percentile of the change between medians; None with fewer than three rounds."""
    if paired:
        rounds = sorted(first.keys() & second.keys())
        first, second = {n: first[n] for n in rounds}, {n: second[n] for n in rounds}
    values = [list(side.values()) for side in (first, second)]
    if min(map(len, values)) < SMALLEST_SAMPLE or min(map(min, values)) <= 0:
        return None
    changes = np.abs(resampled_log_ratios(*values, paired=paired))
    return rounded_change(float(np.expm1(np.quantile(changes, _PERCENTILE))))


def noise_floor(
    quantity: Quantity, before: Side, after: Side, arms: tuple[str, str], control: Side | None
) -> NoiseFloor:
    """The floor of one cell: the largest of the available A/A pairs and, across sittings, of the drift.

    `control` is a further run of `before` in the same sitting, whose arms are A/A with those of `before`.
    """
    floors = [
        NoiseFloor(change, f"A/A of {name}")
        for change, name in _twins(quantity, before, after, arms, control)
    ]
    one_sitting = before is after or (before.sitting != "" and before.sitting == after.sitting)
    if (not one_sitting or not floors) and metric(quantity.metric).kind == "time":
        parts = before.calibration_parts & after.calibration_parts
        drift = spread_of_equals(
            before.calibration_s(parts), after.calibration_s(parts), paired=False
        )
        if drift is not None:
            floors.append(NoiseFloor(drift, "calibration"))
    return max(floors, key=lambda floor: floor.change, default=NoiseFloor())


def _twins(
    quantity: Quantity, before: Side, after: Side, arms: tuple[str, str], control: Side | None
) -> list[tuple[float, str]]:
    pairs = [
        (side.arms[first], side.arms[second], interleaved(side.arms[first], side.arms[second]))
        for side in ([before] if before is after else [before, after])
        for first, second in side.twins
        # Two arms that are compared cannot give their own noise floor.
        if {first, second} != set(arms) or before is not after
    ]
    if control is not None and arms[0] in before.arms and arms[0] in control.arms:
        pairs.append((before.arms[arms[0]], control.arms[arms[0]], True))
    own = [pair for pair in pairs if {pair[0].arm, pair[1].arm} & set(arms)]
    found = []
    for first, second, paired in own or pairs:
        change = spread_of_equals(
            first.values.get(quantity, {}), second.values.get(quantity, {}), paired=paired
        )
        if change is not None:
            found.append((change, first.arm))
    return found
