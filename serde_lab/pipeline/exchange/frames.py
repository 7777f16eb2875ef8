"""The two halves of a hop: encodes records as frames for their targets, and decodes the frames that arrive.

Each frame gets a position, by which the receiver restores the input order. The receiver checks frames and
decodes them shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.pipeline.exchange.routing import POSITION_BITS, Targets, Task, position_of
from serde_lab.records.buffers import offsets_of
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, Records

ROUTED = pa.schema(
    [
        pa.field("target", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("frame", pa.binary(), nullable=False),
    ]
)
"""The output of a sending task: one row per frame."""

SHARD_SHIFT = POSITION_BITS + 1
"""The shard is in the bits above the input position, so sorting by position also groups a task's shards."""
INDEX_BIT = 1 << POSITION_BITS
"""Set in the positions of index records' frames, so that they sort behind all others of their shard."""

INDEX = "index_"
"""Prefix of phase and counter names of index records, which are counted apart from records."""

Sliced = TypeVar("Sliced", pa.RecordBatch, pa.BinaryArray)

# bytes of one batch given to Spark, which makes one vector of it
BATCH_BYTES = 16 << 20


def order_of_lanes(lane: npt.NDArray[np.integer], lanes: int) -> npt.NDArray[np.int64]:
    """The row numbers by lane, those of a lane in order; `lane` of each row is below `lanes`."""
    # numpy radix-sorts short integers
    short = lane.astype(np.uint16) if lanes < 1 << 16 else lane
    return np.argsort(short, kind="stable")


