"""Record keys and partition paths as Apache Hudi 1.2.0 wrote them (the texts below are its own)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import SchemaError
from serde_lab.records.schema import RecordSchema
from serde_lab.verify.key_text import partition_paths, record_keys, time_folders
from serde_lab.verify.table_rules import TableRules

MOMENT = dt.datetime(1992, 1, 2, 3, 4, 5, 678901, dt.UTC)
BEFORE_EPOCH = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)

TEXTS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "text": (pa.string_view(), ["a", "x,y:z", "ü😀", "a/b c%="], ["a", "x,y:z", "ü😀", "a/b c%="]),
    "int": (pa.int32(), [1, -5], ["1", "-5"]),
    "long": (pa.int64(), [2**40], ["1099511627776"]),
    "boolean": (pa.bool_(), [True, False], ["true", "false"]),
    "date": (
        pa.date32(),
        [dt.date(1992, 1, 2), dt.date(1969, 12, 31)],
        ["1992-01-02", "1969-12-31"],
    ),
    "timestamp": (pa.timestamp("us", "UTC"), [MOMENT, BEFORE_EPOCH], ["694321445678901", "-1"]),
    "local timestamp": (pa.timestamp("us"), [MOMENT.replace(tzinfo=None)], ["694321445678901"]),
    "decimal": (pa.decimal128(15, 2), [Decimal("12.30"), Decimal("-0.05")], ["12.30", "-0.05"]),
    "small decimal": (
        pa.decimal128(20, 10),
        [Decimal("0.0000000001"), Decimal(1)],
        ["1E-10", "1.0000000000"],
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_types(name: str) -> None:
    kind, values, texts = TEXTS[name]
    rows = pa.table({"k": pa.array(values, kind), "i": pa.array(range(len(values)))})
    alone = TableRules(RecordSchema(rows.schema, ("k",)))
    assert record_keys(rows, alone).to_pylist() == texts
    together = TableRules(RecordSchema(rows.schema, ("k", "i")))
    expected = [f"k:{text},i:{i}" for i, text in enumerate(texts)]
    assert record_keys(rows, together).to_pylist() == expected
    partition = TableRules(RecordSchema(rows.schema, ("i",), ("k",)))
    assert partition_paths(rows, partition).to_pylist() == texts


def test_null_and_empty() -> None:
    rows = pa.table({"k": ["a", "", None], "i": [1, 2, 3]})
    keys = record_keys(rows, TableRules(RecordSchema(rows.schema, ("k", "i"))))
    assert keys.to_pylist() == ["k:a,i:1", "k:__empty__,i:2", "k:__null__,i:3"]
    rules = TableRules(RecordSchema(rows.schema, ("i",), ("k",)))
    default = "__HIVE_DEFAULT_PARTITION__"
    assert partition_paths(rows, rules).to_pylist() == ["a", default, default]
    assert partition_paths(rows.slice(0, 0), rules).to_pylist() == []


@pytest.mark.parametrize(
    ("hive_style", "url_encode", "path"),
    [
        (True, True, "k=a%2Fb c%25%3D%3A"),
        (False, True, "a%2Fb c%25%3D%3A"),
        (True, False, "k=a/b c%=:"),
        (False, False, "a/b c%=:"),
    ],
)
def test_styles_of_partition_paths(hive_style: bool, url_encode: bool, path: str) -> None:
    rows = pa.table({"k": ["a/b c%=:"], "i": [1]})
    schema = RecordSchema(rows.schema, ("i",), ("k",))
    rules = TableRules(schema, hive_style=hive_style, url_encode=url_encode)
    assert partition_paths(rows, rules).to_pylist() == [path]


def test_one_key_field_is_named_in_the_key_when_partition_fields_are_several() -> None:
    rows = pa.table({"k": ["k1"], "p": ["0"], "q": [1]})
    rules = TableRules(RecordSchema(rows.schema, ("k",), ("p", "q")))
    assert record_keys(rows, rules).to_pylist() == ["k:k1"]
    assert partition_paths(rows, rules).to_pylist() == ["0/1"]
    assert partition_paths(rows, TableRules(RecordSchema(rows.schema, ("k",)))).to_pylist() == [""]


def test_a_type_without_known_text_is_refused() -> None:
    rows = pa.table({"k": [[1.5]]})
    with pytest.raises(
        SchemaError, match=r"column 'k' of type list<.*> is not supported by the checks"
    ):
        record_keys(rows, TableRules(RecordSchema(rows.schema, ("k",))))


def test_milliseconds_are_those_of_the_moment() -> None:
    """Also where the digits before them are the same."""
    stated = {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyyMMddHHmmssSSS '%f'"}
    options = {f"hoodie.keygen.timebased.{name}": value for name, value in stated.items()}
    midnight = 1_704_844_800_000
    assert time_folders(pa.array([midnight, midnight + 7]), options).to_pylist() == [
        "20240110000000000 %f",
        "20240110000000007 %f",
    ]
