"""Marked deletes in merge-on-read logs, by every type of ordering field, alone and all of them together.

Either writer's log is read by both: Apache Hudi's delete blocks wrap each ordering value by its type.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.peers.apache_hudi import RecordType
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import PeerTable, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.hudi,
    pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning"),
]

UTC = dt.UTC
TYPES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "flag": (pa.bool_(), (False, False, True)),
    "tiny": (pa.int8(), (-1, 2, 3)),
    "short": (pa.int16(), (-1, 2, 3)),
    "int": (pa.int32(), (-1, 2, 3)),
    "long": (pa.int64(), (-1, 0, 2**40)),
    "single": (pa.float32(), (-1.5, 2.0, 3.0)),
    "double": (pa.float64(), (-0.0, 0.0, 3.0)),
    "text": (pa.string(), ("", "b", "é")),
    "day": (pa.date32(), (dt.date(1924, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 1, 3))),
    "price": (pa.decimal128(15, 2), (Decimal("-0.01"), Decimal("0.00"), Decimal("3.07"))),
    "moment": (
        pa.timestamp("us", "UTC"),
        tuple(dt.datetime(year, 1, 1, microsecond=1, tzinfo=UTC) for year in (1924, 1970, 2024)),
    ),
    "zoneless": (
        pa.timestamp("us"),
        tuple(dt.datetime(year, 1, 1) for year in (1924, 1970, 2024)),
    ),
}
"""A low, a middle and a high value of each type; of booleans low is middle."""
EVERY = tuple(TYPES)
WITHOUT_DATES = tuple(name for name in TYPES if name != "day")


def history(fields: Sequence[str]) -> tuple[pa.Schema, list[Step]]:
    """Rows at the middle values, then deletes of which each differs in one field, then rows again."""
    columns = pa.schema(
        [
            ("k", pa.string()),
            *((name, TYPES[name][0]) for name in fields),
            ("_hoodie_is_deleted", pa.bool_()),
        ]
    )
    middle = {name: TYPES[name][1][1] for name in fields}

    def rows(*keys: str, **values: Any) -> list[dict[str, Any]]:
        return [{"k": key, **middle, **values} for key in keys]

    marked: dict[str, Any] = {"_hoodie_is_deleted": True}
    keys, deletes = ["stays", "tie", "by operation", "back"], rows("tie", "back", "new", **marked)
    for name in fields:
        low, _, high = TYPES[name][1]
        keys += [f"{name} low", f"{name} high"]
        deletes += rows(f"{name} low", **marked | {name: low})
        deletes += rows(f"{name} high", **marked | {name: high})
    last = fields[-1]
    high = TYPES[last][1][2]
    back = rows("back", **{last: high}) + rows(f"{last} high", "new")
    return columns, [
        Step("upsert", (rows(*keys),), columns),
        Step("upsert", (deletes,), columns),
        Step("delete", (rows("by operation"),), columns),
        Step("upsert", (back,), columns),
    ]


@dataclass(frozen=True)
class Case:
    """`writers`: who does each write in turn, the lab or Apache Hudi, which compacts in the end."""

    fields: Sequence[str]
    writers: str = "lab lab lab lab"
    record_type: RecordType = "SPARK"
    version: int = 9

    def __str__(self) -> str:
        fields = "+".join(self.fields) if len(self.fields) < 3 else str(len(self.fields))
        return f"{fields} {self.writers} {self.record_type} {self.version}"


CASES = [
    Case(EVERY),
    Case(EVERY, "lab lab lab hudi", "AVRO", 6),
    Case(EVERY, "hudi hudi hudi lab"),
    Case(WITHOUT_DATES, "lab hudi lab hudi", "AVRO"),
    Case(("moment",), "lab lab lab hudi", "AVRO"),
    Case(("day",), "lab hudi lab lab"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_marked_deletes_are_alike_to_both(
    case: Case, hudi_session: SparkSession, tmp_path: Path
) -> None:
    columns, steps = history(case.fields)
    facts = HudiTable(
        "t",
        ("k",),
        tuple(case.fields),
        table_type="MERGE_ON_READ",
        buckets=1,
        version=case.version,
    )
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table, version=case.version)
    for number, (writer, step) in enumerate(zip(case.writers.split(), steps, strict=True)):
        compacts = writer == "hudi" and number == 3
        if compacts:
            assert table.problems(("apache-hudi", "serde_lab")) == []
        if writer == "lab":
            lab.step(step)
        else:
            write = HudiWrite(record_type=case.record_type, compact_after=int(compacts))
            table.by_hudi(step, write, compacted=compacts)
    assert table.problems(("apache-hudi", "serde_lab")) == []


@pytest.mark.parametrize(
    ("writer", "kind"),
    [("lab", "MERGE_ON_READ"), ("hudi", "MERGE_ON_READ"), ("hudi", "COPY_ON_WRITE")],
)
def test_a_delete_at_the_first_day_of_1970_always_wins(
    writer: str, kind: Any, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """To Apache Hudi the day is the int 0, by which it says that there is no ordering value."""
    columns = pa.schema(
        [("k", pa.string()), ("day", pa.date32()), ("_hoodie_is_deleted", pa.bool_())]
    )
    later, first = dt.date(1971, 1, 1), dt.date(1970, 1, 1)
    facts = HudiTable("t", ("k",), ("day",), table_type=kind, buckets=1)
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table)
    lab.step(Step("upsert", ([{"k": key, "day": later} for key in "ab"],), columns))
    delete = Step("upsert", ([{"k": "a", "day": first, "_hoodie_is_deleted": True}],), columns)
    if writer == "lab":
        lab.step(delete)
    else:
        table.by_hudi(delete, HudiWrite(record_type="SPARK"))
    assert table.problems() == []
    assert table.expected().fingerprint.rows == 1


MARKS: dict[str, tuple[Any, Any, str, bool]] = {
    "text": ("D", "I", "D", True),
    "int": (7, 8, "7", True),
    "double": (1.5, 2.5, "1.5", True),
    "moment": (dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC), "0", True),
    # to Hudi a number of days
    "day": (dt.date(2000, 1, 1), dt.date(2001, 1, 1), "2000-01-01", False),
    "price": (Decimal("1.50"), Decimal("2.50"), "1.50", False),
}
"""By type of the column: the value that marks a delete, another one, the marker, and whether Hudi agrees."""


@pytest.mark.parametrize("of", MARKS)
def test_a_marker_is_the_same_text_to_both(
    of: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Where it is not, the lab refuses the table (tests/pipeline/test_merge_modes.py)."""
    value, other, marker, agrees = MARKS[of]
    marks = {"hoodie.payload.delete.field": "gone", "hoodie.payload.delete.marker": marker}
    columns = pa.schema([("k", pa.string()), ("o", pa.int64()), ("gone", TYPES[of][0])])
    facts = HudiTable("t", ("k",), ("o",), table_type="MERGE_ON_READ", buckets=1)
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    rows = [{"k": key, "o": 1, "gone": other} for key in ("a", "b")]
    write = HudiWrite(extra=marks)
    table.by_hudi(Step("upsert", (rows,), columns), write)
    table.by_hudi(Step("upsert", ([{"k": "a", "o": 2, "gone": value}],), columns), write)
    found = hudi_session.read.format("hudi").load(table.path).select("k").collect()
    assert [row.k for row in sorted(found)] == (["b"] if agrees else ["a", "b"])
