"""The two stages around a hop, as plain functions over iterators of batches.

    map:     source batches -> keygen -> from_arrow -> route -> encode -> (target, position, frame)
    reduce:  (position, frame) -> decode -> precombine -> merge -> to_arrow -> write -> write statuses

Owns what happens inside a task. Both exchanges call the same functions, so that the same frames cross
both. Must not import pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.file_groups import FileGroupWriter
from serde_lab.pipeline.plan import Operation, WritePlan
from serde_lab.pipeline.routing import buckets_of_batch, position_of, targets_of
from serde_lab.pipeline.write_handle import WriteStatus
from serde_lab.records.fields import values_at
from serde_lab.records.key_hash import hash64
from serde_lab.records.keys import RowPlace
from serde_lab.records.schema_evolution import fit
from serde_lab.records.unscaled import scaled
from serde_lab.serde.interface import Bounds
from serde_lab.table.portability import list_columns, null_elements

ROUTED = pa.schema(
    [
        pa.field("target", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("frame", pa.binary(), nullable=False),
    ]
)
"""What leaves a map task: one row a frame."""

NULL_ELEMENTS_OF = "null_elements_of."
"""Of a counter: the column follows in whose lists so many null elements are."""

SEPARATORS = "[,:]"
"""A pattern of what stands between the fields of a record key."""

# of one batch handed to Spark, which makes one vector of it
_BATCH_BYTES = 16 << 20
# shards stand above the input position, so that one sort by position brings a task's shards in turn
_SHARD_SHIFT = 56
_FEWEST_ROWS = 8192


def map_stage(
    plan: WritePlan,
    partition: int,
    batches: Iterable[pa.RecordBatch],
    timeline: TaskTimeline,
    timed: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Source batches (the columns of `plan.source_schema` among others) to batches of ROUTED.

    `timed`: the batches time themselves, under a phase of their own; else waiting for them is one.
    """
    source = batches if timed else timeline.source(batches)
    yield from timeline.sink(_encoded(plan, partition, source, timeline))


def _encoded(
    plan: WritePlan, partition: int, batches: Iterable[pa.RecordBatch], timeline: TaskTimeline
) -> Iterator[pa.RecordBatch]:
    with timeline.phase("bind"):
        bound = plan.bind()
    per_frame = bound.options.rows_per_frame
    # a frame of one target fills up from as many rows as there are targets and shards
    wanted = max(_FEWEST_ROWS, min(per_frame * plan.targets * plan.shards, 1 << 20))
    if per_frame == 0:
        wanted = 1 << 40
    rows_before = 0
    for batch in _gathered(batches, wanted, timeline):
        with timeline.phase("keygen"):
            source = stored_form(batch, plan.source_schema)
            place = RowPlace(plan.instant, partition, rows_before)
            enveloped = enveloped_records(plan, source, place)
            target, shard = _destinations(plan, source, enveloped, partition)
            _count_null_elements(enveloped, timeline)
        with timeline.phase("from_arrow"):
            records = bound.from_arrow(enveloped)
        with timeline.phase("route"):
            if per_frame == 1:
                order = None
                bounds = Bounds.each(target)
            else:
                lane = target if shard is None else target.astype(np.int64) * plan.shards + shard
                # numpy sorts short integers by their digits, four times as fast
                short = lane.astype(np.uint16) if plan.targets * plan.shards < 1 << 16 else lane
                order = np.argsort(short, kind="stable")
                records = records.take(order)
                bounds = _runs(lane[order], target[order])
        with timeline.phase("encode"):
            frames = bound.encode(records, bounds)
        with timeline.phase("route"):
            positions = _positions(frames.rows, order, shard, partition, rows_before)
            routed = pa.RecordBatch.from_arrays(
                [frames.target, pa.array(positions), frames.frame], schema=ROUTED
            )
        rows_before += batch.num_rows
        timeline.add("rows", batch.num_rows)
        timeline.add("frames", len(frames))
        timeline.add("frame_bytes", _total_bytes(frames.frame))
        yield from _pieces(routed)


def _count_null_elements(batch: pa.RecordBatch, timeline: TaskTimeline) -> None:
    """Count, for the driver's warning, what some versions of Hudi cannot write."""
    for name in list_columns(batch.schema):
        found = null_elements(batch.column(name))
        if found:
            timeline.add(f"{NULL_ELEMENTS_OF}{name}", found)


