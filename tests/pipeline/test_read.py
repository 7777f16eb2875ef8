"""Which rows a read gives: of now, of an earlier moment, of what changed; without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, StorageError, TableError
from serde_lab.pipeline import read as reading
from serde_lab.pipeline.commit.table_services import clean_now
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.table import table as tables
from serde_lab.table.files.file_system_view import TableFiles
from serde_lab.table.read_plan import ReadPlan
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY
from serde_lab.table.timeline.lsm_timeline import ArchivedInstant
from serde_lab.table.timeline.timeline import Instant, Timeline
from serde_lab.verify.readers import HudiRs
from serde_lab.verify.table_checks import Expected, check_contents
from tests.pipeline.lab_table import BACK, FIRST, GONE, MOR, PARTITIONED, SECOND, LabTable, table_of
from tests.pipeline.test_topologies import moved

INCREMENTAL = {"hoodie.datasource.query.type": "incremental"}
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"

KINDS = {
    "cow": {},
    "cow 6": {"hoodie.write.table.version": "6"},
    "mor": MOR,
    "mor 6": {**MOR, "hoodie.write.table.version": "6"},
    "mor partitioned": {**MOR, **PARTITIONED},
}


def read(table: LabTable, **options: str) -> pa.Table:
    """`options`: names with `__` for dots."""
    given = {key.replace("__", "."): value for key, value in options.items()}
    return plan_read(table.table, parse_read_options(given)).read()


def changes(table: LabTable, begin: str, end: str = "") -> pa.Table:
    given = {**INCREMENTAL, BEGIN: begin, **({END: end} if end else {})}
    return plan_read(table.table, parse_read_options(given)).read()


def written(folder: Path, kind: dict[str, str]) -> tuple[LabTable, list[tuple[str, str]]]:
    """A table of four writes, and (instant, completion time) of each of them."""
    table = LabTable(folder, kind)
    commits = [table.upsert(FIRST), table.upsert(SECOND), table.delete(GONE), table.upsert(BACK)]
    return table, [(commit.instant, commit.completion) for commit in commits]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_time_travel_goes_by_the_instants_that_rows_bear(kind: str, tmp_path: Path) -> None:
    table, moments = written(tmp_path, KINDS[kind])
    for number, (instant, _) in enumerate(moments, 1):
        expected = table.expected(number)
        found = check_contents(read(table, as__of__instant=instant), expected, table.rules).results[
            0
        ]
        assert found.passed, found.detail
        other = check_contents(
            HudiRs(str(table.path), as_of=instant), expected, table.rules
        ).results[0]
        assert other.passed, other.detail
    assert read(table, as__of__instant="20000101000000").num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_incremental_read_gives_what_hudi_rs_gives(kind: str, tmp_path: Path) -> None:
    table, moments = written(tmp_path, KINDS[kind])
    version_6 = table.table.config.layout_version == 1
    times = ["000", *(instant if version_6 else done for instant, done in moments)]
    for begin, end in [*combinations(times, 2), *((time, "") for time in times)]:
        theirs = HudiRs(str(table.path)).changes(begin, end)
        same = check_contents(changes(table, begin, end), Expected.of(theirs), table.rules).results[
            0
        ]
        assert same.passed, (begin, end, same.detail)


def test_changes_are_those_of_the_writes_in_between_as_they_are_at_the_end(tmp_path: Path) -> None:
    table, moments = written(tmp_path, MOR)
    (_, first), (_, second), (_, third), (_, last) = moments
    assert changes(table, "000", first).num_rows == len(FIRST)
    assert {(r["k"], r["n"]) for r in changes(table, first, second).to_pylist()} == {
        ("a", 3), ("a", 4), ("a", 5), ("a", 6), ("b", 0), ("\U0001f600", 0),
    }  # fmt: skip
    assert changes(table, second, third).num_rows == 0
    # a row that came too late for its base row is among the changes, as it is for Hudi
    assert {(r["k"], r["n"]) for r in changes(table, third).to_pylist()} == {
        ("a", 3), ("a", 10), ("a", 11), ("b", 0),
    }  # fmt: skip
    assert changes(table, last).num_rows == 0


def test_changes_are_found_in_the_file_that_a_compaction_made_of_them(tmp_path: Path) -> None:
    table = LabTable(tmp_path, MOR)
    first = table.upsert(FIRST)
    second = table.upsert(SECOND)
    compacted = table.compact()
    last = table.upsert([("a", 1, 1000, 0.0)])
    assert compacted is not None
    for begin, end in [(first, None), (first, compacted), (second, last), (compacted, None)]:
        bounds = begin.completion, "" if end is None else end.completion
        theirs = HudiRs(str(table.path)).changes(*bounds)
        same = check_contents(changes(table, *bounds), Expected.of(theirs), table.rules).results[0]
        assert same.passed, same.detail
    assert changes(table, second.completion, compacted.completion).num_rows == 0


def test_read_optimised_leaves_the_logs_out(tmp_path: Path) -> None:
    table, _ = written(tmp_path, MOR)
    query = {"hoodie__datasource__query__type": "READ_OPTIMIZED"}
    found = check_contents(read(table, **query), table.expected(1), table.rules).results[0]
    assert found.passed, found.detail
    table.compact()
    found = check_contents(read(table, **query), table.expected(), table.rules).results[0]
    assert found.passed, found.detail


def test_meta_columns_come_where_they_are_asked_for(tmp_path: Path) -> None:
    table, moments = written(tmp_path, MOR)
    assert read(table).schema.names == table.schema.names
    whole = read(table, serde_lab__meta_columns="true")
    assert whole.schema.names[:5] == [
        "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key",
        "_hoodie_partition_path", "_hoodie_file_name",
    ]  # fmt: skip
    assert set(whole["_hoodie_commit_time"].to_pylist()) <= {instant for instant, _ in moments}


def test_times_are_taken_in_every_form(tmp_path: Path) -> None:
    for text, expected in (
        ("20240506070809123", "20240506070809123"),
        # compared as text: before all instants of its second
        ("20240506070809", "20240506070809"),
        ("2024-05-06", "20240506000000000"),
        # the end of its second
        ("2024-05-06 07:08:09", "20240506070809999"),
        ("2024-05-06 07:08:09.123", "20240506070809123"),
        ("000", "000"),
    ):
        assert parse_read_options({"as.of.instant": text}).as_of == expected
    # a blank time, or digits of another script, would be taken for the latest rows
    other = "20240506070809".translate({ord(str(n)): chr(0xFF10 + n) for n in range(10)})
    # and these for a time before all writes: Apache Hudi takes the first two for seconds and milliseconds
    short = ("1714979289", "1714979289123", "20240506", "2024")
    for wrong in ("yesterday", "2024-13-01", "20240506070809123456", "", " ", other, *short):
        for options in (
            {"as.of.instant": wrong},
            {**INCREMENTAL, BEGIN: wrong},
            {**INCREMENTAL, BEGIN: "0", END: wrong},
        ):
            with pytest.raises(OptionError, match=r"instant(time)? is .*, expected yyyy"):
                parse_read_options(options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.datasource.query.kind": "snapshot"}, "did you mean"),
        ({"hoodie.datasource.query.type": "cdc"}, "expected snapshot or read_optimized or incre"),
        ({END: "1"}, "is for an incremental read"),
        (INCREMENTAL, "after which an incremental read begins"),
        ({**INCREMENTAL, BEGIN: "1", "as.of.instant": "1"}, r"as\.of\.instant is for a snapshot"),
        ({"hoodie.metadata.enable": "true"}, "expected false"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_read_options(options)


def test_a_moment_whose_files_were_cleaned_is_refused(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {"hoodie.clean.commits.retained": "2"})
    commits = [table.upsert([("a", 1, number, 0.0)]) for number in range(6)]
    with pytest.raises(OptionError, match="need were cleaned"):
        read(table, as__of__instant=commits[1].instant)
    with pytest.raises(OptionError, match="need were cleaned"):
        changes(table, "000", commits[1].completion)
    seen = read(table, as__of__instant=commits[-2].instant)
    assert seen["ts"].to_pylist() == [4]
    assert changes(table, commits[1].completion)["ts"].to_pylist() == [5]


def test_changes_that_were_archived_are_refused_but_for_all_of_them(tmp_path: Path) -> None:
    table = LabTable(
        tmp_path,
        {
            "hoodie.clean.commits.retained": "1",
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
        },
    )
    commits = [table.upsert([("a", number, number, 0.0)]) for number in range(7)]
    with pytest.raises(OptionError, match=r"(was|were) archived"):
        changes(table, commits[0].completion)
    with pytest.raises(OptionError, match=r"(was|were) archived"):
        read(table, as__of__instant=commits[1].instant)
    assert changes(table, "000").num_rows == 7
    assert changes(table, commits[-2].completion)["n"].to_pylist() == [6]


def test_the_moment_of_the_first_archived_write_is_refused(tmp_path: Path) -> None:
    """Its file was cleaned, and the clean archived."""
    options = {
        **PARTITIONED,
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    table = LabTable(tmp_path, options)
    commits = [table.upsert(moved([("a", 1, number, 0.0)], "x")) for number in range(2)]
    # from now on there is nothing to clean
    for number in range(4):
        table.upsert(moved([("b", 1, number, 0.0)], f"y{number}"))
    assert not any(i.action == "clean" for i in table.table.timeline().instants())
    for commit in commits:
        with pytest.raises(OptionError, match=r"was archived"):
            read(table, as__of__instant=commit.instant)


def test_a_moment_is_refused_from_the_plan_of_a_clean_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    off = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    table = LabTable(tmp_path, off)
    first, *_ = [table.upsert([("a", 1, number, 0.0)]) for number in range(3)]
    assert read(table, as__of__instant=first.instant).num_rows == 1
    completes = Timeline.create_completed

    def dies(timeline: Timeline, instant: Instant, content: bytes) -> Instant:
        if instant.action == "clean":
            raise StorageError("the driver dies")
        return completes(timeline, instant, content)

    monkeypatch.setattr(Timeline, "create_completed", dies)
    with pytest.raises(StorageError, match="the driver dies"):
        clean_now(table.table, 1)
    monkeypatch.undo()
    with pytest.raises(OptionError, match="need were cleaned"):
        read(table, as__of__instant=first.instant)
    clean_now(table.table, 1)
    with pytest.raises(OptionError, match="need were cleaned"):
        read(table, as__of__instant=first.instant)


def test_a_clean_that_keeps_less_counts_beside_a_later_one(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {"hoodie.clean.commits.retained": "1"})
    commits = [table.upsert([("a", 1, number, 0.0)]) for number in range(5)]
    table.upsert([("a", 1, 5, 0.0)], hoodie__clean__commits__retained="4")
    with pytest.raises(OptionError, match="need were cleaned"):
        read(table, as__of__instant=commits[2].instant)


def stated_anew(table: LabTable, operation: str = "UPSERT", **stated: str) -> None:
    """The last commit's metadata with another operation and these extra values."""
    opened = table.table
    timeline = opened.timeline()
    last = timeline.completed()[-1]
    metadata = opened.commit_metadata(last)
    extra = {**metadata.extra_metadata, **stated}
    changed = replace(metadata, operation_type=operation, extra_metadata=extra)
    content = changed.to_bytes(opened.config.layout_version)
    (table.path / timeline.path(last)).write_bytes(content)


