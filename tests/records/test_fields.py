"""Fields named by path, in schemas, batches, slices and tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from serde_lab.records.schema import columns_of, find_field, leads_into_struct, type_at, values_at

INNER = pa.struct([("y", pa.int32()), ("l", pa.list_(pa.struct([("z", pa.int32())])))])
SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", INNER), ("t", pa.string())]))])
ROWS = [
    {"a": 0, "s": {"x": {"y": 1, "l": []}, "t": "one"}},
    {"a": 1, "s": None},
    {"a": 2, "s": {"x": None, "t": ""}},
    {"a": 3, "s": {"x": {"y": None, "l": None}, "t": None}},
    {"a": 4, "s": {"x": {"y": -5, "l": None}, "t": "five"}},
]


def test_a_path_ends_at_a_field_or_nowhere() -> None:
    assert type_at(SCHEMA, "a") == pa.int64()
    assert type_at(SCHEMA, "s.x") == INNER
    assert type_at(SCHEMA, "s.x.y") == pa.int32()
    for path in ("b", "a.b", "s.", "s.y", "s.x.l.z", "s.x.l.element.z", ".a", ""):
        assert find_field(SCHEMA, path) is None, path
    with pytest.raises(KeyError, match=r"s\.y"):
        type_at(SCHEMA, "s.y")


def test_columns_stand_once() -> None:
    assert columns_of(["s.x.y", "a", "s.t", "a"]) == ["s", "a"]
    assert [leads_into_struct(path) for path in ("a", "a.b")] == [False, True]


def test_what_a_null_struct_holds_is_null() -> None:
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    (batch,) = table.to_batches()
    for rows in (batch, table, pa.concat_tables([table.slice(0, 2), table.slice(2)])):
        assert values_at(rows, "s.x.y").to_pylist() == [1, None, None, None, -5]
        assert values_at(rows, "s.t").to_pylist() == ["one", None, "", None, "five"]
        assert values_at(rows.slice(2), "s.x.y").to_pylist() == [None, None, -5]
        assert values_at(rows.slice(1, 3), "s.t").null_count == 2
    assert values_at(batch, "a") == batch.column("a")
