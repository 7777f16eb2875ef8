"""A search from end to end: with made-up cells, interrupted and resumed; and a small one on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from serde_lab.analysis.search import SearchedSide, search_of
from serde_lab.analysis.summary import summarise
from serde_lab.cli.app import main
from serde_lab.errors import UsageError
from serde_lab.lab import runner
from serde_lab.lab.cells.cell import CellResult, MeasurableCell
from serde_lab.lab.checks.stand_alone import Proof
from serde_lab.lab.rounds import Rounds
from serde_lab.lab.run_settings import RunSettings, Silent
from serde_lab.lab.runner import check_kept_tables, resumed, run_scenario
from serde_lab.lab.search import Heaps, heats, planned_search
from serde_lab.measure.metrics import Sample
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import SEARCH_FILE, load_run
from serde_lab.runs.model import Check, Run
from serde_lab.scenario.hudi_options import candidate_arms, with_settings
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.verify.table_checks import TableVerdict
from tests.lab.small_scenario import content, run_in_session, source, toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE, GROUP, LOGS = (
    f"hoodie.{name}.size" for name in ("parquet.page", "parquet.block", "logfile.max")
)
DICTIONARY, CODEC = "hoodie.parquet.dictionary.enabled", "spark.io.compression.codec"
CANDIDATES: Mapping[str, tuple[str, dict[str, Any], float]] = {
    "dict": ("dict", {DICTIONARY: False}, 0.80),
    "page_a": ("page", {PAGE: 1024}, 0.90),
    "page_b": ("page", {PAGE: 2048}, 0.85),
    "group": ("group", {GROUP: 4096}, 1.3),
    "wrong": ("wrong", {LOGS: 4096}, 0.5),
    "codec": ("codec", {CODEC: "zstd"}, 0.90),
}
"""By candidate its factor, its settings, and its share of the start's time."""
MOST_CELLS = 7 * 4 + 5 * 5 + 3 * 7
"""Arms by rounds, cold ones included: of two rungs, and of the confirmation."""


def document(folder: Path) -> dict[str, Any]:
    arms = ["internal_row", {"name": "other", "strategy": "arrow"}]
    table = {"type": "MERGE_ON_READ"}
    made = content(source(folder), arms, exchange="spark", table=table, rounds=6, warmup=1)
    candidates = [
        {"name": name, "arm": "internal_row", "factor": factor, "settings": settings}
        for name, (factor, settings, _) in CANDIDATES.items()
    ]
    return {**made, "search": {"rounds": [3, 4], "spare": 1, "candidate": candidates}}


class MadeUp(MeasurableCell):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def measure(self) -> CellResult:
        samples = [Sample(name, self.seconds) for name in ("seconds", "tree_cpu_s")]
        return CellResult((*samples, Sample("rows", 10.0)), None)


class MadeUpCells:
    """Cells whose time is known but for noise of one percent; `stop_after` cells comes ctrl-C."""

    def __init__(self, stop_after: int) -> None:
        self.left, self.opened = stop_after, list[set[str]]()

    def set_up(self) -> None: ...

    def discard(self, name: str) -> None: ...

    def calibrate(self) -> Mapping[str, float]:
        return {"numpy": 1.0}

    def cell(self, name: str, arm: Arm) -> MeasurableCell:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        noise = np.random.default_rng(sum(name.encode())).normal(1.0, 0.01)
        share = 1.0
        for _, settings, of_candidate in CANDIDATES.values():
            texts = {key: str(value).lower() for key, value in settings.items()}
            if texts.items() <= arm.stated_settings.items():
                share *= of_candidate
        return MadeUp(float(noise * share))


class MadeUpJudge:
    def judge(self, arm: Arm, result: CellResult) -> TableVerdict:
        right = LOGS not in arm.settings
        return TableVerdict((Check("rows_match_oracle", right, "as made up"),), None)


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return RunSettings(tmp_path / "results", tmp_path / "cache", tmp_path / "work")


def search(
    patch: pytest.MonkeyPatch,
    folder: Path,
    settings: RunSettings,
    stop: int,
    resume: Path | None = None,
) -> tuple[Path, int, list[set[str]]]:
    """A run of made-up cells: its folder, its exit status, and the arms of each heat."""
    cells = MadeUpCells(stop)

    @contextmanager
    def opened(point: Any, *_: object, shared: object) -> Iterator[MadeUpCells]:
        cells.opened.append({arm.name for arm in point.arms})
        yield cells

    patch.setattr(runner, "_table_cells", opened)
    patch.setattr(runner, "_table_checks", lambda *_: MadeUpJudge())
    patch.setattr(runner, "_frames", lambda *_: Proof({}, {}))
    patch.setattr(runner, "Rounds", partial(Rounds, spin=lambda: 0.0))
    scenario = parse_scenario(document(folder)) if resume is None else resumed(resume)
    outcome = run_scenario(scenario, settings, Silent(), resume)
    return outcome.path, outcome.exit_status, cells.opened


def judged(run: Run) -> SearchedSide:
    (side,) = search_of(run)
    return side


