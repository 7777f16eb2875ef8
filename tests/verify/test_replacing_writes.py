"""The oracle on writes that replace file groups and on global indexes: endings that are known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import DataError, UsageError
from serde_lab.records.schema import RecordSchema
from serde_lab.verify import oracle
from serde_lab.verify.oracle import HistoryCommit
from serde_lab.verify.table_rules import TableRules

DATA = pa.schema([("k", pa.int64()), ("p", pa.string()), ("o", pa.int64()), ("v", pa.string())])
FLAT = RecordSchema(DATA, ("k",), (), ("o",))
PARTITIONED = RecordSchema(DATA, ("k",), ("p",), ("o",))

Row = tuple[int, str, int, str]


class History:
    """Writes of a test, and what the oracle makes of them: (key, partition, value) of each row."""

    def __init__(self, folder: Path, schema: RecordSchema, **rules: Any) -> None:
        self.folder, self.rules = folder, TableRules(schema, **rules)
        self.commits: list[HistoryCommit] = []

    def write(self, operation: Any, *rows: Row, partitions: tuple[str, ...] = ()) -> History:
        place = None
        if rows:
            place = self.folder / f"commit-{len(self.commits)}"
            place.mkdir()
            named = [dict(zip(DATA.names, row, strict=True)) for row in rows]
            pq.write_table(pa.Table.from_pylist(named, schema=DATA), place / "part-00000.parquet")
        self.commits.append(HistoryCommit(operation, place, partitions))
        return self

    def ending(self) -> list[tuple[int, str, str]]:
        work = self.folder / f"work-{len(self.commits)}"
        rows = oracle.solve(self.rules, self.commits, work).table().to_pylist()
        return sorted((row["k"], row["p"], row["v"]) for row in rows)


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both table types: what is replaced is gone in each."""
    kind: str = request.param
    return kind


def test_an_overwritten_partition_has_the_new_rows_only(tmp_path: Path, kind: str) -> None:
    history = History(tmp_path, PARTITIONED, table_type=kind)
    history.write("upsert", (1, "a", 5, "x"), (2, "a", 5, "x"), (3, "b", 5, "x"))
    history.write("upsert", (1, "a", 9, "y"))
    # a lower ordering value than what it replaces
    history.write("insert_overwrite", (1, "a", 1, "z"), (4, "c", 1, "z"))
    assert history.ending() == [(1, "a", "z"), (3, "b", "x"), (4, "c", "z")]
    history.write("upsert", (1, "a", 0, "late"), (2, "a", 3, "new"), (3, "b", 6, "newer"))
    assert history.ending() == [
        (1, "a", "z"),
        (2, "a", "new"),
        (3, "b", "newer"),
        (4, "c", "z"),
    ]


def test_what_was_deleted_before_has_no_say_after(tmp_path: Path, kind: str) -> None:
    history = History(tmp_path, PARTITIONED, table_type=kind)
    history.write("upsert", (1, "a", 5, "x"), (2, "b", 5, "x"))
    history.write("delete", (1, "a", 9, ""), (2, "b", 9, ""))
    history.write("insert_overwrite", (1, "a", 1, "z"))
    assert history.ending() == [(1, "a", "z")]
    history.write("delete", (1, "a", 0, ""))
    assert history.ending() == []


def test_an_overwritten_table_has_the_new_rows_only(tmp_path: Path, kind: str) -> None:
    for number, schema in enumerate((FLAT, PARTITIONED)):
        (folder := tmp_path / str(number)).mkdir()
        history = History(folder, schema, table_type=kind)
        history.write("upsert", (1, "a", 5, "x"), (3, "b", 5, "x"))
        history.write("insert_overwrite_table", (1, "c", 1, "z"))
        assert history.ending() == [(1, "c", "z")]
    flat = History(tmp_path, FLAT, table_type=kind)
    flat.write("upsert", (1, "a", 5, "x"), (3, "b", 5, "x"))
    # a table without partitions is one
    assert flat.write("insert_overwrite", (9, "", 1, "z")).ending() == [(9, "", "z")]


def test_a_deleted_partition_begins_anew(tmp_path: Path, kind: str) -> None:
    history = History(tmp_path, PARTITIONED, table_type=kind)
    history.write("upsert", (1, "a", 5, "x"), (2, "b", 5, "x"), (3, "c", 5, "x"))
    history.write("delete_partition", partitions=("a", "c", "unknown"))
    assert history.ending() == [(2, "b", "x")]
    history.write("upsert", (1, "a", 1, "back"), (2, "b", 1, "late"))
    assert history.ending() == [(1, "a", "back"), (2, "b", "x")]


def test_compaction_before_a_replacement_changes_nothing(tmp_path: Path) -> None:
    history = History(tmp_path, PARTITIONED, table_type="MERGE_ON_READ")
    history.write("upsert", (1, "a", 5, "x"), (2, "b", 5, "x"))
    history.write("upsert", (1, "a", 6, "y"))
    history.write("compact")
    history.write("insert_overwrite", (1, "a", 1, "z"))
    history.write("upsert", (1, "a", 0, "late"))
    assert history.ending() == [(1, "a", "z"), (2, "b", "x")]


def test_under_a_global_index_a_key_is_one_row(tmp_path: Path, kind: str) -> None:
    rows = (1, "a", 5, "x"), (2, "a", 5, "x")
    for is_global, ending in [
        (True, [(1, "b", "moved"), (2, "a", "x")]),
        (False, [(1, "a", "x"), (1, "b", "moved"), (2, "a", "x"), (2, "b", "late")]),
    ]:
        (folder := tmp_path / str(is_global)).mkdir()
        history = History(folder, PARTITIONED, table_type=kind, key_is_global=is_global)
        history.write("upsert", *rows)
        history.write("upsert", (1, "b", 6, "moved"), (2, "b", 4, "late"))
        assert history.ending() == ending


def test_an_insert_of_a_stored_key_has_no_right_answer(tmp_path: Path) -> None:
    history = History(tmp_path, PARTITIONED)
    history.write("insert", (1, "a", 5, "x")).write("insert", (1, "b", 5, "x"))
    assert history.ending() == [(1, "a", "x"), (1, "b", "x")]
    with pytest.raises(DataError, match="insert would store 1 keys twice"):
        history.write("insert", (1, "a", 6, "y")).ending()


def test_replacing_under_a_global_index_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path, PARTITIONED, key_is_global=True)
    history.write("upsert", (1, "a", 5, "x")).write("delete_partition", partitions=("a",))
    with pytest.raises(UsageError, match="cannot compute delete_partition under a global index"):
        history.ending()
