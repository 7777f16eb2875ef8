"""Histories with delete markers and gaps, whose endings are known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import DataError, UsageError
from serde_lab.records.schema import RecordSchema
from serde_lab.verify import oracle
from serde_lab.verify.table_rules import TableRules
from tests.verify.histories import Write, write_inputs
from tests.verify.test_oracle import ENDINGS

DATA = pa.schema(
    [
        ("k", pa.int64()),
        ("p", pa.string()),
        ("o", pa.int64()),
        ("v", pa.string()),
        ("w", pa.list_(pa.int64())),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
SCHEMA = RecordSchema(DATA, ("k",), (), ("o",))
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"


def row(o: int, v: str | None, w: list[int] | None = None, k: int = 1) -> dict[str, Any]:
    return {"k": k, "p": "a", "o": o, "v": v, "w": w, "_hoodie_is_deleted": None}


def marked(o: int, k: int = 1) -> dict[str, Any]:
    return {**row(o, "marked", k=k), "_hoodie_is_deleted": True}


def upsert(*rows: dict[str, Any]) -> Write:
    return Write("upsert", (rows,))


DELETE = Write("delete", ((row(0, ""),),))
COMPACT = Write("compact")


def solved(rules: TableRules, writes: list[Write], folder: Path) -> list[tuple[Any, ...]]:
    commits = write_inputs(writes, DATA, folder / "inputs")
    found = oracle.solve(rules, commits, folder / "work").table().to_pylist()
    return sorted(((each["o"], each["v"], each["w"]) for each in found), key=repr)


@pytest.mark.parametrize("name", ENDINGS)
def test_where_no_row_is_marked_the_endings_are_the_plain_ones(name: str, tmp_path: Path) -> None:
    table_type, writes, expected = ENDINGS[name]
    rules = TableRules(SCHEMA, table_type=table_type)  # type: ignore[arg-type]
    assert not rules.best_row_wins
    assert sorted(v for _, v, _ in solved(rules, writes, tmp_path)) == expected


@pytest.mark.parametrize(
    ("table_type", "writes", "expected"),
    [
        (COW, [upsert(row(5, "x")), upsert(marked(4))], [(5, "x", None)]),
        (COW, [upsert(row(5, "x")), upsert(marked(5))], []),
        # no tombstone is left: any row is new
        (COW, [upsert(row(5, "x")), upsert(marked(9)), upsert(row(1, "y"))], [(1, "y", None)]),
        (COW, [upsert(marked(9)), upsert(row(1, "y"))], [(1, "y", None)]),
        (COW, [upsert(row(5, "x"), marked(6), row(4, "y"))], []),
        (MOR, [upsert(row(5, "x")), upsert(marked(9)), upsert(row(6, "y"))], []),
        (MOR, [upsert(row(5, "x")), upsert(marked(9)), upsert(row(9, "y"))], [(9, "y", None)]),
        # compacted away, the tombstone says nothing any more
        (
            MOR,
            [upsert(row(5, "x")), upsert(marked(9)), COMPACT, upsert(row(1, "y"))],
            [(1, "y", None)],
        ),
        # a delete by key is one by commit time: a delete with a value after it changes nothing
        (
            MOR,
            [upsert(row(5, "x")), DELETE, upsert(marked(9)), upsert(row(6, "y"))],
            [(6, "y", None)],
        ),
    ],
)
def test_a_marked_row_is_a_delete_with_an_ordering_value(
    table_type: Any, writes: list[Write], expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    assert solved(TableRules(SCHEMA, table_type=table_type), writes, tmp_path) == expected


def test_by_commit_time_a_marked_row_always_deletes(tmp_path: Path) -> None:
    rules = TableRules(SCHEMA, merge_mode="COMMIT_TIME_ORDERING")
    assert solved(rules, [upsert(row(5, "x")), upsert(marked(1))], tmp_path) == []


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ([upsert(row(5, "x", [1])), upsert(row(6, None, [2]))], (6, "x", [2])),
        ([upsert(row(5, None, [1])), upsert(row(4, "late", [2]))], (5, "late", [1])),
        # what came late fills what is left, in the order in which it came
        ([upsert(row(5, None), row(1, "first"), row(3, "second", [3]))], (5, "first", [3])),
    ],
)
def test_nulls_are_filled(
    writes: list[Write], expected: tuple[Any, ...], table_type: Any, tmp_path: Path
) -> None:
    rules = TableRules(SCHEMA, table_type=table_type, partial_update="IGNORE_DEFAULTS")
    assert solved(rules, writes, tmp_path) == [expected]


def test_before_a_delete_there_is_nothing_to_fill_from_but_a_base_row(tmp_path: Path) -> None:
    writes = [upsert(row(5, "x", [1])), upsert(marked(6)), upsert(row(7, "y"))]
    # in a log the row takes the delete's place, and then meets the base row that the delete never met
    for table_type, left in ((COW, None), (MOR, [1])):
        rules = TableRules(SCHEMA, table_type=table_type, partial_update="IGNORE_DEFAULTS")  # type: ignore[arg-type]
        assert solved(rules, writes, tmp_path / table_type) == [(7, "y", left)]


def test_a_marker_is_filled_and_a_null_is_not(tmp_path: Path) -> None:
    rules = TableRules(SCHEMA, partial_update="FILL_UNAVAILABLE", unavailable="?")
    writes = [upsert(row(5, "x", [1]), row(5, "y", k=2)), upsert(row(6, "?"), row(6, None, k=2))]
    assert solved(rules, writes, tmp_path) == [(6, "x", None), (6, None, None)]


def test_a_merger_of_the_tables_own_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot compute merge mode CUSTOM"):
        solved(TableRules(SCHEMA, merge_mode="CUSTOM"), [upsert(row(1, "x"))], tmp_path)


def test_a_marked_delete_without_an_ordering_value_is_refused(tmp_path: Path) -> None:
    without = {**marked(1), "o": None}
    lowest = TableRules(SCHEMA, ordering_nulls="lowest")
    with pytest.raises(DataError, match="has rows that are marked as deletes and have null in 'o'"):
        solved(lowest, [upsert(row(1, "a")), upsert(without)], tmp_path / "by event")
    by_commit = replace(lowest, merge_mode="COMMIT_TIME_ORDERING")
    assert solved(by_commit, [upsert(row(1, "a")), upsert(without)], tmp_path / "by commit") == []
