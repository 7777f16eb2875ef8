"""Small files and the size of a record, as Hudi's partitioners reckon them."""

from __future__ import annotations

import pytest

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.pipeline.options.topology import file_sizing
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_sizing import (
    FileSizing,
    SmallFile,
    average_record_bytes,
    small_files,
    table_record_bytes,
)
from serde_lab.table.files.file_system_view import FileSystemView, list_table_files, visibility_of
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant
from tests.table.made_up_tables import SMALL, PlainWriter

SIZING = FileSizing(small_file_limit_bytes=100, max_file_bytes=150)
T1, T2 = "20240101000001000", "20240101000002000"


def wrote(size: int, rows: int, path: str = f"f_0-0-0_{T1}.parquet") -> WriteStat:
    return WriteStat("f", path, totalWriteBytes=size, numWrites=rows)


def commit(*stats: WriteStat) -> CommitMetadata:
    return CommitMetadata("UPSERT", stats)


def test_the_newest_large_commit_tells_the_size_of_a_record() -> None:
    commits = [
        ("replacecommit", commit(wrote(10_000, 1))),
        ("commit", commit(wrote(100, 1))),  # not above the threshold
        ("commit", commit(wrote(60, 1), wrote(61, 2))),
        ("commit", commit(wrote(3000, 10))),
    ]
    assert average_record_bytes(commits, SIZING) == 41
    few = FileSizing(small_file_limit_bytes=100, estimation_commits=1)
    assert average_record_bytes(commits, few) == 1024
    assert average_record_bytes(commits[3:], few) == 300
    assert average_record_bytes([], FileSizing(record_bytes_estimate=77)) == 77
    assert average_record_bytes([("commit", commit(wrote(200, 900)))], SIZING) == 1
    assert average_record_bytes([("commit", commit(wrote(200, 0)))], SIZING) == 1024
    without_footers = FileSizing(small_file_limit_bytes=100, file_metadata_bytes=5)
    assert average_record_bytes(commits[2:], without_footers) == 37


def test_of_a_deltacommit_only_base_files_tell_it() -> None:
    log = wrote(1_000_000, 1, f".f_{T1}.log.1_0-0-0")
    commits = [("deltacommit", commit(log, wrote(400, 4), wrote(90, 1)))]
    assert average_record_bytes(commits, SIZING) == 98
    assert average_record_bytes([("deltacommit", commit(log))], SIZING) == 1024


def view(storage: Storage, files: dict[str, int], mor: bool) -> FileSystemView:
    for name, size in files.items():
        storage.put_new(name, b"x" * size)
    config = TableConfig("t", ("id",), table_type="MERGE_ON_READ" if mor else "COPY_ON_WRITE")
    instants = [Instant(time, "commit", "completed", time) for time in (T1, T2)]
    return FileSystemView(config, list_table_files(storage), visibility_of(instants))


FILES = {
    f"p/a_0-0-0_{T1}.parquet": 99,
    f"p/b_0-0-0_{T1}.parquet": 120,
    f"p/b_0-0-0_{T2}.parquet": 40,
    f"p/c_0-0-0_{T1}.parquet": 100,
    f"q/d_0-0-0_{T1}.parquet": 1,
}
LOGS = {f"p/.a_{T2}.log.1_0-0-0": 200, f"p/.e_{T2}.log.1_0-0-0": 100}


def test_base_files_below_the_limit_are_small(local: Storage) -> None:
    seen = view(local, FILES, mor=False)
    assert small_files(seen, "p", SIZING, index_covers_logs=False) == (
        SmallFile("a", 99),
        SmallFile("b", 40),
    )
    assert small_files(seen, "elsewhere", SIZING, index_covers_logs=False) == ()
    none = FileSizing(small_file_limit_bytes=0)
    assert small_files(seen, "p", none, index_covers_logs=False) == ()


def test_logs_count_as_what_they_become(local: Storage) -> None:
    seen = view(local, FILES | LOGS, mor=True)
    # a is 99 and 70, no longer below 150
    assert small_files(seen, "p", SIZING, index_covers_logs=True) == (
        SmallFile("b", 40),
        SmallFile("c", 100),
        SmallFile("e", 35),
    )


def test_slices_with_logs_do_not_grow_where_the_index_knows_no_logs(local: Storage) -> None:
    files = {**FILES, f"p/f_0-0-0_{T1}.parquet": 30}
    seen = view(local, files | LOGS, mor=True)
    assert small_files(seen, "p", SIZING, index_covers_logs=False) == (SmallFile("f", 30),)


def test_a_tables_own_commits_are_asked(local: Storage) -> None:
    writer = PlainWriter(local, TableConfig("t", ("id",)), SMALL)
    writer.upsert([{"id": f"k{n}", "ts": n, "value": "v"} for n in range(500)])
    (stat,) = writer.table.commit_metadata(writer.table.timeline().completed()[0]).write_stats
    small = FileSizing(small_file_limit_bytes=100)
    assert table_record_bytes(writer.table, small) == -(-stat.totalWriteBytes // 500)
    assert table_record_bytes(writer.table, FileSizing()) == 1024


def test_options_are_hudis_and_bad_ones_are_named() -> None:
    given = {
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.copyonwrite.insert.auto.split": "FALSE",
        "hoodie.record.size.estimation.threshold": "0.5",
        "hoodie.table.name": "not ours",
    }
    sizing = file_sizing(OptionReader(given, given))
    assert (sizing.small_file_limit_bytes, sizing.auto_split, sizing.estimation_threshold) == (
        0,
        False,
        0.5,
    )
    assert sizing.rows_per_new_file(10) == 500_000
    assert FileSizing().rows_per_new_file(1024) == 120 * 1024
    for option, value, sentence in [
        ("hoodie.parquet.max.file.size", "0", "1 is the least"),
        ("hoodie.parquet.max.file.size", "ten", "an integer"),
        ("hoodie.copyonwrite.insert.auto.split", "yes", "true or false"),
        ("hoodie.logfile.to.parquet.compression.ratio", "-1", "0 is the least"),
    ]:
        with pytest.raises(OptionError, match=f"{option} is .*{sentence}"):
            file_sizing(OptionReader({option: value}, given | {option: value}))
