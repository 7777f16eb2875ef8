"""Takes each micro-batch of a stream through the write pipeline, exactly once, on any engine.

Whether a batch is stored is decided first, whatever else has become of the table since. If it is not, that is
decided again while the table is locked and repaired: a batch whose writer died was rolled back by then, and
no other writer can store it meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pyarrow as pa

from serde_lab.errors import ConcurrentWrite, OptionError, TableError
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite, table_to_write
from serde_lab.streams.exactly_once import MicroBatch, is_stored
from serde_lab.streams.options import LOCK_WAIT, StreamOptions
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import Checkpoint, extra_metadata, newest_checkpoint

_PAUSE_SECONDS = 0.2


class StreamWriter:
    """Writes the batches of one stream to one table.

    `clock` and `pause` are for waiting until another writer is done, in seconds.
    """

    def __init__(
        self,
        storage: Storage,
        options: StreamOptions,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.storage, self.options = storage, options
        self._clock, self._pause = clock, pause

    @contextmanager
    def begin(self, batch: MicroBatch, source: pa.Schema) -> Iterator[PreparedWrite | None]:
        """Hold the table and give the write of `batch`, to be committed once; None if it is stored already.

        `source`: the schema of the batch's rows. A batch without rows makes a commit without files, as with
        Apache Hudi's sink, so that a batch that is missing shows. Raises what `is_stored` and
        `serde_lab.write` raise before data moves, and ConcurrentWrite if another writer kept the table for
        longer than the options allow.
        """
        if batch.number < 0:
            raise OptionError(f"the batch id is {batch.number}, expected an integer from 0")
        with ExitStack() as held:
            prepared = self._hold(held, batch, source)
            if prepared is None or self._is_stored(batch, prepared.coordinator.table):
                yield None
                return
            now = Checkpoint(batch.number, batch.query, self.options.operation)
            yield replace(prepared, extra_metadata=extra_metadata({self.options.identifier: now}))

    def _is_stored(self, batch: MicroBatch, table: HoodieTable | None) -> bool:
        last = None if table is None else newest_checkpoint(table, self.options.identifier)
        return is_stored(batch, self.options, last)

    def _hold(self, held: ExitStack, batch: MicroBatch, source: pa.Schema) -> PreparedWrite | None:
        """The prepared write, with the table locked until `held` ends; None if the batch is stored."""
        until = self._clock() + self.options.lock_wait_ms / 1000
        while True:
            table = table_to_write(self.storage)
            # before a table is made, so that a refused batch leaves none behind
            if self._is_stored(batch, table):
                return None
            options = parse_options(self.options.write, None if table is None else table.config)
            try:
                prepared = PreparedWrite.of(self.storage, source, options)
                held.enter_context(prepared.hold())
                return prepared
            except ConcurrentWrite as busy:
                if self._clock() >= until:
                    waited = f"the batch waited {self.options.lock_wait_ms} ms, as {LOCK_WAIT} says"
                    raise ConcurrentWrite(busy.message, hint=waited) from busy
            except TableError:
                # unless another stream has made the table in between
                if table is not None or not HoodieTable.exists(self.storage):
                    raise
            self._pause(_PAUSE_SECONDS)
