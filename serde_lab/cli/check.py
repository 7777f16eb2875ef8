"""Implements `doctor` and `validate`: checks of this machine, a scenario or a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import (
    Format,
    emit_line,
    fetch_hudi_bundle,
    fetch_sets_of_jars,
    print_json,
    print_rows,
    say,
)
from serde_lab.cli.results import Results, Scenarios
from serde_lab.errors import TableError, UsageError

if TYPE_CHECKING:
    from serde_lab.table.validation.finding import Kind, TableFinding

_MOST_PLACES = 3
_MARKS = {"ok": "ok", "warning": "warn", "missing": "MISSING"}


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)
    app.command("validate")(validate)


def doctor(
    results: Results = Path("results"),
    hudi_jar: Annotated[
        str, typer.Option(help="Jar of Apache Hudi's Spark bundle, which peers need.")
    ] = "",
    fetch_hudi: Annotated[
        bool, typer.Option("--fetch-hudi", help="Download the bundle if it is not on this machine.")
    ] = False,
    fetch_kafka: Annotated[
        bool,
        typer.Option(
            "--fetch-kafka",
            help="Download the jars that streams from Kafka need: broker and connector.",
        ),
    ] = False,
    fetch_formats: Annotated[
        bool,
        typer.Option(
            "--fetch-formats",
            help="Download the jars of Delta Lake and Iceberg, which delta_merge and iceberg_merge need.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """Check the prerequisites on this machine.

    Lists what a run needs, what was found, and what to do if something is missing. Exits with 1 if runs are
    impossible.
    """
    from serde_lab.lab.jars import manifest
    from serde_lab.lab.prerequisites import examine

    if fetch_hudi:
        fetch_hudi_bundle(hudi_jar)
    if fetch_kafka:
        fetch_sets_of_jars(manifest.KAFKA_BROKER, manifest.KAFKA_CONNECTOR)
    if fetch_formats:
        fetch_sets_of_jars(*manifest.FORMATS.values())
    findings = examine(results, hudi_jar)
    rows = [[_MARKS[f.level], f.name, f.found, f.remedy] for f in findings]
    print_rows(["", "prerequisite", "found", "what to do"], rows, format)
    missing = [f.name for f in findings if f.level == "missing"]
    if missing:
        say(
            f"serde-lab: runs are impossible here, since these are missing: {', '.join(missing)}",
            style="bold red",
        )
        return 1
    return 0


def validate(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="A scenario (name or .toml file), or a Hudi table (folder or URL)."
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a scenario key. Can be repeated."),
    ] = None,
    scenarios: Scenarios = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Read rows too: all rows of a table; the keys and a sample of a scenario's input.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """Check a scenario or a Hudi table.

    Checks the keys of a scenario, its options and their combinations, without running it. With --deep, checks
    the input rows too: null and repeated keys, partition values, and whether every strategy can encode and
    decode rows of these types.

    A table may come from any writer (version 6, 8 or 9) and is not changed. Each finding states its severity,
    its effect on readers and its repair. Exits with 4 if rows could be lost or wrong.
    """
    if "://" in what or (Path(what).is_dir() and not what.endswith(".toml")):
        if set_ or scenarios is not None:
            raise UsageError(f"{what} is a table: --set and --scenarios are for scenarios")
        return _validate_table(what, deep, format)
    from serde_lab.lab.plan import check_scenario, in_words_of_scenarios
    from serde_lab.lab.run_points import check_data, check_user_rows, try_arms
    from serde_lab.scenario.loading import load_scenario
    from serde_lab.scenario.sweep import tables_of

    scenario = load_scenario(what, overrides=set_ or (), folder=scenarios)
    for table in tables_of(scenario).values():
        check_scenario(table)
        with in_words_of_scenarios():
            check_data(table)
            if deep:
                check_user_rows(table)
                try_arms(table)
    if format == "json":
        print_json({"scenario": scenario.name, "valid": True})
    else:
        emit_line(f"{scenario.name}: valid, {len(scenario.arms)} arms")
    return 0


def _validate_table(where: str, deep: bool, format: Format) -> int:
    from serde_lab.table.config import PROPERTIES_PATH
    from serde_lab.table.storage.storage import Storage
    from serde_lab.table.validation.diagnosis import validate_table
    from serde_lab.verify.readers import HudiRs

    def counted(url: str) -> int:
        return sum(batch.num_rows for batch in HudiRs(url).batches())

    storage = Storage.open(where)
    if storage.list_folder(".hoodie") == ([], []):
        raise TableError(f"{where} is not a Hudi table: it has no {PROPERTIES_PATH}")
    found = validate_table(storage, deep, {"hudi-rs": counted})
    if format == "json":
        print_json(found.to_dict())
        return 4 if found.rows_at_stake else 0
    if format == "table":
        kinds: dict[Kind, list[TableFinding]] = {}
        for finding in found.findings:
            kinds.setdefault(finding.kind, []).append(finding)
        for kind, findings in kinds.items():
            _print_kind(kind, findings)
    else:
        columns = ["severity", "finding", "where", "detail", "effect on readers", "repair"]
        rows = [
            [f.severity.value, f.name, f.where, f.detail, f.kind.effect, f.kind.cure]
            for f in found.findings
        ]
        print_rows(columns, rows, format)
    for reader, count in found.rows.items():
        say(f"{reader}: {count:,} rows")
    verdict = "rows could be lost or wrong" if found.rows_at_stake else "sound"
    number = len(found.findings)
    say(f"{found.table}: {verdict}, {number} finding{'' if number == 1 else 's'}")
    return 4 if found.rows_at_stake else 0


def _print_kind(kind: Kind, findings: Sequence[TableFinding]) -> None:
    """Print a kind of damage with its first occurrences."""
    places = f"{len(findings)} places" if len(findings) > 1 else "1 place"
    emit_line(f"{kind.severity.value}: {kind.label}, {places}")
    emit_line(f"  effect on readers: {kind.effect}")
    emit_line(f"  repair: {kind.cure}")
    for finding in findings[:_MOST_PLACES]:
        emit_line(f"  {finding.where}: {finding.detail}")
    if len(findings) > _MOST_PLACES:
        emit_line(f"  and {len(findings) - _MOST_PLACES} more; --format csv or json lists all")
