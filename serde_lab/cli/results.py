"""`list`, `show` and `report`: what was measured, printed or drawn.

Owns the printing; the figures come from `runs`, the page from `report`. Works without Java and pyspark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from serde_lab.cli.console import Format, emit, print_json, print_rows, stderr

Results = Annotated[Path, typer.Option(help="Where runs are kept.")]
RunName = Annotated[
    str, typer.Argument(help="A run: its path, its id, a scenario's name, or `latest`.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("list")(list_)
    app.command("show")(show)
    app.command("report")(report)


def list_(
    results: Results = Path("results"),
    scenarios: Annotated[Path | None, typer.Option(help="Folder of scenarios.")] = None,
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead of scenarios.")] = False,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """List the scenarios there are, or with --runs the runs that were made."""
    if runs:
        from serde_lab.runs.listing import list_runs

        entries = list_runs(results)
        print_rows(
            ["scenario", "run", "state", "path"],
            [
                [e.scenario, e.run, e.header.state if e.header else "damaged", str(e.path)]
                for e in entries
            ],
            format,
        )
        return 0
    from serde_lab.scenario.loading import list_scenarios

    found = list_scenarios(scenarios)
    print_rows(["scenario", "title"], [[s.name, s.title] for s in found], format)
    return 0


def show(
    run: RunName = "latest",
    results: Results = Path("results"),
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """Print the figures of a run: one row an arm, or everything with --format json."""
    from serde_lab.cli.run_table import print_run
    from serde_lab.runs.directory import load_run
    from serde_lab.runs.listing import resolve_run
    from serde_lab.runs.summary import summarise

    loaded = load_run(resolve_run(run, results))
    for message in loaded.messages:
        stderr.print(f"serde-lab: {message}", style="yellow")
    if loaded.header.state == "running":
        done = len(loaded.complete_cells)
        stderr.print(f"serde-lab: this run is still being measured; {done} cells ended so far")
    elif loaded.header.state == "interrupted":
        stderr.print(
            f"serde-lab: this run was interrupted; `serde-lab run --resume {loaded.path}` goes on",
            style="yellow",
            markup=False,
        )
    summary = summarise(loaded)
    if format is Format.JSON:
        print_json(summary)
    else:
        print_run(summary, format)
    return 4 if any(arm.get("wrong") for arm in summary["arms"]) else 0


def report(
    run: RunName = "latest",
    results: Results = Path("results"),
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write each figure here, as SVG and PNG.")
    ] = None,
    format: Annotated[str, typer.Option(help="html, md, csv or json")] = "html",
    quoted_in: Annotated[
        Path | None,
        typer.Option(
            help="Instead, remake the tables that this Markdown document quotes from runs."
        ),
    ] = None,
) -> int:
    """Write a run's report and print its path."""
    if quoted_in is not None:
        from serde_lab.report.render import render_quotations

        emit(f"quotations: {render_quotations(quoted_in)}")
        return 0
    from serde_lab.cli.run_table import write_report
    from serde_lab.runs.listing import resolve_run

    write_report(resolve_run(run, results), Path("reports"), out, format, figures)
    return 0
