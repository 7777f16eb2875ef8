"""Tables whose key, partition and ordering fields stand in structs, and those of the key generator CUSTOM:
written by both in turn, seen alike by all readers that can, and the warning where one cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.errors import PortabilityWarning, SchemaError, TableError
from serde_lab.table.properties import parse_properties
from serde_lab.verify.readers import HudiRs
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import PeerTable, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.int64()),
        ("s", pa.struct([("p", pa.string()), ("o", pa.struct([("n", pa.int64())]))])),
        ("note", pa.string()),
    ]
)
TIME = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "Europe/Berlin",
}


def rows(numbers: range, ordering: int, note: str) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "at": 86_400 * 20 * (n % 4 - 2),
            "s": {"p": f"p{n % 3}", "o": {"n": ordering + n}},
            "note": note,
        }
        for n in numbers
    ]


STEPS = (
    Step("upsert", (rows(range(12), 5, "first"),), SCHEMA),
    Step("upsert", (rows(range(6, 14), 4, "late or new") + rows(range(3), 6, "newer"),), SCHEMA),
    Step("delete", (rows(range(10, 12), 0, "gone"),), SCHEMA),
    Step("upsert", (rows(range(5, 11), 7, "newest"),), SCHEMA),
)
MOR = {"table_type": "MERGE_ON_READ"}


def write_in_turn(peer: PeerTable, first: str, steps: Sequence[Step] = STEPS) -> None:
    lab = LabWriter(peer, strategy="arrow")
    for number, step in enumerate(steps):
        if (number % 2 == 0) == (first == "lab"):
            lab.step(step)
        else:
            peer.by_hudi(step, HudiWrite())


@pytest.mark.parametrize(("kind", "first"), [({}, "lab"), (MOR, "hudi")], ids=["cow", "mor"])
def test_key_fields_in_structs(
    kind: dict[str, Any], first: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = HudiTable("t", ("s.p", "id"), ("id",), buckets=2, **kind)
    peer = PeerTable(hudi_session, tmp_path, table, SCHEMA)
    write_in_turn(peer, first)
    assert peer.problems() == []


def test_ordering_fields_in_structs(hudi_session: SparkSession, tmp_path: Path) -> None:
    """Copy on write: every reader; for the logs of merge on read see the next test."""
    table = HudiTable("t", ("id",), ("s.o.n",), buckets=2)
    peer = PeerTable(hudi_session, tmp_path, table, SCHEMA)
    write_in_turn(peer, "lab")
    assert peer.problems() == []


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_ordering_fields_in_structs_are_none_to_hudi_rs(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """The smallest case of an exception (readers.toml): a late row in a log wins."""
    peer = PeerTable(
        hudi_session, tmp_path, HudiTable("t", ("id",), ("s.o.n",), buckets=2, **MOR), SCHEMA
    )
    write_in_turn(peer, "hudi", STEPS[:2])
    assert peer.problems(("apache-hudi", "serde_lab")) == []
    (problem,) = peer.problems(("hudi-rs",))
    assert "{'n': 10}}, expected {'p': 'p0', 'o': {'n': 11}}" in problem


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize(
    ("kind", "first"), [({"hive_style": True}, "hudi"), (MOR, "lab")], ids=["hive cow", "mor"]
)
def test_partition_fields_in_structs(
    kind: dict[str, Any], first: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """hudi-rs looks for the field among the columns (readers.toml)."""
    table = HudiTable("t", ("id",), ("id",), ("s.p",), buckets=2, **kind)
    peer = PeerTable(hudi_session, tmp_path, table, SCHEMA)
    write_in_turn(peer, first)
    assert peer.problems(("apache-hudi", "serde_lab")) == []
    with pytest.raises(TableError, match=r"`s\.p` .* is not present in the table schema"):
        HudiRs(peer.path).table()


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize(
    ("partition", "kind", "first"),
    [
        (("s.p:SIMPLE",), {}, "hudi"),
        (("s.p:SIMPLE", "at:TIMESTAMP"), {"hive_style": True}, "lab"),
        (("s.p:SIMPLE", "at:TIMESTAMP"), {"hive_style": True, **MOR}, "hudi"),
        (("at:TIMESTAMP",), MOR, "lab"),
    ],
    ids=["simple", "hive style", "hive style mor", "times"],
)
def test_tables_of_the_custom_generator(
    partition: tuple[str, ...],
    kind: dict[str, Any],
    first: str,
    hudi_session: SparkSession,
    tmp_path: Path,
) -> None:
    by_time = {"time": TIME} if "at:TIMESTAMP" in partition else {}
    table = HudiTable("t", ("id",), ("id",), partition, buckets=2, **kind, **by_time)
    peer = PeerTable(hudi_session, tmp_path, table, SCHEMA)
    write_in_turn(peer, first)
    assert peer.problems(("apache-hudi", "serde_lab")) == []
    with pytest.raises(TableError, match=r"SIMPLE|TIMESTAMP"):
        HudiRs(peer.path).table()
    stated = parse_properties((Path(peer.path) / ".hoodie/hoodie.properties").read_text())
    assert stated["hoodie.table.partition.fields"] == ",".join(partition)
    assert stated["hoodie.table.keygenerator.type"] == "CUSTOM"
    # what Hudi does not store, we do
    assert (TIME.items() <= stated.items()) == (first == "lab" and bool(by_time))


def test_several_fields_one_of_which_has_slashes(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """The smallest case of an exception (readers.toml)."""
    table = HudiTable("t", ("id",), ("id",), ("s.p:SIMPLE", "at:TIMESTAMP"), buckets=2, time=TIME)
    peer = PeerTable(hudi_session, tmp_path, table, SCHEMA)
    with pytest.warns(PortabilityWarning) as caught:
        LabWriter(peer).step(STEPS[0])
    assert any("cannot read a table of several" in str(one.message) for one in caught)
    assert peer.problems(("serde_lab",)) == []
    with pytest.raises(Exception, match="likely non-encoded slashes"):
        hudi_session.read.format("hudi").load(peer.path).collect()


@pytest.mark.parametrize(
    "kind",
    [{}, MOR, MOR | {"merge_mode": "COMMIT_TIME_ORDERING"}],
    ids=["cow", "mor", "commit time"],
)
def test_two_ordering_fields_are_warned_of(kind: dict[str, Any], tmp_path: Path) -> None:
    peer = PeerTable(
        None,  # type: ignore[arg-type]
        tmp_path,
        HudiTable("t", ("id",), ("at", "id"), buckets=2, **kind),
        SCHEMA,
    )
    with pytest.warns(PortabilityWarning, match="^fields at, id: hudi-rs 0.5.0 refuses to read"):
        LabWriter(peer).step(STEPS[0])
    with pytest.raises(TableError, match="Multiple ordering fields"):
        HudiRs(peer.path).table()
    assert peer.problems(("serde_lab",)) == []


def test_keys_whose_text_would_change(hudi_session: SparkSession, tmp_path: Path) -> None:
    """A documented exception: Apache Hudi makes two rows of a key that was a long and becomes a double;
    we refuse it."""
    schema = pa.schema([("k", pa.int64()), ("o", pa.int64())])
    wide = pa.schema([("k", pa.float64()), ("o", pa.int64())])
    peer = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k",), ("o",), buckets=1), wide)
    peer.by_hudi(Step("upsert", ([{"k": 1, "o": 1}],), schema), HudiWrite())
    double = Step("upsert", ([{"k": 1.0, "o": 2}],), wide)
    with pytest.raises(SchemaError, match=r"'k' is of type double, .* become 1\.0"):
        LabWriter(peer).step(double)
    peer.by_hudi(double, HudiWrite())
    keys = HudiRs(peer.path).table()["_hoodie_record_key"].to_pylist()
    assert sorted(keys) == ["1", "1.0"]
