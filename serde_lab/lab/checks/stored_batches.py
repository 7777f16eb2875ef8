"""Finds a stream's micro-batches: by Spark's progress, on the timeline, and in what readers saw meanwhile.

It checks that each is stored once, and that every read saw whole batches. Both writers name the batch in the
extra metadata of its commit, so one reader of the timeline, active and archived, serves for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.lab.lab_reader import WRAPS_AT, Read
from serde_lab.measure.metrics import DRIVER_PREFIX, Sample
from serde_lab.measure.slots import Interval
from serde_lab.runs.model import Check
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import checkpoints_in
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.timeline.timeline import epoch_ns

STORED_ONCE = "batches_are_stored_once"
WHOLE_READS = "reads_see_whole_batches"
_SPARK_PARTS = {
    "add_batch": ("addBatch",),
    "find_files": ("latestOffset", "getBatch"),
    "checkpoint": ("walCommit", "commitOffsets"),
}
"""Parts of a batch's time by Spark's names; what is left is planning, and Spark's own bookkeeping."""


@dataclass(frozen=True, slots=True)
class TimedInstant:
    """A completed instant, by the clock of its writer. `batches`: the micro-batches that it stores."""

    action: str
    interval: Interval
    batches: tuple[int, ...] = ()


def timed_instants(table: HoodieTable) -> list[TimedInstant]:
    """All completed instants, in the order in which they were begun."""
    timeline, writes = table.timeline(), table.config.write_action
    found: dict[tuple[str, str], tuple[str, bytes]] = {}
    for past in table.archived_timeline().instants():
        found[past.time, past.action] = past.completion_time or past.time, past.metadata or b""
    for instant in timeline.completed():
        content = timeline.read(instant) if instant.action == writes else b""
        found[instant.time, instant.action] = instant.completion_time or instant.time, content
    instants = []
    for (time, action), (completion, content) in sorted(found.items()):
        stated: tuple[int, ...] = ()
        if action == writes and content:
            metadata = CommitMetadata.from_bytes(content, f"instant {time}")
            stated = tuple(one.batch for one in checkpoints_in(metadata, time).values())
        compacts = action == "commit" != writes
        instants.append(
            TimedInstant(
                "compaction" if compacts else action,
                Interval(epoch_ns(time), epoch_ns(completion)),
                stated,
            )
        )
    return instants


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """One micro-batch by Spark's progress: its number from 0, its interval, and parts of it in seconds."""

    number: int
    interval: Interval
    parts: dict[str, float]

    @classmethod
    def of(cls, progress: dict[str, Any]) -> TimedBatch | None:
        """The batch of a StreamingQueryProgress; None for one that wrote nothing."""
        took = progress["durationMs"]
        if "addBatch" not in took:
            return None
        begun = datetime.fromisoformat(progress["timestamp"])
        begin_ns = round(begun.timestamp() * 1000) * 1_000_000
        return cls(
            int(progress["batchId"]),
            Interval(begin_ns, begin_ns + took["triggerExecution"] * 1_000_000),
            {
                part: sum(took.get(name, 0) for name in names) / 1e3
                for part, names in _SPARK_PARTS.items()
            },
        )


def by_batch(
    batches: Sequence[TimedBatch], instants: Sequence[TimedInstant]
) -> Iterator[list[TimedInstant]]:
    """For each batch the instants that began while it was written; the clocks are the same."""
    for batch in batches:
        begin_ns, end_ns = batch.interval.begin_ns, batch.interval.end_ns
        yield [one for one in instants if begin_ns <= one.interval.begin_ns <= end_ns]


def batch_samples(
    batch: TimedBatch, rows: int, instants: Sequence[TimedInstant]
) -> Iterator[Sample]:
    """The samples of one batch that both sides have; commits are numbered from 1, Spark's batches from 0.

    Its instant splits the batch's time in three. `services_s` is the time of the instants of services, and
    `compactions` and `cleans` count them; these are left out where there are none.
    """
    number, clock = batch.number + 1, batch.interval
    yield Sample("seconds", clock.length_ns / 1e9, number)
    yield Sample("rows", rows, number)
    for part, seconds in batch.parts.items():
        yield Sample(f"{DRIVER_PREFIX}{part}_s", seconds, number)
    for instant in instants:
        if batch.number in instant.batches:
            before_ns = instant.interval.begin_ns - clock.begin_ns
            after_ns = max(0, clock.end_ns - instant.interval.end_ns)
            yield Sample(f"{DRIVER_PREFIX}before_requested_s", before_ns / 1e9, number)
            yield Sample(f"{DRIVER_PREFIX}after_completed_s", after_ns / 1e9, number)
    services = [one for one in instants if one.action in ("compaction", "clean")]
    if services:
        spent_ns = sum(one.interval.length_ns for one in services)
        yield Sample(f"{DRIVER_PREFIX}services_s", spent_ns / 1e9, number)
    for action in ("compaction", "clean"):
        count = sum(one.action == action for one in services)
        if count:
            yield Sample(f"{DRIVER_PREFIX}{action}s", count, number)


