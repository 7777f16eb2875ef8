"""Arms that travel in their own way: the same upsert through every topology, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.analysis.cell_values import cell_values
from serde_lab.errors import ScenarioError
from serde_lab.lab.plan import diagrams
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import TopologyName
from tests.lab.small_scenario import content, source

pytestmark = pytest.mark.slow

HOPS = {
    "bucket": 1,
    "state": 2,
    "bloom": 2,
    "legacy": 2,
    "step1": 1,
    "step2": 2,
    "step3": 2,
    "compatible": 3,
}


def arm(name: str, strategy: str = "arrow", **topology: Any) -> dict[str, Any]:
    return {"name": name, "strategy": strategy, "topology": {"name": name, **topology}}


def settings(tmp_path: Path) -> RunSettings:
    return RunSettings(
        results=tmp_path / "results",
        cache=tmp_path / "cache",
        work=tmp_path,
        keep_tables=tmp_path / "kept",
    )


def test_every_topology_is_measured_and_right(tmp_path: Path) -> None:
    arms = [arm(name) for name in HOPS if name != "step3"]
    arms.append(arm("step3", batch_mb=0.01, buffer_mb=0.02))
    outcome = run_scenario(parse_scenario(content(source(tmp_path), arms)), settings(tmp_path))
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    values = {cell.arm: cell_values(cell) for cell in run.cells}
    assert {name: found.metrics["hops"] for name, found in values.items()} == HOPS
    # a batch of 1,000 rows, all of which each hop carries, in smaller frames where there are more tasks
    one = values["bucket"].metrics["frame_bytes"]
    for name, hops in HOPS.items():
        found = values[name].metrics
        assert found["rows"] == 1000
        assert 0.9 * hops * one < found["frame_bytes"] < 1.6 * hops * one
        identity = sum(time.wall_s for time in values[name].phases.values())
        assert identity == pytest.approx(found["seconds"], rel=0.02, abs=0.02)
    state = values["state"]
    assert state.metrics["index_records"] == 1000
    assert state.metrics["index_cpu_s"] > 0
    assert {"bootstrap.index_encode", "assign.index_decode"} <= state.phases.keys()
    assert {"map.encode", "assign.decode", "assign.encode", "reduce.decode"} <= state.phases.keys()
    assert "index_records" not in values["bloom"].metrics
    in_batches = {name for name in HOPS if "mini_batches" in values[name].metrics}
    assert in_batches == {"step3"}
    assert values["step3"].metrics["mini_batches"] > values["step3"].metrics["files"]
    assert (
        state.metrics["hop.map.frames"] + state.metrics["hop.assign.frames"]
        == (state.metrics["frames"])
    )
    kept = (tmp_path / "kept" / "bloom" / ".hoodie/hoodie.properties").read_text()
    assert "serde_lab.index.type=BLOOM" in kept


def test_a_ring_time_folders_and_the_nested_row_are_measured_and_right(tmp_path: Path) -> None:
    days = {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS"}
    rows = pa.table({"id": range(600), "day": [n % 70 for n in range(600)]})
    nested = {
        **arm("consistent", "internal_row"),
        "name": "nested",
        "options": {"layout": "nested"},
    }
    document = content(
        source(tmp_path, rows),
        [arm("consistent"), nested, arm("bucket")],
        data={"partition": "day"},
        table={"time_folders": {**days, "output.dateformat": "yyyy-MM"}},
    )
    document["setup"] = [{"operation": "insert", "share": 0.5}]
    document["commit"].append({"operation": "delete", "share": 0.1})
    outcome = run_scenario(parse_scenario(document), settings(tmp_path))
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    for name in ("consistent", "nested"):
        kept = tmp_path / "kept" / name
        assert {"1970-01", "1970-02", "1970-03"} <= {path.name for path in kept.iterdir()}
        properties = (kept / ".hoodie/hoodie.properties").read_text()
        assert "serde_lab.index.bucket.engine=CONSISTENT_HASHING" in properties


def test_inserts_are_measured_where_no_record_is_made(tmp_path: Path) -> None:
    arms = [
        arm("state"),
        arm("append"),
        {"name": "sorted", "strategy": "arrow", "topology": {"name": "bulk", "sort": "global"}},
    ]
    document = content(source(tmp_path), arms)
    document["commit"] = [{"operation": "insert", "share": 0.3}]
    outcome = run_scenario(parse_scenario(document), settings(tmp_path))
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]
    values = {cell.arm: cell_values(cell) for cell in run.cells}
    assert [values[name].metrics["hops"] for name in ("state", "append", "sorted")] == [2, 0, 0]
    for name in ("append", "sorted"):
        assert values[name].metrics["serde_cpu_s"] == 0
        assert "frames" not in values[name].metrics


def test_what_is_overwritten_is_measured_and_right(tmp_path: Path) -> None:
    document = content(source(tmp_path), [arm("bucket"), arm("state", "internal_row")])
    document["commit"] = [
        {"operation": "insert_overwrite", "share": 0.3, "updates": 0.5, "duplicates": 0.1},
        {"share": 0.2, "updates": 0.5},
        {"operation": "insert_overwrite_table", "share": 0.1},
    ]
    outcome = run_scenario(parse_scenario(document), settings(tmp_path))
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [check for check in run.checks if not check.passed]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arm": [{**arm("append")}]}, "which only takes insert"),
        (
            {"arm": [{"name": "x", "control": "exchange_only", "topology": {"name": "state"}}]},
            "exchange_only has no topology of its own$",
        ),
        (
            {"arm": [{"name": "x", "peer": "hudi_spark", "topology": {"name": "state"}}]},
            "hudi_spark has no topology of its own, only `tasks`",
        ),
        ({"arm": [arm("state", sort="global")]}, "is for topology 'bulk', but the name is 'state'"),
        ({"arm": [arm("state", batch_mb=1.0)]}, "which are for 'step3', not 'state'"),
        (
            {"table": {"index": "BLOOM"}, "arm": [{"name": "a", "strategy": "arrow"}]},
            "which needs BUCKET",
        ),
        (
            {"table": {"index": "SIMPLE"}, "topology": {"name": "consistent"}},
            "topology.name is 'consistent', which needs BUCKET",
        ),
        (
            {"arm": [arm("consistent")]},
            "setup.1.operation: a bulk_insert creates or removes file groups, and consistent hashing",
        ),
    ],
)
def test_what_a_scenario_may_not_combine(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse_scenario({**content(source(tmp_path)), **changes})


def test_every_topology_of_the_model_can_be_drawn(tmp_path: Path) -> None:
    names = [*HOPS, "consistent"]
    document = content(source(tmp_path), [arm(name) for name in names])
    document["setup"] = [{"operation": "insert", "share": 0.5}]
    drawn = diagrams(*_with_arms(document))
    assert [text.partition(":")[0] for text in drawn] == names
    assert {*names, "bulk", "append"} == set(TopologyName.__args__)  # type: ignore[attr-defined]


def _with_arms(document: dict[str, Any]) -> Any:
    scenario = parse_scenario(document)
    return scenario, scenario.arms
