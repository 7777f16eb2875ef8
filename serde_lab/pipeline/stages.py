"""The map and reduce stages around a hop, as plain functions over iterators of batches.

    map:     source batches -> keygen -> from_arrow -> route -> encode -> (target, position, frame)
    reduce:  (position, frame) -> decode -> precombine -> merge -> to_arrow -> write -> write stats

Both exchanges, in-process and Spark, call these functions, so the same frames cross both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.frames import (
    BATCH_BYTES,
    FrameReceiver,
    FrameSender,
    order_of_lanes,
)
from serde_lab.pipeline.exchange.routing import BY_BUCKET, Outgoing, Targets, Task, buckets_of
from serde_lab.pipeline.handles.file_groups import FileGroupWriter
from serde_lab.pipeline.plan import WritePlan
from serde_lab.records.buffers import first_invalid, is_ascii
from serde_lab.records.conversion import fit
from serde_lab.records.keys import RowPlace
from serde_lab.records.operation import Operation
from serde_lab.records.plain_form import list_columns, null_elements, scaled
from serde_lab.records.schema import (
    FILE_ID,
    FILE_NAME,
    INSTANT_TIME,
    PARTITION_PATH,
    POSITION,
    RECORD_KEY,
    holds_strings,
)
from serde_lab.serde.interface import Records
from serde_lab.serde.record_verbs import STORED_FILE_GROUP
from serde_lab.table.index.index_kind import SIMPLE_ENGINE
from serde_lab.table.timeline.commit_metadata import WriteStat

NULL_ELEMENTS_OF = "null_elements_of."
"""Prefix of a counter name; a column name follows. It counts null elements in that column's lists."""

_FEWEST_ROWS = 8192
_MOST_ROWS = 1 << 20


