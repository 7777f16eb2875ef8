"""Decides whether a micro-batch is written, is stored already, or is refused.

Spark numbers a query's batches from 0 without gaps. After a failure it sends the last batch again, with the
same rows, if it does not know that the batch succeeded; it never sends an earlier one. So a query's next
batch is the one after the last stored one, a lower one is stored, and a higher one would leave a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from serde_lab.errors import OptionError, TableError
from serde_lab.streams.options import IDENTIFIER, OPERATION, TAKES_OVER, StreamOptions
from serde_lab.table.timeline.checkpoints import Checkpoint

_ANOTHER = f"set {IDENTIFIER} to a name of this query's own"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One batch of a query. `query`: Spark's id of the query, "" outside of one."""

    query: str
    number: int

    def __str__(self) -> str:
        return f"batch {self.number} of {name_of(self.query)}"


def name_of(query: str) -> str:
    """A query as messages name it."""
    return f"query {query}" if query else "a program without a query"


def is_stored(batch: MicroBatch, options: StreamOptions, last: Checkpoint | None) -> bool:
    """Whether the table holds `batch`; if not, it is the next one to write.

    `last`: the newest checkpoint of the stream's identifier in the table. Raises OptionError if it belongs to
    another query, or to this one with another operation, and TableError if batches are missing between the
    two.
    """
    if last is None:
        if batch.number > 0 and not options.takes_over:
            raise TableError(
                f"{batch} comes first to this table: it holds no batch of the identifier"
                f" {options.identifier}, and Spark does not send batches before {batch.number} again",
                hint=f"use the table and the {IDENTIFIER} that the checkpoint folder belongs to, or set"
                f" {TAKES_OVER}=true if another writer stored those batches",
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
    return batch.number <= last.batch


def _is_stored_by_hudi(batch: MicroBatch, options: StreamOptions, last: Checkpoint) -> bool:
    """The same after a batch of Apache Hudi's sink, which does not say whose batch it was."""
    _check_no_gap(batch, last)
    if batch.number == last.batch + 1:
        return False
    if options.takes_over and batch.number == last.batch:
        return True
    raise OptionError(
        f"{batch} is refused: Apache Hudi's sink stored batch {last.batch} under the identifier"
        f" {options.identifier}, and does not say for which query",
        hint=f"set {TAKES_OVER}=true if the checkpoint folder was that sink's, else {_ANOTHER}",
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
