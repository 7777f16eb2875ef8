"""Times fixed work that uses none of our code, once a round and before each cell, and the CPU time of others.

The parts "numpy" and "disk" are defined here; the caller supplies the part "jvm" if it has a JVM. If a part's
time moves, the machine changed, and no verdict rests on that round alone.

The spin before each cell is fixed work on all usable cores at once, repeated for a tenth of a second: other
work that takes a core slows it down. The time of others is what the machine's cores were busy (Linux's
/proc/stat, time stolen by the hypervisor included) without what this process and its descendants used.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from serde_lab.measure.environment import limits, usable_cores
from serde_lab.measure.process_tree import Tree, cpu_s_between, tree_now

Work = Callable[[], object]

_REPEATS = 3
_NUMBERS = 1_500_000
_FILE_BYTES, _CHUNK_BYTES = 128 << 20, 1 << 20


def calibrate(
    folder: Path,
    others: Mapping[str, Work] | None = None,
    wall_ns: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, float]:
    """Seconds of each part: the median of three runs, so that one slow run does not count as drift.

    `folder` is where tables are written; `others` are further parts by name, such as "jvm". Each part runs
    once untimed first.
    """
    with tempfile.TemporaryDirectory(prefix="calibration-", dir=folder) as scratch:
        file = Path(scratch) / "bytes"
        parts: dict[str, Work] = {
            "numpy": numpy_work,
            "disk": lambda: disk_work(file),
            **(others or {}),
        }
        return {name: _median_s(work, wall_ns) for name, work in parts.items()}


def numpy_work() -> int:
    """Sort, gather, hash and sum the same numbers each time, on one core."""
    numbers = np.arange(_NUMBERS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(numbers, kind="stable")
    mixed = numbers[order] ^ (numbers >> np.uint64(29))
    # no matrix product: it would start its own threads
    return int(np.cumsum(mixed, dtype=np.uint64)[-1]) ^ int(np.bincount(order & 1023).max())


def disk_work(file: Path) -> int:
    """Write a file and read it back through the page cache, as tables are written and read."""
    chunk = bytes(range(256)) * (_CHUNK_BYTES // 256)
    with file.open("wb", buffering=0) as out:
        for _ in range(_FILE_BYTES // _CHUNK_BYTES):
            out.write(chunk)
    read = 0
    with file.open("rb", buffering=0) as back:
        while data := back.read(_CHUNK_BYTES):
            read += len(data)
    file.unlink()
    return read


def _median_s(work: Work, wall_ns: Callable[[], int]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        begin = wall_ns()
        work()
        times.append(wall_ns() - begin)
    return statistics.median(times) / 1e9


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
    begin, begin_ns = _busy_s_and_tree(proc), wall_ns()
    yield found
    end, wall_s = _busy_s_and_tree(proc), (wall_ns() - begin_ns) / 1e9
    if begin is not None and end is not None and wall_s > 0 and limits().cores is None:
        others_s = end[0] - begin[0] - cpu_s_between(begin[1], end[1])
        found.value = min(1.0, max(0.0, others_s / (usable_cores() * wall_s)))


def _busy_s_and_tree(proc: Path) -> tuple[float, Tree] | None:
    """Seconds for which the usable cores were busy so far, and this process's tree."""
    tree = tree_now(os.getpid(), proc)
    try:
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    usable = {f"cpu{core}" for core in os.sched_getaffinity(0)} if tree else set()
    busy = 0
    for line in lines:
        name, *fields = line.split()
        if name in usable:
            ticks = [int(field) for field in fields[:_GUEST_FIELD]]
            busy += sum(n for place, n in enumerate(ticks) if place not in _IDLE_FIELDS)
    return (busy / os.sysconf("SC_CLK_TCK"), tree) if busy else None
