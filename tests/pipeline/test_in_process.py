"""Whole writes without Spark: every strategy, checked by hudi-rs against DuckDB's answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import DataError, OptionError, SchemaError
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.exchange.frames import INDEX_BIT, SHARD_SHIFT, in_order
from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.exchange.routing import position_of
from serde_lab.pipeline.handles import handle as write_handle
from serde_lab.pipeline.handles.handle import WriteHandle
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.source.schema import record_schema
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.verify import oracle
from serde_lab.verify.table_checks import Expected, check_path
from serde_lab.verify.table_rules import TableRules
from tests.pipeline.lab_table import (
    BACK,
    FIRST,
    GONE,
    MOR,
    OPTIONS,
    SECOND,
    STRATEGIES,
    LabTable,
    Rows,
    table_of,
    write_parts,
)


def folder_of(path: Path, rows: Rows, files: int = 2) -> Path:
    """`rows` as parquet files in input order."""
    return write_parts(path, table_of(rows), files)


def write(table: Path, folder: Path, **options: object) -> Commit:
    given = {**OPTIONS, **{key.replace("__", "."): value for key, value in options.items()}}
    parsed = parse_options(given)
    files = sorted(folder.glob("*.parquet"))
    schema = pq.read_schema(files[0])
    prepared = PreparedWrite.of(Storage.open(table), schema, parsed)
    return prepared.commit(InProcessExchange(parquet_partitions(files, schema.names)))


def check(table: Path, commits: list[tuple[str, Path]], work: Path, partition: str = "") -> None:
    options = parse_options({**OPTIONS, "hoodie.datasource.write.partitionpath.field": partition})
    schema = record_schema(pq.read_schema(next(iter(commits[0][1].glob("*.parquet")))), options)
    rules = TableRules(schema)
    answer = oracle.solve(rules, [oracle.HistoryCommit(op, path) for op, path in commits], work)
    verdict = check_path(str(table), Expected.of(answer), rules)
    assert verdict.passed, [result for result in verdict.results if not result.passed]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("partition", ["", "p"])
def test_two_upserts_give_the_oracles_table(strategy: str, partition: str, tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "1", FIRST), folder_of(tmp_path / "2", SECOND)
    options = {
        "serde_lab__strategy": strategy,
        "hoodie__datasource__write__partitionpath__field": partition,
    }
    write(tmp_path / "t", first, **options)
    commit = write(tmp_path / "t", second, **options)
    check(tmp_path / "t", [("upsert", first), ("upsert", second)], tmp_path / "o", partition)
    assert (commit.rows_updated, commit.rows_inserted) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_frame", [1, 2, 1000, 0])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_framing_changes_no_row(strategy: str, rows_per_frame: int, tmp_path: Path) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    write(
        tmp_path / "t",
        first,
        serde_lab__strategy=strategy,
        serde_lab__rows_per_frame=rows_per_frame,
    )
    check(tmp_path / "t", [("upsert", first)], tmp_path / "o")


def test_shards_bound_memory_and_change_no_row(tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "1", FIRST), folder_of(tmp_path / "2", SECOND)
    for folder in (first, second):
        files = sorted(folder.glob("*.parquet"))
        schema = pq.read_schema(files[0])
        options = replace(parse_options(OPTIONS), source_bytes=1 << 30, worker_memory_mb=600)
        prepared = PreparedWrite.of(Storage.open(tmp_path / "t"), schema, options)
        prepared.commit(InProcessExchange(parquet_partitions(files, schema.names)))
    check(tmp_path / "t", [("upsert", first), ("upsert", second)], tmp_path / "o")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, MOR], ids=["copy-on-write", "merge-on-read"])
def test_handles_are_freed_under_the_clock(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of small file groups, what is freed between phases adds up."""
    freed = []

    def note(handle: WriteHandle) -> None:
        freed.append(handle.task.timeline.open_phase)

    table = LabTable(tmp_path, options)
    table.upsert(FIRST)
    monkeypatch.setattr(WriteHandle, "__del__", note, raising=False)
    table.upsert(FIRST)
    assert freed == ["release"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", [{}, MOR], ids=["copy-on-write", "merge-on-read"])
def test_a_shard_that_goes_out_in_pieces_is_the_same(
    kind: dict[str, str], strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_handle, "_PIECE_ROWS", 3)
    table = LabTable(tmp_path, {**kind, "serde_lab.strategy": strategy})
    for rows in (FIRST, SECOND):
        table.upsert(rows)
    table.delete(GONE)
    table.upsert(BACK)
    table.check()


@pytest.mark.parametrize(
    "positions", [[0, 1, 2, 3, 4, 5], [4, 5, 0, 1, 2, 3], [3, 4, 5, 2, 0, 1], [5, 0, 4, 1, 2, 3]]
)
def test_frames_are_brought_into_the_order_of_their_positions(positions: list[int]) -> None:
    frames = [b"%d" % position for position in positions]
    arrived = pa.chunked_array([frames[:1], frames[1:4], [], frames[4:]], pa.binary())
    ordered = in_order(arrived, np.array(positions))
    assert ordered.to_pylist() == [b"%d" % position for position in range(6)]


@pytest.mark.parametrize("parallelism", [1, 3, 16])
def test_any_number_of_reduce_partitions_gives_the_same_table(
    parallelism: int, tmp_path: Path
) -> None:
    first, second = folder_of(tmp_path / "1", FIRST), folder_of(tmp_path / "2", SECOND)
    for folder in (first, second):
        write(tmp_path / "t", folder, hoodie__upsert__shuffle__parallelism=parallelism)
    check(tmp_path / "t", [("upsert", first), ("upsert", second)], tmp_path / "o")


@pytest.mark.parametrize("rows", [[], FIRST[:1]])
def test_no_rows_and_one_row(rows: Rows, tmp_path: Path) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    few = folder_of(tmp_path / "2", rows)
    write(tmp_path / "t", first)
    write(tmp_path / "t", few)
    check(tmp_path / "t", [("upsert", first), ("upsert", few)], tmp_path / "o")


def test_a_seed_makes_equal_file_names(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    names = [[s.fileId for s in write(tmp_path / name, first).stats] for name in ("t", "u")]
    assert names[0] == names[1]


def test_bulk_insert_into_file_groups_that_exist_is_refused(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    write(tmp_path / "t", first)
    with pytest.raises(OptionError, match="bulk_insert"):
        write(tmp_path / "t", first, hoodie__datasource__write__operation="bulk_insert")


def test_a_null_ordering_value_commits_nothing(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    write(tmp_path / "t", first)
    rows = pq.read_table(first / "part-00000.parquet")
    rows = rows.set_column(2, "ts", pa.nulls(len(rows), pa.int64()))
    bad = tmp_path / "2"
    bad.mkdir()
    pq.write_table(rows, bad / "part-00000.parquet")
    with pytest.raises(DataError, match="'ts' is null"):
        write(tmp_path / "t", bad)
    check(tmp_path / "t", [("upsert", first)], tmp_path / "o")


def test_other_columns_are_refused_by_name_before_anything_is_written(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    write(tmp_path / "t", first)
    rows = pq.read_table(first / "part-00000.parquet")
    for name, other in (
        ("missing", rows.drop_columns(["x"])),
        ("types", rows.set_column(3, "x", pc.equal(rows.column("n"), 1))),
        ("a name", rows.append_column("x y", rows.column("n"))),
    ):
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(other, folder / "part-00000.parquet")
        with pytest.raises(SchemaError, match=r"'x'|'x y'"):
            write(tmp_path / "t", folder)
    check(tmp_path / "t", [("upsert", first)], tmp_path / "o")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie__index__type": "HBASE"}, "hoodie.index.type is 'HBASE'"),
        ({"hoodie__metadata__enable": "true"}, "hoodie.metadata.enable"),
        ({"hoodie__datasource__write__operatoin": "upsert"}, "did you mean"),
        ({"serde_lab__strategy": "kryo"}, "unknown strategy 'kryo'"),
        ({"hoodie__bucket__index__num__buckets": "many"}, "expected an integer"),
        ({"serde_lab__strategy__layuot": "dict"}, "layuot"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(
    options: dict[str, str], says: str, tmp_path: Path
) -> None:
    first = folder_of(tmp_path / "1", FIRST)
    with pytest.raises(OptionError, match=says):
        write(tmp_path / "t", first, **options)


def test_positions_have_room_for_every_input_partition_that_is_taken() -> None:
    """A bit of a position tells index records from others, and the bits above it are the shard."""
    last = position_of((1 << 22) - 1, (1 << 33) - 1)
    assert last < INDEX_BIT < 1 << SHARD_SHIFT
    assert position_of(40_000, 0) > position_of(39_999, (1 << 33) - 1)
    for partition, row in ((1 << 22, 0), (0, 1 << 33)):
        with pytest.raises(DataError, match="has no position: an input has at most"):
            position_of(partition, row)
