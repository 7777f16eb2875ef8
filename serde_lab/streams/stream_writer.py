"""Takes each micro-batch of a stream through the write pipeline, exactly once, on any engine.

Spark numbers a query's batches from 0 without gaps. After a failure it sends the last batch again, with the
same rows, if it does not know that the batch succeeded; it never sends an earlier one. So a query's next
batch is the one after the last stored one, a lower one is stored, and a higher one would leave a gap.

Whether a batch is stored is decided first, whatever else has become of the table since. If it is not, that is
decided again while the table is locked and repaired: a batch whose writer died was rolled back by then, and
no other writer can store it meanwhile.

Several batches may share an instant, as in RFC-24's step 3: each is durable when it returns, and readers see
them when a limit of the options is reached and the instant is committed (flushed). Only the writer that began
a shared instant adds to it. Any other writer of the table, and this one after a failure, commits it first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from serde_lab.errors import ConcurrentWrite, OptionError, TableError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.commit.conflicts import OptimisticLocking
from serde_lab.pipeline.commit.coordinator import Commit, Coordinator
from serde_lab.pipeline.commit.table_services import Compactor, Served, compact_in_process, serve
from serde_lab.pipeline.exchange.in_process import Exchange
from serde_lab.pipeline.options.service import LOCK_WAIT
from serde_lab.pipeline.options.write import WriteOptions, parse_options
from serde_lab.pipeline.write import PreparedWrite, table_to_write
from serde_lab.streams.options import IDENTIFIER, OPERATION, TAKES_OVER, StreamOptions
from serde_lab.table.files.file_system_view import late_completions
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import (
    Checkpoint,
    SharedInstant,
    extra_metadata,
    newest_checkpoint,
    shared_instant,
)
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY

_PAUSE_SECONDS = 0.2
_ANOTHER = f"set {IDENTIFIER} to a name of this query's own"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One batch of a query. `query`: Spark's id of the query, "" outside of one.

    `planned_ms`: when Spark chose the batch's rows, in milliseconds since 1970; it does so once, also if it
    sends the batch again. `earlier`: the batch that the same run of the query gave before; None if this is
    its first. Both are None if that is not known.
    """

    query: str
    number: int
    earlier: int | None = field(default=None, compare=False)
    planned_ms: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"batch {self.number} of {name_of(self.query)}"


def name_of(query: str) -> str:
    """A query as messages name it."""
    return f"query {query}" if query else "a program without a query"


def is_stored(
    batch: MicroBatch, options: StreamOptions, last: Checkpoint | None, written: bool = True
) -> bool:
    """Whether the table holds `batch`; if not, it is the next one to write.

    `last`: the newest checkpoint of the stream's identifier in the table. `written`: whether the table has
    any commit. Raises OptionError if `last` belongs to another query, to this one with another operation, to
    a run beside this one, or to another state of its checkpoint folder, and TableError if batches are missing
    between the two.
    """
    if last is None:
        taken_over = options.takes_over and written and batch.earlier is None
        if batch.number > 0 and not taken_over:
            also = f", or set {TAKES_OVER}=true if another writer stored those batches"
            raise TableError(
                f"{batch} comes first to this table: it holds no batch of the identifier"
                f" {options.identifier}, and Spark does not send batches before {batch.number} again",
                hint=f"use the table and the {IDENTIFIER} that the checkpoint folder belongs to"
                + ("" if options.takes_over else also),
            )
        return False
    if last.query is None:
        return _is_stored_by_hudi(batch, options, last)
    if last.query != batch.query:
        raise OptionError(
            f"{batch} is refused: in this table the identifier {options.identifier} belongs to"
            f" {name_of(last.query)}, which stored batch {last.batch}",
            hint=_ANOTHER,
        )
    if last.operation not in (None, options.operation):
        raise OptionError(
            f"{OPERATION} is {options.operation}, but {name_of(batch.query)} began with {last.operation}",
            hint=f"keep the operation, or start another query and {_ANOTHER}",
        )
    _check_no_gap(batch, last)
    if batch.number > last.batch:
        return False
    _check_first(batch, last)
    _check_same_rows(batch, last)
    return True


def _is_stored_by_hudi(batch: MicroBatch, options: StreamOptions, last: Checkpoint) -> bool:
    """The same after a batch of Apache Hudi's sink, which does not say whose batch it was."""
    _check_no_gap(batch, last)
    if batch.number == last.batch + 1:
        return False
    if options.takes_over and batch.number == last.batch:
        _check_first(batch, last)
        return True
    raise OptionError(
        f"{batch} is refused: Apache Hudi's sink stored batch {last.batch} under the identifier"
        f" {options.identifier}, and does not say for which query",
        hint=f"set {TAKES_OVER}=true if the checkpoint folder was that sink's, else {_ANOTHER}",
    )


