"""Frames that cross Spark's shuffle as the bytes of an RDD: the same tables, the same errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BufferedReader, BufferedWriter, BytesIO
from pathlib import Path
from struct import Struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import DataError, LabError
from serde_lab.pipeline.exchange.frames import ROUTED
from serde_lab.pipeline.options.write import Shuffle, parse_options
from serde_lab.pipeline.plan import make_plan
from serde_lab.pipeline.spark import exchange as spark_exchange
from serde_lab.pipeline.spark import shuffle
from serde_lab.pipeline.spark.exchange import FilesExchange
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.timeline import Instant, Timeline
from tests.faults import test_late_assigners
from tests.faults.test_late_assigners import FailsOnce
from tests.pipeline.lab_table import FIRST, MOR, OPTIONS, SECOND, Rows, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAIR, _VALUE = Struct("!iqi"), Struct("!i")
_END = -1


def through_the_jvm(routed: list[pa.RecordBatch]) -> dict[int, list[tuple[int, bytes]]]:
    """What the tasks behind a hop read: (position, frame) by target."""
    written = BytesIO()
    # the type stubs allow files of the system only, but any stream of bytes will do
    with_buffer = BufferedWriter(written, 65536)  # type: ignore[arg-type]
    shuffle.FrameSerializer().dump_stream(routed, with_buffer)
    with_buffer.flush()
    sent, at = written.getvalue(), 0
    values: dict[int, list[bytes]] = {}
    while at < len(sent):
        number_bytes, target, size = _PAIR.unpack_from(sent, at)
        assert number_bytes == 8
        at += _PAIR.size + size
        values.setdefault(target, []).append(sent[at - size : at])
    arrived = {}
    for target, of_target in values.items():
        stream = b"".join(_VALUE.pack(len(value)) + value for value in of_target)
        # a worker reads on behind the mark of the end; of the stubs see above
        reader = BufferedReader(BytesIO(stream + _VALUE.pack(_END) + b"more"), 65536)  # type: ignore[arg-type]
        batches = list(shuffle.FrameSerializer().load_stream(reader))
        assert reader.read() == b"more"
        arrived[target] = [
            (row["position"], row["frame"]) for batch in batches for row in batch.to_pylist()
        ]
    return arrived


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1, 0, 70_000, 3], [100] * 3000, [65_524, 65_525, 65_536, 5], [9000] * 40, [3 << 20]],
    ids=["none", "empty", "mixed", "small", "around the buffer", "medium", "large"],
)
def test_what_is_written_is_read(sizes: list[int]) -> None:
    chance = np.random.default_rng(7)
    frames = [chance.bytes(size) for size in sizes]
    places = [n % 3 for n in range(len(frames))]
    positions = [(n << 40) | 1 << 60 for n in range(len(frames))]
    whole = pa.RecordBatch.from_arrays(
        [
            pa.array(places, pa.int32()),
            pa.array(positions, pa.int64()),
            pa.array(frames, pa.binary()),
        ],
        schema=ROUTED,
    )
    # slices, since a task sends large batches in slices
    routed = [whole.slice(0, 1), whole.slice(1)]
    expected: dict[int, list[tuple[int, bytes]]] = {}
    for place, position, frame in zip(places, positions, frames, strict=True):
        expected.setdefault(place, []).append((position, frame))
    assert through_the_jvm(routed) == expected


def test_a_frame_that_the_jvm_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_MOST_BYTES", 10)
    routed = pa.RecordBatch.from_arrays(
        [pa.array([0], pa.int32()), pa.array([0]), pa.array([b"x" * 11])], schema=ROUTED
    )
    with pytest.raises(
        DataError, match="a frame has 11 bytes, and Spark's shuffle moves at most 10 at once"
    ):
        through_the_jvm([routed])


def parts(folder: Path, rows: Rows, files: int = 2) -> list[Path]:
    """`rows` in files that tasks read themselves: lists, and times without statistics, are left to Spark."""
    table = table_of(rows).drop_columns(["l", "d", "t"])
    folder.mkdir(parents=True)
    size = -(-max(1, len(rows)) // files)
    found = []
    for number in range(files):
        found.append(folder / f"part-{number}.parquet")
        pq.write_table(table.slice(number * size, size), found[-1])
    return found


def commit(table: Path, exchange: FilesExchange, options: dict[str, str]) -> None:
    schema = pq.read_schema(exchange.paths[0]).remove_metadata()
    PreparedWrite.of(Storage.open(table), schema, parse_options(options)).commit(exchange)


def data_files(table: Path) -> dict[str, bytes]:
    """The bytes of all files that hold records."""
    return {
        str(path.relative_to(table)): path.read_bytes()
        for path in table.rglob("*")  # logs are hidden files too
        if path.is_file() and not path.relative_to(table).parts[0].startswith(".hoodie")
    }


@pytest.fixture
def same_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit of each table has the same time, and so has the second."""

    def time(self: Timeline) -> str:
        ended = sum(instant.is_completed for instant in self.instants())
        return f"2026010100000{ended + len(self.instants()):04d}"

    monkeypatch.setattr(Timeline, "new_time", time)


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hops that crossed as bytes."""
    crossed: list[str] = []
    over = shuffle.RddInput.over

    def noted(self: Any, hop: Any, *rest: Any) -> Any:
        crossed.append(hop.words)
        return over(self, hop, *rest)

    monkeypatch.setattr(shuffle.RddInput, "over", noted)
    return crossed


@pytest.mark.spark
@pytest.mark.usefixtures("same_times")
@pytest.mark.parametrize(
    ("strategy", "rows_per_frame", "topology", "more", "expected"),
    [
        ("internal_row", 1, "bucket", {}, ["by bucket"]),
        ("arrow", 1000, "state", MOR, ["by record key", "by file group"]),
        ("pickle", 1, "compatible", {}, ["to a single task", "by record key", "by file group"]),
    ],
)
def test_both_forms_write_the_same_bytes(
    strategy: str,
    rows_per_frame: int,
    topology: str,
    more: dict[str, str],
    expected: list[str],
    spark: SparkSession,
    hops: list[str],
    tmp_path: Path,
) -> None:
    options = {
        **OPTIONS,
        **more,
        "serde_lab.strategy": strategy,
        "serde_lab.rows_per_frame": str(rows_per_frame),
        "serde_lab.topology": topology,
    }
    if topology != "bucket":
        del options["hoodie.bucket.index.num.buckets"]
        options |= {"hoodie.index.type": "SIMPLE", "hoodie.upsert.shuffle.parallelism": "3"}
    writes = [
        parts(tmp_path / "1", FIRST),
        parts(tmp_path / "2", SECOND),
        parts(tmp_path / "3", []),
    ]
    forms: tuple[Shuffle, ...] = ("dataframe", "rdd")
    for form in forms:
        for paths in writes:
            exchange = FilesExchange(spark, paths, form)
            commit(tmp_path / form, exchange, options)
            assert exchange.obstacle == ""
    assert hops == expected * len(writes)
    by_rows, by_bytes = data_files(tmp_path / "dataframe"), data_files(tmp_path / "rdd")
    assert len(by_bytes) >= 3
    assert by_bytes == by_rows


@pytest.mark.spark
@pytest.mark.usefixtures("same_times")
def test_tasks_that_fail_once_give_no_row_twice(
    spark: SparkSession, hops: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import cloudpickle

    # workers know nothing of the tests
    cloudpickle.register_pickle_by_value(test_late_assigners)
    options = {**OPTIONS, "serde_lab.strategy": "avro"}
    paths = parts(tmp_path / "1", FIRST)
    commit(tmp_path / "whole", FilesExchange(spark, paths, "dataframe"), options)
    notes = tmp_path / "notes"
    notes.mkdir()
    task_of = spark_exchange.SparkTask
    monkeypatch.setattr(spark_exchange, "SparkTask", lambda *a: FailsOnce(task_of(*a), notes))
    exchange = FilesExchange(spark, paths, "rdd")
    commit(tmp_path / "retried", exchange, options)
    assert hops == ["by bucket"]
    tried = [note.name.rpartition("-")[0] for note in notes.iterdir()]
    assert sorted(tried) == sorted(
        [*(f"0-{n}" for n in range(2)), *(f"1-{n}" for n in range(4))] * 2
    )
    assert data_files(tmp_path / "retried") == data_files(tmp_path / "whole")
    # the attempts that failed reported too late to count
    assert exchange.counters()["frames"] == exchange.counters()["frames_sniffed"] > 0


class _Raises:
    """A stage whose tasks meet an error that nobody raised on purpose."""

    def __call__(self, batches: Any) -> Iterator[pa.RecordBatch]:
        list(batches)
        raise ZeroDivisionError("no such thing")
        yield


@pytest.mark.spark
def test_errors_of_tasks_arrive_as_one_sentence(
    spark: SparkSession, hops: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    path = tmp_path / "null.parquet"
    ts = pa.array([None], pa.int64())
    pq.write_table(pa.table({"k": ["a"], "n": [1], "ts": ts}), path)
    with pytest.raises(DataError, match="'ts' is null in 1 rows"):
        commit(tmp_path / "t", FilesExchange(spark, [path], "rdd"), OPTIONS)
    monkeypatch.setattr(spark_exchange, "SparkTask", lambda *_: _Raises())
    with pytest.raises(LabError, match=r"^a Spark job failed: ZeroDivisionError: no such thing$"):
        commit(tmp_path / "t", FilesExchange(spark, parts(tmp_path / "1", FIRST), "rdd"), OPTIONS)
    assert hops == ["by bucket"] * 2


@pytest.mark.spark
def test_a_huge_frame_crosses(spark: SparkSession, hops: list[str], tmp_path: Path) -> None:
    """Larger than the most that Spark's serialiser holds in one buffer by default, 64 MiB."""
    path = tmp_path / "huge.parquet"
    text = "0123456789abcde\n" * (70 << 16)
    pq.write_table(
        pa.table({"k": ["a", "b"], "n": [1, 2], "ts": [1, 1], "x": [text, "small"]}), path
    )
    commit(
        tmp_path / "t",
        FilesExchange(spark, [path], "rdd"),
        {**OPTIONS, "serde_lab.rows_per_frame": "1"},
    )
    assert hops == ["by bucket"]
    files = [pq.read_table(file) for file in (tmp_path / "t").glob("*.parquet")]
    found = pa.concat_tables(files).sort_by("k")
    assert found["x"].to_pylist() == [text, "small"]


