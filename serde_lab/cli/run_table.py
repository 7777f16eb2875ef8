"""A run at the end of a command: the table of arms, and the report's path.

Owns the joining of `runs` and `report` for the terminal. Must hold no figures of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serde_lab.cli.console import Format, emit, print_rows, stderr
from serde_lab.runs.arm_table import COLUMNS, arm_rows


def print_run(summary: Mapping[str, Any], format: Format) -> None:
    """One row an arm: seconds, rows/s, SerDe CPU, share, shuffle MB, ratio to the reference."""
    rows = [list(row.cells()) for row in arm_rows(summary)]
    print_rows(COLUMNS, rows, format, title=f"{summary['scenario']} {summary['run']}")


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
