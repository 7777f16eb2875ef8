"""The noise floor: how far two medians of the same thing lie apart on this machine, just now.

One definition for all: the change between two medians that ought to be equal, as four resamples of
five stay below it. They are the medians of two arms that do the very same (A/A) where a run has such;
of the calibration cell otherwise, which also bounds what changed between two sittings. Whether a
difference is real is the test's question, which the floor does not ask again: in simulations the 95th
percentile in its place cost up to a quarter of the detections and saved less than one false alarm
in a hundred. Knows sides and rounds, not verdicts.
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
    """A relative change (0.03 is 3 %) that is no evidence of anything, and where it comes from."""

    change: float = 0.0
    source: str = "no noise floor known"

    @property
    def known(self) -> bool:
        """Whether anything was there to find a floor by."""
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
    """The floor for one cell: the largest of the A/A pairs at hand and, across sittings, of drift.

    `control` is a further run of `before` in the same sitting, whose arms are A/A with its own.
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
        # Two arms that are compared cannot be their own yardstick.
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
