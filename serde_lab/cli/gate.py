"""Implements `compare` and `gate`, and the options that all judging commands share.

Works without Java and pyspark, except `gate --run` and `gate --self-test`, which measure. The self-test
records rounds with and without a slowdown, and tests the gate on them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from serde_lab.cli.console import Format, GateFormat, RunProgress, emit, say
from serde_lab.cli.results import Results
from serde_lab.errors import RunError, UsageError
from serde_lab.files import alone_in

if TYPE_CHECKING:
    from serde_lab.gate.compare.comparability import HostMismatch
    from serde_lab.gate.pool import Pool, PoolRound
    from serde_lab.lab.cells.gate_rounds import GateRounds
    from serde_lab.runs.model import Run
    from serde_lab.scenario.model import Scenario

Baselines = Annotated[
    Path | None, typer.Option(help="Folder of baselines, by default RESULTS/baselines.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 5 if a verdict is undecided.")]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Also write an HTML report to this file."),
]
HostMismatchOption = Annotated[
    Literal["refuse", "ratios", "ignore"],
    typer.Option(
        help="For runs of different machine classes: refuse to compare times, compare them as multiples of"
        " the yardstick's, the arm that [gate] control names, or ignore the difference."
    ),
]
# of a self-test, if the options do not say them
_MINUTES, _ROUNDS, _INJECTED = 30.0, 4000, 0.1


def register(app: typer.Typer) -> None:
    app.command("compare")(compare)
    app.command("gate")(gate)


def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE", help="A run, an arm of a run (RUN#ARM), or baseline:SCENARIO[@NAME]."
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER",
            help="What BEFORE is compared with, in the same forms; an arm if BEFORE is one.",
        ),
    ],
    results: Results = Path("results"),
    baselines: Baselines = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="ARM", help="Compare this arm only. Can be repeated."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC", help="Compare this metric only, such as serde_cpu_s. Can be repeated."
        ),
    ] = None,
    group_by: Annotated[str, typer.Option(help="Group rows by arm, metric, phase or commit.")] = "",
    only_changed: Annotated[
        bool, typer.Option("--only-changed", help="Leave out rows whose verdict is `same`.")
    ] = False,
    sort: Annotated[
        str, typer.Option(help="Sort rows by scenario, name, ratio or verdict.")
    ] = "scenario",
    host_mismatch: HostMismatchOption = "refuse",
    strict: Strict = False,
    report: ReportFile = None,
    format: Annotated[Format, typer.Option(help="Output format.")] = "table",
) -> int:
    """Compare two runs or two arms.

    Either side may be a baseline. Each verdict is shown with the inequality that it rests on.

    Examples:

      serde-lab compare latest#avro latest#internal_row

      serde-lab compare baseline:smoke smoke --only-changed
    """
    from serde_lab.gate.compare.rows import CompareOptions
    from serde_lab.gate.gating import NamedFolders
    from serde_lab.gate.gating import compare as compared
    from serde_lab.gate.output.documents import comparison_document
    from serde_lab.gate.output.verdict_pages import render_comparison

    by = frozenset({group_by} & {"phase", "commit"})
    options = CompareOptions(metrics=tuple(metric or ()), by=by, host_mismatch=host_mismatch)
    places = NamedFolders(results, baselines or results / "baselines")
    found = compared(before, after, places, options, arms=tuple(arm or ()))
    emit(
        render_comparison(
            found,
            format,
            only_changed=only_changed,
            sort=cast(Any, sort),
            group_by=cast(Any, group_by),
        )
    )
    write_page(report, comparison_document(found))
    return int(found.exit_status(strict=strict))


def gate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run; with --run a scenario.")
    ] = "latest",
    measure: Annotated[
        bool,
        typer.Option(
            "--run", help="Measure the scenario first, and arms with a regression a second time."
        ),
    ] = False,
    baseline: Annotated[str, typer.Option(help="Name or file of the baseline.")] = "main",
    results: Results = Path("results"),
    baselines: Baselines = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARM",
            help="Judge this arm only. Can be repeated. Self-test: slow the first, and judge the others"
            " beside it.",
        ),
    ] = None,
    host_mismatch: HostMismatchOption = "refuse",
    shared: Annotated[
        bool,
        typer.Option(
            "--shared-machine",
            help="For machines with other work: compare exact quantities, and CPU time as ratios with wide"
            " limits.",
        ),
    ] = False,
    strict: Strict = False,
    report: ReportFile = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Test the gate itself: measure how often it raises a false alarm, and how often it finds an"
            " injected slowdown.",
        ),
    ] = False,
    minutes: Annotated[
        float, typer.Option(help="Self-test: longest time of recording.")
    ] = _MINUTES,
    rounds: Annotated[int, typer.Option(help="Self-test: greatest number of rounds.")] = _ROUNDS,
    injected: Annotated[
        float,
        typer.Option(help="Self-test: the injected slowdown as a share of a cell."),
    ] = _INJECTED,
    pool: Annotated[
        Path | None,
        typer.Option(help="Self-test: use the rounds in this file, and measure nothing."),
    ] = None,
    format: Annotated[GateFormat, typer.Option(help="Output format.")] = "table",
) -> int:
    """Judge a run against its baseline.

    Exits with 3 on a regression and with 4 on a wrong answer. A regression is statistically significant,
    larger than the limits in the scenario's [gate], and larger than the noise. A missing baseline, a missing
    arm or an empty comparison never passes.

    Examples:

      serde-lab gate smoke --run

      serde-lab gate --self-test --minutes 30

      serde-lab gate smoke --self-test --arm internal_row --arm pickle
    """
    against = (report, baseline, baselines, host_mismatch) != (None, "main", None, "refuse")
    if self_test and (measure or strict or shared or against):
        raise UsageError(
            "--self-test judges no run: leave out --run, --strict, --report, --baseline, --baselines,"
            " --host-mismatch and --shared-machine"
        )
    recording = (minutes, rounds, injected) != (_MINUTES, _ROUNDS, _INJECTED)
    if recording and (not self_test or pool is not None):
        raise UsageError("--minutes, --rounds and --injected are for a --self-test that measures")
    if not 0 < injected <= 10:
        raise UsageError(f"--injected is {injected:g}, expected above 0 and at most 10")
    if shared and host_mismatch != "refuse":
        raise UsageError("--shared-machine and --host-mismatch exclude each other")
    if pool is not None and (not self_test or arm):
        raise UsageError("--pool is for --self-test, without --arm: the pool's file names its arms")
    if self_test:
        options = SelfTestOptions(
            scenario="" if run == "latest" else run,
            arms=tuple(dict.fromkeys(arm or ())),
            minutes=minutes,
            rounds=rounds,
            injected=injected,
            pool_file=pool,
            results=results,
        )
        return run_self_test(options, format)
    from serde_lab.gate.baseline.store import find
    from serde_lab.gate.gating import gate_measured, gate_run
    from serde_lab.gate.output.documents import gate_document
    from serde_lab.gate.output.verdict_pages import render_gate
    from serde_lab.measure.environment import capture_environment, machine_class
    from serde_lab.scenario.loading import load_scenario

    folder = baselines or results / "baselines"
    mismatch: HostMismatch = "shared" if shared else host_mismatch
    judge = partial(
        gate_run, folder=folder, baseline=baseline, host_mismatch=mismatch, strict=strict
    )
    if measure:
        scenario, here = load_scenario(run), machine_class(capture_environment(results, {}))
        # raises, before anything is measured, if there is no baseline
        find(folder, scenario.name, here, baseline, other_machines=mismatch != "refuse")
        judged = gate_measured(_measurer(scenario, results), judge, arm or ())
    else:
        judged = judge(named_run(run, results), arm or ())
    emit(render_gate(judged, format))
    write_page(report, gate_document(judged))
    return judged.exit_status


def named_run(name: str, results: Path) -> Run:
    """The run called `name`, in the forms that `resolve_run` accepts."""
    from serde_lab.runs.directory import load_run, resolve_run

    return load_run(resolve_run(name, results))


def _measurer(scenario: Scenario, results: Path) -> Any:
    """A function that measures arms of a scenario (all for none) with progress, for `gate_measured`."""
    from serde_lab.lab.runner import RunSettings, run_scenario
    from serde_lab.runs.directory import load_run

    def measure(arms: Sequence[str]) -> Run:
        with RunProgress(scenario.name) as progress:
            settings = RunSettings(results=results, arms=tuple(arms))
            path = run_scenario(scenario, settings, progress).path
        say(f"results: {path}")
        return load_run(path)

    return measure


def write_page(target: Path | None, document: dict[str, Any]) -> None:
    """Write the page of a comparison or a gate if one is asked for, and print its path."""
    if target is not None:
        from serde_lab.report.render import write_comparison

        say_report(write_comparison(document, target))


def say_report(page: Path) -> None:
    """Print the page's path on standard error, since standard output may be JSON or XML."""
    say(f"report: {page.absolute()}")


