"""A strategy that stops the run in the middle of a cell. Installed as a plug-in for tests only.

It works as `arrow` does until its arm's cell that STOPPED_AT numbers, by how many the run has begun; there
it notes who is alive, sends the run's process the signal STOPPED_BY, and waits for its own end.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil
import pyarrow as pa

from serde_lab.records.schema import RecordSchema
from serde_lab.serde.arrow.records import ArrowStrategy, BoundArrow
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Execution,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)


@dataclass(frozen=True)
class BoundStopped(BoundSerde):
    """Arrow's frames behind a mark of its own, until it stops the run."""

    schema: RecordSchema
    options: SerdeOptions
    inner: BoundArrow
    mark = b"\xdb"

    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        return self.inner.from_arrow(batch)

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        _stop_in_time()
        frames = self.inner.encode(records, bounds)
        marked = [self.mark + frame for frame in frames.frame.to_pylist()]
        return Frames(frames.target, pa.array(marked, pa.binary()), frames.rows)

    def decode(self, frames: pa.BinaryArray) -> Records:
        plain = pa.array([frame[1:] for frame in frames.to_pylist()], pa.binary())
        return self.inner.decode(plain)


def _stop_in_time() -> None:
    folder = Path(os.environ["STOPPED_IN"])
    run, taken = folder / "run.pid", folder / "taken.pid"
    if not run.exists() or _cells_begun(folder.parent) != int(os.environ["STOPPED_AT"]):
        return
    try:
        run.rename(taken)  # of several workers, one stops the run
    except FileNotFoundError:
        return
    _stop(int(taken.read_text()), folder)


def _cells_begun(lab: Path) -> int:
    samples = [path.read_text() for path in lab.glob("results/*/*/samples.jsonl")]
    events = [json.loads(line) for text in samples for line in text.splitlines()]
    return sum(e["event"] == "cell_begin" and e["arm"] == Stopped.name for e in events)


def _stop(pid: int, folder: Path) -> None:
    children = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            # a pid alone may be another process's by the time that somebody looks
            children.append((child.pid, child.create_time()))
    (folder / "alive").write_text(json.dumps(children))
    by = int(os.environ["STOPPED_BY"])
    if by == signal.SIGINT:
        os.killpg(os.getpgid(pid), by)  # a terminal's ctrl-C reaches children too
    else:
        os.kill(pid, by)
    time.sleep(1000)  # then the test has failed anyway


class Stopped(Strategy):
    """`arrow`, but for the moment at which it ends the run."""

    name = "stopped"
    executions: ClassVar[tuple[Execution, ...]] = ("batch",)
    default_rows_per_frame = 100

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundStopped:
        return BoundStopped(schema, options, ArrowStrategy().bind(schema, options))

    def fairness(self) -> Fairness:
        return ArrowStrategy().fairness()
