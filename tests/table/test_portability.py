"""What some version of Hudi cannot hold is found wherever it stands, and nothing else is."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import PortabilityWarning
from serde_lab.records.plain_form import list_columns, null_elements
from serde_lab.table.config import TableConfig
from serde_lab.table.portability import (
    unreadable_by_rust,
    warn_of_columns,
    warn_of_kind,
    warn_of_null_elements,
    zoneless_columns,
)

INTS = pa.list_(pa.int32())
IN_MAP = pa.map_(pa.string(), INTS)
IN_STRUCT = pa.struct([("a", INTS), ("b", pa.string())])


@pytest.mark.parametrize(
    ("kind", "values", "found"),
    [
        (pa.int32(), [1, None], 0),
        (pa.map_(pa.string(), pa.int32()), [[("a", None)], None], 0),
        (INTS, [[1], [], None], 0),
        (INTS, [[None, 1, None], None, [None]], 3),
        (pa.large_list(pa.int32()), [[None]], 1),
        (pa.list_(INTS), [[[1], None], [[None, None]]], 3),
        (IN_MAP, [[("a", [1, None]), ("b", None)], None, [("c", [2])]], 1),
        (IN_STRUCT, [{"a": [None], "b": None}, None, {"a": None, "b": ""}], 1),
        (pa.list_(IN_STRUCT), [[{"a": [None, 3], "b": None}, None]], 2),
    ],
)
def test_null_elements_are_counted_at_any_depth(
    kind: pa.DataType, values: list[Any], found: int
) -> None:
    array = pa.array([*values, *values], kind)
    assert null_elements(array) == 2 * found
    assert null_elements(array.slice(len(values))) == found


def test_columns_are_found_by_type_at_any_depth() -> None:
    schema = pa.schema(
        [
            ("utc", pa.timestamp("us", "UTC")),
            ("plain", pa.timestamp("us")),
            ("listed", pa.list_(pa.struct([("t", pa.timestamp("us"))]))),
            ("mapped", IN_MAP),
            ("text", pa.string()),
        ]
    )
    assert zoneless_columns(schema) == ["plain", "listed"]
    assert list_columns(schema) == ["listed", "mapped"]


TIME = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
}
MOR: dict[str, Any] = {"table_type": "MERGE_ON_READ"}
CUSTOM: dict[str, Any] = {
    "key_generator": "CUSTOM",
    "partition_fields": ("p", "t"),
    "partition_kinds": ("SIMPLE", "TIMESTAMP"),
    "extra": TIME,
}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"ordering_fields": ("s",), "partition_fields": ("p", "q"), **MOR}, []),
        ({"ordering_fields": ("s.o",)}, []),
        ({"ordering_fields": ("s", "t")}, ["fields s, t: hudi-rs 0.5.0 refuses"]),
        ({"ordering_fields": ("s", "t"), **MOR}, ["fields s, t: hudi-rs 0.5.0 refuses"]),
        ({"ordering_fields": ("s.o",), **MOR}, ["field s.o: hudi-rs 0.5.0 silently merges"]),
        (
            {
                "ordering_fields": ("s.o",),
                "merge_mode": "COMMIT_TIME_ORDERING",
                "partition_fields": ("p", "s.q"),
                **MOR,
            },
            ["field s.q: hudi-rs 0.5.0 cannot read"],
        ),
        ({**CUSTOM, "hive_style": True}, ["fields p:SIMPLE, t:TIMESTAMP: hudi-rs 0.5.0 cannot"]),
        ({**CUSTOM, "url_encode": True}, ["fields p:SIMPLE, t:TIMESTAMP: hudi-rs 0.5.0 cannot"]),
        (
            CUSTOM,
            [
                "fields p:SIMPLE, t:TIMESTAMP: hudi-rs 0.5.0 cannot",
                "fields p, t: Apache Hudi 1.2.0 cannot read",
            ],
        ),
        ({**CUSTOM, "version": 6}, ["fields p, t: Apache Hudi 1.2.0 cannot read"]),
        ({**CUSTOM, "version": 6, "hive_style": True}, []),
    ],
)
def test_kinds_of_tables_that_some_reader_cannot_read(
    kind: dict[str, Any], said: list[str]
) -> None:
    config = TableConfig("t", ("k",), **kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_kind(config, stacklevel=1)
    assert len(caught) == len(said)
    for one, begins in zip(caught, said, strict=True):
        assert one.category is PortabilityWarning
        assert str(one.message).startswith(begins)
    of_rust = [text for text in said if "hudi-rs" in text]
    assert bool(unreadable_by_rust(config)) == bool(of_rust)


def test_a_warning_names_columns_versions_and_settings() -> None:
    with pytest.warns(
        PortabilityWarning, match=r"^column t: hudi-rs 0\.5\.0 .*Apache Hudi 1\.2\.0"
    ):
        warn_of_columns(pa.schema([("t", pa.timestamp("us"))]), stacklevel=1)
    with pytest.warns(PortabilityWarning) as caught:
        warn_of_null_elements({"b", "a"}, stacklevel=1)
    said = str(caught[0].message)
    assert said.startswith("columns a, b: Apache Hudi 1.2.0 with its AVRO record type")
    assert "parquet.avro.write-old-list-structure" in said
    assert caught[0].filename == __file__
    warn_of_null_elements((), stacklevel=1)  # nothing to say
    folders = pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.date32()), ("b", pa.binary())])
    with pytest.warns(PortabilityWarning, match=r"^columns t, b: .* takes the values of partition"):
        warn_of_columns(folders, 1, ("t", "d", "b"))
