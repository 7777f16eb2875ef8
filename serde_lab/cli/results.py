"""Implements `list`, `show`, `report` and `seal`: prints runs and writes reports, without Java."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import Format, emit, emit_line, print_json, print_rows, say
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.serde.registry import Description

Results = Annotated[Path, typer.Option(help="Folder of runs.")]
Scenarios = Annotated[
    Path | None,
    typer.Option("--scenarios", help="Folder of scenarios, by default serde_lab's own."),
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its path, its id, a scenario's name (its newest run), or `latest`.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("list")(list_)
    app.command("show")(show)
    app.command("report")(report)
    app.command("seal")(seal)


def list_(
    results: Results = Path("results"),
    scenarios: Scenarios = None,
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead of scenarios.")] = False,
    strategies: Annotated[
        bool,
        typer.Option(
            "--strategies",
            help="List the strategies, plug-ins included, with the types that each supports.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """List scenarios, runs or strategies."""
    if runs and strategies:
        raise UsageError("--runs and --strategies exclude each other")
    if scenarios is not None and (runs or strategies):
        raise UsageError("--runs and --strategies list no scenarios: leave out --scenarios")
    if results != Path("results") and not runs:
        raise UsageError("--results is for --runs alone")
    if strategies:
        _list_strategies(format)
        return 0
    if runs:
        from serde_lab.runs.directory import list_runs

        entries = list_runs(results)
        print_rows(
            ["scenario", "run", "state", "path"],
            [
                [e.scenario, e.run, e.header.state if e.header else "damaged", str(e.path)]
                for e in entries
            ],
            format,
        )
        if not entries:
            say(f"serde-lab: there is no run under {results}")
        return 0
    from serde_lab.scenario.loading import list_scenarios

    found = list_scenarios(scenarios)
    print_rows(["scenario", "title"], [[s.name, s.title] for s in found], format)
    return 0


def _list_strategies(format: Format) -> None:
    from serde_lab.serde.registry import describe, names

    found = [describe(name) for name in names()]
    if format == "json":
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
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """Print the results of a run.

    Prints one row per arm, or everything with --format json. The exit status is that of `run`: 4 on a wrong
    answer, and 1 if an arm raised, its tables were not checked, or nothing was measured. The timings of such
    arms are not shown.
    """
    from serde_lab.analysis.summary import summarise
    from serde_lab.cli.run_table import print_run, say_messages
    from serde_lab.runs.directory import load_run, resolve_run

    loaded = load_run(resolve_run(run, results))
    say_messages(loaded)
    if loaded.header.state == "running":
        done = len(loaded.complete_cells)
        say(f"serde-lab: this run is still in progress; {done} cells are finished")
    elif loaded.header.state == "interrupted":
        say(
            f"serde-lab: this run was interrupted; `serde-lab run --resume {loaded.path}` continues it",
            style="yellow",
        )
    if format == "json":
        print_json(summarise(loaded))
    else:
        print_run(loaded, format)
    return loaded.exit_status


def report(
    run: RunName = "latest",
    results: Results = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="File to write, by default reports/SCENARIO-RUN.FORMAT.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the plots, as SVG and PNG.")
    ] = None,
    format: Annotated[str, typer.Option(help="Output format: html, md, csv or json.")] = "html",
    quoted_in: Annotated[
        Path | None,
        typer.Option(
            help="Write no report, but update the tables that this Markdown file quotes from runs."
        ),
    ] = None,
) -> int:
    """Write the report of a run.

    Prints the path of the report. The exit status is that of `show`.
    """
    if quoted_in is not None:
        if (run, out, figures, format) != ("latest", None, None, "html"):
            raise UsageError("--quoted-in takes no RUN, --out, --figures or --format")
        from serde_lab.report.quotations import render_quotations

        emit(f"quotations: {render_quotations(quoted_in)}")
        return 0
    from serde_lab.cli.run_table import say_messages, write_report
    from serde_lab.runs.directory import load_run, resolve_run

    loaded = load_run(resolve_run(run, results))
    say_messages(loaded)
    emit_line(f"report: {write_report(loaded, Path('reports'), out, format, figures)}")
    return loaded.exit_status


def seal(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Runs, or baseline files.")],
    results: Results = Path("results"),
) -> int:
    """Add digests to runs of older versions.

    `gate` and `baseline save` refuse runs and baselines without a digest. Only add one if you know that
    nobody changed the files since the measurement. An existing digest is never replaced.
    """
    from serde_lab.gate.baseline.store import seal as seal_baselines
    from serde_lab.runs.directory import resolve_run, seal_run

    for path in paths:
        if path.endswith(".json") and Path(path).name != "run.json":
            names = seal_baselines(Path(path))
            what = f"sealed {', '.join(names)}" if names else "sealed already"
        else:
            what = "sealed" if seal_run(resolve_run(path, results)) else "sealed already"
        emit_line(f"{path}: {what}")
    return 0