@pytest.mark.parametrize("operation", ["COMPACT", "CLUSTER"])
def test_a_service_that_began_before_a_column_was_added_does_not_take_it_away(
    operation: str, tmp_path: Path
) -> None:
    """Apache Hudi's services state the columns that the table had when they began."""
    table, _ = written(tmp_path, {})
    columns = read(table).schema.names
    last = table.table.timeline().completed()[-1]
    schema = json.loads(table.table.commit_metadata(last).extra_metadata[SCHEMA_KEY])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "x"]
    stated_anew(table, operation, schema=json.dumps(schema))
    assert read(table).schema.names == columns
    stated_anew(table, schema=json.dumps(schema))
    assert "x" not in read(table).schema.names


def test_a_moment_has_the_columns_of_then(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {})
    first = table.upsert(table_of(FIRST).drop_columns(["x", "l"]))
    second = table.upsert(SECOND)
    assert {"x", "l"} < {*read(table).schema.names}
    then = read(table, as__of__instant=first.instant)
    assert then.schema.names == ["k", "n", "ts", "p", "d", "m", "t"]
    assert len(then) == len(FIRST)
    assert "x" in read(table, as__of__instant=second.instant).schema.names
    # before any write there are no rows, and nobody said what columns there were
    nothing = read(table, as__of__instant="0")
    assert (len(nothing), nothing.schema) == (0, read(table).schema)


