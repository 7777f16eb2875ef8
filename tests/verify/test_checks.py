"""The checks pass on a right table, and each kind of wrong table is caught by the check that owns it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from serde_lab.records.schema import RecordSchema
from serde_lab.verify import oracle
from serde_lab.verify.contents import fingerprint
from serde_lab.verify.readers import HudiRs
from serde_lab.verify.table_checks import (
    ARMS_AGREE,
    META_COLUMNS_CORRECT,
    NO_DUPLICATE_KEYS,
    ROWS_MATCH_ORACLE,
    Expected,
    TableVerdict,
    arms_agree,
    check_contents,
    check_path,
    check_table,
)
from serde_lab.verify.table_rules import TableRules
from tests.verify.hand_made_table import HandMadeTable
from tests.verify.histories import Write, write_inputs

DATA = pa.schema(
    [
        ("k", pa.int64()),
        ("p", pa.string()),
        ("o", pa.int64()),
        ("v", pa.string()),
        ("x", pa.float64()),
    ]
)
RULES = TableRules(RecordSchema(DATA, ("k",), ("p",), ("o",)), hive_style=True)
FIRST, SECOND = "20250101000000000", "20250101000001000"


def row(k: int, o: int, v: str, x: float | None = 0.0) -> dict[str, Any]:
    return {"k": k, "p": "ab"[k % 2], "o": o, "v": v, "x": x}


WRITES = [
    Write("upsert", (tuple(row(k, 5, f"first {k}") for k in range(40)),)),
    # key 3 is late, key 4 a tie, key 5 twice in one batch with the higher ordering value first
    Write("upsert", ((row(3, 4, "late"), row(4, 5, "tie"), row(5, 9, "high"), row(5, 8, "low")),)),
    Write("delete", ((row(7, 0, ""),),)),
]


@pytest.fixture
def expected(tmp_path: Path) -> Expected:
    commits = write_inputs(WRITES, DATA, tmp_path / "inputs")
    return Expected.of(oracle.solve(RULES, commits, tmp_path / "work"))


@pytest.fixture
def table(tmp_path: Path) -> HandMadeTable:
    """The right table, made by hand: what a careful reader of WRITES would write down."""
    rows = [row(k, 5, f"first {k}") for k in range(40) if k != 7]
    rows = [
        row(4, 5, "tie") if r["k"] == 4 else row(5, 9, "high") if r["k"] == 5 else r for r in rows
    ]
    data = pa.Table.from_pylist(rows, schema=DATA)
    made = HandMadeTable(tmp_path / "table", ("p",)).create()
    made.write(FIRST, {f"p={p}": data.filter(pc.equal(data["p"], p)).slice(0, 3) for p in "ab"})
    made.write(SECOND, {f"p={p}": data.filter(pc.equal(data["p"], p)) for p in "ab"})
    return made


def failed(verdict: TableVerdict) -> dict[str, str]:
    return {result.name: result.detail for result in verdict.results if not result.passed}


def test_a_right_table_passes(table: HandMadeTable, expected: Expected) -> None:
    verdict = check_path(str(table.folder), expected, RULES)
    assert verdict.passed
    assert [result.name for result in verdict.results] == [
        ROWS_MATCH_ORACLE,
        NO_DUPLICATE_KEYS,
        META_COLUMNS_CORRECT,
    ]
    assert verdict.results[0].detail.startswith("39 rows, 5 columns, digest ")
    assert verdict.fingerprint == expected.fingerprint


def put(rows: pa.Table, k: int, /, **values: Any) -> pa.Table:
    """`rows` with other values in the row of key `k`."""
    at = rows["k"].to_pylist().index(k)
    for name, value in values.items():
        column = rows[name].to_pylist()
        column[at] = value
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(name), pa.array(column, rows[name].type))
    return rows


def without(rows: pa.Table, k: int) -> pa.Table:
    return rows.filter(pc.not_equal(rows["k"], k))


Change = Callable[[pa.Table], pa.Table]

# partition, damage, what each failing check must say
DAMAGES: dict[str, tuple[str, Change, dict[str, str]]] = {
    "one value": (
        "p=a",
        lambda rows: put(rows, 8, v="other"),
        {
            ROWS_MATCH_ORACLE: "first (in key order) p = 'a', k = 8: v is 'other', expected 'first 8'"
        },
    ),
    "zero for minus zero": (
        "p=a",
        lambda rows: put(rows, 8, x=-0.0),
        {ROWS_MATCH_ORACLE: "x is -0.0, expected 0.0"},
    ),
    "null for a value": (
        "p=a",
        lambda rows: put(rows, 8, x=None),
        {ROWS_MATCH_ORACLE: "x is null, expected 0.0"},
    ),
    "empty for a value": (
        "p=a",
        lambda rows: put(rows, 8, v=""),
        {ROWS_MATCH_ORACLE: "v is '', expected 'first 8'"},
    ),
    "one row lost": (
        "p=b",
        lambda rows: without(rows, 9),
        {ROWS_MATCH_ORACLE: "1 key is missing; first p = 'b', k = 9"},
    ),
    "late row wins": (
        "p=b",
        lambda rows: put(rows, 3, o=4, v="late"),
        {ROWS_MATCH_ORACLE: "p = 'b', k = 3: o is 4, expected 5"},
    ),
    "tie goes to the older": (
        "p=a",
        lambda rows: put(rows, 4, v="first 4"),
        {ROWS_MATCH_ORACLE: "p = 'a', k = 4: v is 'first 4', expected 'tie'"},
    ),
    "lower of a batch wins": (
        "p=b",
        lambda rows: put(rows, 5, o=8, v="low"),
        {ROWS_MATCH_ORACLE: "p = 'b', k = 5: o is 8, expected 9"},
    ),
    "a deleted row is back": (
        "p=b",
        lambda rows: pa.concat_tables(
            [rows, put(rows.slice(0, 1), 1, k=7, v="first 7", _hoodie_record_key="7")]
        ),
        {ROWS_MATCH_ORACLE: "1 key is unexpected; first p = 'b', k = 7"},
    ),
    "a row twice": (
        "p=b",
        lambda rows: pa.concat_tables([rows, rows.slice(2, 1)]),
        {
            ROWS_MATCH_ORACLE: "1 key is in more rows than expected; first p = 'b', k = 5",
            NO_DUPLICATE_KEYS: "1 key is in several rows; first '5' in partition 'p=b', 2 times",
        },
    ),
    "two rows exchange their values": (
        "p=a",
        lambda rows: put(put(rows, 8, v="first 10"), 10, v="first 8"),
        {ROWS_MATCH_ORACLE: "2 rows differ of 39, first (in key order) p = 'a', k = 8"},
    ),
    "a wrong record key": (
        "p=a",
        lambda rows: put(rows, 8, _hoodie_record_key="k:8"),
        {
            META_COLUMNS_CORRECT: "_hoodie_record_key does not follow from the data in 1 row; one is 'k:8' at"
        },
    ),
    "a wrong partition path": (
        "p=a",
        lambda rows: put(rows, 8, _hoodie_partition_path="a"),
        {META_COLUMNS_CORRECT: "_hoodie_partition_path does not follow from the data in 1 row"},
    ),
    "a file that is not there": (
        "p=a",
        lambda rows: put(rows, 8, _hoodie_file_name="gone_0-0-0_1.parquet"),
        {META_COLUMNS_CORRECT: "_hoodie_file_name is not a file of the latest slices in 1 row"},
    ),
    "a commit that never was": (
        "p=a",
        lambda rows: put(
            rows,
            8,
            _hoodie_commit_time="20250101000000500",
            _hoodie_commit_seqno="20250101000000500_0_0",
        ),
        {META_COLUMNS_CORRECT: "_hoodie_commit_time is not a completed instant in 1 row"},
    ),
    "a sequence number of another commit": (
        "p=a",
        lambda rows: put(rows, 8, _hoodie_commit_seqno=f"{FIRST}_0_0"),
        {META_COLUMNS_CORRECT: "_hoodie_commit_seqno does not begin with the commit time in 1 row"},
    ),
    "a null meta column": (
        "p=a",
        lambda rows: put(rows, 8, _hoodie_commit_seqno=None),
        {META_COLUMNS_CORRECT: "_hoodie_commit_seqno is null in 1 row"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_caught(damage: str, table: HandMadeTable, expected: Expected) -> None:
    partition, change, said = DAMAGES[damage]
    table.rewrite(change, partition)
    found = failed(check_path(str(table.folder), expected, RULES))
    assert set(found) == set(said)
    for name, words in said.items():
        assert words in found[name]


def test_an_unreadable_table_fails_every_check(table: HandMadeTable, expected: Expected) -> None:
    table.base_file("p=a").write_bytes(b"not parquet")
    verdict = check_path(str(table.folder), expected, RULES)
    assert verdict.fingerprint is None
    assert len(failed(verdict)) == 3
    assert all("hudi-rs cannot read" in detail for detail in failed(verdict).values())


def test_a_table_of_another_schema_is_named_by_column(table: HandMadeTable) -> None:
    whole = HudiRs(str(table.folder)).table().select(DATA.names)
    more = Expected.of(whole.append_column("y", pa.nulls(39, pa.int32())))
    found = failed(check_path(str(table.folder), more, RULES))
    assert found == {ROWS_MATCH_ORACLE: "as read by hudi-rs: column y is missing"}
    other = Expected.of(whole.set_column(2, "o", whole["o"].cast(pa.int32())))
    found = failed(check_path(str(table.folder), other, RULES))
    assert found == {
        ROWS_MATCH_ORACLE: "as read by hudi-rs: column o has the type int64, expected int32"
    }


def test_older_commits_pass_once_instants_are_archived(
    table: HandMadeTable, expected: Expected
) -> None:
    old = {
        "_hoodie_commit_time": "20240101000000000",
        "_hoodie_commit_seqno": "20240101000000000_0_0",
    }
    table.rewrite(lambda rows: put(rows, 8, **old), "p=a")
    assert set(failed(check_path(str(table.folder), expected, RULES))) == {META_COLUMNS_CORRECT}
    archive = table.folder / ".hoodie" / "archived"
    archive.mkdir()
    (archive / ".commits_.archive.1_1-0-1").write_bytes(b"")
    assert check_path(str(table.folder), expected, RULES).passed


def test_time_travel_and_changes(table: HandMadeTable) -> None:
    reader = HudiRs(str(table.folder), as_of=FIRST)
    assert reader.table().num_rows == 6
    assert set(reader.table()["_hoodie_commit_time"].to_pylist()) == {FIRST}
    assert HudiRs(str(table.folder)).changes(FIRST).num_rows == 39
    facts = reader.facts()
    assert facts.instants == (FIRST, SECOND)
    assert all(
        name.endswith(f"_{FIRST}.parquet") for names in facts.files.values() for name in names
    )
    assert HudiRs(str(table.folder)).changes(SECOND).num_rows == 0


def test_a_reader_without_facts_is_refused(table: HandMadeTable, expected: Expected) -> None:
    class Other:
        name = "another reader"
        schema = HudiRs(str(table.folder)).schema

        def batches(self) -> Any:
            return HudiRs(str(table.folder)).batches()

    with pytest.raises(TypeError, match="another reader gives no facts"):
        check_table(Other(), expected, RULES)
    assert check_table(Other(), expected, RULES, HudiRs(str(table.folder)).facts()).passed
    assert check_contents(Other(), expected, RULES).results[0].passed


def test_arms_agree_names_the_arm_that_differs() -> None:
    right = fingerprint(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    wrong = fingerprint(pa.table({"a": [1, 2], "b": ["x", "z"]}))
    swapped = fingerprint(pa.table({"a": [1, 2], "b": ["y", "x"]}))
    short = fingerprint(pa.table({"a": [1], "b": ["x"]}))
    results = arms_agree({"p": right, "q": wrong, "r": right, "s": swapped, "t": short, "u": None})
    assert {arm: result.passed for arm, result in results.items()} == {
        "p": True,
        "q": False,
        "r": True,
        "s": False,
        "t": False,
        "u": False,
    }
    assert {result.name for result in results.values()} == {ARMS_AGREE}
    assert results["p"].detail == "equal to 1 other arm, 2 rows"
    assert results["q"].detail == "differs from p: values differ in column b"
    assert "not in the expected rows" in results["s"].detail
    assert results["t"].detail == "differs from p: 1 rows, expected 2"
    assert results["u"].detail == "the table of u could not be read"
