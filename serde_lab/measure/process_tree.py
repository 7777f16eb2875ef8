"""Measures CPU time and memory of this process and everything it started, from Linux's /proc.

The tree of a session is the lab's own process, Spark's JVM with its compiler and garbage collector, and the
Python workers. Its CPU time is the cost that a busy machine falsifies least, and no thread or child process
escapes it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_MEMORY_INTERVAL_S = 0.1
_SCANS_PER_MEMBER_LIST = 10
"""Which processes belong to the tree is looked up in every tenth sample of memory only."""
_ATTEMPTS = 5
_PATIENCE_S = 5.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What a process tree used: CPU seconds (in ticks of 10 ms), and its peak memory in bytes.

    The peak is the largest sum of the processes' private memory, sampled every 0.1 s, plus their shared
    pages, each counted once. `worker_cpu_s` is the part of `cpu_s` that other processes than the root and
    Spark's JVM used: Python workers, and whatever they or an arm started.
    """

    cpu_s: float
    peak_bytes: int
    worker_cpu_s: float = 0.0


@dataclass(slots=True)
class MeasuredTree:
    """Filled when the block of `tree_use` ends; None where /proc is missing (macOS, Windows)."""

    use: TreeUse | None = None


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    ticks: int
    ticks_of_reaped: int


_NEW = _Process(0, 0, 0)
Tree: TypeAlias = dict[int, _Process]
"""The processes of a tree by their ids, at one moment."""


@contextmanager
def _adopted_orphans() -> Iterator[None]:
    """Be the parent of descendants whose own parent ends while the block runs: none leaves the tree."""
    before = adopt_orphans(True)
    try:
        yield
    finally:
        adopt_orphans(before)


def adopt_orphans(adopt: bool) -> bool:
    """Whether this process is the parent of descendants whose own parent ends; returns what was so before.

    Whoever leaves it on has to wait for the adopted ones (`end_processes`), or they stay as zombies.
    """
    before = ctypes.c_int(0)
    with suppress(OSError, AttributeError):  # Linux alone knows it
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
    return bool(before.value)


def started_by(parents: Iterable[int], variable: str, proc: Path = Path("/proc")) -> frozenset[int]:
    """Descendants of `parents`, and children of this process that have the environment `variable`."""
    processes = _processes(proc)
    found: set[int] = set().union(*(_members(pid, processes) - {pid} for pid in parents))
    wanted = f"{variable}=".encode()
    for pid, process in processes.items():
        if process.parent == os.getpid():
            with suppress(OSError):  # it has ended
                entries = (proc / str(pid) / "environ").read_bytes().split(b"\0")
                if any(entry.startswith(wanted) for entry in entries):
                    found |= _members(pid, processes)
    return frozenset(found)


def end_processes(parents: Iterable[int], started: Iterable[int]) -> None:
    """Ask `parents` to end, kill what they `started`, and wait for those of them that this process adopts."""
    parents, started = tuple(parents), tuple(started)
    for pid, kind in (*((p, signal.SIGTERM) for p in parents), *((p, _KILL) for p in started)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, kind)
    patience = time.monotonic() + _PATIENCE_S
    left = {*parents, *started}
    while left and time.monotonic() < patience:
        left = {pid for pid in left if not _has_ended(pid)}
        if left:
            time.sleep(0.01)


def _has_ended(pid: int) -> bool:
    with suppress(ChildProcessError):  # another process's child
        os.waitpid(pid, os.WNOHANG)
    return not Path(f"/proc/{pid}").exists()


@contextmanager
def tree_use(
    root: int | None = None, proc: Path = Path("/proc"), jvm: int | None = None
) -> Iterator[MeasuredTree]:
    """Measure the tree of process `root` (default: this one) while the block runs; `jvm` is Spark's."""
    root = os.getpid() if root is None else root
    measured = MeasuredTree()
    begin = tree_now(root, proc)
    memory = _MemorySampler(root, proc)
    memory.start()
    try:
        with _adopted_orphans():
            yield measured
            end = tree_now(root, proc)
    finally:
        peak_bytes = memory.stop()
    if begin and end:
        cpu_s = cpu_s_between(begin, end)
        own = sum(end[pid].ticks - begin.get(pid, _NEW).ticks for pid in (root, jvm) if pid in end)
        measured.use = TreeUse(cpu_s, peak_bytes, cpu_s - own / os.sysconf("SC_CLK_TCK"))


