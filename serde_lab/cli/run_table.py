"""Prints the tables that end a command about a run, and writes the run's report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serde_lab.analysis.arm_table import COLUMNS, RAW_COLUMNS, arm_rows
from serde_lab.analysis.codec_costs import records_of
from serde_lab.analysis.run_values import RunValues, run_values
from serde_lab.cli.console import Format, emit_line, print_rows, print_table, say
from serde_lab.report.page import Table
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.model import Run

_OF_A_REPORT = (
    "times-the-floor",
    "outside",
    "search-outcome",
    "search-trials",
    "times-faster",
    "hudi-steps",
    "growth",
    "shapes",
    "stream-latency",
    "rfc84",
    "codec-record-costs",
    "codec-types",
    "codec-widths",
)


def print_run(run: Run, form: Format) -> None:
    """One row per arm: seconds with their range, ratio to the reference, SerDe CPU, shuffle, checks.

    Problems of an arm, and the rounds that an undecided ratio needs, follow on separate lines, then those
    tables of the report that some runs have: of the floor of the work, of what the clock leaves out, of
    peers, a sweep, a stream, of RFC-84's workload. A codec run has only such tables. CSV is a single table
    of raw values.
    """
    values = run_values(run)
    if form is Format.CSV:
        print_rows(*raw_table(values), form)
        return
    name = f"{run.header.scenario} {run.header.run}"
    arms = arm_rows(values.summary)
    if not values.derived.codec_costs:
        print_rows(COLUMNS, [row.cells() for row in arms], form, title=name)
    elif form is Format.TABLE:
        emit_line(name)
    for row in arms:
        if row.remark or row.doubt:
            emit_line(f"{row.figures['arm']}: {row.remark or row.doubt}")
    for table in report_tables(run):
        print_table(table, form, table.caption)


def raw_table(values: RunValues) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """The main table with unrounded values, and units in its headings."""
    costs = records_of(values.derived.codec_costs)
    if not costs:
        return RAW_COLUMNS, [row.raw() for row in arm_rows(values.summary)]
    columns = ("arm", "rows", "write_us", "read_us", "both_us", "bytes")
    return columns, [[getattr(cost, name) for name in columns] for cost in costs]


def report_tables(run: Run) -> list[Table]:
    """The tables of the run's report that a terminal shows too."""
    return [table for table in run_page(run).tables() if table.name in _OF_A_REPORT]


def write_report(
    run: Run, reports: Path, out: Path | None, format: str, figures: Path | None
) -> Path:
    """Write the report of a run, print its path, and return it."""
    from serde_lab.report.render import figures as write_figures
    from serde_lab.report.render import render_run

    target = out or reports / f"{run.path.parent.name}-{run.path.name}.{format}"
    render_run(run, target, format)
    if figures is not None:
        for path in write_figures(run, figures):
            say(f"figure: {path}")
    emit_line(f"report: {target.absolute()}")
    return target
