"""Made-up rows in whole runs: every shape is written and read back right, and a skewed key is one key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from serde_lab.errors import ScenarioError
from serde_lab.lab.checks import cell_checks
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.lab.plan import cells_of_points, visits
from serde_lab.lab.run_settings import RunSettings, Silent
from serde_lab.lab.runner import _warm_up, chosen_points, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.scenario.identity import data_hash
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.scenario.model import Arm, Scenario

ROWS = 1200


def scenario(data: dict[str, Any], **more: Any) -> Scenario:
    return parse_scenario(
        {
            "name": "shapes_small",
            "title": "t",
            "question": "q",
            "data": {
                "source": "shapes",
                "rows": ROWS,
                "columns": 8,
                "input_partitions": 2,
                **data,
            },
            "setup": [{"operation": "bulk_insert", "share": 0.5}],
            "commit": [{"share": 0.5, "updates": 0.5}],
            "table": {"buckets": 2},
            "arm": [
                {"name": one, "strategy": one}
                for one in ("internal_row", "arrow", "pickle_columns", "avro")
            ],
            "measure": {"rounds": 1, "warmup": 0, "exchange": "inprocess"},
            **more,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        {"nesting": "structs", "nested": 0.4, "decimals": 0.2},
        {"nesting": "lists", "nested": 0.4, "keys": "uuid"},
        {"nesting": "maps", "nested": 0.4, "partitions": 3},
        {"columns": 12, "keys": "five", "nulls": 0.95, "string_bytes": 2000},
        {"columns": 16, "strings": 1.0, "skew": "bucket"},
        {"strings": 0.0, "skew": "key", "versions": 400},
    ],
    ids=lambda data: "-".join(map(str, data.values())),
)
def test_every_shape_is_written_right_by_every_strategy(
    data: dict[str, Any], tmp_path: Path
) -> None:
    settings = RunSettings(results=tmp_path / "results", cache=tmp_path / "cache")
    outcome = run_scenario(scenario(data), settings)
    run = load_run(outcome.path)
    assert outcome.exit_status == 0
    assert {cell.status for cell in run.cells} == {"ok"}
    assert not [check for check in run.checks if check.failed]


def test_one_key_has_as_many_versions_as_asked_for(tmp_path: Path) -> None:
    skewed = scenario({"skew": "key", "versions": 250, "partitions": 4})
    inputs = prepare_inputs(skewed, tmp_path)
    rows = str(inputs.commits[0].folder / "*.parquet")
    counts = duckdb.sql(
        f"SELECT id, part, count(*) n FROM '{rows}' GROUP BY ALL ORDER BY n DESC"
    ).fetchall()
    assert counts[0][2] == 250
    assert {n for _, _, n in counts[1:]} == {1}
    assert inputs.commits[0].different_keys == len(counts)
    stored = str(inputs.setups[0].folder / "*.parquet")
    found = duckdb.sql(f"SELECT count(*) FROM '{stored}' WHERE id = {counts[0][0]}").fetchall()
    assert found == [(1,)]
    # the versions differ in their time, so that one of them wins
    times = duckdb.sql(
        f"SELECT count(DISTINCT event_ts) FROM '{rows}' WHERE id = {counts[0][0]}"
    ).fetchall()
    assert times == [(250,)]


def test_batches_are_kept_by_what_decides_them(tmp_path: Path) -> None:
    first = prepare_inputs(scenario({}), tmp_path)
    assert prepare_inputs(scenario({}), tmp_path).reused
    other = prepare_inputs(scenario({"nulls": 0.5}), tmp_path)
    assert not other.reused
    assert other.checksums != first.checksums
    assert data_hash(scenario({"skew": "bucket"})) != data_hash(scenario({}))


def test_the_least_bytes_of_wide_rows_are_told_from_a_few_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its highest level zstd takes a second for each megabyte, and all arms wait for it."""
    wide = scenario({"rows": 20_000, "columns": 5, "strings": 1.0, "string_bytes": 1000})
    (commit,) = prepare_inputs(wide, tmp_path).commits
    assert (commit.arrow_bytes or 0) > 24 << 20
    compressed: list[pa.Table] = []

    def written(table: pa.Table) -> int:
        compressed.append(table)
        return 100 + 7 * len(table)

    monkeypatch.setattr(cell_checks, "_written", written)
    assert cell_checks._parquet_bytes(commit) == 7 * commit.rows
    most, least = (table.nbytes for table in compressed)
    assert least < 8 << 20 <= most < 12 << 20


SHAPES: dict[str, Any] = {
    "between": ["arrow"],
    "factor": [
        {"name": "width", "key": "data.columns", "values": [4, 8, 12, 16]},
        {
            "name": "partitions",
            "key": "data.partitions",
            "values": [1, 5],
            "also": {"table.buckets": [2, 1]},
        },
    ],
}