def tree_cpu_s(root: int, proc: Path = Path("/proc")) -> float | None:
    """CPU seconds that the tree of `root` has used so far, ended children that were waited for included;
    None without /proc."""
    tree = tree_now(root, proc)
    ticks = sum(process.ticks + process.ticks_of_reaped for process in tree.values())
    return ticks / os.sysconf("SC_CLK_TCK") if tree else None


def tree_now(root: int, proc: Path = Path("/proc")) -> Tree:
    """The processes of the tree of `root`; none if it is not running, or without /proc."""
    for _ in range(_ATTEMPTS):
        processes = _processes(proc)
        members = _members(root, processes)
        # a process that ended between two reads would be counted twice or not at all
        if _members(root, _processes(proc)) == members:
            break
    return {pid: processes[pid] for pid in members}


def cpu_s_between(begin: Tree, end: Tree) -> float:
    """CPU seconds that a tree used between two looks at it.

    A process that ended meanwhile adds its whole life to the parent that waited for it, so what it had used
    before is taken off there, at most as much as was added: a parent need not have waited. Spark's worker
    daemon does not, so the difference of two `tree_cpu_s` would be too small by the workers' whole lives.
    """
    ended: dict[int, int] = {}
    for pid, process in begin.items():
        if pid not in end:
            parent = process.parent
            while parent in begin and parent not in end:
                parent = begin[parent].parent
            ended[parent] = ended.get(parent, 0) + process.ticks + process.ticks_of_reaped
    ticks = 0
    for pid, process in end.items():
        before = begin.get(pid, _NEW)
        reaped = process.ticks_of_reaped - before.ticks_of_reaped - ended.get(pid, 0)
        ticks += process.ticks - before.ticks + max(0, reaped)
    return ticks / os.sysconf("SC_CLK_TCK")


def _members(root: int, processes: dict[int, _Process]) -> frozenset[int]:
    """The ids of `root` and its descendants; none if `root` is not running."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    pending = [root] if root in processes else []
    while pending:
        pid = pending.pop()
        found.add(pid)
        pending += children.get(pid, ())
    return frozenset(found)


def _processes(proc: Path) -> dict[int, _Process]:
    found = {}
    for folder in _names(proc):
        try:
            text = (proc / folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # the process has ended
            continue
        # the name in parentheses may hold anything, so fields are counted after it (proc_pid_stat(5))
        fields = text.rpartition(")")[2].split()
        own, reaped = fields[11:13], fields[13:15]
        found[int(folder)] = _Process(int(fields[1]), sum(map(int, own)), sum(map(int, reaped)))
    return found


def _names(proc: Path) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 (a hot path)
    except OSError:
        return []


@dataclass(slots=True)
class _MemorySampler:
    """Samples the tree's memory in a thread."""

    root: int
    proc: Path
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _members: frozenset[int] = frozenset()
    _peak_private: int = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tree-memory", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop sampling; returns the peak in bytes."""
        assert self._thread is not None
        self._done.set()
        self._thread.join()
        self._sample(look_up=True)
        return self._peak_private + self._shared_bytes()

    def _run(self) -> None:
        number = 0
        while True:
            self._sample(look_up=number % _SCANS_PER_MEMBER_LIST == 0)
            number += 1
            if self._done.wait(_MEMORY_INTERVAL_S):
                return

    def _sample(self, look_up: bool) -> None:
        if look_up:
            self._members = _members(self.root, _processes(self.proc))
        private = 0
        for pid in self._members:
            with suppress(OSError, ValueError):  # it has ended
                fields = (self.proc / str(pid) / "statm").read_text().split()
                private += int(fields[1]) - int(fields[2])
        self._peak_private = max(self._peak_private, private * os.sysconf("SC_PAGE_SIZE"))

    def _shared_bytes(self) -> int:
        """What to add to private memory, from each process's smaps_rollup, read once after the clock.

        Shared files and memory count once (their proportional sizes add up to that); anonymous pages that a
        forked worker still shares with its daemon were counted for both, and are taken off again.
        """
        total = 0
        for pid in self._members:
            sizes = self._rollup(pid)
            if sizes:
                total += sizes["Pss"] - sizes["Pss_Anon"] - (sizes["Anonymous"] - sizes["Pss_Anon"])
        return total

    def _rollup(self, pid: int) -> dict[str, int]:
        """Sizes in bytes by name; empty if they cannot be read."""
        try:
            text = (self.proc / str(pid) / "smaps_rollup").read_text()
        except OSError:
            return {}
        lines = (line.partition(":") for line in text.splitlines()[1:])
        return {name: int(value.split()[0]) << 10 for name, _, value in lines}
