"""Finds a stream's micro-batches on a table's timeline, active and archived; checks that each is there once.

Both writers name the batch in the extra metadata of its commit, so one reader serves for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serde_lab.measure.slots import Interval
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import history_of
from serde_lab.table.timeline.checkpoints import checkpoints_in
from serde_lab.table.timeline.timeline import CommitMetadata, epoch_ns
from serde_lab.verify.table_checks import CheckResult

STORED_ONCE = "batches_are_stored_once"


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
    for past in history_of(table).instants():
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


def stored_once(table: HoodieTable, batches: int) -> CheckResult:
    """Check that each of the micro-batches 0 to `batches` - 1 is stored by one commit, and no other is."""
    counts = Counter(n for instant in timed_instants(table) for n in instant.batches)
    wrong = list(_wrong(counts, range(batches)))
    if wrong:
        return CheckResult(STORED_ONCE, False, "; ".join(wrong))
    return CheckResult(STORED_ONCE, True, f"{batches:,} batches, each in one commit")


def _wrong(counts: Counter[int], wanted: Sequence[int]) -> Iterator[str]:
    for words, numbers in (
        ("missing", [n for n in wanted if not counts[n]]),
        ("stored more than once", [n for n, times in sorted(counts.items()) if times > 1]),
        ("unknown", [n for n in sorted(counts) if n not in wanted]),
    ):
        if numbers:
            more = f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
            yield f"{words}: batch {', '.join(map(str, numbers[:5]))}{more}"
