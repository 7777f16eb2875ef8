"""Clocks that count how often they are asked: what a run measures by them is the same each time.

They learn nothing from the calibration's work, so that it is small here. Stands in a copy of the package,
whose `__init__` imports it before anything else. Nothing else may import it, since it takes the place of
the system's clocks.
"""

from __future__ import annotations

import time

TICK_NS = 300_000
"""So short that what is read outside all phases stays under the least that an arm is refused for."""
_now_ns = 1_800_000_000 * 10**9


def read_ns() -> int:
    """One tick later than the time that was read before, whichever clock it was."""
    pass_ns(TICK_NS)
    return _now_ns


def pass_ns(ns: int) -> None:
    """Work that takes so long."""
    global _now_ns
    _now_ns += ns


time.perf_counter_ns = time.process_time_ns = time.time_ns = read_ns

from serde_lab.measure import environment  # noqa: E402 (it takes the clock when it is imported)

environment._NUMBERS = 50_000
environment._FILE_BYTES = 2 << 20
