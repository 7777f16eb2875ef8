"""The checksum sees values, nulls, names, types and order, and nothing else."""

from __future__ import annotations

import itertools
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.inputs.parts import ContentHash, checksum, combined

TABLE = pa.table(
    {
        "bool": [True, None, False, True, True],
        "long": pa.array([1, 2, None, -4, 5], pa.int64()),
        "decimal": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal(0), None],
                            pa.decimal128(15, 2)),
        "text": ["", "a", None, "ü", "bb"],
        "bytes": pa.array([b"\0", None, b"", b"x", b"yy"]),
        "day": pa.array([date(1970, 1, 1), None, None, date(2024, 2, 29), date(1, 1, 1)]),
        "list": pa.array([[1, None], [], None, [3], [4, 5, 6]], pa.list_(pa.int32())),
        "map": pa.array([[("a", 1)], [], None, [("b", None)], [("c", 3)]],
                        pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"x": 1, "y": "p"}, None, {"x": None, "y": None},
                            {"x": 4, "y": ""}, {"x": 5, "y": "q"}]),
    }
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, len(TABLE)), max_size=6))
def test_cuts_do_not_show(cuts: list[int]) -> None:
    content = ContentHash(TABLE.schema)
    ends = [0, *sorted(cuts), len(TABLE)]
    for first, stop in itertools.pairwise(ends):
        content.update(TABLE.slice(first, stop - first))
    assert content.hexdigest() == checksum(TABLE)


def test_the_file_does_not_show(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=2, compression="gzip")
    assert checksum(pq.read_table(tmp_path / "x.parquet")) == checksum(TABLE)


def test_layouts_of_one_value_are_equal() -> None:
    names = ["text", "bytes"]
    views = TABLE.select(names).cast(
        pa.schema([("text", pa.string_view()), ("bytes", pa.large_binary())])
    )
    assert checksum(views) == checksum(TABLE.select(names))


@pytest.mark.parametrize("column", TABLE.schema.names)
def test_one_value_shows(column: str) -> None:
    values = TABLE[column].to_pylist()
    seen = {checksum(TABLE)}
    for row in range(len(TABLE)):
        changed = [*values]
        changed[row] = None if values[row] is not None else values[0]
        at = TABLE.schema.get_field_index(column)
        other = TABLE.set_column(at, TABLE.schema.field(at), pa.array(changed, TABLE[column].type))
        seen.add(checksum(other))
    assert len(seen) == len(TABLE) + 1


def test_order_names_types_and_borders_show() -> None:
    def of(**columns: object) -> str:
        return checksum(pa.table(columns))

    assert len(
        {
            of(a=[1, 2]),
            of(a=[2, 1]),
            of(b=[1, 2]),
            of(a=pa.array([1, 2], pa.int32())),
            of(a=[1, 2, 2]),
            of(a=[1, 2], b=[1, 2]),
            of(a=["ab", "c"]),
            of(a=["a", "bc"]),
            of(a=[["a"], ["b", "c"]]),
            of(a=[["a", "b"], ["c"]]),
            of(a=pa.array([None, 0])),
            of(a=pa.array([0, None])),
            checksum(pa.table({"a": pa.array([], pa.int64())})),
        }
    ) == 13  # fmt: skip


def test_pieces_combine_in_order() -> None:
    assert len({combined(x) for x in ([], ["a"], ["a", "b"], ["b", "a"], ["a", "b", "b"])}) == 5
