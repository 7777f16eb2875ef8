"""Tables whose partitions are named by time, and tables without record keys, against DuckDB."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from serde_lab.errors import DataError, OptionError, PortabilityWarning, SchemaError, TableError
from serde_lab.pipeline.options.write import parse_options
from serde_lab.records import keys
from serde_lab.records.conversion import java_text
from serde_lab.table.config_properties import to_properties
from serde_lab.table.properties import format_properties, parse_properties
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
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


@pytest.mark.slow
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
    properties = to_properties(HoodieTable.open(Storage.open(table.path)).config)
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
            "needs the key generator TIMESTAMP",
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


DEEP = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        (
            "s",
            pa.struct(
                [
                    ("k", pa.string()),
                    ("p", pa.date32()),
                    ("in", pa.struct([("o", pa.int64()), ("n", pa.int32())])),
                ]
            ),
        ),
    ]
)
BRIDGE = "org.apache.hudi.common.model.HoodieAvroRecordMerger"
IN_STRUCTS = {
    "hoodie.datasource.write.recordkey.field": "s.k,id",
    "hoodie.datasource.write.precombine.field": "s.in.o",
}


def deep(numbers: range, ordering: int) -> pa.Table:
    """Rows with null and empty fields in their structs; days before 1970 among them."""
    rows = []
    for n in numbers:
        inner = {"o": ordering + n % 2, "n": None}
        text = ["a", "", None, "é,s.k:b"][n % 4]
        struct = {"k": text, "p": n % 3 - 1 if n % 5 else None, "in": inner}
        rows.append({"id": n, "x": n / 7 if n % 3 else -0.0, "s": struct})
    return pa.Table.from_pylist(rows, DEEP)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"hoodie.datasource.write.partitionpath.field": "s.p,s.in.n"},
        {**MOR, "hoodie.bucket.index.hash.field": "s.k"},
        {
            **MOR,
            "hoodie.datasource.write.partitionpath.field": "s.p",
            "hoodie.datasource.write.hive_style_partitioning": "true",
        },
        {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        {"hoodie.write.record.merge.custom.implementation.classes": BRIDGE, **MOR},
    ],
    ids=["cow", "partitioned cow", "mor", "partitioned mor", "gaps", "payloads"],
)
def test_key_partition_and_ordering_fields_in_structs(
    kind: dict[str, str], strategy: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**IN_STRUCTS, **kind, "serde_lab.strategy": strategy}, DEEP)
    table.upsert(deep(range(20), 5))
    table.upsert(deep(range(5, 25), 4))  # late
    table.upsert(deep(range(15, 30), 6))
    table.delete(deep(range(3, 8), 0).select(["s", "id"]))
    # hudi-rs: no such partitions, and no such ordering in logs
    expected = table.check(by_rust=kind == {})
    assert expected.fingerprint.rows == 25
    properties = to_properties(table.table.config)
    assert properties["hoodie.table.recordkey.fields"] == "s.k,id"
    assert properties["hoodie.table.ordering.fields"] == "s.in.o"
    assert not validate_table(Storage.open(table.path), deep=True).findings
    if "hoodie.datasource.write.hive_style_partitioning" in kind:
        folders = {f.name for f in table.path.iterdir()}
        assert folders >= {"s.p=1969-12-31", "s.p=__HIVE_DEFAULT_PARTITION__"}
        table.compact()
        table.check(by_rust=False)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"recordkey": "s.z"}, r"record key column 's.z' is not in the data, .* s.k, s.p, s.in"),
        ({"recordkey": "s.in.z"}, r"'s.in.z' is not in the data, .* s.in.o, s.in.n"),
        ({"recordkey": "id.z"}, r"'id.z' is not in the data, .* id, x, s"),
        ({"recordkey": "s.in"}, r"record key column 's.in' is of type struct"),
        ({"partitionpath": "s.in"}, r"partition column 's.in' is of type struct"),
        ({"precombine": "s.q"}, r"ordering column 's.q' is not in the data"),
    ],
)
def test_fields_that_are_not_there_are_refused_by_path(
    fields: dict[str, str], says: str, tmp_path: Path
) -> None:
    given = {f"hoodie.datasource.write.{role}.field": path for role, path in fields.items()}
    table = LabTable(tmp_path, {**IN_STRUCTS, **given}, DEEP)
    with pytest.raises(SchemaError, match=says):
        table.upsert(deep(range(3), 1))
    assert not (table.path / ".hoodie").exists()


def test_a_key_field_in_a_null_struct_is_refused_and_nothing_is_committed(tmp_path: Path) -> None:
    options = {**IN_STRUCTS, "hoodie.datasource.write.precombine.field": "id"}
    table = LabTable(tmp_path, options, DEEP)
    rows = deep(range(3), 1).set_column(2, "s", pa.nulls(3, DEEP.field("s").type))
    with pytest.raises(DataError, match=r"'s.k' does not exist in .* rows, whose 's' is null"):
        table.upsert(rows)
    assert not HoodieTable.exists(Storage.open(table.path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
def test_structs_of_key_fields_may_grow(kind: dict[str, str], tmp_path: Path) -> None:
    inner = DEEP.field("s").type
    wider = pa.struct([("in", pa.struct([("n", pa.int32()), ("o", pa.int64())])), *list(inner)[:2]])
    moved = DEEP.set(2, pa.field("s", pa.struct([("new", pa.int32()), *wider])))
    last = DEEP.set(2, pa.field("s", pa.struct([*inner, ("new", pa.int32())])))
    options = {**IN_STRUCTS, **kind, "hoodie.datasource.write.partitionpath.field": "s.p"}
    table = LabTable(tmp_path, options, last)
    table.upsert(deep(range(10), 2))
    table.upsert(pa.Table.from_pylist(deep(range(5, 15), 1).to_pylist(), moved))
    table.upsert(pa.Table.from_pylist(deep(range(8, 18), 3).to_pylist(), moved))
    table.delete(deep(range(3), 0).select(["id", "s"]))
    table.check(by_rust=False)


CUSTOM = {
    **BY_TIME,
    "hoodie.datasource.write.keygenerator.type": "CUSTOM",
    "hoodie.datasource.write.partitionpath.field": "x:SIMPLE,at:timestamp",
}
PARTITION = "hoodie.datasource.write.partitionpath.field"
NO_TIMES: dict[str, str | None] = {key: None for key in BY_TIME if "timebased" in key}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize("version", ["9", "6"])
@pytest.mark.parametrize("style", ["plain", "hive", "escaped"])
@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
def test_partitions_of_the_custom_generator(
    kind: dict[str, str], style: str, version: str, tmp_path: Path
) -> None:
    styles = {
        "plain": {},
        "hive": {"hoodie.datasource.write.hive_style_partitioning": "true"},
        "escaped": {"hoodie.datasource.write.partitionpath.urlencode": "true"},
    }
    more = {**kind, **styles[style], "hoodie.write.table.version": version}
    table = LabTable(tmp_path, {**CUSTOM, **more}, TIMES)
    table.upsert(times(range(20), 1))
    table.upsert(times(range(10, 30), 2))
    table.delete(times(range(5), 3).select(["at", "k", "x"]))
    table.check(by_rust=False)
    first = {
        "plain": "0.0/1970/01/01",
        "hive": "x=0.0/at=1970/01/01",
        "escaped": "0.0/1970%2F01%2F01",
    }[style]
    assert (table.path / first / ".hoodie_partition_metadata").exists()
    keys = plan_snapshot(table.table).read()["_hoodie_record_key"].to_pylist()
    assert "k7" in keys  # bare, under two partition fields too
    properties = to_properties(table.table.config)
    if version == "9":
        assert properties["hoodie.table.keygenerator.type"] == "CUSTOM"
        assert properties["hoodie.table.partition.fields"] == "x:SIMPLE,at:TIMESTAMP"
        text = (table.path / ".hoodie/hoodie.properties").read_text()
        assert "hoodie.table.partition.fields=x\\:SIMPLE,at\\:TIMESTAMP" in text
    else:
        # version 6 has no words for the kinds: each write names them
        assert properties["hoodie.table.keygenerator.class"].endswith(".CustomKeyGenerator")
        assert properties["hoodie.table.partition.fields"] == "x,at"
        with pytest.raises(OptionError, match="does not store the kinds of its partition fields"):
            LabTable(tmp_path, {**CUSTOM, **more, PARTITION: None}, TIMES).upsert(
                times(range(2), 1)
            )
    assert not validate_table(Storage.open(table.path), deep=True).findings


def test_a_custom_generator_without_partitions_or_without_times(tmp_path: Path) -> None:
    none = LabTable(tmp_path / "none", {**CUSTOM, **NO_TIMES, PARTITION: ""}, TIMES)
    none.upsert(times(range(9), 1))
    none.check()
    simple = LabTable(tmp_path / "simple", {**CUSTOM, **NO_TIMES, PARTITION: "x:SIMPLE"}, TIMES)
    with pytest.warns(PortabilityWarning, match="^field x:SIMPLE: hudi-rs 0.5.0 cannot read"):
        simple.upsert(times(range(9), 1))
    simple.check(by_rust=False)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("x", "CUSTOM needs the kinds of x"),
        ("x:SIMPLE,at", "has 'at', expected a field and :SIMPLE or :TIMESTAMP"),
        ("x:PLAIN", "has 'x:PLAIN', expected"),
        ("x:SIMPLE:y", "has 'x:SIMPLE:y', expected"),
        (
            "x:SIMPLE",
            "needs the key generator TIMESTAMP, or a field of kind TIMESTAMP",
        ),
    ],
)
def test_kinds_that_cannot_be_are_refused(field: str, says: str, tmp_path: Path) -> None:
    times_too = NO_TIMES if field == "x" else {}
    table = LabTable(tmp_path, {**CUSTOM, **times_too, PARTITION: field}, TIMES)
    with pytest.raises(OptionError, match=says):
        table.upsert(times(range(2), 1))
    assert not (table.path / ".hoodie").exists()


@pytest.mark.parametrize("maker", ["hudi", "lab"])
@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE", "BLOOM", "FLINK_STATE"])
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_keys_of_the_form_that_some_releases_wrote_are_refused(
    tmp_path: Path, index: str, maker: str
) -> None:
    """HUDI-7001: one key field under several partition fields, without the field's name.

    The releases that wrote it write to a table of version 6 that the lab made, too.
    """
    of_index: dict[str, Any] = {"hoodie.index.type": index}
    if index != "BUCKET":
        of_index["hoodie.bucket.index.num.buckets"] = None
    options = {**CUSTOM, **NO_TIMES, **of_index, PARTITION: "x:SIMPLE,at:SIMPLE"}
    LabTable(tmp_path, options, TIMES).upsert(times(range(9), 1))
    place = tmp_path / "table/.hoodie/hoodie.properties"
    stated = parse_properties(place.read_text())
    stated |= {
        "hoodie.table.partition.fields": "x,at",
        "hoodie.table.keygenerator.type": "COMPLEX",
    }
    if maker == "hudi":
        stated = {key: text for key, text in stated.items() if not key.startswith("serde_lab")}
    else:
        del stated["hoodie.table.initial.version"]
    place.write_text(format_properties(stated))
    plain = {"hoodie.datasource.write.recordkey.field": "k", **of_index, PARTITION: "x,at"}
    with pytest.raises(
        TableError, match=r"a row as 'k[0-9]', and a write would look for it as 'k:k"
    ):
        LabTable(tmp_path, plain, TIMES).upsert(times(range(9), 2))
    stated |= {"hoodie.table.complex.keygen.encoding": "VALUE_ONLY"}
    place.write_text(format_properties(stated))
    with pytest.raises(TableError, match=r"encoding is VALUE_ONLY, so a record key lacks the name"):
        LabTable(tmp_path, plain, TIMES).upsert(times(range(9), 2))


@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_a_single_key_of_the_generator_complex_has_its_name(tmp_path: Path, index: str) -> None:
    """As in tables of Apache Hudi's whose writers always set that class."""
    of_index: dict[str, Any] = {"hoodie.index.type": index}
    if index != "BUCKET":
        of_index["hoodie.bucket.index.num.buckets"] = None
    plain = {"hoodie.datasource.write.recordkey.field": "k", **of_index, PARTITION: "x"}
    table = LabTable(tmp_path, plain, TIMES)
    named = times(range(9), 1)
    keys = pa.array([f"k:{key}" for key in named["k"].to_pylist()])
    table.upsert(named.set_column(named.schema.get_field_index("k"), "k", keys))
    place = table.path / ".hoodie/hoodie.properties"
    stated = parse_properties(place.read_text()) | {"hoodie.table.keygenerator.type": "COMPLEX"}
    place.write_text(format_properties(stated))
    table.upsert(times(range(9), 2))
    assert plan_snapshot(table.table).read().num_rows == 9


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_times_that_a_table_does_not_state_are_each_writes_to_say(tmp_path: Path) -> None:
    """So Apache Hudi leaves its own tables of the key generator CUSTOM."""
    table = LabTable(tmp_path, CUSTOM, TIMES)
    table.upsert(times(range(20), 1))
    place = table.path / ".hoodie/hoodie.properties"
    stated = parse_properties(place.read_text())
    less = {key: text for key, text in stated.items() if "timebased" not in key}
    place.write_text(format_properties(less))
    with pytest.raises(OptionError, match=r"timebased\.timestamp\.type is '', expected one of"):
        LabTable(tmp_path, {**CUSTOM, **NO_TIMES}, TIMES).upsert(times(range(2), 2))
    assert not validate_table(Storage.open(table.path), deep=True).findings
    table.upsert(times(range(10, 30), 2))
    table.check(by_rust=False)


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_kinds_are_the_tables_for_good(tmp_path: Path) -> None:
    table = LabTable(tmp_path, CUSTOM, TIMES)
    table.upsert(times(range(2), 1))
    with pytest.raises(OptionError, match=r"partition kinds .* has \('SIMPLE', 'TIMESTAMP'\)"):
        table.upsert(times(range(2), 1), **{PARTITION.replace(".", "__"): "x:TIMESTAMP,at:SIMPLE"})
    # what a write leaves open is as the table has it
    stored = table.table.config
    assert parse_options({"hoodie.table.name": "t"}, stored).table == stored
    with pytest.raises(OptionError, match="only the key generator CUSTOM has kinds of fields"):
        LabTable(tmp_path / "other", {PARTITION: "p:SIMPLE"}).upsert([])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:field ts.SIMPLE:serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {**MOR, "hoodie.datasource.write.partitionpath.field": "ts"},
        {
            "hoodie.datasource.write.keygenerator.type": "CUSTOM",
            "hoodie.datasource.write.partitionpath.field": "ts:SIMPLE",
        },
    ],
    ids=["cow", "partitioned mor", "custom"],
)
def test_tables_without_record_keys(kind: dict[str, Any], strategy: str, tmp_path: Path) -> None:
    given = {**KEYLESS, **kind, "serde_lab.strategy": strategy}
    table = LabTable(tmp_path, given, TIMES)
    table.write("insert", times(range(20), 1), files=3)
    table.write("insert", times(range(20), 2), files=2)  # the same seed makes other file groups
    table.write("bulk_insert", times(range(15, 25), 1))
    expected = table.check(by_rust=":SIMPLE" not in str(kind))
    assert expected.fingerprint.rows == 50
    rows = plan_snapshot(table.table).read()
    keys = rows["_hoodie_record_key"].to_pylist()
    assert len(set(keys)) == 50
    assert all(re.fullmatch(r"\d{17}_\d+_\d+", key) for key in keys)
    assert "hoodie.table.recordkey.fields" not in to_properties(table.table.config)
    assert not validate_table(Storage.open(table.path), deep=True).findings


