"""Tables whose partitions are named by time, and tables without record keys, against DuckDB."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, SchemaError
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.validation import validate_table
from tests.pipeline.lab_table import MOR, STRATEGIES, LabTable

TIMES = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("at", pa.int64()), ("x", pa.float64())])
BY_TIME = {
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "at",
    "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "Europe/Berlin",
}
KEYLESS: dict[str, str | None] = {
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.datasource.write.operation": "insert",
    "hoodie.datasource.write.recordkey.field": "",
    "hoodie.datasource.write.precombine.field": "",
}


def times(numbers: range, ts: int) -> pa.Table:
    """Rows of about one an hour, every tenth without a time."""
    rows = [
        {"k": f"k{n}", "ts": ts, "at": None if n % 10 == 9 else 3_600_000 * n * 7 - 5, "x": n / 3}
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, TIMES)


@pytest.mark.parametrize("style", ["plain", "hive", "escaped"])
@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
def test_partitions_named_by_time(kind: dict[str, str], style: str, tmp_path: Path) -> None:
    styles = {
        "plain": {},
        "hive": {"hoodie.datasource.write.hive_style_partitioning": "true"},
        "escaped": {"hoodie.datasource.write.partitionpath.urlencode": "true"},
    }
    table = LabTable(tmp_path, {**BY_TIME, **kind, **styles[style]}, TIMES)
    table.upsert(times(range(20), 1))
    table.upsert(times(range(10, 30), 2))
    table.delete(times(range(5), 3).select(["k", "at"]))
    table.check()
    first = {"plain": "1970/01/01", "hive": "at=1970/01/01", "escaped": "1970%2F01%2F01"}[style]
    assert (table.path / first / ".hoodie_partition_metadata").exists()
    properties = HoodieTable.open(Storage.open(table.path)).config.to_properties()
    assert properties["hoodie.table.keygenerator.type"] == "TIMESTAMP"
    assert properties["hoodie.keygen.timebased.timezone"] == "Europe/Berlin"


def test_every_type_of_time(tmp_path: Path) -> None:
    moment = datetime(2024, 3, 31, 1, 30, 0, 123456, UTC)
    for number, (kind, value, more) in enumerate(
        [
            (pa.timestamp("us", "UTC"), moment, {"timestamp.type": "EPOCHMICROSECONDS"}),
            (
                pa.timestamp("us"),
                moment.replace(tzinfo=None),
                {"timestamp.type": "EPOCHMICROSECONDS"},
            ),
            (pa.float64(), moment.timestamp(), {"timestamp.type": "UNIX_TIMESTAMP"}),
            (
                pa.date32(),
                moment.date(),
                {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS"},
            ),
            (
                pa.string(),
                "2024-03-31T01:30:00+0000",
                {"timestamp.type": "DATE_STRING", "input.dateformat": "yyyy-MM-dd'T'HH:mm:ssZ"},
            ),
        ]
    ):
        schema = TIMES.set(2, pa.field("at", kind))
        given = {f"hoodie.keygen.timebased.{key}": text for key, text in more.items()}
        table = LabTable(tmp_path / str(number), {**BY_TIME, **given}, schema)
        rows = [{"k": "a", "ts": 1, "at": value}, {"k": "b", "ts": 1, "at": None}]
        with pytest.warns() if kind == pa.timestamp("us") else _nothing():
            table.upsert(pa.Table.from_pylist(rows, schema))
        assert (table.path / "2024/03/31").is_dir()
        ours = plan_snapshot(table.table).read()
        null = "1970/01/02" if kind == pa.date32() else "1970/01/01"  # the time 1: a day later here
        assert sorted(ours["_hoodie_partition_path"].to_pylist()) == [null, "2024/03/31"]


class _nothing:  # noqa: N801 - reads as a statement
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.keygen.timebased.output.dateformat": "yyyy b"}, "'yyyy b'"),
        ({"hoodie.keygen.timebased.timestamp.type": ""}, "timestamp.type is ''"),
        ({"hoodie.datasource.write.partitionpath.field": ""}, "TIMESTAMP does not fit"),
        ({"hoodie.datasource.write.recordkey.field": "k,x"}, "TIMESTAMP does not fit"),
        (
            {"hoodie.datasource.write.keygenerator.type": "SIMPLE"},
            "is for the key generator TIMESTAMP",
        ),
        ({"hoodie.datasource.write.keygenerator.class": "x.Y"}, "'x.Y'"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    options: dict[str, str], says: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**BY_TIME, **options}, TIMES)
    with pytest.raises(OptionError, match=says):
        table.upsert(times(range(2), 1))
    assert not (table.path / ".hoodie").exists()


def test_a_write_that_says_another_time_is_refused(tmp_path: Path) -> None:
    table = LabTable(tmp_path, BY_TIME, TIMES)
    table.upsert(times(range(2), 1))
    with pytest.raises(OptionError, match=r"output\.dateformat"):
        table.upsert(times(range(2), 1), hoodie__keygen__timebased__output__dateformat="yyyy")


def test_a_partition_column_of_the_wrong_type_is_refused_by_name(tmp_path: Path) -> None:
    table = LabTable(tmp_path, BY_TIME, TIMES)
    rows = times(range(2), 1)
    with pytest.raises(SchemaError, match="'at' is of type string, expected a number"):
        table.upsert(rows.set_column(2, "at", rows["k"]))
    assert not (table.path / ".hoodie").exists()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "kind",
    [{}, {**MOR, "hoodie.datasource.write.partitionpath.field": "ts"}],
    ids=["cow", "partitioned mor"],
)
def test_tables_without_record_keys(kind: dict[str, Any], strategy: str, tmp_path: Path) -> None:
    given = {**KEYLESS, **kind, "serde_lab.strategy": strategy}
    table = LabTable(tmp_path, given, TIMES)
    table.write("insert", times(range(20), 1), files=3)
    table.write("insert", times(range(20), 2), files=2)  # the same seed makes other file groups
    table.write("bulk_insert", times(range(15, 25), 1))
    expected = table.check()
    assert expected.fingerprint.rows == 50
    rows = plan_snapshot(table.table).read()
    keys = rows["_hoodie_record_key"].to_pylist()
    assert len(set(keys)) == 50
    assert all(re.fullmatch(r"\d{17}_\d+_\d+", key) for key in keys)
    assert "hoodie.table.recordkey.fields" not in table.table.config.to_properties()
    assert not validate_table(Storage.open(table.path), deep=True).findings


@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_what_looks_keys_up_is_refused_without_keys(operation: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, KEYLESS, TIMES)
    table.write("insert", times(range(3), 1))
    with pytest.raises(OptionError, match=r"has no record key \(insert adds"):
        table.write(operation, times(range(3), 2))


def test_insert_is_refused_with_keys(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="insert, which looks no key up"):
        LabTable(tmp_path).write("insert", pa.table({"k": ["a"]}))
