"""Record keys and partition paths that Apache Hudi makes, beside both of our own readings of the rule."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import TableError
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.verify.key_text import partition_paths, record_keys
from serde_lab.verify.readers import HudiRs
from serde_lab.verify.table_rules import TableRules
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.lab_writer import lab_options, write_in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a,b:c", "ü😀/=%", "", "x"]),
    "int": (pa.int32(), [1, -5, 0, 7]),
    "long": (pa.int64(), [2**40, -7, 0, 1]),
    "flag": (pa.bool_(), [True, False, True, False]),
    "day": (pa.date32(), [dt.date(1992, 1, 2), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "price": (pa.decimal128(15, 2), [Decimal(v) for v in ("12.30", "-0.05", "0", "100")]),
    "tiny": (pa.decimal128(20, 10), [Decimal(v) for v in ("0.0000000001", "0.000001", "0", "1")]),
}
ROWS = pa.table(
    {name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()}
    | {"id": pa.array(range(4), pa.int64()), "o": pa.array([1] * 4, pa.int64())}
)


def stored(session: SparkSession, folder: Path, table: HudiTable, record_type: Any) -> pa.Table:
    """ROWS as Hudi stored them, in the order of `id`."""
    (folder / "input").mkdir()
    pq.write_table(ROWS, folder / "input" / "part-0.parquet")
    options = write_options(table, HudiWrite(record_type=record_type))
    frame = session.read.parquet(str(folder / "input"))
    frame.write.format("hudi").options(**options).mode("append").save(str(folder / "table"))
    return HudiRs(str(folder / "table")).table().sort_by("id")


def both_readings(
    table: HudiTable, rows: pa.Table
) -> tuple[TableRules, KeyGenerator, pa.RecordBatch]:
    schema = RecordSchema(ROWS.schema, table.record_key, table.partition, table.ordering)
    rules = TableRules(schema, hive_style=table.hive_style, url_encode=table.url_encode)
    (batch,) = rows.select(ROWS.schema.names).combine_chunks().to_batches()
    return rules, KeyGenerator(schema, table.hive_style, table.url_encode), batch


@pytest.mark.parametrize("record_type", ["AVRO", "SPARK"])
def test_keys_of_several_fields(
    record_type: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Null and empty values only with the AVRO record type: SPARK fails on them (readers.toml)."""
    usable = [n for n in COLUMNS if record_type == "AVRO" or n not in ("text", "day")]
    table = HudiTable("t", (*usable, "id"), ("o",), buckets=1)
    rows = stored(hudi_session, tmp_path, table, record_type)
    rules, maker, batch = both_readings(table, rows)
    keys = rows["_hoodie_record_key"].to_pylist()
    assert record_keys(batch, rules).to_pylist() == keys
    assert maker.record_keys(batch).to_pylist() == keys


@pytest.mark.parametrize("name", ["int", "tiny", "day"])
def test_partition_paths_of_one_field(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = HudiTable("t", ("id",), ("o",), (name,), buckets=1, hive_style=True)
    rows = stored(hudi_session, tmp_path, table, "AVRO")
    rules, maker, batch = both_readings(table, rows)
    paths = rows["_hoodie_partition_path"].to_pylist()
    assert partition_paths(batch, rules).to_pylist() == paths
    assert maker.partition_paths(batch).to_pylist() == paths
    assert maker.record_keys(batch).to_pylist() == rows["_hoodie_record_key"].to_pylist()


def test_escaped_partition_paths_of_two_fields(hudi_session: SparkSession, tmp_path: Path) -> None:
    table = HudiTable("t", ("id",), ("o",), ("text", "flag"), buckets=1, url_encode=True)
    rows = stored(hudi_session, tmp_path, table, "AVRO")
    rules, maker, batch = both_readings(table, rows)
    paths = rows["_hoodie_partition_path"].to_pylist()
    assert partition_paths(batch, rules).to_pylist() == paths
    assert maker.partition_paths(batch).to_pylist() == paths
    # the trap: one key field is named in the key as soon as there are two partition fields
    assert record_keys(batch, rules).to_pylist() == rows["_hoodie_record_key"].to_pylist()
    assert maker.record_keys(batch).to_pylist() == rows["_hoodie_record_key"].to_pylist()


@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
def test_the_complex_generator_names_a_single_key_too(
    index: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Many jobs set that class whatever their fields are; the lab then updates Hudi's rows."""
    table = HudiTable("t", ("id",), ("o",), ("int",), buckets=2, index=index)
    complex_too = {
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator"
    }
    source = tmp_path / "input"
    source.mkdir()
    pq.write_table(ROWS, source / "part-0.parquet")
    frame = hudi_session.read.parquet(str(source))
    options = write_options(table, HudiWrite(extra=complex_too))
    path = str(tmp_path / "table")
    frame.write.format("hudi").options(**options).mode("append").save(path)
    rows = HudiRs(path).table().sort_by("id")
    assert rows["_hoodie_record_key"].to_pylist() == [f"id:{number}" for number in range(4)]
    ours = lab_options(table, "upsert", "arrow", "avro")
    write_in_process(path, source, {**ours, "hoodie.index.type": index})
    again = HudiRs(path).table().sort_by("id")
    for name in ("_hoodie_record_key", "_hoodie_partition_path", "id"):
        assert again[name].to_pylist() == rows[name].to_pylist()
    frame.write.format("hudi").options(**options).mode("append").save(path)
    assert HudiRs(path).table().num_rows == len(ROWS)


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize(
    ("key", "partition"),
    [("at", ()), ("raw", ()), ("id", ("at",))],
    ids=["time", "bytes", "folder"],
)
@pytest.mark.parametrize(
    "write",
    [HudiWrite(record_type="SPARK"), HudiWrite("bulk_insert"), HudiWrite(record_type="AVRO")],
    ids=["SPARK", "bulk_insert", "AVRO"],
)
def test_rows_that_hudi_keyed_by_another_text_are_refused(
    write: HudiWrite,
    key: str,
    partition: tuple[str, ...],
    hudi_session: SparkSession,
    tmp_path: Path,
) -> None:
    """Hudi's own upsert does not find them either: it adds each once more."""
    times = [
        dt.datetime(2024, 3, 31, 1, 30, 0, 123000, dt.UTC),
        dt.datetime(1960, 1, 1, tzinfo=dt.UTC),
    ]
    rows = pa.table(
        {
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\0\xff", b"ab"]),
            "id": pa.array([0, 1], pa.int64()),
            "o": pa.array([1, 1], pa.int64()),
        }
    )
    source, path = tmp_path / "input", str(tmp_path / "table")
    source.mkdir()
    pq.write_table(rows, source / "part-0.parquet")
    table = HudiTable("t", (key,), ("o",), partition, url_encode=True, index="SIMPLE")
    frame = hudi_session.read.parquet(str(source))
    options = write_options(table, write)
    frame.write.format("hudi").options(**options).mode("append").save(path)
    ours = {**lab_options(table, "upsert", "arrow", "avro"), "hoodie.index.type": "SIMPLE"}
    if write == HudiWrite(record_type="AVRO"):
        write_in_process(path, source, ours)
        assert HudiRs(path).table().num_rows == 2
        return
    for operation in ("upsert", "delete"):
        with pytest.raises(
            TableError, match=r"holds a row as '.*', and a write would look for it as"
        ):
            write_in_process(path, source, {**ours, "hoodie.datasource.write.operation": operation})
