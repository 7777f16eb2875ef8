"""Implements `gate --self-test`: records rounds with and without a slowdown, and tests the gate on them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from serde_lab.cli.console import emit, say
from serde_lab.errors import RunError, UsageError

if TYPE_CHECKING:
    from serde_lab.gate.pool import Pool, PoolRound
    from serde_lab.lab.cells.gate_rounds import GateRounds
    from serde_lab.scenario.model import Scenario

DEFAULT_SCENARIO = "gate_smoke"


@dataclass(frozen=True, slots=True)
class SelfTestOptions:
    """The options of a self-test; with `judge`, that pool is judged and nothing is measured.

    The first of `arms` is slowed, and the others are measured and judged beside it; none means the
    scenario's reference alone.
    """

    scenario: str
    arms: tuple[str, ...]
    minutes: float
    rounds: int
    injected: float
    judge: Path | None
    results: Path


def run_self_test(options: SelfTestOptions, format: str) -> int:
    """Record or read a pool, judge it and print the result; returns 0 if both bounds hold."""
    from serde_lab.gate.output.list_pages import render_self_test
    from serde_lab.gate.policy import Policy
    from serde_lab.gate.pool import read_pool
    from serde_lab.gate.self_test import self_test
    from serde_lab.gate.statistics.spending import AB_LOOKS
    from serde_lab.scenario.loading import load_scenario

    if format == "junit":
        raise UsageError("--format junit: expected table, md, csv or json with --self-test")
    scenario = load_scenario(options.scenario)
    pool = read_pool(options.judge) if options.judge is not None else _record(scenario, options)
    if not pool.rounds:
        raise RunError("the self-test measured no round", "--minutes gives it more time")
    policy = Policy.from_table(scenario.to_json()["gate"])
    emit(render_self_test(found := self_test(pool, AB_LOOKS, policy), cast(Any, format)))
    return found.exit_status


def _record(scenario: Scenario, options: SelfTestOptions) -> Pool:
    """Record in this process, continuing an interrupted recording."""
    from serde_lab.gate.pool import record_pool, write_pool
    from serde_lab.lab.cells.gate_rounds import gate_rounds

    arms = options.arms or (scenario.reference,)
    empty = _empty_pool(scenario, arms, options)
    file = options.results / "self-test" / f"{scenario.name}-{arms[0]}-{empty.machine_class}.json"
    begun = _begun(file, empty)
    say(f"self-test: {file} holds {len(begun.rounds)} rounds")
    began = time.monotonic()

    def keep(pool: Pool) -> None:
        write_pool(pool, file)
        done = len(pool.rounds)
        if done % 20 == 0 or done == options.rounds:
            spent = (time.monotonic() - began) / 60
            say(
                f"self-test: round {done} of at most {options.rounds}, {spent:.1f} of"
                f" {options.minutes:g} minutes",
            )

    with gate_rounds(scenario, arms, options.injected, message=lambda text: say(text)) as rounds:
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


def _begun(file: Path, empty: Pool) -> Pool:
    """The rounds recorded so far; raises RunError if they belong to a different recording."""
    from serde_lab.gate.pool import read_pool

    if not file.exists():
        return empty
    found = read_pool(file)
    if replace(found, rounds=(), others={}, sittings=(), beside={}) != empty:
        raise RunError(
            f"{file} has rounds of another scenario, slowdown or version of the measuring code",
            "move the file away to start a new recording",
        )
    return found
