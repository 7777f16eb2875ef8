"""Tables whose columns change from write to write, by both writers in turn, seen alike by all readers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import PeerTable, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

FILL = {"hoodie.write.set.null.for.missing.columns": "true"}
SHARED = [("k", pa.string()), ("o", pa.int64())]
NESTED = pa.struct(
    [("a", pa.int32()), ("l", pa.list_(pa.struct([("f", pa.float32()), ("g", pa.int32())])))]
)
WIDER_NESTED = pa.struct(
    [
        ("a", pa.int64()),
        ("l", pa.list_(pa.struct([("f", pa.float64()), ("g", pa.int32()), ("new", pa.string())]))),
    ]
)
FIRST = pa.schema(
    [
        *SHARED,
        ("gone", pa.string()),
        ("i_long", pa.int32()),
        ("i_double", pa.int32()),
        ("l_text", pa.int64()),
        ("f_double", pa.float32()),
        ("f_text", pa.float32()),
        ("d_text", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("s", NESTED),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
# moved, one column left out, two added, and the others wider
SECOND = pa.schema(
    [
        ("added", pa.date32()),
        ("s", WIDER_NESTED),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("d_text", pa.string()),
        ("f_text", pa.string()),
        ("f_double", pa.float64()),
        ("l_text", pa.string()),
        ("i_double", pa.float64()),
        ("i_long", pa.int64()),
        ("price", pa.decimal128(15, 2)),
        *SHARED,
        ("more", pa.struct([("x", pa.int32()), ("y", pa.bool_())])),
    ]
)
LAST = pa.schema(
    [
        *SHARED,
        ("gone", pa.string()),
        *(SECOND.field(name) for name in FIRST.names[3:]),
        SECOND.field("added"),
        SECOND.field("more"),
    ]
)


def rows(schema: pa.Schema, numbers: Iterable[int], ordering: int) -> list[dict[str, Any]]:
    """Rows in the types of `schema`; every fourth is null wherever it may be, but for the struct."""
    made = []
    for number in numbers:
        inner = {"f": number / 10, "g": number, "new": f"n{number}"}
        row: dict[str, Any] = {
            "k": f"k{number}",
            "o": ordering,
            "gone": f"g{number}",
            "i_long": number,
            "i_double": number,
            "l_text": number * 10**10,
            "f_double": number / 7,
            # floats that Java writes as others do: before version 19 it had a digit more for some
            "f_text": number * 1e7,
            "d_text": number / 1e5,
            "price": Decimal(number) / 4,
            "s": {"a": number, "l": [inner, {"f": None, "g": 1}]},
            "m": [("x", number), ("y", None)],
            "added": dt.date(2024, 1, 1 + number % 28),
            "more": {"x": number, "y": True},
        }
        if number % 4 == 3:
            row = {"k": row["k"], "o": ordering, "s": {"a": None, "l": None}}
        for name in ("l_text", "f_text", "d_text"):
            if name in row and pa.types.is_string(schema.field(name).type):
                row[name] = f"text {number}"
        made.append({name: value for name, value in row.items() if name in schema.names})
    return made


STEPS = (
    Step("upsert", (rows(FIRST, range(24), 1),), FIRST),
    Step("upsert", (rows(SECOND, range(20, 28), 2),), SECOND),
    # an older writer goes on: the table keeps the wider types
    Step("upsert", (rows(FIRST, [*range(26, 30), 1], 3),), FIRST),
)


@pytest.fixture
def row_reader(hudi_session: SparkSession) -> Iterator[SparkSession]:
    """Spark reads Parquet row by row: its other reader refuses nested fields that became wider
    (readers.toml)."""
    name = "spark.sql.parquet.enableVectorizedReader"
    before = hudi_session.conf.get(name)
    hudi_session.conf.set(name, "false")
    yield hudi_session
    hudi_session.conf.set(name, before or "true")


@pytest.mark.parametrize(
    ("kind", "writers"),
    [
        ("COPY_ON_WRITE", "lab hudi lab"),
        ("MERGE_ON_READ", "lab lab hudi"),
        ("MERGE_ON_READ", "hudi lab lab"),
    ],
)
def test_columns_added_left_out_moved_and_wider(
    kind: Any, writers: str, row_reader: SparkSession, tmp_path: Path
) -> None:
    # few keys in the later writes: some files stay as the first one made them
    table = HudiTable("t", ("k",), ("o",), table_type=kind, buckets=8)
    peer = PeerTable(row_reader, tmp_path, table, LAST)
    lab = LabWriter(peer, strategy="arrow")
    for writer, step in zip(writers.split(), STEPS, strict=True):
        if writer == "lab":
            lab.step(step, **FILL)
        else:
            peer.by_hudi(step, HudiWrite(extra=FILL))
    assert peer.problems() == []


def test_a_null_struct_that_became_wider_is_none_to_apache_hudi(
    row_reader: SparkSession, tmp_path: Path
) -> None:
    """The smallest case of an exception (readers.toml): where Hudi's AVRO record type wrote the file."""
    narrow, wide = (pa.schema([*SHARED, ("s", kind)]) for kind in (NESTED, WIDER_NESTED))
    peer = PeerTable(row_reader, tmp_path, HudiTable("t", ("k",), ("o",), buckets=2), wide)
    # two buckets: the second write leaves one file as it is
    none = [{"k": f"k{n}", "o": 1, "s": None} for n in range(8)]
    peer.by_hudi(Step("upsert", (none,), narrow), HudiWrite())
    LabWriter(peer, strategy="arrow").step(
        Step("upsert", ([{"k": "k0", "o": 2, "s": {"a": 2, "l": []}}],), wide)
    )
    (problem,) = peer.problems()
    assert "as read by Apache Hudi" in problem
    assert "s is {'a': None, 'l': None}, expected null" in problem
