"""Scenarios with deletes, and on merge-on-read: measured and checked like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import parse_scenario
from tests.lab.small_scenario import content, source

pytestmark = pytest.mark.slow

COMMITS = [
    {"share": 0.5, "updates": 0.5, "duplicates": 0.05, "late": 0.1},
    {"operation": "delete", "share": 0.1},
    {"share": 0.3, "updates": 0.9, "late": 0.2, "deletes": 0.1},
    {"operation": "delete", "share": 0.05},
]
REFRESHES = {"source": "tpch", "scale_factor": 0.002, "refresh": True, "input_partitions": 2}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_upserts_and_deletes_are_measured_and_right(kind: str, tmp_path: Path) -> None:
    document = content(
        source(tmp_path), ("pickle", "avro", "internal_row", "arrow"), table={"type": kind}
    )
    document["commit"] = COMMITS
    settings = RunSettings(
        results=tmp_path / "results", cache=tmp_path / "cache", keep_tables=tmp_path / "kept"
    )
    outcome = run_scenario(parse_scenario(document), settings)
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    assert {check.name for check in run.checks} >= {"rows_match_oracle", "arms_agree"}
    logs = list((tmp_path / "kept" / "arrow").glob(".*.log.*"))
    assert bool(logs) == (kind == "MERGE_ON_READ")


@pytest.mark.parametrize("table", ["orders", "lineitem"])
def test_the_refresh_functions_of_tpch_are_measured_and_right(table: str, tmp_path: Path) -> None:
    document = content(Path(), ("avro", "arrow"), table={"type": "MERGE_ON_READ"})
    document["data"] = REFRESHES | {"table": table}
    document["setup"], document["commit"] = [{"operation": "bulk_insert"}], [{}, {}]
    settings = RunSettings(results=tmp_path / "results", cache=tmp_path / "cache")
    outcome = run_scenario(parse_scenario(document), settings)
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    assert {check.name for check in run.checks} >= {"rows_match_oracle", "arms_agree"}
