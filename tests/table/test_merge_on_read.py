"""Tables with log files: our own reader and hudi-rs against what Hudi's merge rules say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.merging.survivors import MergeMode
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.table import read_plan
from serde_lab.table.config import TableConfig
from serde_lab.table.files import log_file
from serde_lab.table.files.base_file import BaseFileWriter, with_meta_columns
from serde_lab.table.files.log_block import (
    BlockType,
    Header,
    LogBlock,
    encode_parquet,
    parse_blocks,
)
from serde_lab.table.files.log_file import LogFormat, LogTarget, LogWriter, check_block_format
from serde_lab.table.files.log_records import check_positions
from serde_lab.table.files.parquet import BaseFileFormat
from serde_lab.table.read_plan import plan_incremental
from serde_lab.table.storage.data_files import LogFileName, Writing
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.archive import archive
from tests.table.made_up_tables import (
    EVERY_TYPE,
    SMALL,
    LogAppender,
    PlainWriter,
    Row,
    batch_of,
    every_type_row,
    hudi_rs_rows,
    our_rows,
    without_meta,
)

AVRO, PARQUET = LogFormat("avro"), LogFormat("parquet")
FORMATS = pytest.mark.parametrize("format", [AVRO, PARQUET], ids=["avro", "parquet"])
VERSIONS = pytest.mark.parametrize("version", [9, 6])


def config(version: int = 9, **changes: object) -> TableConfig:
    return TableConfig(
        "trips",
        ("id",),
        table_type="MERGE_ON_READ",
        version=version,
        ordering_fields=("ts",),
        **changes,  # type: ignore[arg-type]
    )


def row(key: str, ts: int, note: str = "") -> Row:
    return {"id": key, "ts": ts, "value": f"{key}@{ts}{note}"}


def longs(*values: int) -> pa.Array:
    return pa.array(values, pa.int64())


def check(writer: PlainWriter, expected: list[Row]) -> None:
    """Both readers see the expected rows, and the same meta columns."""
    theirs = hudi_rs_rows(writer.storage)
    assert without_meta(theirs) == without_meta(expected)
    assert our_rows(writer.table) == theirs


@pytest.fixture
def writer(local: Storage) -> PlainWriter:
    """A table whose base file has a and b at 5."""
    made = PlainWriter(local, config(), SMALL)
    made.upsert([row("a", 5), row("b", 5)])
    return made


Step = Callable[[LogAppender], object]

# what happens to key a of the base file at 5, commit after commit, and the row that is left
CASES: dict[str, tuple[list[Step], Row | None]] = {
    "later": ([lambda log: log.rows(row("a", 6))], row("a", 6)),
    "late": ([lambda log: log.rows(row("a", 4))], row("a", 5)),
    "tie goes to the newer": ([lambda log: log.rows(row("a", 5, "!"))], row("a", 5, "!")),
    "delete by commit time": ([lambda log: log.deletes("a")], None),
    "late delete": ([lambda log: log.deletes("a", ordering=longs(4))], row("a", 5)),
    "delete at a tie": ([lambda log: log.deletes("a", ordering=longs(5))], None),
    "later delete": ([lambda log: log.deletes("a", ordering=longs(6))], None),
    "update, then an older delete": (
        [lambda log: log.rows(row("a", 9)), lambda log: log.deletes("a", ordering=longs(7))],
        row("a", 9),
    ),
    "delete by commit time, then an older row: the base file's comes back": (
        [lambda log: log.deletes("a"), lambda log: log.rows(row("a", 3))],
        row("a", 5),
    ),
    "delete by commit time, then a newer row": (
        [lambda log: log.deletes("a"), lambda log: log.rows(row("a", 9))],
        row("a", 9),
    ),
    "delete, then an older row": (
        [lambda log: log.deletes("a", ordering=longs(6)), lambda log: log.rows(row("a", 5, "!"))],
        None,
    ),
    "delete, then a row at its tie": (
        [lambda log: log.deletes("a", ordering=longs(6)), lambda log: log.rows(row("a", 6))],
        row("a", 6),
    ),
    "update, then delete by commit time": (
        [lambda log: log.rows(row("a", 9)), lambda log: log.deletes("a")],
        None,
    ),
    "delete by commit time, then an older delete": (
        [lambda log: log.deletes("a"), lambda log: log.deletes("a", ordering=longs(1))],
        None,
    ),
    "rows and deletes in one log file": (
        [lambda log: log.rows(row("a", 7)).deletes("a", ordering=longs(8)).rows(row("a", 9))],
        row("a", 9),
    ),
    "doubled in one block": (
        [lambda log: log.rows(row("a", 8), row("a", 9, "x"), row("a", 9, "y"), row("a", 7))],
        row("a", 9, "y"),
    ),
}


@pytest.mark.parametrize("case", CASES)
@FORMATS
def test_merging_by_event_time(writer: PlainWriter, case: str, format: LogFormat) -> None:
    steps, left = CASES[case]
    for step in steps:
        log = LogAppender(writer, format)
        step(log)
        log.commit()
    expected = [row("b", 5)] if left is None else [left, row("b", 5)]
    check(writer, expected)
    assert without_meta(our_rows(writer.table, read_optimised=True)) == [row("a", 5), row("b", 5)]


@FORMATS
def test_merging_by_commit_time(local: Storage, format: LogFormat) -> None:
    writer = PlainWriter(local, config(merge_mode=MergeMode.COMMIT_TIME), SMALL)
    writer.upsert([row("a", 5), row("b", 5), row("c", 5), row("d", 5)])
    LogAppender(writer, format).rows(row("a", 1), row("b", 9)).deletes("c").commit()
    LogAppender(writer, format).rows(row("b", 2), row("c", 1)).deletes("d").commit()
    check(writer, [row("a", 1), row("b", 2), row("c", 1)])


@VERSIONS
@FORMATS
@pytest.mark.parametrize("partitioned", [False, True], ids=["flat", "hive"])
def test_every_type_and_several_commits_come_back(
    local: Storage, version: int, format: LogFormat, partitioned: bool
) -> None:
    layout = {"partition_fields": ("region",), "hive_style": True} if partitioned else {}
    writer = PlainWriter(local, config(version, **layout), EVERY_TYPE)

    def made(number: int, ts: int) -> Row:
        return every_type_row(number, ts, f"r{number % 2}")

    def gone(numbers: range, ts: int) -> None:
        for region in ("r0", "r1") if partitioned else ("",):
            keys = [f"key-{n}" for n in numbers if region in ("", f"r{n % 2}")]
            log.deletes(
                *keys,
                ordering=longs(*[ts] * len(keys)),
                partition=f"region={region}" if region else "",
            )

    expected = {f"key-{n}": made(n, 1) for n in range(20)}
    writer.upsert(list(expected.values()))
    for ts, numbers, deleted in [(2, range(10, 30), range(3)), (3, range(25, 28), range(26, 27))]:
        log = LogAppender(writer, format)
        log.rows(*(made(n, ts) for n in numbers))
        expected |= {f"key-{n}": made(n, ts) for n in numbers}
        gone(deleted, ts)
        for n in deleted:
            del expected[f"key-{n}"]
        log.commit()
    check(writer, list(expected.values()))


def test_deletes_of_every_ordering_type(
    local: Storage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    for kind, values in {
        pa.int32(): [1, 2, 3],
        pa.float32(): [1.5, 2.5, 3.5],
        pa.float64(): [-1.5, 0.0, 3.5],
        pa.string(): ["a", "b", "c"],
        pa.date32(): [date(2024, 1, n) for n in (1, 2, 3)],
        pa.timestamp("us", "UTC"): [datetime(2024, 1, n, tzinfo=UTC) for n in (1, 2, 3)],
        pa.decimal128(15, 2): [Decimal("-1.25"), Decimal("0.00"), Decimal("300.07")],
    }.items():
        storage = Storage.open(tmp_path_factory.mktemp("lake"))
        schema = pa.schema([("id", pa.string()), ("ts", kind), ("value", pa.string())])
        writer = PlainWriter(storage, config(), schema)
        base = [{"id": key, "ts": values[1], "value": key} for key in ("low", "same", "high")]
        writer.upsert(base)
        LogAppender(writer).deletes("low", "same", "high", ordering=pa.array(values, kind)).commit()
        check(writer, [base[0]])


def test_files_roll_and_blocks_are_cut(storage: Storage) -> None:
    writer = PlainWriter(storage, config(), SMALL)
    writer.upsert([row("a", 0)])
    rows = [row(f"k{n:04}", 1) for n in range(500)]
    log = LogAppender(writer, LogFormat("avro", block_bytes=2000, file_bytes=8000))
    log.rows(*rows[:300]).rows(*rows[300:]).deletes("k0000", ordering=longs(2))
    stats = log.stats()
    writer.complete(log.instant, stats)
    assert len(stats) > 3
    assert [s.logVersion for s in stats] == list(range(1, len(stats) + 1))
    assert sum(s.numWrites for s in stats) == 500
    assert sum(s.numDeletes for s in stats) == 1
    assert [s.numInserts for s in stats] == [s.numWrites for s in stats]
    assert all(storage.size_bytes(s.path) == s.fileSizeInBytes for s in stats)
    check(writer, [row("a", 0), *rows[1:]])


@pytest.mark.parametrize("rows", [1, 2, 3, 500])
def test_a_parquet_block_is_that_of_its_columns_as_plain_strings(local: Storage, rows: int) -> None:
    """Meta columns with one value are written from a dictionary, which no reader of the file can tell."""
    instant, file_id = "20240101000000000", "00000000-aaaa-4000-8000-000000000000-0"
    writer = LogWriter(
        local,
        Writing(instant, "3-1-0", task_partition=3),
        table_name="trips",
        table_version=9,
        data_schema=SMALL,
        target=LogTarget("day=1", file_id, instant),
        format=PARQUET,
    )
    keys = [f"k{n:04}" for n in range(rows)]
    data = pa.RecordBatch.from_pylist([row(key, 1) for key in keys], SMALL)
    writer.append(pa.array(keys[:1]), data.slice(0, 1))
    writer.append(pa.array(keys[1:], pa.string()), data.slice(1))
    (stat,) = writer.close()
    (block,) = parse_blocks(pa.py_buffer(local.get(stat.path)))
    meta = {
        "_hoodie_commit_time": [instant] * rows,
        "_hoodie_commit_seqno": [f"{instant}_3_{n}" for n in range(1, rows + 1)],
        "_hoodie_record_key": keys,
        "_hoodie_partition_path": ["day=1"] * rows,
        "_hoodie_file_name": [file_id] * rows,
    }
    schema = with_meta_columns(SMALL)
    columns = [*map(pa.array, meta.values()), *data.columns]
    plain = pa.RecordBatch.from_arrays(columns, schema=schema)
    assert isinstance(block, LogBlock)
    assert block.content.equals(encode_parquet(plain, PARQUET.compression))


def test_a_log_of_version_6_counts_its_versions_on(local: Storage) -> None:
    writer = PlainWriter(local, config(6), SMALL)
    base = writer.upsert([row("a", 1)])
    for ts in (2, 3, 4):
        LogAppender(writer).rows(row("a", ts)).commit()
    names = [LogFileName.parse(f.name) for f in local.list_files() if ".log." in f.name]
    assert [(n.instant, n.version) for n in names if n] == [
        (base.time, 1),
        (base.time, 2),
        (base.time, 3),
    ]
    check(writer, [row("a", 4)])


def test_logs_of_an_uncommitted_instant_are_not_read(writer: PlainWriter) -> None:
    LogAppender(writer).rows(row("a", 6)).commit()
    LogAppender(writer).rows(row("a", 99), row("c", 1)).stats()
    check(writer, [row("a", 6), row("b", 5)])


def test_parquet_blocks_are_refused_for_a_string_ordering_field() -> None:
    with pytest.raises(OptionError, match="ordering field is a string"):
        check_block_format("parquet", (pa.string(),))
    check_block_format("avro", (pa.string(),))
    check_block_format("parquet", (pa.int64(),))


def test_time_travel_and_incremental_reads(writer: PlainWriter) -> None:
    first = writer.table.timeline().completed()[0]
    second = LogAppender(writer).rows(row("a", 6), row("c", 1)).commit()
    third = LogAppender(writer).rows(row("c", 2)).deletes("b").commit()
    times = [i.completion_time or "" for i in (first, second, third)]
    assert without_meta(our_rows(writer.table, as_of=times[0])) == [row("a", 5), row("b", 5)]
    assert without_meta(our_rows(writer.table, as_of=times[1])) == [
        row("a", 6),
        row("b", 5),
        row("c", 1),
    ]
    for time in times:
        assert our_rows(writer.table, as_of=time) == hudi_rs_rows(
            writer.storage, as_of_timestamp=time
        )

    def changed(begin: str, end: str | None = None) -> list[Row]:
        return without_meta(plan_incremental(writer.table, begin, end).read().to_pylist())

    assert changed("0") == [row("a", 6), row("c", 2)]
    assert changed(times[0]) == [row("a", 6), row("c", 2)]
    assert changed(times[0], times[1]) == [row("a", 6), row("c", 1)]
    assert changed(times[1]) == [row("c", 2)]
    assert changed(times[2]) == []
    with pytest.raises(OptionError, match="before it begins"):
        changed(times[2], times[0])


def test_columns_are_chosen(writer: PlainWriter) -> None:
    from serde_lab.table.read_plan import plan_snapshot

    LogAppender(writer).rows(row("a", 4), row("b", 6), row("c", 1)).commit()
    found = plan_snapshot(writer.table, columns=["value", "_hoodie_record_key"]).read()
    assert sorted(found.to_pylist(), key=lambda r: r["value"]) == [
        {"value": "a@5", "_hoodie_record_key": "a"},
        {"value": "b@6", "_hoodie_record_key": "b"},
        {"value": "c@1", "_hoodie_record_key": "c"},
    ]
    with pytest.raises(OptionError, match="column 'nope' is not in the table"):
        plan_snapshot(writer.table, columns=["nope"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[: len(data) // 2],
        lambda data: data + bytes(100),
        lambda data: b"#HUDX#" + data[6:],
        lambda data: data + data[: len(data) // 2],
    ],
    ids=["tail", "half", "zeros behind", "magic", "half a block behind"],
)
@FORMATS
def test_a_damaged_log_is_never_passed_over(
    writer: PlainWriter, damage: Callable[[bytes], bytes], format: LogFormat
) -> None:
    log = LogAppender(writer, format).rows(row("a", 6))
    (stat,) = log.stats()
    writer.complete(log.instant, [stat])
    whole = writer.storage.get(stat.path)
    writer.storage.replace(stat.path, damage(whole))
    with pytest.raises(TableError, match=r"is damaged at byte \d+: "):
        our_rows(writer.table)


@VERSIONS
def test_a_log_that_lost_all_its_bytes_is_never_passed_over(local: Storage, version: int) -> None:
    """Apache Hudi and hudi-rs read it as a log without rows."""
    writer = PlainWriter(local, config(version), SMALL)
    writer.upsert([row("a", 5)])
    log = LogAppender(writer).rows(row("a", 6))
    (stat,) = log.stats()
    writer.complete(log.instant, [stat])
    # a task that failed, whose file no write states, may leave it empty
    local.put_new(stat.path.replace("_0-2-0", "_0-3-0").replace(".log.1", ".log.2"))
    check(writer, [row("a", 6)])
    whole = local.get(stat.path)
    local.replace(stat.path, b"")
    lost = rf"{re.escape(stat.path)}: is empty, and instant {log.instant.time} wrote {len(whole)} bytes"
    with pytest.raises(TableError, match=lost):
        our_rows(writer.table)
    first = writer.table.timeline().completed()[0]
    before = our_rows(writer.table, as_of=first.completion_time)
    assert without_meta(before) == [row("a", 5)]
    local.replace(stat.path, whole)
    for ts in (7, 8, 9):
        LogAppender(writer).rows(row("a", ts)).commit()
    if version == 9:
        assert archive(writer.table, 1, 1) is not None
    local.replace(stat.path, b"")
    with pytest.raises(TableError, match=lost):
        compact(writer.table)


def test_rows_that_say_that_they_are_deletes(local: Storage) -> None:
    schema = pa.schema([*SMALL, ("_hoodie_is_deleted", pa.bool_())])
    writer = PlainWriter(local, config(), schema)
    writer.upsert([{**row(k, 5), "_hoodie_is_deleted": False} for k in "abc"])
    LogAppender(writer).rows(
        {**row("a", 4), "_hoodie_is_deleted": True},
        {**row("b", 5), "_hoodie_is_deleted": True},
        {**row("c", 6), "_hoodie_is_deleted": None},
    ).commit()
    kept = [{**row("a", 5), "_hoodie_is_deleted": False}]
    check(writer, [*kept, {**row("c", 6), "_hoodie_is_deleted": None}])


def by_position(
    writer: PlainWriter, monkeypatch: pytest.MonkeyPatch, step: Step, base: str = ""
) -> None:
    """A deltacommit whose blocks name the base file's rows by position, as Apache Hudi's do."""
    (slice_,) = writer.table.view().latest_file_slices()
    framed = log_file.frame_block
    positions = {
        Header.RECORD_POSITIONS: "AAAAAAAAAAA=",
        Header.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: base or slice_.base_instant,
    }

    def positioned(type: BlockType, header: Mapping[int, str], content: Any) -> bytes:
        return framed(type, {**header, **positions}, content)

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "frame_block", positioned)
        log = LogAppender(writer)
        step(log)
        log.commit()


@pytest.fixture
def copies(local: Storage) -> PlainWriter:
    """A table whose base file has a three times, at 5, 6 and 9, and b once."""
    made = PlainWriter(local, config(), SMALL)
    instant = made.begin("deltacommit")
    file = BaseFileWriter(
        local,
        Writing(instant.time, "0-1-0", made.table.timeline().path(instant)),
        data_schema=SMALL,
        partition_path="",
        file_id="00000000-5c8b-4d0e-9d1e-000000000000-0",
        previous=None,
        format=BaseFileFormat(),
    )
    batch = batch_of([row("a", 5), row("b", 5), row("a", 6), row("a", 9)], SMALL)
    file.append(batch.column(batch.schema.get_field_index("id")), batch)
    made.complete(instant, [file.close(updates=0, deletes=0)])
    return made


def seen(writer: PlainWriter) -> list[tuple[str, int, str]]:
    return sorted((r["id"], r["ts"], r["value"]) for r in our_rows(writer.table))


A5, A6, A9, B5 = (("a", 5, "a@5"), ("a", 6, "a@6"), ("a", 9, "a@9"), ("b", 5, "b@5"))
NEW = ("a", 6, "a@6!")


@pytest.mark.parametrize(
    ("step", "left"),
    [
        (lambda log: log.rows(row("a", 6, "!")), [NEW, NEW, A9, B5]),
        (lambda log: log.rows(row("a", 4)), [A5, A6, A9, B5]),
        (lambda log: log.deletes("a"), [B5]),
        (lambda log: log.deletes("a", ordering=longs(6)), [A9, B5]),
        (lambda log: log.rows(row("c", 1)), [A5, A6, A9, B5, ("c", 1, "c@1")]),
    ],
    ids=["later for two", "late", "delete", "delete later for two", "another key"],
)
@pytest.mark.parametrize("rows_at_once", [2, 1 << 19])
def test_a_log_by_position_reaches_all_rows_of_a_key(
    copies: PlainWriter,
    monkeypatch: pytest.MonkeyPatch,
    step: Step,
    left: list[Any],
    rows_at_once: int,
) -> None:
    monkeypatch.setattr(read_plan, "_MERGED_ROWS", rows_at_once)
    by_position(copies, monkeypatch, step)
    assert seen(copies) == sorted(left)
    compact(copies.table)
    assert seen(copies) == sorted(left)


@pytest.mark.parametrize("how", ["no positions", "of another base file", "one block without"])
def test_without_positions_in_all_blocks_a_log_reaches_one_row_of_a_key(
    copies: PlainWriter, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def step(log: LogAppender) -> object:
        return log.deletes("a")

    if how == "of another base file":
        by_position(copies, monkeypatch, step, base="20200101000000000")
    elif how == "one block without":
        by_position(copies, monkeypatch, step)
        LogAppender(copies).rows(row("b", 5)).commit()
    else:
        log = LogAppender(copies)
        step(log)
        log.commit()
    assert seen(copies) == sorted([A6, A9, B5])


def test_a_log_without_positions_is_not_put_where_it_would_change_other_rows(
    copies: PlainWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_newest() -> None:
        (slice_,) = copies.table.view().latest_file_slices()
        assert slice_.base_path is not None
        newest = slice_.log_files[-1].path
        check_positions(copies.storage, slice_.base_path, slice_.base_instant, newest)

    LogAppender(copies).rows(row("b", 6)).commit()
    check_newest()  # readers go by keys already
    compact(copies.table)
    by_position(copies, monkeypatch, lambda log: log.rows(row("b", 7)))
    with pytest.raises(TableError, match=r"has record key 'a' more than once.*by position"):
        check_newest()