def _check_first(batch: MicroBatch, last: Checkpoint) -> None:
    """Refuse a stored batch that is not the first of its run: only that one may be of a run that died."""
    if batch.earlier is not None:
        raise OptionError(
            f"{batch} is refused: since this run of the query gave batch {batch.earlier}, another run has"
            f" stored batch {last.batch}, maybe with other rows",
            hint="end one of the runs; if one has a copy of the other's checkpoint folder, start it anew with"
            f" an empty folder, and {_ANOTHER}",
        )


def _check_same_rows(batch: MicroBatch, last: Checkpoint) -> None:
    """Refuse a stored number with other rows: Spark repeats the last batch only, and plans it once."""
    if batch.planned_ms is None or last.planned_ms is None:
        return
    if batch.number < last.batch or batch.planned_ms != last.planned_ms:
        raise OptionError(
            f"{batch} is refused: the table holds batch {last.batch} of the same query, and Spark chose the"
            " rows of this one anew, maybe others: its checkpoint folder was copied or set back",
            hint="use the folder with which the table's last batch was stored, or start anew with an empty"
            f" one, and {_ANOTHER}",
        )


def _check_no_gap(batch: MicroBatch, last: Checkpoint) -> None:
    if batch.number <= last.batch + 1:
        return
    missing = range(last.batch + 1, batch.number)
    which = (
        f"batch {missing[0]} is"
        if len(missing) == 1
        else f"batches {missing[0]} to {missing[-1]} are"
    )
    raise TableError(
        f"{batch} is refused: the last one in the table is batch {last.batch}, so {which} missing, and Spark"
        " does not send them again",
        hint="restore the table, or start a new query with another checkpoint folder and identifier",
    )


@dataclass(slots=True)
class BatchWrite:
    """The write of one batch, while its writer holds the table; to be committed once."""

    writer: StreamWriter
    prepared: PreparedWrite
    committed: bool = False

    @property
    def options(self) -> WriteOptions:
        return self.prepared.options

    def commit(self, exchange: Exchange, timeline: TaskTimeline | None = None) -> Commit | None:
        """Store the batch; None if it shares its instant with later batches. `timeline` as in PreparedWrite.

        Raises what `serde_lab.write` raises; the batch is not stored then, unless the failure was in the
        commit of an instant that it shares.
        """
        commit = self.writer.store(self.prepared, exchange, timeline or TaskTimeline("driver"))
        self.committed = commit is not None
        return commit

    def serve(self, compactor: Compactor = compact_in_process) -> Served:
        """Run the table services that the options ask for, if there was a commit."""
        return self.prepared.serve(compactor) if self.committed else Served()


