"""Pages of comparisons, gates and histories, from the documents that the gate prints."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import RunError
from serde_lab.gate.compare.comparison import compare_sides
from serde_lab.gate.compare.sides import side_of_run
from serde_lab.gate.history import acknowledge, history
from serde_lab.gate.output.documents import comparison_document, history_document
from serde_lab.report import render
from serde_lab.report.comparison_page import comparison_page
from serde_lab.report.history_page import history_page
from serde_lab.report.page import Page
from serde_lab.runs.directory import load_run
from tests.report import made_up_run as made_up
from tests.report.gold import assert_golden
from tests.report.page_reader import PageReader

SLOW_AVRO = replace(made_up.AVRO, serde_us=tuple(1.3 * us for us in made_up.AVRO.serde_us))  # type: ignore[arg-type]
FAT_ARROW = replace(made_up.ARROW, frame_bytes=164.0)


def plain(value: object) -> Any:
    """As it comes from a file."""
    return json.loads(json.dumps(value))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    results = tmp_path_factory.mktemp("results")
    arms = (made_up.PICKLE, made_up.AVRO, made_up.ARROW)
    slower = (made_up.PICKLE, SLOW_AVRO, FAT_ARROW)
    sides = [
        side_of_run(load_run(made_up.make_run(results, each, run_id=name, rounds=8, commits=1)))
        for name, each in (("before", arms), ("after", slower))
    ]
    return plain(comparison_document(compare_sides(*sides)))


def words(page: Page) -> str:
    return " ".join(sentence.text for sentence in page.answer.sentences)


def test_what_got_worse_comes_first_and_by_name(document: Any) -> None:
    page = comparison_page(document)
    assert page.answer.figure == f"{document['counts']['worse']} worse"
    assert "`avro`, seconds: slower, 1." in words(page)
    assert "`arrow`, frame_bytes: slower, 1.006 times" in words(page)
    verdicts = page.tables()[0]
    assert verdicts.name == "verdicts"
    assert verdicts.rows[0][2].value == "slower"
    assert "same" not in {cells[2].value for cells in verdicts.rows}


def test_every_row_has_its_reason_and_its_inequalities(document: Any) -> None:
    page = comparison_page(document)
    reasons = next(one for one in page.tables() if one.name == "reasons")
    assert len(reasons.rows) == len(document["rows"])
    avro = next(
        cells for cells in reasons.rows if (cells[0].text, cells[1].text) == ("avro", "seconds")
    )
    row = next(r for r in document["rows"] if (r["arm"], r["metric"]) == ("avro", "seconds"))
    assert avro[3].text == row["because"]
    assert all(one["text"] in avro[4].text for one in row["inequalities"])


def test_no_figure_is_rounded_anew(document: Any) -> None:
    shown = {
        (cells[0].text, cells[1].text): cells[3].text
        for one in comparison_page(document).tables()
        if one.name in ("verdicts", "same")
        for cells in one.rows
    }
    for row in document["rows"]:
        if row["ratio"] is not None:
            assert shown[row["arm"], row["metric"]] == f"{row['ratio']:.3f}"


def test_ratios_are_drawn_against_one(document: Any) -> None:
    figures = comparison_page(document).figures()
    assert {"ratio-seconds", "ratio-serde-cpu-s"} <= {figure.name for figure in figures}
    assert figures[0].drawing.line == 1.0  # type: ignore[union-attr]


def test_an_empty_comparison_is_no_pass(document: Any) -> None:
    empty = copy.deepcopy(document)
    empty["rows"] = []
    empty["counts"] = {"worse": 0, "better": 0, "undecided": 0, "compared": 0}
    assert "this is no pass" in words(comparison_page(empty))
    assert PageReader(render.page_text(comparison_page(empty))).text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "The gate passed."),
        (3, "a regression (exit status 3)"),
        (4, "a wrong answer (exit status 4)"),
        (5, "cannot decide"),
        (1, "could not judge (exit status 1)"),
    ],
)
def test_a_gate_says_what_it_found(document: Any, status: int, text: str) -> None:
    finding = {"level": "failed", "arm": "avro", "quantity": "seconds", "text": "slower"}
    counts = {"failed": 1, "passed": 3}
    gate = {
        "exit_status": status,
        "findings": [finding],
        "counts": counts,
        "comparison": document,
    }
    page = comparison_page(gate)
    assert text in words(page)
    undecided = comparison_page({**gate, "counts": {"undecided": 2, "passed": 3}})
    assert ("The gate passed." in words(page)) is (status == 0)
    assert "The gate passed." not in words(undecided)
    assert page.sections[0].name == "findings"
    assert (page.answer.figure, page.answer.figure_about) == ("1 failed", "3 passed, of 4 judged")


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Any:
    results = tmp_path_factory.mktemp("past")
    for n in range(14):
        arms = (
            made_up.PICKLE,
            made_up.AVRO if n < 8 else SLOW_AVRO,
            FAT_ARROW if n > 4 else made_up.ARROW,
        )
        made_up.make_run(results, arms, run_id=f"run{n:02d}", rounds=3, noise=0.01, commits=1)
    folder = results / "acknowledged"
    acknowledge(
        folder, "upsert_lineitem", run="run05", by="a reviewer", why="padding, agreed", arm="arrow"
    )
    return plain(history_document(history("upsert_lineitem", results)))


def test_a_history_names_its_steps_and_who_knows_of_them(past: Any) -> None:
    page = history_page(past)
    steps = next(one for one in page.tables() if one.name == "steps")
    found = {(cells[0].text, cells[1].text): cells for cells in steps.rows}
    assert found["arrow", "frame_bytes"][7].text == "by a reviewer"
    assert found["arrow", "frame_bytes"][7].note == "padding, agreed"
    assert found["avro", "seconds"][7].text == "not acknowledged"
    assert "`avro`, seconds: worse since run08" in words(page)
    assert "frame_bytes: worse" not in words(page)


def test_only_what_moved_is_drawn(past: Any) -> None:
    page = history_page(past)
    names = {figure.name for figure in page.figures()}
    assert {"history-seconds", "history-frame-bytes"} <= names
    assert "history-hops" not in names


@pytest.mark.slow
def test_a_line_breaks_where_levels_may_not_be_compared(past: Any) -> None:
    broken = copy.deepcopy(past)
    for point in broken["series"][0]["points"][6:]:
        point["stretch"] = 1
    broken["series"][0]["points"][6]["value"] += 1
    broken["series"][0]["breaks"] = [{"run": "run06", "why": "another machine class"}]
    page = history_page(broken)
    name = f"history-{broken['series'][0]['metric'].replace('_', '-')}"
    figure = next(one for one in page.figures() if one.name == name)
    lines = [line for line in figure.drawing.lines if line.role == "bar"]  # type: ignore[union-attr]
    assert [len(line.points) for line in lines] == [6, 8]
    assert [line.label for line in lines] == ["", broken["series"][0]["arm"]]
    assert "another machine class" in PageReader(render.page_text(page)).text


def test_a_history_of_one_run_is_a_page(past: Any) -> None:
    short = copy.deepcopy(past)
    short["runs"] = short["runs"][:1]
    for series in short["series"]:
        series["points"], series["steps"], series["breaks"] = series["points"][:1], [], []
    assert "No level has changed." in PageReader(render.page_text(history_page(short))).text


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(RunError, match="no document of a comparison"):
        comparison_page({"before": "a"})
    with pytest.raises(RunError, match="no document of a history"):
        history_page({"scenario": "a", "runs": None})
    with pytest.raises(RunError, match="no document of a comparison"):
        comparison_page({"comparison": 3})


@pytest.mark.slow
@pytest.mark.parametrize("format", render.FORMATS)
def test_files_in_every_format(tmp_path: Path, document: Any, past: Any, format: str) -> None:
    one = render.write_comparison(document, tmp_path / "comparison", format)
    two = render.write_history(past, tmp_path / "history", format)
    for path in (one, two):
        text = path.read_text(encoding="utf-8")
        if format == "html":
            page = PageReader(text)
            assert len(page.ids) == len(set(page.ids))
        elif format == "json":
            assert json.loads(text)["data"] in (document, past)
        else:
            assert "avro" in text


@pytest.mark.parametrize(
    ("name", "page_of"), [("comparison", comparison_page), ("history", history_page)]
)
def test_golden_pages_of_stored_documents(name: str, page_of: Callable[[Any], Page]) -> None:
    # stored, so that another wording or another interval of the gate changes no page here
    stored = json.loads((Path(__file__).parent / "documents" / f"{name}.json").read_text())
    assert_golden(render.page_text(page_of(stored)), f"{name}.html")
    assert_golden(render.page_text(page_of(stored), "md"), f"{name}.md")


def test_hostile_strings_in_documents_are_text(document: Any) -> None:
    hostile = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>"
    text = json.dumps(document).replace("avro", json.dumps(hostile)[1:-1])
    page = PageReader(render.page_text(comparison_page(json.loads(text))))
    assert "img" not in page.names()
    assert [tag for tag, _ in page.tags].count("script") == 1