def enveloped_records(
    plan: WritePlan, source: pa.RecordBatch, place: RowPlace | None = None
) -> pa.RecordBatch:
    """The records of a source batch in stored form: with its rows, of a delete with their keys only.

    `place`: where its rows stand in the input, which a table without keys must know.
    """
    if plan.operation is Operation.DELETE:
        return plan.keygen.envelop_deletes(source)
    return plan.keygen.envelop(source, place)


def stored_form(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, in its order and types: what the source has besides is dropped.

    What the source lacks is null, what it has narrower becomes wider (`records.schema_evolution`). A
    decimal may come as its unscaled long, as Spark's columns do (`spark_columns.handed_over`).
    """
    there = {name: place for place, name in enumerate(batch.schema.names)}
    columns = [
        _stored_column(batch.column(there[field.name]), field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _stored_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_decimal(kind) and pa.types.is_int64(column.type):
        return scaled(column, kind)
    return fit(column, kind)


def _gathered(
    batches: Iterable[pa.RecordBatch], wanted: int, timeline: TaskTimeline
) -> Iterator[pa.RecordBatch]:
    """Batches of at least `wanted` rows (the last one may have fewer), bounded by their bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= wanted or size >= 4 * _BATCH_BYTES:
            with timeline.phase("route"):
                together = held[0] if len(held) == 1 else pa.concat_batches(held)
            yield together
            held, rows, size = [], 0, 0
    if rows:
        with timeline.phase("route"):
            together = held[0] if len(held) == 1 else pa.concat_batches(held)
        yield together


def _destinations(
    plan: WritePlan, batch: pa.RecordBatch, enveloped: pa.RecordBatch, partition: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64] | None]:
    """Reduce partition and shard of each record; no shard where there is only one."""
    keys = enveloped.column(0)
    paths = enveloped.column(1) if plan.schema.partition else None
    if plan.table.is_keyless:
        # rows of one partition path and one input partition stay together: few files
        buckets = np.full(len(keys), partition % plan.targets, np.int32)
    else:
        buckets = buckets_of_batch(keys, batch, plan.table)
    target = targets_of(buckets, paths, plan.buckets, plan.targets)
    shard = None
    if plan.shards > 1:
        shard = (hash64(keys) % np.uint64(plan.shards)).astype(np.int64)
    return target, shard


def _runs(lane: npt.NDArray[np.integer], target: npt.NDArray[np.int32]) -> Bounds:
    """Bounds of the runs of equal lane; both arrays stand in routed order."""
    if not len(lane):
        return Bounds(np.zeros(0, np.int32), np.zeros(1, np.int64))
    starts = np.flatnonzero(np.concatenate([[True], lane[1:] != lane[:-1]]))
    return Bounds(target[starts], np.append(starts, len(lane)).astype(np.int64))


def _positions(
    rows: pa.Int32Array,
    order: npt.NDArray[np.int64] | None,
    shard: npt.NDArray[np.int64] | None,
    partition: int,
    rows_before: int,
) -> npt.NDArray[np.int64]:
    """Input position of each frame's first record.

    A frame's later records stand later in the input than its first one and, within one target and
    shard, before the next frame's: the stable sort kept the input order.
    """
    counts = rows.to_numpy()
    first = np.cumsum(counts, dtype=np.int64) - counts
    row = first if order is None else order[first]
    positions = row + position_of(partition, rows_before)
    return positions if shard is None else positions | (shard[row] << _SHARD_SHIFT)


