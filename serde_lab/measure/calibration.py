"""Runs the calibration cell: fixed work that uses none of our code, timed once per round.

The parts "numpy" and "disk" are defined here; the caller supplies the part "jvm" if it has a JVM. If a part's
time moves, the machine changed, and no verdict rests on that round alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

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
