"""How much memory a piece of code had in use at its worst, over what was in use before.

Owns the sum of Arrow's own pool and of what Python and numpy allocate. Slow, since it traces every
allocation: for the conformance kit's laws, not for measurements.
"""

from __future__ import annotations

import tracemalloc
from types import TracebackType
from typing import Self

import pyarrow as pa

# buffers return their memory to the pool that gave it, however late: no pool may go before them
_POOLS: list[pa.MemoryPool] = []


class Allocation:
    """A `with` block; afterwards `peak_bytes` is the most that was allocated inside it."""

    peak_bytes: int = 0

    def __enter__(self) -> Self:
        self._usual = pa.default_memory_pool()
        self._pool = pa.proxy_memory_pool(self._usual)
        _POOLS.append(self._pool)
        pa.set_memory_pool(self._pool)
        self._was_tracing = tracemalloc.is_tracing()
        if not self._was_tracing:
            tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        python = tracemalloc.get_traced_memory()[1] - self._before
        if not self._was_tracing:
            tracemalloc.stop()
        pa.set_memory_pool(self._usual)
        self.peak_bytes = python + (self._pool.max_memory() or 0)
