"""Writes and reads `pickle` frames.

Numbers are little endian:

    byte 0      the mark, 0xA3
    1 to 4      fingerprint of the schema (`framing.schema_fingerprint`)
    5 …         a pickle, protocol 5, without memo: at one record a frame (`rows_per_frame = 1`) the
                record, a tuple; else a list of such tuples

Bytes after the pickle are refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.buffers import binary_array, spans_of
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.framing import (
    cut,
    cut_by_writing,
    frame_error,
    frames_of,
    opened,
    payload_bytes,
    schema_fingerprint,
)
from serde_lab.serde.interface import Bounds, Frames, SerdeOptions

MARK = b"\xa3"
_PREFIX_BYTES = 5
# a pickle begins with protocol 5 and the size of a pickle frame, which is the rest of a pickle up to 64 KiB
_OPENING = b"\x80\x05\x95"
_OPENING_BYTES = 11


@dataclass(frozen=True, slots=True)
class PickleFrames:
    """Frames of one schema under one set of options; `prefix` is the bytes before each pickle."""

    prefix: bytes
    options: SerdeOptions

    @classmethod
    def of(cls, schema: RecordSchema, options: SerdeOptions) -> PickleFrames:
        return cls(MARK + schema_fingerprint(schema).to_bytes(4, "little"), options)

    def write(self, records: Sequence[tuple[Any, ...]], bounds: Bounds) -> Frames:
        """The frames of `records`. Raises DataError if they take 2 GiB or more."""
        writer = _Writer(self._pickler(), records)
        if self.options.rows_per_frame == 1:
            writer.each()
            cuts = cut(bounds, self.options)
        else:
            most_bytes = payload_bytes(self.options) - _PREFIX_BYTES
            write = partial(writer.several, most_bytes=most_bytes)
            cuts = cut_by_writing(bounds, self.options, write)
        try:
            frames = pc.binary_join_element_wise(pa.scalar(self.prefix), writer.written(), b"")
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as exc:
            raise DataError(f"the frames of {len(records)} records have too many bytes") from exc
        return frames_of(cuts, frames, self.options)

    def read(self, frames: pa.BinaryArray) -> list[Any]:
        """The records in the pickles of `frames`. Raises DecodeError naming the frame."""
        raw, starts, ends = self._checked(opened("pickle", frames, self.options))
        loads = pickle.loads
        try:
            found = [loads(raw[a:b]) for a, b in zip(starts, ends, strict=True)]
        except Exception as exc:  # a pickle is a program, so it may raise anything
            raise self._first_unreadable(raw, starts, ends) from exc
        if set(map(type, found)) == {list}:
            return list(chain.from_iterable(found))
        return found

    def _pickler(self) -> type[pickle.Pickler]:
        if self.options.own["pickler"] == "cloudpickle":
            import cloudpickle

            pickler: type[pickle.Pickler] = cloudpickle.Pickler
            return pickler
        return pickle.Pickler

    def _checked(self, frames: pa.BinaryArray) -> tuple[bytes, list[int], list[int]]:
        """The bytes of all frames, and where their pickles begin and end. Raises DecodeError."""
        if not len(frames):
            return b"", [], []
        data, ends = spans_of(frames)
        raw = data.to_pybytes()
        starts, ends = ends[:-1], ends[1:]
        sizes = ends - starts
        self._refuse(sizes < _PREFIX_BYTES + _OPENING_BYTES, "it is too short")
        bytes_of = np.frombuffer(raw, np.uint8)
        for place, byte in enumerate(self.prefix):
            what = (
                "it does not begin with this strategy's mark"
                if place == 0
                else "it is of another schema"
            )
            self._refuse(bytes_of[starts + place] != byte, what)
        starts = starts + _PREFIX_BYTES
        # pickle.loads ignores bytes after a pickle; a pickle of one pickle frame states its size
        words = np.ndarray((len(raw) - 7,), "<u8", bytes_of, 0, (1,))
        whole = words[starts + len(_OPENING)] == (ends - starts - _OPENING_BYTES).view(np.uint64)
        for place, byte in enumerate(_OPENING):
            whole &= bytes_of[starts + place] == byte
        for index in np.flatnonzero(~whole).tolist():
            stream = io.BytesIO(raw[starts[index] : ends[index]])
            try:
                pickle.Unpickler(stream).load()
            except Exception as exc:  # as above
                raise frame_error("pickle", index, self.options, f"{exc}") from exc
            if stream.read(1):
                raise frame_error("pickle", index, self.options, "bytes follow its pickle")
        return raw, starts.tolist(), ends.tolist()

    def _refuse(self, wrong: npt.NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            raise frame_error("pickle", int(wrong.argmax()), self.options, problem)

    def _first_unreadable(self, raw: bytes, starts: list[int], ends: list[int]) -> DecodeError:
        for index, (a, b) in enumerate(zip(starts, ends, strict=True)):
            try:
                pickle.loads(raw[a:b])
            except Exception as exc:  # as above
                return frame_error("pickle", index, self.options, str(exc))
        return DecodeError("pickle", None, "reading it failed, and then succeeded")


class _Writer:
    """Writes pickles into one buffer."""

    def __init__(self, pickler: type[pickle.Pickler], records: Sequence[tuple[Any, ...]]) -> None:
        self._buffer = io.BytesIO()
        self._pickler = pickler(self._buffer, 5)
        self._pickler.fast = True
        self._records = records
        self._ends = [0]

    def each(self) -> None:
        """Write a pickle for every record."""
        dump, tell, end = self._pickler.dump, self._buffer.tell, self._ends.append
        for record in self._records:
            dump(record)
            end(tell())

    def several(self, first: int, last: int, most_bytes: int) -> list[int]:
        """Write pickles of records [first, last), cut at `most_bytes`; returns the first record of each."""
        start = self._buffer.tell()
        self._pickler.dump(self._records[first:last])
        end = self._buffer.tell()
        if end - start <= most_bytes or last - first == 1:
            self._ends.append(end)
            return [first]
        # a pickle's size is known only after writing it, so a large one is written again in pieces
        self._buffer.seek(start)
        self._buffer.truncate()
        rows = max(1, (last - first) // -(-(end - start) // most_bytes))
        pieces = (
            self.several(at, min(at + rows, last), most_bytes) for at in range(first, last, rows)
        )
        return list(chain.from_iterable(pieces))

    def written(self) -> pa.BinaryArray:
        """All pickles. Raises DataError if they take 2 GiB."""
        return binary_array(np.array(self._ends), self._buffer.getbuffer())
