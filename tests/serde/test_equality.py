"""The kit's equality sees every difference that counts, and none that does not."""

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.records.plain_form import first_difference


def batch_of(values: list[object], t: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, t)], names=["c"])


LONGS = pa.list_(pa.int64())
PAIRS = pa.map_(pa.string(), pa.float64())
STRUCT = pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("t", "one", "other"),
    [
        (pa.int64(), 1, 2),
        (pa.int64(), 0, None),
        (pa.string(), "", None),
        (pa.string(), "é", "e\u0301"),
        (pa.float64(), 0.0, -0.0),
        (pa.float32(), float("nan"), 1.0),
        (pa.bool_(), False, None),
        (LONGS, [], None),
        (LONGS, [1], [1, 1]),
        (LONGS, [1, None], [1, 0]),
        (PAIRS, [("a", 0.0)], [("a", -0.0)]),
        (PAIRS, [("a", 1.0)], [("b", 1.0)]),
        (STRUCT, {"a": None, "b": None}, None),
        (STRUCT, {"a": 1, "b": ["x", None]}, {"a": 1, "b": ["x", ""]}),
        (pa.list_(LONGS), [[1], [2]], [[1, 2], []]),
    ],
)
def test_a_difference_is_seen_in_its_row(t: pa.DataType, one: object, other: object) -> None:
    found = first_difference(batch_of([one, one, one], t), batch_of([one, one, other], t))
    assert found is not None
    assert "column 'c', row 2" in found
    assert first_difference(batch_of([one, other], t), batch_of([one, other], t)) is None


def test_every_nan_is_the_same() -> None:
    bits = np.array([0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0123], np.uint64).view(np.float64)
    one, other = (pa.record_batch([pa.array(b)], names=["c"]) for b in (bits, bits[::-1]))
    assert first_difference(one, other) is None


def test_layout_does_not_matter() -> None:
    whole = batch_of([["x"], None, ["y", "z"], []], pa.list_(pa.string()))
    rebuilt = batch_of([None, ["y", "z"]], pa.list_(pa.string()))
    assert first_difference(whole.slice(1, 2), rebuilt) is None


@pytest.mark.parametrize(
    "other",
    [batch_of([1], pa.int32()), batch_of([1, 1], pa.int64())],
    ids=["schema", "rows"],
)
def test_schemas_and_lengths_count(other: pa.RecordBatch) -> None:
    assert first_difference(batch_of([1], pa.int64()), other) is not None
