"""`list`, `show`, `report` and `seal`: what was measured, printed, drawn or vouched for.

Owns the printing; the figures come from `runs`, the page from `report`. Works without Java and pyspark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import Format, emit, print_json, print_rows, say, tell

if TYPE_CHECKING:
    from serde_lab.runs.model import Run

Results = Annotated[Path, typer.Option(help="Where runs are kept.")]
RunName = Annotated[
    str, typer.Argument(help="A run: its path, its id, a scenario's name, or `latest`.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("list")(list_)
    app.command("show")(show)
    app.command("report")(report)
    app.command("seal")(seal)


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
    """Print the figures of a run: one row an arm, or everything with --format json.

    Exit 4 on a wrong answer, 1 where an arm's contents are unchecked: no timing of such an arm is shown.
    """
    from serde_lab.cli.run_table import print_run
    from serde_lab.runs.directory import load_run
    from serde_lab.runs.listing import resolve_run
    from serde_lab.runs.summary import exit_status, summarise

    loaded = load_run(resolve_run(run, results))
    _say_messages(loaded)
    summary = summarise(loaded)
    if format is Format.JSON:
        print_json(summary)
    else:
        print_run(summary, format)
    return exit_status(summary)


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
    """Write a run's report and print its path; the exit status is that of `show`."""
    if quoted_in is not None:
        from serde_lab.report.render import render_quotations

        emit(f"quotations: {render_quotations(quoted_in)}")
        return 0
    from serde_lab.cli.run_table import write_report
    from serde_lab.runs.directory import load_run
    from serde_lab.runs.listing import resolve_run
    from serde_lab.runs.summary import exit_status, summarise

    loaded = load_run(resolve_run(run, results))
    _say_messages(loaded)
    write_report(loaded, Path("reports"), out, format, figures)
    return exit_status(summarise(loaded))


def seal(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="Runs, or files of baselines.")
    ],
    results: Results = Path("results"),
) -> int:
    """Give runs and baselines of older versions a digest: you vouch that they are as they were measured.

    Without one `gate` and `baseline save` refuse them. One that does not fit is never replaced.
    """
    from serde_lab.gate.baseline import seal as seal_baselines
    from serde_lab.runs.directory import seal_run
    from serde_lab.runs.listing import resolve_run

    for path in paths:
        if path.endswith(".json") and Path(path).name != "run.json":
            names = seal_baselines(Path(path))
            what = f"sealed {', '.join(names)}" if names else "sealed already"
        else:
            what = "sealed" if seal_run(resolve_run(path, results)) else "sealed already"
        tell(f"{path}: {what}")
    return 0


def _say_messages(run: Run) -> None:
    for message in run.messages:
        say(f"serde-lab: {message}", style="yellow")
