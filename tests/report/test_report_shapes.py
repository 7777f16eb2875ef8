"""The report's section of shapes, and its figures: costs relative to the middle, and changed places."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from serde_lab.analysis.ratios import unpaired_ratio
from serde_lab.analysis.summary import summarise
from serde_lab.cli.run_table import report_tables
from serde_lab.report import render
from serde_lab.report.page import Page, Points, Sentence, Table
from serde_lab.report.plots.drawings import Multiples
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.runs.writer import RunWriter
from tests.report.made_up_run import ENVIRONMENT, SCENARIO

ROWS, ROUNDS = 1000, (0.98, 1.0, 1.02)

# by factor and value: how many values and bytes, relative to the middle, and the seconds of `slow` and `fast`
POINTS: dict[tuple[str, float | str | None], tuple[float, float, float, float]] = {
    ("", None): (1, 1, 2.0, 1.0),
    # linear in the values: neither changes
    ("width", 5): (0.25, 0.25, 0.5, 0.25),
    # `fast` costs 3 times as much by value, and 2.5 times by byte; `slow` half as much
    ("width", 300): (10, 12, 10.0, 30.0),
    # by byte it costs the same
    ("string_bytes", 2000): (1, 20, 40.0, 20.0),
    ("keys", "uuid"): (1, 1.1, 2.1, 1.1),
}
CONTENT: dict[str, Any] = {
    **SCENARIO,
    "name": "shapes",
    "reference": "fast",
    "shapes": {
        "between": [],
        "factor": [
            {"name": "width", "key": "data.columns", "values": [5, 20, 300], "also": {}},
            {"name": "string_bytes", "key": "data.string_bytes", "values": [80, 2000], "also": {}},
            {"name": "keys", "key": "data.keys", "values": ["long", "uuid"], "also": {}},
        ],
    },
    "arm": [{"name": name, "strategy": "arrow"} for name in ("slow", "fast")],
}


def mark(factor: str, value: object) -> str:
    return f"{factor}-{value}" if factor else "middle"


def make_run(results: Path, wrong: str = "", rounds: tuple[float, ...] = ROUNDS) -> Path:
    """A run of these points; the arm `wrong` fails a check."""
    arms = [(name, *at) for name in ("slow", "fast") for at in POINTS]
    header = RunHeader(
        run="20250101T120000Z",
        scenario="shapes",
        arms=tuple(
            ArmEntry(
                arm=f"{name}@{mark(factor, value)}",
                strategy="arrow",
                swept={"arm": name, "value": value, "factor": factor},
            )
            for name, factor, value in arms
        ),
        scenario_content=CONTENT,
        environment=dict(ENVIRONMENT),
        machine_class="made-up-2-cores",
        code_version={"package": "0.1.0", "git_commit": "0" * 40, "git_dirty": False},
        data_checksums={},
        seed=7,
        settings={
            "local_mode": True,
            "points": [
                {
                    "factor": factor,
                    "value": value,
                    "rows": {"1": ROWS},
                    "operations": {"1": "upsert"},
                    "values": int(20 * ROWS * values),
                    "bytes": int(400 * ROWS * size),
                }
                for (factor, value), (values, size, _, _) in POINTS.items()
            ],
        },
        started_at="2025-01-01T12:00:00Z",
    )
    writer = RunWriter.create(results, header)
    for number, noise in enumerate(rounds):
        for place, ((factor, value), (_, _, *seconds)) in enumerate(POINTS.items()):
            for name, base in zip(("slow", "fast"), seconds, strict=True):
                arm = f"{name}@{mark(factor, value)}"
                at = place * len(rounds) + number
                cell = f"r{at:02d}-{arm}"
                writer.cell_begin(
                    cell,
                    arm=arm,
                    round=at,
                    warmup=False,
                    order=at,
                    started_at="2025-01-01T12:00:00Z",
                )
                # the arms' noise differs, so that their ratio has an interval
                noisy = base * (noise if name == "slow" else noise**0.5)
                writer.sample(cell, "seconds", noisy, commit=1)
                writer.sample(cell, "tree_cpu_s", 3 * noisy, commit=1)
                writer.sample(cell, "rows", ROWS, commit=1)
                writer.sample(cell, "phase_wall_s", noisy / 2, commit=1, phase="map.encode")
                writer.sample(cell, "phase_cpu_s", noisy / 2, commit=1, phase="map.encode")
                writer.check(
                    Check("rows_match_oracle", arm != wrong, "", arm=arm, cell=cell, round=at)
                )
                writer.cell_end(cell, "ok")
    writer.finish("complete")
    return writer.path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="module")
def page(path: Path) -> Page:
    return run_page(load_run(path))


def costs(path: Path) -> dict[tuple[str, Any, str], dict[str, Any]]:
    found = json.loads(json.dumps(summarise(load_run(path))["shapes"]))
    return {(one["factor"], one["value"], one["arm"]): one for one in found["costs"]}


def test_costs_are_relative_to_the_middle_by_row_value_and_byte(path: Path) -> None:
    found = costs(path)
    assert len(found) == 2 * 4
    wide = found["width", 300, "fast"]
    assert wide["per_row"]["value"] == pytest.approx(30)
    assert wide["per_value"]["value"] == pytest.approx(3)
    assert wide["per_byte"]["value"] == pytest.approx(2.5)
    assert (wide["kinder"], wide["verdict"]) == ("byte", "more than twice")
    assert wide["serde"]["value"] == pytest.approx(2.5)
    assert wide["cpu"]["value"] == pytest.approx(2.5)
    assert found["width", 5, "slow"]["per_value"]["value"] == pytest.approx(1)
    long = found["string_bytes", 2000, "fast"]
    assert long["per_value"]["value"] == pytest.approx(20)
    assert (long["kinder"], long["verdict"]) == ("byte", "")


def test_the_interval_is_welchs() -> None:
    ours, theirs = [2.0, 2.2, 1.9], [1.0, 1.3, 0.9, 1.1]
    logs = [[math.log(value) for value in values] for values in (ours, theirs)]
    interval = stats.ttest_ind(*logs, equal_var=False).confidence_interval()
    ratio = unpaired_ratio(ours, theirs, scale=4)
    assert ratio.low == pytest.approx(math.exp(interval.low) / 4)
    assert ratio.high == pytest.approx(math.exp(interval.high) / 4)
    assert ratio.value == pytest.approx(math.sqrt((ratio.low or 0) * (ratio.high or 0)))
    assert unpaired_ratio([2.0], theirs).low is None
    assert unpaired_ratio([2.0, 2.0], [1.0, 1.0]).high == pytest.approx(2)


def test_arms_change_places_only_where_both_intervals_say_so(path: Path, page: Page) -> None:
    (one,) = summarise(load_run(path))["shapes"]["changed_places"]
    assert (one["factor"], one["value"], one["first"], one["second"]) == (
        "width", 300, "fast", "slow",
    )  # fmt: skip
    assert one["in_the_middle"]["high"] < 1 < one["at_the_value"]["low"]
    (points,) = [b for b in page.sections[0].blocks if isinstance(b, Points)]
    ((heading, text),) = points.items
    assert heading == "width 300"
    assert text.startswith("`fast` is faster in the middle (0.5")
    assert "but slower here (3.0" in text


def test_the_rule_is_judged_for_each_arm_at_each_extreme(path: Path, page: Page) -> None:
    (table,) = [one for one in page.sections[0].blocks if getattr(one, "name", "") == "shapes-rule"]
    assert isinstance(table, Table)
    assert [column.key for column in table.columns] == ["extreme", "slow", "fast"]
    rows = {str(row[0].text): row[1:] for row in table.rows}
    assert list(rows) == ["width 5", "width 300", "string_bytes 2,000", "keys uuid"]
    slow, fast = rows["width 300"]
    assert (slow.tone, fast.tone) == ("muted", "bad")
    assert slow.note.endswith(": at most twice")
    wide = costs(path)["width", 300, "fast"]["per_byte"]
    assert fast.value == pytest.approx(wide["value"])
    low, high, said = fast.note.replace(" to ", ": ").split(": ")
    assert float(low) == pytest.approx(wide["low"], abs=0.06)
    assert float(high) == pytest.approx(wide["high"], abs=0.06)
    assert said == "more than twice"


def test_the_rule_names_what_rounds_leave_open(tmp_path: Path) -> None:
    page = run_page(load_run(make_run(tmp_path, rounds=(0.7, 1.0, 1.3))))
    (table,) = [one for one in page.sections[0].blocks if getattr(one, "name", "") == "shapes-rule"]
    assert isinstance(table, Table)
    fast = {str(row[0].text): row[2] for row in table.rows}["width 300"]
    assert (fast.tone, fast.note.split(": ")[1]) == ("warn", "perhaps more than twice")


def test_a_single_round_decides_nothing(tmp_path: Path) -> None:
    path = make_run(tmp_path, rounds=(1.0,))
    assert {one["verdict"] for one in costs(path).values()} == {"one round decides nothing"}
    blocks = run_page(load_run(path)).sections[0].blocks
    assert not [block for block in blocks if isinstance(block, Points)]
    assert any("No two arms change places" in b.text for b in blocks if isinstance(b, Sentence))


def test_the_answer_is_the_greatest_cost(page: Page) -> None:
    assert page.answer is not None
    assert page.answer.figure.startswith("2.5")
    assert "a byte costs `fast` at width 300" in page.answer.figure_about
    first, second = (sentence.text for sentence in page.answer.sentences[:2])
    assert first.startswith("1 point of an arm costs more than twice")
    assert second == (
        "Two arms change places in 1 case; 4 pairs were compared, of which chance alone would let at most"
        " about 0.1 change."
    )


def test_each_factor_has_a_panel_with_a_line_for_each_arm(page: Page) -> None:
    (figure,) = [one for one in page.figures() if one.name == "shapes"]
    assert isinstance(figure.drawing, Multiples)
    panels = figure.drawing.panels
    assert [panel.heading for panel in panels] == ["width", "string_bytes", "keys"]
    assert panels[0].x_labels == ("5", "20", "300")
    assert panels[1].x_labels == ("80", "2k")
    slow, fast = panels[0].lines
    assert fast.points[1] == (1.0, 1.0)
    assert fast.points[2][1] == pytest.approx(2.5)
    low, high = fast.ranges[2]
    assert low < 2.5 < high
    # words have no order, so nothing joins them
    assert (slow.joined, panels[2].lines[0].joined) == (True, False)


def test_what_is_relative_to_a_wrong_middle_is_not_shown(tmp_path: Path) -> None:
    path = make_run(tmp_path, wrong="fast@middle")
    found = summarise(load_run(path))["shapes"]
    assert found["missing"] == ["fast"]
    assert {one["arm"] for one in found["costs"]} == {"slow"}
    assert found["changed_places"] == []
    assert "to which costs are relative: `fast`." in render.run_text(load_run(path), "md")


def test_a_wrong_point_is_left_out(tmp_path: Path) -> None:
    found = costs(make_run(tmp_path, wrong="fast@width-300"))
    assert ("width", 300, "fast") not in found
    assert ("width", 300, "slow") in found


@pytest.mark.parametrize("form", ["html", "md", "csv", "json"])
def test_every_format_has_it(path: Path, form: str) -> None:
    text = render.run_text(load_run(path), form)
    assert "string_bytes" in text
    assert "more than twice" in text or form == "csv"


def test_the_terminal_shows_the_table(path: Path) -> None:
    (table,) = report_tables(load_run(path))
    assert table.name == "shapes"
    assert len(table.rows) == 8
