"""Slows a strategy down for tests of the gate, by a busy loop inside its own `encode`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, Records, SerdeOptions
from serde_lab.serde.registry import bind


@contextmanager
def slowed(
    strategy: str, schema: RecordSchema, options: SerdeOptions, cpu_s: float
) -> Iterator[None]:
    """Make the strategy burn `cpu_s` seconds of CPU in its next call of `encode`, once; undone on exit.

    Only this process is slowed, so the exchange must be the in-process one.
    """
    kind: Any = type(bind(strategy, schema, options))
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
    """Burn this much CPU time in a busy loop; on a busy machine its wall time grows like all other work's."""
    end_ns = time.process_time_ns() + round(cpu_s * 1e9)
    while time.process_time_ns() < end_ns:
        sum(range(100))
