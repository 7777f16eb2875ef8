"""Scenarios whose commits are of every operation, one after the other on one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.analysis.cell_values import cell_values
from serde_lab.errors import LabError
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.lab.lab_reader import located
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.records.operation import Operation
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from tests.lab.small_scenario import content, rows, run_in_session, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PREPPED = {"operation": "upsert_prepped", "share": 0.2, "updates": 1.0, "duplicates": 0.1}
COMMITS: list[dict[str, Any]] = [
    {"operation": "upsert", "share": 0.2, "updates": 0.5, "duplicates": 0.05, "late": 0.1},
    PREPPED,
    {"operation": "delete", "share": 0.1},
    {**PREPPED, "late": 0.1},
    {"operation": "delete_partition", "partitions": ["east", "n*"]},
    {"operation": "upsert", "share": 0.2, "updates": 0.5},
    {"operation": "insert_overwrite", "share": 0.05, "updates": 0.5},
    {"operation": "insert_overwrite_table", "share": 0.1, "updates": 0.5},
]
INSERT = {"operation": "insert", "share": 0.1}
ARMS = [
    {"name": "state", "strategy": "avro", "topology": {"name": "state"}},
    {"name": "step3", "strategy": "internal_row", "topology": {"name": "step3", "batch_mb": 0.1}},
]


def with_regions() -> pa.Table:
    regions = [("east", "west", "north")[i % 3] for i in range(2000)]
    return rows().append_column("region", pa.array(regions))


def document(folder: Path, arms: list[Any], exchange: str, kind: str) -> dict[str, Any]:
    file = source(folder, with_regions())
    whole = content(
        file, arms, exchange=exchange, data={"partition": "region"}, table={"type": kind}
    )
    whole["commit"] = [*COMMITS]
    return whole


@pytest.mark.parametrize("arms", [ARMS, ["internal_row"]], ids=["looked up", "bucket"])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_operation_is_measured_and_right(kind: str, arms: list[Any], tmp_path: Path) -> None:
    whole = document(tmp_path, arms, "inprocess", kind)
    whole["commit"].insert(0, INSERT)
    outcome = run_scenario(
        parse_scenario(whole),
        RunSettings(results=tmp_path / "results", cache=tmp_path / "cache", work=tmp_path),
    )
    assert outcome.exit_status == 0
    assert {c["operation"] for c in whole["commit"]} | {"bulk_insert"} == set(Operation)
    all_is_well(load_run(outcome.path), len(whole["commit"]))


@pytest.mark.spark
def test_over_spark(spark: SparkSession, tmp_path: Path) -> None:
    by_bytes = {"name": "by_bytes", "strategy": "arrow", "shuffle": "rdd"}
    whole = document(tmp_path, [*ARMS[:1], "arrow", by_bytes], "spark", "MERGE_ON_READ")
    whole["commit"].insert(0, INSERT)
    run = run_in_session(spark, whole | {"reference": "state"}, tmp_path)
    all_is_well(run, len(whole["commit"]))


def all_is_well(run: Run, commits: int) -> None:
    """Every check passed, every commit was timed, and delete_partition alone took no rows."""
    assert [check for check in run.checks if not check.passed] == []
    for cell in run.cells:
        found = [commit.metrics for commit in cell_values(cell).commits]
        assert len(found) == commits
        assert [n for n, values in enumerate(found) if not values.get("rows")] == [5]
        assert all(values["seconds"] > 0 for values in found)


def test_rows_that_are_not_stored_have_no_place(tmp_path: Path) -> None:
    whole = document(tmp_path, ["arrow"], "inprocess", "COPY_ON_WRITE")
    whole["commit"] = [{"operation": "upsert", "share": 0.1}]
    kept = tmp_path / "kept"
    run_scenario(
        parse_scenario(whole),
        RunSettings(tmp_path / "results", tmp_path / "cache", work=tmp_path, keep_tables=kept),
    )
    file = source(tmp_path)
    given = CommitInput("commit-2", "upsert_prepped", tmp_path, (file,), 2000, "")
    with pytest.raises(LabError, match=r"commit-2: 800 of 2,000 rows of rows\.parquet are not"):
        located(given, kept / "arrow", ("id", "region"), tmp_path / "placed")
