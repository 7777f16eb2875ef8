"""A scenario of rows without record keys: insert, the oracle, and every check of a cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.lab.small_scenario import content, run_in_session, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ARMS = ("pickle", "avro", "internal_row", "arrow")
# many rows are equal, and some are null everywhere
ROWS = pa.table(
    {
        "a": pa.array([None if i % 5 == 0 else i % 3 for i in range(600)], pa.int64()),
        "b": [None if i % 5 == 0 else f"x{i % 3}" for i in range(600)],
    }
)


def keyless(file: Path, exchange: str, **table: Any) -> dict[str, Any]:
    whole = content(file, ARMS, exchange=exchange, data={"keyless": True})
    del whole["data"]["key"], whole["table"]["buckets"]
    return whole | {
        "table": {**whole["table"], **table},
        "commit": [{"operation": "insert", "share": 0.25}] * 2,
    }


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rows_are_added_and_all_checks_hold(kind: str, tmp_path: Path) -> None:
    whole = keyless(source(tmp_path, ROWS), "inprocess", type=kind)
    whole["data"]["partition"] = "a"
    whole["table"]["hive_style"] = True
    run_and_look(whole, tmp_path)


@pytest.mark.spark
def test_over_spark(spark: SparkSession, tmp_path: Path) -> None:
    whole = keyless(source(tmp_path, ROWS), "spark")
    whole["arm"] = [
        {"name": "arrow", "strategy": "arrow"},
        {"name": "frames", "control": "exchange_only"},
        {"name": "floor", "control": "parquet_floor"},
    ]
    all_is_well(run_in_session(spark, whole | {"reference": "arrow"}, tmp_path))


def all_is_well(run: Run) -> None:
    assert [check for check in run.checks if not check.passed] == []
    assert {cell.status for cell in run.cells} == {"ok"}


def run_and_look(whole: dict[str, Any], folder: Path) -> None:
    scenario = parse_scenario(whole, "small.toml")
    kept = folder / "kept"
    settings = RunSettings(
        results=folder / "results", cache=folder / "cache", work=folder, keep_tables=kept
    )
    outcome = run_scenario(scenario, settings)
    all_is_well(load_run(outcome.path))
    assert outcome.exit_status == 0
    table = HoodieTable.open(Storage.open(kept / "arrow"))
    assert table.config.is_keyless
    rows = plan_snapshot(table).read()
    assert (
        rows.select(["a", "b"])
        .sort_by([("a", "ascending")])
        .equals(ROWS.sort_by([("a", "ascending")]))
    )
    assert len(set(rows["_hoodie_record_key"].to_pylist())) == len(ROWS)
