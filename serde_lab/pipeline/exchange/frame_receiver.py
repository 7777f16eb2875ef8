"""The receiving half of a hop: checks frames, restores the input order, and decodes them shard by shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.frame_sender import (
    INDEX,
    INDEX_BIT,
    SHARD_SHIFT,
    frame_offsets,
    frames_in,
)
from serde_lab.pipeline.plan import WritePlan
from serde_lab.serde.interface import BoundSerde, Records

_MOST_RUNS = 4096


@dataclass(slots=True)
class Arrived:
    """The records of one shard in input order, and its index records; None if there are none."""

    records: Records | None
    index: Records | None = None


class FrameReceiver:
    """Receives the frames of one task and decodes them to records.

    `with_index`: index records come through the same hop; their positions distinguish them.
    """

    def __init__(
        self, plan: WritePlan, bound: BoundSerde, timeline: TaskTimeline, with_index: bool = False
    ) -> None:
        self._bound, self._timeline, self._shards = bound, timeline, plan.shards
        self._with_index = with_index
        self._mark = bound.mark[0]

    def arrivals(
        self,
        batches: Iterable[pa.RecordBatch],
        timed: bool = False,
        piece_bytes: int | None = None,
    ) -> Iterator[Arrived]:
        """Yield one shard after another from batches of (position, frame); `timed`: they time themselves.

        `piece_bytes`: yield the records in pieces of about this size, for a task that handles records one
        by one; without it, or if there are index records, a shard comes whole. The caller releases the
        records (`Arrived.records = None`) before it takes the next ones.
        """
        timeline = self._timeline
        source = batches if timed else timeline.source(batches)
        for shard in _shards(source, self._shards):
            positions = np.concatenate([part.column("position").to_numpy() for part in shard])
            frames = [part.column("frame") for part in shard]
            # the generator still holds this list; clear it so that frames are freed once they are decoded
            shard.clear()
            with timeline.phase("sniff"):
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
            if piece_bytes and index is None:
                with timeline.phase("decode"):
                    ordered = in_order(pa.chunked_array(frames), positions)
                del frames, positions
                for piece in _pieces(ordered, piece_bytes):
                    with timeline.phase("decode"):
                        arrived = Arrived(self._bound.decode(piece))
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
        if len(chunk):
            step = frames_in(chunk, piece_bytes)
            for start in range(0, len(chunk), step):
                yield chunk.slice(start, step)


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
    offsets = frame_offsets(frames)
    data = np.frombuffer(frames.buffers()[2] or b"", np.uint8)
    filled = offsets[1:] > offsets[:-1]
    return int((~filled).sum() + (data[offsets[:-1][filled]] != mark).sum())
