"""The control `work_floor`: right tables, phases that make the whole, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.errors import ScenarioError, UsageError
from serde_lab.lab.cells.floor_cells import _own_use
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.runner import run_scenario
from serde_lab.measure.process_tree import TreeUse
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from tests.lab.small_scenario import content, run_in_session, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOOR = {"name": "floor", "control": "work_floor"}
BOTH = ("arrow", FLOOR)
CHECKS = {
    "rows_match_oracle",
    "no_duplicate_keys",
    "meta_columns",
    "files_alike",
    "arms_agree",
    "work_is_inside_timers",
    "processes_work_in_phases",
}
SERDE = {"from_arrow", "route", "encode", "decode", "to_arrow", "read_columns", "take"}


def run_here(whole: dict[str, Any], folder: Path) -> Run:
    settings = RunSettings(folder / "results", folder / "cache", folder / "work")
    outcome = run_scenario(parse_scenario(whole, "small.toml"), settings)
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [cell.error for cell in run.cells] + list(run.checks)
    return run


def closes(run: Run, slots: int) -> None:
    """All checks passed, no phase is SerDe, and the phases of each cell make the whole."""
    assert [check for check in run.checks if check.failed] == []
    passed = {check.name for check in run.checks if check.arm == "floor" and check.passed}
    assert passed >= CHECKS
    for cell in run.cells:
        if cell.arm != "floor":
            continue
        seconds = fsum(s.value for s in cell.samples if s.metric == "seconds" and s.commit)
        walls = {s.phase or "": s.value for s in cell.samples if s.metric == "phase_wall_s"}
        by_phase = fsum(s.value for s in cell.samples if s.metric == "phase_wall_s")
        assert by_phase == pytest.approx(slots * seconds, rel=1e-6)
        assert not {phase.rpartition(".")[2] for phase in walls} & SERDE
        assert not [s for s in cell.samples if s.metric in ("frames", "frame_bytes", "hops")]


def alike(run: Run) -> None:
    """The floor wrote as many files, of as many rows, as the strategy."""
    figures: dict[str, set[tuple[object, ...]]] = {}
    for cell in run.cells:
        found = {
            (s.metric, s.commit, s.value) for s in cell.samples if s.metric in ("files", "rows")
        }
        figures[cell.arm] = found
    assert figures["floor"] == figures["arrow"] != set()


def test_the_jvm_and_the_moving_of_records_cost_the_floor_nothing() -> None:
    # 9 s of the tree: 5.5 s of a JVM, 1.5 s of this process, 2 s of others, of which 0.5 s moved records
    tree = TreeUse(cpu_s=9.0, peak_bytes=7, worker_cpu_s=2.0)
    used = _own_use(tree, cpu_ns=1_500_000_000, moved_cpu_ns=500_000_000)
    assert used == TreeUse(cpu_s=3.0, peak_bytes=7, worker_cpu_s=1.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "commits"),
    [
        ("COPY_ON_WRITE", [{"share": 0.5, "updates": 0.5, "duplicates": 0.05, "late": 0.1}]),
        (
            "MERGE_ON_READ",
            [
                {"share": 0.2, "updates": 0.5, "deletes": 0.1},
                {"operation": "insert", "share": 0.1},
                {"operation": "delete", "share": 0.1},
            ],
        ),
    ],
)
def test_in_this_process(kind: str, commits: list[dict[str, Any]], tmp_path: Path) -> None:
    whole = content(source(tmp_path), BOTH, table={"type": kind}) | {"commit": commits}
    run = run_here(whole, tmp_path)
    closes(run, 1)
    alike(run)


@pytest.mark.spark
@pytest.mark.slow
def test_beside_spark(spark: SparkSession, tmp_path: Path) -> None:
    whole = content(source(tmp_path), BOTH, exchange="spark")
    run = run_in_session(spark, whole, tmp_path)
    closes(run, spark.sparkContext.defaultParallelism)
    alike(run)
    (cell,) = (cell for cell in run.cells if cell.arm == "floor")
    found = {s.metric: s.value for s in cell.samples if s.phase is None}
    assert found["worker_start_s"] > 0
    assert found["shuffle_bytes"] == 0
    assert found["spark.tasks"] == 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"topology": {"name": "state"}, "table": {"index": "SIMPLE"}},
            "work_floor needs the bucket index, but topology.name is 'state'",
        ),
        ({"measure": {"exchange": "none"}}, "every arm must be a strategy"),
        ({"commit": [{"operation": "upsert_prepped", "share": 0.1}]}, "cannot do upsert_prepped"),
        (
            {"stream": {"batches": 2}, "measure": {"exchange": "spark"}},
            "work_floor has no sink for a streaming query",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    whole = content(source(tmp_path), BOTH)
    for key, value in changed.items():
        whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) else value
    with pytest.raises(ScenarioError, match=said):
        parse_scenario(whole, "small.toml")


def test_a_cluster_is_refused_before_anything_starts(tmp_path: Path) -> None:
    scenario = parse_scenario(content(source(tmp_path), BOTH, exchange="spark"), "small.toml")
    settings = RunSettings(tmp_path / "results", tmp_path / "cache", tmp_path / "work")
    with pytest.raises(
        UsageError, match="arm 'floor': work_floor works in processes of this machine"
    ):
        run_scenario(scenario, replace(settings, master="spark://a:7077"))
    assert not (tmp_path / "results").exists()
