"""Which rounds met a machine that was not itself: the one rule on the calibration cell.

A round whose calibration lies farther than 10 % from the run's median is marked. Must not know what
is made of marked rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from statistics import median

CALIBRATION_LIMIT = 0.10
"""A round is marked where its calibration cell lies farther than this from the run's median."""

Calibration = Mapping[int, Mapping[str, float]]
"""Seconds of each part of the calibration cell, by round."""


def common_parts(calibration: Calibration) -> frozenset[str]:
    """The parts that every round has."""
    rounds = [frozenset(parts) for parts in calibration.values()]
    return frozenset.intersection(*rounds) if rounds else frozenset()


def calibration_s(
    calibration: Calibration, parts: frozenset[str] | None = None
) -> dict[int, float]:
    """The cell's time by round, over `parts` or all that every round has; empty where there are none."""
    wanted = common_parts(calibration)
    if parts is not None:
        wanted &= parts
    if not wanted:
        return {}
    return {n: fsum(of[name] for name in wanted) for n, of in calibration.items()}


def moved_rounds(calibration: Calibration) -> dict[int, float]:
    """The rounds to mark, each with its calibration as a multiple of the median."""
    times = calibration_s(calibration)
    middle = median(times.values()) if times else 0.0
    if not middle:
        return {}
    return {n: t / middle for n, t in times.items() if abs(t - middle) > CALIBRATION_LIMIT * middle}
