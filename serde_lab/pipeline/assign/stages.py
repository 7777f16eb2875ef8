"""The stages of topologies that look up each record's file group before it is written.

    bootstrap:  stored keys -> index records -> frames by record key
    relay:      frames -> decode -> encode -> frames, for the next hop
    assign:     frames -> decode -> look up, assign -> encode -> frames by file group
    assign and write in one task, as RFC-24 began

The stages before and after them are in `pipeline/stages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from serde_lab.pipeline.assign.assigner import Assigner, RingAssigner
from serde_lab.pipeline.assign.index_lookup import READ_BASE, IndexLookup
from serde_lab.pipeline.exchange.frames import INDEX, INDEX_BIT, FrameReceiver, FrameSender
from serde_lab.pipeline.exchange.routing import Outgoing, Task
from serde_lab.pipeline.handles.file_groups import FileGroupWriter
from serde_lab.pipeline.plan import WritePlan
from serde_lab.records.schema import FILE_ID, PARTITION_PATH, RECORD_KEY
from serde_lab.table.timeline.commit_metadata import WriteStat

Lookup = Callable[[Task], IndexLookup]

# bytes of frames to decode and send on at a time; they fit the CPU caches
_RELAYED_BYTES = 4 << 20


def bootstrap_tasks(plan: WritePlan) -> int:
    """The number of tasks that send index records: 0 if nothing is stored or nothing is looked up."""
    if plan.index is None or not plan.operation.looks_up:
        return 0
    return min(plan.targets, len(plan.index.stored.slices))


def bootstrap_stage(task: Task, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send the places of stored keys, as index records, over the records' hop; yields batches of ROUTED.

    `numbers`: batches whose first column numbers the tasks of `bootstrap_tasks` to run here.
    """
    yield from task.timeline.sink(_index_records(task, task.source(numbers)))


def _index_records(task: Task, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan, timeline = task.plan, task.timeline
    bound = task.bind()
    assert plan.index is not None
    stored, tasks = plan.index.stored, bootstrap_tasks(plan)
    for number in [number for batch in numbers for number in batch.column(0).to_pylist()]:
        sender = FrameSender(replace(task, partition=number), bound, prefix=INDEX, mark=INDEX_BIT)
        for slice_ in stored.slices[number::tasks]:
            batches = stored.batches(slice_)
            while True:
                with timeline.phase(READ_BASE):
                    batch = next(batches, None)
                if batch is None:
                    break
                rows = batch.num_rows
                with timeline.phase(f"{INDEX}from_arrow"):
                    keys = batch.column(RECORD_KEY)
                    paths = pa.repeat(pa.scalar(slice_.partition_path), rows)
                    file_ids = pa.repeat(pa.scalar(slice_.file_id), rows)
                    records = bound.index_records(keys, paths, file_ids)
                with timeline.phase(f"{INDEX}route"):
                    going = _envelope(keys, paths, file_ids)
                    target, shard = task.next_hop.destinations(plan, Outgoing(going, number))
                timeline.add(f"{INDEX}rows", rows)
                yield from sender.send(records, target, shard)


def relay_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send records on unchanged over the next hop, as an operator that only looks at them does.

    One task holds all frames of a write, and decodes a few at a time, since the next hop needs the records'
    keys. A frame of one record is sent on as it is; others are encoded again, because their records may go to
    several tasks.
    """

    plan, timeline = task.plan, task.timeline

    def relayed() -> Iterator[pa.RecordBatch]:
        bound = task.bind()
        sender = FrameSender(task, bound)
        receiver = FrameReceiver(task, bound)
        for arrived in receiver.arrivals(batches, piece_bytes=_RELAYED_BYTES):
            records = arrived.records
            if records is None:
                continue
            with timeline.phase("route"):
                target, shard = task.next_hop.destinations(plan, Outgoing(records, task.partition))
            if bound.options.rows_per_frame == 1 and arrived.frames is not None:
                yield from sender.forward(arrived.frames, target, shard)
            else:
                yield from sender.send(records, target, shard)
            with timeline.phase("release"):
                arrived.records = arrived.frames = records = None

    yield from timeline.sink(relayed())


def assign_stage(
    task: Task, batches: Iterable[pa.RecordBatch], lookup: Lookup | None
) -> Iterator[pa.RecordBatch]:
    """Send records on with their file groups, as batches of ROUTED; without `lookup`, rings determine
    them.
    """

    plan, timeline, hop = task.plan, task.timeline, task.next_hop

    def assigned() -> Iterator[pa.RecordBatch]:
        bound = task.bind()
        with timeline.phase("bind"):
            assigner: Assigner | RingAssigner
            found = None
            if lookup is None:
                assigner = RingAssigner(task)
            else:
                found = _lookup(task, lookup)
                assigner = Assigner(task, bound, found, hop.tasks(plan))
        sender = FrameSender(task, bound)
        receiver = FrameReceiver(task, bound, with_index=True)
        for arrived in receiver.arrivals(batches):
            located = None
            if arrived.records is not None:
                located = assigner.locate(arrived.records, arrived.index)
            with timeline.phase("release"):
                arrived.records = arrived.index = None
            if located is None:
                continue
            if found is not None:
                found.remember(located.records, located.keys, located.paths, located.file_ids)
            with timeline.phase("route"):
                going = _envelope(located.keys, located.paths, located.file_ids)
                target, shard = hop.destinations(plan, Outgoing(going, task.partition))
            records = located.with_places(bound, timeline)
            with timeline.phase("release"):
                located = None
            yield from sender.send(records, target, shard)
        if found is not None:
            found.finish()

    yield from timeline.sink(assigned())


def assign_and_write_stage(
    task: Task, batches: Iterable[pa.RecordBatch], lookup: Lookup
) -> Iterator[WriteStat]:
    """Look up, assign and write records in the task that their partition belongs to."""
    bound, timeline = task.bind(), task.timeline
    with timeline.phase("bind"):
        assigner = Assigner(task, bound, _lookup(task, lookup), 0)
    writers = FileGroupWriter(task)
    for arrived in FrameReceiver(task, bound).arrivals(batches):
        if arrived.records is not None:
            located = assigner.locate(arrived.records, None)
            if located is not None:
                writers.write(located.records, located)
            del located
        with timeline.phase("release"):
            arrived.records = None
    yield from timeline.sink(writers.finish())


def _lookup(task: Task, lookup: Lookup) -> IndexLookup | None:
    return lookup(task) if task.plan.operation.looks_up else None


def _envelope(
    keys: pa.StringArray, paths: pa.StringArray, file_ids: pa.StringArray
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [keys, paths, file_ids], names=[RECORD_KEY, PARTITION_PATH, FILE_ID]
    )
