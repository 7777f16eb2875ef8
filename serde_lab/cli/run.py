"""Implements `run`: measures scenarios, shows progress, prints a table and writes a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

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
from serde_lab.errors import SetupError, UsageError, worst
from serde_lab.lab.run_settings import RunSettings
from serde_lab.scenario.model import Arm, Scenario

Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder of generated input data, by default $SERDE_LAB_CACHE or .cache/serde_lab."
    ),
]

_WORTH_SAYING_S = 120.0


def register(app: typer.Typer) -> None:
    app.command("run", cls=_RunCommand)(run)


class _RunCommand(TyperCommand):
    """Parses `--resume` without a run as `--resume latest`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = []
        for word, following in zip(args, [*args[1:], None], strict=False):
            given.append(word)
            if word == "--resume" and (following is None or following.startswith("-")):
                given.append("latest")
        parsed: list[str] = super().parse_args(ctx, given)
        return parsed


def run(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCENARIO", help="Names of scenarios, or .toml files."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a scenario key, e.g. measure.rounds=3. Can be repeated.",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "--arm",
            metavar="ARM",
            help="Measure only this arm, or the arms of this strategy. Can be repeated.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of measured rounds, as --set measure.rounds.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="[RUN]", help="Continue an interrupted run, by default the latest."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the cells and the estimated time; measure nothing."),
    ] = False,
    keep_tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy each arm's final table to DIR/ARM.")
    ] = None,
    replace_: Annotated[
        bool,
        typer.Option("--replace", help="With --keep-tables: replace whatever DIR/ARM holds."),
    ] = False,
    results: Results = Path("results"),
    reports: Annotated[Path, typer.Option(help="Folder of reports.")] = Path("reports"),
    folder: Scenarios = None,
    cache: Cache = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the tables under measurement, by default the system's for temporary files; every"
            " worker must be able to access it."
        ),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master, by default local mode.")] = "",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="KEY=VALUE",
            help="A Spark property. The run records its value, so give no secrets. Can be repeated.",
        ),
    ] = None,
    ship_environment: Annotated[
        bool,
        typer.Option(
            "--ship-environment",
            help="Send this Python environment to the workers of --master, if nothing is installed there.",
        ),
    ] = False,
    worker_python: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="Path of Python on the workers, by default the same as here."
        ),
    ] = "",
    hudi_jar: Annotated[
        str,
        typer.Option(
            help="Jar of Apache Hudi's Spark bundle, which peers need; by default the one that doctor finds."
        ),
    ] = "",
    fetch_hudi: Annotated[
        bool,
        typer.Option(
            "--fetch-hudi",
            help="Download the bundle if a scenario has peers and the bundle is not on this machine.",
        ),
    ] = False,
    fetch_formats: Annotated[
        bool,
        typer.Option(
            "--fetch-formats",
            help="Download the jars of Delta Lake and Iceberg that a scenario's controls need, if they are"
            " not on this machine.",
        ),
    ] = False,
    require_peers: Annotated[
        bool,
        typer.Option(
            "--require-peers",
            help="Fail if an arm's jars are not on this machine, instead of leaving the arm out.",
        ),
    ] = False,
    isolate_peers: Annotated[
        bool,
        typer.Option(
            "--isolate-peers",
            help="Run peers in a Spark session and a process of their own, in turns with the other arms.",
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """Measure scenarios.

    Measures every arm in every round, checks the tables, prints the results and writes a report.

    Examples:

      serde-lab run smoke

      serde-lab run upsert_lineitem --strategy arrow --strategy avro --rounds 3

      serde-lab run my.toml --set data.path=/data/orders --keep-tables out/

      serde-lab run beside_hudi --require-peers

      serde-lab run upsert_lineitem --master spark://host:7077 --work /shared --ship-environment

      serde-lab run --resume
    """
    from serde_lab.lab.jars import manifest
    from serde_lab.lab.run_points import check_settings
    from serde_lab.lab.runner import check_kept_tables
    from serde_lab.scenario.loading import load_scenario

    if replace_ and keep_tables is None:
        raise UsageError("--replace is for --keep-tables")
    overrides = list(set_ or ())
    if rounds is not None:
        overrides.append(f"measure.rounds={rounds}")
    settings = RunSettings(
        results=results,
        cache=cache,
        work=work,
        keep_tables=keep_tables,
        replace=replace_,
        master=master,
        overrides=tuple(overrides),
        conf=_properties(conf or ()),
        ship_environment=ship_environment,
        worker_python=worker_python,
        hudi_jar=hudi_jar,
        require_peers=require_peers,
        isolate_peers=isolate_peers,
    )
    if resume is not None:
        if scenarios or overrides or strategy or dry_run or folder or fetch_hudi or fetch_formats:
            raise UsageError(
                "--resume takes the scenario and its changes from the run: leave out the scenario,"
                " --scenarios, --set, --rounds, --strategy, --dry-run, --fetch-hudi and --fetch-formats"
            )
        return _resume(resume, settings, reports, format)
    if not scenarios:
        raise UsageError("no scenario is named", hint="`serde-lab list` shows the scenarios")
    loaded = [load_scenario(name, overrides=overrides, folder=folder) for name in scenarios]
    for one in loaded:
        check_settings(one, settings)
    check_kept_tables([(one, _arm_names(one, strategy)) for one in loaded], settings)
    if dry_run:
        for scenario in loaded:
            _print_plan(scenario, _arm_names(scenario, strategy), settings, format)
        return 0
    arms = [arm for one in loaded for arm in one.arms]
    if fetch_hudi and not hudi_jar and any(arm.peer for arm in arms):
        _fetch(fetch_hudi_bundle, require_peers)
    if fetch_formats:
        for control, jars in manifest.FORMATS.items():
            if any(arm.control == control for arm in arms):
                _fetch(partial(fetch_sets_of_jars, jars), require_peers)
    statuses = []
    for scenario in loaded:
        chosen = replace(settings, arms=_arm_names(scenario, strategy))
        statuses.append(_measure(scenario, chosen, None, reports, format))
    return worst(statuses)


def _fetch(call: Callable[[], object], required: bool) -> None:
    """Fetch jars; if that fails and they are not required, the other arms can still be measured."""
    try:
        call()
    except SetupError as exc:
        if required:
            raise
        say(f"serde-lab: {exc}", style="yellow")


def _resume(name: str, settings: RunSettings, reports: Path, format: Format) -> int:
    from serde_lab.lab.runner import resumed
    from serde_lab.runs.directory import load_header, resolve_run

    path = resolve_run(name, settings.results)
    arms = load_header(path).arms_of_scenario
    return _measure(resumed(path), replace(settings, arms=arms), path, reports, format)


def _measure(
    scenario: Scenario, settings: RunSettings, resume: Path | None, reports: Path, format: Format
) -> int:
    from serde_lab.analysis.summary import summarise
    from serde_lab.cli.console import RunProgress
    from serde_lab.cli.run_table import print_run, write_report
    from serde_lab.lab.plan import in_words_of_scenarios
    from serde_lab.lab.runner import run_scenario
    from serde_lab.runs.directory import load_run

    if resume is None and scenario.search is None:  # nobody knows how far a search will go
        with in_words_of_scenarios():
            _say_duration(scenario, settings)
    with RunProgress(scenario.name) as progress, in_words_of_scenarios():
        outcome = run_scenario(scenario, settings, progress, resume)
    loaded = load_run(outcome.path)
    if format == "json":
        print_json(summarise(loaded))
    else:
        print_run(loaded, format)
    say(f"results: {outcome.path}")
    # standard output may be JSON, CSV or Markdown
    tell = emit_line if format == "table" else say
    tell(f"report: {write_report(loaded, reports, None, 'html', None)}")
    return outcome.exit_status


def _say_duration(scenario: Scenario, settings: RunSettings) -> None:
    """Say how long a run will take, unless it is short."""
    from serde_lab.lab.estimates import estimate_run
    from serde_lab.lab.runner import chosen_points

    points = chosen_points(scenario, settings.arms)
    seconds, basis = estimate_run(points, settings.results, settings.cache)
    if seconds >= _WORTH_SAYING_S:
        say(f"{scenario.name}: about {seconds / 60:.0f} minutes ({basis})")


def _properties(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise UsageError(f"--conf {key!r}: expected KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _arm_names(scenario: Scenario, chosen: list[str] | None) -> tuple[str, ...]:
    """The arms with the chosen names; a name without an arm means all arms of that strategy or kind."""
    names: list[str] = []
    for one in chosen or ():
        found = [arm.name for arm in scenario.arms if arm.name == one]
        found = found or [arm.name for arm in scenario.arms if arm.subject == one]
        if not found:
            known = ", ".join(arm.name for arm in scenario.arms)
            raise UsageError(f"{scenario.name} has no arm or strategy {one!r}; it has {known}")
        names += found
    return tuple(dict.fromkeys(names))


def _print_plan(
    scenario: Scenario, arms: tuple[str, ...], settings: RunSettings, form: Format
) -> None:
    from serde_lab.lab.estimates import check_disk, estimate_run
    from serde_lab.lab.plan import check_scenario, diagrams, in_words_of_scenarios, visits
    from serde_lab.lab.run_points import check_data
    from serde_lab.lab.runner import chosen_arms, chosen_points
    from serde_lab.scenario.sweep import tables_of

    if scenario.search is not None:
        _print_search(scenario, chosen_arms(scenario, arms), settings, form)
        return
    points = chosen_points(scenario, arms)
    for point, chosen in points:
        for table in tables_of(point.scenario).values():
            check_scenario(table)
            with in_words_of_scenarios():
                check_data(table, chosen)
    cells = [cell for _, plan in visits(points) for cell in plan]
    rows = [
        [cell.name, cell.arm, cell.round, "warm-up" if cell.warmup else "measured"]
        for cell in cells
    ]
    print_rows(["cell", "arm", "round", "kind"], rows, form, title=scenario.title)
    for text in dict.fromkeys(t for one, chosen in points for t in diagrams(one.scenario, chosen)):
        for line in text.splitlines():
            say(line)
    seconds, basis = estimate_run(points, settings.results, settings.cache)
    say(f"{len(cells)} cells, about {seconds:.0f} s ({basis})")
    check_disk([(point.scenario, chosen) for point, chosen in points], settings, say)


def _print_search(
    scenario: Scenario, arms: Sequence[Arm], settings: RunSettings, form: Format
) -> None:
    """At most what a search measures, rung by rung: nobody knows yet which candidates are dropped."""
    from serde_lab.lab.estimates import check_disk, estimate_search
    from serde_lab.lab.plan import check_scenario, in_words_of_scenarios
    from serde_lab.lab.run_points import check_data
    from serde_lab.lab.search import planned_search

    check_scenario(scenario)
    with in_words_of_scenarios():
        check_data(scenario, arms)
    rungs = planned_search(scenario, arms, settings)
    rows = [
        [one.name, one.candidates, one.rounds, one.heats, one.sessions, len(one.cells)]
        for one in rungs
    ]
    columns = ["rung", "candidates", "rounds", "heats", "sessions", "cells"]
    print_rows(columns, rows, form, title=f"{scenario.title}: at most")
    seconds, basis = estimate_search(scenario, arms, rungs, settings.results)
    cells = sum(len(one.cells) for one in rungs)
    say(f"at most {cells} cells, about {seconds / 60:.0f} minutes ({basis})")
    check_disk([(scenario, arms)], settings, say)
