"""The sending half of a hop: sorts records by target and encodes them as frames.

Each frame gets a position, by which the receiver restores the input order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.hops import Hop, Targets
from serde_lab.pipeline.exchange.routing import position_of
from serde_lab.pipeline.plan import WritePlan
from serde_lab.serde.interface import Bounds, BoundSerde, Records

ROUTED = pa.schema(
    [
        pa.field("target", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("frame", pa.binary(), nullable=False),
    ]
)
"""The output of a sending task: one row per frame."""

SHARD_SHIFT = 56
"""The shard is in the bits above the input position, so sorting by position also groups a task's shards."""
INDEX_BIT = 1 << 55
"""Set in the positions of index records' frames, so that they sort behind all others of their shard."""

INDEX = "index_"
"""Prefix of phase and counter names of index records, which are counted apart from records."""

# bytes of one batch given to Spark, which makes one vector of it
BATCH_BYTES = 16 << 20


class FrameSender:
    """Sends the records of one task over `hop`, batch after batch.

    `prefix` begins the names of its phases and counters; `mark` is a bit set in every position.
    """

    def __init__(
        self,
        plan: WritePlan,
        bound: BoundSerde,
        hop: Hop,
        partition: int,
        timeline: TaskTimeline,
        *,
        prefix: str = "",
        mark: int = 0,
    ) -> None:
        self._bound, self._timeline, self._prefix = bound, timeline, prefix
        self._tasks, self._shards = hop.tasks(plan), plan.shards
        self._partition, self._mark = partition, mark
        self.rows_before = 0

    def send(
        self, records: Records, target: Targets, shard: npt.NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of ROUTED; `target` and `shard` of each record come from the hop."""
        timeline, prefix, rows = self._timeline, self._prefix, len(records)
        with timeline.phase(f"{prefix}route"):
            if self._bound.options.rows_per_frame == 1:
                order = None
                bounds = Bounds.each(target)
            else:
                lane = target if shard is None else target.astype(np.int64) * self._shards + shard
                # numpy radix-sorts short integers, four times as fast
                short = lane.astype(np.uint16) if self._tasks * self._shards < 1 << 16 else lane
                order = np.argsort(short, kind="stable")
                records = records.take(order)
                bounds = _runs(lane[order], target[order])
        with timeline.phase(f"{prefix}encode"):
            frames = self._bound.encode(records, bounds)
        with timeline.phase(f"{prefix}route"):
            positions = self._positions(frames.rows, order, shard)
            routed = pa.RecordBatch.from_arrays(
                [frames.target, pa.array(positions), frames.frame], schema=ROUTED
            )
        self.rows_before += rows
        timeline.add(f"{prefix}frames", len(frames))
        timeline.add(f"{prefix}frame_bytes", total_bytes(frames.frame))
        yield from _pieces(routed)

    def _positions(
        self,
        rows: pa.Int32Array,
        order: npt.NDArray[np.int64] | None,
        shard: npt.NDArray[np.int64] | None,
    ) -> npt.NDArray[np.int64]:
        """Input position of each frame's first record.

        A frame's later records come later in the input than its first one and, within one target and
        shard, before the next frame's: the stable sort kept the input order.
        """
        counts = rows.to_numpy()
        first = np.cumsum(counts, dtype=np.int64) - counts
        row = first if order is None else order[first]
        positions = row + (position_of(self._partition, self.rows_before) | self._mark)
        return positions if shard is None else positions | (shard[row] << SHARD_SHIFT)


def _runs(lane: npt.NDArray[np.integer], target: Targets) -> Bounds:
    """Bounds of the runs of equal lane; both arrays are in routed order."""
    if not len(lane):
        return Bounds(np.zeros(0, np.int32), np.zeros(1, np.int64))
    starts = np.flatnonzero(np.concatenate([[True], lane[1:] != lane[:-1]]))
    return Bounds(target[starts], np.append(starts, len(lane)).astype(np.int64))


def _pieces(routed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most about BATCH_BYTES, at least one frame each."""
    if total_bytes(routed.column(2)) <= BATCH_BYTES:
        yield routed
        return
    step = frames_in(routed.column(2), BATCH_BYTES)
    for start in range(0, routed.num_rows, step):
        yield routed.slice(start, step)


def frames_in(frames: pa.BinaryArray, size_bytes: int) -> int:
    """How many of `frames` add up to about `size_bytes`; at least one."""
    return max(1, len(frames) * size_bytes // max(1, total_bytes(frames)))


def total_bytes(frames: pa.BinaryArray) -> int:
    """The bytes of all frames together."""
    offsets = frame_offsets(frames)
    return int(offsets[-1]) - int(offsets[0])


def frame_offsets(frames: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Where each frame begins in the array's buffer, and where the last one ends."""
    return np.frombuffer(
        frames.buffers()[1], np.int32, count=len(frames) + 1, offset=4 * frames.offset
    )
