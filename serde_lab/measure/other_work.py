"""Shows whether other work runs on the machine beside a cell: the spin before it, and the share of others.

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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path

from serde_lab.measure.environment import limits, usable_cores
from serde_lab.measure.process_tree import Tree, cpu_s_between, tree_now

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


class OthersShare:
    """What other processes take while the block of `others_share` runs.

    `value` is filled when the block ends: a share of the usable cores' time, None where nobody can tell.
    """

    def __init__(self, proc: Path, wall_ns: Callable[[], int]) -> None:
        self.value: float | None = None
        self._proc, self._wall_ns = proc, wall_ns
        self._others_s: float | None = 0.0
        self._wall_s = 0.0
        self._start()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Leave a block out: in it may end processes for which nobody waits, whose time would be others'."""
        self._stop()
        yield
        self._start()

    def _start(self) -> None:
        self._begin, self._begin_ns = _busy_s_and_tree(self._proc), self._wall_ns()

    def _stop(self) -> None:
        begin, end = self._begin, _busy_s_and_tree(self._proc)
        self._wall_s += (self._wall_ns() - self._begin_ns) / 1e9
        if begin is None or end is None or self._others_s is None:
            self._others_s = None
        else:
            self._others_s += end[0] - begin[0] - cpu_s_between(begin[1], end[1])

    def _end(self) -> None:
        self._stop()
        if self._others_s is not None and self._wall_s > 0 and limits().cores is None:
            share = self._others_s / (usable_cores() * self._wall_s)
            self.value = min(1.0, max(0.0, share))


@contextmanager
def others_share(
    proc: Path = Path("/proc"), wall_ns: Callable[[], int] = time.perf_counter_ns
) -> Iterator[OthersShare]:
    """The share of the usable cores' time that other processes take while the block runs.

    Nobody can tell without /proc, or in a container with a quota of CPU time, which /proc/stat does not show.
    """
    found = OthersShare(proc, wall_ns)
    before = _LOOK.set(found)
    try:
        yield found
    finally:
        _LOOK.reset(before)
    found._end()


_LOOK: ContextVar[OthersShare | None] = ContextVar("look", default=None)


def apart() -> AbstractContextManager[None]:
    """Leave a block out of the block of `others_share` around it; does nothing if this process has none."""
    look = _LOOK.get()
    return nullcontext() if look is None else look.apart()


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
