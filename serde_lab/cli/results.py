"""Implements `list`, `show`, `report`, `seal` and `references`: prints and remakes runs, writes reports.

All but `references` work without Java and pyspark. That command remakes the runs that documents quote, where
they have become stale: an instrument behind their quoted columns changed, their scenario did, or they were
made beside other work. What an earlier call has measured, whole or in part, is used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import Format, emit, emit_line, print_json, print_rows, say
from serde_lab.errors import LabError, RunError, UsageError, worst

if TYPE_CHECKING:
    from serde_lab.runs.model import Run, RunHeader
    from serde_lab.scenario.model import Scenario
    from serde_lab.serde.registry import Description

Results = Annotated[Path, typer.Option(help="Folder of runs.")]
RunName = Annotated[
    str,
    typer.Argument(
        help="A run: its path, its id, a scenario's name (its newest run), or `latest`."
    ),
]


def register(app: typer.Typer) -> None:
    app.command("list")(list_)
    app.command("show")(show)
    app.command("report")(report)
    app.command("seal")(seal)
    app.command("references")(references)


def list_(
    results: Results = Path("results"),
    scenarios: Annotated[Path | None, typer.Option(help="Folder of scenarios.")] = None,
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead of scenarios.")] = False,
    strategies: Annotated[
        bool,
        typer.Option(
            "--strategies",
            help="List the strategies, plug-ins included, with the types that each supports.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.TABLE,
) -> int:
    """List scenarios, runs or strategies."""
    if runs and strategies:
        raise UsageError("--runs and --strategies exclude each other")
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
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.TABLE,
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
    if format is Format.JSON:
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
        from serde_lab.report.render import render_quotations

        emit(f"quotations: {render_quotations(quoted_in)}")
        return 0
    from serde_lab.cli.run_table import say_messages, write_report
    from serde_lab.runs.directory import load_run, resolve_run

    loaded = load_run(resolve_run(run, results))
    say_messages(loaded)
    emit_line(f"report: {write_report(loaded, Path('reports'), out, format, figures)}")
    return loaded.exit_status


def seal(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Runs, or baseline files.")],
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


DOCUMENTS = ("README.md", "DEVELOPERS.md", "docs/*.md")
_CELL_S = 60
_CHANGED = "its scenario changed"


@dataclass(frozen=True, slots=True)
class Reference:
    """A quoted run, why it is stale ("" if it is fresh), and the minutes that it takes.

    They are the run's own, or an estimate if that is more and its scenario asks for something else by now.
    """

    run: Path
    stale: str
    minutes: int


def references(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only runs of these scenarios; without any, of all.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is stale and how long it takes; no run.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="The checkout whose documents quote runs.")] = Path(),
) -> int:
    """Remake the stale runs that documents quote.

    Says beforehand what is stale and how many minutes it takes. A call that was stopped goes on where it
    stopped. Exits with 1 if a run failed or was made beside other work: its old quotation stays, marked.
    """
    documents = sorted({path for pattern in DOCUMENTS for path in folder.glob(pattern)})
    found = quoted(documents, scenarios or ())
    if not found:
        raise UsageError(f"no document of {folder.absolute()} quotes a run: {', '.join(DOCUMENTS)}")
    for one in found:
        time = f" (about {one.minutes} minutes)" if one.stale else ""
        emit_line(f"{one.run}: {one.stale or 'fresh'}{time}")
    stale = [one for one in found if one.stale]
    total = sum(one.minutes for one in stale)
    emit_line(f"{len(stale)} of {len(found)} runs to remake, about {total} minutes")
    if dry_run:
        return 0
    return worst([_remade(one, documents) for one in stale])


def quoted(documents: Iterable[Path], scenarios: Collection[str] = ()) -> list[Reference]:
    """The runs that `documents` quote, each once; those of `scenarios` alone, if any are named.

    Raises RunError for a run that is missing or damaged, UsageError for a scenario of which none is quoted.
    """
    from serde_lab.report.render import quotations
    from serde_lab.runs.directory import load_run

    metrics: dict[Path, dict[str, None]] = {}
    for document in documents:
        for path, shown in quotations(document):
            # documents of two folders name one run by two paths
            metrics.setdefault(Path(os.path.normpath(path)), {}).update(dict.fromkeys(shown))
    known = {path.parent.name for path in metrics}
    if unknown := sorted(set(scenarios) - known):
        quoted_ones = ", ".join(sorted(known))
        raise UsageError(f"no run of {', '.join(unknown)} is quoted; quoted are {quoted_ones}")
    found = []
    for path, names in metrics.items():
        if scenarios and path.parent.name not in scenarios:
            continue
        run = load_run(path)
        reasons = list(_why_stale(run, names))
        minutes = _taken(run)
        if _CHANGED in reasons:
            minutes = max(minutes, _estimated(run.header))
        found.append(Reference(path, "; ".join(reasons), minutes))
    return found


def _why_stale(run: Run, metrics: Iterable[str] | None = None) -> Iterator[str]:
    """Why a run is stale for these metrics, or for any."""
    from serde_lab.analysis.drift import other_work
    from serde_lab.report.run.provenance import older_instruments
    from serde_lab.scenario.identity import asked, asked_of

    older = older_instruments(run.header, *([] if metrics is None else [metrics]))
    if older:
        yield f"older measuring code: {', '.join(older)}"
    yield from other_work(run)
    try:
        scenario = _scenario(run.header)
    except LabError as exc:
        yield f"its scenario cannot be loaded: {exc}"
        return
    if asked(scenario) != asked_of(run.header.scenario_content):
        yield _CHANGED


def _scenario(header: RunHeader) -> Scenario:
    """The scenario of a run as it is today, with the run's own changes."""
    from serde_lab.scenario.loading import load_scenario

    return load_scenario(header.scenario, overrides=_overrides(header))


