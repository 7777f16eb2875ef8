"""The runs behind what docs/hudi.md says of sharing a session: no ratio moves by more than 5 %."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

import pytest

from serde_lab.report.run.facts import read_facts
from serde_lab.runs.directory import load_run

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "results" / "reference" / "beside_hudi"
SHARED = ("20261122T100759Z", "20261122T145518Z")
ISOLATED = ("20261122T095349Z", "20261122T143517Z")


def times_faster(runs: tuple[str, ...], arm: str, peer: str) -> float:
    """The geometric mean over all commits of all measured rounds of these runs."""
    ratios = []
    for run in runs:
        arms = {facts.name: facts.rounds for facts in read_facts(load_run(RUNS / run)).arms}
        for number, ours in arms[arm].items():
            theirs = arms[peer][number]
            ratios += [
                other.metrics["seconds"] / one.metrics["seconds"]
                for one, other in zip(ours.commits, theirs.commits, strict=True)
            ]
    assert len(ratios) == 3 * 8  # commits of rounds
    return geometric_mean(ratios)


@pytest.mark.parametrize("arm", ["internal_row", "arrow"])
@pytest.mark.parametrize("peer", ["hudi_spark", "hudi_spark_tuned"])
def test_sharing_a_session_moves_no_ratio(arm: str, peer: str) -> None:
    shared, isolated = times_faster(SHARED, arm, peer), times_faster(ISOLATED, arm, peer)
    assert isolated / shared == pytest.approx(1, abs=0.05)
    said = " ".join((ROOT / "docs" / "hudi.md").read_text().split())
    assert f"{shared:.2f} and {isolated:.2f}" in said


def test_the_runs_differ_in_nothing_else() -> None:
    for run in (*SHARED, *ISOLATED):
        header = load_run(RUNS / run).header
        assert header.state == "complete"
        assert header.settings.get("isolate_peers", False) is (run in ISOLATED)
