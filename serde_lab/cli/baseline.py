"""Implements `baseline` and `history`: keeps what the gate compares with, and shows results over time.

Works without Java and pyspark.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serde_lab.cli.console import Format, emit, print_json, say
from serde_lab.cli.gate import Baselines, ReportFile, named_run, say_report
from serde_lab.cli.results import Results
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.gate.history import ScenarioHistory

Name = Annotated[str, typer.Option(help="The baseline's name.")]
Reason = Annotated[str, typer.Option(help="Reason for the change, stored in the file.")]
By = Annotated[
    str, typer.Option(help="Author of the change, stored in the file; by default the current user.")
]
ScenarioName = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name.")]


def register(app: typer.Typer) -> None:
    baselines = typer.Typer(
        help="Save, list, show, replace and remove baselines of the gate.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, command in (
        ("save", save),
        ("list", list_),
        ("show", show),
        ("promote", promote),
        ("remove", remove),
    ):
        baselines.command(name)(command)
    app.add_typer(baselines, name="baseline")
    app.command("history")(history)


def save(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to save.")],
    name: Name = "main",
    reason: Reason = "",
    by: By = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Save a run as a new baseline."""
    from serde_lab.gate.baseline import store as baseline

    return _report_change(
        baseline.save(
            named_run(run, results),
            baselines or results / "baselines",
            by=_author(by),
            name=name,
            reason=reason,
        )
    )


def list_(
    results: Results = Path("results"),
    baselines: Baselines = None,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """List baselines by machine class, scenario and name."""
    from serde_lab.gate.baseline.store import list_baselines
    from serde_lab.gate.output.list_pages import render_baselines

    folder = baselines or results / "baselines"
    entries = list_baselines(folder)
    emit(render_baselines(entries, format))
    if not entries:
        say(f"serde-lab: there is no baseline under {folder}")
    return 0


def show(
    scenario: ScenarioName,
    name: Name = "main",
    machine_class: Annotated[
        str,
        typer.Option(help="Only the baseline of this machine class, as `baseline list` names it."),
    ] = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Print a baseline and its history as JSON."""
    from serde_lab.gate.baseline.store import show as record

    for file in _files(baselines or results / "baselines", scenario, machine_class):
        print_json(record(file, name))
    return 0


def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run that becomes the baseline.")],
    reason: Reason = "",
    name: Name = "main",
    by: By = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Replace a baseline by a run.

    The reason is stored in the file.
    """
    from serde_lab.gate.baseline import store as baseline

    return _report_change(
        baseline.promote(
            named_run(run, results),
            baselines or results / "baselines",
            by=_author(by),
            reason=reason,
            name=name,
        )
    )


def remove(
    scenario: ScenarioName,
    machine_class: Annotated[str, typer.Option(help="Machine class of the baseline.")],
    reason: Reason,
    name: Name = "main",
    by: By = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Remove a baseline.

    Its history stays in the file.
    """
    from serde_lab.gate.baseline import store as baseline

    return _report_change(
        baseline.remove(
            baselines or results / "baselines",
            machine_class,
            scenario,
            name=name,
            by=_author(by),
            reason=reason,
        )
    )


def _files(folder: Path, scenario: str, machine_class: str) -> list[Path]:
    found = sorted(folder.glob(f"{machine_class or '*'}/{scenario}.json"))
    if not found:
        raise UsageError(f"{folder} has no baseline of {scenario!r}")
    return found


def _author(by: str) -> str:
    """`by`, or the current user. Raises UsageError if that user has no name."""
    try:
        return by or getpass.getuser()
    except (KeyError, OSError) as exc:
        raise UsageError("the current user has no name here", "give one by --by") from exc


def _report_change(change: Any) -> int:
    emit(change.text)
    for note in (*change.loosened, *change.notes):
        say(f"serde-lab: {note}")
    return 0


def history(
    scenario: ScenarioName,
    results: Results = Path("results"),
    arm: Annotated[
        list[str] | None, typer.Option(metavar="ARM", help="Show this arm only. Can be repeated.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC", help="Show this metric only. Can be repeated."),
    ] = None,
    machine_class: Annotated[str, typer.Option(help="Show runs of this machine class only.")] = "",
    acknowledge: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Acknowledge the steps that begin at RUN, limited to --arm and --metric if given.",
        ),
    ] = "",
    why: Annotated[str, typer.Option(help="Reason for --acknowledge, stored in the file.")] = "",
    by: Annotated[
        str,
        typer.Option(
            help="Author of --acknowledge, stored in the file; by default the current user."
        ),
    ] = "",
    acknowledgements: Annotated[
        Path | None,
        typer.Option(help="Folder of acknowledgements, by default RESULTS/acknowledged."),
    ] = None,
    report: ReportFile = None,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """Show a scenario's results over time.

    Marks steps, where results moved to another level and stayed there, and names who acknowledged them.

    Example: serde-lab history smoke --acknowledge 20260102T030405Z --arm avro --why "checksums"
    """
    from serde_lab.gate.history import acknowledge_steps
    from serde_lab.gate.history import history as history_of
    from serde_lab.gate.output.documents import history_document
    from serde_lab.gate.output.list_pages import render_history

    folder = acknowledgements or results / "acknowledged"

    def read() -> ScenarioHistory:
        return history_of(
            scenario,
            results,
            arms=tuple(arm or ()),
            metrics=tuple(metric or ()),
            machine_class=machine_class,
            acknowledgements=folder,
        )

    found = read()
    if acknowledge:
        who = _author(by)
        chosen = {"arms": tuple(arm or ()), "metrics": tuple(metric or ())}
        acknowledge_steps(found, folder, run=acknowledge, by=who, why=why, **chosen)
        found = read()
    elif why or by:
        raise UsageError("--why and --by need --acknowledge RUN")
    emit(render_history(found, format))
    if report is not None:
        from serde_lab.report.render import write_history

        say_report(write_history(history_document(found), report))
    return found.exit_status
