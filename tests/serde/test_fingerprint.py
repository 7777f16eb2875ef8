"""A fingerprint differs between schemas with different frames, and never changes."""

import pyarrow as pa
import pytest

from serde_lab.records.schema import RecordSchema
from serde_lab.serde.conformance.values import KINDS, fixed_type
from serde_lab.serde.framing import schema_fingerprint


def of(*fields: tuple[str, pa.DataType]) -> int:
    data = pa.schema([pa.field(name, t) for name, t in fields])
    return schema_fingerprint(RecordSchema(data, record_key=(fields[0][0],)))


def test_the_number_is_the_one_that_golden_frames_have() -> None:
    fields = [(kind, fixed_type(kind)) for kind in sorted(KINDS)]
    assert of(*fields) == 0x9C1E7587


@pytest.mark.parametrize(
    "other",
    [
        [("b", pa.int32()), ("c", pa.string())],
        [("a", pa.int64()), ("c", pa.string())],
        [("c", pa.string()), ("a", pa.int32())],
        [("a", pa.int32())],
        [("a", pa.int32()), ("c", pa.binary())],
        [("a", pa.int32()), ("c", pa.list_(pa.string()))],
    ],
    ids=str,
)
def test_other_schemas_have_other_numbers(other: list[tuple[str, pa.DataType]]) -> None:
    assert of(*other) != of(("a", pa.int32()), ("c", pa.string()))


def test_names_cannot_imitate_types() -> None:
    inner = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.int32())])
    trick = pa.struct([pa.field("x int32,1:y", pa.int32())])
    assert of(("s", inner)) != of(("s", trick))


def test_layout_and_roles_do_not_count() -> None:
    assert of(("a", pa.large_list(pa.string_view()))) == of(("a", pa.list_(pa.string())))
    data = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.string())])
    one = RecordSchema(data, record_key=("a",))
    other = RecordSchema(data, record_key=("b",), partition=("a",), ordering=("b",))
    assert schema_fingerprint(one) == schema_fingerprint(other)


def test_zones_and_scales_count() -> None:
    assert of(("a", pa.timestamp("us"))) != of(("a", pa.timestamp("us", "UTC")))
    assert of(("a", pa.decimal128(9, 2))) != of(("a", pa.decimal128(9, 3)))
