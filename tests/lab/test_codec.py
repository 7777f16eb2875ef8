"""A codec run from the scenario to its costs, on a table of a test's own; no Spark, no table."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.cli.run_table import report_tables
from serde_lab.errors import ScenarioError
from serde_lab.lab.cells import codec_cells
from serde_lab.lab.cells.codec_cases import CodecBatch, CodecCase, batch_of, codec_cases, values_of
from serde_lab.lab.cells.codec_cells import CodecCells
from serde_lab.lab.cells.verb_times import COME_BACK
from serde_lab.lab.run_settings import Silent
from serde_lab.lab.runner import RunSettings, resumed, run_scenario
from serde_lab.report.render import render_run
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.interface import BoundSerde, Records
from serde_lab.serde.registry import strategy
from tests.lab.small_scenario import NAME, content, source

pytestmark = pytest.mark.slow

CODEC = {
    "batch_rows": [1, 40],
    "types": ["int64", "string"],
    "widths": [4],
    "string_shares": [0.0, 0.5],
    "width_rows": 30,
}
CASES = 2 + 2 * 3 + 2


def codec_scenario(tmp: Path, arms: Any = ("avro", "internal_row"), **more: Any) -> Scenario:
    document = content(source(tmp / "own"), arms, exchange="none", **more)
    return parse_scenario({**document, "codec": CODEC})


def settings(tmp: Path) -> RunSettings:
    return RunSettings(results=tmp / "results", cache=tmp / "cache", work=tmp / "work")


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("codec")
    # time by how often it is asked for: so few records may take less than a tick of a machine's clock
    ticks = itertools.count(step=20_000_000)
    clocks = dict.fromkeys(("process_time_ns", "perf_counter_ns"), lambda: next(ticks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec_cells, "time", SimpleNamespace(**clocks))
        outcome = run_scenario(codec_scenario(tmp, rounds=2), settings(tmp))
    assert outcome.exit_status == 0
    return outcome.path


def test_every_case_is_measured_in_every_round_and_checked(run_path: Path) -> None:
    run = load_run(run_path)
    assert len(run.cells) == 2 * 2
    for cell in run.cells:
        assert {sample.commit for sample in cell.samples} == {None, *range(1, CASES + 1)}
    names = {(check.arm, check.name) for check in run.checks}
    wanted = ("frames_stand_alone", COME_BACK)
    assert names == {(arm, name) for arm in ("avro", "internal_row") for name in wanted}
    assert all(check.passed for check in run.checks)


def test_the_summary_has_the_cost_of_each_case(run_path: Path) -> None:
    summary = summarise(load_run(run_path))
    costs = summary["codec"]
    assert len(costs) == 2 * (CASES - 2)  # bool alone is no cost but what is taken off
    row = [c for c in costs if c["arm"] == "internal_row"]
    assert [(c["group"], c["type"], c["rows"], c["columns"]) for c in row] == [
        ("record", "", 1, 5), ("record", "", 40, 5),
        ("type", "int64", 1, 8), ("type", "string", 1, 8),
        ("type", "int64", 40, 8), ("type", "string", 40, 8),
        ("width", "", 30, 4), ("width", "", 30, 4),
    ]  # fmt: skip
    int64 = next(c for c in row if c["type"] == "int64" and c["rows"] == 40)
    assert int64["bytes"] == pytest.approx(8.125)  # and one bit of nulls
    record = next(c for c in row if c["group"] == "record" and c["rows"] == 40)
    # of two rounds, whose medians are means: else the verbs' medians need not add up to the sum's
    assert record["both_us"] == pytest.approx(sum(record["verbs_us"].values()))
    assert record["both_us"] > 0


def test_tables_and_page_show_them(run_path: Path, tmp_path: Path) -> None:
    assert [table.caption[:9].rstrip(" o") for table in report_tables(load_run(run_path))] == [
        "A record",
        "A value",
        "A record",
    ]
    page = tmp_path / "page.md"
    render_run(run_path, page, "md")
    text = page.read_text()
    for said in (
        "What a record costs",
        "records are encoded and decoded only",
        "returned every record",
    ):
        assert said in text
    assert "decodes other rows" not in text
    render_run(run_path, tmp_path / "page.html", "html")
    assert "codec-records" in (tmp_path / "page.html").read_text()


class _Stops(Silent):
    """ctrl-C while the second cell ends."""

    ended = 0

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        self.ended += 1
        if self.ended == 2:
            raise KeyboardInterrupt


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    asked = codec_scenario(tmp_path, rounds=2)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(asked, settings(tmp_path), _Stops())
    (path,) = (tmp_path / "results" / NAME).iterdir()
    first = load_run(path)
    assert first.header.state == "interrupted"
    assert len(first.cells) == 2
    outcome = run_scenario(resumed(path), settings(tmp_path), resume=path)
    whole = load_run(path)
    assert outcome.exit_status == 0
    assert whole.cells[:2] == first.cells
    assert len(whole.cells) == 4


def test_more_records_than_there_are_are_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    document = content(source(tmp_path / "own"), exchange="none")
    asked = parse_scenario({**document, "codec": {**CODEC, "batch_rows": [1001]}})
    with pytest.raises(
        ScenarioError, match=r"needs 1,001 records, but commit.1 has only 1,000 rows"
    ):
        run_scenario(asked, settings(tmp_path))
    assert not (tmp_path / "results").exists()


def test_a_strategy_that_gives_another_record_back_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The judge must see a value that changed on the way, and name the case."""
    real = strategy("arrow")

    class Wrong(type(real)):  # type: ignore[misc]
        def bind(self, *args: Any) -> BoundSerde:
            bound = super().bind(*args)
            honest = bound.decode

            def decode(frames: pa.BinaryArray) -> Records:
                records = honest(frames)
                order = list(range(len(records)))
                return records.take(pa.array(order[::-1]).to_numpy())

            object.__setattr__(bound, "decode", decode)
            return bound

    schema, rows = batch_of([values_of("int64", 5, 1)], 5)
    cells = CodecCells((CodecBatch(CodecCase("record", 5, 1), schema, rows),), tmp_path)
    arm = Arm(name="arrow", strategy="arrow")
    result = cells.cell("r00-arrow", arm).measure()
    assert cells.judge(arm, result).passed
    monkeypatch.setattr("serde_lab.lab.cells.codec_cells.strategy", lambda name: Wrong())
    verdict = cells.judge(arm, result)
    assert not verdict.passed
    assert verdict.results[0].detail.startswith("record x 5: column '_hoodie_record_key', row 0")


def test_the_bundled_scenario_asks_for_what_it_says() -> None:
    cases = codec_cases(load_scenario("codec"), 17)
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) == 6 + 6 * 16 + 4 * 4
    assert {case.rows for case in cases if case.group == "type"} == {10**n for n in range(6)}
    assert {case.columns for case in cases if case.group == "width"} == {10, 20, 50, 100}
