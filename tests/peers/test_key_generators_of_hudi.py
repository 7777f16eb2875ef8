"""Apache Hudi's own key generators, called in its JVM, beside both of our readings of them.

They are asked as a write with the AVRO record type asks them. With SPARK some types have another text
(`test_the_spark_record_type_writes_other_texts`): a table is to be written with one of the two.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.avro.schema import arrow_to_avro
from serde_lab.errors import DataError, OptionError
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.read import ReadOptions, plan_read
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.records.keys import KeyGenerator, PartitionKind
from serde_lab.records.partition_time import PREFIX, TimeRule
from serde_lab.records.schema import RecordSchema
from serde_lab.table.config_properties import split_kinds
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.key_text import partition_paths, record_keys
from serde_lab.verify.readers import HudiRs
from serde_lab.verify.table_rules import TableRules
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

MOMENT = dt.datetime(2024, 3, 31, 1, 30, 0, 123456, dt.UTC)
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a,b:c", "ü😀/=%'\"#*?\\{}[]^~ \x7f", "", None]),
    "int": (pa.int32(), [1, -5, 0, None]),
    "long": (pa.int64(), [2**62, -7, 0, None]),
    "flag": (pa.bool_(), [True, False, True, None]),
    "day": (pa.date32(), [dt.date(1992, 1, 2), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "price": (pa.decimal128(15, 2), [Decimal(v) for v in ("12.30", "-0.05", "0")] + [None]),
    "tiny": (
        pa.decimal128(20, 10),
        [Decimal(v) for v in ("0.0000000001", "0.000001", "0")] + [None],
    ),
    "single": (pa.float32(), [0.1, 1e7, float("nan"), None]),
    "double": (pa.float64(), [-1.5e-7, 9999999.0, float("-inf"), None]),
    "moment": (pa.timestamp("us", "UTC"), [MOMENT, BEFORE, MOMENT, None]),
    "clock": (
        pa.timestamp("us"),
        [m and m.replace(tzinfo=None) for m in (MOMENT, BEFORE, MOMENT, None)],
    ),
    "blob": (pa.binary(), [b"ab\xff", b"", b"\0", None]),
}
ROWS = pa.table(
    {name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()}
    | {"id": pa.array(range(4), pa.int64())}
)


def _number(random: Random, most: float) -> float:
    digits = round(random.uniform(-1, 1) * 10 ** random.randint(0, 7), random.randint(0, 5))
    power_of_two = 2.0 ** random.randint(-60, 60)
    return random.choice(
        [digits, float(random.randrange(10**17)), 10 ** random.uniform(-most, most), power_of_two]
    )


def _text(random: Random) -> str:
    known = [
        "__null__",
        "__empty__",
        "default",
        ":",
        "a:1,id:2",
        "e\u0301",
        "\u00a0",
        " ",
        "\U0010ffff",
    ]
    spans = [(1, 0x7F), (0x80, 0x2FF), (0x2000, 0xD7FF), (0xE000, 0x10FFFF)]
    drawn = (chr(random.randint(*random.choice(spans))) for _ in range(random.randint(1, 6)))
    return random.choice([random.choice(known), "".join(drawn)])


def _decimal(random: Random, digits: int, scale: int) -> Decimal:
    most = 10 ** random.randint(1, digits) - 1
    return Decimal(random.randint(-most, most)).scaleb(-scale)


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DRAWN: dict[pa.DataType, Callable[[Random], Any]] = {
    pa.string(): _text,
    pa.int8(): lambda random: random.randint(-128, 127),
    pa.int64(): lambda random: random.getrandbits(64) - 2**63,
    pa.float32(): lambda random: _number(random, 37),
    pa.float64(): lambda random: _number(random, 300),
    pa.date32(): lambda random: dt.date.fromordinal(random.randint(1, 3_652_059)),
    pa.timestamp("us", "UTC"): lambda random: (
        EPOCH + dt.timedelta(microseconds=random.randint(-(10**15), 10**15))
    ),
    pa.decimal128(28, 18): lambda random: _decimal(random, 28, 18),
    pa.decimal128(9, 7): lambda random: _decimal(random, 9, 7),
    pa.decimal128(28, 0): lambda random: _decimal(random, 28, 0),
    pa.binary(): lambda random: random.randbytes(random.randint(0, 9)),
}


@dataclass
class HudiKeys:
    """Rows as Hudi's key generators take them: Avro records, and Spark's rows."""

    session: SparkSession
    rows: pa.Table

    def __post_init__(self) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        hudi = self.session._jvm.org.apache.hudi  # type: ignore[union-attr]
        kinds = from_arrow_schema(self.rows.schema, prefer_timestamp_ntz=True)
        frame = self.session.createDataFrame(self.rows.to_pylist(), kinds)
        convert = hudi.AvroConversionUtils.createConverterToAvro(frame._jdf.schema(), "r", "ns")
        rows = list(frame._jdf.collectAsList())
        self.records = [convert.apply(row) for row in rows]
        catalyst = self.session._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
        self.spark_schema = frame._jdf.schema()
        inside = catalyst.CatalystTypeConverters.createToCatalystConverter(self.spark_schema)
        self.spark_rows = [inside.apply(row) for row in rows]

    def generator(self, name: str, key: str, partition: str, more: Mapping[str, str]) -> Any:
        hudi = self.session._jvm.org.apache.hudi  # type: ignore[union-attr]
        properties = hudi.common.config.TypedProperties()
        fields = {"recordkey": key, "partitionpath": partition}
        stated = {f"hoodie.datasource.write.{role}.field": value for role, value in fields.items()}
        for option, value in (stated | dict(more)).items():
            properties.setProperty(option, value)
        return getattr(hudi.keygen, f"{name}KeyGenerator")(properties)


@pytest.fixture(scope="module")
def keys(hudi_session: SparkSession) -> HudiKeys:
    return HudiKeys(hudi_session, ROWS)


def readings(
    rows: pa.Table,
    key: tuple[str, ...],
    partition: tuple[str, ...],
    time: Mapping[str, str] | None = None,
    kinds: tuple[PartitionKind, ...] = (),
    **style: bool,
) -> tuple[KeyGenerator, TableRules, pa.RecordBatch]:
    schema = RecordSchema(rows.schema, key, partition)
    (batch,) = rows.combine_chunks().to_batches()
    rule = None if time is None else TimeRule.from_properties(time)
    rules = TableRules(schema, time=time or {}, kinds=kinds, **style)
    return KeyGenerator(schema, time=rule, kinds=kinds, **style), rules, batch


def asked(question: Callable[[Any], str], record: Any) -> str:
    """What Hudi says of a record; "refused" where it raises."""
    try:
        return str(question(record))
    except Exception:
        # py4j has a kind of error of its own for each kind of trouble
        return "refused"


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("style", ["plain", "hive", "escaped", "both"])
def test_every_type_as_key_and_as_partition(name: str, style: str, keys: HudiKeys) -> None:
    flags = {"hive_style": style in ("hive", "both"), "url_encode": style in ("escaped", "both")}
    options = {
        "hoodie.datasource.write.hive_style_partitioning": str(flags["hive_style"]).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(flags["url_encode"]).lower(),
    }
    several = keys.generator("Complex", f"{name},id", f"{name},id", options)
    one = keys.generator("Simple", "id", name, options)
    hudi_keys = [several.getRecordKey(record) for record in keys.records]
    maker, rules, batch = readings(ROWS, (name, "id"), (name, "id"), **flags)
    assert maker.record_keys(batch).to_pylist() == hudi_keys
    assert record_keys(batch, rules).to_pylist() == hudi_keys
    for fields, generator in (((name, "id"), several), ((name,), one)):
        paths = [generator.getPartitionPath(record) for record in keys.records]
        maker, rules, batch = readings(ROWS, ("id",), fields, **flags)
        assert partition_paths(batch, rules).to_pylist() == paths
        if name != "text" or flags["url_encode"]:
            assert maker.partition_paths(batch).to_pylist() == paths
        else:
            # Hudi makes folders in folders of such a value, and unprintable names, or fails
            with pytest.raises(DataError, match=r"not a single folder name|before a colon"):
                maker.partition_paths(batch)


@pytest.mark.parametrize("kind", DRAWN, ids=str)
def test_drawn_values_of_every_type(kind: pa.DataType, hudi_session: SparkSession) -> None:
    random = Random(str(kind))
    values = [DRAWN[kind](random) for _ in range(400)]
    rows = pa.table({"x": pa.array(values, kind), "id": pa.array(range(len(values)), pa.int64())})
    hudi = HudiKeys(hudi_session, rows)
    escaped = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
    several = hudi.generator("Complex", "x,id", "", {})
    one = hudi.generator("Simple", "id", "x", escaped)
    keys_of, _, _ = readings(rows, ("x", "id"), ())
    paths_of, _, batch = readings(rows, ("id",), ("x",), url_encode=True)
    refused = 0
    for number, record in enumerate(hudi.records):
        row = batch.slice(number, 1)
        try:
            made = keys_of.record_keys(row).to_pylist() + paths_of.partition_paths(row).to_pylist()
        except DataError:
            assert pa.types.is_floating(kind)
            refused += 1
            continue
        assert made == [several.getRecordKey(record), one.getPartitionPath(record)], values[number]
    # of floats most are beyond the integers that they hold one by one
    assert refused < 0.7 * len(values)


@pytest.mark.parametrize("name", COLUMNS)
def test_one_key_alone(name: str, keys: HudiKeys) -> None:
    generator = keys.generator("Nonpartitioned", name, "", {})
    for number, record in enumerate(keys.records):
        maker, _, batch = readings(ROWS.slice(number, 1), (name,), ())
        expected = asked(generator.getRecordKey, record)
        if expected == "refused":
            with pytest.raises(DataError, match="null or empty"):
                maker.record_keys(batch)
        else:
            assert maker.record_keys(batch).to_pylist() == [expected]


def test_the_spark_record_type_writes_other_texts(keys: HudiKeys) -> None:
    """The types whose keys depend on the record type; the lab writes those of AVRO, Hudi's default."""
    other = set()
    for name in COLUMNS:
        generator = keys.generator("Complex", f"{name},id", "", {})
        avro = [generator.getRecordKey(record) for record in keys.records]
        texts = [generator.getRecordKey(row, keys.spark_schema) for row in keys.spark_rows]
        if [text.toString() for text in texts] != avro:
            other.add(name)
    assert other == {"moment", "blob"}


