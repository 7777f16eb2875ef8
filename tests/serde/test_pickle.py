"""pickle keeps the laws of the SerDe interface, and its frames are what `pickle/frames.py` says."""

from __future__ import annotations

import gc
import pickle
import pickletools
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.conformance import Conformance
from serde_lab.serde.framing import schema_fingerprint
from serde_lab.serde.interface import Bounds, BoundSerde, SerdeOptions

pytestmark = pytest.mark.slow


class TestPickle(Conformance):
    name = "pickle"
    golden = Path(__file__).parent / "golden"
    own_options = ({}, {"layout": "dict"}, {"pickler": "cloudpickle"})
    # a pickle is a program, as fairness() says
    survives_flipped_bits = False


DATA = pa.schema(
    [
        ("n", pa.int64()),
        ("price", pa.decimal128(15, 2)),
        ("day", pa.date32()),
        ("s", pa.struct([("a", pa.string()), ("b", pa.int8())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
SCHEMA = RecordSchema(DATA, record_key=("n",))
ROW = {
    "n": 7,
    "price": Decimal("-1.50"),
    "day": 19_000,
    "s": {"a": "x", "b": 1},
    "m": [("k", None)],
}
VALUES = (7, -150, 19_000, ("x", 1), [("k", None)])
ENVELOPES = [("n:7", "p", "f", "U", "+U", False), ("n:8", "p", "f", "", "I", True)]


def batch() -> pa.RecordBatch:
    columns = [
        pa.array(list(v), f.type)
        for v, f in zip(zip(*ENVELOPES, strict=True), ENVELOPE, strict=True)
    ]
    columns += [pa.array([ROW[f.name], None], f.type) for f in DATA]
    return pa.record_batch(columns, schema=SCHEMA.batch_schema)


def bound(**options: object) -> BoundSerde:
    return registry.bind("pickle", SCHEMA, SerdeOptions(**options))  # type: ignore[arg-type]


def frames(serde: BoundSerde) -> list[bytes]:
    found: list[bytes] = serde.encode(serde.from_arrow(batch()), Bounds.single(2)).frame.to_pylist()
    return found


def test_records_hold_physical_values_by_position() -> None:
    first, second = bound().from_arrow(batch()).records  # type: ignore[attr-defined]
    assert first == (*ENVELOPES[0], VALUES)
    assert second == (*ENVELOPES[1], None)
    as_dict = bound(own={"layout": "dict"}).from_arrow(batch()).records[0]  # type: ignore[attr-defined]
    assert as_dict[-1] == {**dict(zip(DATA.names, VALUES, strict=True)), "s": {"a": "x", "b": 1}}


def test_a_frame_is_mark_fingerprint_and_a_pickle_of_the_arguments() -> None:
    prefix = b"\xa3" + schema_fingerprint(SCHEMA).to_bytes(4, "little")
    first, second = frames(bound())
    assert (first[:5], second[:5]) == (prefix, prefix)
    assert pickle.loads(first[5:]) == (*ENVELOPES[0], VALUES)
    assert pickle.loads(second[5:]) == (*ENVELOPES[1], None)
    (both,) = frames(bound(rows_per_frame=0))
    assert pickle.loads(both[5:]) == [(*ENVELOPES[0], VALUES), (*ENVELOPES[1], None)]
    named = {code.name for code, _, _ in pickletools.genops(first[5:])}
    assert not named & {"STACK_GLOBAL", "MEMOIZE", "REDUCE"}


def test_cloudpickle_writes_the_same_bytes() -> None:
    assert frames(bound(own={"pickler": "cloudpickle"})) == frames(bound())


def test_blocks_of_records_are_one_batch() -> None:
    serde = bound(rows_per_frame=0)
    many = pa.Table.from_batches([batch()] * 1500).combine_chunks().to_batches()[0]
    records = serde.from_arrow(many)
    assert len(records) == 3000
    assert records.to_arrow().equals(many)
    again = serde.decode(serde.encode(records, Bounds.single(3000)).frame)
    assert again.to_arrow().equals(many)


def test_the_garbage_collector_runs_again_afterwards() -> None:
    assert gc.isenabled()
    frames(bound())
    with pytest.raises(DecodeError):
        bound().decode(pa.array([b"junk"], pa.binary()))
    assert gc.isenabled()


def test_an_index_record_with_a_row_is_refused() -> None:
    columns = dict(zip(SCHEMA.batch_schema.names, batch().columns, strict=True))
    columns["n"] = pa.array([7, 8])
    with pytest.raises(DataError, match="'n' of an index record"):
        bound().from_arrow(pa.record_batch(list(columns.values()), schema=SCHEMA.batch_schema))


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps("text", 5),
        pickle.dumps((1, 2, 3), 5),
        pickle.dumps([("k", "p", "f", "i", "o", False, None), 3], 5),
        b"\x80\x05\x95" + (8).to_bytes(8, "little") + b"cno\nno\n.",
        pickle.dumps((*ENVELOPES[0], VALUES), 5) + b".",
    ],
    ids=["text", "few", "mixed", "no such global", "two stops"],
)
def test_pickles_of_anything_else_are_refused(body: bytes) -> None:
    prefix = frames(bound())[0][:5]
    with pytest.raises(DecodeError):
        bound().decode(pa.array([prefix + body], pa.binary()))


@pytest.mark.parametrize("row", [(7, -150), ("seven", *VALUES[1:]), (2**70, *VALUES[1:]), 5])
def test_rows_of_other_values_are_refused_when_read(row: object) -> None:
    frame = frames(bound())[0][:5] + pickle.dumps((*ENVELOPES[0], row), 5)
    records = bound().decode(pa.array([frame], pa.binary()))
    with pytest.raises(DecodeError, match="not fit the schema"):
        records.to_arrow()


def test_a_frame_larger_than_pickles_own_frames_is_checked_to_its_end() -> None:
    schema = RecordSchema(pa.schema([("t", pa.string()), ("u", pa.string())]), record_key=("t",))
    serde = registry.bind("pickle", schema, SerdeOptions())
    values = [pa.array([v]) for v in (*ENVELOPES[0], "x" * 200_000, "y" * 70_000)]
    sent = pa.record_batch(values, schema=schema.batch_schema)
    frame = serde.encode(serde.from_arrow(sent), Bounds.single(1)).frame[0].as_py()
    assert serde.decode(pa.array([frame], pa.binary())).to_arrow().equals(sent)
    for damaged in (frame + b".", frame[:-1], frame[:100_000]):
        with pytest.raises(DecodeError, match="record 0"):
            serde.decode(pa.array([damaged], pa.binary()))


def test_frames_in_the_middle_of_a_column_are_read() -> None:
    serde = bound()
    column = pa.array([b"junk", *frames(serde), b"junk"], pa.binary()).slice(1, 2)
    assert serde.decode(column).to_arrow().equals(batch())
    assert len(serde.decode(column).take(np.array([1, 1, 0]))) == 3
