"""Arrow and Avro schemas: Hudi's naming, every type both ways, names and types that are refused."""

from __future__ import annotations

import json

import fastavro
import pyarrow as pa
import pytest

from serde_lab.avro.schema import arrow_to_avro, avro_to_arrow, decimal_bytes, with_avro_names
from serde_lab.avro.tree import fit, parse
from serde_lab.errors import SchemaError

# As Apache Hudi 1.2.0 on Spark 3.5 names them in a commit's `extraMetadata.schema`.
HUDI = {
    "d": {
        "type": "fixed",
        "name": "fixed",
        "namespace": "hoodie.t.t_record.d",
        "size": 7,
        "logicalType": "decimal",
        "precision": 15,
        "scale": 2,
    },
    "s": {
        "type": "record",
        "name": "s",
        "namespace": "hoodie.t.t_record",
        "fields": [
            {"name": "x", "type": ["null", "int"], "default": None},
            {
                "name": "d",
                "type": [
                    "null",
                    {
                        "type": "fixed",
                        "name": "fixed",
                        "namespace": "hoodie.t.t_record.s.d",
                        "size": 16,
                        "logicalType": "decimal",
                        "precision": 38,
                        "scale": 10,
                    },
                ],
                "default": None,
            },
        ],
    },
    "l": {"type": "array", "items": ["null", "int"]},
    "m": {"type": "map", "values": ["null", "long"]},
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
}

ARROW = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("d", pa.decimal128(15, 2)),
        ("s", pa.struct([("x", pa.int32()), ("d", pa.decimal128(38, 10))])),
        ("l", pa.list_(pa.field("element", pa.int32()))),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("raw", pa.binary()),
    ]
)


def test_names_and_types_are_hudis() -> None:
    avro = arrow_to_avro(ARROW, "t_record", "hoodie.t")
    assert (avro["type"], avro["name"], avro["namespace"]) == ("record", "t_record", "hoodie.t")
    fields = {field["name"]: field for field in avro["fields"]}
    assert fields["id"] == {"name": "id", "type": "string"}
    for name, expected in HUDI.items():
        assert fields[name] == {"name": name, "type": ["null", expected], "default": None}


def test_the_order_of_keys_is_that_of_javas_schema_text() -> None:
    text = json.dumps(arrow_to_avro(ARROW, "t_record", "h.t"))
    assert text.startswith('{"type": "record", "name": "t_record", "namespace": "h.t", "fields": [')
    assert '"size": 7, "logicalType": "decimal", "precision": 15, "scale": 2}' in text


def test_every_type_comes_back() -> None:
    avro = arrow_to_avro(ARROW, "t_record", "hoodie.t")
    assert avro_to_arrow(avro) == ARROW
    assert avro_to_arrow(json.dumps(avro)) == ARROW


def test_layouts_small_integers_and_zones_come_back_as_declared() -> None:
    given = pa.schema(
        [
            ("a", pa.int8()),
            ("b", pa.int16()),
            ("c", pa.large_string()),
            ("d", pa.binary_view()),
            ("e", pa.large_list(pa.string_view())),
            ("f", pa.timestamp("us", "Europe/Berlin")),
            ("g", pa.decimal64(9, 2)),
        ]
    )
    element = pa.field("element", pa.string())
    expected = [
        pa.int32(),
        pa.int32(),
        pa.string(),
        pa.binary(),
        pa.list_(element),
        pa.timestamp("us", "UTC"),
        pa.decimal128(9, 2),
    ]
    assert avro_to_arrow(arrow_to_avro(given, "r", "n")).types == expected


