"""Frames are cut where they must be, nowhere else, and sealed so that every flip shows."""

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import DecodeError
from serde_lab.serde.framing import cut, frame_error, frames_of, opened, seal, unseal
from serde_lab.serde.interface import Bounds, SerdeOptions

SEALED = SerdeOptions(integrity="crc32c")


def by_hand(
    runs: list[int], sizes: list[int], most_rows: int, most_bytes: int, overhead: int
) -> list[tuple[int, int]]:
    """(run, records) of each frame: a loop over records, independent of the code under test."""
    frames = []
    at = 0
    for run, length in enumerate(runs):
        step = most_rows or max(length, 1)
        for first in range(0, length, step):
            held: list[int] = []
            for size in sizes[at + first : at + min(first + step, length)]:
                if held and overhead + sum(held) + size > most_bytes:
                    frames.append((run, len(held)))
                    held = []
                held.append(size)
            frames.append((run, len(held)))
        at += length
    return frames


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    runs=st.lists(st.integers(0, 7), max_size=6),
    draw=st.randoms(use_true_random=False),
    most_rows=st.integers(0, 4),
    most_bytes=st.integers(1, 60),
    overhead=st.integers(0, 5),
)
def test_cuts_are_those_of_a_loop(runs, draw, most_rows, most_bytes, overhead) -> None:  # type: ignore[no-untyped-def]
    sizes = [draw.randrange(20) for _ in range(sum(runs))]
    offsets = np.append(0, np.cumsum(runs)).astype(np.int64)
    bounds = Bounds(np.arange(len(runs), dtype=np.int32) + 5, offsets)
    options = SerdeOptions(rows_per_frame=most_rows, max_frame_bytes=most_bytes)
    ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
    cuts = cut(bounds, options, ends, overhead)
    found = list(zip((cuts.targets - 5).tolist(), cuts.rows.tolist(), strict=True))
    assert found == by_hand(runs, sizes, most_rows, most_bytes, overhead)


def test_the_seal_counts_among_the_bytes_of_a_frame() -> None:
    ends = np.arange(0, 110, 10)
    for integrity, rows in (("none", 4), ("crc32c", 3)):
        options = SerdeOptions(rows_per_frame=0, max_frame_bytes=40, integrity=integrity)  # type: ignore[arg-type]
        assert cut(Bounds.single(10), options, ends).rows.max() == rows


@pytest.mark.parametrize(
    "offsets", [[1, 3], [0, 2, 1], [0, 1, 2, 3]], ids=["no zero", "falling", "too many"]
)
def test_bounds_that_are_none_are_refused(offsets: list[int]) -> None:
    targets = np.zeros(2 if len(offsets) == 3 else 1, np.int32)
    with pytest.raises(ValueError, match="bounds must start at 0"):
        cut(Bounds(targets, np.array(offsets, np.int64)), SerdeOptions(rows_per_frame=0))


def test_a_seal_is_the_checksum_behind_the_frame() -> None:
    sealed = seal(pa.array([b"", b"abc"], pa.binary())).to_pylist()
    # 0xE3069283 is the check value of CRC-32C for the digits 1 to 9
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert sealed == [bytes(4), b"abc" + google_crc32c.value(b"abc").to_bytes(4, "little")]
    assert unseal("x", pa.array(sealed, pa.binary()), SEALED).to_pylist() == [b"", b"abc"]


def test_every_flip_and_every_cut_of_a_sealed_frame_shows() -> None:
    (whole,) = seal(pa.array([b"some bytes"], pa.binary())).to_pylist()
    damaged = [whole[:n] for n in range(len(whole))] + [whole + b"\0"]
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for frame in damaged:
        with pytest.raises(DecodeError, match="x: cannot decode record 1: its crc32c differs"):
            opened("x", pa.array([whole, frame], pa.binary()), SEALED)


def test_a_null_frame_is_refused() -> None:
    with pytest.raises(DecodeError, match="record 1: the frame is null"):
        opened("x", pa.array([b"a", None], pa.binary()), SerdeOptions())


def test_errors_name_the_record_or_the_frame() -> None:
    one = frame_error("x", 3, SerdeOptions(rows_per_frame=1), "it is bad")
    assert (one.record, str(one)) == (3, "x: cannot decode record 3: it is bad")
    many = frame_error("x", 3, SerdeOptions(rows_per_frame=9), "it is bad")
    assert (many.record, str(many)) == (None, "x: cannot decode frame: frame 3: it is bad")


def test_frames_have_the_types_of_the_interface() -> None:
    cuts = cut(Bounds.each(np.array([4, 4, 1])), SerdeOptions())
    frames = frames_of(cuts, pa.array([b"a", b"b", b"c"], pa.binary()), SerdeOptions())
    assert frames.target.equals(pa.array([4, 4, 1], pa.int32()))
    assert frames.rows.equals(pa.array([1, 1, 1], pa.int32()))
    assert len(frames) == 3
