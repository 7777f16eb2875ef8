"""Implements `list`, `show`, `report` and `seal`: prints what was measured, draws it, or vouches for it.

Works without Java and pyspark.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import Format, emit, print_json, print_rows, say, tell
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.runs.model import Run
    from serde_lab.serde.registry import Description

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
    strategies: Annotated[
        bool,
        typer.Option("--strategies", help="List strategies, plug-ins too, and the types of each."),
    ] = False,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """List the scenarios, the stored runs (--runs), or the strategies (--strategies)."""
    if runs and strategies:
        raise UsageError("--runs and --strategies are two lists: ask for one")
    if strategies:
        _list_strategies(format)
        return 0
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


def _list_strategies(format: Format) -> None:
    from serde_lab.serde.registry import describe, names

    found = [describe(name) for name in names()]
    if format is Format.JSON:
        print_json([asdict(one) for one in found])
        return
    columns = ["strategy", "module", "executions", "rows a frame", "types", "losses"]
    rows = [
        [
            one.name,
            one.origin,
            ", ".join(one.executions),
            one.rows_per_frame if one.executions else "",
            one.problem or _types(one),
            "; ".join(f"{what}: {how}" for what, how in one.losses.items()) or "none",
        ]
        for one in found
    ]
    print_rows(columns, rows, format)


def _types(one: Description) -> str:
    if not one.refused:
        return f"all {len(one.types)}: {', '.join(one.types)}"
    return f"{', '.join(one.types) or 'none'}; not {', '.join(one.refused)}"


def show(
    run: RunName = "latest",
    results: Results = Path("results"),
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """Print the figures of a run: one row per arm, or everything with --format json.

    Exit 4 on a wrong answer, 1 if an arm's contents are unchecked; such an arm's timing is not shown.
    """
    from serde_lab.analysis.summary import exit_status, summarise
    from serde_lab.cli.run_table import print_run
    from serde_lab.runs.directory import load_run
    from serde_lab.runs.listing import resolve_run

    loaded = load_run(resolve_run(run, results))
    _say_messages(loaded)
    if loaded.header.state == "running":
        done = len(loaded.complete_cells)
        say(f"serde-lab: this run is still being measured; {done} cells ended so far")
    elif loaded.header.state == "interrupted":
        say(
            f"serde-lab: this run was interrupted; `serde-lab run --resume {loaded.path}` goes on",
            style="yellow",
        )
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
    from serde_lab.analysis.summary import exit_status, summarise
    from serde_lab.cli.run_table import write_report
    from serde_lab.runs.directory import load_run
    from serde_lab.runs.listing import resolve_run

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
    """Add a digest to runs and baselines of older versions: you vouch that they are as measured.

    Without a digest `gate` and `baseline save` refuse them. A digest that does not match is never replaced.
    """
    from serde_lab.gate.baseline.store import seal as seal_baselines
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