class FrameSender:
    """Sends the records of one task over its next hop, batch after batch.

    `prefix` begins the names of its phases and counters; `mark` is a bit set in every position.
    """

    def __init__(
        self,
        task: Task,
        bound: BoundSerde,
        *,
        prefix: str = "",
        mark: int = 0,
    ) -> None:
        self._bound, self._timeline, self._prefix = bound, task.timeline, prefix
        self._tasks, self._shards = task.next_hop.tasks(task.plan), task.plan.shards
        self._partition, self._mark = task.partition, mark
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
                order = order_of_lanes(lane, self._tasks * self._shards)
                records = records.take(order)
                bounds = _runs(lane[order], target[order])
        with timeline.phase(f"{prefix}encode"):
            frames = self._bound.encode(records, bounds)
        yield from self._routed(frames, order, shard, rows)

    def forward(
        self, frames: pa.BinaryArray, target: Targets, shard: npt.NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of ROUTED with the same frames, which hold one record each, for other targets."""
        with self._timeline.phase(f"{self._prefix}encode"):
            one_each = pa.array(np.ones(len(frames), np.int32))
            copied = self._bound.copy(Frames(pa.array(target), frames, one_each), target)
        yield from self._routed(copied, None, shard, len(frames))

    def _routed(
        self,
        frames: Frames,
        order: npt.NDArray[np.int64] | None,
        shard: npt.NDArray[np.int64] | None,
        rows: int,
    ) -> Iterator[pa.RecordBatch]:
        """The frames with their positions; they hold `rows` records, in the order `order` of the input."""
        timeline, prefix = self._timeline, self._prefix
        with timeline.phase(f"{prefix}route"):
            positions = self._positions(frames.rows, order, shard)
            routed = pa.RecordBatch.from_arrays(
                [frames.target, pa.array(positions), frames.frame], schema=ROUTED
            )
        self.rows_before += rows
        timeline.add(f"{prefix}frames", len(frames))
        timeline.add(f"{prefix}frame_bytes", total_bytes(frames.frame))
        yield from _slices(routed)

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


def _slices(routed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most about BATCH_BYTES, at least one frame each."""
    if total_bytes(routed.column(2)) <= BATCH_BYTES:
        yield routed
        return
    yield from slices(routed, routed.column(2), BATCH_BYTES)


def slices(rows: Sliced, frames: pa.BinaryArray, size_bytes: int) -> Iterator[Sliced]:
    """Slices of `rows`, whose frames are `frames`, of about `size_bytes` and at least one frame each."""
    step = max(1, len(frames) * size_bytes // max(1, total_bytes(frames)))
    for start in range(0, len(frames), step):
        yield rows.slice(start, step)


def total_bytes(frames: pa.BinaryArray) -> int:
    offsets = offsets_of(frames)
    return int(offsets[-1]) - int(offsets[0])


_MOST_RUNS = 4096
_MOST_KEPT, _MOST_KEPT_BYTES = 32, 1 << 20


@dataclass(slots=True)
class Arrived:
    """The records of one shard in input order, and its index records; None if there are none.

    `frames`: the frames that hold the records, where they come in pieces.
    """

    records: Records | None
    index: Records | None = None
    frames: pa.BinaryArray | None = None


class FrameDraw:
    """Draws frames at random from all that a task receives, so that no strategy knows which are kept."""

    def __init__(self) -> None:
        # seeded by the operating system
        self._chance = np.random.default_rng()
        self._drawn: list[tuple[float, bytes]] = []

    def add(self, chunks: Sequence[pa.BinaryArray]) -> list[bytes]:
        """Take the frames of `chunks` into account; returns those drawn so far: at most 32, and at most 1 MiB
        of them unless the first is larger."""
        lots: list[tuple[float, pa.BinaryScalar | bytes]] = [*self._drawn]
        for chunk in filter(len, chunks):
            drawn = self._chance.random(len(chunk))
            few = np.argpartition(drawn, min(_MOST_KEPT, len(chunk)) - 1)[:_MOST_KEPT]
            lots += [(float(drawn[n]), chunk[n]) for n in few.tolist()]
        lots.sort(key=lambda one: one[0])
        size, self._drawn = 0, []
        for lot, frame in lots[:_MOST_KEPT]:
            size += len(frame) if isinstance(frame, bytes) else frame.as_buffer().size
            if self._drawn and size > _MOST_KEPT_BYTES:
                break
            self._drawn.append((lot, frame if isinstance(frame, bytes) else frame.as_py()))
        return [frame for _, frame in self._drawn]


class FrameReceiver:
    """Receives the frames of one task and decodes them to records.

    `with_index`: index records come through the same hop; their positions distinguish them.
    """

    def __init__(self, task: Task, bound: BoundSerde, with_index: bool = False) -> None:
        self._task, self._bound, self._with_index = task, bound, with_index
        self._mark = bound.mark[0]
        self._draw = FrameDraw()

    def arrivals(
        self,
        batches: Iterable[pa.RecordBatch],
        piece_bytes: int | None = None,
    ) -> Iterator[Arrived]:
        """Yield one shard after another from batches of (position, frame).

        `piece_bytes`: yield the records in pieces of about this size, for a task that handles records one
        by one; without it, or if there are index records, a shard comes whole. The caller releases the
        records (`Arrived.records = None`) before it takes the next ones.
        """
        timeline = self._task.timeline
        for shard in _shards(self._task.source(batches), self._task.plan.shards):
            with timeline.phase("sniff"):
                positions = np.concatenate([part.column("position").to_numpy() for part in shard])
                frames = [part.column("frame") for part in shard]
                # the generator still holds this list; clear it, so that decoded frames are freed
                shard.clear()
                # check the first byte of each frame against the declared strategy, whatever decode does
                # with it
                foreign = sum(_foreign(chunk, self._mark) for chunk in frames)
                timeline.add("frames_sniffed", len(positions))
                timeline.add("frames_foreign", foreign)
            index = None
            if self._with_index:
                with timeline.phase(f"{INDEX}decode"):
                    marked = (positions & INDEX_BIT) != 0
                    if marked.any():
                        timeline.add(f"{INDEX}frames_sniffed", int(marked.sum()))
                        both, rest = pa.chunked_array(frames), ~marked
                        of_index = both.filter(pa.array(marked)).chunks
                        index = self._decoded(of_index, positions[marked])
                        frames, positions = both.filter(pa.array(rest)).chunks, positions[rest]
                        del both
                if index is not None:
                    timeline.add(f"{INDEX}rows", len(index))
            with timeline.phase("sniff"):
                timeline.keep(self._draw.add(frames))
            if piece_bytes and index is None:
                with timeline.phase("decode"):
                    ordered = in_order(pa.chunked_array(frames), positions)
                del frames, positions
                for piece in _pieces(ordered, piece_bytes):
                    with timeline.phase("decode"):
                        arrived = Arrived(self._bound.decode(piece), frames=piece)
                    timeline.add("rows", len(arrived.records or ()))
                    yield arrived
                continue
            records = None
            if len(positions):
                with timeline.phase("decode"):
                    records = self._decoded(frames, positions)
                timeline.add("rows", len(records))
            arrived = Arrived(records, index)
            del frames, positions, records, index
            yield arrived

    def _decoded(self, frames: list[pa.Array], positions: npt.NDArray[np.int64]) -> Records:
        """The records of `frames`, by position; clears the list."""
        ordered = in_order(pa.chunked_array(frames), positions)
        frames.clear()
        at_once = self._bound.decode_bytes
        if at_once is None:
            # several chunks if one buffer cannot hold them all
            together = ordered.combine_chunks()
            parts = together.chunks if isinstance(together, pa.ChunkedArray) else [together]
        else:
            parts = list(_pieces(ordered, at_once))
        del ordered
        records = [self._bound.decode(part) for part in parts if len(part)]
        return type(records[0]).concatenate(records) if len(records) > 1 else records[0]


def in_order(frames: pa.ChunkedArray, positions: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """`frames` sorted by their `positions`, shape (n,).

    The frames of one sending task arrive in order, so whole runs are moved; if runs overlap or are too
    many, the frames are sorted one by one.
    """
    starts = np.flatnonzero(np.diff(positions) < 0) + 1
    if not len(starts):
        return frames
    starts = np.concatenate([[0], starts])
    ends = np.append(starts[1:], len(positions))
    order = np.argsort(positions[starts], kind="stable")
    overlap = (positions[starts[order]][1:] < positions[ends[order] - 1][:-1]).any()
    if overlap or len(starts) > _MOST_RUNS:
        return frames.take(pa.array(np.argsort(positions, kind="stable")))
    runs = [frames.slice(starts[n], ends[n] - starts[n]).chunks for n in order.tolist()]
    return pa.chunked_array([chunk for run in runs for chunk in run], frames.type)


def _pieces(frames: pa.ChunkedArray, piece_bytes: int) -> Iterator[pa.BinaryArray]:
    """The frames in pieces of about `piece_bytes`, at least one frame each."""
    for chunk in frames.chunks:
        yield from slices(chunk, chunk, piece_bytes)


def _shards(batches: Iterable[pa.RecordBatch], shards: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches of one shard after another; with several shards they arrive sorted."""
    held: list[pa.RecordBatch] = []
    current = -1
    for batch in batches:
        if not batch.num_rows:
            continue
        if shards == 1:
            held.append(batch)
            continue
        shard = batch.column("position").to_numpy() >> SHARD_SHIFT
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
    offsets = offsets_of(frames)
    data = np.frombuffer(frames.buffers()[2] or b"", np.uint8)
    filled = offsets[1:] > offsets[:-1]
    return int((~filled).sum() + (data[offsets[:-1][filled]] != mark).sum())
