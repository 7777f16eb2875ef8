"""`compare`, `gate`, `baseline` and `history`: judging runs.

Owns the options of these commands; the verdicts are the gate's. Works without Java and pyspark, but for
`gate --run`, which measures.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from serde_lab.cli.console import Format, emit, print_json, stderr
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.gate.history import History
    from serde_lab.runs.model import Run

Results = Annotated[Path, typer.Option(help="Where runs are kept.")]
Baselines = Annotated[
    Path | None, typer.Option(help="Where baselines are kept; RESULTS/baselines by default.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 5 where something is undecided.")]
Out = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page.")
]


class HostMismatch(StrEnum):
    """What to do when two sides were measured on machines of different classes."""

    REFUSE = "refuse"
    RATIOS = "ratios"
    IGNORE = "ignore"


Host = Annotated[
    HostMismatch, typer.Option(help="When the machines differ: refuse times, gate ratios, ignore.")
]


class GateFormat(StrEnum):
    """`--format` of `gate`."""

    TABLE = "table"
    MD = "md"
    CSV = "csv"
    JSON = "json"
    JUNIT = "junit"


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("compare")(compare)
    app.command("gate")(gate)
    app.command("history")(history)
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


def compare(
    before: Annotated[str, typer.Argument(help="A run, RUN#ARM, or baseline:SCENARIO[@NAME].")],
    after: Annotated[str, typer.Argument(help="The same; of one run, two arms.")],
    results: Results = Path("results"),
    baselines: Baselines = None,
    arm: Annotated[list[str] | None, typer.Option(help="Compare these arms only.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Compare these metrics.")] = None,
    group_by: Annotated[str, typer.Option(help="arm, metric, phase or commit")] = "",
    only_changed: Annotated[
        bool, typer.Option("--only-changed", help="Leave out what is the same.")
    ] = False,
    sort: Annotated[str, typer.Option(help="scenario, name, ratio or verdict")] = "scenario",
    host_mismatch: Host = HostMismatch.REFUSE,
    strict: Strict = False,
    report: Out = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,
) -> int:
    """Compare two runs, a baseline and a run, or two arms: verdicts, each with its inequality.

    Examples:

      serde-lab compare latest#avro latest#internal_row

      serde-lab compare baseline:smoke smoke --only-changed
    """
    from serde_lab.gate.comparison_output import render_comparison
    from serde_lab.gate.documents import comparison_document
    from serde_lab.gate.references import Places
    from serde_lab.gate.references import compare as compared
    from serde_lab.gate.rows import CompareOptions

    by = frozenset({group_by} & {"phase", "commit"})
    options = CompareOptions(
        metrics=tuple(metric or ()), by=by, host_mismatch=cast(Any, host_mismatch.value)
    )
    places = Places(results, baselines or results / "baselines")
    found = compared(before, after, places, options, arms=tuple(arm or ()))
    emit(
        render_comparison(
            found,
            cast(Any, format.value),
            only_changed=only_changed,
            sort=cast(Any, sort),
            group_by=cast(Any, group_by),
        )
    )
    write_page(report, comparison_document(found))
    return int(found.exit_status(strict=strict))


def gate(
    run: Annotated[str, typer.Argument(help="A run, or a scenario with --run.")] = "latest",
    measure: Annotated[
        bool, typer.Option("--run", help="Measure the scenario first; failing cells once more.")
    ] = False,
    baseline: Annotated[str, typer.Option(help="The baseline's name, or its file.")] = "main",
    results: Results = Path("results"),
    baselines: Baselines = None,
    arm: Annotated[list[str] | None, typer.Option(help="Judge these arms only.")] = None,
    host_mismatch: Host = HostMismatch.REFUSE,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared-machine",
            help="Believe no absolute time, whatever the machine: exact quantities and wide ratios.",
        ),
    ] = False,
    strict: Strict = False,
    report: Out = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Prove the gate: false alarms and detections on rounds really slowed.",
        ),
    ] = False,
    minutes: Annotated[float, typer.Option(help="Self-test: record no longer.")] = 30.0,
    rounds: Annotated[int, typer.Option(help="Self-test: record no more rounds.")] = 4000,
    injected: Annotated[
        float, typer.Option(help="Self-test: the slowdown, a share of the cell.")
    ] = 0.1,
    pool: Annotated[
        Path | None, typer.Option(help="Self-test: judge this recorded pool; measure nothing.")
    ] = None,
    format: Annotated[GateFormat, typer.Option(help="How to print.")] = GateFormat.TABLE,
) -> int:
    """Judge a run against its baseline: exit 3 on a regression, 4 on a wrong answer.

    A regression is significant, larger than the scenario's [gate] limits and above the noise. A
    missing baseline, an arm that vanished or an empty comparison is never a pass.

    Examples:

      serde-lab gate smoke --run

      serde-lab gate --self-test --minutes 30
    """
    if self_test:
        from serde_lab.cli.self_test import DEFAULT_SCENARIO, SelfTestOptions, run_self_test

        if len(arm or ()) > 1:
            raise UsageError("a self-test slows one arm down: name one --arm")
        asked = SelfTestOptions(
            scenario=DEFAULT_SCENARIO if run == "latest" else run,
            arm=arm[0] if arm else "",
            minutes=minutes,
            rounds=rounds,
            injected=injected,
            judge=pool,
            results=results,
        )
        return run_self_test(asked, format.value)
    from serde_lab.gate.documents import gate_document
    from serde_lab.gate.gate_output import render_gate
    from serde_lab.gate.gating import gate_measured, gate_run

    folder = baselines or results / "baselines"
    mismatch = cast(Any, "ratios" if shared else host_mismatch.value)
    if measure:
        judged = gate_measured(
            _measurer(run, results, shared),
            folder,
            baseline=baseline,
            host_mismatch=mismatch,
            arms=tuple(arm or ()),
            strict=strict,
        )
    else:
        judged = gate_run(
            _anywhere(_load(run, results)) if shared else _load(run, results),
            folder,
            baseline=baseline,
            host_mismatch=mismatch,
            arms=tuple(arm or ()),
            strict=strict,
        )
    emit(render_gate(judged, cast(Any, format.value)))
    write_page(report, gate_document(judged))
    return judged.exit_status


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
    from serde_lab.gate.documents import history_document
    from serde_lab.gate.history import acknowledge_steps
    from serde_lab.gate.history import history as history_of
    from serde_lab.gate.other_output import render_history

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

        _wrote(write_history(history_document(found), report))
    return found.exit_status


def save(
    run: Annotated[str, typer.Argument(help="The run to keep.")],
    name: Annotated[str, typer.Option(help="The baseline's name.")] = "main",
    reason: Annotated[str, typer.Option(help="Why; kept in the file.")] = "",
    by: Annotated[str, typer.Option(help="Who; kept in the file.")] = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Keep a run as a new baseline."""
    from serde_lab.gate import baseline

    _told(
        baseline.save(
            _load(run, results),
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
    from serde_lab.gate.baseline import list_baselines
    from serde_lab.gate.other_output import render_baselines

    entries = list_baselines(baselines or results / "baselines")
    emit(render_baselines(entries, cast(Any, format.value)))
    return 0


def show(
    scenario: Annotated[str, typer.Argument(help="A scenario's name.")],
    name: Annotated[str, typer.Option(help="The baseline's name.")] = "main",
    machine_class: Annotated[str, typer.Option(help="Of this machine class.")] = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Print a baseline and what happened to it, as JSON."""
    from serde_lab.gate.baseline import show as record

    for file in _files(baselines or results / "baselines", scenario, machine_class):
        print_json(record(file, name))
    return 0


def promote(
    run: Annotated[str, typer.Argument(help="The run that takes the baseline's place.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the file.")] = "",
    name: Annotated[str, typer.Option(help="The baseline's name.")] = "main",
    by: Annotated[str, typer.Option(help="Who; kept in the file.")] = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Replace a baseline by a run, for a reason that is kept."""
    from serde_lab.gate import baseline

    _told(
        baseline.promote(
            _load(run, results),
            baselines or results / "baselines",
            by=by or getpass.getuser(),
            reason=reason,
            name=name,
        )
    )
    return 0


def remove(
    scenario: Annotated[str, typer.Argument(help="A scenario's name.")],
    machine_class: Annotated[str, typer.Option(help="Of this machine class.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the file.")],
    name: Annotated[str, typer.Option(help="The baseline's name.")] = "main",
    by: Annotated[str, typer.Option(help="Who; kept in the file.")] = "",
    results: Results = Path("results"),
    baselines: Baselines = None,
) -> int:
    """Take a baseline away; what happened to it stays in the file."""
    from serde_lab.gate import baseline

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


def _load(name: str, results: Path) -> Run:
    from serde_lab.runs.directory import load_run
    from serde_lab.runs.listing import resolve_run

    return load_run(resolve_run(name, results))


def _anywhere(run: Run) -> Run:
    """The run as if measured on a machine of no known class, so that no absolute time is compared."""
    header = run.header.model_copy(update={"machine_class": ""})
    return replace(run, header=header)


def _measurer(scenario: str, results: Path, shared: bool) -> Any:
    """Measures arms of a scenario (all for none), with progress, as `gate_measured` asks for it."""
    from serde_lab.cli.progress import RunProgress
    from serde_lab.lab.runner import RunSettings, run_scenario
    from serde_lab.runs.directory import load_run
    from serde_lab.scenario.loading import load_scenario

    asked = load_scenario(scenario)

    def measure(arms: Sequence[str]) -> Run:
        with RunProgress(asked.name) as progress:
            settings = RunSettings(results=results, arms=tuple(arms))
            run = load_run(run_scenario(asked, settings, progress).path)
            return _anywhere(run) if shared else run

    return measure


def _files(folder: Path, scenario: str, machine_class: str) -> list[Path]:
    found = sorted(folder.glob(f"{machine_class or '*'}/{scenario}.json"))
    if not found:
        raise UsageError(f"there is no baseline of {scenario!r} under {folder}")
    return found


def _told(change: Any) -> None:
    emit(change.text)
    for note in (*change.loosened, *change.notes):
        stderr.print(f"serde-lab: {note}", markup=False)


def write_page(target: Path | None, document: dict[str, Any]) -> None:
    if target is not None:
        from serde_lab.report.render import render_comparison

        _wrote(render_comparison(document, target))


def _wrote(page: Path) -> None:
    """On standard error, since standard output may be JSON or XML."""
    stderr.print(f"report: {page.absolute()}", markup=False)