class StreamWriter:
    """Writes the batches of one stream to one table; its methods may be called from several threads.

    `clock` and `pause` are for waiting until another writer is done, and for the time limit of a shared
    instant, in seconds.
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
        self._turn = threading.RLock()
        self._open = ""  # the time of the shared instant that this writer may add to
        self._waits = False  # whether a shared instant of this writer is still to be committed
        self._opened_at = 0.0

    @contextmanager
    def begin(self, batch: MicroBatch, source: pa.Schema) -> Iterator[BatchWrite | None]:
        """Hold the table and give the write of `batch`, to be committed once; None if it is stored already.

        `source`: the schema of the batch's rows. A batch without rows makes a commit without files, as with
        Apache Hudi's sink, so that a batch that is missing shows. Raises what `is_stored` and
        `serde_lab.write` raise before data moves, and ConcurrentWrite if another writer kept the table for
        longer than the options allow.
        """
        if batch.number < 0:
            raise OptionError(f"the batch id is {batch.number}, expected an integer from 0")
        with self._turn, ExitStack() as held:
            prepared = self._hold(held, batch, source)
            if prepared is None or self._is_stored(batch, prepared.coordinator.table):
                held.close()
                # the writer that stored it may have left its instant pending
                self._flush_others()
                yield None
                return
            now = Checkpoint(batch.number, batch.query, self.options.operation, batch.planned_ms)
            stated = extra_metadata({self.options.identifier: now})
            yield BatchWrite(self, replace(prepared, extra_metadata=stated))

    def store(
        self, prepared: PreparedWrite, exchange: Exchange, clock: TaskTimeline
    ) -> Commit | None:
        """Store the held batch, and commit it as the options say; None if its instant stays pending."""
        if not self.options.shares:
            return prepared.commit(exchange, timeline=clock)
        coordinator = prepared.coordinator
        kept, self._open = coordinator.kept, ""
        if kept is None:
            self._opened_at = self._clock()
        shared = prepared.store_batch(exchange, kept, clock)
        self._waits = True
        if self._is_full(shared):
            with clock.phase("commit"):
                commit = coordinator.flush(shared)
            self._waits = False
            return commit
        # not before: after a failure, tasks of the failed batch may still be writing
        self._open = shared.instant.time
        return None

    def flush(self, compactor: Compactor = compact_in_process) -> Commit | None:
        """Commit the table's pending shared instant, then run the services that are due.

        None if there is none. Raises ConcurrentWrite if another writer keeps the table, and what a service
        raises.
        """
        with self._turn:
            self._open = ""
            commit = self._flush(compactor)
            self._waits = False
            return commit

    def _flush(self, compactor: Compactor) -> Commit | None:
        if not HoodieTable.exists(self.storage):
            return None
        table = HoodieTable.open(self.storage)
        shared = shared_instant(table)
        if shared is None:
            return None
        options = parse_options(self.options.write, table.config)
        table.config.check_writable(options.drop_metadata_table)
        table = table.merging_by(options.table.merger_classes)
        optimism = OptimisticLocking.of(options, self.storage)
        coordinator, until = Coordinator(table, optimism), self._patience()
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(coordinator.hold("flush", shared.instant.time))
                    break
                except ConcurrentWrite as busy:
                    self._wait(busy, until)
            if coordinator.kept is None:
                return None  # another writer has committed it
            commit = coordinator.flush(coordinator.kept)
            serve(coordinator, options.services, compactor, options.file_format)
            return commit

    def flush_if_due(self, compactor: Compactor = compact_in_process) -> Commit | None:
        """The same if the time limit of this writer's shared instant is over."""
        with self._turn:
            left = self.seconds_left
            return self.flush(compactor) if left is not None and left <= 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Until the time limit of this writer's shared instant; None without an instant or a limit."""
        limit = self.options.commit_interval_ms
        if limit is None or not self._waits:
            return None
        return self._opened_at + limit / 1000 - self._clock()

    def _flush_others(self) -> None:
        """Commit a pending shared instant that this writer may not add to."""
        if HoodieTable.exists(self.storage):
            shared = shared_instant(HoodieTable.open(self.storage))
            if shared is not None and shared.instant.time != self._open:
                self.flush()

    def _is_full(self, shared: SharedInstant) -> bool:
        options = self.options
        return (
            shared.batches >= (options.batches_per_commit or float("inf"))
            or shared.file_bytes >= (options.commit_bytes or float("inf"))
            or self._clock() - self._opened_at
            >= (options.commit_interval_ms or float("inf")) / 1000
        )

    def _is_stored(self, batch: MicroBatch, table: HoodieTable | None) -> bool:
        identifier = self.options.identifier
        last = None if table is None else newest_checkpoint(table, identifier)
        written = last is not None or bool(table and table.timeline().completed())
        stored = is_stored(batch, self.options, last, written)
        if stored and table is not None:
            # a commit that landed after it was rolled back names the batch too, but its files are gone
            timeline = table.timeline()
            if late := late_completions(timeline, timeline.files()):
                return is_stored(batch, self.options, newest_checkpoint(table, identifier, late))
        return stored

    def _hold(self, held: ExitStack, batch: MicroBatch, source: pa.Schema) -> PreparedWrite | None:
        """The prepared write, with the table locked until `held` ends; None if the batch is stored."""
        until = self._patience()
        while True:
            table = table_to_write(self.storage)
            # before a table is made, so that a refused batch leaves none behind
            if self._is_stored(batch, table):
                return None
            # its columns become the table's, before the batch is compared with them
            self._flush_others()
            options = parse_options(self.options.write, None if table is None else table.config)
            try:
                prepared = PreparedWrite.of(self.storage, source, options)
                held.enter_context(prepared.hold(self._open))
            except ConcurrentWrite as busy:
                self._wait(busy, until)
                continue
            except TableError:
                # unless another stream has made the table in between
                if table is not None or not HoodieTable.exists(self.storage):
                    raise
                self._pause(_PAUSE_SECONDS)
                continue
            kept = prepared.coordinator.kept
            if kept is None or kept.metadata.extra_metadata.get(SCHEMA_KEY, "") == prepared.avro:
                return prepared
            # this batch has other columns than the pending ones
            self._open = ""
            prepared.coordinator.flush(kept)
            held.close()

    def _patience(self) -> float:
        return self._clock() + self.options.lock_wait_ms / 1000

    def _wait(self, busy: ConcurrentWrite, until: float) -> None:
        """Pause for another writer of the table. Raises ConcurrentWrite after `until`."""
        if self._clock() >= until:
            waited = f"the batch waited {self.options.lock_wait_ms} ms, as {LOCK_WAIT} says"
            raise ConcurrentWrite(busy.message, hint=waited) from busy
        self._pause(_PAUSE_SECONDS)
