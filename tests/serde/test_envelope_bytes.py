"""The bytes around the fields of an envelope are those that docs/strategies.md gives."""

from __future__ import annotations

import pyarrow as pa
import pytest

from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.interface import Bounds, SerdeOptions

SCHEMA = RecordSchema(pa.schema([("n", pa.int64()), ("t", pa.string())]), record_key=("n",))
FIELDS = ["l_orderkey:1,l_linenumber:1", "2024", "00000003-5c2f-4a6b-9d1e-0123456789ab-0", "U", "I"]


def frame_bytes(strategy: str, fields: list[str], row: tuple[int | None, str | None]) -> int:
    is_index = row[0] is None
    values = [*fields, is_index, *row]
    columns = [pa.array([v], f.type) for v, f in zip(values, SCHEMA.batch_schema, strict=True)]
    bound = registry.bind(strategy, SCHEMA, SerdeOptions())
    batch = pa.record_batch(columns, schema=SCHEMA.batch_schema)
    return len(bound.encode(bound.from_arrow(batch), Bounds.single(1)).frame[0].as_py())


@pytest.mark.parametrize("strategy", ["avro", "internal_row"])
@pytest.mark.parametrize("place", range(len(FIELDS)))
def test_a_field_takes_its_text(strategy: str, place: int) -> None:
    emptied = [*FIELDS]
    emptied[place] = ""
    whole, without = (frame_bytes(strategy, each, (1, "x")) for each in (FIELDS, emptied))
    assert whole - without == len(FIELDS[place])


@pytest.mark.parametrize(("strategy", "around"), [("avro", 14), ("internal_row", 16)])
def test_the_bytes_around_the_fields(strategy: str, around: int) -> None:
    empty = [""] * (len(ENVELOPE) - 1)
    found = frame_bytes(strategy, empty, (None, None))
    # the length of a row of more than 63 bytes takes one more byte than that of no row
    assert found + (strategy == "avro") == around
