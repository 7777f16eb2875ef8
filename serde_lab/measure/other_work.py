"""Recognises other work on the machine: a spin before each cell, and the CPU time of others during it.

The spin is fixed work on all usable cores at once, repeated for a tenth of a second: other work that takes a
core slows it down. The time of others is what the machine's cores were busy (Linux's /proc/stat, time stolen
by the hypervisor included) without what this process and its descendants used.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serde_lab.measure.environment import limits, usable_cores
from serde_lab.measure.process_tree import tree_cpu_s

_SPIN_S = 0.1
_BLOCK = bytes(256 << 10)
_BLOCKS = 100
"""The spin's time is given for as many blocks on each core."""
_IDLE_FIELDS = (3, 4)
_GUEST_FIELD = 8
"""In a line of /proc/stat (proc_stat(5)): idle and iowait; times of guests are in user and nice already."""


def spin_s(wall_ns: Callable[[], int] = time.perf_counter_ns, cores: int | None = None) -> float:
    """Seconds of 100 blocks of fixed work on each core, measured for a tenth of a second on all at once."""
    cores = usable_cores() if cores is None else cores
    with ThreadPoolExecutor(cores) as threads:
        # hashing a large block releases the interpreter's lock, so that threads run on all cores
        rates = list(threads.map(lambda _: _blocks_a_second(wall_ns), range(cores)))
    return _BLOCKS * cores / sum(rates)


def _blocks_a_second(wall_ns: Callable[[], int]) -> float:
    begin_ns, blocks = wall_ns(), 0
    while True:
        hashlib.sha256(_BLOCK).digest()
        blocks += 1
        spent_s = (wall_ns() - begin_ns) / 1e9
        if spent_s >= _SPIN_S:
            return blocks / spent_s


@dataclass(slots=True)
class OthersShare:
    """Filled when the block of `others_share` ends; None where nobody can tell."""

    value: float | None = None


@contextmanager
def others_share(
    proc: Path = Path("/proc"), wall_ns: Callable[[], int] = time.perf_counter_ns
) -> Iterator[OthersShare]:
    """The share of the usable cores' time that other processes take while the block runs.

    Nobody can tell without /proc, or in a container with a quota of CPU time, which /proc/stat does not show.
    """
    found = OthersShare()
    begin, begin_ns = _others_s(proc), wall_ns()
    yield found
    end, wall_s = _others_s(proc), (wall_ns() - begin_ns) / 1e9
    if begin is not None and end is not None and wall_s > 0 and limits().cores is None:
        found.value = max(0.0, end - begin) / (usable_cores() * wall_s)


def _others_s(proc: Path) -> float | None:
    """Seconds for which the usable cores were busy, without those of this process's tree."""
    own_s = tree_cpu_s(os.getpid(), proc)
    try:
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    usable = {f"cpu{core}" for core in os.sched_getaffinity(0)} if own_s is not None else set()
    busy = 0
    for line in lines:
        name, *fields = line.split()
        if name in usable:
            ticks = [int(field) for field in fields[:_GUEST_FIELD]]
            busy += sum(n for place, n in enumerate(ticks) if place not in _IDLE_FIELDS)
    return None if not busy or own_s is None else busy / os.sysconf("SC_CLK_TCK") - own_s
