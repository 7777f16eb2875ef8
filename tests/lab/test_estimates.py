"""How long a run takes: the estimate is compared with the real durations of the reference runs."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from serde_lab.lab import estimates
from serde_lab.lab.estimates import estimate_run
from serde_lab.lab.runner import chosen_points
from serde_lab.runs.directory import list_runs, load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import load_scenario, parse_scenario

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
NO_RUNS = Path(os.devnull)
FAR_OFF = {
    "codec": "its reference run is from a day when the machine was about half as fast as usual",
    "rfc84": "a single cell of each arm, on rows that fill the memory",
    "scale": "a few cells at each value, of which those of the last are the longest by far",
}
"""Scenarios whose estimate from the rows is no good, and why; a reference run tells theirs."""

SCENARIOS = sorted(folder.name for folder in REFERENCE.iterdir() if folder.name != "figures")


def newest(scenario: str) -> Run:
    """The newest reference run of the scenario whose arms are all in the scenario's file."""
    known = {arm.name for arm in load_scenario(scenario).arms}
    runs = [one for one in list_runs(REFERENCE) if one.scenario == scenario and one.header]
    return load_run([one.path for one in runs if known.issuperset(one.header.arms_of_scenario)][-1])


def real_s(run: Run) -> float:
    cells = Counter(cell.arm for cell in run.cells)
    return estimates._whole_cells(run).seconds(cells)


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in FAR_OFF])
def test_the_estimate_from_rows_is_near_what_reference_runs_took(
    scenario: str, tmp_path: Path
) -> None:
    run = newest(scenario)
    known = parse_scenario(run.header.scenario_content, scenario)
    points = chosen_points(known, tuple(run.header.arms_of_scenario))
    seconds, basis = estimate_run(points, NO_RUNS, tmp_path)
    assert basis == "estimated from the number of rows; no earlier run has them"
    assert 0.8 < seconds / real_s(run) < 1.3


@pytest.mark.parametrize("scenario", ["smoke", "upsert_lineitem"])
def test_a_reference_run_tells_how_long_its_scenario_takes(scenario: str, tmp_path: Path) -> None:
    points = chosen_points(load_scenario(scenario), ())
    # without the runs that this clone has made itself, of which a newer one would tell
    (tmp_path / "reference").symlink_to(REFERENCE)
    seconds, basis = estimate_run(points, tmp_path, tmp_path)
    assert basis == "as in an earlier run of this scenario"
    assert seconds == pytest.approx(real_s(newest(scenario)), rel=0.1)


def test_what_lies_between_cells_counts_and_a_night_before_a_resumption_does_not() -> None:
    run = newest("smoke")
    clock_s = sum(estimates._clock_s(cell) for cell in run.cells)
    assert real_s(run) > 3 * clock_s
    first, *others = run.cells
    two_days = {"2026-11-24": "2026-11-22"}
    assert first.started_at[:10] in two_days
    earlier = replace(first, started_at=two_days[first.started_at[:10]] + first.started_at[10:])
    resumed = replace(run, cells=(earlier, *others))
    assert real_s(resumed) < real_s(run) + estimates._LONGEST_REST_S


def test_shapes_end_within_the_hour() -> None:
    points = chosen_points(load_scenario("shapes"), ())
    seconds, _ = estimate_run(points, NO_RUNS, NO_RUNS)
    assert seconds < 3600
