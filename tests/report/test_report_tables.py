"""The report's section of several tables and their queries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.report import render
from serde_lab.report.page import Page, Sentence, Table
from serde_lab.report.plots.drawings import PointRows, StackedBars
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from tests.report.made_up_run import AVRO, PICKLE, make_run

ORDERS = {
    "name": "orders",
    "data": {"source": "tpch", "table": "orders", "scale_factor": 1.0},
    "commit": [{}],
}
TABLES = {"1": "lineitem", "2": "lineitem", "3": "orders"}
QUERIES = ("q1", "q6")


def seconds_of(query: str) -> Callable[[int], float]:
    """Of a cell by its place in the run: never the same twice."""
    return lambda order: (2.0 if query == "q1" else 0.5) * (1 + order / 100)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    queries = {f"spark.query_{name}_s": seconds_of(name) for name in QUERIES}
    path = make_run(
        tmp_path_factory.mktemp("tables"),
        (PICKLE, replace(AVRO, fails_in=(2,))),
        commits=3,
        scenario={"queries": list(QUERIES), "dataset": [ORDERS]},
        disturbed={"spark.open_tables_s": lambda order: 0.25, **queries},
    )
    made = load_run(path)
    settings = {
        "local_mode": True,
        "tables": TABLES,
        "operations": {"1": "insert", "2": "upsert", "3": "insert"},
        "rows": {"1": 400_000, "2": 400_000, "3": 400_000},
    }
    return replace(made, header=made.header.model_copy(update={"settings": settings}))


@pytest.fixture(scope="module")
def page(run: Run) -> Page:
    return run_page(run)


def table_of(page: Page, name: str) -> Table:
    return next(table for table in page.tables() if table.name == name)


def test_each_table_has_its_seconds_and_their_ratio(run: Run, page: Page) -> None:
    rows = table_of(page, "tables").rows
    assert [(row[0].text, row[1].text, row[2].text) for row in rows] == [
        ("lineitem", "insert", "400 k"), ("lineitem", "upsert", "400 k"), ("orders", "insert", "400 k"),
    ]  # fmt: skip
    by_arm = {arm["arm"]: arm for arm in summarise(run)["arms"]}
    for row, commit in zip(rows, by_arm["pickle"]["commits"], strict=True):
        assert row[3].value == pytest.approx(fmean(commit["seconds"]["values"]))
        assert row[3].note == ""
        assert "×" in row[4].note
        assert "to" in row[4].note
    assert [commit["table"] for commit in by_arm["avro"]["commits"]] == list(TABLES.values())
    assert [commit["operation"] for commit in by_arm["avro"]["commits"]] == [
        "insert",
        "upsert",
        "insert",
    ]


def test_a_commit_is_shown_with_its_table(page: Page) -> None:
    rows = table_of(page, "commits").rows
    assert [(row[2].text, row[2].note) for row in rows[:3]] == [
        ("insert", "lineitem"), ("upsert", "lineitem"), ("insert", "orders"),
    ]  # fmt: skip


def test_the_parts_of_a_bar_are_the_tables(page: Page) -> None:
    figure = next(one for one in page.figures() if one.name == "tables")
    assert isinstance(figure.drawing, StackedBars)
    (panel,) = figure.drawing.panels
    rows = table_of(page, "tables").rows
    pickle = next(bar for bar in panel.bars if bar.label == "pickle")
    lineitem, orders = (segment.value for segment in pickle.segments)
    assert orders == pytest.approx(rows[2][3].value)
    assert lineitem == pytest.approx(float(rows[0][3].value or 0) + float(rows[1][3].value or 0))


def test_queries_have_a_geometric_mean_with_its_interval(run: Run, page: Page) -> None:
    rows = table_of(page, "queries").rows
    assert [row[0].text for row in rows] == ["Q1", "Q6", "geometric mean"]
    one, six, mean = ([cell.value for cell in row[1:]] for row in rows)
    for first, second, of_both in zip(one, six, mean, strict=True):
        assert math.sqrt(float(first or 0) * float(second or 0)) == pytest.approx(of_both)
    figure = next(one for one in page.figures() if one.name == "queries")
    assert isinstance(figure.drawing, PointRows)
    (row,) = figure.drawing.rows
    assert row.label == "avro"
    assert len(row.points) == len(QUERIES)
    assert row.low is not None
    assert row.low < (row.middle or 0) < (row.high or 0)
    section = next(one for one in page.sections if one.name == "tables")
    said = " ".join(block.text for block in section.blocks if isinstance(block, Sentence))
    assert "No strategy takes part in reading" in said
    assert "`pickle` 0.250 s and `avro` 0.250 s" in said
    assert page.answer is not None
    assert any("every query had the right answer" in one.text for one in page.answer.sentences)


def test_a_run_of_one_table_has_no_such_section(tmp_path: Path) -> None:
    page = run_page(load_run(make_run(tmp_path)))
    assert "tables" not in [section.name for section in page.sections]


def test_markdown_shows_it(run: Run) -> None:
    assert "| **geometric mean** |" in render.run_text(run, "md")