def _pieces(routed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most about _BATCH_BYTES, one frame at least."""
    size = _total_bytes(routed.column(2))
    if size <= _BATCH_BYTES:
        yield routed
        return
    frame_bytes = size / max(1, routed.num_rows)
    step = max(1, int(_BATCH_BYTES / frame_bytes))
    for start in range(0, routed.num_rows, step):
        yield routed.slice(start, step)


def _total_bytes(frames: pa.BinaryArray) -> int:
    offsets = _offsets(frames)
    return int(offsets[-1]) - int(offsets[0])


def _offsets(frames: pa.BinaryArray) -> npt.NDArray[np.int32]:
    return np.frombuffer(
        frames.buffers()[1], np.int32, count=len(frames) + 1, offset=4 * frames.offset
    )


def reduce_stage(
    plan: WritePlan, partition: int, batches: Iterable[pa.RecordBatch], timeline: TaskTimeline
) -> Iterator[WriteStatus]:
    """Batches of (position, frame) to the statuses of the files written."""
    with timeline.phase("bind"):
        bound = plan.bind()
    mark = bound.mark[0]
    writers = FileGroupWriter(plan, partition, timeline)
    for shard in _shards(timeline.source(batches), plan.shards):
        positions = np.concatenate([part.column("position").to_numpy() for part in shard])
        frames = pa.chunked_array([part.column("frame") for part in shard])
        with timeline.phase("sniff"):
            # the wire is checked against the declared strategy, by its bytes, whatever decode makes of it
            foreign = sum(_foreign(chunk, mark) for chunk in frames.chunks)
            timeline.add("frames_sniffed", len(positions))
            timeline.add("frames_foreign", foreign)
        with timeline.phase("decode"):
            together = frames.combine_chunks()
            parts = together.chunks if isinstance(together, pa.ChunkedArray) else [together]
            if len(positions) > 1 and (np.diff(positions) < 0).any():
                order = np.argsort(positions, kind="stable")
                parts = [pa.concat_arrays(parts).take(pa.array(order))]
            records = [bound.decode(part) for part in parts if len(part)]
            decoded = type(records[0]).concatenate(records) if len(records) > 1 else records[0]
        timeline.add("rows", len(decoded))
        writers.write(decoded)
        with timeline.phase("release"):
            # records of Python objects take time to be given back: it has a name
            del frames, shard, together, parts, records, decoded
    yield from timeline.sink(writers.finish())


def reduce_columns_stage(
    plan: WritePlan, partition: int, batches: Iterable[pa.RecordBatch], timeline: TaskTimeline
) -> Iterator[WriteStatus]:
    """The reduce stage of a hop that Spark's own columns crossed: no strategy, no frames.

    Batches hold the source's columns and `position`; they stand in input order once sorted by it.
    """
    with timeline.phase("bind"):
        bound = plan.bind()
    writers = FileGroupWriter(plan, partition, timeline, convert_out="write")
    batches = list(timeline.source(batches))
    if batches:
        with timeline.phase("order"):
            together = pa.concat_batches(batches)
            positions = together.column("position").to_numpy()
            if (np.diff(positions) < 0).any():
                together = together.take(pa.array(np.argsort(positions, kind="stable")))
        with timeline.phase("keygen"):
            source = stored_form(together, plan.source_schema)
            enveloped = enveloped_records(plan, source)
            _check_arrival(plan, partition, source, enveloped)
            _count_null_elements(enveloped, timeline)
            # Arrow's records are the batch itself: no strategy takes part in this hop
            records = bound.from_arrow(enveloped)
        timeline.add("rows", len(records))
        writers.write(records)
    yield from timeline.sink(writers.finish())


def _check_arrival(
    plan: WritePlan, partition: int, source: pa.RecordBatch, enveloped: pa.RecordBatch
) -> None:
    """Refuse records whose bucket the JVM did not know: `spark_columns.java_bucket` hashes texts whole."""
    fields = [values_at(source, name) for name in plan.table.record_key_fields]
    texts = [values for values in fields if pa.types.is_string(values.type)]
    if not any(pc.any(pc.match_substring_regex(text, SEPARATORS)).as_py() for text in texts):
        return
    target, _ = _destinations(plan, source, enveloped, partition)
    wrong = np.flatnonzero(target != partition)
    if len(wrong):
        raise DataError(
            f"record key {enveloped.column(0)[int(wrong[0])].as_py()!r} holds , or : in a value, and"
            " Spark's own columns cannot find its bucket",
            hint="write it by upsert",
        )


def _shards(batches: Iterable[pa.RecordBatch], shards: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches of one shard after the other; they arrive sorted where there are several."""
    held: list[pa.RecordBatch] = []
    current = -1
    for batch in batches:
        if not batch.num_rows:
            continue
        if shards == 1:
            held.append(batch)
            continue
        shard = batch.column("position").to_numpy() >> _SHARD_SHIFT
        edges = [0, *(np.flatnonzero(np.diff(shard)) + 1).tolist(), len(shard)]
        for start, end in pairwise(edges):
            if shard[start] != current and held:
                yield held
                held = []
            current = int(shard[start])
            held.append(batch.slice(start, end - start))
    if held:
        yield held


def _foreign(frames: pa.BinaryArray, mark: int) -> int:
    """How many frames do not begin with `mark`."""
    offsets = _offsets(frames)
    data = np.frombuffer(frames.buffers()[2] or b"", np.uint8)
    filled = offsets[1:] > offsets[:-1]
    return int((~filled).sum() + (data[offsets[:-1][filled]] != mark).sum())
