"""The slowdown that the gate's own test injects: a strategy burns CPU time in `encode`, once in each task.

Spark's workers import this module inside the clock, so it imports only what they have loaded before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from serde_lab.pipeline.spark.worker import SparkTask
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, Records


@contextmanager
def slowed(serde: BoundSerde, cpu_s: float) -> Iterator[None]:
    """Make the strategy of `serde` burn `cpu_s` seconds of CPU in its next call of `encode` in this process,
    once; undone on exit."""
    kind: Any = type(serde)
    original = kind.encode
    left = [cpu_s]

    def encode(self: BoundSerde, records: Records, bounds: Bounds) -> Frames:
        if left:
            burn(left.pop())
        frames: Frames = original(self, records, bounds)
        return frames

    inherited = "encode" not in vars(kind)
    kind.encode = encode
    try:
        yield
    finally:
        if inherited:
            del kind.encode
        else:
            kind.encode = original


def burn(cpu_s: float) -> None:
    """Use this much CPU time in a loop; on a busy machine its wall time grows like that of other work."""
    end_ns = time.process_time_ns() + round(cpu_s * 1e9)
    while time.process_time_ns() < end_ns:
        sum(range(100))


class SlowedTask(SparkTask):
    """A task whose strategy is slowed by `cpu_s` seconds."""

    cpu_s = 0.0

    @classmethod
    def of(cls, task: SparkTask, cpu_s: float) -> SlowedTask:
        """The same task, slowed."""
        found = cls(task.plan, task.stage, task.reports, task.files, task.batch_rows)
        found.cpu_s = cpu_s
        return found

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with slowed(self.plan.bind(), self.cpu_s):
            yield from super()._run(batches)
