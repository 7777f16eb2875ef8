"""`table compact`, `clean`, `archive` and `rollback`: what they do to a table, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serde_lab.cli.app import main
from serde_lab.errors import OptionError
from serde_lab.pipeline.commit.coordinator import Coordinator
from serde_lab.table.storage.lock import TableLock
from serde_lab.table.storage.storage import Storage
from tests.pipeline.lab_table import FIRST, MOR, SECOND, LabTable
from tests.pipeline.test_merge_modes import CUSTOM, OF_PICKLE, SUMS, Sums, snapshot

Captured = pytest.CaptureFixture[str]


def json_of(capsys: Captured, *arguments: str) -> Any:
    """What a command printed as JSON; it must succeed."""
    assert main([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_compact_without_spark(tmp_path: Path, capsys: Captured) -> None:
    from serde_lab.verify.oracle import HistoryCommit

    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    compact = ("table", "compact", str(table.path), "--in-process")
    assert json_of(capsys, *compact) == {"compacted": None}
    table.upsert(SECOND)
    found = json_of(capsys, *compact)
    table.commits.append(HistoryCommit("compact"))
    assert found["compacted"] == table.table.timeline().completed()[-1].time
    assert table.logs() == []
    table.check()
    assert main(list(compact)) == 0
    assert capsys.readouterr().out == "nothing to compact\n"


def test_a_table_without_logs_needs_no_spark_to_say_so(tmp_path: Path, capsys: Captured) -> None:
    table = LabTable(tmp_path)
    table.upsert(FIRST)
    assert json_of(capsys, "table", "compact", str(table.path)) == {"compacted": None}


def test_clean_and_archive_by_hand(tmp_path: Path, capsys: Captured) -> None:
    options = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    table = LabTable(tmp_path, options)
    for number in range(6):
        table.upsert([("a", 1, number, 0.0)])
    path = str(table.path)
    found = json_of(capsys, "table", "clean", path, "--retain", "2")
    assert len(found["cleaned"]) == 4
    assert json_of(capsys, "table", "clean", path, "--retain", "2") == {"cleaned": None}
    found = json_of(capsys, "table", "archive", path, "--min", "3", "--max", "4")
    assert len(found["archived"]) == 3
    again = json_of(capsys, "table", "archive", path, "--min", "3", "--max", "4")
    assert again == {"archived": None}
    table.check()


def test_rollback_undoes_what_a_dead_writer_left(tmp_path: Path, capsys: Captured) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    path = str(table.path)
    nothing = {"rolled_back": [], "finished_cleans": 0, "committed": []}
    assert json_of(capsys, "table", "rollback", path) == nothing
    dead = Coordinator(table.table).begin("upsert")
    (found,) = json_of(capsys, "table", "rollback", path)["rolled_back"]
    assert found == {"instant": dead.time, "action": "deltacommit", "deleted_files": []}
    assert table.table.timeline().pending() == ()
    table.check()


@pytest.mark.parametrize("command", ["compact", "clean", "archive", "rollback"])
def test_a_service_waits_for_no_writer_and_names_it(
    command: str, tmp_path: Path, capsys: Captured
) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    table.upsert(SECOND)
    more = ["--in-process"] if command == "compact" else []
    with TableLock(table.table.storage, "upsert"):
        assert main(["table", command, str(table.path), *more]) == 1
    assert "is being written by process" in capsys.readouterr().err
    table.check()


@pytest.mark.parametrize("command", ["compact", "clean", "archive", "rollback"])
def test_a_folder_without_a_table_is_refused_and_not_made(
    command: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["table", command, str(tmp_path / "nowhere")]) == 1
    assert "nowhere is not a Hudi table" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    assert main(["table", command, str(tmp_path)]) == 1
    assert "is not a Hudi table" in capsys.readouterr().err


def test_compact_a_table_that_merges_by_a_merger_of_the_users(
    tmp_path: Path, capsys: Captured
) -> None:
    table = LabTable(tmp_path, CUSTOM | MOR)
    table.upsert([("a", 0, 5, 1.0), ("a", 1, 5, 1.0)])
    table.upsert([("a", 0, 1, 2.0)])
    compact = ("table", "compact", str(table.path))
    before = table.table.timeline().instants()
    for given, says in (
        ((), "none is given"),
        (("--in-process",), "none is given"),
        (("--merger", OF_PICKLE), f"{OF_PICKLE} offers {Sums.strategy_id} for PICKLE"),
        (("--merger", "no.such:Merger"), "which cannot be loaded"),
    ):
        assert main([*compact, *given]) == 2
        said = capsys.readouterr().err.replace("\n", " ")
        assert says in said
        assert f"strategy {Sums.strategy_id} " in said or "no.such:Merger" in said
    assert table.table.timeline().instants() == before
    found = json_of(capsys, *compact, "--in-process", "--merger", OF_PICKLE, "--merger", SUMS)
    assert found["file_slices"] == 1
    assert table.logs() == []
    assert snapshot(table, "") == {0: 3.0, 1: 1.0}


@pytest.mark.spark
def test_compact_on_spark(tmp_path: Path) -> None:
    import subprocess
    import sys

    from serde_lab.verify.oracle import HistoryCommit

    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    table.upsert(SECOND)
    # a process of its own: this one's Spark session is the test run's
    answer = subprocess.run(
        [sys.executable, "-m", "serde_lab", "table", "compact", str(table.path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("compacted 4 file slices, 44 rows, in instant ")
    table.commits.append(HistoryCommit("compact"))
    table.check()


def build_metadata_table(table: LabTable) -> None:
    """What Apache Hudi leaves when it has built one, as far as files and properties go."""
    properties = table.path / ".hoodie/hoodie.properties"
    text = properties.read_text() + "hoodie.table.metadata.partitions=column_stats,files\n"
    properties.write_text(text + "hoodie.table.index.defs.path=.hoodie/.index_defs/index.json\n")
    for name in ("metadata/files/x.hfile", ".index_defs/index.json", ".hoodie.properties.crc"):
        path = table.path / ".hoodie" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_a_metadata_table_keeps_every_service_out(tmp_path: Path, capsys: Captured) -> None:
    table = LabTable(tmp_path)
    table.upsert(FIRST)
    path = str(table.path)
    for command in ("compact", "clean", "archive", "rollback"):
        build_metadata_table(table)
        arguments = ["table", command, path]
        if command != "compact":  # which finds nothing to compact on copy-on-write
            assert main(arguments) == 1
            said = capsys.readouterr().err.replace("\n", " ")
            assert "has a metadata table (column_stats, files)" in said
            assert "--drop-metadata-table" in said
        assert main([*arguments, "--drop-metadata-table"]) == 0
        capsys.readouterr()
        assert table.table.config.metadata_partitions == ()
    table.check()


def test_drop_a_metadata_table(tmp_path: Path, capsys: Captured) -> None:
    table = LabTable(tmp_path)
    table.upsert(FIRST)
    path = str(table.path)
    build_metadata_table(table)
    dropped = json_of(capsys, "table", "drop-metadata-table", path)
    assert dropped == {"dropped": ["column_stats", "files"]}
    left = {entry.name for entry in (table.path / ".hoodie").iterdir()}
    assert left.isdisjoint({"metadata", ".index_defs", ".hoodie.properties.crc"})
    table.check()
    assert main(["table", "drop-metadata-table", path]) == 0
    assert capsys.readouterr().out == "no metadata table to remove\n"
    build_metadata_table(table)
    with TableLock(Storage.open(table.path), "upsert"):
        assert main(["table", "drop-metadata-table", path]) == 1
    assert "is being written by process" in capsys.readouterr().err.replace("\n", " ")


def test_a_write_drops_a_metadata_table_where_it_is_asked_to(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {"serde_lab.drop_metadata_table": "true"})
    table.upsert(FIRST)
    build_metadata_table(table)
    # refused for another reason: then nothing is dropped either
    with pytest.raises(OptionError, match="strategy"):
        LabTable(
            tmp_path, {"serde_lab.drop_metadata_table": "true", "serde_lab.strategy": "x"}
        ).upsert(SECOND)
    assert table.table.config.metadata_partitions == ("column_stats", "files")
    table.upsert(SECOND)
    assert table.table.config.metadata_partitions == ()
    table.check()


def test_buckets_are_resized_by_hand(tmp_path: Path, capsys: Captured) -> None:
    table = LabTable(tmp_path / "ring", {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"})
    table.upsert(FIRST)
    resize = ("table", "resize-buckets", str(table.path))
    assert json_of(capsys, *resize, "--merge-below", "0") == {"resized": None}
    found = json_of(capsys, *resize, "--split-above", "0.00001", "--merge-below", "0")
    assert found["resized"] == table.table.timeline().completed()[-1].time
    table.check()
    plain = LabTable(tmp_path / "plain")
    plain.upsert(FIRST)
    assert main(["table", "resize-buckets", str(plain.path)]) == 1
    assert "is not written with consistent hashing" in capsys.readouterr().err