NUMBERS = [0, 1, -1, 1_700_000_000, 1_700_000_000_123, -86_400_001, 20_000, None]
TEXTS = [
    "2024-02-29T01:02:03+0200",
    "2024-02-29t01:02:03Z",
    "2024-03-31T02:30:00+01:00",
    "2024-1-2",
    "2024-03-31",
    "2024-10-27",
    "2024-02-30",
    "2024-03-31T02:30:00+01:00 ",
    "0001-01-01",
    "",
    None,
]
PATTERNS = "yyyy-MM-dd'T'HH:mm:ssZ, yyyy-MM-dd"
ZONES: dict[str, dict[str, str]] = {
    "none": {},
    "both": {"timezone": "Europe/Berlin"},
    "output": {"output.timezone": "GMT+5:30"},
    "input": {"input.timezone": "America/New_York"},
    "two": {"output.timezone": "Asia/Tokyo", "input.timezone": "America/New_York"},
}
OUTPUTS = [
    "yyyy/MM/dd/HH",
    "yyyyMMddhhmmssSSS a",
    "E EEEE e w xxxx D MMM MMMM yy k K h m",
    "'o''clock' H",
]
INPUTS: list[tuple[pa.DataType, Sequence[Any], dict[str, str]]] = [
    (pa.int64(), NUMBERS[:4], {"timestamp.type": "UNIX_TIMESTAMP"}),
    (pa.int64(), NUMBERS, {"timestamp.type": "EPOCHMILLISECONDS"}),
    (pa.int64(), NUMBERS, {"timestamp.type": "EPOCHMICROSECONDS"}),
    (
        pa.int32(),
        [1, -1, 19_000],
        {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "days"},
    ),
    (
        pa.int64(),
        [1, -1, 10**15],
        {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "NANOSECONDS"},
    ),
    (pa.float64(), [0.5, -1.5, 1.7e9, None], {"timestamp.type": "UNIX_TIMESTAMP"}),
    (pa.float32(), [0.5, -1.5, None], {"timestamp.type": "UNIX_TIMESTAMP"}),
    (
        pa.decimal128(15, 2),
        [Decimal("-1.90"), Decimal("1.7E9"), None],
        {"timestamp.type": "UNIX_TIMESTAMP"},
    ),
    (
        pa.date32(),
        [MOMENT.date(), None],
        {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS"},
    ),
    (pa.timestamp("us", "UTC"), [MOMENT, BEFORE, None], {"timestamp.type": "EPOCHMICROSECONDS"}),
    (pa.string(), TEXTS, {"timestamp.type": "DATE_STRING", "input.dateformat": PATTERNS}),
    (pa.string(), TEXTS, {"timestamp.type": "MIXED", "input.dateformat": PATTERNS}),
    (
        pa.string(),
        [
            "1 feb 2024 12 am",
            "01 February 2024 12 PM",
            "29 Feb 2023 1 AM",
            "1 Feb 2024 13 PM",
            None,
        ],
        {"timestamp.type": "DATE_STRING", "input.dateformat": "dd MMM yyyy hh a"},
    ),
    (
        pa.string(),
        ["20240331 013000.5", "20240331 013000.", "2024033 013000.1", "20240331 013000.1234"],
        {
            "timestamp.type": "DATE_STRING",
            "input.dateformat": "yyyyMMdd HHmmss.SSS;yyyy",
            "input.dateformat.list.delimiter.regex": ";",
        },
    ),
]


@pytest.mark.parametrize("case", range(len(INPUTS)))
def test_folders_named_by_time(case: int, hudi_session: SparkSession) -> None:
    kind, values, stated = INPUTS[case]
    rows = pa.table({"id": pa.array(range(len(values))), "at": pa.array(values, kind)})
    hudi = HudiKeys(hudi_session, rows)
    for zones in ZONES.values():
        for output in OUTPUTS:
            given = {**stated, **zones, "output.dateformat": output}
            properties = {f"{PREFIX}{key}": value for key, value in given.items()}
            generator = hudi.generator("TimestampBased", "id", "at", properties)
            for number, record in enumerate(hudi.records):
                expected = asked(generator.getPartitionPath, record)
                maker, rules, batch = readings(rows.slice(number, 1), ("id",), ("at",), properties)
                if expected == "refused":
                    with pytest.raises(DataError):
                        maker.partition_paths(batch)
                    continue
                assert maker.partition_paths(batch).to_pylist() == [expected], (
                    values[number],
                    given,
                )
                # what the second reading knows: four digits of a year, months by number
                judged = values[number] != "0001-01-01" and "MMM" not in given.get(
                    "input.dateformat", ""
                )
                if output == OUTPUTS[0] and judged:
                    assert partition_paths(batch, rules).to_pylist() == [expected], (
                        values[number],
                        given,
                    )


STRUCT = pa.struct(
    [
        ("a", pa.string()),
        ("n", pa.int64()),
        ("x", pa.struct([("d", pa.date32()), ("m", pa.decimal128(9, 2))])),
    ]
)
STRUCTS: list[dict[str, Any] | None] = [
    {"a": "a/b c", "n": 7, "x": {"d": dt.date(1969, 12, 31), "m": Decimal("-0.05")}},
    {"a": "", "n": None, "x": {"d": None, "m": None}},
    {"a": None, "n": -1, "x": None},
    None,
]
IN_STRUCTS = pa.table(
    {
        "id": pa.array(range(4), pa.int64()),
        "p": pa.array(["a/b", "", None, "ü=1"]),
        "at": pa.array([1_700_000_000, -1, None, 0], pa.int64()),
        "s": pa.array(STRUCTS, STRUCT),
    }
)
SECONDS = {
    f"{PREFIX}timestamp.type": "UNIX_TIMESTAMP",
    f"{PREFIX}output.dateformat": "yyyy/MM/dd",
    f"{PREFIX}timezone": "America/New_York",
}


@pytest.fixture(scope="module")
def struct_keys(hudi_session: SparkSession) -> HudiKeys:
    return HudiKeys(hudi_session, IN_STRUCTS)


def compare(
    hudi: HudiKeys,
    generator: Any,
    fields: tuple[tuple[str, ...], tuple[str, ...]],
    **more: Any,
) -> None:
    """Row by row, since one that Hudi refuses hides the others."""
    for number, record in enumerate(hudi.records):
        maker, rules, batch = readings(hudi.rows.slice(number, 1), *fields, **more)
        for question, ours, judge in (
            (generator.getRecordKey, maker.record_keys, record_keys),
            (generator.getPartitionPath, maker.partition_paths, partition_paths),
        ):
            expected = asked(question, record)
            if expected == "refused":
                with pytest.raises(DataError, match=r"null or empty|does not exist"):
                    ours(batch)
                continue
            assert judge(batch, rules).to_pylist() == [expected]
            if judge is partition_paths and "a/b" in expected:
                # Hudi makes folders in folders of such a value
                with pytest.raises(DataError, match="not a single folder name"):
                    ours(batch)
                continue
            assert ours(batch).to_pylist() == [expected]


STYLES = [{}, {"hive_style": True}, {"url_encode": True}, {"hive_style": True, "url_encode": True}]


def styled(style: Mapping[str, bool]) -> dict[str, str]:
    names = {"hive_style": "hive_style_partitioning", "url_encode": "partitionpath.urlencode"}
    return {f"hoodie.datasource.write.{names[key]}": "true" for key in style}


@pytest.mark.parametrize("style", STYLES)
def test_fields_in_structs(style: dict[str, bool], struct_keys: HudiKeys) -> None:
    for kind, key, partition in (
        ("Nonpartitioned", ("s.a",), ()),
        ("Nonpartitioned", ("s.x.d", "s.x.m"), ()),
        ("Simple", ("s.n",), ("s.a",)),
        ("Simple", ("s.x.m",), ("s.x.d",)),
        ("Complex", ("s.n", "id"), ("s.x.d", "s.a")),
        ("Complex", ("id",), ("s.x.m", "s.n")),
    ):
        generator = struct_keys.generator(kind, ",".join(key), ",".join(partition), styled(style))
        compare(struct_keys, generator, (key, partition), **style)
    by_time = struct_keys.generator("TimestampBased", "id", "s.n", SECONDS | styled(style))
    compare(struct_keys, by_time, (("id",), ("s.n",)), time=SECONDS, **style)


@pytest.mark.parametrize("style", STYLES)
def test_the_custom_generator(style: dict[str, bool], struct_keys: HudiKeys) -> None:
    for key, stated in (
        (("id",), "p:SIMPLE"),
        (("id",), "at:timestamp"),
        (("id",), "p:simple,at:TIMESTAMP"),
        (("id", "p"), "at:TIMESTAMP,p:SIMPLE,id:SIMPLE"),
        (("s.n",), "at:TIMESTAMP,s.n:TIMESTAMP,s.a:SIMPLE"),
        (("s.n", "id"), "s.x.d:SIMPLE"),
        (("p",), ""),
    ):
        generator = struct_keys.generator("Custom", ",".join(key), stated, SECONDS | styled(style))
        fields, kinds = split_kinds([part for part in stated.split(",") if part], "", OptionError)
        time = SECONDS if "TIMESTAMP" in kinds else None
        compare(struct_keys, generator, (key, fields), time=time, kinds=kinds, **style)
    for wrong in ("p", "p:PLAIN", "p:SIMPLE:x"):
        with pytest.raises(Exception, match=r"proper format|No enum constant"):
            struct_keys.generator("Custom", "id", wrong, SECONDS)


def write_by_lab(path: Path, rows: pa.Table, options: Mapping[str, str]) -> None:
    storage = Storage.open(path)
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    prepared = PreparedWrite.of(storage, rows.schema, parse_options(options, stored))
    prepared.commit(InProcessExchange([rows.to_batches()]))


def write_by_hudi(
    session: SparkSession, path: Path, rows: pa.Table, options: Mapping[str, str]
) -> None:
    frame = session.createDataFrame(rows.to_pandas())
    frame.write.format("hudi").options(**options).mode("append").save(str(path))


def seen(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_a_table_named_by_time_is_written_by_both(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Apache Hudi gives back the text of a partition column whose folders are named by time
    (readers.toml), so that the other columns are compared."""
    path = tmp_path / "t"
    table = HudiTable("t", ("id",), ("o",), ("at",), buckets=2)
    time = {
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.keygen.timebased.timezone": "Europe/Berlin",
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
        ),
    }
    shared = {
        key: value
        for key, value in table.options().items()
        if key != "hoodie.datasource.write.partitionpath.urlencode"
    } | time

    def rows(numbers: range, ordering: int) -> pa.Table:
        days = [1_700_000_000 + 86_400 * (n % 5) for n in numbers]
        return pa.table({"id": list(numbers), "o": [ordering] * len(numbers), "at": days})

    write_by_lab(path, rows(range(10), 1), shared)
    write_by_hudi(
        hudi_session, path, rows(range(5, 15), 2), write_options(table, HudiWrite()) | time
    )
    write_by_lab(path, rows(range(12, 18), 3), shared)
    expected = sorted(
        [(n, 1 if n < 5 else 2 if n < 12 else 3, f"2023/11/{14 + n % 5}") for n in range(18)]
    )
    columns = ("id", "o", "_hoodie_partition_path")
    assert seen(HudiRs(str(path)).table(), *columns) == expected
    assert (
        seen(
            plan_read(HoodieTable.open(Storage.open(path)), ReadOptions(meta_columns=True)).read(),
            *columns,
        )
        == expected
    )
    frame = hudi_session.read.format("hudi").load(str(path))
    assert sorted(tuple(row) for row in frame.select(*columns).collect()) == expected
    assert frame.schema["at"].dataType.simpleString() == "string"


def test_a_table_without_keys_is_written_by_both(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    ours = {"hoodie.table.name": "t", "hoodie.datasource.write.operation": "insert"}
    rows = pa.table({"a": [1, 1, 2], "b": ["x", "x", None]})
    write_by_lab(path, rows, ours)
    theirs = ours | {
        "hoodie.metadata.enable": "false",
        "hoodie.insert.shuffle.parallelism": "1",
        # small files would be rewritten, which is another test's matter
        "hoodie.parquet.small.file.limit": "0",
    }
    write_by_hudi(hudi_session, path, rows, theirs)
    write_by_lab(path, rows, ours)
    readers = [
        HudiRs(str(path)).table(),
        plan_read(HoodieTable.open(Storage.open(path)), ReadOptions(meta_columns=True)).read(),
    ]
    with HudiSnapshot(hudi_session, str(path)) as snapshot:
        readers.append(pa.Table.from_batches(snapshot.batches()))
    for table in readers:
        keys = table["_hoodie_record_key"].to_pylist()
        assert len(set(keys)) == 9
        assert all(
            key.startswith(f"{time}_")
            for key, time in zip(keys, table["_hoodie_commit_time"].to_pylist(), strict=True)
        )
        assert sorted(table["a"].to_pylist()) == [1] * 6 + [2] * 3
    assert all(
        seen(table, "_hoodie_record_key", "a") == seen(readers[0], "_hoodie_record_key", "a")
        for table in readers
    )


def test_avro_schemas_are_named_as_hudi_names_them(hudi_session: SparkSession) -> None:
    import json

    from pyspark.sql.pandas.types import from_arrow_schema

    deep = pa.struct(
        [("d", pa.decimal128(9, 3)), ("s", pa.struct([("x", pa.timestamp("us", "UTC"))]))]
    )
    schema = pa.schema(
        [(name, kind) for name, (kind, _) in COLUMNS.items()]
        + [
            pa.field("never_null", pa.int64(), nullable=False),
            ("huge", pa.decimal128(38, 0)),
            ("deep", deep),
            ("list_of_decimals", pa.list_(pa.decimal128(5, 1))),
            ("list_of_structs", pa.list_(deep)),
            ("map_of_structs", pa.map_(pa.string(), deep)),
            ("map_of_lists", pa.map_(pa.string(), pa.list_(pa.date32()))),
        ]
    )
    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    frame = hudi_session.createDataFrame([], kinds)
    hudi = hudi_session._jvm.org.apache.hudi  # type: ignore[union-attr]
    stated = hudi.HoodieSchemaConversionUtils.convertStructTypeToHoodieSchema(
        frame._jdf.schema(), "t_record", "hoodie.t"
    )
    theirs = json.loads(stated.toAvroSchema().toString())
    ours = arrow_to_avro(schema, "t_record", "hoodie.t")
    for mine, other in zip(ours["fields"], theirs["fields"], strict=True):
        assert mine == other
    assert ours == theirs