@pytest.mark.spark
def test_tasks_share_the_workers_of_data_frames(spark: SparkSession) -> None:
    def parent(_: Any) -> Iterator[pa.RecordBatch]:
        import os

        list(_)
        yield pa.record_batch({"result": pa.array([str(os.getppid()).encode()])})

    by_rows = shuffle.DataFrameInput.numbers(spark, 2).results(parent)
    assert set(shuffle.RddInput.numbers(spark, 2).results(parent)) == set(by_rows)


@pytest.mark.spark
def test_writes_that_need_data_frames_have_them_and_say_why(
    spark: SparkSession, hops: list[str], tmp_path: Path
) -> None:
    options = parse_options({**OPTIONS, "serde_lab.shuffle": "rdd"})
    paths = parts(tmp_path / "1", FIRST)
    schema = pq.read_schema(paths[0])
    prepared = PreparedWrite.of(Storage.open(tmp_path / "t"), schema, options)
    instant = Instant("20260101000000000", "commit", "INFLIGHT")
    plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
    context: Any = spark.sparkContext
    assert shuffle.obstacle_to_bytes(context, plan, reads_files=True) == ""
    elsewhere: Any = SimpleNamespace(_jvm=SimpleNamespace())
    assert "does not give access" in shuffle.obstacle_to_bytes(elsewhere, plan, reads_files=True)
    nested = tmp_path / "nested.parquet"
    pq.write_table(table_of(FIRST), nested)
    exchange = FilesExchange(spark, [nested], "rdd")
    commit(tmp_path / "t", exchange, OPTIONS)
    assert "Spark reads the source" in exchange.obstacle
    step3 = {**OPTIONS, "serde_lab.topology": "step3", "hoodie.index.type": "SIMPLE"}
    del step3["hoodie.bucket.index.num.buckets"]
    exchange = FilesExchange(spark, paths, "rdd")
    commit(tmp_path / "u", exchange, step3)
    assert "a hop sorts its frames" in exchange.obstacle
    assert hops == []
