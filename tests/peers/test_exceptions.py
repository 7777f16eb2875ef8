"""The smallest case of every exception in `tests/readers.toml`, so that none outlives its cause.

Each test shows the fault as it is today. One that fails after an upgrade is good news: the exception
and whatever was refused because of it can go.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import SchemaError, TableError
from serde_lab.merging.rules import DeleteMarkers
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.source import schema as write_schema
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.readers import HudiRs
from serde_lab.verify.table_checks import check_contents
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import PeerTable, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

Rows = list[dict[str, Any]]
MOR: dict[str, Any] = {"table_type": "MERGE_ON_READ"}


class Case:
    """A table of few columns that Hudi writes."""

    def __init__(
        self, session: SparkSession, folder: Path, schema: pa.Schema, **table: Any
    ) -> None:
        self.session, self.folder, self.schema = session, folder, schema
        self.table = HudiTable(
            "t", **{"record_key": ("k",), "ordering": ("o",), "buckets": 1, **table}
        )
        self.path = str(folder / "table")
        self.writes = 0

    def write(self, rows: Rows, **write: Any) -> Case:
        place = self.folder / f"input-{self.writes}"
        place.mkdir()
        self.writes += 1
        pq.write_table(pa.Table.from_pylist(rows, schema=self.schema), place / "part-0.parquet")
        frame = self.session.read.parquet(str(place)).coalesce(1)
        options = write_options(self.table, HudiWrite(**write))
        frame.write.format("hudi").options(**options).mode("append").save(self.path)
        return self

    def by_rust(self, column: str) -> list[Any]:
        return sorted(HudiRs(self.path).table()[column].to_pylist())

    def by_java(self, column: str) -> list[Any]:
        return by_java(self.session, self.path, column)


def by_java(session: SparkSession, path: str, column: str) -> list[Any]:
    """A column as Apache Hudi reads it."""
    with HudiSnapshot(session, path) as snapshot:
        return sorted(snapshot.table()[column].to_pylist())


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.int64()), *columns.items()])


def causes(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Everything that Spark said of a failed write."""
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.date32(), dt.date(2024, 1, 1), dt.date(2024, 1, 2)),
        (pa.decimal128(15, 2), Decimal("1.00"), Decimal("2.00")),
    ],
    ids=["date", "decimal"],
)
def test_ordering_by_date_or_decimal(
    kind: pa.DataType, low: Any, high: Any, hudi_session: SparkSession, tmp_path: Path
) -> None:
    case = Case(hudi_session, tmp_path, schema(o=kind)).write([{"k": 1, "o": low}])
    with pytest.raises(Exception, match="ClassCastException"):
        case.write([{"k": 1, "o": high}])
    case.write([{"k": 1, "o": high}], record_type="SPARK")
    assert case.by_rust("o") == case.by_java("o") == [high]


def test_marked_deletes_by_date(hudi_session: SparkSession, tmp_path: Path) -> None:
    columns = schema(o=pa.date32(), _hoodie_is_deleted=pa.bool_())
    case = Case(hudi_session, tmp_path, columns, **MOR)
    case.write([{"k": 1, "o": dt.date(2024, 1, 1)}])
    marked = {"k": 1, "o": dt.date(2024, 1, 2), "_hoodie_is_deleted": True}
    with pytest.raises(Exception, match="UnresolvedUnionException"):
        case.write([marked])
    case.write([marked], record_type="SPARK")
    assert case.by_rust("o") == case.by_java("o") == []


def test_ordering_by_text_in_parquet_log_blocks(hudi_session: SparkSession, tmp_path: Path) -> None:
    case = Case(hudi_session, tmp_path, schema(o=pa.string()), **MOR)
    case.write([{"k": number, "o": "b"} for number in range(3)])
    written = [{"k": 0, "o": "c"}, {"k": 1, "o": "b"}, {"k": 2, "o": "a"}]
    case.write(written, record_type="SPARK", log_block="parquet")
    assert case.by_rust("o") == ["b", "b", "c"]
    # every row of the block is compared by the last row's value
    assert case.by_java("o") != ["b", "b", "c"]


