"""What strategies share: frames, fingerprints, checksums, records without a row, pausing the collector.

Frames are cut at bounds, at `rows_per_frame` and at `max_frame_bytes`. A frame carries the fingerprint of its
schema, by which a decoder recognises frames of another one. The `crc32c` integrity trailer is the last four
bytes of a frame: the CRC-32C of all bytes before them, little endian.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.buffers import binaries
from serde_lab.records.schema import (
    ENVELOPE,
    IS_INDEX_RECORD,
    RecordSchema,
    child_fields,
    is_binary,
    is_decimal,
    is_list,
    is_string,
)
from serde_lab.serde.interface import Bounds, Frames, SerdeOptions

_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Cuts:
    """Frame i holds records [offsets[i], offsets[i + 1]) and goes to targets[i]; none is empty."""

    offsets: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        return np.diff(self.offsets).astype(np.int32)


class Damaged(Exception):
    """Damage in a frame or a record: what is wrong, and its number among those that are read, if known."""

    def __init__(self, problem: str, number: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.number = problem, number


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's garbage collector off during the block; also a decorator.

    None of the objects that a batch of records becomes is garbage, but the collector would look at all of
    them again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def payload_bytes(options: SerdeOptions) -> int:
    """The maximum of bytes in a frame without its integrity trailer."""
    return max(1, options.max_frame_bytes - (_CRC.size if options.integrity == "crc32c" else 0))


def cut(
    bounds: Bounds,
    options: SerdeOptions,
    record_ends: npt.NDArray[np.integer] | None = None,
    overhead_bytes: int = 0,
) -> Cuts:
    """Where frames begin and end.

    Each run of `bounds` is cut into frames of `rows_per_frame` records. A frame of more than
    `max_frame_bytes` is then cut again, each piece as long as possible, but never inside a record.
    `record_ends` gives the sizes of the records: shape (n + 1,), record i has
    record_ends[i + 1] - record_ends[i] bytes; without it `max_frame_bytes` is not applied.
    `overhead_bytes` is the size of a frame beyond its records.
    """
    runs = np.diff(bounds.offsets)
    if bounds.offsets[0] != 0 or (runs < 0).any() or len(runs) != len(bounds.targets):
        raise ValueError("bounds must start at 0, rise, and hold one target a run")
    step = options.rows_per_frame
    if step == 1:
        rows = int(bounds.offsets[-1])
        return Cuts(np.arange(rows + 1, dtype=np.int64), np.repeat(bounds.targets, runs))
    pieces = (runs > 0).astype(np.int64) if step == 0 else -(-runs // step)
    run_of = np.repeat(np.arange(len(runs)), pieces)
    first_piece = np.cumsum(pieces) - pieces
    starts = bounds.offsets[run_of] + (np.arange(len(run_of)) - first_piece[run_of]) * step
    offsets = np.append(starts, bounds.offsets[-1])
    cuts = Cuts(offsets, bounds.targets[run_of])
    if record_ends is None:
        return cuts
    return _cut_bytes(cuts, record_ends, payload_bytes(options) - overhead_bytes)


def _cut_bytes(cuts: Cuts, ends: npt.NDArray[np.integer], most_bytes: int) -> Cuts:
    """Cut again each frame whose records have more than `most_bytes`."""
    sizes = ends[cuts.offsets[1:]] - ends[cuts.offsets[:-1]]
    large = np.flatnonzero((sizes > most_bytes) & (cuts.rows > 1))
    if not len(large):
        return cuts
    extra: list[int] = []
    extra_of: list[int] = []
    for i in large.tolist():
        at, stop = int(cuts.offsets[i]), int(cuts.offsets[i + 1])
        while True:
            fits = int(np.searchsorted(ends, int(ends[at]) + most_bytes, side="right")) - 1
            at = max(at + 1, fits)
            if at >= stop:
                break
            extra.append(at)
            extra_of.append(i)
    starts = np.concatenate([cuts.offsets[:-1], np.array(extra, np.int64)])
    targets = np.concatenate([cuts.targets, cuts.targets[extra_of]])
    order = np.argsort(starts, kind="stable")
    return Cuts(np.append(starts[order], cuts.offsets[-1]), targets[order])


def cut_by_writing(
    bounds: Bounds, options: SerdeOptions, write: Callable[[int, int], list[int]]
) -> Cuts:
    """The same, for frames whose size is known only once they are written.

    `write` takes a run of records [first, last), writes it as one frame or several that are small enough, and
    returns the first record of each.
    """
    cuts = cut(bounds, options)
    starts: list[int] = []
    targets: list[int] = []
    for target, (first, last) in zip(
        cuts.targets.tolist(), pairwise(cuts.offsets.tolist()), strict=True
    ):
        starts += write(first, last)
        targets += [target] * (len(starts) - len(targets))
    offsets = np.array([*starts, cuts.offsets[-1]], np.int64)
    return Cuts(offsets, np.array(targets, np.int32))


def frames_of(cuts: Cuts, frame: pa.BinaryArray, options: SerdeOptions) -> Frames:
    """The frames of one batch, with their integrity trailers if `options` asks for them."""
    sealed = seal(frame) if options.integrity == "crc32c" else frame
    return Frames(pa.array(cuts.targets, pa.int32()), sealed, pa.array(cuts.rows, pa.int32()))


def frame_error(
    strategy: str, frame_index: int | None, options: SerdeOptions, problem: str
) -> DecodeError:
    """The error for a damaged frame: it names the record, or the frame if frames hold several records."""
    if options.rows_per_frame == 1 or frame_index is None:
        return DecodeError(strategy, frame_index, problem)
    return DecodeError(strategy, None, f"frame {frame_index}: {problem}")


def opened(strategy: str, frames: pa.BinaryArray, options: SerdeOptions) -> pa.BinaryArray:
    """`frames` without their integrity trailers, which are verified. Raises DecodeError naming the frame."""
    if frames.null_count:
        null = int(np.flatnonzero(frames.is_null().to_numpy(zero_copy_only=False))[0])
        raise frame_error(strategy, null, options, "the frame is null")
    return unseal(strategy, frames, options) if options.integrity == "crc32c" else frames


def seal(frames: pa.BinaryArray) -> pa.BinaryArray:
    """Each frame with the CRC-32C of its bytes appended."""
    value, pack = google_crc32c.value, _CRC.pack
    # one call of the C library a frame, since neither Arrow nor numpy computes a CRC
    return binaries([frame + pack(value(frame)) for frame in frames.to_pylist()])


def unseal(strategy: str, frames: pa.BinaryArray, options: SerdeOptions) -> pa.BinaryArray:
    """Each frame without its trailer. Raises DecodeError if the CRC-32C differs."""
    value, size = google_crc32c.value, _CRC.size
    payloads = []
    for index, frame in enumerate(frames.to_pylist()):
        payload = frame[:-size]
        if len(frame) < size or _CRC.pack(value(payload)) != frame[-size:]:
            problem = "its crc32c differs from the one that it carries"
            raise frame_error(strategy, index, options, problem)
        payloads.append(payload)
    return binaries(payloads)


def schema_fingerprint(schema: RecordSchema) -> int:
    """CRC-32C of the names and plain types of the columns of a batch, in order: 32 bits.

    Equal for schemas that differ only in layout (string, large_string) or in the roles of columns.
    """
    text = ",".join(_field(f.name, f.type) for f in schema.batch_schema)
    return int(google_crc32c.value(text.encode()))


def _field(name: str, t: pa.DataType) -> str:
    # the length keeps names with commas and brackets unambiguous
    return f"{len(name.encode())}:{name} {_text(t)}"


def _text(t: pa.DataType) -> str:
    if is_string(t):
        return "string"
    if is_binary(t):
        return "binary"
    if is_decimal(t):
        return f"decimal({t.precision},{t.scale})"
    if pat.is_timestamp(t):
        return f"timestamp({t.tz or ''})"
    if is_list(t):
        return f"list<{_text(t.value_type)}>"
    if pat.is_map(t):
        return f"map<{_text(t.item_type)}>"
    if pat.is_struct(t):
        return f"struct<{','.join(_field(f.name, f.type) for f in child_fields(t))}>"
    return str(t).removesuffix("32[day]")  # a date32 is written as date


def rows_present(batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
    """Which records of `batch` have a row; None if all have.

    Raises DataError naming a column in which an index record has a value.
    """
    is_index = batch.column(IS_INDEX_RECORD)
    if not pc.any(is_index).as_py():
        return None
    for name in batch.schema.names[len(ENVELOPE) :]:
        column = batch.column(name)
        if column.null_count < len(column) and pc.any(pc.and_(is_index, column.is_valid())).as_py():
            raise DataError(f"column {name!r} of an index record has a value, expected null")
    present: npt.NDArray[np.bool_] = ~is_index.to_numpy(zero_copy_only=False)
    return present