DEFAULT_SCENARIO = "gate_smoke"


@dataclass(frozen=True, slots=True)
class SelfTestOptions:
    """The options of a self-test; with `pool_file`, that pool is judged and nothing is measured.

    `scenario`: "" for the pool's, or the default. The first of `arms` is slowed, and the others are measured
    and judged beside it; none means the scenario's reference alone.
    """

    scenario: str
    arms: tuple[str, ...]
    minutes: float
    rounds: int
    injected: float
    pool_file: Path | None
    results: Path


def run_self_test(options: SelfTestOptions, format: GateFormat) -> int:
    """Record or read a pool, judge it and print the result; returns 0 if both bounds hold."""
    from serde_lab.gate.decision import Policy
    from serde_lab.gate.output.list_pages import render_self_test
    from serde_lab.gate.pool import read_pool
    from serde_lab.gate.self_test import self_test
    from serde_lab.gate.statistics import AB_LOOKS
    from serde_lab.scenario.loading import load_scenario

    if format == "junit":
        raise UsageError("--format junit: expected table, md, csv or json with --self-test")
    judged = None if options.pool_file is None else read_pool(options.pool_file)
    scenario = load_scenario(options.scenario or (judged.scenario if judged else DEFAULT_SCENARIO))
    if judged is not None and judged.scenario != scenario.name:
        raise UsageError(
            f"{options.pool_file} has rounds of {judged.scenario}, not of {scenario.name}"
        )
    pool = judged or _record(scenario, options)
    if not pool.rounds:
        raise RunError("the self-test measured no round", "--minutes gives it more time")
    policy = Policy.from_table(scenario.to_json()["gate"])
    emit(render_self_test(found := self_test(pool, AB_LOOKS, policy), format))
    return found.exit_status


