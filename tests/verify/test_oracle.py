"""The oracle against a model that follows every write, and against histories with known endings."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import DataError, UsageError
from serde_lab.records.schema import RecordSchema
from serde_lab.verify import oracle
from serde_lab.verify.contents import TableRows, fingerprint, first_difference
from serde_lab.verify.narrow import bucket_ids
from serde_lab.verify.oracle import HistoryCommit
from serde_lab.verify.table_rules import TableRules
from tests.verify.histories import Write, expected_rows, write_inputs

DATA = pa.schema([("k", pa.int64()), ("p", pa.string()), ("o", pa.int64()), ("v", pa.string())])
PLAIN = RecordSchema(DATA, ("k",), (), ("o",))
PARTITIONED = RecordSchema(DATA, ("k",), ("p",), ("o",))


def row(k: int, o: int, v: str, p: str = "a") -> dict[str, Any]:
    return {"k": k, "p": p, "o": o, "v": v}


def values(rules: TableRules, writes: list[Write], folder: Path) -> list[str]:
    commits = write_inputs(writes, rules.schema.data, folder / "inputs")
    return sorted(oracle.solve(rules, commits, folder / "work").table()["v"].to_pylist())


def upsert(*rows: dict[str, Any]) -> Write:
    return Write("upsert", (rows,))


def delete(*rows: dict[str, Any]) -> Write:
    return Write("delete", (rows,))


COMPACT = Write("compact")

ENDINGS: dict[str, tuple[str, list[Write], list[str]]] = {
    "highest in a batch": ("COPY_ON_WRITE", [upsert(row(1, 5, "x"), row(1, 4, "y"))], ["x"]),
    "tie in a batch": ("COPY_ON_WRITE", [upsert(row(1, 5, "x"), row(1, 5, "y"))], ["y"]),
    "tie over files": (
        "COPY_ON_WRITE",
        [Write("upsert", ((row(1, 5, "x"),), (row(1, 5, "y"),)))],
        ["y"],
    ),
    "late row": ("COPY_ON_WRITE", [upsert(row(1, 5, "x")), upsert(row(1, 4, "y"))], ["x"]),
    "tie with stored": ("COPY_ON_WRITE", [upsert(row(1, 5, "x")), upsert(row(1, 5, "y"))], ["y"]),
    "delete of newer": ("COPY_ON_WRITE", [upsert(row(1, 5, "x")), delete(row(1, 0, ""))], []),
    "back after delete": (
        "COPY_ON_WRITE",
        [upsert(row(1, 5, "x")), delete(row(1, 9, "")), upsert(row(1, 1, "y"))],
        ["y"],
    ),
    "log: late row": ("MERGE_ON_READ", [upsert(row(1, 5, "x")), upsert(row(1, 4, "y"))], ["x"]),
    "log: deleted": ("MERGE_ON_READ", [upsert(row(1, 5, "x")), delete(row(1, 0, ""))], []),
    "log: base row comes back": (
        "MERGE_ON_READ",
        [upsert(row(1, 5, "x")), delete(row(1, 9, "")), upsert(row(1, 3, "y"))],
        ["x"],
    ),
    "log: higher after delete": (
        "MERGE_ON_READ",
        [upsert(row(1, 5, "x")), delete(row(1, 9, "")), upsert(row(1, 9, "y"))],
        ["y"],
    ),
    "log: compacted after delete": (
        "MERGE_ON_READ",
        [upsert(row(1, 5, "x")), delete(row(1, 9, "")), COMPACT, upsert(row(1, 3, "y"))],
        ["y"],
    ),
    "log: compacted too late": (
        "MERGE_ON_READ",
        [upsert(row(1, 5, "x")), delete(row(1, 9, "")), upsert(row(1, 3, "y")), COMPACT],
        ["x"],
    ),
    "log: insert, delete, insert": (
        "MERGE_ON_READ",
        [
            upsert(row(2, 1, "b")),
            upsert(row(1, 5, "x")),
            delete(row(1, 9, "")),
            upsert(row(1, 3, "y")),
        ],
        ["b", "y"],
    ),
    "log: delete before the group": (
        "MERGE_ON_READ",
        [delete(row(1, 9, "")), upsert(row(1, 3, "y"))],
        ["y"],
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_ending(name: str, tmp_path: Path) -> None:
    table_type, writes, expected = ENDINGS[name]
    assert values(TableRules(PLAIN, table_type=table_type), writes, tmp_path) == expected  # type: ignore[arg-type]


def test_commit_time_takes_the_later_whatever_the_ordering(tmp_path: Path) -> None:
    rules = TableRules(PLAIN, merge_mode="COMMIT_TIME_ORDERING")
    writes = [upsert(row(1, 5, "x"), row(2, 9, "s"), row(2, 1, "t")), upsert(row(1, 4, "y"))]
    assert values(rules, writes, tmp_path) == ["t", "y"]


def test_the_same_key_in_two_partitions_is_two_rows(tmp_path: Path) -> None:
    writes = [upsert(row(1, 5, "x", "a"), row(1, 4, "y", "b")), delete(row(1, 9, "", "a"))]
    assert values(TableRules(PARTITIONED), writes, tmp_path) == ["y"]


def test_null_and_empty_partition_values_are_one_partition(tmp_path: Path) -> None:
    writes = [upsert({"k": 1, "p": None, "o": 1, "v": "x"}, {"k": 1, "p": "", "o": 2, "v": "y"})]
    assert values(TableRules(PARTITIONED), writes, tmp_path) == ["y"]


def test_keys_of_several_fields_keep_null_apart_from_zero(tmp_path: Path) -> None:
    schema = RecordSchema(
        pa.schema([("a", pa.int64()), ("b", pa.int64()), ("o", pa.int64()), ("v", pa.string())]),
        ("a", "b"),
        (),
        ("o",),
    )
    rows = [(1, None, "null"), (1, 0, "zero"), (None, 1, "left"), (None, 1, "left again")]
    writes = [upsert(*({"a": a, "b": b, "o": 1, "v": v} for a, b, v in rows))]
    assert values(TableRules(schema), writes, tmp_path) == ["left again", "null", "zero"]


ORDERED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]),
    "float": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]),
    "text": (pa.string(), ["", "a", "aa", "b", "z\ud7ff", "z\ue000", "z\uffff", "z\U0001f600"]),
    "text view": (pa.string_view(), ["", "a\uffff", "a\U00010000"]),
    "boolean": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2000, 1, 1, 0, 0, 0, 1, dt.UTC)],
    ),
    "decimal": (
        pa.decimal128(38, 3),
        [Decimal("-1e34"), Decimal("-0.001"), Decimal(0), Decimal("9e34")],
    ),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
}


@pytest.mark.parametrize("name", ORDERED)
def test_ordering_values_compare_as_in_apache_hudi(name: str, tmp_path: Path) -> None:
    """Ascending values in both input orders: the same one must win, and each pair is strict."""
    kind, ascending = ORDERED[name]
    schema = RecordSchema(
        pa.schema([("k", pa.int64()), ("o", kind), ("v", pa.int64())]), ("k",), (), ("o",)
    )
    rows = []
    for place in range(len(ascending) - 1):
        low, high = ascending[place], ascending[place + 1]
        rows += [{"k": 2 * place, "o": low, "v": 0}, {"k": 2 * place, "o": high, "v": 1}]
        rows += [{"k": 2 * place + 1, "o": high, "v": 1}, {"k": 2 * place + 1, "o": low, "v": 0}]
    commits = write_inputs([upsert(*rows)], schema.data, tmp_path / "inputs")
    table = oracle.solve(TableRules(schema), commits, tmp_path / "work").table()
    assert table["v"].to_pylist() == [1] * (2 * len(ascending) - 2)


def test_null_ordering_values_are_refused_or_lowest(tmp_path: Path) -> None:
    writes = [upsert(row(1, 5, "x"), {"k": 1, "p": "a", "o": None, "v": "y"})]
    commits = write_inputs(writes, DATA, tmp_path / "inputs")
    with pytest.raises(DataError, match=r"ordering column 'o' of .* has 1 nulls"):
        oracle.solve(TableRules(PLAIN), commits, tmp_path / "work")
    lowest = TableRules(PLAIN, ordering_nulls="lowest")
    assert oracle.solve(lowest, commits, tmp_path / "work").table()["v"].to_pylist() == ["x"]


def test_input_without_a_right_answer_is_refused(tmp_path: Path) -> None:
    twice = [upsert(row(1, 1, "x")), Write("bulk_insert", ((row(2, 1, "y"), row(1, 2, "z")),))]
    commits = write_inputs(twice, DATA, tmp_path / "twice")
    with pytest.raises(DataError, match="would store 1 keys twice"):
        oracle.solve(TableRules(PLAIN), commits, tmp_path / "work")
    null = write_inputs([upsert({"k": None, "p": "", "o": 1, "v": ""})], DATA, tmp_path / "null")
    with pytest.raises(DataError, match=r"record key .k. is null or empty in 1 rows"):
        oracle.solve(TableRules(PLAIN), null, tmp_path / "work")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no Parquet file"):
        oracle.solve(
            TableRules(PLAIN), [HistoryCommit("upsert", tmp_path / "empty")], tmp_path / "work"
        )
    with pytest.raises(UsageError, match="does not know the operation 'cluster'"):
        oracle.solve(TableRules(PLAIN), [HistoryCommit("cluster")], tmp_path / "work")
    other = write_inputs(
        [Write("upsert", (({"a": 1},),))], pa.schema([("a", pa.int64())]), tmp_path / "o"
    )
    with pytest.raises(DataError, match="has no column 'k'"):
        oracle.solve(TableRules(PLAIN), other, tmp_path / "work")


def test_the_answer_has_the_types_of_storage(tmp_path: Path) -> None:
    schema = RecordSchema(
        pa.schema([("k", pa.int8()), ("o", pa.int16()), ("v", pa.string_view())]),
        ("k",),
        (),
        ("o",),
    )
    commits = write_inputs([upsert({"k": 1, "o": 2, "v": "x"})], schema.data, tmp_path / "inputs")
    answer = oracle.solve(TableRules(schema), commits, tmp_path / "work")
    assert answer.table().schema.types == [pa.int32(), pa.int32(), pa.string()]
    assert answer.rows == fingerprint(answer).rows == 1


ROWS = st.fixed_dictionaries(
    {
        "k": st.integers(0, 5),
        "p": st.sampled_from(["a", "b"]),
        "o": st.integers(0, 3),
        "v": st.text(max_size=2),
    }
)
WRITES = st.lists(
    st.one_of(
        st.builds(
            Write,
            st.sampled_from(["upsert", "upsert", "delete"]),
            st.lists(st.lists(ROWS, max_size=6).map(tuple), min_size=1, max_size=2).map(tuple),
        ),
        st.just(COMPACT),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    WRITES,
    st.sampled_from(["COPY_ON_WRITE", "MERGE_ON_READ"]),
    st.sampled_from(["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"]),
    st.booleans(),
    st.sampled_from([0, 1, 3]),
)
def test_oracle_equals_the_model(
    writes: list[Write], table_type: Any, mode: Any, partitioned: bool, buckets: int
) -> None:
    schema = PARTITIONED if partitioned else PLAIN
    rules = TableRules(schema, merge_mode=mode, table_type=table_type, buckets=buckets)

    def group_of(row: dict[str, Any]) -> object:
        bucket = int(bucket_ids([pa.array([str(row["k"])])], buckets)[0]) if buckets else 0
        return (row["p"] if partitioned else "", bucket)

    with tempfile.TemporaryDirectory() as name:
        commits = write_inputs(writes, DATA, Path(name) / "inputs")
        answer = oracle.solve(rules, commits, Path(name) / "work")
        expected = pa.Table.from_pylist(expected_rows(writes, rules, group_of), schema=DATA)
        difference = first_difference(TableRows(expected), answer, rules.key_columns)
    assert difference is None, difference


@pytest.mark.parametrize(
    ("fields", "buckets", "expected"),
    [
        ([["id1"], ["id2"]], 8, [5, 6]),
        ([["1", "1"], ["1000000", "7"], ["abc", "bcd"]], 4, [1, 3, 2]),
        ([["1", "2"]], 256, [226]),
    ],
)
def test_buckets_are_java_s(fields: list[list[str]], buckets: int, expected: list[int]) -> None:
    """The worked values were computed by Hudi's own classes."""
    columns = [pa.array(column) for column in zip(*fields, strict=True)]
    assert bucket_ids(columns, buckets).tolist() == expected
