"""The runs behind what docs/hudi.md says of sharing a session: eight rounds show no effect on any ratio."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from serde_lab.analysis.ratios import outward
from serde_lab.analysis.run_values import run_values
from serde_lab.runs.directory import load_run

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "results" / "reference" / "beside_hudi"
SHARED = ("20261122T100759Z", "20261122T145518Z")
ISOLATED = ("20261122T095349Z", "20261122T143517Z")


def log_ratios(runs: tuple[str, ...], arm: str, peer: str) -> list[float]:
    """Of each measured round, the mean logarithm of the peer's seconds over the arm's, commit by commit."""
    found = []
    for run in runs:
        arms = {facts.name: facts.rounds for facts in run_values(load_run(RUNS / run)).arms}
        for number, ours in arms[arm].items():
            pairs = zip(ours.commits, arms[peer][number].commits, strict=True)
            logs = [
                np.log(other.metrics["seconds"] / one.metrics["seconds"]) for one, other in pairs
            ]
            assert len(logs) == 3
            found.append(float(np.mean(logs)))
    assert len(found) == 8
    return found


@pytest.mark.parametrize("arm", ["internal_row", "arrow"])
@pytest.mark.parametrize("peer", ["hudi_spark", "hudi_spark_tuned"])
def test_no_effect_of_sharing_a_session_is_seen(arm: str, peer: str) -> None:
    shared, isolated = log_ratios(SHARED, arm, peer), log_ratios(ISOLATED, arm, peer)
    effect = stats.ttest_ind(isolated, shared, equal_var=False).confidence_interval(0.95)
    low, high = np.exp(effect.low), np.exp(effect.high)
    assert low < 1 < high
    means = (np.exp(np.mean(shared)), np.exp(np.mean(isolated)))
    figures = (*means, *outward(float(low), float(high), 2))
    row = "| **{}** | {} | {:.2f} | {:.2f} | {:.2f} to {:.2f} |".format(arm, peer, *figures)
    assert row in (ROOT / "docs" / "hudi.md").read_text()


def test_the_runs_differ_in_nothing_else() -> None:
    for run in (*SHARED, *ISOLATED):
        header = load_run(RUNS / run).header
        assert header.state == "complete"
        assert header.settings.get("isolate_peers", False) is (run in ISOLATED)
