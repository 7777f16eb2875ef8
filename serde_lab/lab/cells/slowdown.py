"""A slowdown that is really injected: a busy loop inside a strategy's own `encode`.

Owns how a strategy is made slower and given back as it was. What the gate makes of it, it must not know.
"""

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
    """Within it the strategy burns `cpu_s` seconds of CPU, once, in its first call of `encode`.

    Only this process is slowed, so that the exchange must be the one in the process.
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
    """A busy loop of this much CPU time: on a busy machine it takes as much longer as all else does."""
    end_ns = time.process_time_ns() + round(cpu_s * 1e9)
    while time.process_time_ns() < end_ns:
        sum(range(100))
