"""Marks the rounds in which the machine ran at another speed than in the rest of the run.

Each round times a calibration cell. A round is marked if its calibration differs by more than 10 % from the
run's median.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from statistics import median

from serde_lab.runs.model import Run

CALIBRATION_LIMIT = 0.10
"""A round is marked if its calibration differs from the run's median by more than this share."""

CalibrationRounds = Mapping[int, Mapping[str, float]]
"""Seconds of each part of the calibration cell, by round."""


def calibration_rounds(run: Run, *, warmup: bool = False) -> dict[int, dict[str, float]]:
    """The calibration of the measured rounds of a run, in their order; with `warmup` also of the others."""
    measured = {cell.round for cell in run.cells if not cell.warmup}
    found: dict[int, dict[str, float]] = {}
    for one in sorted(run.calibrations, key=lambda one: one.round):
        if warmup or one.round in measured:
            found.setdefault(one.round, {})[one.part] = float(one.value)
    return found


def common_parts(calibration: CalibrationRounds) -> frozenset[str]:
    """The parts that every round has measured."""
    rounds = [frozenset(parts) for parts in calibration.values()]
    return frozenset.intersection(*rounds) if rounds else frozenset()


def calibration_s(
    calibration: CalibrationRounds, parts: frozenset[str] | None = None
) -> dict[int, float]:
    """The calibration cell's seconds by round; empty if no part was measured in every round.

    Sums the parts that every round has; with `parts`, only those of them in `parts`.
    """
    wanted = common_parts(calibration)
    if parts is not None:
        wanted &= parts
    if not wanted:
        return {}
    return {n: fsum(of[name] for name in wanted) for n, of in calibration.items()}


def moved_rounds(calibration: CalibrationRounds) -> dict[int, float]:
    """The marked rounds, each with its calibration as a multiple of the median."""
    times = calibration_s(calibration)
    middle = median(times.values()) if times else 0.0
    if not middle:
        return {}
    return {n: t / middle for n, t in times.items() if abs(t - middle) > CALIBRATION_LIMIT * middle}
