"""The bytes and offsets of an Arrow string array as numpy arrays, without copying the bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StringBytes:
    """String i is data[offsets[i]:offsets[i + 1]]; data holds UTF-8. Nulls are empty strings."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Length of each string in bytes."""
        return np.diff(self.offsets)

    @property
    def is_ascii(self) -> bool:
        return not len(self.data) or int(self.data.max()) < 0x80

    @classmethod
    def of(cls, strings: pa.Array | pa.ChunkedArray) -> StringBytes:
        """Read a string, large_string or string_view array; `data` starts at the first string's byte."""
        if isinstance(strings, pa.ChunkedArray):
            strings = strings.combine_chunks()
        if isinstance(strings, pa.ChunkedArray):  # combine_chunks returns this for zero chunks
            strings = pa.array([], strings.type)
        if not pa.types.is_string(strings.type):
            strings = strings.cast(pa.string())
        _, offset_buffer, data_buffer = strings.buffers()
        if offset_buffer is None or not len(strings):
            return cls(np.empty(0, np.uint8), np.zeros(len(strings) + 1, np.int64))
        offsets = np.frombuffer(offset_buffer, np.int32, count=strings.offset + len(strings) + 1)
        offsets = offsets[strings.offset :].astype(np.int64)
        data = (
            np.empty(0, np.uint8)
            if data_buffer is None
            else np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
        )
        return cls(data, offsets - offsets[0])
