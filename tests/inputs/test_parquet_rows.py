"""Rows by position over files, and what is said about files that cannot be one table."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import DataError, SchemaError
from serde_lab.inputs.parquet_rows import ParquetRows

TOTAL = 57


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> ParquetRows:
    folder = tmp_path_factory.mktemp("rows")
    table = pa.table({"a": range(TOTAL), "b": [f"b{i}" for i in range(TOTAL)]})
    files = []
    for number, (first, stop) in enumerate([(0, 20), (20, 20), (20, 21), (21, TOTAL)]):
        files.append(folder / f"{number}.parquet")
        pq.write_table(table.slice(first, stop - first), files[-1], row_group_size=7)
    return ParquetRows(files)


@settings(max_examples=60, deadline=None)
@given(ends=st.tuples(st.integers(0, TOTAL), st.integers(0, TOTAL)))
def test_any_range_can_be_read(rows: ParquetRows, ends: tuple[int, int]) -> None:
    first, stop = sorted(ends)
    table = rows.read(first, stop, ["b", "a"])
    assert table.schema.names == ["b", "a"]
    assert table["a"].to_pylist() == list(range(first, stop))


@settings(max_examples=30, deadline=None)
@given(first=st.integers(0, 200), n=st.integers(0, 200))
def test_reading_goes_round(rows: ParquetRows, first: int, n: int) -> None:
    table = rows.read_around(first, n, ["a"])
    assert table["a"].to_pylist() == [i % TOTAL for i in range(first, first + n)]


def test_batches_are_all_rows(rows: ParquetRows) -> None:
    assert [len(batch) for batch in rows.batches(25)] == [25, 25, 7]
    assert pa.concat_tables(rows.batches(25))["a"].to_pylist() == list(range(TOTAL))


def test_rows_that_were_read_go_with_their_reader(rows: ParquetRows) -> None:
    """At once, not when the garbage collector comes: they may be most of the memory."""
    own = ParquetRows(rows.files)
    own.read(0, TOTAL)
    seen = weakref.ref(own)
    gc.disable()
    try:
        del own
        assert seen() is None
    finally:
        gc.enable()


def test_extent(rows: ParquetRows) -> None:
    assert rows.extent("a") == (0, TOTAL - 1)


def test_ranges_outside_are_errors(rows: ParquetRows) -> None:
    with pytest.raises(IndexError):
        rows.read(0, TOTAL + 1)


def test_types_come_plain(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array(["x", None], pa.string_view())})
    pq.write_table(table, tmp_path / "x.parquet")
    assert pq.read_schema(tmp_path / "x.parquet").field("v").type == pa.string_view()
    rows = ParquetRows([tmp_path / "x.parquet"])
    assert rows.schema == pa.schema([("v", pa.string())])
    assert rows.read(0, 2)["v"].type == pa.string()


def test_what_is_wrong_with_files_is_said(tmp_path: Path) -> None:
    good, other, text, missing, bad = (tmp_path / f"{n}.parquet" for n in "abcde")
    pq.write_table(pa.table({"k": [1]}), good)
    pq.write_table(pa.table({"k": ["x"]}), other)
    pq.write_table(pa.table({"k": pa.array([1], pa.uint8())}), bad)
    text.write_text("no parquet")
    with pytest.raises(
        SchemaError, match=r"b.parquet: column 'k' has the type string, expected int64"
    ):
        ParquetRows([good, other])
    with pytest.raises(DataError, match=r"c.parquet: is not a readable Parquet file"):
        ParquetRows([text])
    with pytest.raises(DataError, match=r"d.parquet: no such file"):
        ParquetRows([missing])
    with pytest.raises(SchemaError, match=r"e.parquet: column 'k' has the unsupported type uint8"):
        ParquetRows([bad])
    with pytest.raises(SchemaError, match=r"a.parquet: has no column 'q', its columns are k"):
        ParquetRows([good], ["q"])
    with pytest.raises(DataError, match="expected at least one parquet file"):
        ParquetRows([])


def test_a_column_that_only_later_files_have_is_refused(tmp_path: Path) -> None:
    """Its values would be left out; whoever names the columns wants the others left out."""
    first, later = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"k": [1]}), first)
    pq.write_table(pa.table({"more": ["x"], "k": [2]}), later)
    says = r"b.parquet: has a column 'more' that is not in .*a.parquet"
    with pytest.raises(SchemaError, match=says):
        ParquetRows([first, later])
    assert ParquetRows([first, later], ["k"]).read(0, 2)["k"].to_pylist() == [1, 2]


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"k": [f"{i}" for i in range(1000)]}), file, use_dictionary=False)
    damaged = bytearray(file.read_bytes())
    damaged[4:40] = b"\xff" * 36
    file.write_bytes(damaged)
    with pytest.raises(DataError, match=r"x.parquet: is not a readable Parquet file"):
        ParquetRows([file]).read(0, 1000)
