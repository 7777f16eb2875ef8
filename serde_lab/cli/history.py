"""Implements `history`: shows a scenario's results over time, and acknowledges steps in them.

Works without Java and pyspark.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from serde_lab.cli.console import Format, emit
from serde_lab.cli.judge import Out, Results, wrote
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.gate.history import History


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("history")(history)


def history(
    scenario: Annotated[str, typer.Argument(help="A scenario's name.")],
    results: Results = Path("results"),
    arm: Annotated[list[str] | None, typer.Option(help="These arms only.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="These metrics.")] = None,
    machine_class: Annotated[str, typer.Option(help="Runs of this machine class only.")] = "",
    acknowledge: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Accept the steps first seen in RUN, of --arm and --metric if given.",
        ),
    ] = "",
    why: Annotated[str, typer.Option(help="Why it is accepted; kept in the file.")] = "",
    by: Annotated[str, typer.Option(help="Who accepts it; kept in the file.")] = "",
    acknowledgements: Annotated[
        Path | None, typer.Option(help="Where they are kept; RESULTS/acknowledged by default.")
    ] = None,
    report: Out = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """Show a scenario's results over time, with step changes and who acknowledged them.

    Example: serde-lab history smoke --acknowledge 20260102T030405Z --arm avro --why "checksums"
    """
    from serde_lab.gate.history import acknowledge_steps
    from serde_lab.gate.history import history as history_of
    from serde_lab.gate.output.documents import history_document
    from serde_lab.gate.output.other import render_history

    folder = acknowledgements or results / "acknowledged"

    def read() -> History:
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
        who = by or getpass.getuser()
        chosen = {"arms": tuple(arm or ()), "metrics": tuple(metric or ())}
        acknowledge_steps(found, folder, run=acknowledge, by=who, why=why, **chosen)
        found = read()
    elif why or by:
        raise UsageError("--why and --by say something of --acknowledge RUN, which is not given")
    emit(render_history(found, cast(Any, format.value)))
    if report is not None:
        from serde_lab.report.render import render_history as write_history

        wrote(write_history(history_document(found), report))
    return found.exit_status
