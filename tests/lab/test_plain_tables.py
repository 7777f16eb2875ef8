"""The controls that a PySpark user would write: right rows by each way, and what they cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.lab.cells.instead import WAYS, Upsert
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import PLAIN_CONTROLS
from tests.lab.small_scenario import content, run_in_session, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARMS = [{"name": way, "control": way} for way in PLAIN_CONTROLS]
COLUMNS = "a string, b int, ts bigint, v string"
STORED = [("x", 1, 5, "old"), ("x", 2, 5, "old"), ("y", 1, 5, None), ("é", 3, 5, "kept")]
CHANGES = [
    ("x", 1, 6, "newer"),
    ("x", 2, 4, "late"),
    ("y", 1, 5, "tie"),
    ("z", 9, 1, None),
    ("z", 9, 3, "best"),
    ("z", 9, 2, "worse"),
]
MERGED = [
    ("x", 1, 6, "newer"),
    ("x", 2, 5, "old"),
    ("y", 1, 5, "tie"),
    ("z", 9, 3, "best"),
    ("é", 3, 5, "kept"),
]


@pytest.mark.spark
@pytest.mark.parametrize("way", PLAIN_CONTROLS)
def test_the_best_row_of_each_key_stays(way: str, spark: SparkSession) -> None:
    frames = [spark.createDataFrame(rows, COLUMNS) for rows in (STORED, CHANGES)]
    merged = WAYS[way](Upsert(*frames, ("a", "b"), ("ts",), buckets=3, unique=False))
    assert merged.columns == ["a", "b", "ts", "v"]
    assert sorted(tuple(row) for row in merged.collect()) == MERGED


@pytest.mark.spark
@pytest.mark.slow
def test_their_tables_hold_what_the_others_hold(spark: SparkSession, tmp_path: Path) -> None:
    whole = content(source(tmp_path), ["arrow"], exchange="spark")
    whole["arm"] += ARMS
    run = run_in_session(spark, whole, tmp_path)
    assert {cell.status for cell in run.cells} == {"ok"}
    assert not [check for check in run.checks if check.failed]
    for way in PLAIN_CONTROLS:
        names = {check.name for check in run.checks if check.arm == way and check.passed}
        assert {"rows_match_oracle", "arms_agree"} <= names


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"commit": [{"operation": "delete", "share": 0.1}]}, "cannot delete"),
        ({"commit": [{"share": 0.1, "deletes": 0.1}]}, "knows no marked deletes"),
        ({"table": {"merge_mode": "COMMIT_TIME_ORDERING"}}, "greatest ordering value"),
        ({"measure": {"exchange": "inprocess"}}, "needs Spark"),
    ],
)
def test_what_they_cannot_do_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    whole = content(source(tmp_path), ["arrow"], exchange="spark")
    whole["arm"] += ARMS
    for key, value in changed.items():
        whole[key] = {**whole[key], **value} if isinstance(value, dict) else value
    with pytest.raises(ScenarioError, match=said):
        parse_scenario(whole)
