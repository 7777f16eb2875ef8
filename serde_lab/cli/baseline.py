"""Implements `baseline`: saves, lists, shows, promotes and removes the gate's baselines.

Works without Java and pyspark.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from serde_lab.cli.console import Format, emit, print_json, say
from serde_lab.cli.judge import Baselines, Results, named_run
from serde_lab.errors import UsageError

Name = Annotated[str, typer.Option(help="The baseline's name.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the file.")]
By = Annotated[str, typer.Option(help="Who; kept in the file.")]
ScenarioName = Annotated[str, typer.Argument(help="A scenario's name.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    baselines = typer.Typer(
        help="Keep, show and replace what the gate compares with.",
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


def save(
    run: Annotated[str, typer.Argument(help="The run to keep.")],
    name: Name = "main",
    reason: Reason = "",
    by: By = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Keep a run as a new baseline."""
    from serde_lab.gate.baseline import store as baseline

    _told(
        baseline.save(
            named_run(run, results),
            baselines or results / "baselines",
            by=by or getpass.getuser(),
            name=name,
            reason=reason,
        )
    )
    return 0


def list_(
    results: Results = Path("results"),
    baselines: Baselines = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """List baselines by machine class, scenario and name."""
    from serde_lab.gate.baseline.store import list_baselines
    from serde_lab.gate.output.other import render_baselines

    entries = list_baselines(baselines or results / "baselines")
    emit(render_baselines(entries, cast(Any, format.value)))
    return 0


def show(
    scenario: ScenarioName,
    name: Name = "main",
    machine_class: Annotated[str, typer.Option(help="Of this machine class.")] = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Print a baseline and its history, as JSON."""
    from serde_lab.gate.baseline.store import show as record

    for file in _files(baselines or results / "baselines", scenario, machine_class):
        print_json(record(file, name))
    return 0


def promote(
    run: Annotated[str, typer.Argument(help="The run that takes the baseline's place.")],
    reason: Reason = "",
    name: Name = "main",
    by: By = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Replace a baseline by a run; the reason is stored."""
    from serde_lab.gate.baseline import store as baseline

    _told(
        baseline.promote(
            named_run(run, results),
            baselines or results / "baselines",
            by=by or getpass.getuser(),
            reason=reason,
            name=name,
        )
    )
    return 0


def remove(
    scenario: ScenarioName,
    machine_class: Annotated[str, typer.Option(help="Of this machine class.")],
    reason: Reason,
    name: Name = "main",
    by: By = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Remove a baseline; its history stays in the file."""
    from serde_lab.gate.baseline import store as baseline

    _told(
        baseline.remove(
            baselines or results / "baselines",
            machine_class,
            scenario,
            name=name,
            by=by or getpass.getuser(),
            reason=reason,
        )
    )
    return 0


def _files(folder: Path, scenario: str, machine_class: str) -> list[Path]:
    found = sorted(folder.glob(f"{machine_class or '*'}/{scenario}.json"))
    if not found:
        raise UsageError(f"there is no baseline of {scenario!r} under {folder}")
    return found


def _told(change: Any) -> None:
    emit(change.text)
    for note in (*change.loosened, *change.notes):
        say(f"serde-lab: {note}")
