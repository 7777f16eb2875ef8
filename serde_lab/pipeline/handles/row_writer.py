"""Writes rows straight to base files: it makes no records, looks up nothing and merges nothing.

A task writes the files of a partition one after another, each up to the size that file sizing sets.
Sources: RFC-84's diagrams of bulk insert and append, Hudi's BulkInsertWriterHelper and
HoodieRowCreateHandle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.routing import Task
from serde_lab.pipeline.handles.handle import refuse_markers
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.stages import count_null_elements, enveloped_records, stored_form
from serde_lab.records.buffers import rows_by_value
from serde_lab.records.keys import RowPlace
from serde_lab.records.schema import ENVELOPE, PARTITION_PATH, RECORD_KEY
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.file_sizing import new_file_id
from serde_lab.table.timeline.commit_metadata import WriteStat


def write_rows_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write source batches to base files; one stat per file."""
    return _written(task, _enveloped(task, batches))


def write_sorted_rows_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteStat]:
    """The same, but sort the task's rows by partition path and key first; all of them are in memory then."""
    return _written(task, _sorted(_enveloped(task, batches), task.timeline))


def _written(task: Task, rows: Iterable[pa.RecordBatch]) -> Iterator[WriteStat]:
    writer = RowWriter(task)
    for batch in rows:
        writer.write(batch)
    yield from task.timeline.sink(writer.finish())


def _enveloped(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan, timeline = task.plan, task.timeline
    rows_before = 0
    for batch in task.source(batches):
        with timeline.phase("keygen"):
            place = RowPlace(plan.instant, task.partition, task.first_row + rows_before)
            enveloped = enveloped_records(plan, stored_form(batch, plan.source_schema), place)
            count_null_elements(enveloped, timeline)
        rows_before += batch.num_rows
        timeline.add("rows", batch.num_rows)
        yield enveloped


def _sorted(batches: Iterable[pa.RecordBatch], timeline: TaskTimeline) -> Iterator[pa.RecordBatch]:
    held = list(batches)
    if not held:
        return
    with timeline.phase("order"):
        together = pa.concat_batches(held)
        order = pc.sort_indices(
            together, [(PARTITION_PATH, "ascending"), (RECORD_KEY, "ascending")]
        )
        together = together.take(order)
    yield together


@dataclass(slots=True)
class _OpenFile:
    """The base file that takes a partition's rows now; `room` counts the rows that still fit."""

    writer: BaseFileWriter
    room: int


class RowWriter:
    """Writes the base files of one task."""

    def __init__(self, task: Task) -> None:
        plan = task.plan
        assert plan.index is not None
        self.plan, self.timeline, self._task = plan, task.timeline, task
        self._room = plan.index.sizing.rows_per_new_file(plan.index.record_bytes)
        # no other batch or task can draw the same ids
        self._seed = f"{plan.seed}/{plan.instant}/{plan.batch}/{task.partition}"
        self._open: dict[str, _OpenFile] = {}
        self._files: dict[str, int] = {}
        self._done: list[WriteStat] = []

    def write(self, enveloped: pa.RecordBatch) -> None:
        refuse_markers(self.plan, enveloped)
        for path, rows in self._by_path(enveloped):
            start = 0
            while start < rows.num_rows:
                with self.timeline.phase("write"):
                    current = self._open.get(path) or self._begin(path)
                    part = rows.slice(start, current.room)
                    data = pa.RecordBatch.from_arrays(
                        part.columns[len(ENVELOPE) :], schema=self.plan.schema.data
                    )
                    current.writer.append(part.column(RECORD_KEY), data)
                    current.room -= part.num_rows
                    start += part.num_rows
                    if not current.room:
                        self._done.append(self._open.pop(path).writer.close())

    def finish(self) -> Iterator[WriteStat]:
        yield from self._done
        for current in self._open.values():
            with self.timeline.phase("write"):
                stat = current.writer.close()
            yield stat

    def _by_path(self, enveloped: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self.plan.schema.partition:
            yield "", enveloped
            return
        with self.timeline.phase("group"):
            parts = list(rows_by_value(enveloped.column(PARTITION_PATH)))
            whole = len(parts) == 1
            taken = [
                (path, enveloped if whole else enveloped.take(pa.array(at))) for path, at in parts
            ]
        yield from taken

    def _begin(self, path: str) -> _OpenFile:
        plan, number = self.plan, self._files.get(path, 0)
        self._files[path] = number + 1
        writer = BaseFileWriter(
            plan.storage,
            replace(self._task.writing(plan.spans), split_by_order=True),
            data_schema=plan.schema.data,
            partition_path=path,
            file_id=new_file_id(self._seed, path, number),
            format=plan.base_file_format,
        )
        self._open[path] = _OpenFile(writer, self._room)
        return self._open[path]


def sorted_ranges(
    plan: WritePlan, inputs: Iterable[Iterable[pa.RecordBatch]]
) -> list[list[pa.RecordBatch]]:
    """All rows of the source, sorted by partition path and key, split into at most one range per task."""
    held = [stored_form(batch, plan.source_schema) for batches in inputs for batch in batches]
    if not held:
        return []
    together = pa.concat_batches(held)
    enveloped = enveloped_records(plan, together, RowPlace(plan.instant, 0, 0))
    keys = enveloped.select([PARTITION_PATH, RECORD_KEY])
    order = pc.sort_indices(keys, [(PARTITION_PATH, "ascending"), (RECORD_KEY, "ascending")])
    together = together.take(order)
    step = max(1, -(-together.num_rows // plan.targets))
    return [[together.slice(start, step)] for start in range(0, together.num_rows, step)]
