"""The page of a factorial run shows what each factor gives, and says what cannot be estimated."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from serde_lab.report.page import Figure, Page, Section, Sentence, Table
from serde_lab.report.plots.drawings import Lines
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from tests.report import made_up_run as made_up

SIZES = (1, 100, 8000)
FRAMED = {1: 1.0, 100: 0.5, 8000: 0.25}
TYPED_COLUMNS = 0.5
"""How much more columns give the typed row than Avro."""


def arm(strategy: str, execution: str, rows: int, us: float) -> made_up.MadeUpArm:
    cost = us * FRAMED[rows]
    return replace(
        made_up.PICKLE,
        name=f"{strategy}_{execution}_{rows}",
        strategy=strategy,
        serde_us=(cost, cost, cost, cost, cost),
        options={**made_up.PICKLE.options, "execution": execution, "rows_per_frame": rows},
    )


def arms() -> list[made_up.MadeUpArm]:
    costs = {
        ("pickle", "row"): 2.0,
        ("avro", "row"): 4.0,
        ("avro", "batch"): 0.4,
        ("internal_row", "row"): 3.0,
        ("internal_row", "batch"): 0.3 * TYPED_COLUMNS,
        ("arrow", "batch"): 0.1,
    }
    return [arm(*kind, rows, us) for kind, us in costs.items() for rows in SIZES]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    made = made_up.make_run(
        tmp_path_factory.mktemp("effects"), arms(), scenario={"reference": "pickle_row_1"}
    )
    return run_page(load_run(made))


def section(page: Page) -> Section:
    return next(one for one in page.sections if one.name == "factors")


def ratios(page: Page, metric: str) -> dict[tuple[str, str], float]:
    (table,) = (one for one in section(page).blocks if isinstance(one, Table))
    place = [column.key for column in table.columns].index(metric)
    return {(row[1].text, row[1].note): float(row[place].value or 0) for row in table.rows}


def test_effects_stand_in_a_table_with_their_intervals(page: Page) -> None:
    found = ratios(page, "serde_cpu_s")
    near = {"rel": 0.1}
    assert found["avro to pickle", "by row, all frame sizes"] == pytest.approx(0.5, **near)
    assert found["avro to arrow", "by column, all frame sizes"] == pytest.approx(0.25, **near)
    assert found["by row to by column", "avro, all frame sizes"] == pytest.approx(0.1, **near)
    assert found["1 to 100 a frame", "mean of all strategies by row"] == pytest.approx(0.5, **near)
    assert found["columns and internal_row", "beyond what columns give avro"] == pytest.approx(
        TYPED_COLUMNS, **near
    )
    (table,) = (one for one in section(page).blocks if isinstance(one, Table))
    for row in table.rows:
        for cell in row[2:]:
            low, high = map(float, cell.note.replace(",", "").split(" to "))
            assert low <= float(cell.value or 0) * 1.01
            assert float(cell.value or 0) <= high * 1.01


def test_the_picture_has_a_line_for_each_strategy_and_execution(page: Page) -> None:
    (figure,) = (one for one in section(page).blocks if isinstance(one, Figure))
    assert isinstance(figure.drawing, Lines)
    lines = {line.label: line.points for line in figure.drawing.lines}
    assert list(lines) == [
        *("pickle by row", "avro by row", "avro by column"),
        *("internal_row by row", "internal_row by column", "arrow by column"),
    ]
    sizes, costs = zip(*lines["avro by row"], strict=True)
    assert sizes == SIZES
    assert math.prod(costs[1:]) > 0
    assert costs[0] > costs[1] > costs[2]


def test_what_cannot_be_estimated_is_said(page: Page) -> None:
    said = " ".join(b.text for b in section(page).blocks if isinstance(b, Sentence))
    assert "`pickle` does not run by column: what columns give it cannot be estimated." in said
    assert "`arrow` does not run by row" in said
    assert not [key for key in ratios(page, "seconds") if key[1].startswith(("pickle,", "arrow,"))]


def test_the_summary_holds_the_effects(page: Page) -> None:
    factors = page.data["factors"]
    assert isinstance(factors, list)
    assert [one["metric"] for one in factors] == ["seconds", "serde_cpu_s"]
    assert {"group", "change", "where", "ratio", "low", "high"} == set(factors[0]["effects"][0])


def test_other_runs_have_no_such_section(tmp_path: Path) -> None:
    made = run_page(load_run(made_up.make_run(tmp_path)))
    assert "factors" not in [one.name for one in made.sections]
    assert "factors" not in made.data
