"""Tables whose columns change from write to write, by both writers in turn, seen alike by all readers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.errors import SchemaError
from serde_lab.peers.apache_hudi import RecordType
from serde_lab.pipeline.read import ReadOptions, open_table, plan_read
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import following_time
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter, write_in_process
from tests.peers.peer_tables import PeerTable, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

RECORD_TYPES: tuple[RecordType, ...] = ("AVRO", "SPARK")
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


def test_structs_in_lists_and_maps_become_the_last_one_where_fields_move(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """The smallest case of an exception (readers.toml): the SPARK record type, here in a table of Hudi's."""
    fields = [("x", pa.int32()), ("y", pa.string())]
    before, moved = (
        pa.schema([*SHARED, ("l", pa.list_(kind)), ("m", pa.map_(pa.string(), kind))])
        for kind in (pa.struct(fields), pa.struct(fields[::-1]))
    )
    structs = [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    for record_type in RECORD_TYPES:
        place = tmp_path / record_type
        peer = PeerTable(hudi_session, place, HudiTable("t", ("k",), ("o",), buckets=1), before)
        for ordering, schema in enumerate((before, moved)):
            row = {"k": "a", "o": ordering, "l": structs, "m": [*zip("pq", structs, strict=True)]}
            peer.by_hudi(Step("upsert", ([row],), schema), HudiWrite(record_type=record_type))
        assert bool(peer.problems()) == (record_type == "SPARK")
        found = plan_read(open_table(peer.path), ReadOptions()).read().to_pylist()
        last = structs[1]
        if record_type == "SPARK":
            assert [(one["l"], one["m"]) for one in found] == [
                ([last, last], [("p", last), ("q", last)])
            ]


INNER = pa.struct([("a", pa.int32()), ("b", pa.int32())])
PLAIN = pa.schema([*SHARED, ("w", pa.int32()), ("s", INNER)])
MORE_INNER = pa.struct([*INNER, ("z", pa.int32())])
CHANGES = {
    "less": PLAIN.remove(2),
    "less inside": PLAIN.set(3, pa.field("s", pa.struct([("a", pa.int32())]))),
    "more": PLAIN.append(pa.field("z", pa.int32())),
    "more inside": PLAIN.set(3, pa.field("s", MORE_INNER)),
    "both": PLAIN.remove(2).append(pa.field("z", pa.int32())),
    "both, one inside": PLAIN.remove(2).set(2, pa.field("s", MORE_INNER)),
    "ordering": PLAIN.remove(1),
}
RECONCILE = {"hoodie.datasource.write.reconcile.schema": "true"}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, ("less", "less inside", "both")),
        (FILL, ("less", "less inside", "both, one inside", "ordering")),
        (RECONCILE, tuple(CHANGES)),
    ],
    ids=["neither", "fill", "reconcile"],
)
def test_what_is_left_out_is_refused_or_null_by_both(
    options: dict[str, str], changes: tuple[str, ...], hudi_session: SparkSession, tmp_path: Path
) -> None:
    """The same writes to two tables, one a writer: both refuse, or all readers see the same rows."""
    for name in changes:
        schema = CHANGES[name]
        made = []
        for writer in ("lab", "hudi"):
            place = tmp_path / name / writer
            whole = pa.unify_schemas([PLAIN, schema.remove(schema.get_field_index("s"))])
            if name in ("more inside", "both, one inside"):
                whole = whole.set(3, pa.field("s", MORE_INNER))
            peer = PeerTable(hudi_session, place, HudiTable("t", ("k",), ("o",), buckets=1), whole)
            first = [{"k": "a", "o": 1, "w": 1, "s": {"a": 1, "b": 1}}]
            second = [{"k": "a", "o": 2, "w": 2, "z": 2, "s": {"a": 2, "b": 2, "z": 2}}]
            second = [{key: value for key, value in second[0].items() if key in schema.names}]
            done = True
            for step in (Step("upsert", (first,), PLAIN), Step("upsert", (second,), schema)):
                try:
                    if writer == "lab":
                        LabWriter(peer, strategy="arrow").step(step, **options)
                    else:
                        peer.by_hudi(step, HudiWrite(extra=options))
                except Exception:  # py4j has a kind of error of its own for each kind of trouble
                    assert len(peer.commits) == 2, "the first write is refused by nobody"
                    del peer.commits[-1]
                    peer.schema, done = PLAIN, False
            made.append(done)
            judges = ("hudi-rs", "serde_lab" if writer == "lab" else "apache-hudi")
            assert peer.problems(judges) == [], (name, writer)
        assert made[0] == made[1], name


def test_the_columns_are_those_of_the_write_that_began_last(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Apache Hudi also commits a write that completes after one with more columns that began later."""
    less = PLAIN.remove(2)
    peer = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k",), ("o",), buckets=1), PLAIN)
    inner = {"a": 1, "b": 1}
    peer.by_hudi(Step("upsert", ([{"k": "a", "o": 1, "s": inner}],), less), HudiWrite())
    peer.by_hudi(Step("upsert", ([{"k": "b", "o": 1, "w": 1, "s": inner}],), PLAIN), HudiWrite())
    storage = Storage.open(peer.path)
    timeline = HoodieTable.open(storage).timeline()
    first, second = timeline.completed()
    slow = replace(first, completion_time=following_time(second.completion_time or ""))
    storage.put_new(timeline.path(slow), timeline.read(first))
    timeline.delete(first)
    assert timeline.completed() == (second, slow)
    assert peer.problems() == []


def test_the_first_write_to_a_table_that_sql_made_keeps_its_columns(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Otherwise SQL would store 2.5 in a column that the first write has made an int."""
    path, name = tmp_path / "table", "made_by_sql"
    hudi_session.sql(
        f"CREATE TABLE {name} (k string, o bigint, x double) USING hudi LOCATION '{path}'"
        " TBLPROPERTIES (primaryKey = 'k', preCombineField = 'o')"
    )
    options = {"hoodie.index.type": "SIMPLE"}
    try:
        for number, (columns, said) in enumerate(
            (
                ([*SHARED], "column 'x' of the table is not in the data"),
                ([*SHARED, ("x", pa.int32())], ""),
            )
        ):
            row = {"k": "a", "o": 1, "x": 1}
            given = {key: row[key] for key, _ in columns}
            folder = Step("upsert", ([given],), pa.schema(columns)).folder(tmp_path / str(number))
            if said:
                with pytest.raises(SchemaError, match=said):
                    write_in_process(str(path), folder, options)
            else:
                write_in_process(str(path), folder, options)
        hudi_session.sql(f"INSERT INTO {name} VALUES ('b', 1, 2.5)")
        found = hudi_session.sql(f"SELECT k, x FROM {name} ORDER BY k").collect()
    finally:
        hudi_session.sql(f"DROP TABLE {name}")
    assert [tuple(one) for one in found] == [("a", 1.0), ("b", 2.5)]
