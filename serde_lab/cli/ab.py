"""Implements `ab`: compares two commits, versions or option sets of serde_lab by interleaved measurements.

The lab measures both. The gate judges them and says which arms need more rounds. Works without Java if the
scenario does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serde_lab.cli.console import GateFormat, emit, say
from serde_lab.cli.gate import ReportFile, Strict, write_page
from serde_lab.cli.run import Cache
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.gate.statistics import AlphaSpending
    from serde_lab.runs.model import Run

BEFORE, AFTER, CONTROL = "before", "after", "control"


def register(app: typer.Typer) -> None:
    app.command("ab")(ab)


def ab(
    before: Annotated[
        str,
        typer.Argument(
            metavar="REF_A",
            help="A commit, serde-lab==VERSION, a wheel file, or `.` for the code as it is here.",
        ),
    ] = ".",
    after: Annotated[str, typer.Argument(metavar="REF_B", help="The same.")] = ".",
    scenario: Annotated[
        str, typer.Option(help="The scenario to measure: a name or a .toml file.")
    ] = "gate_smoke",
    a_set: Annotated[
        list[str] | None,
        typer.Option(
            "--a-set", metavar="KEY=VALUE", help="Change a scenario key for REF_A. Can be repeated."
        ),
    ] = None,
    b_set: Annotated[
        list[str] | None,
        typer.Option(
            "--b-set", metavar="KEY=VALUE", help="Change a scenario key for REF_B. Can be repeated."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a scenario key for both. Can be repeated."
        ),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="ARM", help="Measure this arm only. Can be repeated."),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            help="Greatest number of rounds; fewer are measured if all verdicts are decided."
        ),
    ] = 40,
    seed: Annotated[int, typer.Option(help="Seed of the random order of measurement.")] = 7,
    results: Annotated[
        Path, typer.Option(help="Folder of runs; these go into RESULTS/sittings.")
    ] = Path("results"),
    cache: Cache = None,
    strict: Strict = False,
    report: ReportFile = None,
    format: Annotated[GateFormat, typer.Option(help="Output format.")] = "table",
) -> int:
    """Compare two commits, versions or option sets.

    Their cells are measured in turns. REF_A is measured twice, which shows the noise. Each arm is measured
    until its verdict is decided, or until more rounds could not decide it. Exits with 3 on a regression and
    with 4 on a wrong answer.

    Examples:

      serde-lab ab main HEAD

      serde-lab ab HEAD . --arm avro --report reports/ab.html

      serde-lab ab --a-set arm.avro.options.execution=row --b-set arm.avro.options.execution=batch
    """
    from serde_lab.gate.decision import Policy
    from serde_lab.gate.gating import gate_ab, run_adaptively
    from serde_lab.gate.output.documents import gate_document
    from serde_lab.gate.output.verdict_pages import render_gate
    from serde_lab.gate.statistics import AB_LOOKS
    from serde_lab.lab.ab.variants import SharedSettings, Variant, Variants, variant_environment
    from serde_lab.lab.inputs.prepared import default_cache
    from serde_lab.lab.run_settings import work_folder
    from serde_lab.runs.directory import load_run
    from serde_lab.scenario.loading import find_scenario, load_scenario
    from serde_lab.scenario.sweep import parse_override

    both = tuple(set_ or ())
    options = {BEFORE: (*both, *(a_set or ())), AFTER: (*both, *(b_set or ()))}
    if any(
        parse_override(text)[0] == "measure.rounds" for sets in options.values() for text in sets
    ):
        raise UsageError(
            "measure.rounds has no effect here: --rounds is the greatest number of rounds"
        )
    scenarios = {label: load_scenario(scenario, overrides=sets) for label, sets in options.items()}
    _check_arms(scenarios, arm)
    first = min(AB_LOOKS.first, rounds)
    plan = replace(AB_LOOKS, first=first, maximum=rounds)
    policy = Policy.from_table(scenarios[AFTER].to_json()["gate"])
    cache_folder = (cache or default_cache()).resolve()
    with ExitStack() as stack:
        work = stack.enter_context(work_folder())
        variants = {}
        for label, reference in ((BEFORE, before), (AFTER, after)):
            (work / label).mkdir()
            found = stack.enter_context(
                variant_environment(reference, work / label, cache_folder, _say(label))
            )
            variants[label] = Variant(label, found, options[label])
        variants[CONTROL] = replace(variants[BEFORE], label=CONTROL)
        names = [variants[label].environment.name for label in (BEFORE, AFTER)]
        say(
            f"ab: {names[0]} (measured twice) against {names[1]};"
            f" verdicts after {', '.join(map(str, plan.looks))} rounds",
        )
        runs: dict[str, Run] = {}
        folder = _new_folder(results / "sittings", scenarios[AFTER].name)
        about = SharedSettings(find_scenario(scenario), folder, cache, seed)
        running = stack.enter_context(Variants(list(variants.values()), about, _print_event))

        def measure(until: int, arms: tuple[str, ...]) -> None:
            paths = running.measure(until, arms or tuple(arm or ()))
            for label, path in paths.items():
                run = load_run(path)
                settings = {**run.header.settings, "sitting": folder.name}
                header = run.header.model_copy(update={"settings": settings})
                runs[label] = replace(run, header=header)

        def judge(looks: AlphaSpending) -> Any:
            return gate_ab(
                runs[BEFORE],
                runs[AFTER],
                runs[CONTROL],
                policy,
                strict=strict,
                plan=looks,
                across_options=options[BEFORE] != options[AFTER],
                labels=(_label(variants[BEFORE]), _label(variants[AFTER])),
            )

        looks = run_adaptively(plan, policy, measure, judge, _print_look)
    judged = looks[-1].result
    emit(render_gate(judged, format, cells=True))
    say(f"results: {folder.absolute()}")
    write_page(report, gate_document(judged))
    return int(judged.exit_status)


def _new_folder(above: Path, scenario: str) -> Path:
    """A new folder named by the time; a number distinguishes comparisons of the same second."""
    stamp, number = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{scenario}", 1
    while True:
        folder = above / (stamp if number == 1 else f"{stamp}-{number:02d}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def _check_arms(scenarios: Mapping[str, Any], arms: list[str] | None) -> None:
    for label, scenario in scenarios.items():
        known = [one.name for one in scenario.arms]
        for name in arms or ():
            if name not in known:
                raise UsageError(
                    f"{label}: {scenario.name} has no arm {name!r}; it has {', '.join(known)}"
                )


def _label(variant: Any) -> str:
    """The variant, its code, and the options that are its own."""
    sets = f" with {', '.join(variant.overrides)}" if variant.overrides else ""
    return f"{variant.label}: {variant.environment.name}{sets}"


def _say(label: str) -> Any:
    return lambda text: say(f"ab {label}: {text}")


def _print_event(label: str, event: Mapping[str, Any]) -> None:
    if event["event"] == "message":
        say(f"ab {label}: {event['text']}")
    elif event["event"] == "cell":
        seconds = event["seconds"]
        figure = f"{seconds:7.3f} s" if seconds is not None else f"no timing: {event['note']}"
        line = f"ab {label:<7} · round {event['round']} · {event['arm']:<14} {figure}"
        say(line, style="red" if seconds is None else None)


def _print_look(look: Any) -> None:
    for reason in look.reasons:
        say(f"ab: measures more rounds of {reason}")
    if not look.go_on:
        say(f"ab: finished after {look.rounds} rounds")
