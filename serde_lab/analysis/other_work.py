"""Decides whether a run was made beside other work, from its spins, its calibration and the machine's load.

Such a run is shown, says so, and is not quoted. Runs of older versions have neither spins nor shares of other
processes; for them the calibration of each round and the load at the start decide.
"""

from __future__ import annotations

from statistics import median

from serde_lab.analysis.calibration import calibration_rounds, calibration_s
from serde_lab.runs.model import Run

MOST_OF_OTHERS = 0.10
"""Other processes may take this share of the usable cores during the cells, in their median."""
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


def _measured(run: Run, metric: str) -> list[float]:
    return [
        sample.value
        for cell in run.cells
        if not cell.warmup
        for sample in cell.samples
        if sample.metric == metric
    ]


def _others(run: Run) -> str:
    shares = _measured(run, "others_share")
    if not shares or median(shares) <= MOST_OF_OTHERS:
        return ""
    return f"other processes took {median(shares):.0%} of the cores during a cell (median)"


def _spins(run: Run) -> str:
    spins = _measured(run, "spin_s")
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