def test_a_table_of_hudis_schema_on_read_is_refused(tmp_path: Path) -> None:
    table, _ = written(tmp_path, {})
    stated_anew(table, latest_schema='{"max_column_id": 3}')
    with pytest.raises(
        TableError, match=r"schema\.on\.read\.enable, so columns may have been renamed"
    ):
        read(table)
    with pytest.raises(TableError, match=r"schema\.on\.read\.enable"):
        table.upsert(SECOND)


@pytest.mark.parametrize("version", ["6", "9"])
def test_schema_on_read_is_refused_if_later_writes_do_without_it(
    version: str, tmp_path: Path
) -> None:
    """Apache Hudi keeps the numbered columns in a folder; only writes with the option state them, too."""
    table = LabTable(tmp_path, {"hoodie.write.table.version": version})
    commits = [table.upsert(FIRST), table.upsert(SECOND), table.upsert(BACK)]
    renamed = commits[1]
    saved = table.path / ".hoodie/.schema"

    def keep(time: str) -> Path:
        (saved / f"{time}.schemacommit.inflight").touch()
        completed = f"{time}_{int(time) + 1}" if version == "9" else time
        stored = saved / f"{completed}.schemacommit"
        stored.touch()
        return stored

    undone = keep(f"{int(renamed.instant) + 1}")  # its write is not on the timeline
    assert len(read(table)) > len(FIRST)
    undone.unlink()
    for time in (renamed.instant, f"{int(commits[0].instant) - 1}"):  # the second one is archived
        stored = keep(time)
        with pytest.raises(TableError, match=rf"{time} was written with hoodie\.schema\.on\.read"):
            read(table)
        if time == renamed.instant:
            assert len(read(table, as__of__instant=commits[0].instant)) == len(FIRST)
        stored.unlink()


