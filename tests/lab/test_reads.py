"""Scenarios that time reads and compactions: every answer is checked, and a wrong one hides the timing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.errors import ScenarioError
from serde_lab.lab.cells import in_process_reads, read_cells
from serde_lab.lab.cells.in_process_reads import digest_of_files
from serde_lab.lab.checks.read_checks import READS_MATCH_ORACLE
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.runner import run_scenario
from serde_lab.measure.other_work import OthersShare
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.report.render import run_text
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.read_plan import FileSliceReader, ReadPlan
from tests.lab.small_scenario import content, run_in_session, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRATEGIES = ["pickle", "pickle_columns", "avro", "internal_row", "arrow"]
SCAN = {"name": "scan", "control": "duckdb_scan"}
RUST = {"name": "rust", "control": "hudi_rs"}
UPSERT = {"operation": "upsert", "share": 0.3, "updates": 0.5, "duplicates": 0.05, "late": 0.1}
SETUP = [
    {"operation": "bulk_insert", "share": 0.5},
    UPSERT,
    UPSERT,
    {"operation": "delete", "share": 0.05},
    UPSERT,
]
READ, COMPACT = {"operation": "read"}, {"operation": "compact"}


def document(
    folder: Path, arms: list[Any], commits: list[dict[str, Any]], **given: Any
) -> dict[str, Any]:
    whole = content(source(folder), arms, table={"type": "MERGE_ON_READ"}, **given)
    return whole | {"setup": SETUP, "commit": commits}


def run(folder: Path, whole: dict[str, Any]) -> tuple[int, Run]:
    settings = RunSettings(folder / "results", folder / "cache", folder / "work")
    outcome = run_scenario(parse_scenario(whole), settings)
    return outcome.exit_status, load_run(outcome.path)


def samples(found: Run, arm: str, metric: str) -> dict[int | None, float]:
    (cell,) = (cell for cell in found.cells if cell.arm == arm)
    return {s.commit: s.value for s in cell.samples if s.metric == metric}


def phases(found: Run, arm: str) -> set[str]:
    (cell,) = (cell for cell in found.cells if cell.arm == arm)
    return {str(s.phase) for s in cell.samples if s.metric == "phase_wall_s" and s.value}


@pytest.mark.slow
@pytest.mark.parametrize("version", [9, 6])
def test_every_reader_gives_the_right_rows(version: int, tmp_path: Path) -> None:
    commits = [
        READ | {"while_writing": version == 9},
        {"operation": "incremental", "since": 2},
        {"operation": "incremental", "since": 4},
    ]
    whole = document(tmp_path, [*STRATEGIES, RUST, SCAN], commits)
    whole["table"]["version"] = version
    status, found = run(tmp_path, whole)
    assert status == 0, [c for c in found.checks if c.passed is False] + [
        c.error for c in found.cells
    ]
    assert {c.arm for c in found.checks if c.name == READS_MATCH_ORACLE} == {
        *STRATEGIES,
        "rust",
        "scan",
    }
    rows = samples(found, "arrow", "rows")
    assert rows[1] > rows[3] > rows[2] > 0
    for arm in (*STRATEGIES, "rust", "scan"):
        assert samples(found, arm, "rows") == rows
        assert samples(found, arm, "first_row_s").keys() == {1, 2, 3}
        assert samples(found, arm, "seconds").keys() == {1, 2, 3, None}
        busy = samples(found, arm, "commits_meanwhile")
        assert bool(busy) == (version == 9 and arm != "scan"), arm
        assert busy.keys() == samples(found, arm, "read_while_writing_s").keys()
    shown = {arm["arm"]: arm["commits"] for arm in summarise(found)["arms"]}
    assert shown["avro"][1]["first_row_s"] == samples(found, "avro", "first_row_s")[2]
    assert ("read_while_writing_s" in shown["avro"][0]) == (version == 9)
    page = run_text(found)
    assert "first row" in page
    assert (">while writing" in page) == (version == 9)
    serde = {f"read.{verb}" for verb in ("from_arrow", "read_columns", "take", "to_arrow")}
    for arm in STRATEGIES:
        assert phases(found, arm) > serde | {"read.read_base", "read.merge", "read.hash"}


@pytest.mark.slow
def test_every_compactor_leaves_the_right_rows(tmp_path: Path) -> None:
    status, found = run(tmp_path, document(tmp_path, [*STRATEGIES, SCAN], [READ, COMPACT, READ]))
    assert status == 0, [c for c in found.checks if c.passed is False] + [
        c.error for c in found.cells
    ]
    rows = samples(found, "arrow", "rows")
    assert rows[1] == rows[2] == rows[3] > 0
    assert samples(found, "scan", "rows") == rows
    for arm in STRATEGIES:
        assert samples(found, arm, "rows") == rows
        assert samples(found, arm, "files") == {2: 2}
        assert phases(found, arm) > {"compact.from_arrow", "compact.to_arrow", "compact.write"}
    # one size but for the instants in names, which compress differently
    sizes = [samples(found, arm, "table_bytes")[2] for arm in STRATEGIES]
    assert max(sizes) - min(sizes) < 64


@pytest.mark.slow
def test_reads_come_between_writes(tmp_path: Path) -> None:
    few = UPSERT | {"share": 0.05}
    commits = [READ, few, READ, COMPACT, few, {"operation": "incremental"}, READ]
    status, found = run(tmp_path, document(tmp_path, ["pickle", "arrow"], commits))
    assert status == 0, [c for c in found.checks if c.passed is False] + [
        c.error for c in found.cells
    ]
    rows = samples(found, "pickle", "rows")
    assert rows[7] > rows[3] > rows[1] > rows[6] > 0
    assert samples(found, "pickle", "frames").keys() == {2, 5}


def without_first_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    dropped = False
    for batch in batches:
        yield batch if dropped else batch.slice(1)
        dropped = True


@pytest.mark.slow
def test_a_reader_that_drops_a_row_is_caught_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ReadPlan.batches

    def wrong(
        plan: ReadPlan, slice_: FileSlice, timeline: TaskTimeline | None = None
    ) -> Iterator[pa.RecordBatch]:
        found = right(plan, slice_, timeline)
        by_avro = plan.records is not None and plan.records.strategy == "avro"
        return without_first_row(found) if by_avro and slice_ == plan.slices[0] else found

    monkeypatch.setattr(ReadPlan, "batches", wrong)
    status, found = run(tmp_path, document(tmp_path, ["avro", "arrow"], [READ]))
    assert status == 4
    (failed,) = (check for check in found.checks if check.passed is False)
    assert (failed.arm, failed.name) == ("avro", READS_MATCH_ORACLE)
    assert "commit 1 (read): as read by the arm: " in failed.detail
    assert "id" in failed.detail


@pytest.mark.slow
def test_a_timed_read_that_differs_from_the_kept_one_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, seen = in_process_reads.HashSink.add, []

    def wrong(sink: in_process_reads.HashSink, batch: pa.RecordBatch) -> None:
        seen.append(batch)
        right(sink, batch.slice(1) if len(seen) == 1 else batch)

    monkeypatch.setattr(in_process_reads.HashSink, "add", wrong)
    status, found = run(tmp_path, document(tmp_path, ["arrow"], [READ]))
    assert status == 4
    (failed,) = (check for check in found.checks if check.passed is False)
    assert failed.name == READS_MATCH_ORACLE
    assert "the timed read had " in failed.detail


@pytest.mark.slow
def test_what_follows_a_timed_read_runs_apart_from_the_look_at_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    @contextmanager
    def apart(self: OthersShare) -> Iterator[None]:
        done.append("apart")
        yield
        done.append("again")

    def noted(name: str) -> None:
        right = getattr(in_process_reads.StrategyInProcess, name)

        def step(self: in_process_reads.StrategyInProcess, *given: Any) -> Any:
            done.append(name)
            return right(self, *given)

        monkeypatch.setattr(in_process_reads.StrategyInProcess, name, step)

    monkeypatch.setattr(OthersShare, "apart", apart)
    for name in ("read", "first_row", "keep"):
        noted(name)
    status, _ = run(tmp_path, document(tmp_path, ["arrow"], [READ]))
    assert (status, done) == (0, ["read", "apart", "first_row", "keep", "again"])


@pytest.mark.slow
def test_a_writer_that_ends_leaves_no_figure_of_reads_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_cells, "_write_again", divmod)  # which takes two arguments, not five
    whole = document(tmp_path, ["arrow"], [READ | {"while_writing": True}])
    status, found = run(tmp_path, whole)
    (cell,) = found.cells
    assert status == 1
    assert "the process that writes meanwhile ended: status 1" in str(cell.error)


@pytest.mark.slow
def test_a_compaction_that_drops_a_row_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = FileSliceReader.batches

    def wrong(reader: FileSliceReader) -> Iterator[pa.RecordBatch]:
        compacts = reader._timeline.stage == "compact"
        return without_first_row(right(reader)) if compacts else right(reader)

    monkeypatch.setattr(FileSliceReader, "batches", wrong)
    status, found = run(tmp_path, document(tmp_path, ["pickle"], [COMPACT]))
    assert status == 4
    assert "rows_match_oracle" in {check.name for check in found.checks if check.passed is False}


@pytest.mark.spark
@pytest.mark.slow
def test_over_spark(spark: SparkSession, tmp_path: Path) -> None:
    commits = [READ, {"operation": "incremental", "since": 2}, COMPACT, READ]
    whole = document(tmp_path, ["internal_row", "pickle", SCAN], commits, exchange="spark")
    found = run_in_session(spark, whole, tmp_path)
    rows = samples(found, "scan", "rows") | {3: samples(found, "pickle", "rows")[3]}
    for arm in ("internal_row", "pickle"):
        assert samples(found, arm, "rows") == rows
        serde = {
            f"{stage}.{verb}" for stage in ("read", "compact") for verb in ("from_arrow", "take")
        }
        assert phases(found, arm) > serde


@pytest.mark.parametrize(
    ("commits", "arms", "changes", "says"),
    [
        ([{"operation": "reads"}], ["arrow"], {}, "did you mean 'read'"),
        (
            [READ | {"share": 0.1}],
            ["arrow"],
            {},
            "commit.1.share: cannot be set: a read has no rows",
        ),
        ([READ | {"since": 2}], ["arrow"], {}, "commit.1.since: is for incremental, not for read"),
        (
            [COMPACT | {"while_writing": True}],
            ["arrow"],
            {},
            "commit.1.while_writing: is for read, not for compact",
        ),
        (
            [{"operation": "incremental", "since": 5}],
            ["arrow"],
            {},
            "commit.1.since: is 5, but 5 writes come before it",
        ),
        (
            [COMPACT, {"operation": "incremental"}],
            ["arrow"],
            {},
            "changes that a compaction has merged already",
        ),
        ([COMPACT], ["arrow"], {"table": {"buckets": 2}}, "needs table.type MERGE_ON_READ"),
        ([READ], ["arrow"], {"setup": []}, "needs a table with rows"),
        ([UPSERT], ["arrow"], {"setup": [SETUP[0], READ]}, "a read is timed: it belongs in"),
        ([COMPACT], ["arrow", RUST], {}, "arm.rust: hudi_rs does not compact tables"),
        ([READ, UPSERT], ["arrow", SCAN], {}, "arm.scan: duckdb_scan only reads"),
        ([UPSERT], ["arrow", RUST], {}, "arm.rust: hudi_rs only reads"),
        (
            [READ],
            ["arrow", {"name": "floor", "control": "work_floor"}],
            {},
            "work_floor has no table to read or compact",
        ),
        ([READ], ["arrow"], {"measure": {"exchange": "none"}}, "has no table to read"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    commits: list[dict[str, Any]],
    arms: list[Any],
    changes: dict[str, Any],
    says: str,
    tmp_path: Path,
) -> None:
    whole = document(tmp_path, arms, commits) | changes
    with pytest.raises(ScenarioError, match=says):
        parse_scenario(whole)


@pytest.mark.parametrize("name", ["a[1]", "a*", "it's"])
def test_a_folders_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / name / "rows.parquet")
    (tmp_path / "a1").mkdir()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a1" / "rows.parquet")
    with duckdb.connect() as connection:
        assert digest_of_files(connection, tmp_path / name).rows == 2
