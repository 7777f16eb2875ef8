"""Places tasks on task slots over time, and computes why slots were empty.

A sweep over intervals in nanoseconds splits slots x wall into busy and idle time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Interval:
    """[begin_ns, end_ns), since the epoch."""

    begin_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """The length in nanoseconds, never negative."""
        return max(0, self.end_ns - self.begin_ns)

    def within(self, outer: Interval) -> Interval:
        """The part inside `outer`, of length zero if there is none."""
        begin = min(max(self.begin_ns, outer.begin_ns), outer.end_ns)
        return Interval(begin, max(begin, min(self.end_ns, outer.end_ns)))


@dataclass(frozen=True, slots=True)
class Held:
    """A task that holds a slot in `whole`; `core` is the part that is certainly its own."""

    task: int
    whole: Interval
    core: Interval


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Nanoseconds of empty slots, by cause."""

    driver_ns: int
    stage_tail_ns: int
    scheduler_ns: int


def without_overlap(held: Sequence[Held], slots: int) -> tuple[Held, ...]:
    """The tasks placed on `slots` slots so that no slot holds two at once; in the given order.

    Spark frees a slot before it has taken the finished task's result, and notes the finish only afterwards:
    the slot's next task may be launched milliseconds before that. In this case the older task is cut back, at
    most to its core, and any remaining overlap is cut from the start of the newer task. No core is cut unless
    more cores than slots overlap.
    """
    last: list[Held | None] = [None] * slots
    done: dict[int, Held] = {}
    for one in sorted(held, key=lambda one: (one.core.begin_ns, one.whole.begin_ns, one.task)):
        slot = _slot_for(one, last)
        before = last[slot]
        last[slot] = one
        if before is not None and before.whole.end_ns > one.whole.begin_ns:
            edge_ns = max(before.whole.begin_ns, before.core.end_ns, one.whole.begin_ns)
            before = replace(before, whole=Interval(before.whole.begin_ns, edge_ns))
            done[before.task] = before
            whole = Interval(min(edge_ns, one.whole.end_ns), one.whole.end_ns)
            one = replace(one, whole=whole, core=one.core.within(whole))
            # a task that was cut away completely leaves the slot to the older one
            last[slot] = one if one.whole.end_ns >= edge_ns else before
        done[one.task] = one
    return tuple(done[one.task] for one in held)


def _slot_for(one: Held, last: Sequence[Held | None]) -> int:
    """The slot freed last before the task began; else one where only the noted times overlap."""
    empty = [i for i, held in enumerate(last) if held is None]
    filled = [(held, i) for i, held in enumerate(last) if held is not None]
    left = [(held.whole.end_ns, i) for held, i in filled if held.whole.end_ns <= one.whole.begin_ns]
    if left or empty:
        return max(left)[1] if left else empty[0]
    apart = [(held.whole.end_ns, i) for held, i in filled if held.core.end_ns <= one.core.begin_ns]
    return min(apart or [(held.core.end_ns, i) for held, i in filled])[1]


def idle_time(
    cell: Interval, slots: int, running: Iterable[Interval], waiting: Iterable[Interval]
) -> IdleTime:
    """Why slots were empty in `cell`; `running` never exceeds `slots` at any time.

    At each moment, as many empty slots as there are waiting tasks count as the scheduler's. The others count
    as the stage's tail if a task runs or waits, else as the driver's. The three and the running intervals sum
    to slots x cell exactly.
    """
    running = [one.within(cell) for one in running]
    waiting = [one.within(cell) for one in waiting]
    edges = np.unique(
        [cell.begin_ns, cell.end_ns]
        + [edge for one in running for edge in (one.begin_ns, one.end_ns)]
        + [edge for one in waiting for edge in (one.begin_ns, one.end_ns)]
    )
    lengths = np.diff(edges)
    busy = _depth(edges, running)
    queued = _depth(edges, waiting)
    empty = slots - busy
    scheduler = np.minimum(queued, empty)
    rest = empty - scheduler
    stage = (busy + queued) > 0
    return IdleTime(
        driver_ns=int((lengths * np.where(stage, 0, rest)).sum()),
        stage_tail_ns=int((lengths * np.where(stage, rest, 0)).sum()),
        scheduler_ns=int((lengths * scheduler).sum()),
    )


def _depth(edges: npt.NDArray[np.int64], intervals: list[Interval]) -> npt.NDArray[np.int64]:
    """The number of intervals that cover each piece between two edges."""
    steps = np.zeros(len(edges), np.int64)
    for one in intervals:
        steps[np.searchsorted(edges, one.begin_ns)] += 1
        steps[np.searchsorted(edges, one.end_ns)] -= 1
    return np.cumsum(steps)[:-1]