def test_logs_beside_a_pending_compaction_of_version_6_are_read(tmp_path: Path) -> None:
    """Their names carry the instant of the compaction, and their blocks the writes' own."""
    table = LabTable(tmp_path, {**MOR, "hoodie.write.table.version": "6"})
    table.upsert(FIRST)
    table.upsert(SECOND)
    first, second = (instant.time for instant in table.table.timeline().completed())
    expected = table.expected()
    assert table.logs()
    planned = str(int(second) - 1)
    (table.path / f".hoodie/{planned}.compaction.requested").write_bytes(b"")
    for log in list(table.path.rglob(".*.log.*")):
        log.rename(log.with_name(log.name.replace(first, planned)))
    found = check_contents(read(table), expected, table.rules).results[0]
    assert found.passed, found.detail
    assert changes(table, first).num_rows == len({row[:2] for row in SECOND})


@pytest.mark.parametrize("folder", ["archived", "history"])
def test_changes_before_an_archive_of_version_6_are_refused_but_for_all_of_them(
    folder: str, tmp_path: Path
) -> None:
    """Flink names the folder `history`."""
    table = LabTable(tmp_path, {"hoodie.write.table.version": "6"})
    commits = [table.upsert([("a", number, number, 0.0)]) for number in range(4)]
    place = table.path / ".hoodie"
    properties = place / "hoodie.properties"
    stated = properties.read_text()
    assert "archivelog.folder=archived" in stated
    properties.write_text(stated.replace("folder=archived", f"folder={folder}"))
    (place / folder).mkdir(exist_ok=True)
    for commit in commits[:2]:
        for file in place.glob(f"{commit.instant}.*"):
            file.rename(place / folder / file.name)
    for begin in (commits[0].instant, commits[1].instant):
        with pytest.raises(OptionError, match="was archived in the form of table version 6"):
            changes(table, begin)
    with pytest.raises(OptionError, match="was archived in the form of table version 6"):
        read(table, as__of__instant=commits[1].instant)
    assert changes(table, "000").num_rows == 4
    assert changes(table, commits[2].instant)["n"].to_pylist() == [3]


