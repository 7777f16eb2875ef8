"""Records that stages hand over in memory: the tables are those of frames, and no transfer is timed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import LabError, OptionError
from serde_lab.lab.cells import hand_over
from serde_lab.lab.cells.hand_over import (
    Crew,
    HandOverExchange,
    OneProcess,
    Processes,
    ProcessWork,
    StoppableClock,
    even_shares,
)
from serde_lab.measure.timeline import Clock, TaskTimeline
from serde_lab.pipeline.exchange.in_process import Exchange, InProcessExchange, parquet_partitions
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.files.log_block import BlockType, Damage, LogBlock, parse_blocks
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.pipeline.lab_table import (
    BACK,
    FIRST,
    GONE,
    MOR,
    OPTIONS,
    PARTITIONED,
    SECOND,
    Rows,
    table_of,
    write_parts,
)

HISTORY: tuple[tuple[str, Rows], ...] = (
    ("insert", FIRST),
    ("upsert", SECOND),
    ("delete", GONE),
    ("upsert", BACK),
)
KINDS: Mapping[str, Mapping[str, str]] = {
    "copy-on-write": {},
    "merge-on-read": MOR,
    "parquet blocks": {**MOR, "hoodie.logfile.data.block.format": "parquet"},
    "partitioned": PARTITIONED,
}


@pytest.fixture(scope="module")
def crew() -> Iterator[Processes]:
    with Processes(2) as processes:
        yield processes


def write(
    folder: Path, operation: str, files: list[Path], kind: Mapping[str, str], crew: Crew | None
) -> Exchange:
    schema = pq.read_schema(files[0])
    given = {**OPTIONS, **kind, "hoodie.datasource.write.operation": operation}
    given = {key: value for key, value in given.items() if value}
    stored = Storage.open(folder)
    config = HoodieTable.open(stored).config if HoodieTable.exists(stored) else None
    prepared = PreparedWrite.of(stored, schema, parse_options(given, config))
    exchange = (
        InProcessExchange(parquet_partitions(files, schema.names))
        if crew is None
        else HandOverExchange(files, crew)
    )
    prepared.commit(exchange)
    return exchange


def history(folder: Path, kind: Mapping[str, str], crew: Crew | None) -> list[Exchange]:
    """A table in `folder` with each write of `HISTORY`."""
    found = []
    for number, (operation, rows) in enumerate(HISTORY):
        data = table_of(rows)
        if operation == "delete":
            data = data.select(["k", "n", "p"])
        inputs = folder.parent / "inputs" / str(number)
        files = sorted(inputs.glob("*.parquet")) if inputs.exists() else []
        files = files or sorted(write_parts(inputs, data, 3).glob("*.parquet"))
        found.append(write(folder, operation, files, kind, crew))
    return found


def columns_of(rows: pa.Table, footer: pq.FileMetaData) -> tuple[object, ...]:
    """A Parquet file's rows without what its instant decides, and how each column is stored."""
    own = [
        c
        for c in rows.column_names
        if c not in ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
    ]
    sequence = [text.partition("_")[2] for text in rows["_hoodie_commit_seqno"].to_pylist()]
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    columns = [
        (c.compression, c.encodings, c.statistics is not None)
        for group in groups
        for c in map(group.column, range(group.num_columns))
    ]
    return rows.select(own).to_pydict(), sequence, columns


def stored(block: LogBlock | Damage) -> tuple[object, ...]:
    """The type of a log block, and its bytes, or its rows and how they are stored.

    No size of a Parquet block: the checksum in a page's head takes more or fewer bytes by its value.
    """
    assert isinstance(block, LogBlock)
    if block.type != BlockType.PARQUET_DATA:
        return block.type, block.content.size
    rows = pq.read_table(pa.BufferReader(block.content))
    return block.type, *columns_of(rows, pq.read_metadata(pa.BufferReader(block.content)))


def likeness(folder: Path) -> list[tuple[object, ...]]:
    """Each file of a table, without what its instants decide: name, rows, and how they are stored."""
    found: list[tuple[object, ...]] = []
    instants = sorted(
        {i.time for i in HoodieTable.open(Storage.open(folder)).timeline().completed()}
    )
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if name.startswith(".hoodie"):
            continue
        for number, instant in enumerate(instants):
            name = name.replace(instant, f"<{number}>")
        if name.endswith(".hoodie_partition_metadata"):
            found.append((name, path.stat().st_size))
            continue
        if not name.endswith(".parquet"):
            # compressed, its instant's digits decide a block's size too
            found.append((name, *map(stored, parse_blocks(pa.py_buffer(path.read_bytes())))))
            continue
        footer = pq.read_metadata(path)
        found.append((name, footer.metadata, *columns_of(pq.read_table(path), footer)))
    return found


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_the_files_are_those_of_frames(
    kind: Mapping[str, str], crew: Processes, tmp_path: Path
) -> None:
    for name, by in (("frames", None), ("here", OneProcess()), ("processes", crew)):
        history(tmp_path / name, kind, by)
    wanted = repr(likeness(tmp_path / "frames"))
    assert wanted.count(".parquet") >= 4
    assert repr(likeness(tmp_path / "here")) == wanted
    assert repr(likeness(tmp_path / "processes")) == wanted


