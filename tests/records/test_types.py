"""Which types records may have, and their plain and stored forms."""

import pyarrow as pa
import pytest

from serde_lab.errors import SchemaError
from serde_lab.records.schema import (
    check_supported,
    depth,
    plain_type,
    storage_schema,
    storage_type,
)

TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def schema_of(t: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64()), pa.field("odd one", t)])


@pytest.mark.parametrize(
    "t",
    [
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.float32(), pa.float64()),
        *(pa.decimal128(1, 0), pa.decimal128(38, 38), pa.decimal32(9, 2), pa.decimal64(18, 0)),
        *TEXTS,
        *BYTES,
        pa.date32(),
        *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
        *(make(pa.int32()) for make in LISTS),
        *(pa.map_(key, pa.float64()) for key in TEXTS),
        pa.struct([pa.field("a", pa.string()), pa.field("b", pa.list_(pa.map_("string", "int8")))]),
    ],
    ids=str,
)
def test_supported_types_are_accepted(t: pa.DataType) -> None:
    check_supported(schema_of(t))


@pytest.mark.parametrize(
    ("t", "named"),
    [
        (pa.uint8(), "uint8"),
        (pa.uint64(), "uint64"),
        (pa.float16(), "halffloat"),
        (pa.time32("s"), "time32[s]"),
        (pa.time64("ns"), "time64[ns]"),
        (pa.duration("us"), "duration[us]"),
        (pa.timestamp("ms"), "timestamp[ms]"),
        (pa.timestamp("ns", "UTC"), "timestamp[ns, tz=UTC]"),
        (pa.date64(), "date64"),
        (pa.null(), "null"),
        (pa.binary(16), "fixed_size_binary[16]"),
        (pa.list_(pa.int32(), 2), "fixed_size_list<item: int32>[2]"),
        (pa.decimal256(39, 1), "decimal256(39, 1)"),
        (pa.decimal128(5, -2), "decimal128(5, -2)"),
        (pa.decimal128(5, 6), "decimal128(5, 6)"),
        (pa.dictionary(pa.int8(), pa.string()), "dictionary"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "run_end_encoded"),
        (pa.dense_union([pa.field("a", pa.int8())]), "dense_union"),
        (pa.struct([]), "struct<>"),
        (pa.struct([pa.field("a", pa.int8()), pa.field("a", pa.int8())]), "struct<a"),
        (pa.map_(pa.int64(), pa.string()), "map<int64, string>"),
        (pa.list_(pa.struct([pa.field("deep", pa.uint16())])), "uint16"),
    ],
    ids=str,
)
def test_other_types_are_refused_by_column_and_type(t: pa.DataType, named: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_supported(schema_of(t))
    assert "'odd one" in str(caught.value)
    assert named in str(caught.value)


def test_a_type_inside_another_is_named_with_its_path() -> None:
    t = pa.struct([pa.field("list", pa.list_(pa.field("item", pa.uint8())))])
    with pytest.raises(SchemaError, match=r"'odd one\.list\.item'.*uint8.*inside struct<list"):
        check_supported(schema_of(t))


def test_nesting_ends_at_three_levels() -> None:
    three = pa.list_(pa.map_(pa.string(), pa.struct([pa.field("a", pa.int8())])))
    assert depth(three) == 3
    check_supported(schema_of(three))
    with pytest.raises(SchemaError, match=r"'odd one'.*nests 4 levels, expected at most 3"):
        check_supported(schema_of(pa.list_view(three)))


@pytest.mark.parametrize("name", ["_hoodie_record_key", "_hoodie_commit_time", ""])
def test_names_of_metadata_and_empty_names_are_refused(name: str) -> None:
    with pytest.raises(SchemaError):
        check_supported(pa.schema([pa.field(name, pa.string())]))


def test_a_column_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="'a' occurs 2 times"):
        check_supported(pa.schema([pa.field("a", pa.int8()), pa.field("a", pa.int32())]))


def test_hudis_delete_marker_is_a_column_like_any_other() -> None:
    check_supported(pa.schema([pa.field("_hoodie_is_deleted", pa.bool_())]))


@pytest.mark.parametrize("text", TEXTS, ids=str)
@pytest.mark.parametrize("make", LISTS)
def test_types_that_hold_the_same_values_have_one_plain_form(text, make) -> None:  # type: ignore[no-untyped-def]
    found = plain_type(make(pa.field("x", pa.struct([pa.field("a", text, nullable=False)]))))
    expected = pa.list_(pa.field("element", pa.struct([pa.field("a", pa.string())])))
    assert found.equals(expected, check_metadata=True)
    assert found.value_field.name == "element"
    assert found.value_type.field(0).nullable


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.int64(), pa.int64()),
        (pa.large_string(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.decimal32(7, 2), pa.decimal128(7, 2)),
        (pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.large_list(pa.int8()), pa.list_(pa.field("element", pa.int32()))),
        (
            pa.map_(pa.string_view(), pa.timestamp("us", "+05:30")),
            pa.map_(pa.string(), pa.timestamp("us", "UTC")),
        ),
    ],
    ids=str,
)
def test_storage_types(given: pa.DataType, stored: pa.DataType) -> None:
    assert storage_type(given).equals(stored)


def test_a_storage_schema_keeps_names_order_and_nullability() -> None:
    given = pa.schema([pa.field("b", pa.int8(), nullable=False), pa.field("a", pa.string_view())])
    expected = pa.schema([pa.field("b", pa.int32(), nullable=False), pa.field("a", pa.string())])
    assert storage_schema(given).equals(expected)
