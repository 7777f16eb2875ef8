"""Prints the table of arms at the end of a command, and writes the run's report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from serde_lab.analysis.arm_table import (
    COLUMNS,
    OUTSIDE_ABOUT,
    OUTSIDE_COLUMNS,
    RAW_COLUMNS,
    arm_rows,
    outside_rows,
)
from serde_lab.analysis.codec_costs import COLUMNS as COST_COLUMNS
from serde_lab.analysis.codec_costs import (
    records_of,
    type_cells,
    usual_rows,
    width_cells,
)
from serde_lab.analysis.growth import headings as growth_headings
from serde_lab.analysis.growth import values_of
from serde_lab.analysis.ratios import headings
from serde_lab.analysis.rfc84 import COLUMNS as CLAIM_COLUMNS
from serde_lab.analysis.rfc84 import SOURCE, rounds_said
from serde_lab.analysis.rounding import text
from serde_lab.analysis.summary import Derived
from serde_lab.cli.console import Format, emit_line, print_rows, say
from serde_lab.runs.model import Run

RunTable: TypeAlias = tuple[Sequence[str], Sequence[Sequence[object]], str]


def print_run(summary: Mapping[str, Any], derived: Derived, form: Format) -> None:
    """One row per arm: seconds with their range, ratio to the reference, SerDe CPU, shuffle, checks.

    A run with peers gets a second table, with how many times faster each arm is than each peer; a sweep
    gets one of growth, RFC-84's workload one of its claims. A codec run has different tables. Problems of
    an arm, and the rounds that an undecided ratio needs, follow on separate lines. CSV is a single table of
    raw values.
    """
    if form is Format.CSV:
        print_rows(*raw_table(summary, derived), form)
        return
    for number, (columns, rows, title) in enumerate(run_tables(summary, derived)):
        print_rows(columns, rows, form, title=title)
        if number == 0:
            for row in arm_rows(summary):
                if row.remark or row.doubt:
                    emit_line(f"{row.arm}: {row.remark or row.doubt}")


def raw_table(
    summary: Mapping[str, Any], derived: Derived
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """The main table with unrounded values, and units in its headings."""
    costs = records_of(derived.codec_costs)
    if not costs:
        return RAW_COLUMNS, [row.raw() for row in arm_rows(summary)]
    columns = ("arm", "rows", "write_us", "read_us", "both_us", "bytes")
    return columns, [[getattr(cost, name) for name in columns] for cost in costs]


def run_tables(summary: Mapping[str, Any], derived: Derived) -> Iterator[RunTable]:
    """Headings, rows and title of every table at the end of a run, the main one first."""
    name = f"{summary['scenario']} {summary['run']}"
    costs = derived.codec_costs
    if costs:
        records = sorted(records_of(costs), key=lambda cost: cost.rows)
        yield COST_COLUMNS, [cost.cells() for cost in records], f"{name}: CPU of a record"
        columns, rows = type_cells(costs)
        if rows:
            yield columns, rows, f"all four verbs of a value, batches of {usual_rows(costs):,}"
        columns, rows = width_cells(costs)
        if rows:
            yield columns, rows, "all four verbs of a record of a made-up table"
        return
    yield COLUMNS, [row.cells() for row in arm_rows(summary)], name
    outside = outside_rows(summary)
    if any(times[-1] is not None for _, times in outside):
        rows = [(arm, *(text("seconds", value) for value in times)) for arm, times in outside]
        yield OUTSIDE_COLUMNS, rows, OUTSIDE_ABOUT
    ratios = derived.peer_ratios
    if ratios:
        with_cpu = any(one.cpu is not None for one in ratios)
        rows = [one.cells(with_cpu) for one in ratios]
        yield headings(ratios), rows, "times faster, by commit"
    found = derived.growth
    if found:
        values = values_of(found)
        title = f"growth: seconds = a + b n^k, n = {found[0].key}"
        yield growth_headings(values), [one.cells(values) for one in found], title
    rfc = derived.claims
    if rfc:
        title = f"beside RFC-84 ({SOURCE}), {rounds_said(summary)}"
        yield CLAIM_COLUMNS, [claim.cells() for claim in rfc], title


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
