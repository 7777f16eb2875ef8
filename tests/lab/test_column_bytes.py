"""What a column takes in frames: differences of whole encodings, adding up to the record."""

from __future__ import annotations

import pyarrow as pa
import pytest

from serde_lab.lab.header import ENVELOPE_AND_FRAMING, column_bytes
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import Bounds, SerdeOptions
from serde_lab.serde.registry import strategy

ROWS = pa.record_batch(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": [f"name {i:03}" for i in range(100)],
        "none": pa.nulls(100, pa.string()),
    }
)
SCHEMA = RecordSchema(ROWS.schema, record_key=("id",))
OPTIONS = SerdeOptions(rows_per_frame=100)
KEYS = KeyGenerator(SCHEMA)


@pytest.mark.parametrize("name", ["pickle", "pickle_columns", "avro", "internal_row", "arrow"])
def test_columns_and_the_rest_add_up_to_a_record(name: str) -> None:
    taken = column_bytes(name, OPTIONS, SCHEMA, KEYS, ROWS)
    assert taken is not None
    assert list(taken) == [*ROWS.schema.names, ENVELOPE_AND_FRAMING]
    bound = strategy(name).bind(SCHEMA, OPTIONS)
    frames = bound.encode(bound.from_arrow(KEYS.envelop(ROWS)), Bounds.single(100)).frame
    whole = sum(len(frame.as_py()) for frame in frames)
    assert sum(taken.values()) == pytest.approx(whole / 100)
    assert taken["name"] >= 8 > taken["none"] >= 0
    assert 0 < taken["id"] <= 10


def test_one_column_alone_cannot_be_left_out() -> None:
    only = RecordSchema(ROWS.select(["id"]).schema, record_key=("id",))
    keys = KeyGenerator(only)
    assert column_bytes("arrow", OPTIONS, only, keys, ROWS.select(["id"])) is None


def test_without_rows_there_is_nothing_to_measure() -> None:
    assert column_bytes("arrow", OPTIONS, SCHEMA, KEYS, ROWS.slice(0, 0)) is None
