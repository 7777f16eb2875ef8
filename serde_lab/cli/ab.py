"""Implements `ab`: compares two commits, versions or option sets of serde_lab in one sitting.

The lab measures the sides. The gate judges them and says which arms need more rounds. Works without Java
if the scenario does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from serde_lab.cli.console import emit, say
from serde_lab.cli.judge import GateFormat, Out, Strict, write_page
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.gate.statistics.spending import AlphaSpending
    from serde_lab.runs.model import Run

BEFORE, AFTER, CONTROL = "before", "after", "control"


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("ab")(ab)


def ab(
    before: Annotated[
        str, typer.Argument(metavar="REF_A", help="A commit, serde-lab==VERSION, FILE.whl, or .")
    ] = ".",
    after: Annotated[
        str, typer.Argument(metavar="REF_B", help="The same; . is the code here.")
    ] = ".",
    scenario: Annotated[str, typer.Option(help="What both measure: a name or a .toml.")] = (
        "gate_smoke"
    ),
    a_set: Annotated[
        list[str] | None,
        typer.Option("--a-set", metavar="KEY=VALUE", help="Change a scenario key for REF_A."),
    ] = None,
    b_set: Annotated[
        list[str] | None,
        typer.Option("--b-set", metavar="KEY=VALUE", help="Change a scenario key for REF_B."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a scenario key for both."),
    ] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Measure these arms only.")] = None,
    rounds: Annotated[
        int, typer.Option(help="Never measure more rounds; fewer where all is decided.")
    ] = 40,
    seed: Annotated[int, typer.Option(help="Of the order in which the sides take turns.")] = 7,
    results: Annotated[Path, typer.Option(help="Where the sitting is kept.")] = Path("results"),
    cache: Annotated[Path | None, typer.Option(help="Where generated data is kept.")] = None,
    strict: Strict = False,
    report: Out = None,
    format: Annotated[GateFormat, typer.Option(help="How to print.")] = GateFormat.TABLE,
) -> int:
    """Compare two commits, versions or option sets, measured in turns in one sitting.

    REF_A runs twice, to show the noise of the sitting. Each arm is measured until its verdict is decided,
    or until more rounds cannot decide it. Exit 3 on a regression, 4 on a wrong answer.

    Examples:

      serde-lab ab main HEAD

      serde-lab ab HEAD . --arm avro --report reports/ab.html

      serde-lab ab --a-set arm.avro.options.execution=row --b-set arm.avro.options.execution=batch
    """
    from serde_lab.gate.adaptive import run_adaptively
    from serde_lab.gate.gating import gate_sitting
    from serde_lab.gate.output.documents import gate_document
    from serde_lab.gate.output.gate import cells, render_gate
    from serde_lab.gate.output.tables import aligned
    from serde_lab.gate.policy import Policy
    from serde_lab.gate.statistics.spending import SITTING_LOOKS
    from serde_lab.lab.ab.side_environment import side_environment
    from serde_lab.lab.ab.sitting import Asked, Side, Sitting
    from serde_lab.lab.inputs.prepared import default_cache
    from serde_lab.runs.directory import load_run
    from serde_lab.scenario.loading import load_scenario
    from serde_lab.scenario.lookup import find_scenario

    both = tuple(set_ or ())
    options = {BEFORE: (*both, *(a_set or ())), AFTER: (*both, *(b_set or ()))}
    asked = {label: load_scenario(scenario, overrides=sets) for label, sets in options.items()}
    _known_arms(asked, arm)
    first = min(SITTING_LOOKS.first, rounds)
    plan = replace(SITTING_LOOKS, first=first, maximum=rounds)
    policy = Policy.from_table(asked[AFTER].to_json()["gate"])
    kept = (cache or default_cache()).resolve()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serde_lab-ab-")))
        sides = {}
        for label, reference in ((BEFORE, before), (AFTER, after)):
            (work / label).mkdir()
            found = stack.enter_context(
                side_environment(reference, work / label, kept, _say(label))
            )
            sides[label] = Side(label, found, options[label])
        sides[CONTROL] = replace(sides[BEFORE], label=CONTROL)
        say(
            f"ab: {sides[BEFORE].environment.name} against {sides[AFTER].environment.name}, and the"
            f" former twice; looks after {', '.join(map(str, plan.looks))} rounds",
        )
        runs: dict[str, Run] = {}
        folder = _sitting_folder(results / "sittings", asked[AFTER].name)
        about = Asked(find_scenario(scenario), folder, cache, seed)
        sitting = stack.enter_context(Sitting(list(sides.values()), about, _heard))

        def measure(until: int, arms: tuple[str, ...]) -> None:
            paths = sitting.measure(until, arms or tuple(arm or ()))
            for label, path in paths.items():
                run = load_run(path)
                settings = {**run.header.settings, "sitting": folder.name}
                header = run.header.model_copy(update={"settings": settings})
                runs[label] = replace(run, header=header)

        def judge(looks: AlphaSpending) -> Any:
            return gate_sitting(
                runs[BEFORE],
                runs[AFTER],
                runs[CONTROL],
                policy,
                strict=strict,
                plan=looks,
                across_options=options[BEFORE] != options[AFTER],
                labels=(_label(sides[BEFORE]), _label(sides[AFTER])),
            )

        looks = run_adaptively(plan, policy, measure, judge, _looked)
    judged = looks[-1].result
    if format is GateFormat.TABLE:
        emit(aligned(cells(judged)))
    emit(render_gate(judged, cast(Any, format.value)))
    say(f"sitting: {folder.absolute()}")
    write_page(report, gate_document(judged))
    return int(judged.exit_status)


def _sitting_folder(above: Path, scenario: str) -> Path:
    """A new folder named by the time; a number distinguishes sittings of the same second."""
    stamp, number = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{scenario}", 1
    while True:
        folder = above / (stamp if number == 1 else f"{stamp}-{number:02d}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def _known_arms(asked: Mapping[str, Any], arms: list[str] | None) -> None:
    for label, scenario in asked.items():
        known = [one.name for one in scenario.arms]
        for name in arms or ():
            if name not in known:
                raise UsageError(
                    f"{label}: {scenario.name} has no arm {name!r}; it has {', '.join(known)}"
                )


def _label(side: Any) -> str:
    """The side, its code, and the options that are its own."""
    sets = f" with {', '.join(side.overrides)}" if side.overrides else ""
    return f"{side.label}: {side.environment.name}{sets}"


def _say(label: str) -> Any:
    return lambda text: say(f"ab {label}: {text}")


def _heard(label: str, event: Mapping[str, Any]) -> None:
    if event["event"] == "message":
        say(f"ab {label}: {event['text']}")
    elif event["event"] == "cell":
        seconds = event["seconds"]
        figure = f"{seconds:7.3f} s" if seconds is not None else f"no timing: {event['note']}"
        line = f"ab {label:<7} · round {event['round']} · {event['arm']:<14} {figure}"
        say(line, style="red" if seconds is None else None)


def _looked(look: Any) -> None:
    for reason in look.reasons:
        say(f"ab: goes on with {reason}")
    if not look.go_on:
        say(f"ab: ends after {look.rounds} rounds")