def _overrides(header: RunHeader) -> list[str]:
    return [f"{key}={value}" for key, value in (header.settings.get("overrides") or {}).items()]


def _estimated(header: RunHeader) -> int:
    """Minutes of the scenario as it is today, from its number of rows."""
    from serde_lab.lab.needs import estimate_run
    from serde_lab.lab.runner import chosen_points

    points = chosen_points(_scenario(header), header.arms_asked_for)
    # no earlier run of it: that one asked for something else
    seconds, _ = estimate_run(points, Path(os.devnull))
    return max(1, ceil(seconds / 60))


def _taken(run: Run) -> int:
    """From the start of the run to the start of its last cell, and one cell more."""
    last = max((cell.started_at for cell in run.cells), default=run.header.started_at)
    begun, ended = (datetime.fromisoformat(time) for time in (run.header.started_at, last))
    return max(1, ceil(((ended - begun).total_seconds() + _CELL_S) / 60))


def _remade(reference: Reference, documents: Sequence[Path]) -> int:
    """Measure a run again and quote the new one; returns the exit status."""
    from serde_lab.analysis.drift import other_work
    from serde_lab.cli.console import RunProgress
    from serde_lab.lab.run_settings import RunSettings
    from serde_lab.lab.runner import resumed, run_scenario
    from serde_lab.report.render import render_quotations
    from serde_lab.runs.directory import load_header, load_run

    header = load_header(reference.run)
    results = reference.run.parent.parent
    begun = _begun(reference.run, header)
    new = begun
    if begun is None or load_header(begun).state != "complete":
        settings = RunSettings(
            results=results,
            overrides=tuple(_overrides(header)),
            arms=header.arms_asked_for,
            isolate_peers=bool(header.settings.get("isolate_peers")),
            require_peers=any(entry.kind == "peer" for entry in header.arms),
        )
        scenario = _scenario(header) if begun is None else resumed(begun)
        with RunProgress(scenario.name) as progress:
            outcome = run_scenario(scenario, settings, progress, begun)
        if outcome.exit_status:
            say(f"{outcome.path} failed: {reference.run} stays quoted")
            return outcome.exit_status
        new = outcome.path
    assert new is not None
    if disturbed := other_work(load_run(new)):
        say(f"{new} cannot be quoted: {'; '.join(disturbed)}; {reference.run} stays quoted")
        return 1
    for document in documents:
        text = document.read_text(encoding="utf-8")
        old_name, new_name = (f"{header.scenario}/{run.name}" for run in (reference.run, new))
        if old_name in text:
            document.write_text(text.replace(old_name, new_name), encoding="utf-8")
            render_quotations(document)
    emit_line(f"{new} is quoted instead of {reference.run}")
    return 0


def _begun(old: Path, header: RunHeader) -> Path | None:
    """The newest later run that asks the same as `old`, whole or interrupted; None without one."""
    from serde_lab.measure.code_version import code_version
    from serde_lab.runs.directory import load_header, load_run

    def asks(one: RunHeader) -> tuple[object, ...]:
        return _overrides(one), one.arms_asked_for, one.settings.get("isolate_peers")

    def alike(path: Path) -> bool:
        try:
            later = load_header(path)
        except RunError:
            return False
        if later.state == "running" or asks(later) != asks(header):
            return False
        # only the code that began a run goes on with it
        code = code_version(later.scenario_content["measure"]["exchange"])
        goes_on = later.state == "complete" or later.code_version == code
        return goes_on and not list(_why_stale(load_run(path)))

    later = sorted(path for path in old.parent.iterdir() if path.name > old.name)
    return next((path for path in reversed(later) if alike(path)), None)