def test_a_search_drops_combines_and_confirms_and_goes_on_where_it_was_stopped(
    tmp_path: Path, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, status, opened = search(monkeypatch, tmp_path, settings, stop=1000)
    run = load_run(path)
    side = judged(run)
    assert status == 4  # of the candidate whose table is wrong
    fates = {trial.name: trial for trial in side.trials}
    why = {trial.name: trial.fate.why for trial in side.trials if trial.fate is not None}
    assert "wrote a wrong table or other files" in why["wrong"]
    assert "worse than its start" in why["group"]
    assert {name for name, one in fates.items() if one.chosen} == {"dict", "page_b", "codec"}
    assert side.settings == {DICTIONARY: "false", PAGE: "2048", CODEC: "zstd"}
    assert side.confirmed
    assert side.rounds == 6
    assert side.confirmation is not None
    assert side.confirmation.wall.value == pytest.approx(0.80 * 0.85 * 0.90, rel=0.03)
    # what is not searched is measured beside the combination, and nowhere else
    assert ["other" in heat for heat in opened] == [False, False, True]
    assert opened[2] == {"internal_row", "internal_row-best", "other"}
    stored = json.loads((path / SEARCH_FILE).read_text())
    assert stored == [side.to_json()] == summarise(run)["search"]
    names = {table.name for table in run_page(run).tables()}
    assert {"search-outcome", "search-trials"} <= names
    cells = [(cell.cell, cell.status) for cell in run.cells]
    assert len(cells) <= MOST_CELLS

    with pytest.raises(KeyboardInterrupt):
        search(monkeypatch, tmp_path, settings, stop=30)
    (interrupted,) = set(path.parent.iterdir()) - {path}
    begun = judged(load_run(interrupted))
    assert begun.verdict == "the search has not ended"
    assert (len(begun.rungs), begun.ended) == (2, False)
    again, _, opened = search(monkeypatch, tmp_path, settings, 1000, interrupted)
    assert again == interrupted
    assert [(cell.cell, cell.status) for cell in load_run(again).cells] == cells
    assert judged(load_run(again)) == side
    assert len(opened) == 2


def test_a_search_keeps_no_tables(tmp_path: Path) -> None:
    scenario = parse_scenario(document(tmp_path))
    with pytest.raises(UsageError, match="small is a search, which keeps no tables"):
        check_kept_tables([(scenario, ())], RunSettings(keep_tables=tmp_path))


def test_a_heat_holds_as_many_sessions_as_fit_the_memory_and_every_candidate_has_its_start() -> (
    None
):
    start = Arm(name="a", strategy="arrow")
    other = Arm(name="b", strategy="arrow")
    codecs = [
        with_settings(start, f"a-{n}", {CODEC: name}) for n, name in enumerate(("lz4", "zstd"))
    ]
    large = with_settings(start, "a-large", {"spark.driver.memory": "3k"})
    plain = with_settings(start, "a-plain", {DICTIONARY: False})
    pairs = [(start, arm) for arm in (*codecs, large, plain)]
    of = {
        most: [[arm.name for arm in heat] for heat in heats(pairs, Heaps(1000, most), [other])]
        for most in (2000, 3500, 9000)
    }
    assert of == {
        2000: [["a", "a-0", "a-plain", "b"], ["a", "a-1"], ["a", "a-large"]],
        3500: [["a", "a-0", "a-1", "a-plain", "b"], ["a", "a-large"]],
        9000: [["a", "a-0", "a-1", "a-large", "a-plain", "b"]],
    }


def test_the_plan_of_a_search_says_at_most_what_it_measures(
    settings: RunSettings, tmp_path: Path
) -> None:
    scenario = parse_scenario(document(tmp_path))
    rungs = planned_search(scenario, scenario.arms, settings)
    assert sum(len(one.cells) for one in rungs) == MOST_CELLS
    assert [(one.name, one.candidates, one.rounds, one.heats) for one in rungs] == [
        ("rung 1", 6, 3, 1),
        ("rung 2", 4, 4, 1),
        ("confirmation", 1, 6, 1),
    ]


def test_a_dry_run_says_at_most_how_many_cells_and_minutes_a_search_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(toml(document(tmp_path)))
    assert main(["run", str(file), "--dry-run", "--format", "csv"]) == 0
    shown = capsys.readouterr()
    assert "confirmation,1,6,1,2,21" in shown.out
    assert f"at most {MOST_CELLS} cells, about" in shown.err
    assert "minutes" in shown.err


@pytest.mark.spark
def test_a_small_search_on_spark_checks_every_table_and_decides(
    tmp_path: Path, spark: SparkSession
) -> None:
    made = content(source(tmp_path), ["internal_row"], exchange="spark", rounds=6)
    settings: list[dict[str, Any]] = [{DICTIONARY: False}, {GROUP: 65536}]
    candidates = [
        {"name": f"c{n}", "arm": "internal_row", "settings": one} for n, one in enumerate(settings)
    ]
    asked = {**made, "search": {"rounds": [2], "candidate": candidates}}
    run = run_in_session(spark, asked, tmp_path)
    side = judged(run)
    assert [(trial.rounds, trial.fate is not None) for trial in side.trials] == [(2, True)] * 2
    assert side.ended
    assert {entry.arm for entry in run.header.arms} >= {"internal_row-c0", "internal_row-c1"}
    (candidate, _) = candidate_arms(parse_scenario(asked), parse_scenario(asked).arms)
    assert candidate.write_settings == {DICTIONARY: "false"}
    assert all(check.passed is not False for check in run.checks)


def test_the_arms_of_a_search_are_those_of_the_scenario_and_its_candidates(tmp_path: Path) -> None:
    scenario: Scenario = parse_scenario(document(tmp_path))
    assert len(candidate_arms(scenario, scenario.arms)) == len(CANDIDATES)
