"""A run at the end of a command: the table of arms, and the report's path.

Owns the joining of `runs` and `report` for the terminal. Must hold no figures of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serde_lab.cli.console import Format, emit, print_rows, stderr
from serde_lab.runs.arm_table import COLUMNS, arm_rows
from serde_lab.runs.peer_ratios import headings, peer_ratios


def print_run(summary: Mapping[str, Any], format: Format) -> None:
    """One row an arm: seconds, rows/s, SerDe CPU, share, shuffle MB, ratio to the reference.

    With peers in the run, a second table has how many times faster each arm is than each peer.
    """
    rows = [list(row.cells()) for row in arm_rows(summary)]
    print_rows(COLUMNS, rows, format, title=f"{summary['scenario']} {summary['run']}")
    ratios = peer_ratios(summary)
    if ratios and format is not Format.CSV:  # one table a file
        cells = [list(one.cells()) for one in ratios]
        print_rows(headings(ratios), cells, format, title="times faster, by commit")


def write_report(
    run: Path, reports: Path, out: Path | None, format: str, figures: Path | None
) -> Path:
    """Write the report of the run at `run`, print its path, and return it."""
    from serde_lab.report.render import figures as write_figures
    from serde_lab.report.render import render_run

    target = out or reports / f"{run.parent.name}-{run.name}.{format}"
    render_run(run, target, format)
    if figures is not None:
        for path in write_figures(run, figures):
            stderr.print(f"figure: {path}")
    emit(f"report: {target.absolute()}")
    return target
