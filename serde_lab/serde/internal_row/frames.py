"""Frames of `internal_row`: which records stand side by side in one binary value.

A frame of one record is that record, so that frames are a view of the records' own buffer; a frame of
several has a table of lengths before them (`internal_row/layout.py`). Owns building and opening such
frames, for both executions; must not know what is inside a record.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.serde.framing import Cuts
from serde_lab.serde.internal_row.layout import FRAME_HEADER_BYTES, MARK, SEVERAL
from serde_lab.serde.internal_row.rows import Rows, refuse_where
from serde_lab.serde.internal_row.write import binary

_FIRST_WORD = MARK | SEVERAL << 8
_WORD = 4


def frames_from(records: pa.BinaryArray, cuts: Cuts) -> pa.BinaryArray:
    """The frames of records that are cut like this."""
    if len(cuts) == len(records):
        return records
    rows = Rows.over(records)
    bodies = binary(rows.ends[cuts.offsets], rows.data)
    # the words before the records of each frame: mark, count and lengths; none before a single one
    counts = np.diff(cuts.offsets)
    several = counts > 1
    words = np.where(several, counts + FRAME_HEADER_BYTES // _WORD, 0)
    ends = np.append(0, np.cumsum(words))
    tables = np.empty(int(ends[-1]), "<u4")
    starts = ends[:-1][several]
    tables[starts] = _FIRST_WORD
    tables[starts + 1] = counts[several]
    is_length = np.ones(len(tables), np.bool_)
    is_length[starts] = is_length[starts + 1] = False
    tables[is_length] = rows.lengths[np.repeat(several, counts)]
    return pc.binary_join_element_wise(binary((ends * _WORD).astype(np.int32), tables), bodies, b"")


def records_in(frames: pa.BinaryArray) -> tuple[pa.BinaryArray, npt.NDArray[np.int64]]:
    """All records of `frames`, and for each frame the number of its first record.

    Raises Damaged, whose record is the number of the frame, where a table is none.
    """
    rows = Rows.over(frames)
    lengths = rows.lengths.astype(np.int64)
    refuse_where(lengths < 2, "it has less than two bytes")
    data = np.frombuffer(rows.data, np.uint8)
    several = np.flatnonzero(data[rows.ends[:-1] + 1] == SEVERAL) if len(rows) else np.zeros(0, int)
    if not len(several):
        return frames, np.arange(len(frames), dtype=np.int64)
    words = np.zeros((len(frames), FRAME_HEADER_BYTES // _WORD), "<u4")
    too_short = np.zeros(len(frames), np.bool_)
    too_short[several] = lengths[several] < FRAME_HEADER_BYTES
    refuse_where(too_short, "it ends inside its header")
    at = rows.ends[several].astype(np.int64)[:, None] + np.arange(FRAME_HEADER_BYTES)
    words[several] = data[at].view("<u4")
    wrong = np.zeros(len(frames), np.bool_)
    counts = np.ones(len(frames), np.int64)
    counts[several] = words[several, 1]
    wrong[several] = (words[several, 0] != _FIRST_WORD) | (counts[several] < 2)
    refuse_where(wrong, "its header says what no header says")
    table_bytes = np.zeros(len(frames), np.int64)
    table_bytes[several] = FRAME_HEADER_BYTES + _WORD * counts[several]
    refuse_where(table_bytes > lengths, "it ends inside its table of lengths")
    # each frame in three pieces: header, lengths, records
    ends = np.empty(3 * len(frames) + 1, np.int32)
    header_bytes = np.where(table_bytes > 0, FRAME_HEADER_BYTES, 0)
    ends[0:-1:3] = rows.ends[:-1]
    ends[1::3] = rows.ends[:-1] + header_bytes
    ends[2::3] = rows.ends[:-1] + table_bytes
    ends[-1] = rows.ends[-1]
    cut = binary(ends, rows.data)
    numbers = np.arange(0, 3 * len(frames), 3)
    tables = np.frombuffer(cut.take(pa.array(numbers + 1)).buffers()[2], "<u4")
    bodies = cut[2:] if len(frames) == 1 else cut.take(pa.array(numbers + 2))
    # a frame without a table is one record, as long as it is
    record_bytes = np.empty(int(counts.sum()), np.int64)
    has_table = np.repeat(table_bytes > 0, counts)
    record_bytes[has_table] = tables
    record_bytes[~has_table] = lengths[table_bytes == 0]
    first = np.append(0, np.cumsum(counts))
    sums = np.append(0, np.cumsum(record_bytes))
    body = Rows.over(bodies)
    stated = sums[first[1:]] - sums[first[:-1]]
    refuse_where(stated != body.lengths, "its records do not have the lengths that it states")
    return binary((sums + int(body.ends[0])).astype(np.int32), body.data), first[:-1]