def test_an_archived_write_may_have_completed_after_an_active_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {})
    first, second, third = (table.upsert([("a", n, n, 0.0)]) for n in range(3))
    late = str(int(second.completion) + 1)
    archived = [
        ArchivedInstant(str(int(first.instant) - 9), done, "commit", b"", b"")
        for done in (str(int(first.instant) - 5), late)
    ]
    monkeypatch.setattr(reading, "_archived", lambda _: archived)
    with pytest.raises(OptionError, match=f"changes up to {late} were archived"):
        changes(table, second.completion)
    with pytest.raises(OptionError, match="was archived: its files may be gone"):
        changes(table, "000", second.completion)
    assert changes(table, third.completion).num_rows == 0


def test_changes_until_a_time_at_which_an_archived_write_went_on_are_refused(
    tmp_path: Path,
) -> None:
    off = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    table = LabTable(tmp_path, off)
    first, *_ = [table.upsert([("a", n, n, 0.0)]) for n in range(3)]
    assert first.instant < first.completion
    assert archive(table.table, 1, 1) is not None
    with pytest.raises(OptionError, match="was archived: its files may be gone"):
        changes(table, "0", first.instant)
    assert changes(table, "0", str(int(first.instant) - 1)).num_rows == 0


def test_time_travel_leaves_out_what_was_requested_later_and_completed_first(
    tmp_path: Path,
) -> None:
    table = LabTable(tmp_path, PARTITIONED)
    first = table.upsert(moved([("a", 1, 1, 0.0)], "x"))
    second = table.upsert(moved([("b", 1, 1, 0.0)], "y"))
    done = str(int(second.completion) + 1000)
    for file in (table.path / ".hoodie/timeline").glob(f"{first.instant}_*"):
        file.rename(file.with_name(file.name.replace(first.completion, done)))
    assert read(table, as__of__instant=first.instant)["k"].to_pylist() == ["a"]
    assert sorted(read(table, as__of__instant=second.instant)["k"].to_pylist()) == ["a", "b"]


def test_files_that_a_clean_takes_while_they_are_listed_are_not_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between the timeline and the files, another process writes and cleans."""
    table = LabTable(tmp_path, {"hoodie.clean.commits.retained": "1"})
    for number in range(3):
        table.upsert([("a", 1, number, 0.0)])
    lists = tables.list_table_files
    acted: list[bool] = []

    def listed(storage: Storage) -> TableFiles:
        if not acted:
            acted.append(True)
            for number in (3, 4):
                table.upsert([("a", 1, number, 0.0)])
        return lists(storage)

    monkeypatch.setattr(tables, "list_table_files", listed)
    assert read(table)["ts"].to_pylist() == [4]


@pytest.mark.parametrize("service", ["clean", "archive"])
@pytest.mark.parametrize("asked", ["as of", "until", "since"])
def test_a_service_that_runs_while_a_read_is_planned_takes_no_row_away_silently(
    asked: str, service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Just before the files are listed, another process cleans, and archives."""
    off = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    table = LabTable(tmp_path, off)
    commits = [table.upsert([("a", 1, n, 0.0), ("b", n, n, 0.0)]) for n in range(4)]
    given = {
        "as of": {"as.of.instant": commits[1].instant},
        "until": {**INCREMENTAL, BEGIN: "0", END: commits[1].completion},
        "since": {**INCREMENTAL, BEGIN: commits[0].completion},
    }[asked]
    options = parse_read_options(given)
    expected = plan_read(table.table, options).read().num_rows
    assert expected == {"as of": 3, "until": 3, "since": 4}[asked]
    for name in ("plan_snapshot", "plan_incremental"):
        plans = getattr(reading, name)

        def after(opened: HoodieTable, *args: Any, plans: Any = plans, **named: Any) -> ReadPlan:
            clean_now(table.table, 1)
            if service == "archive":
                archive(table.table, 1, 1)
            plan: ReadPlan = plans(opened, *args, **named)
            return plan

        monkeypatch.setattr(reading, name, after)
    if (asked, service) == ("since", "clean"):
        assert plan_read(table.table, options).read().num_rows == expected
    else:
        with pytest.raises(OptionError, match=r"need were cleaned|archived"):
            plan_read(table.table, options)