def test_deep_nesting_gives_names_that_fastavro_accepts() -> None:
    inner = pa.struct([("d", pa.decimal128(5, 1)), ("s", pa.struct([("d", pa.decimal128(9, 1))]))])
    schema = pa.schema(
        [("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner)), ("d", inner)]
    )
    avro = arrow_to_avro(schema, "t_record", "hoodie.t")
    names = fastavro.parse_schema(avro)["__named_schemas"]
    assert "hoodie.t.t_record.m.s.d.fixed" in names
    assert avro_to_arrow(avro).types[0] == schema.types[0]


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_decimal_takes_the_fewest_bytes_that_hold_it(precision: int) -> None:
    size, nines = decimal_bytes(precision), 10**precision - 1
    for value in (nines, -nines):
        assert int.from_bytes(value.to_bytes(size, "big", signed=True), "big", signed=True) == value
    if size > 1:
        with pytest.raises(OverflowError):
            nines.to_bytes(size - 1, "big", signed=True)


@pytest.mark.parametrize("name", ["", "a b", "1st", "l-tax", "é", "a.b", "a\n"])
def test_names_that_avro_does_not_allow_are_refused(name: str) -> None:
    with pytest.raises(SchemaError) as found:
        arrow_to_avro(pa.schema([(name, pa.int32())]), "r", "n")
    assert repr(name) in str(found.value)
    nested = pa.schema([("outer", pa.list_(pa.struct([(name, pa.int32())])))])
    with pytest.raises(SchemaError) as found:
        arrow_to_avro(nested, "r", "n")
    assert repr(f"outer.element.{name}") in str(found.value)
    with pytest.raises(SchemaError):
        arrow_to_avro(ARROW, name, "n")


def test_replaced_names_are_allowed_and_different() -> None:
    odd = pa.schema(
        [
            ("ok", pa.int8()),
            ("l-tax", pa.list_(pa.struct([("é", pa.int8()), ("è", pa.int8())]))),
            ("_1_l_tax", pa.map_(pa.string(), pa.struct([("a b", pa.int8())]))),
        ]
    )
    renamed = with_avro_names(odd)
    assert len(set(renamed.names)) == 3
    assert renamed.names[0] == "ok"
    assert renamed.names[2] == "_1_l_tax"
    fastavro.parse_schema(arrow_to_avro(renamed, "r", "n"))
    assert with_avro_names(ARROW) == ARROW


@pytest.mark.parametrize(
    "t",
    [
        pa.uint8(),
        pa.float16(),
        pa.time64("us"),
        pa.duration("us"),
        pa.timestamp("ns"),
        pa.decimal256(50, 1),
        pa.null(),
        pa.struct([]),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_types_that_avro_has_no_form_for_are_refused(t: pa.DataType) -> None:
    with pytest.raises(SchemaError) as found:
        arrow_to_avro(pa.schema([("odd", pa.list_(t))]), "r", "n")
    assert "'odd.element'" in str(found.value)
    assert str(t) in str(found.value)


def test_maps_with_other_keys_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"'odd' .*map keys of type int32"):
        arrow_to_avro(pa.schema([("odd", pa.map_(pa.int32(), pa.int32()))]), "r", "n")


@pytest.mark.parametrize(
    ("avro", "word"),
    [
        (["int", "string"], "union"),
        (["null", "int", "string"], "union"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "enum"),
        ({"type": "fixed", "name": "f", "size": 4}, "fixed"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "bytes"),
        ({"type": "long", "logicalType": "time-micros"}, "time-micros"),
        ({"type": "record", "name": "e", "fields": []}, "without fields"),
        ("nonsense", "nonsense"),
    ],
)
def test_avro_types_that_are_not_supported_are_refused_by_column(avro: object, word: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "odd", "type": avro}]}
    with pytest.raises(SchemaError) as found:
        avro_to_arrow(schema)
    assert "odd" in str(found.value)
    assert word in str(found.value)


def test_a_record_inside_itself_is_refused() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "namespace": "n",
        "fields": [{"name": "next", "type": ["null", "n.r"]}],
    }
    with pytest.raises(SchemaError, match="'next'"):
        avro_to_arrow(schema)


def test_what_is_no_record_is_refused() -> None:
    for schema in ("int", '["null", "int"]', "not json", {"type": "array", "items": "int"}):
        with pytest.raises(SchemaError):
            avro_to_arrow(schema)


def test_other_writers_ways_of_saying_it_are_read() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "namespace": "n",
        "fields": [
            {"name": "a", "type": ["int", "null"]},
            {"name": "b", "type": {"type": "string", "avro.java.string": "String"}},
            {"name": "c", "type": {"type": "record", "name": "x", "fields": [{"name": "v", "type": "int"}]}},
            {"name": "d", "type": "x"},
            {"name": "e", "type": ["null", "n.x"]},
            {"name": "f", "type": [{"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }  # fmt: skip
    x = pa.struct([pa.field("v", pa.int32(), nullable=False)])
    assert avro_to_arrow(schema) == pa.schema(
        [
            pa.field("a", pa.int32()),
            pa.field("b", pa.string(), nullable=False),
            pa.field("c", x, nullable=False),
            pa.field("d", x, nullable=False),
            pa.field("e", x),
            pa.field("f", pa.timestamp("ms", "UTC"), nullable=False),
        ]
    )


def test_a_tree_is_fitted_to_the_types_it_can_have() -> None:
    root = parse(arrow_to_avro(pa.schema([("a", pa.int32()), ("b", pa.int64())]), "r", "n"))
    small = pa.schema([("a", pa.int8()), ("b", pa.int64())])
    assert fit(root, small).arrow_fields() == list(small)
    for wrong in (
        pa.schema([("a", pa.int64()), ("b", pa.int64())]),
        pa.schema([("b", pa.int64()), ("a", pa.int32())]),
        pa.schema([("a", pa.int32())]),
    ):
        with pytest.raises(SchemaError):
            fit(root, wrong)