@pytest.mark.slow
def test_a_run_has_a_point_for_each_value_of_each_factor(tmp_path: Path) -> None:
    varied = scenario(
        {},
        shapes=SHAPES,
        arm=[{"name": one, "strategy": one} for one in ("internal_row", "arrow")],
        measure={"rounds": 2, "warmup": 0, "exchange": "inprocess"},
    )
    settings = RunSettings(results=tmp_path / "results", cache=tmp_path / "cache")
    outcome = run_scenario(varied, settings)
    assert outcome.exit_status == 0
    run = load_run(outcome.path)
    both = ["middle", "width-4", "width-16", "partitions-5"]
    assert {entry.arm for entry in run.header.arms} == {
        *(f"internal_row@{mark}" for mark in both),
        *(f"arrow@{mark}" for mark in (*both, "width-12")),
    }
    assert len(run.cells) == 2 * 9
    assert not [check for check in run.checks if check.failed]
    points = {(p["factor"], p["value"]): p for p in run.header.settings["points"]}
    # event_ts is a column, too
    assert points["", None]["values"] == 600 * 9
    assert points["width", 16]["values"] == 600 * 17
    assert points["width", 16]["bytes"] > 1.5 * points["", None]["bytes"]
    assert run.header.scenario_content["shapes"]["between"] == ["arrow"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"columns": 1}, "data.columns: found 1, expected a number from 2"),
        ({"columns": 5, "keys": "five"}, "data.columns: is 5, but key and partition take 5"),
        ({"strings": 0.6, "decimals": 0.5}, "data.strings: the shares of strings, decimals and"),
        ({"string_bytes": 1_000_000, "columns": 300}, "data.string_bytes: gives rows of about"),
        ({"nesting": "deep"}, "expected one of none, structs, lists, maps"),
        ({"skew": "bucket", "keys": "uuid"}, 'data.skew: "bucket" needs keys = "long"'),
        ({"skew": "key"}, "data.versions: is 10,000, but commit.1 has 600 rows only"),
        ({"versions": 10}, 'data.versions: has no effect without skew = "key"'),
        ({"ordering": "when"}, "data.ordering: the rows have no column 'when'"),
        ({"key": "id"}, "data.key: is an unknown key"),
        ({"rows": 0}, "data.rows: found 0, expected a number from 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_by_its_key(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(data)
    assert said in str(refused.value)


def test_buckets_that_a_hot_bucket_does_not_fit_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"but table\.buckets is 6"):
        scenario({"skew": "bucket"}, table={"buckets": 6})


def test_a_scenario_of_shapes_survives_being_written_down() -> None:
    one = scenario({"nesting": "maps", "keys": "uuid", "skew": "key", "versions": 100})
    assert parse_scenario(one.to_json()) == one


def test_only_the_first_point_warms_up_and_no_two_share_a_round() -> None:
    plans = cells_of_points(chosen_points(load_scenario("shapes"), ()))
    first, *others = plans
    assert [cell.warmup for cell in first].count(True) == 15
    assert not [cell for plan in others for cell in plan if cell.warmup]
    rounds = [{cell.round for cell in plan} for plan in plans]
    assert len(set().union(*rounds)) == sum(map(len, rounds))
    assert len({cell.name for plan in plans for cell in plan}) == sum(map(len, plans))


def test_the_rounds_of_the_middle_are_spread_over_the_other_points() -> None:
    points = chosen_points(load_scenario("shapes"), ())
    order = visits(points)
    middle = [cells for number, cells in order if number == 0]
    assert [{cell.warmup for cell in cells} for cells in middle] == [
        {True},
        {False},
        {False},
        {False},
    ]
    assert [len({cell.round for cell in cells}) for cells in middle] == [3, 1, 1, 1]
    # of 28 other points, a sixth, a half and five sixths come before
    assert [place for place, (number, _) in enumerate(order) if number == 0] == [0, 5, 16, 26]
    others = [number for number, _ in order if number]
    assert sorted(others) == [*range(1, 29)]
    assert others != sorted(others)
    assert order == visits(points), "a run that goes on has the order that it began with"
    found = [cell for _, cells in order for cell in cells]
    every = [cell for cells in cells_of_points(points) for cell in cells]
    assert Counter(found) == Counter(every)
    assert {cell.round for cell in found if cell.last and "middle" in cell.arm} == {5}


def test_without_shapes_each_point_is_visited_once() -> None:
    points = chosen_points(load_scenario("scale"), ())
    assert visits(points) == [*enumerate(cells_of_points(points))]


def test_a_new_session_of_a_later_point_is_warmed_up_and_nothing_of_it_is_kept() -> None:
    """A run that was stopped goes on at a point whose cells have no warm-up rounds."""
    measured: list[str] = []
    discarded: list[str] = []

    class Cell:
        def __init__(self, name: str) -> None:
            self.name = name

        def measure(self) -> None:
            measured.append(self.name)
            if "arrow" in self.name:
                raise ValueError("it raises again when it counts")

    class Cells:
        def cell(self, name: str, arm: Arm) -> Cell:
            return Cell(name)

        def discard(self, name: str) -> None:
            discarded.append(name)

    chosen = chosen_points(load_scenario("shapes", ["measure.warmup=2"]), ("arrow", "internal_row"))
    at, arms = next(one for one in chosen if one[0].mark == "width-300")
    point: Any = SimpleNamespace(scenario=at.scenario, here=list(arms))
    cells: Any = Cells()
    _warm_up(point, set(), cells, Silent())
    assert len(measured) == len(set(measured)) == 4
    assert discarded == measured
    _warm_up(point, {"arrow@width-300"}, cells, Silent())
    assert len(measured) == 6
    assert all("internal_row" in name for name in measured[4:])