def reader_samples(batches: Sequence[TimedBatch], reads: Sequence[Read]) -> Iterator[Sample]:
    """For each batch: the seconds during which a read ran, and by reader the mean duration of the reads that
    began in it. Batches without reads give none.
    """
    for batch in batches:
        number, clock = batch.number + 1, batch.interval
        beside_ns, until_ns = 0, clock.begin_ns
        for read in sorted(reads, key=lambda read: read.begin_ns):
            end_ns = min(read.end_ns, clock.end_ns)
            beside_ns += max(0, end_ns - max(read.begin_ns, until_ns))
            until_ns = max(until_ns, end_ns)
        if beside_ns:
            yield Sample(f"{DRIVER_PREFIX}reads_s", beside_ns / 1e9, number)
        took: dict[str, list[int]] = {}
        for read in reads:
            if clock.begin_ns <= read.begin_ns < clock.end_ns:
                kind = read.reader.partition(" ")[0].replace("-", "_")
                took.setdefault(kind, []).append(read.end_ns - read.begin_ns)
        for kind, lengths in sorted(took.items()):
            mean_s = sum(lengths) / len(lengths) / 1e9
            yield Sample(f"{DRIVER_PREFIX}read_by_{kind}_s", mean_s, number)


def stored_once(table: HoodieTable, batches: int) -> Check:
    """Check that each of the micro-batches 0 to `batches` - 1 is stored by one commit, and no other is."""
    counts = Counter(n for instant in timed_instants(table) for n in instant.batches)
    wrong = list(_wrong(counts, range(batches)))
    if wrong:
        return Check(STORED_ONCE, False, "; ".join(wrong))
    return Check(STORED_ONCE, True, f"{batches:,} batches, each in one commit")


def _wrong(counts: Counter[int], wanted: Sequence[int]) -> Iterator[str]:
    for words, numbers in (
        ("missing", [n for n in wanted if not counts[n]]),
        ("stored more than once", [n for n, times in sorted(counts.items()) if times > 1]),
        ("unknown", [n for n in sorted(counts) if n not in wanted]),
    ):
        if numbers:
            more = f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
            yield f"{words}: batch {', '.join(map(str, numbers[:5]))}{more}"


def states_of(
    before: Sequence[Path],
    batches: Sequence[Sequence[Path]],
    key: Sequence[str],
    ordering: str,
    by_event: bool,
) -> list[tuple[int, int]]:
    """What upserts make of a table: its rows, and the sum of their ordering values, after each batch.

    The sum is modulo WRAPS_AT. The first one is the table before the first batch. `before` and `batches` are
    Parquet files in input order. Of two rows of a key the later one stays, or with `by_event` the one of
    the greater value.
    """
    files = [[*before], *([*batch] for batch in batches)]
    parts = [pa.concat_tables(pq.read_table(f, columns=[*key, ordering]) for f in p) for p in files]
    together = pa.concat_tables(parts)
    codes = np.zeros(len(together), np.int64)
    for name in key:
        encoded = together.column(name).combine_chunks().dictionary_encode()
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    values = together.column(ordering).cast(pa.int64()).to_numpy()
    latest = np.full(codes.max(initial=-1) + 1, np.iinfo(np.int64).min)
    there = np.zeros(len(latest), np.bool_)
    states = []
    for start, stop in pairwise([0, *np.cumsum([len(part) for part in parts]).tolist()]):
        of_part = codes[start:stop]
        if by_event:
            np.maximum.at(latest, of_part, values[start:stop])
        else:
            latest[of_part] = values[start:stop]
        there[of_part] = True
        states.append((int(there.sum()), int(latest[there].sum()) % WRAPS_AT))
    return states


def whole_reads(reads: Sequence[Read], states: Sequence[tuple[int, int]]) -> Check:
    """Check that each read saw the table after one of its batches, and no reader then an earlier one."""
    number_of = {state: number for number, state in enumerate(states)}
    seen: dict[str, int] = {}
    counts = Counter(read.reader for read in reads)
    if not reads:
        return Check(WHOLE_READS, False, "nobody read the table")
    for read in reads:
        if read.error:
            return Check(WHOLE_READS, False, f"{read.reader}: {read.error}")
        number = number_of.get((read.rows, read.total))
        if number is None:
            detail = f"{read.reader} saw {read.rows:,} rows, which are those after no batch"
            return Check(WHOLE_READS, False, detail)
        if number < seen.get(read.reader, 0):
            detail = f"{read.reader} saw batch {seen[read.reader]:,}, and later only {number:,}"
            return Check(WHOLE_READS, False, detail)
        seen[read.reader] = number
    words = ", ".join(f"{count:,} by {reader}" for reader, count in sorted(counts.items()))
    return Check(WHOLE_READS, True, f"{len(reads):,} reads: {words}")