PARTIAL = {"serde_lab.partial_updates": "true"}


def test_a_column_that_marks_deletes_in_partial_log_blocks(
    hudi_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = schema(o=pa.int64(), v=pa.string(), _hoodie_is_deleted=pa.bool_())
    facts = HudiTable("t", ("k",), ("o",), buckets=1, **MOR)
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table)
    lab.step(Step("upsert", ([{"k": 1, "o": 1, "v": "a"}],), columns))
    update = Step("upsert", ([{"k": 1, "o": 2}],), columns.remove(2))
    with pytest.raises(SchemaError, match="marks deletes"):
        lab.step(update, **PARTIAL)
    monkeypatch.setattr(DeleteMarkers, "used_in", lambda *_: [])
    lab.step(update, **PARTIAL)
    assert plan_snapshot(HoodieTable.open(lab.storage)).read()["o"].to_pylist() == [2]
    with pytest.raises(TableError, match="ArrayIndexOutOfBounds"):
        by_java(hudi_session, table.path, "o")


def test_a_column_of_partial_rows_that_became_wider(
    hudi_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = schema(o=pa.int64(), v=pa.int64(), w=pa.string())
    facts = HudiTable("t", ("k",), ("o",), buckets=1, **MOR)
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table)
    lab.step(Step("upsert", ([{"k": 1, "o": 1, "v": 1, "w": "a"}],), columns))
    lab.step(Step("upsert", ([{"k": 1, "o": 2, "v": 2}],), columns.remove(3)), **PARTIAL)
    wide = columns.set(2, pa.field("v", pa.float64()))
    update = Step("upsert", ([{"k": 2, "o": 3, "v": 3.5, "w": "b"}],), wide)
    with pytest.raises(SchemaError, match="hold partial updates of it"):
        lab.step(update)
    monkeypatch.setattr(write_schema, "_check_logs", lambda *_: None)
    lab.step(update)
    own = plan_snapshot(HoodieTable.open(lab.storage)).read()
    assert sorted(own["v"].to_pylist()) == [2.0, 3.5]
    # the bytes of the long 2 as a double
    assert by_java(hudi_session, table.path, "v") == [1e-323, 3.5]
    with pytest.raises(TableError, match="Int64 but the table schema expects Float64"):
        HudiRs(table.path).table()


def test_an_ordering_column_that_became_wider_beside_deletes_in_logs(
    hudi_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = schema(o=pa.int64(), _hoodie_is_deleted=pa.bool_())
    facts = HudiTable("t", ("k",), ("o",), buckets=1, **MOR)
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table)
    stored = [{"k": k, "o": 5, "_hoodie_is_deleted": False} for k in (1, 2, 3)]
    lab.step(Step("upsert", (stored,), columns))
    # a delete that is newer, and one that is older
    deletes = [{"k": k, "o": o, "_hoodie_is_deleted": True} for k, o in ((1, 7), (2, 4))]
    lab.step(Step("upsert", (deletes,), columns))
    wide = columns.set(1, pa.field("o", pa.float64()))
    update = Step("upsert", ([{"k": 3, "o": 8.5, "_hoodie_is_deleted": False}],), wide)
    with pytest.raises(SchemaError, match="hold deletes with values of it"):
        lab.step(update)
    monkeypatch.setattr(write_schema, "_check_logs", lambda *_: None)
    lab.step(update)
    own = HoodieTable.open(lab.storage)
    assert sorted(plan_snapshot(own).read()["o"].to_pylist()) == [5.0, 8.5]
    with pytest.raises(TableError, match="ClassCastException"):
        by_java(hudi_session, table.path, "o")
    assert sorted(HudiRs(table.path).table()["o"].to_pylist()) != [5.0, 8.5]
    compact(own)
    assert by_java(hudi_session, table.path, "o") == [5.0, 8.5]


