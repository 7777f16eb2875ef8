"""TPC-H's refresh functions: sizes, which orders come and go, the folders on disk, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import DataError, UsageError
from serde_lab.inputs.parquet_rows import ParquetRows
from tpch import TABLES, RefreshStream, generate
from tpch.__main__ import main
from tpch.workload import REFRESHED, prepare_refreshes

pytestmark = pytest.mark.slow

FACTOR, PAIRS, ORDERS = 0.004, 7, 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ParquetRows]:
    """The tables as tpchgen-cli makes them; lineitem in files that end within blocks."""
    folder = tmp_path_factory.mktemp("whole")
    made = [generate(name, FACTOR, folder, parts=3) for name in REFRESHED]
    return {one.table: ParquetRows(one.manifest.files(one.folder)) for one in made}


def batches(source: ParquetRows, table: str, seed: int = 1) -> list[pa.Table]:
    refreshes = RefreshStream(source, table, FACTOR, PAIRS, seed)
    found = [pa.concat_tables(refreshes.tables(n)) for n in range(PAIRS + 1)]
    assert [len(batch) for batch in found] == [counts.rows for counts in refreshes.counts]
    assert all(batch.schema == refreshes.schema for batch in found)
    return found


def orders_in(batch: pa.Table, table: str, deleted: bool) -> set[int]:
    rows = batch.filter(pc.equal(batch["_hoodie_is_deleted"], deleted))
    return set(rows[TABLES[table].primary_key[0]].to_pylist())


def test_orders_and_their_lineitems_come_and_go_together(whole: Mapping[str, ParquetRows]) -> None:
    orders, lineitem = (batches(whole[table], table) for table in REFRESHED)
    stored: set[int] = set()
    gone: set[int] = set()
    for number, (some, lines) in enumerate(zip(orders, lineitem, strict=True)):
        coming, going = (orders_in(some, "orders", deleted) for deleted in (False, True))
        assert coming == orders_in(lines, "lineitem", False)
        assert going == orders_in(lines, "lineitem", True)
        assert (len(coming), len(going)) == ((ORDERS, ORDERS) if number else (5_958, 0))
        assert not coming & (stored | gone)
        assert going <= stored
        stored, gone = (stored | coming) - going, gone | going
    assert len(stored | gone) == whole["orders"].rows == 6_000
    assert len(gone) == PAIRS * ORDERS


@pytest.mark.parametrize("table", REFRESHED)
def test_no_row_is_lost_changed_or_there_twice(
    table: str, whole: Mapping[str, ParquetRows]
) -> None:
    source = whole[table]
    found = pa.concat_tables(batches(source, table))
    assert found["event_ts"].null_count == 0
    key = list(TABLES[table].primary_key)
    rows = source.read(0, source.rows).sort_by([(name, "ascending") for name in key])
    live = found.filter(pc.invert(found["_hoodie_is_deleted"])).select(source.schema.names)
    assert live.sort_by([(name, "ascending") for name in key]).equals(rows)
    gone = found.filter(found["_hoodie_is_deleted"]).select(source.schema.names)
    assert len(gone.join(live, source.schema.names, join_type="left semi")) == len(gone)


def test_later_batches_are_newer(whole: Mapping[str, ParquetRows]) -> None:
    newest = 0
    for batch in batches(whole["orders"], "orders"):
        times = batch["event_ts"]
        assert pc.min(times).as_py() > newest
        assert pc.count_distinct(times).as_py() == len(batch)
        newest = pc.max(times).as_py()


def test_the_seed_decides_which_orders_come_and_go(whole: Mapping[str, ParquetRows]) -> None:
    one, again, two = (batches(whole["orders"], "orders", seed) for seed in (1, 1, 2))
    assert one == again
    assert one != two


def test_folders_hold_one_file_a_pair_and_are_made_once(
    tmp_path: Path, whole: Mapping[str, ParquetRows], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["refresh", "-s", str(FACTOR), "--pairs", str(PAIRS), "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["orders", "5,958", "7"],
        ["lineitem", "23,961", "7"],
    ]
    for table in REFRESHED:
        expected = batches(whole[table], table)
        made = prepare_refreshes(table, FACTOR, PAIRS, tmp_path)
        assert made.reused
        assert pq.read_table(made.initial).equals(expected[0])
        files = sorted(made.refreshes.glob("*.parquet"), key=lambda file: file.stat().st_mtime)
        assert [file.name for file in files] == [f"part-{n:05}.parquet" for n in range(PAIRS)]
        assert [pq.read_table(file) for file in files] == expected[1:]
        assert sorted(path.name for path in (tmp_path / table).iterdir()) == [
            "initial",
            "refreshes",
        ]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("(made earlier)") == 2
    assert main([*arguments, "--seed", "2"]) == 2
    assert "has pairs 7, scale_factor 0.004, seed 1, table orders" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pairs", "500"], "scale factor 0.004 has enough for 499 pairs"),
        (["--pairs", "0"], "pairs 0: expected a number from 1"),
        (["--tables", "orders,part"], "the refresh functions change orders and lineitem, not part"),
        (["-s", "-1"], "scale factor -1: expected a number above 0"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["refresh", "-s", str(FACTOR), "--out", str(tmp_path), *arguments]
    assert main(given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_rows_that_are_not_tpch_s_are_refused(tmp_path: Path) -> None:
    for keys, said in (([1, 40, 9], "no order key"), ([3, 2], "not in the order of o_orderkey")):
        pq.write_table(pa.table({"o_orderkey": keys}), tmp_path / "orders.parquet")
        with pytest.raises(DataError, match=said):
            RefreshStream(ParquetRows([tmp_path / "orders.parquet"]), "orders", FACTOR, 1)
    with pytest.raises(UsageError, match="not part"):
        RefreshStream(ParquetRows([tmp_path / "orders.parquet"]), "part", FACTOR, 1)
