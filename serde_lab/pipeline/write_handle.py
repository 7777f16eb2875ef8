"""What a file group's writer is to its reduce task, whatever kind of file it writes.

Owns the shape that all handles share, and the first step of each: one record a key. Must not know
which handle a file group gets (`file_groups.py` chooses). Source: org.apache.hudi.io.HoodieWriteHandle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.plan import Operation, WritePlan
from serde_lab.records.key_hash import HashedKeys
from serde_lab.records.merging import Indices, MergeMode, precombine
from serde_lab.serde.interface import Records
from serde_lab.table.commit_metadata import WriteStat
from serde_lab.table.file_names import write_token

WriteStatus = WriteStat

_STAGE = 1  # in write tokens: the reduce stage, whatever number Spark gave it in this session


@dataclass(frozen=True, slots=True)
class Task:
    """The reduce task that a handle works for.

    `convert_out` names the phase of converting records out; a hop without a strategy has no such verb.
    """

    plan: WritePlan
    partition: int
    timeline: TaskTimeline
    convert_out: str = "to_arrow"

    @property
    def write_token(self) -> str:
        """Names partition and stage but no attempt, so that all attempts aim at the same files."""
        return write_token(self.partition, _STAGE)


@dataclass(frozen=True, slots=True)
class Candidates:
    """One record a key of a batch: `chosen` indexes `records`, None means all of them.

    `keys` and `ordering` are those of the chosen records, read and hashed once for all that follows;
    the records themselves are gathered once, when it is known which of them are written.
    """

    records: Records
    chosen: Indices | None
    keys: HashedKeys
    ordering: list[pa.Array]

    def __len__(self) -> int:
        return len(self.keys)

    def gathered(self, standing: Indices | None = None) -> Records:
        """The records of the candidates numbered `standing`, of all of them if None."""
        rows = self.chosen
        if standing is not None and len(standing) < len(self):
            rows = standing if rows is None else rows[standing]
        return self.records if rows is None else self.records.take(rows)


class WriteHandle(ABC):
    """Writes the records of one file group: `write` shard by shard, then `finish` once."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def write(self, records: Records) -> None:
        """Take the records of one shard, which stand in input order; a key is in one shard only."""

    @abstractmethod
    def finish(self) -> Iterator[WriteStatus]:
        """Put the files in their places; one status a file."""

    def precombined(self, records: Records) -> Candidates:
        """One record a key: of a delete any of them, else the one that the table's order chooses."""
        plan = self.task.plan
        with self.task.timeline.phase("precombine"):
            # deletes have no row, and so no ordering value; by commit time the later position wins,
            # as Hudi's own writer has it
            ordered = (
                plan.operation is not Operation.DELETE and plan.merge_mode is MergeMode.EVENT_TIME
            )
            keys = HashedKeys.of(records.record_keys())
            ordering = records.ordering_values() if ordered else []
            chosen = precombine(keys, ordering)
            if chosen is None:
                return Candidates(records, None, keys, ordering)
            at = pa.array(chosen)
            return Candidates(records, chosen, keys.take(chosen), [v.take(at) for v in ordering])