def test_a_row_after_a_delete_beside_partial_log_blocks(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    columns = schema(o=pa.int64(), v=pa.string())
    facts = HudiTable("t", ("k",), ("o",), merge_mode="COMMIT_TIME_ORDERING", buckets=1, **MOR)
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table)
    lab.step(Step("upsert", ([{"k": 1, "o": 1, "v": "a"}, {"k": 2, "o": 1, "v": "a"}],), columns))
    lab.step(Step("upsert", ([{"k": 1, "o": 2}],), schema(o=pa.int64())), **PARTIAL)
    lab.step(Step("delete", ([{"k": 2}],), columns))
    assert by_java(hudi_session, table.path, "o") == [2]
    lab.step(Step("upsert", ([{"k": 2, "o": 3, "v": "b"}],), columns))
    with pytest.raises(TableError, match="NullPointerException"):
        by_java(hudi_session, table.path, "o")
    own = HoodieTable.open(lab.storage)
    assert sorted(plan_snapshot(own).read()["o"].to_pylist()) == [2, 3]
    compact(own)
    assert by_java(hudi_session, table.path, "o") == [2, 3]


def test_null_ordering_values(hudi_session: SparkSession, tmp_path: Path) -> None:
    case = Case(hudi_session, tmp_path, schema(o=pa.int64())).write([{"k": 1, "o": 1}])
    with pytest.raises(Exception, match="NullPointerException"):
        case.write([{"k": 1, "o": None}])


@pytest.mark.parametrize("table", [{}, MOR], ids=["copy on write", "merge on read"])
def test_two_ordering_fields(
    table: dict[str, Any], hudi_session: SparkSession, tmp_path: Path
) -> None:
    columns = schema(o=pa.int64(), r=pa.int64())
    case = Case(hudi_session, tmp_path, columns, ordering=("o", "r"), **table)
    case.write([{"k": 1, "o": 1, "r": 1}]).write([{"k": 1, "o": 1, "r": 2}])
    assert case.by_java("r") == [2]
    with pytest.raises(TableError, match="hudi-rs cannot read"):
        case.by_rust("r")


def test_ordering_by_timestamp_without_zone(hudi_session: SparkSession, tmp_path: Path) -> None:
    case = Case(hudi_session, tmp_path, schema(o=pa.timestamp("us")), **MOR)
    case.write([{"k": 1, "o": dt.datetime(2024, 1, 1)}]).write(
        [{"k": 1, "o": dt.datetime(2024, 1, 2)}]
    )
    assert case.by_java("o") == [dt.datetime(2024, 1, 2)]
    with pytest.raises(TableError, match="hudi-rs cannot read"):
        case.by_rust("o")


def test_nulls_in_lists(hudi_session: SparkSession, tmp_path: Path) -> None:
    case = Case(hudi_session, tmp_path, schema(o=pa.int64(), v=pa.list_(pa.int64())))
    with pytest.raises(Exception, match="Failed to write to Hudi"):
        case.write([{"k": 1, "o": 1, "v": [1, None]}])
    case.write([{"k": 1, "o": 1, "v": [1, None]}], record_type="SPARK")
    assert case.by_rust("v") == case.by_java("v") == [[1, None]]


def test_lists_of_structs_of_one_field(hudi_session: SparkSession, tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))
    case = Case(hudi_session, tmp_path, schema(o=pa.int64(), v=kind))
    case.write([{"k": 1, "o": 1, "v": [{"m": [("a", 1)]}]}])
    with pytest.raises(Exception, match="Avro field 'key_value' not found"):
        case.write([{"k": 1, "o": 2, "v": [{"m": [("a", 2)]}]}])


@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
def test_timestamps_without_zone(hudi_session: SparkSession, tmp_path: Path) -> None:
    columns = schema(o=pa.int64(), v=pa.timestamp("us"))
    peer = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k",), ("o",), buckets=1), columns)
    step = Step("upsert", ([{"k": 1, "o": 1, "v": dt.datetime(2024, 1, 1)}],), columns)
    LabWriter(peer).step(step)
    with HudiSnapshot(hudi_session, peer.path) as snapshot:
        assert check_contents(snapshot, peer.expected(), peer.rules).results[0].passed
    with pytest.raises(TableError, match="not yet implemented"):
        HudiRs(peer.path).table()


