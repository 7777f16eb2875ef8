"""The same scenario moves the same bytes: run again, on another number of cores, with or without Spark.

One input serves all of it, with nested types and column names that other languages reserve. A strategy
of another distribution is an arm like any other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import SchemaError
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import load_scenario, parse_scenario
from tests.lab.small_scenario import content, rows, source, toml
from tests.plugin_example.installation import install

REPOSITORY = Path(__file__).parents[2]
# lists with null elements, which Apache Hudi's older record type cannot write
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning"),
]

EXACT = ("frame_bytes", "frames", "rows")
ARMS: list[Any] = [
    "pickle",
    {"name": "avro", "strategy": "avro", "options": {"execution": "row"}},
    {"name": "avro_batch", "strategy": "avro", "options": {"execution": "batch"}},
    {"name": "row", "strategy": "internal_row", "options": {"execution": "row"}},
    {"name": "batch", "strategy": "internal_row", "options": {"execution": "batch"}},
    {"name": "sealed", "strategy": "internal_row", "options": {"integrity": "crc32c"}},
    {"name": "many", "strategy": "arrow", "options": {"rows_per_frame": 70}},
    {"name": "whole", "strategy": "arrow", "options": {"rows_per_frame": 0}},
]
ON_SPARK = ("pickle", "avro_batch", "batch", "many")
"""One arm a strategy: what the others add was compared without Spark."""
NAMES = [arm if isinstance(arm, str) else arm["name"] for arm in ARMS]


def awkward(count: int = 600) -> pa.Table:
    some = range(count)
    return pa.table(
        {
            "id": pa.array(some, pa.int64()),
            "select": [f"käse {i}" for i in some],
            "ID2": pa.array([None if i % 4 == 0 else i % 100 for i in some], pa.int8()),
            "class": pa.array([Decimal(i) / 100 for i in some], pa.decimal128(38, 2)),
            "_view": pa.array([None if i % 3 == 0 else "x" * (i % 40) for i in some], pa.string_view()),
            "day": [date(2020, 1, 1) + timedelta(days=i) for i in some],
            "at": pa.array(
                [datetime(2020, 1, 1) + timedelta(hours=i) for i in some],
                pa.timestamp("us", "Europe/Berlin"),
            ),
            "tags": pa.array(
                [None if i % 5 == 0 else [None, f"t{i}"][: i % 3] for i in some],
                pa.list_(pa.string()),
            ),
            "deep": pa.array(
                [{"a": i, "b": [{"c": i / 3}] * (i % 3)} for i in some],
                pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.float64())])))]),
            ),
            "attributes": pa.array(
                [[(f"k{j}", j) for j in range(i % 3)] for i in some],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A scenario, and the example plug-in where this process and others find it."""
    tmp = tmp_path_factory.mktemp("repeated")
    site = str(install(tmp / "site"))
    document = content(source(tmp / "own", awkward()), ARMS, table={"buckets": 3})
    (tmp / "small.toml").write_text(toml(document))
    plain = source(tmp / "plain", rows(400))
    (tmp / "plug-in.toml").write_text(toml(content(plain, ["arrow", "json_lines"])))
    sys.path.insert(0, site)
    yield tmp
    sys.path.remove(site)
    sys.modules.pop("json_lines", None)


def in_process(folder: Path, results: str, *overrides: str, scenario: str = "small.toml") -> Run:
    asked = load_scenario(str(folder / scenario), overrides=overrides)
    settings = RunSettings(
        folder / results, folder / "cache", keep_tables=folder / "kept" / results
    )
    done = run_scenario(asked, settings)
    assert done.exit_status == 0, [c.error for c in load_run(done.path).cells]
    return load_run(done.path)


CALLS = """
import json, sys
import tests.short_runs
from serde_lab.cli.app import main
sys.exit(next(filter(None, map(main, json.loads(sys.argv[1]))), 0))
"""
"""Runs one command line after the other, up to the first that fails."""


