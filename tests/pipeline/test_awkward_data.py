"""Rows that break writers: extreme values of every type, any text, strange keys and partition values,
no rows, one key only. What hudi-rs and our reader see is what was given, bit by bit; or a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import DataError, LabError, StorageError, TableError
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.files import base_file
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.validation import validate_table
from serde_lab.verify.readers import HudiRs

Row = dict[str, Any]
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "3",
    "serde_lab.seed": "1",
}
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "p"}
ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
HIVE = "hoodie.datasource.write.hive_style_partitioning"
MOR = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
KINDS = pytest.mark.parametrize(
    "kind",
    [
        {},
        MOR,
        {**MOR, "hoodie.logfile.data.block.format": "avro"},
        {"serde_lab.strategy": "avro"},
        {"serde_lab.strategy": "pickle"},
        {"serde_lab.strategy": "internal_row"},
    ],
    ids=["cow", "mor", "mor-avro-blocks", "avro", "pickle", "internal-row"],
)

TABLE_TYPES = pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])

EVERY_TYPE = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("wide", pa.decimal128(38, 18)),
        ("fraction", pa.decimal128(9, 9)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("struct", pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int64()))])),
    ]
)
PLAIN = pa.schema([("p", pa.string()), ("k", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
TEXTS = [
    *("", "\x00", "a\x00b", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "e\u0301"),
    *("\u202e", "\ufeff", "'\"\\\n\r\t", "ſK", "%2F/=", "😀" * 50),
]
_NINES = "99999999999999999999.999999999999999999"
VALUES: dict[str, Row] = {
    "not a number": {"single": math.nan, "double": math.nan, "map": [("n", math.nan)]},
    "minus zero": {"single": -0.0, "double": -0.0, "struct": {"x": -0.0, "y": None}},
    "infinite": {"single": math.inf, "double": -math.inf},
    "tiny": {"single": 1e-45, "double": 5e-324},
    "most": {"wide": Decimal(_NINES), "fraction": Decimal("0.999999999")},
    "least": {"wide": Decimal("-" + _NINES), "fraction": Decimal("-0.000000001")},
    "first day": {"day": date(1, 1, 1), "at": datetime(1, 1, 1, tzinfo=UTC)},
    "before Gregory": {"day": date(1582, 10, 10), "at": datetime(1582, 10, 10, tzinfo=UTC)},
    "before 1970": {
        "day": date(1969, 12, 31),
        "at": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    },
    "last day": {
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    },
    "empty": {"text": "", "blob": b"", "list": [], "map": [], "struct": {"x": None, "y": []}},
    "every byte": {"blob": bytes(range(256)), "struct": {"x": 1.0, "y": [2**63 - 1, -(2**63)]}},
    "nothing": {},
    **{
        f"text {number}": {"text": text, "list": [text, text], "map": [(text, 1.0)]}
        for number, text in enumerate(TEXTS)
    },
}


def upsert(
    folder: Path, rows: Sequence[Row], schema: pa.Schema, options: Mapping[str, str]
) -> None:
    storage = Storage.open(folder)
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    parsed = parse_options({**OPTIONS, **options}, stored)
    full = [dict.fromkeys(schema.names) | row for row in rows]
    batch = pa.RecordBatch.from_pylist(full, schema=schema)
    PreparedWrite.of(storage, schema, parsed).commit(InProcessExchange([[batch]]))


def exact(value: Any) -> Any:
    """A form in which minus zero differs from zero, and NaN equals itself."""
    if isinstance(value, float):
        return f"{value!r}"
    if isinstance(value, dict):
        return {key: exact(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [exact(one) for one in value]
    return value


def rows_of(table: pa.Table, schema: pa.Schema) -> list[Row]:
    rows = table.select(schema.names).to_pylist()
    return sorted((exact(row) for row in rows), key=lambda row: (str(row.get("p")), row["k"]))


def check(folder: Path, rows: Sequence[Row], schema: pa.Schema) -> None:
    """hudi-rs and our reader see `rows`; the doctor finds nothing; compaction changes nothing."""
    full = pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema=schema)
    expected = rows_of(full, schema)
    table = HoodieTable.open(Storage.open(folder))
    assert rows_of(plan_snapshot(table).read(), schema) == expected
    assert rows_of(HudiRs(str(folder)).table(), schema) == expected
    assert {f.name for f in validate_table(table.storage, deep=True).findings} <= {
        "key-in-partitions"
    }
    if table.config.is_mor and compact(table) is not None:
        assert rows_of(plan_snapshot(table).read(), schema) == expected


def check_nothing_left(folder: Path) -> None:
    """After a first write that failed: no file, and no `.hoodie`, which Apache Hudi takes for a table."""
    assert not HoodieTable.exists(Storage.open(folder))
    assert not (folder / ".hoodie").exists()
    assert not [path for path in folder.rglob("*") if path.is_file()]


@KINDS
def test_extreme_values_come_back_bit_by_bit(kind: dict[str, str], tmp_path: Path) -> None:
    rows = [{"k": key, "ts": 1, **row} for key, row in VALUES.items()]
    upsert(tmp_path, rows, EVERY_TYPE, kind)
    check(tmp_path, rows, EVERY_TYPE)
    # carried over, or merged, with every second row replaced
    later = [{**row, "ts": 2} for row in rows[::2]]
    upsert(tmp_path, later, EVERY_TYPE, kind)
    check(tmp_path, [*later, *rows[1::2]], EVERY_TYPE)


@TABLE_TYPES
def test_any_text_is_a_key(kind: dict[str, str], tmp_path: Path) -> None:
    keys = [*TEXTS[1:], " ", "k:v", "k:v,k2:v", "null", "__null__", "__empty__", "x" * 5_000]
    rows = [{"k": key, "ts": 1, "v": "1"} for key in keys]
    upsert(tmp_path, rows, PLAIN, kind)
    later = [{**row, "ts": 2, "v": "2"} for row in rows]
    upsert(tmp_path, later, PLAIN, kind)
    check(tmp_path, later, PLAIN)


@pytest.mark.parametrize("keys", [[None], [""], [None, "a"], [None, None]])
def test_a_row_without_a_key_is_refused(keys: list[str | None], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^record key column 'k' is null or empty in [12] rows$"):
        upsert(tmp_path, [{"k": key, "ts": 1} for key in keys], PLAIN, {})
    check_nothing_left(tmp_path)


PATHS = [
    *("%", "%2F", "=", "p=1", " ", "  x ", "ü", "\\", "?", "*", "#", "x" * 200, "'", '"'),
    *("~", "+", "&", "null", ".hidden", "_u", "{", "[a]", "__HIVE_DEFAULT_PARTITION__", "..."),
]
ENCODED = ["a/b", "/", "a\nb", "\x00", "\x7f", "../x"]
SCHEME = "a:b"


@pytest.mark.slow
@pytest.mark.parametrize("hive", ["true", "false"])
@pytest.mark.parametrize("encode", ["true", "false"])
@TABLE_TYPES
def test_partitions_of_strange_names(
    kind: dict[str, str], encode: str, hive: str, tmp_path: Path
) -> None:
    values = (
        PATHS + [*ENCODED, SCHEME] * (encode == "true") + [".", "..", ".hoodie"] * (hive == "true")
    )
    options = {**kind, **PARTITIONED, ENCODE: encode, HIVE: hive}
    rows = [{"p": value, "k": "k", "ts": 1, "v": value} for value in values]
    upsert(tmp_path, rows, PLAIN, options)
    later = [{**row, "ts": 2, "v": "later"} for row in rows]
    upsert(tmp_path, later, PLAIN, options)
    check(tmp_path, later, PLAIN)


@pytest.mark.parametrize("value", ENCODED)
@pytest.mark.parametrize("hive", ["true", "false"])
def test_what_is_no_folder_name_is_refused(value: str, hive: str, tmp_path: Path) -> None:
    options = {**PARTITIONED, ENCODE: "false", HIVE: hive}
    with pytest.raises(DataError, match=r"'p' holds .* which is not a single folder name"):
        upsert(tmp_path, [{"p": value, "k": "k", "ts": 1}], PLAIN, options)


@pytest.mark.parametrize("value", [".", "..", ".hoodie"])
@pytest.mark.parametrize("encode", ["true", "false"])
def test_folders_that_no_reader_looks_into_are_refused(
    value: str, encode: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"'p' holds .* which is a reserved folder name"):
        upsert(tmp_path, [{"p": value, "k": "k", "ts": 1}], PLAIN, {**PARTITIONED, ENCODE: encode})


@pytest.mark.parametrize("value", ["", None])
def test_no_partition_value_is_the_default_partition(value: str | None, tmp_path: Path) -> None:
    rows = [{"p": value, "k": "k", "ts": 1}]
    upsert(tmp_path, rows, PLAIN, PARTITIONED)
    check(tmp_path, rows, PLAIN)
    assert (tmp_path / "__HIVE_DEFAULT_PARTITION__").is_dir()


def test_a_folder_name_that_the_system_refuses_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"[nN]ame too long"):
        upsert(tmp_path, [{"p": "x" * 300, "k": "k", "ts": 1}], PLAIN, PARTITIONED)
    check_nothing_left(tmp_path)


@TABLE_TYPES
def test_values_of_ten_megabytes(kind: dict[str, str], tmp_path: Path) -> None:
    rows = [
        {"k": "ascii", "ts": 1, "v": "x" * 10_000_000},
        {"k": "wide", "ts": 1, "v": "€" * 3_400_000},
        {"k": "none", "ts": 1, "v": ""},
    ]
    upsert(tmp_path, rows, PLAIN, kind)
    check(tmp_path, rows, PLAIN)


@TABLE_TYPES
def test_no_rows_one_key_and_another_partition(kind: dict[str, str], tmp_path: Path) -> None:
    options = {**kind, **PARTITIONED}
    upsert(tmp_path, [], PLAIN, options)
    check(tmp_path, [], PLAIN)
    # of one key the highest ordering value wins, and of equals the last
    many = [{"p": "p", "k": "k", "ts": number % 7, "v": str(number)} for number in range(1000)]
    upsert(tmp_path, many, PLAIN, options)
    check(tmp_path, [{"p": "p", "k": "k", "ts": 6, "v": "993"}], PLAIN)
    upsert(tmp_path, [], PLAIN, options)
    # a key is unique in its partition: in another one it is another row
    upsert(tmp_path, [{"p": "q", "k": "k", "ts": 1, "v": "moved"}], PLAIN, options)
    check(
        tmp_path,
        [{"p": "p", "k": "k", "ts": 6, "v": "993"}, {"p": "q", "k": "k", "ts": 1, "v": "moved"}],
        PLAIN,
    )


def test_composite_keys_of_nulls_and_separators(tmp_path: Path) -> None:
    options = {"hoodie.datasource.write.recordkey.field": "k,v"}
    texts = ["a", "a:b", "a,v:c", "", ",", "v:1"]
    rows = [{"k": k, "ts": 1, "v": v} for k in texts for v in [*texts, None] if k or v]
    upsert(tmp_path, rows, PLAIN, options)
    table = HoodieTable.open(Storage.open(tmp_path))
    assert plan_snapshot(table).read().num_rows == len(rows)
    with pytest.raises(LabError, match="k, v are all null or empty in 1 rows"):
        upsert(tmp_path, [{"k": None, "ts": 1, "v": None}], PLAIN, options)


OF_DAYS = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("struct", pa.struct([("day", pa.date32())])),
        ("list", pa.list_(pa.date32())),
    ]
)
NEW_DAYS = {
    "day": date(1900, 1, 1),
    "at": datetime(1900, 1, 1, tzinfo=UTC),
    "struct": {"day": date(9999, 12, 31)},
    "list": [date(1969, 12, 31)],
}
OLD_DAYS = {
    "day": date(1500, 1, 10),
    "at": datetime(1890, 1, 1, tzinfo=UTC),
    "struct": {"day": date(1500, 1, 10)},
    "list": [date(1, 1, 1)],
}


@TABLE_TYPES
@pytest.mark.parametrize(
    "footer",
    [
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
    ],
    ids=["spark 2", "legacy mode"],
)
@pytest.mark.parametrize("column", ["", *OLD_DAYS])
def test_old_dates_of_sparks_legacy_calendar_are_refused(
    column: str,
    footer: dict[str, str],
    kind: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would be taken for other days, and rewritten as such, without the mark, forever."""
    kind = {**kind, "hoodie.bucket.index.num.buckets": "1"}
    rows: list[Row] = [{"k": "a", "ts": 1, **NEW_DAYS}, {"k": "b", "ts": 1}]
    if column:
        rows[0] |= {column: OLD_DAYS[column]}
    with monkeypatch.context() as patched:
        patched.setattr(base_file, "CALENDAR", footer)
        upsert(tmp_path, rows, OF_DAYS, kind)
    newer: Row = {"k": "b", "ts": 2, **NEW_DAYS}
    if not column:
        upsert(tmp_path, [newer], OF_DAYS, kind)
        check(tmp_path, [rows[0], newer], OF_DAYS)
        return
    refused = pytest.raises(
        TableError, match=rf"column '{column}.*' may hold dates or times before"
    )
    table = HoodieTable.open(Storage.open(tmp_path))
    with refused:
        plan_snapshot(table).read()
    assert plan_snapshot(table, columns=["k", "ts"]).read().num_rows == 2
    if not table.config.is_mor:
        with refused:
            upsert(tmp_path, [newer], OF_DAYS, kind)
        return
    upsert(tmp_path, [newer], OF_DAYS, kind)
    with refused:
        compact(table)
