"""Marks the rounds in which the machine ran at another speed than in the rest of the run.

Each round times a calibration cell, and a spin before each of its cells. A round is marked if the median of
its spins differs by more than 10 % from the run's median; in a run without spins the calibration cell
decides.

A run that was made beside other work is shown, says so, and is not quoted. Runs of older versions have
neither spins nor shares of other processes; for them the calibration and the load at the start decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from statistics import median

from serde_lab.runs.model import MeasuredCell, Run

SPIN = "spin"
"""The part of a round's calibration that is the median of the spins before its cells."""

CALIBRATION_LIMIT = 0.10
"""A round is marked if its spins, or its calibration, differ by more than this share from the median."""

CalibrationRounds = Mapping[int, Mapping[str, float]]
"""Seconds of each part of the calibration cell, by round."""


def calibration_rounds(run: Run, *, warmup: bool = False) -> dict[int, dict[str, float]]:
    """The calibration of the measured rounds of a run, in their order, with the spins before their cells;
    with `warmup` also that of the others."""
    measured = {cell.round for cell in run.cells if not cell.warmup}
    found: dict[int, dict[str, float]] = {}
    for one in run.calibrations:
        found.setdefault(one.round, {})[one.part] = float(one.value)
    spins: dict[int, list[float]] = {}
    for cell in run.cells:
        if own := _values(cell, "spin_s"):
            spins.setdefault(cell.round, []).extend(own)
    for number, times in spins.items():
        found.setdefault(number, {})[SPIN] = median(times)
    return {n: found[n] for n in sorted(found) if warmup or n in measured}


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
    """The marked rounds, each with its spins or its calibration as a multiple of the median."""
    spins = calibration_s(calibration, frozenset({SPIN}))
    times = spins or calibration_s(calibration)
    middle = median(times.values()) if times else 0.0
    if not middle:
        return {}
    return {n: t / middle for n, t in times.items() if abs(t - middle) > CALIBRATION_LIMIT * middle}


MOST_OF_OTHERS = 0.10
"""Other processes may take this share of the usable cores during an arm's cells, in their median."""
FAR, MOST_FAR = 0.25, 0.10
"""A spin is far if it differs from the run's median by a quarter; a tenth of the cells may be."""
MOST_MOVED = 2.0
"""The calibration of the slowest round may take this many times that of the fastest."""
MOST_LOAD = 2.0
"""At the start, as many processes a core may wait or run: preparing the data leaves some load."""


def other_work(run: Run) -> tuple[str, ...]:
    """The signs that other work ran beside the measured cells, in words; none for a quiet run."""
    return tuple(
        sign for sign in (_others(run), _spins(run), _calibration(run), _load(run)) if sign
    )


def disturbed_cells(run: Run) -> list[tuple[float, str, int]]:
    """The share of other processes, the arm and the round of each measured cell beside which they took more
    than `MOST_OF_OTHERS`."""
    shares = [
        (share, cell.arm, cell.round)
        for cell in run.cells
        if not cell.warmup
        for share in _values(cell, "others_share")
    ]
    return [one for one in shares if one[0] > MOST_OF_OTHERS]


def _values(cell: MeasuredCell, metric: str) -> list[float]:
    return [sample.value for sample in cell.samples if sample.metric == metric]


def _others(run: Run) -> str:
    """Judged for each arm: work that hides outside the process tree shows in its own arm alone."""
    by_arm: dict[str, list[float]] = {}
    for cell in run.cells:
        if not cell.warmup:
            by_arm.setdefault(cell.arm, []).extend(_values(cell, "others_share"))
    shares = {arm: median(found) for arm, found in by_arm.items() if found}
    arm = max(shares, key=lambda one: shares[one], default="")
    if not arm or shares[arm] <= MOST_OF_OTHERS:
        return ""
    return f"other processes took {shares[arm]:.0%} of the cores during the cells of {arm} (median)"


def _spins(run: Run) -> str:
    spins = [one for cell in run.cells if not cell.warmup for one in _values(cell, "spin_s")]
    middle = median(spins) if spins else 0.0
    far = [one for one in spins if abs(one - middle) > FAR * middle]
    if len(far) <= MOST_FAR * len(spins):
        return ""
    return f"before {len(far)} of {len(spins)} cells the spin was off its median by more than {FAR:.0%}"


def _calibration(run: Run) -> str:
    times = calibration_s(calibration_rounds(run)).values()
    if not times or max(times) <= MOST_MOVED * min(times):
        return ""
    return f"its calibration moved {max(times) / min(times):.1f}-fold between rounds"


def _load(run: Run) -> str:
    load = (run.header.environment.get("load_average") or [0.0])[0]
    cores = (run.header.environment.get("cpu") or {}).get("cores") or 1
    if load <= MOST_LOAD * cores:
        return ""
    return f"the load was {load:g} on {cores} cores when it started"
