"""One run along a number of its scenario: cells, checks, growth, resume; and RFC-84's workload, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.cli.run_table import report_tables
from serde_lab.errors import SetupError
from serde_lab.lab import estimates
from serde_lab.lab.estimates import check_disk, disk_need
from serde_lab.lab.run_settings import Silent
from serde_lab.lab.runner import RunSettings, resumed, run_scenario
from serde_lab.report.render import render_run
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import load_scenario, parse_scenario, sweep_points
from serde_lab.scenario.model import Scenario
from tests.lab.small_scenario import NAME, content, source

pytestmark = pytest.mark.slow

VALUES = [100, 200, 400, 800]


def swept(tmp: Path, **measure: Any) -> Scenario:
    document = content(source(tmp / "own"), ("arrow", "internal_row"), **measure)
    return parse_scenario(
        {
            **document,
            "setup": [],
            "commit": [{"rows": 100}],
            "sweep": {"key": "commit.1.rows", "values": VALUES},
        }
    )


def settings(tmp: Path, **more: Any) -> RunSettings:
    return RunSettings(results=tmp / "results", cache=tmp / "cache", work=tmp / "work", **more)


class _Stops(Silent):
    """ctrl-C while a cell of the third value ends."""

    ended = 0

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        self.ended += 1
        if self.ended == 5:
            raise KeyboardInterrupt


def test_a_sweep_is_one_run_that_can_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_scenario(swept(tmp_path), settings(tmp_path), _Stops())
    (path,) = (tmp_path / "results" / NAME).iterdir()
    assert len(load_run(path).cells) == 5
    outcome = run_scenario(resumed(path), settings(tmp_path), resume=path)
    assert outcome.exit_status == 0
    run = load_run(path)
    by_arm = [f"{arm}@{value}" for arm in ("arrow", "internal_row") for value in VALUES]
    assert [entry.arm for entry in run.header.arms] == by_arm
    assert sorted(cell.arm for cell in run.cells) == sorted(by_arm)
    assert {cell.round for cell in run.cells} == {0, 1, 2, 3}
    assert {one.round for one in run.calibrations} == {0, 1, 2, 3}
    assert {c.name for c in run.checks if c.arm == "arrow@800"} >= {
        "rows_match_oracle",
        "arms_agree",
    }
    assert not list((tmp_path / "work").iterdir())

    summary = summarise(run)
    assert [arm["rows"] for arm in summary["arms"]] == VALUES * 2
    assert [one["arm"] for one in summary["growth"]] == ["arrow", "internal_row"]
    points = summary["growth"][1]["points"]
    assert [(point["value"], point["rows"]) for point in points] == [(v, v) for v in VALUES]
    assert [table.name for table in report_tables(run)] == ["growth"]
    page = tmp_path / "page.md"
    render_run(path, page, "md")
    assert "## How cost grows" in page.read_text()
    assert "commit.1.rows" in page.read_text()
    assert "changes from arm to arm" not in page.read_text()


def test_only_the_chosen_arms_are_swept(tmp_path: Path) -> None:
    outcome = run_scenario(swept(tmp_path), settings(tmp_path, arms=("internal_row",)))
    entries = load_run(outcome.path).header.arms
    assert [(e.arm, e.swept) for e in entries] == [
        (f"internal_row@{value}", {"arm": "internal_row", "value": value}) for value in VALUES
    ]


def test_rfc84_small(tmp_path: Path) -> None:
    """Its rows share keys, the oracle agrees, and the run says how many and beside what."""
    small = ["data.scale_factor=0.001", "data.input_partitions=2", "measure.exchange=inprocess"]
    said: list[str] = []

    class Hears(Silent):
        def message(self, text: str) -> None:
            said.append(text)

    outcome = run_scenario(load_scenario("rfc84", small), settings(tmp_path), Hears())
    assert outcome.exit_status == 0
    run = load_run(outcome.path)
    rows = run.header.settings["rows"]["1"]
    keys = run.header.settings["different_keys"]["1"]
    assert 0.3 < keys / rows < 0.36
    assert any(f"{rows:,} rows, {keys:,} different keys" in text for text in said)
    found = next(c for c in run.checks if c.name == "no_duplicate_keys")
    assert found.detail == f"{keys:,} distinct keys"
    summary = summarise(run)
    assert summary["rfc84"]["samples"] == "a single sample"
    assert summary["rfc84"]["different_keys"] == {"1": keys}
    (table,) = [table for table in report_tables(run) if "RFC-84" in table.caption]
    prototype = ["−79.9 %", "−95.8 %", "−29.9 %", "−31.1 %"]
    # two pairs of arms, row by row and by column, and one with each other index, which nobody published
    assert [row[-2].text for row in table.rows] == [*prototype * 2, *["nothing"] * 8]
    assert [row[1].text for row in table.rows[8::4]] == [
        "by column, consistent hashing",
        "by column, Flink's state",
    ]
    render_run(outcome.path, tmp_path / "page.md", "md")
    assert f"{keys:,} different keys; a single sample" in (tmp_path / "page.md").read_text()


def test_a_run_that_would_fill_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [(p.scenario, p.scenario.arms) for p in sweep_points(load_scenario("rfc84"))]
    need = disk_need(asked, tmp_path)
    assert 15e9 < need.work_bytes < 60e9
    assert 3e9 < need.cache_bytes < 10e9
    said: list[str] = []
    monkeypatch.setattr(estimates, "_free", lambda folder: need.cache_bytes + need.work_bytes)
    check_disk(asked, settings(tmp_path), said.append)
    assert "GB for tables in" in said[0]
    monkeypatch.setattr(estimates, "_free", lambda folder: need.cache_bytes + need.work_bytes - 1)
    with pytest.raises(SetupError, match=r"this run needs about .* GB free"):
        check_disk(asked, settings(tmp_path), said.append)
    with pytest.raises(SetupError):
        run_scenario(load_scenario("rfc84"), settings(tmp_path))
    assert not (tmp_path / "results").exists()


def test_a_small_run_says_nothing_of_disks(tmp_path: Path) -> None:
    said: list[str] = []
    scenario = load_scenario("smoke")
    need = check_disk([(scenario, scenario.arms)], settings(tmp_path), said.append)
    assert not said
    assert 0 < need.work_bytes < 100e6