def _record(scenario: Scenario, options: SelfTestOptions) -> Pool:
    """Record in this process, continuing an interrupted recording."""
    from serde_lab.gate.pool import record_pool, recorded_so_far, write_pool
    from serde_lab.lab.cells.gate_rounds import gate_rounds

    arms = options.arms or (scenario.reference,)
    empty = _empty_pool(scenario, arms, options)
    file = options.results / "self-test" / f"{scenario.name}-{arms[0]}-{empty.machine_class}.json"
    began = time.monotonic()

    def keep(pool: Pool) -> None:
        write_pool(pool, file)
        if (done := len(pool.rounds)) % 20 == 0 or done == options.rounds:
            spent = (time.monotonic() - began) / 60
            say(
                f"self-test: round {done} of at most {options.rounds}, {spent:.1f} of"
                f" {options.minutes:g} minutes",
            )

    with alone_in(file.parent, make=True, wait=False):
        begun = recorded_so_far(file, empty)
        say(f"self-test: {file} holds {len(begun.rounds)} rounds")
        with gate_rounds(scenario, arms, options.injected, message=say) as rounds:
            return record_pool(
                lambda number: _measured(rounds, number),
                begun,
                rounds=options.rounds,
                budget_s=options.minutes * 60,
                clock=time.monotonic,
                kept=keep,
            )


def _measured(rounds: GateRounds, number: int) -> dict[str, dict[str, PoolRound]]:
    from serde_lab.gate.pool import PoolRound
    from serde_lab.lab.cells.gate_rounds import METRICS, PLAIN_AGAIN, SLOWED

    return {
        # an arm that is not slowed has no slowed cell: its second one stands for it
        arm: {
            metric: PoolRound(
                **{
                    cell: values[metric]
                    for cell, values in {SLOWED: cells[PLAIN_AGAIN], **cells}.items()
                }
            )
            for metric in METRICS
        }
        for arm, cells in rounds.measure(number).items()
    }


def _empty_pool(scenario: Scenario, arms: Sequence[str], options: SelfTestOptions) -> Pool:
    from serde_lab.gate.pool import Pool
    from serde_lab.measure.code_version import code_version
    from serde_lab.measure.environment import capture_environment, machine_class
    from serde_lab.scenario.identity import arm_hash

    arm, *others = arms
    here = scenario.measure.exchange == "inprocess"
    share = f"a busy loop of {100 * options.injected:g} % of the cell's"
    about: dict[str, Any] = {
        "arm": arm,
        "asked": arm_hash(scenario, arm),
        "measuring": code_version(scenario.measure.exchange)["measuring"],
        "order": "the three cells of a round in random order",
        "slowdown": f"{share} CPU time, in encode",
    }
    if not here:
        about["slowdown"] = f"{share} slot time, in encode, in equal parts over the map tasks"
    if others:
        about["order"] = "all cells of a round in random order"
        about["beside"] = {name: arm_hash(scenario, name) for name in others}
    environment = capture_environment(options.results, {})
    return Pool(scenario.name, options.injected, (), machine_class(environment), about)
