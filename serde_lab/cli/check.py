"""`doctor` and `validate`: is this machine, this scenario, this table sound?

Owns the printing of findings. Must hold no logic of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from serde_lab.cli.console import Format, print_json, print_rows, stderr, stdout

_MARKS = {"ok": "ok", "warning": "warn", "missing": "MISSING"}


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("doctor")(doctor)
    app.command("validate")(validate)


def doctor(
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    hudi_jar: Annotated[str, typer.Option(help="Apache Hudi's bundle, for peers.")] = "",
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """Say what a run needs, what is here, and what to do where something is missing.

    Exit status 1 if the lab cannot run.
    """
    from serde_lab.lab.doctor import examine

    findings = examine(results, hudi_jar)
    rows = [[_MARKS[f.level], f.name, f.found, f.remedy] for f in findings]
    print_rows(["", "prerequisite", "found", "what to do"], rows, format)
    missing = [f.name for f in findings if f.level == "missing"]
    if missing:
        stderr.print(f"serde-lab: the lab cannot run here: {', '.join(missing)}", style="bold red")
        return 1
    return 0


def validate(
    what: Annotated[str, typer.Argument(help="A scenario (name or .toml), or a table's folder.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a scenario key.")
    ] = None,
    scenarios: Annotated[Path | None, typer.Option(help="Folder of scenarios.")] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """Check a scenario without running it.

    A scenario is read, its options are bound and its impossible combinations are refused, each in a
    sentence that names file and key.
    """
    from serde_lab.lab.plan import check_scenario
    from serde_lab.scenario.loading import load_scenario

    scenario = load_scenario(what, overrides=set_ or (), folder=scenarios)
    check_scenario(scenario)
    if format is Format.JSON:
        print_json({"scenario": scenario.name, "valid": True})
    else:
        stdout.print(f"{scenario.name}: valid, {len(scenario.arms)} arms")
    return 0