def map_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn source batches, with at least the columns of `plan.source_schema`, into batches of ROUTED."""
    yield from task.timeline.sink(_encoded(task, batches))


def _encoded(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan, timeline, hop = task.plan, task.timeline, task.next_hop
    bound = task.bind()
    per_frame = bound.options.rows_per_frame
    # each target and shard fills a frame of its own, so full frames need this many rows
    wanted = max(_FEWEST_ROWS, min(per_frame * hop.tasks(plan) * plan.shards, _MOST_ROWS))
    if per_frame == 0:
        wanted = 1 << 40
    sender = FrameSender(task, bound)
    for enveloped, target, shard in _keyed(task, batches, wanted, "route"):
        with timeline.phase("from_arrow"):
            records = bound.from_arrow(enveloped)
        yield from sender.send(records, target, shard)


def _keyed(
    task: Task, batches: Iterable[pa.RecordBatch], wanted: int, gathering: str
) -> Iterator[tuple[pa.RecordBatch, Targets, npt.NDArray[np.int64] | None]]:
    """Batches of about `wanted` enveloped records, with the target and the shard of each record.

    `gathering` names the phase in which source batches are put together.
    """
    plan, timeline, hop = task.plan, task.timeline, task.next_hop
    rows_before = 0
    for batch in _gathered(task.source(batches), wanted, timeline, gathering):
        with timeline.phase("keygen"):
            source = stored_form(batch, plan.source_schema)
            place = RowPlace(plan.instant, task.partition, task.first_row + rows_before)
            enveloped = enveloped_records(plan, source, place)
            going = Outgoing(enveloped, task.partition, source)
            target, shard = hop.destinations(plan, going)
            count_null_elements(enveloped, timeline)
        rows_before += batch.num_rows
        timeline.add("rows", batch.num_rows)
        yield enveloped, target, shard


def keep_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Records]]:
    """The map stage where records stay in memory: records by target, those of a target in input order.

    They are Arrow's own, which are the batch itself, so nothing is SerDe and sorting them is `group`.
    """
    timeline = task.timeline
    with timeline.phase("bind"):
        bound = task.plan.bind()
    for enveloped, target, _ in _keyed(task, batches, _MOST_ROWS, "group"):
        with timeline.phase("group"):
            order = order_of_lanes(target, task.plan.targets)
            records = bound.from_arrow(enveloped).take(order)
            found, starts = np.unique(target[order], return_index=True)
            ends = [*starts[1:].tolist(), len(order)]
            lanes = zip(found.tolist(), starts.tolist(), ends, strict=True)
            parts = [(lane, records.slice(start, end)) for lane, start, end in lanes]
        yield from parts


def count_null_elements(batch: pa.RecordBatch, timeline: TaskTimeline) -> None:
    """Count the null list elements, so that the driver can warn: some versions of Hudi cannot write them."""
    for name in list_columns(batch.schema):
        found = null_elements(batch.column(name))
        if found:
            timeline.add(f"{NULL_ELEMENTS_OF}{name}", found)


def enveloped_records(
    plan: WritePlan, source: pa.RecordBatch, place: RowPlace | None = None
) -> pa.RecordBatch:
    """Add the envelope to a source batch in stored form: whole rows, or only the keys for a delete.

    `place`: where the rows are in the input; a table without keys needs it to generate keys.
    """
    if plan.operation is Operation.DELETE:
        return plan.keygen.envelop_deletes(source)
    enveloped = plan.keygen.envelop(source, place)
    return _with_places(plan, enveloped, source.column(FILE_NAME)) if plan.located else enveloped


def _with_places(plan: WritePlan, enveloped: pa.RecordBatch, names: pa.Array) -> pa.RecordBatch:
    """Put records into the file groups that their rows were read from; rows from a log name just the
    group.
    """
    file_ids = pc.list_element(pc.split_pattern(names, "_", max_splits=1), 0)
    nowhere = pc.sum(pc.fill_null(pc.equal(file_ids, ""), True), min_count=0).as_py()
    if nowhere:
        raise DataError(
            f"column {FILE_NAME!r} is null or empty in {nowhere} rows: upsert_prepped is for records"
            " whose places are known",
            hint="upsert looks them up",
        )
    _check_buckets(plan, enveloped, file_ids)
    located = pa.repeat(pa.scalar(STORED_FILE_GROUP), len(names))
    for name, values in ((FILE_ID, file_ids), (INSTANT_TIME, located)):
        at = enveloped.schema.get_field_index(name)
        enveloped = enveloped.set_column(at, enveloped.schema.field(at), values)
    return enveloped


def _check_buckets(plan: WritePlan, enveloped: pa.RecordBatch, file_ids: pa.StringArray) -> None:
    """Raise DataError for a key outside of its bucket, where no later write would find it."""
    table = plan.table
    if table.bucket_count is None or table.bucket_engine != SIMPLE_ENGINE:
        return
    keys = enveloped.column(RECORD_KEY)
    buckets = pa.array(buckets_of(keys, table, enveloped.column(PARTITION_PATH)))
    wanted = pc.utf8_lpad(buckets.cast(pa.string()), 8, "0")
    stray = pc.index(pc.equal(wanted, pc.utf8_slice_codeunits(file_ids, 0, 8)), False).as_py()
    if stray >= 0:
        raise DataError(
            f"record key {keys[stray].as_py()!r} is not of the bucket of its row's file group"
            f" {file_ids[stray].as_py()!r}: upsert_prepped is for rows whose keys stay",
            hint="upsert looks keys up",
        )


def stored_form(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, in its order and types; other source columns are dropped.

    Missing columns become null, and narrower types are widened (`records.conversion`). A decimal may come as
    its unscaled long, as Spark's columns do (`spark.dataframe.handed_over`). Raises DataError naming the
    column for text that is not UTF-8.
    """
    there = {name: place for place, name in enumerate(batch.schema.names)}
    columns = [
        _stored_column(field.name, batch.column(there[field.name]), field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _stored_column(name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    if holds_strings(column.type):
        _check_text(name, column)
    if column.type == kind:
        return column
    if pa.types.is_decimal(kind) and pa.types.is_int64(column.type):
        return scaled(column, kind)
    return fit(column, kind)


def _check_text(name: str, column: pa.Array) -> None:
    """Refuse text that is not UTF-8 here, where the column is known; Arrow reads files without this
    check.
    """
    if pa.types.is_string(column.type) and is_ascii(column):
        return
    try:
        column.validate(full=True)
        return
    except pa.ArrowInvalid:
        bad = column.slice(first_invalid(column, lambda some: some.validate(full=True)), 1)
    value = f": {bad.cast(pa.binary())[0].as_py()!r:.80}" if pa.types.is_string(bad.type) else ""
    raise DataError(f"column {name!r} holds text that is not UTF-8{value}")


def _gathered(
    batches: Iterable[pa.RecordBatch], wanted: int, timeline: TaskTimeline, phase: str
) -> Iterator[pa.RecordBatch]:
    """Concatenate batches up to `wanted` rows or a limit in bytes; the last batch may be smaller."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= wanted or size >= 4 * BATCH_BYTES:
            yield _together(held, timeline, phase)
            held, rows, size = [], 0, 0
    if rows:
        yield _together(held, timeline, phase)


def _together(
    batches: Sequence[pa.RecordBatch], timeline: TaskTimeline, phase: str
) -> pa.RecordBatch:
    with timeline.phase(phase):
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def reduce_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Turn batches of (position, frame) into the stats of the files written."""
    bound = task.bind()
    writers = FileGroupWriter(task)
    for arrived in FrameReceiver(task, bound).arrivals(batches):
        if arrived.records is not None:
            writers.write(arrived.records)
        with task.timeline.phase("release"):
            # freeing records of Python objects takes time, so it has a phase of its own
            arrived.records = None
    yield from task.timeline.sink(writers.finish())


def write_kept_stage(task: Task, kept: Sequence[Records]) -> Iterator[WriteStat]:
    """The reduce stage behind `keep_stage`: writes the records of one target, given in input order."""
    writers = FileGroupWriter(replace(task, convert_out="write"))
    if kept:
        with task.timeline.phase("group"):
            records = type(kept[0]).concatenate(kept)
        task.timeline.add("rows", len(records))
        writers.write(records)
    yield from task.timeline.sink(writers.finish())


def reduce_columns_stage(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteStat]:
    """The reduce stage behind a hop of Spark's own columns: no strategy, no frames.

    Batches hold the source's columns and `POSITION`; sorting by it restores the input order.
    """
    plan, timeline = task.plan, task.timeline
    with timeline.phase("bind"):
        # Arrow's records are the batch itself, so no strategy takes part in this hop and nothing is SerDe
        bound = plan.bind()
    writers = FileGroupWriter(replace(task, convert_out="write"))
    batches = list(task.source(batches))
    if batches:
        with timeline.phase("order"):
            together = pa.concat_batches(batches)
            positions = together.column(POSITION).to_numpy()
            if (np.diff(positions) < 0).any():
                together = together.take(pa.array(np.argsort(positions, kind="stable")))
        with timeline.phase("keygen"):
            source = stored_form(together, plan.source_schema)
            enveloped = enveloped_records(plan, source)
            _check_arrival(task, source, enveloped)
            count_null_elements(enveloped, timeline)
            records = bound.from_arrow(enveloped)
        timeline.add("rows", len(records))
        writers.write(records)
    yield from timeline.sink(writers.finish())


def _check_arrival(task: Task, source: pa.RecordBatch, enveloped: pa.RecordBatch) -> None:
    """Refuse records in a wrong bucket: the JVM computed it, and hashes texts whole, separators included."""
    target = BY_BUCKET.place(task.plan, Outgoing(enveloped, task.partition, source))
    wrong = np.flatnonzero(target != task.partition)
    if len(wrong):
        raise DataError(
            f"Spark's own columns give the record key {enveloped.column(0)[int(wrong[0])].as_py()!r} another"
            " bucket than its text has, as they do if a value holds , or :",
            hint="write it by upsert",
        )
