"""Apache Hudi's record classes in the JVM: they are its own, and they come back as they were written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.lab.cells import record_cells
from serde_lab.lab.cells.codec_cases import CodecBatch, CodecCase
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.cells.record_cells import difference, measure_loops
from serde_lab.lab.cells.verb_times import VERBS
from serde_lab.peers.record_classes import RECORD_CLASSES, RecordLoops
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import RECORD_PEERS
from tests.lab.small_scenario import content, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.int32()),
        ("price", pa.decimal128(15, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
        ("event_ts", pa.int64()),
    ]
)
SCHEMA = RecordSchema(DATA, ("id", "part"), ordering=("event_ts",))


def batch(rows: int = 300) -> CodecBatch:
    numbers = range(rows)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([n % 7 for n in numbers], pa.int32()),
        pa.array([None if n % 5 == 0 else n for n in numbers], pa.int32()).cast(
            DATA.field("price").type
        ),
        pa.array([None if n % 3 == 0 else n for n in numbers], pa.int32()).cast(pa.date32()),
        pa.array([n * 1_000_001 for n in numbers]).cast(pa.timestamp("us", "UTC")),
        pa.array([None if n % 4 == 0 else f"é{n}" for n in numbers]),
        pa.array(numbers, pa.int64()),
    ]
    made = KeyGenerator(SCHEMA).envelop(pa.record_batch(columns, schema=DATA), NOWHERE)
    return CodecBatch(CodecCase("record", rows, len(DATA)), SCHEMA, made)


def loops(spark: SparkSession, name: str, found: CodecBatch, folder: Path) -> RecordLoops:
    arms: list[Any] = ["internal_row", {"name": name, "peer": name}]
    document = content(source(folder / "own"), arms, exchange="none")
    document["data"] |= {"key": ["id", "part"], "ordering": "event_ts"}
    document["codec"] = {"batch_rows": [1000], "types": [], "widths": []}
    scenario = parse_scenario(document)
    options = options_of_peer(scenario, scenario.arm(name), 1)
    rows = found.rows.select(DATA.names)
    return RecordLoops(spark, RECORD_CLASSES[name], rows, options, folder)


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("name", RECORD_PEERS)
def test_records_are_hudis_own_and_come_back(
    name: str, hudi_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = batch()
    made = loops(hudi_session, name, found, tmp_path)
    first = made.fresh().apply(0)
    assert first.getClass().getName() == made.kind.java_name
    assert difference(made, found) == ""
    # the rows that came back are compared, and the keys
    other = found.rows.set_column(
        found.rows.schema.get_field_index("note"), "note", pa.array(["x"] * len(found.rows))
    )
    assert "note" in difference(made, replace(found, rows=other))
    assert "keys came back" in difference(made, batch(299))
    for limit in ("_WARM_RECORDS", "_RECORDS_A_LOOP"):
        monkeypatch.setattr(record_cells, limit, 1)
    times = measure_loops(made)
    assert tuple(times.verbs) == VERBS
    assert all(one.cpu_ns > 0 for one in times.verbs.values())
    # the values alone take 40 bytes and more
    assert times.frame_bytes > 40 * len(found.rows)
    assert times.rows == 300


@pytest.mark.spark
@pytest.mark.hudi
def test_each_pass_writes_records_that_were_not_encoded_before(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    made = loops(hudi_session, "hudi_indexed_record", batch(3), tmp_path)
    records = made.fresh()
    encoded = records.apply(0).getData().getClass().getDeclaredField("recordBytes")
    encoded.setAccessible(True)
    assert encoded.get(records.apply(0).getData()) is None
    made.write(made.sink(), records)
    assert encoded.get(records.apply(0).getData()) is not None
    assert encoded.get(made.fresh().apply(0).getData()) is None
