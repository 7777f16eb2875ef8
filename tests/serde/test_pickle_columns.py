"""pickle_columns keeps the laws of the SerDe interface, and its frames are as its `strategy.py` says."""

from __future__ import annotations

import pickle
import pickletools
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DecodeError
from serde_lab.records.schema import RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.conformance import Conformance
from serde_lab.serde.framing import schema_fingerprint
from serde_lab.serde.interface import Bounds, BoundSerde, SerdeOptions

pytestmark = pytest.mark.slow


class TestPickleColumns(Conformance):
    name = "pickle_columns"
    golden = Path(__file__).parent / "golden"
    # a pickle is a program, as fairness() says
    survives_flipped_bits = False


DATA = pa.schema([("n", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.bool_()))])
SCHEMA = RecordSchema(DATA, record_key=("n",))
PREFIX = b"\xa5" + schema_fingerprint(SCHEMA).to_bytes(4, "little")
ENVELOPES = [("n:7", "p", "f", "U", "+U", False), ("n:88", "p", "g", "U", "I", False)]
ROWS = [(7, "x", [True, None]), (88, None, [])]


def batch() -> pa.RecordBatch:
    rows = [(*envelope, *row) for envelope, row in zip(ENVELOPES, ROWS, strict=True)]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA.batch_schema, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA.batch_schema)


def bound(rows_per_frame: int = 0, **options: int) -> BoundSerde:
    return registry.bind(
        "pickle_columns", SCHEMA, SerdeOptions(rows_per_frame=rows_per_frame, **options)
    )


def taken_apart(frame: bytes) -> tuple[int, list[object]]:
    """What is pickled in a frame, with its buffers in their places."""
    assert frame[:5] == PREFIX
    (count,) = struct.unpack_from("<I", frame, 5)
    sizes = struct.unpack_from(f"<{count}I", frame, 9)
    ends = np.cumsum([len(frame) - sum(sizes), *sizes]).tolist()
    buffers = [frame[a:b] for a, b in pairwise(ends)]
    found: tuple[int, list[object]] = pickle.loads(
        frame[9 + 4 * count : ends[0]], buffers=iter(buffers)
    )
    return found


def lengths(*each: int) -> bytes:
    return np.array(each, "<i4").tobytes()


def test_a_frame_is_a_pickle_whose_buffers_are_the_columns() -> None:
    (frame,) = encoded(bound())
    assert taken_apart(frame) == (
        2,
        [
            (None, lengths(3, 4), b"n:7n:88"),
            b"p",
            (None, lengths(1, 1), b"fg"),
            b"U",
            (None, lengths(2, 1), b"+UI"),
            b"\0",
            (None, np.array([7, 88], "<i8").tobytes()),
            (b"\1", lengths(1, 0), b"x"),
            (None, lengths(2, 0), b"\1", b"\1"),
        ],
    )


def test_no_class_and_no_name_is_pickled() -> None:
    (frame,) = encoded(bound())
    (count,) = struct.unpack_from("<I", frame, 5)
    codes = {code.name for code, _, _ in pickletools.genops(frame[9 + 4 * count :])}
    assert not codes & {"STACK_GLOBAL", "GLOBAL", "MEMOIZE", "REDUCE"}
    assert b"pyarrow" not in frame


def test_a_column_may_be_constant_in_some_frames_alone() -> None:
    serde = bound(rows_per_frame=2)
    twice = pa.Table.from_batches([batch(), batch().slice(1), batch().slice(1)]).combine_chunks()
    sent = twice.to_batches()[0]
    frames = serde.encode(serde.from_arrow(sent), Bounds.single(4)).frame
    columns = [taken_apart(frame)[1][2] for frame in frames.to_pylist()]
    assert [type(column) for column in columns] == [tuple, bytes]
    assert serde.decode(frames).to_arrow().equals(sent)


def test_frames_in_the_middle_of_a_column_are_read() -> None:
    serde = bound(rows_per_frame=1)
    column = pa.array([b"junk", *encoded(serde), b"junk"], pa.binary()).slice(1, 2)
    assert serde.decode(column).to_arrow().equals(batch())


def test_a_slice_gives_the_bytes_of_a_batch_of_its_own() -> None:
    serde = bound()
    rows = serde.from_arrow(batch()).slice(1, 2)
    alone = serde.from_arrow(batch().slice(1))
    frames = [serde.encode(records, Bounds.single(1)).frame for records in (rows, alone)]
    assert serde.decode(frames[0]).to_arrow().equals(batch().slice(1))
    assert serde.decode(frames[1]).to_arrow().equals(batch().slice(1))


GOOD = (b"\3\0\0\0", b"n:7", b"\7" + bytes(7), b"\1\0\0\0", b"x", bytes(4), b"", b"")


def columns(**changed: object) -> list[object]:
    """The columns of a frame of one record with the buffers of GOOD."""
    one = [pickle.PickleBuffer(buffer) for buffer in GOOD]
    found: dict[str, object] = {
        "key": (None, *one[:2]),
        "path": b"p",
        "file": b"f",
        "instant": b"U",
        "operation": b"I",
        "index": b"\0",
        "n": (None, one[2]),
        "t": (None, one[3], one[4]),
        "l": (None, one[5], None, one[7]),
    }
    return list({**found, **changed}.values())


def frame_of(content: object) -> pa.BinaryArray:
    outside: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(content, 5, buffer_callback=outside.append)
    buffers = [buffer.raw().tobytes() for buffer in outside]
    sizes = struct.pack(f"<I{len(buffers)}I", len(buffers), *map(len, buffers))
    return pa.array([PREFIX + sizes + pickled + b"".join(buffers)], pa.binary())


def test_the_frame_that_the_damaged_ones_are_made_of_is_read() -> None:
    read = bound().decode(frame_of((1, columns()))).to_arrow()
    assert read.column("t").to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("text", "does not hold columns"),
        ((1, columns()[:-1]), "8 columns"),
        ((0, columns()), "0 rows"),
        ((2, columns()), "longer or shorter than its values"),
        ((1, columns(key=b"n:7", n=b"7")), "a data column is a constant"),
        ((1, columns(key=3)), "neither constant nor planes"),
        ((1, columns(n=(None,))), "fewer planes"),
        ((1, columns(n=(None, pickle.PickleBuffer(bytes(8)), None))), "more planes"),
        ((1, columns(n=(None, b"12345678"))), "a plane is not a buffer"),
        ((1, columns(n=(pickle.PickleBuffer(b"12"), pickle.PickleBuffer(bytes(8))))), "bits"),
        ((1, columns(index=b"\2")), "is not a boolean"),
        ((1, columns(path=b"\xff")), "no columns"),
        (
            (1, columns(key=(pickle.PickleBuffer(b"\0"), *map(pickle.PickleBuffer, GOOD[:2])))),
            "null",
        ),
        ((1, columns(t=(None, *map(pickle.PickleBuffer, (b"\xff" * 4, b""))))), "below 0"),
        ((1, columns(t=(None, *map(pickle.PickleBuffer, (b"\1\0\0\0", b"\xff"))))), "UTF8"),
    ],
)
def test_pickles_of_anything_else_are_refused(content: object, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        bound().decode(frame_of(content))


def encoded(serde: BoundSerde) -> list[bytes]:
    found: list[bytes] = serde.encode(serde.from_arrow(batch()), Bounds.single(2)).frame.to_pylist()
    return found