def test_every_task_reports_once_and_in_its_process(crew: Processes, tmp_path: Path) -> None:
    exchange = history(tmp_path / "t", {}, crew)[1]
    assert isinstance(exchange, HandOverExchange)
    tasks = [(one.stage_id, one.partition) for one in exchange.reports]
    assert tasks[:3] == [(0, 0), (0, 1), (0, 2)]
    assert len(set(tasks)) == len(tasks)
    pids = {one.report.pid for one in exchange.reports}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert exchange.moved_cpu_ns > 0
    assert exchange.counters()["rows"] == 2 * len(SECOND)
    verbs = {name for one in exchange.reports for name in one.report.phases}
    assert not verbs & {"from_arrow", "route", "encode", "decode", "to_arrow", "input_wait"}
    # as if nothing had been moved: no task of the second phase begins before one of the first has ended
    firsts = [one.report for one in exchange.reports if one.stage_id == 0]
    seconds = [one.report for one in exchange.reports if one.stage_id == 1]
    ended = max(one.started_epoch_ns + one.wall_ns for one in firsts)
    assert min(one.started_epoch_ns for one in seconds) >= ended - 1_000_000


def test_nothing_is_copied_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ProcessWork, "give")
    monkeypatch.delattr(ProcessWork, "take")
    exchange = history(tmp_path / "t", {}, OneProcess())[-1]
    assert isinstance(exchange, HandOverExchange)
    assert exchange.moved_cpu_ns == exchange.clock.stopped_ns == 0


class Ticks:
    """Clocks that only `pass_ns` moves."""

    def __init__(self) -> None:
        self.now_ns = 10**18
        self.clock = Clock(self.read, self.read, self.read)

    def read(self) -> int:
        return self.now_ns

    def pass_ns(self, ns: int) -> None:
        self.now_ns += ns


def test_the_clock_stands_still_while_records_move_and_at_no_other_time() -> None:
    ticks = Ticks()
    clock = StoppableClock(ticks.clock)
    driver = TaskTimeline("driver", clock.clocks)
    with driver.phase("execute"):
        ticks.pass_ns(5)
        with clock.stopped():
            ticks.pass_ns(1000)
        ticks.pass_ns(7)
    report = driver.report()
    assert (report.wall_ns, report.cpu_ns, report.phases["execute"].wall_ns) == (12, 12, 12)
    assert report.ended_epoch_ns - report.started_epoch_ns == 12
    assert clock.stopped_ns == 1000


@pytest.mark.parametrize("slowed", ["keep_stage", "write_kept_stage"])
def test_a_slower_stage_shows_in_the_floor(
    slowed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks, real = Ticks(), getattr(hand_over, slowed)

    def timeline(stage: str) -> TaskTimeline:
        return TaskTimeline(stage, ticks.clock)

    def slow(*given: object) -> Iterator[object]:
        ticks.pass_ns(1000)
        yield from real(*given)

    monkeypatch.setattr(hand_over, "TaskTimeline", timeline)
    files = sorted(write_parts(tmp_path / "in", table_of(FIRST), 2).glob("*.parquet"))
    for name, wanted in (("before", 0), ("after", 1000)):
        exchange = write(tmp_path / name, "upsert", files, {}, OneProcess())
        assert isinstance(exchange, HandOverExchange)
        stage = 0 if slowed == "keep_stage" else 1
        times = {one.report.wall_ns for one in exchange.reports if one.stage_id == stage}
        assert times == {wanted}
        monkeypatch.setattr(hand_over, slowed, slow)


def test_an_error_in_a_process_is_the_write_s(crew: Processes, tmp_path: Path) -> None:
    no_text = pa.array([b"\xff"]).view(pa.string())
    data = pa.table({"k": no_text, "n": [1], "ts": [1], "p": ["x"]})
    files = sorted(write_parts(tmp_path / "in", data, 1).glob("*.parquet"))
    with pytest.raises(LabError, match="column 'k' holds text that is not UTF-8"):
        write(tmp_path / "t", "upsert", files, {}, crew)
    assert not HoodieTable.exists(Storage.open(tmp_path / "t"))
    # the processes go on
    assert history(tmp_path / "next", {}, crew)


def test_a_process_that_ends_is_said(tmp_path: Path) -> None:
    with Processes(1) as crew, pytest.raises(LabError, match="ended before its work was done"):
        crew.each(_end, [()])


def _end(_: ProcessWork) -> None:
    os._exit(1)


@pytest.mark.parametrize("topology", ["state", "step1"])
def test_other_topologies_are_refused(topology: str, tmp_path: Path) -> None:
    files = sorted(write_parts(tmp_path / "in", table_of(FIRST), 2).glob("*.parquet"))
    kind = {
        "serde_lab.topology": topology,
        "hoodie.index.type": "SIMPLE",
        "hoodie.bucket.index.num.buckets": "",
    }
    with pytest.raises(OptionError, match=f"topology '{topology}' has other stages"):
        write(tmp_path / "t", "upsert", files, kind, OneProcess())


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([5, 5, 5, 5], [[0, 2], [1, 3]]),
        ([9, 1, 1, 1], [[0], [1, 2, 3]]),
        ([4], [[0], []]),
        ([], [[], []]),
    ],
)
def test_shares_are_even(sizes: list[int], shares: list[list[int]]) -> None:
    assert even_shares(dict(enumerate(sizes)), 2) == shares
