"""Runs of scenarios with several tables: commits in turn, checks of all, answers of queries."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.lab.cells.cell import CellResult
from serde_lab.lab.cells.dataset_cells import DatasetCells, as_one_cell
from serde_lab.lab.cells.table_cells import InProcess
from serde_lab.lab.checks.dataset_checks import TOLERANCE, DatasetChecks, QueryAnswers
from serde_lab.lab.estimates import disk_need, estimate_run
from serde_lab.lab.run_points import planned, prepared
from serde_lab.lab.run_settings import RunSettings, Silent
from serde_lab.lab.runner import run_scenario
from serde_lab.measure.metrics import Sample
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import load_scenario, parse_scenario, sweep_points
from serde_lab.verify.contents import TableRows
from tests.lab.small_scenario import content, run_in_session, source
from tpch import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MONTHS = {
    "timestamp.type": "SCALAR",
    "timestamp.scalar.time.unit": "DAYS",
    "output.dateformat": "yyyy-MM",
}


def two_tables(folder: Path, arms: tuple[Any, ...] = ("arrow", "pickle")) -> dict[str, Any]:
    """The small scenario with a second table, of two key columns and folders named by months."""
    document = content(source(folder), arms)
    days = pa.table(
        {
            "id": range(900),
            "line": [n % 3 for n in range(900)],
            "day": pa.array([n % 70 for n in range(900)], pa.int32()),
        }
    )
    pq.write_table(days, folder / "days.parquet")
    own = {"path": str(folder / "days.parquet"), "key": ["id", "line"], "partition": "day"}
    document["dataset"] = [
        {
            "name": "days",
            "data": {"source": "parquet", **own},
            "commit": [{"operation": "insert", "share": 0.6}, {"share": 0.3, "updates": 0.5}],
            "table": {"time_folders": MONTHS, "buckets": 1},
        }
    ]
    return document


@pytest.mark.filterwarnings("ignore:field day.TIMESTAMP:serde_lab.errors.PortabilityWarning")
def test_every_arm_writes_all_tables_in_turn(tmp_path: Path) -> None:
    settings = RunSettings(
        tmp_path / "results", tmp_path / "cache", tmp_path, keep_tables=tmp_path / "kept"
    )
    scenario = parse_scenario(two_tables(tmp_path))
    outcome = run_scenario(scenario, settings)
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    assert run.header.settings["tables"] == {"1": "data", "2": "days", "3": "days"}
    assert run.header.settings["rows"] == {"1": 1000, "2": 540, "3": 270}
    assert {"commit-1", "days/commit-1", "days/commit-2"} <= set(run.header.data_checksums)
    for cell in run.cells:
        by_commit = {
            n: {s.metric: s.value for s in cell.samples if s.commit == n} for n in (1, 2, 3)
        }
        whole = {s.metric: s.value for s in cell.samples if s.commit is None}
        assert whole["seconds"] == pytest.approx(sum(of["seconds"] for of in by_commit.values()))
        assert [of["rows"] for of in by_commit.values()] == [1000, 540, 270]
        sizes = [of["table_bytes"] for of in by_commit.values()]
        assert sizes[0] < sizes[1]  # of all tables written so far
        assert [of.get("hops") for of in by_commit.values()] == [1, None, None]
    (agree,) = {check.detail for check in run.checks if check.name == "arms_agree"}
    assert agree == "equal to 1 other arm, 2,150 rows"
    for arm in ("arrow", "pickle"):
        assert (tmp_path / "kept" / arm / "data" / ".hoodie").is_dir()
        months = {path.name for path in (tmp_path / "kept" / arm / "days").iterdir()}
        assert {"1970-01", "1970-02", "1970-03"} <= months
    # a second run may replace what the first has kept
    assert run_scenario(scenario, settings).exit_status == 0


@pytest.mark.filterwarnings("ignore:field day.TIMESTAMP:serde_lab.errors.PortabilityWarning")
def test_the_floor_writes_all_tables_too(tmp_path: Path) -> None:
    floor = {"name": "floor", "control": "work_floor"}
    scenario = parse_scenario(two_tables(tmp_path, ("arrow", floor)))
    outcome = run_scenario(
        scenario, RunSettings(tmp_path / "results", tmp_path / "cache", tmp_path)
    )
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    (agree,) = {check.detail for check in run.checks if check.name == "arms_agree"}
    assert agree == "equal to 1 other arm, 2,150 rows"


@pytest.mark.filterwarnings("ignore:field day.TIMESTAMP:serde_lab.errors.PortabilityWarning")
def test_a_wrong_table_is_named(tmp_path: Path) -> None:
    scenario = parse_scenario(two_tables(tmp_path, ("arrow",)))
    settings = RunSettings(tmp_path / "results", tmp_path / "cache", tmp_path)
    (point,) = sweep_points(scenario)
    made = prepared(planned(point, scenario.arms, settings, False), settings, Silent())
    cells = DatasetCells(made.tables, tmp_path / "work", InProcess())
    cells.set_up()
    result = cells.cell("r00-arrow", scenario.arms[0]).measure()
    checks = DatasetChecks(made.tables, tmp_path / "work")
    right = checks.judge(scenario.arms[0], result)
    assert right.passed
    days = result.parts["days"]
    assert days.table is not None
    # one of the last commit, which readers look into
    victim = max(days.table.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    victim.write_bytes(b"")
    wrong = checks.judge(scenario.arms[0], result)
    (rows,) = [check for check in wrong.results if check.name == "rows_match_oracle"]
    assert rows.failed
    # an independent reader, although it takes the stated day:TIMESTAMP for a column
    assert rows.detail.startswith("days: hudi-rs cannot read")
    assert "data: " not in rows.detail
    assert wrong.fingerprint != right.fingerprint
    cells.discard("r00-arrow")
    assert not days.table.exists()


def test_samples_of_several_tables_are_those_of_one_cell() -> None:
    def part(*values: float) -> CellResult:
        commits = [Sample("seconds", value, n) for n, value in enumerate(values, 1)]
        sizes = [Sample("table_bytes", 10 * value, n) for n, value in enumerate(values, 1)]
        whole = [Sample("seconds", sum(values)), Sample("slots", 2), Sample("hops", 1, 1)]
        return CellResult((*commits, *sizes, *whole), None)

    found = list(as_one_cell([part(1, 2), part(4)]))
    assert [(s.value, s.commit) for s in found if s.metric == "seconds"] == [
        (1, 1), (2, 2), (4, 3), (7, None),
    ]  # fmt: skip
    assert [s.value for s in found if s.metric == "table_bytes"] == [10, 20, 60]
    assert [(s.value, s.commit) for s in found if s.metric == "hops"] == [(1, 1)]
    assert [s.value for s in found if s.metric == "slots"] == [2]


def test_an_answer_that_is_not_duckdbs_is_a_wrong_answer(tmp_path: Path) -> None:
    price, share = pa.decimal128(15, 2), [Decimal("0.06"), Decimal("0.07"), Decimal("0.08")]
    lineitem = pa.table(
        {
            "l_extendedprice": pa.array([Decimal("100.10"), Decimal("200"), Decimal("300")], price),
            "l_discount": pa.array(share, price),
            "l_quantity": pa.array([Decimal(1)] * 3, price),
            "l_tax": pa.array([Decimal("0.02")] * 3, price),
            "l_returnflag": ["A"] * 3,
            "l_linestatus": ["F"] * 3,
            "l_shipdate": pa.array([8800] * 3, pa.int32()).cast(pa.date32()),
        }
    )
    rows = {"lineitem": TableRows(lineitem)}
    judge = QueryAnswers(tmp_path / "queries")
    exact = Decimal("20.0060")

    def passed(query: str, answer: tuple[Any, ...]) -> tuple[bool | None, str]:
        (found,) = QueryAnswers(tmp_path / "one").judge({query: answer}, rows)
        return found.passed, found.detail

    (right,) = judge.judge({"q6": ((exact,),)}, rows)
    assert (right.name, right.passed) == ("answer_of_q6", True)
    assert passed("q6", ((exact + Decimal("0.0001"),),)) == (
        False,
        "row 1, column 1: Spark answers 20.0061, DuckDB 20.0060",
    )
    assert passed("q6", ()) == (False, "Spark answers 0 rows, DuckDB 1")
    assert passed("q6", ((None,),))[0] is False
    sums = ("A", "F", 3, Decimal("600.10"), Decimal("556.094"), Decimal("567.215880"), 1)
    averages = (Decimal("200.033333"), Decimal("0.070000"), 3)
    assert passed("q1", ((*sums, *averages),)) == (
        True,
        f"1 row as DuckDB answers; 3 averages or quotients equal to {TOLERANCE:g}",
    )
    off = (Decimal("200.033336"), *averages[1:])
    assert passed("q1", ((*sums, *off),))[0] is False


@pytest.mark.spark
def test_all_of_tpch_is_written_and_asked(spark: SparkSession, tmp_path: Path) -> None:
    changes = [
        "data.scale_factor=0.01", "data.partition=[]", "table.time_folders={}",
        "dataset.orders.data.partition=[]", "dataset.orders.table.time_folders={}",
        "dataset.customer.data.partition=[]", "data.input_partitions=1", "table.buckets=1",
        "measure.rounds=1", "measure.warmup=0",
    ]  # fmt: skip
    document = load_scenario("tpch_all", changes).to_json()
    (arrow,) = (arm for arm in document["arm"] if arm["name"] == "arrow")
    del arrow["changes"]
    document["arm"] = [arrow]
    document["reference"] = "arrow"
    run = run_in_session(spark, document, tmp_path)
    passed = {check.name for check in run.checks if check.passed}
    assert {f"answer_of_{query}" for query in QUERIES} <= passed
    (cell,) = run.cells
    timed = {s.metric: s.value for s in cell.samples if s.commit is None}
    for query in QUERIES:
        assert timed[f"spark.query_{query}_s"] > 0
    assert timed["spark.open_tables_s"] > 0
    (rows,) = [check for check in run.checks if check.name == "rows_match_oracle"]
    assert [part.split(":")[0] for part in rows.detail.split("; ")] == [
        "lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region",
    ]  # fmt: skip


def test_the_estimate_counts_every_table_and_query(tmp_path: Path) -> None:
    one = load_scenario("tpch_all", ["queries=[]", "dataset=[]"])
    several, asked = load_scenario("tpch_all", ["queries=[]"]), load_scenario("tpch_all")
    seconds = [
        estimate_run([(point, one.arms) for point in sweep_points(scenario)], tmp_path, tmp_path)[0]
        for scenario in (one, several, asked)
    ]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 3
    assert seconds[2] < 3600
    sizes = [disk_need([(s, s.arms)], tmp_path / "cache").work_bytes for s in (one, several)]
    assert sizes[0] < sizes[1] < 2 * sizes[0]
