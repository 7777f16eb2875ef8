"""What a file group's writer is to its reduce task, whatever kind of file it writes.

Owns the shape that all handles share, and the first step of each: one record a key. Must not know
which handle a file group gets (`file_groups.py` chooses). Source: org.apache.hudi.io.HoodieWriteHandle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.plan import Operation, WritePlan
from serde_lab.records.merging import MergeMode, precombine
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

    def precombined(self, records: Records) -> Records:
        """One record a key: of a delete any of them, else the one that the table's order chooses."""
        plan = self.task.plan
        if plan.operation is Operation.BULK_INSERT:
            return records
        with self.task.timeline.phase("precombine"):
            # deletes have no row, and so no ordering value; by commit time the later position wins,
            # as Hudi's own writer has it
            ordered = (
                plan.operation is not Operation.DELETE and plan.merge_mode is MergeMode.EVENT_TIME
            )
            ordering = records.ordering_values() if ordered else []
            survivors = precombine(records.record_keys(), ordering)
            return records if survivors is None else records.take(survivors)