@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_what_looks_keys_up_is_refused_without_keys(operation: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, KEYLESS, TIMES)
    table.write("insert", times(range(3), 1))
    with pytest.raises(OptionError, match=r"but the table t has none \(use insert"):
        table.write(operation, times(range(3), 2))


OF_TWO_TEXTS = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("x", pa.float64()),
    ]
)


def of_two_texts(count: int, ts: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "k": f"k{n}",
                "ts": ts,
                "at": datetime(2024, 3, 31, 1, 30, n, 123000, UTC),
                "raw": bytes([n, 255]),
                "x": 0.0,
            }
            for n in range(count)
        ],
        OF_TWO_TEXTS,
    )


def text_of_spark_rows(values: pa.Array) -> pa.Array:
    """What Apache Hudi's writers of Spark's rows make of a timestamp, or of bytes: it changes in each run."""
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values.cast(pa.timestamp("ms", "UTC")), "%Y-%m-%d %H:%M:%S")
    if pa.types.is_binary(values.type):
        return pa.array([f"[B@{hash(value):x}" for value in values.to_pylist()])
    return java_text(values)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE", "GLOBAL_SIMPLE"])
@pytest.mark.parametrize(
    ("key", "partition"), [("at", ""), ("raw", ""), ("k,at", "k"), ("k", "at"), ("k", "raw,x")]
)
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_rows_whose_key_or_folder_has_another_text_are_refused(
    key: str,
    partition: str,
    index: str,
    kind: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Apache Hudi's writers of Spark's rows leave them; an upsert would add each of them once more."""
    options = {
        "hoodie.datasource.write.recordkey.field": key,
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        PARTITION: partition,
        "hoodie.index.type": index,
        "hoodie.bucket.index.num.buckets": "2" if index == "BUCKET" else None,
        **kind,
    }
    table = LabTable(tmp_path, options, OF_TWO_TEXTS)
    with monkeypatch.context() as patched:
        patched.setattr(keys, "java_text", text_of_spark_rows)
        table.upsert(of_two_texts(5, 1))
    if key == "k" and index == "GLOBAL_SIMPLE":
        # a global index finds the key in any folder, and moves the row
        table.upsert(of_two_texts(5, 2))
        assert plan_snapshot(table.table).read().num_rows == 5
        return
    for operation in ("upsert", "delete"):
        with pytest.raises(
            TableError, match=r"holds a row as '.*', and a write would look for it as"
        ):
            table.write(operation, of_two_texts(5, 2))
    again = LabTable(tmp_path / "ours", options, OF_TWO_TEXTS)
    again.upsert(of_two_texts(5, 1))
    again.upsert(of_two_texts(5, 2))
    assert plan_snapshot(again.table).read().num_rows == 5