@pytest.fixture(scope="module")
def spark_runs(folder: Path) -> Mapping[str, Run]:
    """Runs on Spark by name, each in a session of its own, one after the other in a process of their own."""
    chosen = [word for arm in ON_SPARK for word in ("--strategy", arm)]
    asked = {
        "cores-1": ["small.toml", "--set", "measure.cores=1", *chosen],
        "cores-4": ["small.toml", "--set", "measure.cores=4", *chosen],
        "plug-in": ["plug-in.toml", "--set", "measure.cores=2"],
    }
    common = ["--cache", "cache", "--set", "measure.exchange=spark", "--results"]
    calls = [["run", *words, *common, name] for name, words in asked.items()]
    path = os.pathsep.join([str(folder / "site"), str(REPOSITORY)])
    done = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(calls)],
        cwd=folder, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: load_run(next((folder / name / "small").iterdir())) for name in asked}


def exact(run: Run) -> dict[tuple[str, str, int | None], float]:
    """What must be equal, by arm, metric and commit."""
    return {
        (cell.arm, sample.metric, sample.commit): sample.value
        for cell in run.cells
        for sample in cell.samples
        if sample.metric in EXACT
    }


@pytest.fixture(scope="module")
def first(folder: Path) -> Run:
    return in_process(folder, "first")


def all_passed(run: Run, arm: str) -> bool:
    checks = {check.name: check.passed for check in run.checks if check.arm == arm}
    named = {"frames_stand_alone", "wire_is_the_strategys", "rows_match_oracle", "arms_agree"}
    return named <= checks.keys() and all(checks.values())


def test_every_arm_writes_the_users_rows(first: Run) -> None:
    assert [arm for arm in NAMES if not all_passed(first, arm)] == []
    assert {cell.arm for cell in first.cells} == set(NAMES)


@pytest.mark.parametrize(
    "run", [pytest.param("spark", marks=pytest.mark.spark), pytest.param("inprocess")]
)
def test_a_plug_in_is_an_arm_like_any_other(
    run: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    scenario = "plug-in.toml"
    found = (
        request.getfixturevalue("spark_runs")["plug-in"]
        if run == "spark"
        else in_process(folder, "plugged", scenario=scenario)
    )
    assert all_passed(found, "json_lines")
    (entry,) = [entry for entry in found.header.arms if entry.arm == "json_lines"]
    assert entry.strategy == "json_lines"
    assert entry.fairness is not None
    assert "JSON" in entry.fairness["trust"]


def test_a_type_that_a_plug_in_refuses_is_named_before_anything_runs(folder: Path) -> None:
    document = content(folder / "own" / "rows.parquet", ["arrow", "json_lines"])
    asked = parse_scenario(document)
    with pytest.raises(SchemaError, match=r"arm 'json_lines': column 'class' .*decimal128"):
        run_scenario(asked, RunSettings(folder / "refused", folder / "cache"))
    assert not (folder / "refused").exists()
    only = RunSettings(folder / "chosen", folder / "cache", arms=("arrow",))
    assert run_scenario(asked, only).exit_status == 0


def test_the_kept_tables_hold_the_users_columns(first: Run, folder: Path) -> None:
    names = awkward(1).schema.names
    for arm in NAMES:
        file = next((folder / "kept" / "first" / arm).glob("*.parquet"))
        assert pq.read_schema(file).names[5:] == [*names, "event_ts"]


def test_a_second_run_moves_the_same_bytes(first: Run, folder: Path) -> None:
    second = in_process(folder, "second")
    assert exact(second) == exact(first)
    assert len(exact(first)) == len(EXACT) * len(ARMS)
    assert second.header.data_checksums == first.header.data_checksums
    files = [sorted(p.name for p in (folder / "kept" / r / "many").glob("*.parquet"))
             for r in ("first", "second")]  # fmt: skip
    ids = [[name.split("_")[0] for name in names] for names in files]
    assert ids[0] == ids[1]


def test_executions_move_the_same_bytes(first: Run) -> None:
    found = exact(first)
    for one, other in (("row", "batch"), ("avro", "avro_batch")):
        for metric in EXACT:
            assert found[one, metric, 1] == found[other, metric, 1]


def test_another_seed_of_the_data_moves_others(first: Run, folder: Path) -> None:
    assert exact(in_process(folder, "seed", "data.seed=2")) != exact(first)


@pytest.mark.spark
@pytest.mark.parametrize("cores", [1, 4])
def test_spark_moves_the_same_bytes_on_any_number_of_cores(
    cores: int, first: Run, spark_runs: Mapping[str, Run]
) -> None:
    expected = {key: value for key, value in exact(first).items() if key[0] in ON_SPARK}
    assert len(expected) == len(EXACT) * len(ON_SPARK)
    assert exact(spark_runs[f"cores-{cores}"]) == expected
