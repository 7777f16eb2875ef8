"""`serde_lab.results`: DataFrames hold what the run directory holds, and estimates that numpy confirms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbclient import NotebookClient

import serde_lab
from serde_lab.errors import RunError
from serde_lab.report.notebook import Results

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"


@pytest.fixture(scope="module")
def run() -> Results:
    return serde_lab.results("upsert_lineitem", REFERENCE)


def lines(run: Results, file: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.run.path / file).read_text().splitlines()]


def test_the_example_of_the_document_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "results" / "README.md").read_text()
    (code,) = re.findall("```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec(code, names)
    medians, ratios = names["medians"], names["against_pickle"]
    assert isinstance(medians, pd.Series)
    assert isinstance(ratios, pd.DataFrame)
    assert set(ratios.arm) == set(medians.index) - {"pickle"}


@pytest.mark.slow
def test_the_notebook_runs_from_its_first_cell_to_its_last(
    run: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = nbformat.read(ROOT / "docs" / "analyse.ipynb", 4)
    NotebookClient(notebook, resources={"metadata": {"path": str(ROOT / "docs")}}).execute()
    shown = {
        cell.source: cell.outputs[-1].data for cell in notebook.cells if cell.cell_type == "code"
    }
    assert all("text/html" in found or "image/svg+xml" in found for found in shown.values())
    (medians,) = (found["text/html"] for source, found in shown.items() if "median" in source)
    for seconds in run.tables["arms"].seconds:
        assert f"<td>{seconds:.6f}</td>" in medians
    ElementTree.fromstring(shown['run.plots["phases"]']["image/svg+xml"])


def test_samples_are_those_of_the_file(run: Results) -> None:
    stored = [one["value"] for one in lines(run, "samples.jsonl") if "metric" in one]
    assert sorted(run.samples.value) == sorted(stored)
    assert run.samples.notna().all(axis=None)


def test_phases_are_samples_side_by_side(run: Results) -> None:
    walls = run.samples.query("metric == 'phase_wall_s'").value
    assert run.phases.wall_s.sum() == pytest.approx(walls.sum())
    assert list(run.phases.columns[-2:]) == ["wall_s", "cpu_s"]


def test_checks_are_those_of_the_file(run: Results) -> None:
    stored = [(one["name"], one["passed"]) for one in lines(run, "checks.jsonl")]
    assert list(zip(run.checks.name, run.checks.passed, strict=True)) == stored


def test_a_ratio_is_the_geometric_mean_over_rounds(run: Results) -> None:
    found = run.ratios.query("arm == 'arrow' and other == 'pickle' and metric == 'seconds'").iloc[0]
    seconds = run.samples.query("metric == 'seconds' and not warmup")
    table = seconds.pivot_table("value", "round", "arm", aggfunc="sum")
    logs = np.log(table["arrow"] / table["pickle"])
    assert found.ratio == pytest.approx(np.exp(logs.mean()))
    assert found.low < found.ratio < found.high
    assert found.rounds == len(table)


def test_a_plot_and_a_run_show_themselves(run: Results) -> None:
    plot = run.plots["phases"]
    assert ElementTree.fromstring(plot._repr_svg_()).tag.endswith("svg")
    assert plot._repr_png_().startswith(b"\x89PNG")
    assert plot.table is not None
    assert plot.table.equals(run.tables["phase-seconds"])
    page = run._repr_html_()
    assert "<svg" in page
    assert "<script" not in page


def test_runs_are_listed_with_their_problems(tmp_path: Path) -> None:
    (tmp_path / "broken" / "20260101T000000Z").mkdir(parents=True)
    (tmp_path / "broken" / "20260101T000000Z" / "run.json").write_text("{")
    found = serde_lab.list_results(tmp_path)
    assert found.scenario.tolist() == ["broken"]
    assert "cannot be read" in found.problem[0]
    assert set(serde_lab.list_results(REFERENCE).scenario) >= {"upsert_lineitem", "codec"}


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run under"):
        serde_lab.results(folder=tmp_path)
