"""Arms that merge in their own way: each on its own table, judged by its own answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import parse_scenario
from tests.lab.small_scenario import content, source

pytestmark = pytest.mark.slow

BRIDGE = "org.apache.hudi.common.model.HoodieAvroRecordMerger"
ARMS = [
    {"name": "event", "strategy": "arrow"},
    {
        "name": "commit",
        "strategy": "arrow",
        "merging": {"merge_mode": "COMMIT_TIME_ORDERING"},
        "changes": "merging",
    },
    {"name": "gaps", "strategy": "internal_row", "merging": {"partial_update": "IGNORE_DEFAULTS"}},
    {"name": "payload", "strategy": "internal_row", "merging": {"merger_classes": [BRIDGE]}},
    {"name": "pickled", "strategy": "pickle"},
]


def test_every_arm_ends_with_what_its_own_merging_gives(tmp_path: Path) -> None:
    scenario = parse_scenario(content(source(tmp_path), ARMS), "small.toml")
    kept = tmp_path / "kept"
    settings = RunSettings(
        results=tmp_path / "results", cache=tmp_path / "cache", work=tmp_path, keep_tables=kept
    )
    outcome = run_scenario(scenario, settings)
    run = load_run(outcome.path)
    assert [check for check in run.checks if not check.passed] == []
    assert outcome.exit_status == 0
    agree = {c.arm: c.detail for c in run.checks if c.name == "arms_agree"}
    assert agree.keys() == {"event", "pickled"}
    phases = {s.phase for cell in run.cells if cell.arm == "payload" for s in cell.samples}
    assert "reduce.payload" in phases
    for arm, says in {
        "commit": "hoodie.record.merge.mode=COMMIT_TIME_ORDERING",
        "gaps": "hoodie.table.partial.update.mode=IGNORE_DEFAULTS",
    }.items():
        assert says in (kept / arm / ".hoodie/hoodie.properties").read_text()


def test_what_an_arm_may_not_ask_for(tmp_path: Path) -> None:
    arms = [*ARMS, {"name": "out", "control": "exchange_only", "merging": {"delete_field": "x"}}]
    with pytest.raises(
        ScenarioError, match=r"arm.out.merging: a control always merges as \[table\] says"
    ):
        parse_scenario(content(source(tmp_path), arms), "small.toml")
