"""Apache Hudi and the lab take turns on one table: delete markers, partial updates, either merge mode.

The oracle says after every turn what must be there, and both readers are held to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.merging.survivors import MergeMode
from serde_lab.records.schema import RecordSchema
from serde_lab.table.config import TableConfig
from serde_lab.table.files.log_block import Header, LogBlock, parse_blocks
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.table_rules import TableRules
from tests.peers.hudi_reads import HudiSnapshot
from tests.peers.lab_writer import LabWriter, write_in_process
from tests.peers.peer_tables import HudiTable, HudiWrite, PeerTable, Step
from tests.table.made_up_tables import SMALL, LogAppender, PlainWriter, our_rows, without_meta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("o", pa.int64()),
        ("op", pa.string()),
        ("text", pa.string()),
        ("x", pa.float64()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
MODEL = "org.apache.hudi.common.model"


@dataclass(frozen=True)
class Case:
    """A way to merge: in the oracle's words, in the lab's options, in Hudi's when it makes the table."""

    rules: dict[str, Any] = field(default_factory=dict)
    lab: dict[str, str] = field(default_factory=dict)
    hudi: dict[str, str] = field(default_factory=dict)
    mode: str = "EVENT_TIME_ORDERING"


COMMIT = "COMMIT_TIME_ORDERING"
IGNORE = {"partial_update": "IGNORE_DEFAULTS"}
FILL = {"partial_update": "FILL_UNAVAILABLE", "unavailable": "?"}
CASES = {
    "by event": Case(),
    "by commit": Case(mode=COMMIT),
    "own marker": Case(
        {"delete_field": "op", "delete_marker": "D"},
        {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"},
    ),
    "ignore defaults": Case(
        IGNORE,
        {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        {"hoodie.datasource.write.payload.class": f"{MODEL}.PartialUpdateAvroPayload"},
    ),
    "ignore defaults, by commit": Case(
        IGNORE,
        {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        {
            "hoodie.datasource.write.payload.class": (
                f"{MODEL}.OverwriteNonDefaultsWithLatestAvroPayload"
            )
        },
        COMMIT,
    ),
    "fill unavailable": Case(
        FILL,
        {
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            "hoodie.write.partial.update.unavailable.value": "?",
        },
    ),
}
TABLES = [
    ("by event", "COPY_ON_WRITE", "hudi"),
    ("by event", "MERGE_ON_READ", "lab"),
    ("by commit", "MERGE_ON_READ", "hudi"),
    # a datasource write of Hudi's stores no marker in the table that it makes
    ("own marker", "COPY_ON_WRITE", "lab"),
    ("own marker", "MERGE_ON_READ", "lab"),
    ("ignore defaults", "COPY_ON_WRITE", "lab"),
    ("ignore defaults", "MERGE_ON_READ", "hudi"),
    ("ignore defaults, by commit", "MERGE_ON_READ", "lab"),
    ("fill unavailable", "MERGE_ON_READ", "lab"),
]


def row(key: str, ordering: int, **values: Any) -> dict[str, Any]:
    """A row with gaps wherever `values` says nothing."""
    return {"k": key, "o": ordering, "op": "I"} | values


def whole(key: str, ordering: int, word: str) -> dict[str, Any]:
    return row(key, ordering, text=word, x=ordering / 2, s={"a": ordering, "b": word})


def marked(key: str, ordering: int) -> dict[str, Any]:
    """A delete in both ways of saying so."""
    return row(key, ordering, op="D", _hoodie_is_deleted=True)


KEYS = [f"k{n}" for n in range(12)]
STEPS = [
    Step("upsert", ([whole(key, 5, "first") for key in KEYS], [marked("k11", 9)]), SCHEMA),
    Step(
        "upsert",
        (
            [marked("k0", 4), marked("k1", 5), marked("k2", 6), marked("gone", 6)],
            [
                row("k3", 6, text="newer"),  # the gaps are filled from what is stored
                row("k4", 4, text="late", x=1.0),
                row("k5", 7, text="?", x=9.0),
                row("k6", 4, text="low twin", s={"a": None, "b": "twin"}),
                row("k6", 8, x=8.0),
                row("k7", 5, text="tie"),
                {**whole("k8", 8, "unlike"), "_hoodie_is_deleted": False},
            ],
        ),
        SCHEMA,
    ),
    Step(
        "upsert",
        (
            [whole("k1", 4, "lower than its delete"), whole("k2", 7, "above its delete")],
            [row("k3", 9, x=None), row("k4", 6), marked("k8", 7), marked("k9", 5)],
            [row("k5", 6, text="?", s={"a": 1, "b": "?"}), row("new", 1)],
        ),
        SCHEMA,
    ),
    Step(
        "upsert",
        ([row("k3", 8, text="again"), row("k9", 5, text="back"), marked("k10", 9)],),
        SCHEMA,
    ),
]


class Turns(PeerTable):
    """A table that both write."""

    case: Case

    @property
    def rules(self) -> TableRules:
        """The table as the checks see it, with how it merges."""
        table = self.table
        return TableRules(
            RecordSchema(self.schema, table.record_key, (), table.ordering),
            merge_mode=table.merge_mode,
            table_type=table.table_type,
            buckets=table.buckets if table.table_type == "MERGE_ON_READ" else 0,
            **self.case.rules,
        )

    def by_lab(self, step: Step) -> None:
        """The lab does the next write, without Spark."""
        LabWriter(self, strategy="arrow").step(step, **self.case.lab)


@pytest.mark.parametrize(("name", "kind", "first"), TABLES)
def test_both_merge_alike_on_one_table(
    name: str, kind: Any, first: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    case = CASES[name]
    facts = HudiTable("t", ("k",), ("o",), table_type=kind, merge_mode=case.mode, buckets=2)  # type: ignore[arg-type]
    table = Turns(hudi_session, tmp_path, facts, SCHEMA)
    table.case = case
    for number, step in enumerate(STEPS):
        if (number % 2 == 0) == (first == "hudi"):
            table.by_hudi(step, HudiWrite(extra=case.hudi if number == 0 else {}))
        else:
            table.by_lab(step)
        if number % 2:
            assert table.problems(("apache-hudi", "serde_lab")) == [], (number, step)


def test_partial_updates_of_merge_into_read_as_hudi_reads_them(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    facts = HudiTable("t", ("k",), ("o",), table_type="MERGE_ON_READ", buckets=2)
    # with the column in the table Hudi 1.2.0 cannot read its own partial rows, where it looks for it
    schema = SCHEMA.remove(SCHEMA.get_field_index("_hoodie_is_deleted"))
    table = Turns(hudi_session, tmp_path, facts, schema)
    table.case = CASES["by event"]
    table.by_lab(Step("upsert", ([whole(key, 5, "first") for key in KEYS],), schema))
    hudi_session.sql(f"CREATE TABLE merged USING hudi LOCATION '{table.path}'")
    settings = {
        "hoodie.spark.sql.merge.into.partial.updates": "true",
        "hoodie.metadata.enable": "false",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }
    try:
        for key, value in settings.items():
            hudi_session.sql(f"SET {key} = {value}")
        for assigned, source in (
            (
                "o = s.o, text = s.v",
                "SELECT 'k1' AS k, 6L AS o, 'sql' AS v UNION SELECT 'k2', 4L, 'x'",
            ),
            (
                "o = s.o, x = s.v",
                "SELECT 'k1' AS k, 7L AS o, 2.5D AS v UNION SELECT 'k3', 9L, 3.5D",
            ),
        ):
            hudi_session.sql(
                f"MERGE INTO merged t USING ({source}) s ON t.k = s.k"
                f" WHEN MATCHED THEN UPDATE SET {assigned}"
            )
    finally:
        for key in settings:
            hudi_session.conf.unset(key)
        hudi_session.sql("DROP TABLE merged")
    blocks = [
        block
        for log in Path(table.path).glob(".*.log.*_*")
        if not log.name.endswith(".crc")
        for block in parse_blocks(pa.py_buffer(log.read_bytes()))
        if isinstance(block, LogBlock)
    ]
    assert any(block.header.get(Header.IS_PARTIAL) == "true" for block in blocks)
    with HudiSnapshot(hudi_session, table.path) as snapshot:
        expected = snapshot.table().select(schema.names).sort_by("k").to_pylist()
    own = plan_snapshot(HoodieTable.open(Storage.open(Path(table.path)))).read()
    assert own.select(schema.names).sort_by("k").to_pylist() == expected
    changed = {each["k"]: (each["o"], each["text"], each["x"]) for each in expected}
    assert changed["k1"] == (7, "sql", 2.5)
    assert changed["k2"] == (5, "first", 2.5)


def seen_by_both(table: Turns) -> dict[str, tuple[Any, ...]]:
    """o, text and x by key, as both readers see them."""
    names = ["k", "o", "text", "x"]
    with HudiSnapshot(table.spark, table.path) as snapshot:
        by_hudi = snapshot.table().select(names).sort_by("k").to_pylist()
    own = plan_snapshot(HoodieTable.open(Storage.open(Path(table.path)))).read()
    assert own.select(names).sort_by("k").to_pylist() == by_hudi
    found = {each["k"]: (each["o"], each["text"], each["x"]) for each in by_hudi}
    assert len(found) == len(by_hudi)
    return found


@pytest.mark.parametrize(("mode", "blocks"), [("by event", "avro"), ("by commit", "parquet")])
def test_partial_updates_of_the_lab_read_as_hudi_reads_them(
    mode: str, blocks: Any, hudi_session: SparkSession, tmp_path: Path
) -> None:
    by_event = mode == "by event"
    case = CASES[mode]
    facts = HudiTable(
        "t",
        ("k",),
        ("o",),
        table_type="MERGE_ON_READ",
        merge_mode=case.mode,
        buckets=1,  # type: ignore[arg-type]
    )
    # a column that marks deletes keeps Apache Hudi from reading partial rows
    columns = SCHEMA.remove(SCHEMA.get_field_index("_hoodie_is_deleted"))
    table = Turns(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table, blocks)
    lab.step(Step("upsert", ([whole(key, 5, "first") for key in KEYS],), columns))

    def partly(*rows: dict[str, Any]) -> None:
        schema = pa.schema([columns.field(name) for name in rows[0]])
        lab.step(Step("upsert", (list(rows),), schema), **{"serde_lab.partial_updates": "true"})

    partly(
        {"k": "k1", "o": 7, "text": "new"},
        {"k": "k2", "o": 4, "text": "late"},
        {"k": "k3", "o": 6, "text": None},
        {"k": "new", "o": 6, "text": "unknown"},
    )
    # k1's is late, and fills what the log has not said of it
    partly(
        {"k": "k1", "o": 6, "x": 1.0}, {"k": "k3", "o": 6, "x": 3.0}, {"k": "new", "o": 7, "x": 2.0}
    )
    if by_event:
        # by commit time Apache Hudi cannot read what follows a delete here (readers.toml)
        lab.step(Step("delete", ([{"k": "k5"}, {"k": "new"}],), columns))
        partly({"k": "k5", "o": 6, "text": "back"}, {"k": "new", "o": 8, "text": "back"})
    lab.step(Step("upsert", ([whole("k6", 8, "whole")],), columns))
    partly({"k": "k6", "o": 9, "x": 9.0})
    expected: dict[str, tuple[Any, ...]] = dict.fromkeys(KEYS, (5, "first", 2.5))
    expected |= {
        "k1": (7, "new", 1.0) if by_event else (6, "new", 1.0),
        "k2": (5, "first", 2.5) if by_event else (4, "late", 2.5),
        "k3": (6, None, 3.0),
        "k5": (6, "back", None) if by_event else (5, "first", 2.5),
        "k6": (9, "whole", 9.0),
        "new": (8, "back", None) if by_event else (7, "unknown", 2.0),
    }
    assert seen_by_both(table) == expected
    # Apache Hudi writes on and compacts
    table.by_hudi(
        Step("upsert", ([whole("k7", 9, "of hudi")],), columns), HudiWrite(compact_after=1), True
    )
    expected["k7"] = (9, "of hudi", 4.5)
    assert seen_by_both(table) == expected
    assert not HoodieTable.open(lab.storage).view().latest_file_slices()[0].log_files


@pytest.mark.parametrize("mode", [MergeMode.COMMIT_TIME, MergeMode.EVENT_TIME])
def test_the_logs_of_writes_that_overlapped_merge_as_apache_hudi_merges_them(
    mode: MergeMode, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Non-blocking writers of Apache Hudi make such tables: the write that began first completes last."""
    storage = Storage.open(tmp_path / "table")
    ordering = ("ts",) if mode is MergeMode.EVENT_TIME else ()
    config = TableConfig(
        "t", ("id",), table_type="MERGE_ON_READ", ordering_fields=ordering, merge_mode=mode
    )
    writer = PlainWriter(storage, config, SMALL)
    writer.upsert([{"id": "a", "ts": 1, "value": "base"}])
    begun_first, begun_second = LogAppender(writer), LogAppender(writer)
    begun_second.rows({"id": "a", "ts": 2, "value": "begun second"}).commit()
    begun_first.rows({"id": "a", "ts": 2, "value": "begun first"}).commit()
    (by_hudi,) = hudi_session.read.format("hudi").load(storage.url).collect()
    (ours,) = without_meta(our_rows(writer.table))
    assert ours["value"] == by_hudi["value"]


def by_each(
    payload: str,
    version: str,
    columns: Sequence[str],
    commits: Sequence[list[dict[str, Any]]],
    session: SparkSession,
    folder: Path,
) -> Iterator[str]:
    """Two copy-on-write tables of one file: Apache Hudi's, and one that it began and the lab went on with."""
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.table.ordering.fields": "o",
        "hoodie.datasource.write.payload.class": f"{MODEL}.{payload}",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
    }
    theirs = options | {
        "hoodie.write.table.version": version,
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.upsert.shuffle.parallelism": "1",
    }
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    for writer in ("hudi", "lab"):
        path = str(folder / writer)
        for number, rows in enumerate(commits):
            source = Step("upsert", (rows,), schema).folder(folder / f"{writer} {number}")
            if number and writer == "lab":
                write_in_process(path, source, options)
                continue
            frame = session.read.parquet(str(source))
            frame.write.format("hudi").options(**theirs).mode("append").save(path)
        yield path


@pytest.mark.parametrize("version", ["6", "8"])
@pytest.mark.parametrize(
    "payload", ["PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload"]
)
def test_late_deletes_by_payload_classes(
    payload: str, version: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Before version 9 these classes decide themselves, on copy-on-write: a late row loses or fills gaps, a
    late delete deletes."""
    first = [row(key, 5, text=key, x=1.0, _hoodie_is_deleted=False) for key in "abcd"]
    second = [
        row("a", 4, _hoodie_is_deleted=True),
        row("b", 5, _hoodie_is_deleted=True),
        row("c", 4, text="late", _hoodie_is_deleted=False),
        row("new", 1, _hoodie_is_deleted=True),
    ]
    columns = ("k", "o", "text", "x", "_hoodie_is_deleted")
    kept = []
    for path in by_each(payload, version, columns, (first, second), hudi_session, tmp_path):
        own = plan_snapshot(HoodieTable.open(Storage.open(Path(path)))).read()
        kept.append(own.select(["k", "o", "text", "x"]).sort_by("k").to_pylist())
        with HudiSnapshot(hudi_session, path) as snapshot:
            by_hudi = snapshot.table().select(["k", "o", "text", "x"]).sort_by("k").to_pylist()
        assert by_hudi == kept[-1]
    assert kept[0] == kept[1]
    assert [found["k"] for found in kept[0]] == ["c", "d"]


@pytest.mark.parametrize("version", ["6", "9"])
def test_which_rows_a_late_row_changes(
    version: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """A stored row that wins keeps its commit time only if it has no gap; before version 9, never. Readers of
    changes go by it."""
    first = [row("gap", 5), row("none", 5, text="a"), row("both", 5), row("unmet", 5)]
    second = [row("gap", 4, text="late"), row("none", 4, text="late"), row("both", 4)]
    commits, columns = (first, second), ("k", "o", "text")
    payload = "PartialUpdateAvroPayload"
    changed = []
    for path in by_each(payload, version, columns, commits, hudi_session, tmp_path):
        own = plan_snapshot(HoodieTable.open(Storage.open(Path(path)))).read()
        times = own["_hoodie_commit_time"].to_pylist()
        rows = zip(own["k"].to_pylist(), own["text"].to_pylist(), times, strict=True)
        changed.append({key: text for key, text, time in rows if time != min(times)})
    by_class = {"none": "a"} if version == "6" else {}
    assert changed == [{"gap": "late", "both": None} | by_class] * 2


@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", COMMIT])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("first", ["lab", "hudi"])
def test_how_a_table_merges_after_an_upgrade_by_hudi(
    first: str, kind: Any, mode: Any, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """It keeps its mode, but for merge on read by commit time, which becomes event time (readers.toml)."""
    facts = HudiTable("t", ("k",), ("o",), table_type=kind, merge_mode=mode, buckets=1, version=6)
    table = PeerTable(hudi_session, tmp_path, facts, SCHEMA)
    step = Step("upsert", ([whole(key, 5, "first") for key in KEYS],), SCHEMA)
    if first == "lab":
        LabWriter(table, version=6).step(step)
    else:
        payload = "OverwriteWithLatest" if mode == COMMIT else "EventTime"
        extra = {
            "hoodie.write.auto.upgrade": "false",
            "hoodie.datasource.write.payload.class": f"{MODEL}.{payload}AvroPayload",
        }
        table.by_hudi(step, HudiWrite(extra=extra))
    upgraded = replace(facts, version=9)
    becomes = mode if kind == "COPY_ON_WRITE" else "EVENT_TIME_ORDERING"
    # the write that upgrades it may not name a mode that the table has no longer
    table.table = replace(upgraded, merge_mode=becomes)
    late = Step("upsert", ([whole("k1", 4, "late"), whole("k2", 6, "newer")],), SCHEMA)
    table.by_hudi(late, HudiWrite())
    config = HoodieTable.open(Storage.open(Path(table.path))).config
    assert (config.version, config.merge_mode) == (9, becomes)
    assert table.problems() == []