def test_timestamps_and_binary_as_partitions(hudi_session: SparkSession, tmp_path: Path) -> None:
    """Of its own tables; the lab's are alike, and say so in a warning."""
    values = {pa.timestamp("us", "UTC"): dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pa.binary(): b"ab"}
    read = []
    for kind, value in values.items():
        columns = schema(o=pa.int64(), p=kind)
        folder = tmp_path / str(kind).partition("[")[0]
        folder.mkdir()
        case = Case(hudi_session, folder, columns, partition=("p",), hive_style=True)
        case.write([{"k": 1, "o": 1, "p": value}])
        with HudiSnapshot(hudi_session, case.path) as snapshot:
            read += [row["p"] for batch in snapshot.batches() for row in batch.to_pylist()]
        assert case.by_rust("p") == [value]
    assert read == [None, b"6162"]


def test_an_equals_sign_in_a_partition(hudi_session: SparkSession, tmp_path: Path) -> None:
    """Of its own tables and of the lab's: the rest of the folder's name is taken for the value."""
    columns = schema(o=pa.int64(), p=pa.string())
    case = Case(hudi_session, tmp_path, columns, partition=("p",))
    case.write([{"k": 1, "o": 1, "p": "a=b"}])
    assert case.by_rust("p") == ["a=b"]
    assert case.by_java("p") == ["b"]
    rows = plan_snapshot(HoodieTable.open(Storage.open(case.path))).read()
    assert rows["p"].to_pylist() == ["a=b"]


def test_a_record_that_stays_in_its_partition(hudi_session: SparkSession, tmp_path: Path) -> None:
    """The partition column of its row. In the lab's tables, too, and a warning says so."""
    stays = {"hoodie.simple.index.update.partition.path": "false"}
    columns = schema(o=pa.int64(), p=pa.string())
    case = Case(hudi_session, tmp_path, columns, partition=("p",), index="GLOBAL_SIMPLE")
    for order, path in enumerate("xy"):
        case.write([{"k": 1, "o": order, "p": path}], extra=stays)
    assert case.by_rust("_hoodie_partition_path") == ["x"]
    assert case.by_rust("p") == ["y"]
    assert case.by_java("p") == ["x"]
    rows = plan_snapshot(HoodieTable.open(Storage.open(case.path))).read()
    assert rows["p"].to_pylist() == ["y"]


def test_timestamps_as_record_keys(hudi_session: SparkSession, tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.timestamp("us", "UTC")), ("o", pa.int64())])
    moments = [dt.datetime(2024, 1, 1, 0, 0, 0, micros, dt.UTC) for micros in (1, 2)]
    written = [{"k": moment, "o": 1} for moment in moments]
    keys = {}
    for record_type in ("AVRO", "SPARK"):
        folder = tmp_path / record_type
        folder.mkdir()
        case = Case(hudi_session, folder, columns).write(written, record_type=record_type)
        keys[record_type] = case.by_rust("_hoodie_record_key")
    assert keys["AVRO"] == ["1704067200000001", "1704067200000002"]
    assert keys["SPARK"] == ["2024-01-01 00:00:00.0"]  # to the millisecond: one of two rows is gone


def test_binary_record_keys(hudi_session: SparkSession, tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.binary()), ("o", pa.int64())])
    case = Case(hudi_session, tmp_path, columns)
    case.write([{"k": b"abc", "o": 1}], record_type="SPARK")
    case.write([{"k": b"abc", "o": 2}], record_type="SPARK")
    assert case.by_rust("o") == [1, 2]  # the key is the array's identity in memory


@pytest.mark.parametrize(("value", "text"), [(None, "__null__"), ("", "__empty__")])
def test_null_in_a_key_of_several_fields(
    value: str | None, text: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    columns = schema(o=pa.int64(), i=pa.string())
    case = Case(hudi_session, tmp_path, columns, record_key=("k", "i"))
    with pytest.raises(
        Exception, match=r"NullPointerException|HoodieKeyException|handleNullRecordKey"
    ):
        case.write([{"k": 1, "o": 1, "i": value}], record_type="SPARK")
    case.write([{"k": 1, "o": 1, "i": value}])
    assert case.by_rust("_hoodie_record_key") == [f"k:1,i:{text}"]
