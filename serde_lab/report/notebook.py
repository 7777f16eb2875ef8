"""Gives a run to those who analyse it themselves: tidy pandas DataFrames, and the plots of its report.

    >>> run = serde_lab.results("upsert_lineitem")
    >>> cells = run.samples.query("metric == 'seconds' and commit == 0 and not warmup")
    >>> cells.groupby("arm").value.median()

Nothing here measures or judges: values are those of `samples.jsonl` and `checks.jsonl`, estimates those of
`analysis`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from markupsafe import escape

from serde_lab.analysis.cell_values import by_round
from serde_lab.analysis.ratios import paired_ratio
from serde_lab.analysis.summary import summary_of
from serde_lab.report.formats import raw_value
from serde_lab.report.page import Figure, Page, Table
from serde_lab.report.plots.draw import WIDE_PX, draw
from serde_lab.report.render import figure_svg
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import LATEST, list_runs, load_run, resolve_run
from serde_lab.runs.model import Run


@dataclass(frozen=True)
class Results:
    """One run. DataFrames are made when they are first used; every call returns the same one.

    Seconds are `s`, sizes `B`, CPU times of phases are summed over tasks; `docs/measuring.md` says what each
    metric covers.
    """

    run: Run

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every measured value, one a row: cell, arm, round, warmup, status, commit (0 for the whole cell),
        metric, phase ("" if the metric has none), value, unit."""
        rows = [
            (
                *(cell.cell, cell.arm, cell.round, cell.warmup, cell.status),
                *(sample.commit or 0, sample.metric, sample.phase or "", sample.value, sample.unit),
            )
            for cell in self.run.cells
            for sample in cell.samples
        ]
        head = ["cell", "arm", "round", "warmup", "status"]
        return pd.DataFrame(rows, columns=[*head, "commit", "metric", "phase", "value", "unit"])

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Slot seconds of each phase, one cell, commit and phase a row: wall_s and cpu_s."""
        times = self.samples[self.samples.metric.isin(["phase_wall_s", "phase_cpu_s"])]
        keys = ["cell", "arm", "round", "warmup", "commit", "phase"]
        found = times.pivot_table("value", keys, "metric", aggfunc="sum").reset_index()
        found = found.reindex(columns=[*keys, "phase_wall_s", "phase_cpu_s"])
        found.columns = pd.Index([*keys, "wall_s", "cpu_s"])
        return found

    @cached_property
    def checks(self) -> pd.DataFrame:
        """Every check, one a row: name, arm and round (None for one over the whole run), passed (None if it
        could not be made), detail."""
        rows = [(c.name, c.arm, c.round, c.passed, c.detail) for c in self.run.checks]
        columns = ["name", "arm", "round", "passed", "detail"]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    @cached_property
    def arms(self) -> pd.DataFrame:
        """What was asked for, one arm a row: arm, kind, strategy, options, missing."""
        rows = [(a.arm, a.kind, a.strategy, a.options, a.missing) for a in self.run.header.arms]
        columns = ["arm", "kind", "strategy", "options", "missing"]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    @cached_property
    def ratios(self) -> pd.DataFrame:
        """How many times the value of `other` each arm has, one pair and metric a row: arm, other, metric,
        ratio, low, high (the 95 % interval; None after a single round), rounds.

        Arms whose answer is wrong or unchecked have none.
        """
        _, derived = summary_of(self.run)
        rounds = {arm: found for arm, found in derived.rounds.items() if found}
        rows = []
        for arm, values in rounds.items():
            for other, others in rounds.items():
                for metric in (
                    "seconds",
                    "serde_cpu_s",
                    "tree_cpu_s",
                    "frame_bytes",
                    "table_bytes",
                ):
                    ratio = paired_ratio(by_round(values, metric), by_round(others, metric))
                    if arm != other and ratio is not None:
                        found = (ratio.value, ratio.low, ratio.high, ratio.rounds)
                        rows.append((arm, other, metric, *found))
        columns = ["arm", "other", "metric", "ratio", "low", "high", "rounds"]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The report's tables by name, with unrounded values."""
        return {table.name: _frame(table) for table in self._page.tables()}

    @cached_property
    def plots(self) -> Mapping[str, Plot]:
        """The report's plots by name."""
        return {figure.name: Plot(figure) for figure in self._page.figures()}

    @cached_property
    def _page(self) -> Page:
        return run_page(self.run)

    def _repr_html_(self) -> str:
        answer = self._page.answer
        assert answer is not None  # a run's page has one
        said = [answer.question, f"{answer.figure} {answer.figure_about}"]
        said += [sentence.text for sentence in answer.sentences]
        plot = next(iter(self.plots.values()), None)
        shown = "".join(f"<p>{escape(text)}</p>" for text in said)
        return (
            f"<h3>{escape(self._page.title)}</h3>{shown}{'' if plot is None else plot._repr_svg_()}"
        )

    def __repr__(self) -> str:
        return f"<results of {self.run.header.scenario}/{self.run.header.run}>"


@dataclass(frozen=True)
class Plot:
    """A plot of the report, which a notebook shows as it is."""

    figure: Figure

    @property
    def table(self) -> pd.DataFrame | None:
        """The values that it shows, if the report has them as a table."""
        return None if self.figure.table is None else _frame(self.figure.table)

    def _repr_svg_(self) -> str:
        return figure_svg(self.figure)

    def _repr_png_(self) -> bytes:
        return draw(self.figure.drawing, WIDE_PX).png()

    def __repr__(self) -> str:
        return f"<plot {self.figure.name}: {self.figure.title}>"


def results(run: str | Path = LATEST, folder: str | Path = "results") -> Results:
    """A run by its folder, its id, its scenario's name (the latest run), or "latest".

    `folder` holds the runs. Raises RunError if there is no such run, or if it is damaged or was edited.
    """
    return Results(load_run(resolve_run(str(run), Path(folder))))


def list_results(folder: str | Path = "results") -> pd.DataFrame:
    """All runs in `folder`, oldest first: scenario, run, state, started_at, path, problem.

    `problem` says why a run cannot be read, else it is None.
    """
    rows = []
    for entry in list_runs(Path(folder)):
        header = entry.header
        known = (None, None) if header is None else (header.state, header.started_at)
        rows.append((entry.scenario, entry.run, *known, str(entry.path), entry.problem))
    columns = ["scenario", "run", "state", "started_at", "path", "problem"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def _frame(table: Table) -> pd.DataFrame:
    keys = [column.key for column in table.columns]
    return pd.DataFrame([[raw_value(cell) for cell in row] for row in table.rows], columns=keys)
