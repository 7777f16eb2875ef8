"""Record keys and partition paths, in Hudi's encoding."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from urllib.parse import unquote

import pyarrow as pa
import pytest

from serde_lab.errors import DataError, SchemaError
from serde_lab.records.keys import KeyGenerator, escape
from serde_lab.records.partition_time import PREFIX, TimeRule
from serde_lab.records.schema import ENVELOPE, RecordSchema


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def generator(data: pa.RecordBatch, key: str, partition: str = "", **style: bool) -> KeyGenerator:
    names = tuple(partition.split(",")) if partition else ()
    return KeyGenerator(RecordSchema(data.schema, tuple(key.split(",")), names), **style)


def test_one_key_field_gives_the_bare_value_and_several_give_pairs() -> None:
    data = batch(a=pa.array([1, -2]), b=pa.array(["x", "y"]))
    assert generator(data, "a").record_keys(data).to_pylist() == ["1", "-2"]
    assert generator(data, "a,b").record_keys(data).to_pylist() == ["a:1,b:x", "a:-2,b:y"]


def test_one_key_field_under_several_partition_fields_is_a_pair() -> None:
    data = batch(a=pa.array([1]), p=pa.array(["x"]), q=pa.array(["y"]))
    assert generator(data, "a", "p,q").record_keys(data).to_pylist() == ["a:1"]


def test_null_and_empty_parts_have_their_words() -> None:
    data = batch(a=pa.array([1, 2]), b=pa.array([None, ""]))
    assert generator(data, "a,b").record_keys(data).to_pylist() == [
        "a:1,b:__null__",
        "a:2,b:__empty__",
    ]


@pytest.mark.parametrize("key", ["b", "b,c"])
def test_a_key_of_nothing_is_refused(key: str) -> None:
    data = batch(b=pa.array(["x", None, ""]), c=pa.array(["x", "", None]))
    with pytest.raises(DataError, match="2 rows"):
        generator(data, key).record_keys(data)


def test_values_are_written_as_java_writes_them() -> None:
    data = batch(
        b=pa.array([True]),
        d=pa.array([date(1969, 12, 31)]),
        n=pa.array([Decimal("0.0000001")], pa.decimal128(12, 7)),
    )
    keys = generator(data, "b,d,n").record_keys(data).to_pylist()
    assert keys == ["b:true,d:1969-12-31,n:1E-7"]


def test_partition_paths_in_every_style() -> None:
    data = batch(k=pa.array([1, 2, 3]), p=pa.array(["a", None, ""]), q=pa.array([1, 2, 3]))
    plain = generator(data, "k", "p,q").partition_paths(data).to_pylist()
    assert plain == ["a/1", "__HIVE_DEFAULT_PARTITION__/2", "__HIVE_DEFAULT_PARTITION__/3"]
    hive = generator(data, "k", "q", hive_style=True).partition_paths(data).to_pylist()
    assert hive == ["q=1", "q=2", "q=3"]


DEEP = pa.struct([("a", pa.string()), ("n", pa.struct([("x", pa.int64())]))])
DEEP_ROWS = [
    {"a": "A", "n": {"x": 7}},
    {"a": "", "n": {"x": None}},
    {"a": None, "n": None},
    None,
]


def test_fields_in_structs_are_named_by_their_path() -> None:
    data = batch(k=pa.array([1, 2, 3, 4]), s=pa.array(DEEP_ROWS, DEEP))
    made = generator(data, "s.n.x,k", "s.a", hive_style=True)
    assert made.record_keys(data.slice(0, 2)).to_pylist() == ["s.n.x:7,k:1", "s.n.x:__null__,k:2"]
    none = "s.a=__HIVE_DEFAULT_PARTITION__"
    assert made.partition_paths(data).to_pylist() == ["s.a=A", none, none, none]
    assert made.identity.names == ["k", "s"]
    # a slice begins inside the struct's own buffers
    assert made.record_keys(data.slice(1, 1)).to_pylist() == ["s.n.x:__null__,k:2"]
    with pytest.raises(
        DataError, match=r"'s\.n\.x' does not exist in 2 rows, whose 's\.n' is null"
    ):
        made.record_keys(data)
    with pytest.raises(DataError, match=r"'s\.a' is null or empty in 3 rows"):
        generator(data, "s.a").record_keys(data)
    with pytest.raises(SchemaError, match=r"'s\.n' is of type struct"):
        generator(data, "s.n")


def test_a_null_ordering_value_in_a_struct_is_refused_with_its_count() -> None:
    data = batch(k=pa.array([1, 2, 3, 4]), s=pa.array(DEEP_ROWS, DEEP))
    with pytest.raises(DataError, match=r"'s\.n\.x' is null in 3 rows"):
        KeyGenerator(RecordSchema(data.schema, ("k",), (), ("s.n.x",))).envelop(data)


DAYS = TimeRule.from_properties(
    {f"{PREFIX}timestamp.type": "UNIX_TIMESTAMP", f"{PREFIX}output.dateformat": "yyyy/MM/dd"}
)


@pytest.mark.parametrize(
    ("style", "paths"),
    [
        ({}, ["a b/1970/01/01", "__HIVE_DEFAULT_PARTITION__/1969/12/31"]),
        (
            {"hive_style": True},
            ["p=a b/t=1970/01/01", "p=__HIVE_DEFAULT_PARTITION__/t=1969/12/31"],
        ),
        ({"url_encode": True}, ["a b/1970%2F01%2F01", "__HIVE_DEFAULT_PARTITION__/1969%2F12%2F31"]),
    ],
)
def test_a_custom_generator_makes_each_field_by_its_kind(
    style: dict[str, bool], paths: list[str]
) -> None:
    data = batch(k=pa.array([1, 2]), p=pa.array(["a b", ""]), t=pa.array([None, -1], pa.int64()))
    schema = RecordSchema(data.schema, ("k",), ("p", "t"))
    made = KeyGenerator(schema, time=DAYS, kinds=("SIMPLE", "TIMESTAMP"), **style)
    assert made.partition_paths(data).to_pylist() == paths
    # one key field is bare, whatever the number of partition fields
    assert made.record_keys(data).to_pylist() == ["1", "2"]


def test_a_custom_generator_reads_each_field_by_its_kind() -> None:
    data = batch(k=pa.array([1]), p=pa.array(["a/b"]), t=pa.array([1]))
    simple = KeyGenerator(RecordSchema(data.schema, ("k",), ("p",)), kinds=("SIMPLE",))
    with pytest.raises(DataError, match="not a single folder name"):
        simple.partition_paths(data)
    with pytest.raises(SchemaError, match="generator CUSTOM reads as UNIX_TIMESTAMP"):
        KeyGenerator(
            RecordSchema(data.schema, ("k",), ("t", "p")),
            time=DAYS,
            kinds=("SIMPLE", "TIMESTAMP"),
        )


def test_a_colon_is_no_scheme_of_a_uri() -> None:
    """Apache Hudi fails to write such a folder, and to read a table that has one."""
    data = batch(k=pa.array([1]), p=pa.array(["a:b"]))
    for hive_style in (False, True):
        with pytest.raises(DataError, match="before a colon for the scheme of a URI"):
            generator(data, "k", "p", hive_style=hive_style).partition_paths(data)
    encoded = generator(data, "k", "p", url_encode=True).partition_paths(data).to_pylist()
    assert encoded == ["a%3Ab"]


def test_a_path_separator_is_escaped_or_refused() -> None:
    data = batch(k=pa.array([1]), p=pa.array(["a/b c%"]))
    encoded = generator(data, "k", "p", url_encode=True).partition_paths(data).to_pylist()
    assert encoded == ["a%2Fb c%25"]
    assert unquote(encoded[0]) == "a/b c%"
    assert escape("x=y") == "x%3Dy"
    with pytest.raises(DataError, match="urlencode"):
        generator(data, "k", "p").partition_paths(data)


def test_the_envelope_stands_before_the_data() -> None:
    data = batch(k=pa.array([1]), v=pa.array([None], pa.int32()))
    made = generator(data, "k").envelop(data)
    assert made.schema.names == [*ENVELOPE.names, "k", "v"]
    assert made.to_pylist()[0]["_hoodie_operation"] == "I"


def test_a_null_ordering_value_is_refused_with_its_count() -> None:
    data = batch(k=pa.array([1, 2]), o=pa.array([None, 1]))
    schema = RecordSchema(data.schema, ("k",), (), ("o",))
    with pytest.raises(DataError, match="'o' is null in 1 rows"):
        KeyGenerator(schema).envelop(data)


def test_a_key_of_a_type_without_a_text_is_refused_by_name() -> None:
    data = batch(k=pa.array([[1]]))
    with pytest.raises(SchemaError, match="'k' is of type list"):
        generator(data, "k")
