"""Times the phases of one Python task: wall time and CPU time of each phase, and counters.

A timeline covers one call of a stage function, in a Spark worker or in the driver's own process. Time that no
phase covers is reported as `unattributed`.

    timeline = TaskTimeline("map")
    for batch in timeline.source(batches):              # blocked in next(): input_wait
        with timeline.phase("encode"):
            ...
        timeline.add("frames", 8)
    timeline.sink(frames)                               # from yield to resumption: output_wait
    timeline.report()

Phases do not nest, so that their sum never exceeds the whole: `interrupted` stops the open phase's clock for
as long as another phase runs. One phase costs about two microseconds (two reads of each clock): time
batches, not rows.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from serde_lab.errors import LabError

INPUT_WAIT = "input_wait"
OUTPUT_WAIT = "output_wait"
THREADS_LEFT = "threads_left"
"""Counts threads beside the task's own: those that outlive the phase that started them, and those of Spark's
workers that were there before the task. No phase can be told to have their work."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """The three clocks of a timeline, in nanoseconds; tests supply their own.

    `wall_ns` is monotonic, `cpu_ns` is the CPU time of the whole process (a thread's own clock misses
    pyarrow's threads), `epoch_ns` aligns a worker's time with the driver's and the JVM's.
    """

    wall_ns: Callable[[], int]
    cpu_ns: Callable[[], int]
    epoch_ns: Callable[[], int]


SYSTEM_CLOCK = Clock(time.perf_counter_ns, time.process_time_ns, time.time_ns)


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The time of one phase in one task, over all its calls."""

    wall_ns: int
    cpu_ns: int
    calls: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of one task, which travels as pickle.

    `stage` is the pipeline's label ("map", "reduce"). `wall_ns` and `cpu_ns` run from the timeline's start to
    its report. `phases` is keyed by verb, without the stage.
    """

    stage: str
    started_epoch_ns: int
    ended_epoch_ns: int
    wall_ns: int
    cpu_ns: int
    phases: Mapping[str, PhaseTime]
    counters: Mapping[str, int]
    peak_rss_bytes: int
    pid: int
    kept: tuple[bytes, ...] = ()
    """Frames that the task drew at random from those that it received."""

    @property
    def unattributed_ns(self) -> int:
        """Wall time of the task that no phase covers."""
        return self.wall_ns - sum(phase.wall_ns for phase in self.phases.values())


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """The report of one task attempt; `task_id` is `TaskContext.taskAttemptId()`."""

    stage_id: int
    partition: int
    task_id: int
    attempt: int
    report: TaskReport


class TaskTimeline:
    """Accumulates the phases and counters of one task, from construction to `report`."""

    __slots__ = (
        "_clock",
        "_counters",
        "_cpu_from_ns",
        "_kept",
        "_open",
        "_phases",
        "_started_epoch_ns",
        "_wall_from_ns",
        "stage",
    )

    def __init__(self, stage: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.stage = stage
        self._clock = clock
        self._phases: dict[str, _Phase] = {}
        self._counters: dict[str, int] = {}
        self._open: _Phase | None = None
        self._kept: tuple[bytes, ...] = ()
        self._started_epoch_ns = clock.epoch_ns()
        self._wall_from_ns = clock.wall_ns()
        self._cpu_from_ns = clock.cpu_ns()

    def phase(self, name: str) -> _Phase:
        """A context manager that adds its wall and CPU time to phase `name`.

        Raises LabError on entry if another phase is open.
        """
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = _Phase(self, name, self._clock)
        return phase

    @property
    def open_phase(self) -> str:
        """The name of the phase that is open; "" outside of all phases."""
        return "" if self._open is None else self._open.name

    @contextmanager
    def interrupted(self, name: str) -> Iterator[None]:
        """Time the block as phase `name`; the clock of the open phase, if any, stands still meanwhile."""
        outer = self._open
        if outer is not None:
            outer.stop()
            self._open = None
        try:
            with self.phase(name):
                yield
        finally:
            if outer is not None:
                self._open = outer
                outer.start()

    def keep(self, frames: Iterable[bytes]) -> None:
        """Report these frames, in place of those of an earlier call."""
        self._kept = tuple(frames)

    def add(self, counter: str, n: int = 1) -> None:
        """Add `n` to a counter of this task (frames, frame_bytes, rows, ...)."""
        self._counters[counter] = self._counters.get(counter, 0) + int(n)

    def source(self, items: Iterable[T]) -> Generator[T, None, None]:
        """The items, with the time blocked in `next()` as phase `input_wait`."""
        iterator = iter(items)
        wait = self.phase(INPUT_WAIT)
        try:
            while True:
                with wait:
                    try:
                        item = next(iterator)
                    except StopIteration:
                        return
                yield item
        finally:
            _close(iterator)

    def sink(self, items: Iterable[T]) -> Generator[T, None, None]:
        """The items, with the time from `yield` to resumption as phase `output_wait`."""
        iterator = iter(items)
        wait = self.phase(OUTPUT_WAIT)
        try:
            for item in iterator:
                with wait:
                    yield item
        finally:
            # run the stage's own clean-up even if the consumer stops early
            _close(iterator)

    def report(self) -> TaskReport:
        """The report of everything so far. Raises LabError while a phase is open."""
        wall_ns = self._clock.wall_ns() - self._wall_from_ns
        cpu_ns = self._clock.cpu_ns() - self._cpu_from_ns
        if self._open is not None:
            raise LabError(
                f"internal error: the timeline of stage {self.stage!r} was reported"
                f" while its phase {self.open_phase!r} was open"
            )
        return TaskReport(
            stage=self.stage,
            started_epoch_ns=self._started_epoch_ns,
            ended_epoch_ns=self._clock.epoch_ns(),
            wall_ns=wall_ns,
            cpu_ns=cpu_ns,
            phases={
                name: PhaseTime(phase.wall_ns, phase.cpu_ns, phase.calls)
                for name, phase in self._phases.items()
                if phase.calls
            },
            counters=dict(self._counters),
            peak_rss_bytes=peak_rss_bytes(),
            pid=os.getpid(),
            kept=self._kept,
        )


class _Phase:
    """One phase of a timeline, which may be entered many times."""

    __slots__ = (
        "_clock_cpu_ns",
        "_clock_wall_ns",
        "_cpu_from_ns",
        "_threads",
        "_timeline",
        "_wall_from_ns",
        "calls",
        "cpu_ns",
        "name",
        "wall_ns",
    )

    def __init__(self, timeline: TaskTimeline, name: str, clock: Clock) -> None:
        self._timeline = timeline
        self._clock_wall_ns = clock.wall_ns
        self._clock_cpu_ns = clock.cpu_ns
        self.name = name
        self.wall_ns = self.cpu_ns = self.calls = 0
        self._wall_from_ns = self._cpu_from_ns = self._threads = 0

    def __enter__(self) -> None:
        timeline = self._timeline
        if timeline._open is not None:
            raise LabError(
                f"internal error: phase {self.name!r} of stage {timeline.stage!r} was opened inside"
                f" phase {timeline.open_phase!r}, and phases do not nest"
            )
        timeline._open = self
        self._threads = threading.active_count()
        self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.calls += 1
        self._timeline._open = None
        if threading.active_count() > self._threads:
            self._timeline.add(THREADS_LEFT)

    def start(self) -> None:
        """Let the phase's clocks run."""
        # the wall clock is read outermost, so that the phase includes reading the CPU clock
        self._wall_from_ns = self._clock_wall_ns()
        self._cpu_from_ns = self._clock_cpu_ns()

    def stop(self) -> None:
        """Add what the clocks have counted since `start`."""
        self.cpu_ns += self._clock_cpu_ns() - self._cpu_from_ns
        self.wall_ns += self._clock_wall_ns() - self._wall_from_ns


def peak_rss_bytes() -> int:
    """The peak memory of this process, in bytes.

    Prefers Linux's VmHWM: in a process started by a JVM, `ru_maxrss` may be the JVM's own, since it survives
    exec.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _close(iterator: object) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
