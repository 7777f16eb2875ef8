"""Runs `compare` and the gate: two named sides, a run against its baseline, or an A/B measurement.

The gate derives the comparison from a policy, finds the baseline, and measures a second time before it fails.
A callable does the measuring.

An A/B measurement (interleaved rounds) looks at its results at fixed numbers of rounds (`AlphaSpending`). It
continues only for arms with a cell that is undecided and can still be decided by the last look. A cell's
verdict uses the level of the look at which it stopped, so that repeated looks keep the error rate and judging
the finished run again gives the same verdict.

A side that `compare` names is one of:

    RUN            a path, an id or its beginning, a scenario (its latest run), "latest"
    FILE.json      a baseline file; FILE.json@NAME one of its baselines
    baseline:SCENARIO[@NAME]   the baseline of that scenario, of the other side's machine class
    any of these followed by #ARM: that arm of it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from serde_lab.errors import RunError, UsageError
from serde_lab.gate.baseline import store as baselines
from serde_lab.gate.compare.comparability import HostMismatch
from serde_lab.gate.compare.comparison import compare_sides
from serde_lab.gate.compare.rows import PRIMARY, CompareOptions, Comparison
from serde_lab.gate.compare.sides import Side, side_of_run
from serde_lab.gate.decision import GateFinding, GateResult, Policy, decide
from serde_lab.gate.statistics import AlphaSpending
from serde_lab.runs.directory import load_run, resolve_run
from serde_lab.runs.model import Run

Measure = Callable[[tuple[str, ...]], Run]
"""Measures the named arms of the scenario (all if empty) and returns the run."""

Judge = Callable[[Run, Sequence[str]], GateResult]
"""Judges the named arms of a run (all if empty); this is `gate_run` with its options bound."""


def gate_sides(
    before: Side,
    after: Side,
    policy: Policy | None = None,
    *,
    arms: Sequence[tuple[str, str]] = (),
    host_mismatch: HostMismatch = "refuse",
    strict: bool = False,
    control: Side | None = None,
    spending: AlphaSpending | None = None,
    across_options: bool = False,
) -> GateResult:
    """Judge `after` against `before`: two runs of one A/B measurement, or two arms of the same side.

    The policy defaults to that of `after`'s scenario. Phases are compared only if one of its limits names
    them.
    """
    policy = policy or Policy.from_table(after.gate_table)
    options = CompareOptions(
        arms=tuple(arms),
        metrics=(*(policy.metrics or PRIMARY), *policy.phase_metrics),
        phases=policy.phases,
        alpha=policy.alpha,
        margin=policy.relative,
        bytes_tolerance=policy.bytes,
        host_mismatch=host_mismatch,
        yardstick=policy.control,
        spending=spending,
        across_options=across_options,
    )
    return decide(compare_sides(before, after, options, control), policy, strict=strict)


def gate_ab(
    before: Run,
    after: Run,
    control: Run | None = None,
    policy: Policy | None = None,
    *,
    strict: bool = False,
    plan: AlphaSpending | None = None,
    across_options: bool = False,
    labels: tuple[str, str] = ("before", "after"),
) -> GateResult:
    """Judge the two sides of an A/B measurement (interleaved rounds, by `ab`), paired by round.

    Both runs have the same name under `settings.sitting` in their headers, which shows that their rounds were
    interleaved; `control` is a second run of `before`'s code in it. `plan` holds the looks at which the
    A/B measurement could have stopped. Raises UsageError for runs of different A/B measurements.
    """
    sides = [side_of_run(run, name) for run, name in zip((before, after), labels, strict=True)]
    yardstick = None if control is None else side_of_run(control, "control")
    for side in [*sides, *([] if yardstick is None else [yardstick])]:
        if not side.ab or side.ab != sides[0].ab:
            raise UsageError(
                f"run {side.label} is of the A/B measurement {side.ab or 'none'!r},"
                f" expected {sides[0].ab or 'a name'!r}"
            )
    return gate_sides(
        sides[0],
        sides[1],
        policy,
        strict=strict,
        control=yardstick,
        spending=plan,
        across_options=across_options,
    )


def gate_run(
    run: Run,
    arms: Sequence[str] = (),
    *,
    folder: Path,
    baseline: str = baselines.MAIN,
    host_mismatch: HostMismatch = "refuse",
    strict: bool = False,
) -> GateResult:
    """Judge a run against a baseline under `folder`, or in the file that `baseline` names.

    Raises RunError without a baseline, without a side's digest, and for an interrupted run: never a pass.
    """
    after = side_of_run(run)
    others = host_mismatch != "refuse"
    before = baselines.find(
        folder, after.scenario, after.machine_class, baseline, other_machines=others
    )
    for side in (before, after):
        if side.without_digest:
            raise RunError(f"{side.without_digest}, so it cannot be gated", baselines.SEAL)
    if run.header.state == "interrupted":
        raise RunError(
            f"run {run.header.run} was interrupted, so cells and checks are missing, and it cannot be gated",
            f"`serde-lab run --resume {run.path}` continues it",
        )
    return gate_sides(
        before,
        after,
        arms=[(arm, arm) for arm in arms],
        host_mismatch=host_mismatch,
        strict=strict,
    )


def gate_measured(measure: Measure, judge: Judge, arms: Sequence[str] = ()) -> GateResult:
    """Measure a scenario and judge it; a failure by times is measured once more before the gate fails.

    A regression counts only if the second run, judged by itself, shows it again. Exact quantities would not
    change and are not measured again. `arms` are judged (all if empty); all are measured, since verdicts also
    need the controls.
    """
    run = measure(())
    first = judge(run, arms)
    if not first.failing_arms:
        return first
    again = measure(_with_yardsticks(side_of_run(run), first.failing_arms))
    return _confirmed(first, judge(again, first.failing_arms))


def _with_yardsticks(side: Side, arms: Sequence[str]) -> tuple[str, ...]:
    """The arms with those that their verdicts depend on: controls, `[gate] control`, and A/A arms."""
    wanted = {*arms, str(side.gate_table.get("control") or "")}
    wanted |= {n for n, arm in side.arms.items() if arm.definition.get("kind") == "control"}
    wanted |= {name for pair in side.twins if set(pair) & set(arms) for name in pair}
    return tuple(name for name in side.arms if name in wanted)


def _confirmed(first: GateResult, second: GateResult) -> GateResult:
    """The first result, with noisy regressions kept only if the second result has them too."""
    again = {f.row.cell: f for f in second.findings if f.row is not None}
    findings = [
        _second_opinion(found, again.get(found.row.cell) if found.row is not None else None)
        for found in first.findings
    ]
    # New failures of the second measurement count; its noise on other cells does not.
    findings += [f for f in second.findings if f.level in ("failed", "wrong answer")]
    return replace(first, findings=tuple(findings), confirmed=True)


def _second_opinion(found: GateFinding, again: GateFinding | None) -> GateFinding:
    if found.level != "regression" or found.row is None or found.row.evidence is None:
        return found
    if again is None:
        return replace(found, text=f"{found.text}; it could not be measured again")
    if again.level == "regression":
        return replace(found, text=f"{found.text}; confirmed by a second measurement: {again.text}")
    text = f"not confirmed by a second measurement ({again.text}); at first: {found.text}"
    return replace(found, level="undecided", text=text)


@dataclass(frozen=True, slots=True)
class Look:
    """The state of an A/B measurement after some rounds: `go_on` names the arms to measure further, and
    `reasons` says why."""

    rounds: int
    result: GateResult
    go_on: tuple[str, ...]
    reasons: tuple[str, ...]


JudgeAt = Callable[[AlphaSpending], GateResult]
"""Judges everything measured so far; this is `gate_sides` with the plan bound as `spending`."""

MeasureUntil = Callable[[int, tuple[str, ...]], None]
"""Measures up to this number of rounds for these arms; for all arms if empty."""


def look(rounds: int, result: GateResult, plan: AlphaSpending, policy: Policy) -> Look:
    """Which arms continue after a look at `rounds` rounds."""
    open_arms: dict[str, str] = {}
    if rounds < plan.looks[-1]:
        for finding in result.findings:
            reason = _may_be_decided(finding, plan, policy)
            if finding.row is not None and reason:
                open_arms.setdefault(finding.row.after_arm, reason)
    return Look(
        rounds=rounds,
        result=result,
        go_on=tuple(open_arms),
        reasons=tuple(f"{arm}: {reason}" for arm, reason in open_arms.items()),
    )


def run_adaptively(
    plan: AlphaSpending,
    policy: Policy,
    measure: MeasureUntil,
    judge: JudgeAt,
    looked: Callable[[Look], None] = lambda look: None,
) -> Sequence[Look]:
    """Measure and look until no cell is open or the maximum is reached; the last look decides."""
    looks: list[Look] = []
    arms: tuple[str, ...] = ()
    for rounds in plan.looks:
        measure(rounds, arms)
        looks.append(look(rounds, judge(plan), plan, policy))
        looked(looks[-1])
        arms = looks[-1].go_on
        if not arms:
            break
    return looks


def _may_be_decided(finding: GateFinding, plan: AlphaSpending, policy: Policy) -> str:
    """Why a cell continues; "" if it is decided, or if it cannot be decided within the maximum of rounds.

    Until the last look an interval shrinks with the root of the rounds, and the ratio may move by as much as
    the interval shrinks.
    """
    row = finding.row
    if row is None or finding.level != "undecided" or row.evidence is None:
        return ""
    found, limits = row.evidence, policy.limits_of(row)
    interval = found.interval
    if interval is None or interval.low <= 0:
        return f"only {found.count} rounds" if found.count < plan.maximum else ""
    centre, half = math.log(interval.ratio), (math.log(interval.high) - math.log(interval.low)) / 2
    done = min(1.0, found.count / plan.maximum)
    reach, half_at_end = half * math.sqrt(1 - done), half * math.sqrt(done)
    # a regression: the ratio exceeds the limits, with an interval that excludes 1
    large = math.log1p(max(limits.relative, row.floor.change))
    could_fail = centre + reach > large and centre + reach - half_at_end > 0
    # a pass: the upper end of the interval is within a limit
    median = found.before.median
    bound = max(limits.relative, limits.absolute / median if median else 0.0)
    could_pass = centre - reach + half_at_end <= math.log1p(bound)
    if could_fail or could_pass:
        return f"ratio {interval.low:.3f} .. {interval.high:.3f} after {found.count} rounds"
    return ""


@dataclass(frozen=True, slots=True)
class NamedFolders:
    """The folders in which names are looked up."""

    results: Path
    baselines: Path


def compare(
    before: str,
    after: str,
    places: NamedFolders,
    options: CompareOptions | None = None,
    *,
    arms: tuple[str, ...] = (),
) -> Comparison:
    """Compare the sides that two names refer to.

    `arms` are names that both sides have or, within one run, two names. Raises UsageError for unknown arms,
    RunError for unknown runs and baselines.
    """
    options = options or CompareOptions()
    first_name, first_arm = _split(before)
    second_name, second_arm = _split(after)
    seen: dict[Path, Side] = {}
    second = _load(second_name, places, None, seen)
    first = _load(first_name, places, second, seen)
    if second is None:
        # A baseline on the right takes the machine class of the left side.
        second = _load(second_name, places, first, seen)
    if first is None or second is None:
        raise UsageError("two baselines are compared by their files: FILE.json FILE.json@NAME")
    pairs = _pairs(first, second, (first_arm, second_arm), arms)
    return compare_sides(first, second, replace(options, arms=pairs or options.arms))


def _split(name: str) -> tuple[str, str]:
    place, _, arm = name.partition("#")
    return place, arm


def _load(
    name: str, places: NamedFolders, other: Side | None, seen: dict[Path, Side]
) -> Side | None:
    """The side; None for a baseline whose machine class is not yet known from the other side."""
    if name.startswith("baseline:"):
        if other is None:
            return None
        scenario, _, wanted = name.removeprefix("baseline:").partition("@")
        if scenario != other.scenario:
            raise UsageError(f"{name} is of another scenario than {other.label} ({other.scenario})")
        return baselines.find(
            places.baselines,
            scenario,
            other.machine_class,
            wanted or baselines.MAIN,
            other_machines=True,
        )
    file, _, wanted = name.partition("@")
    if file.endswith(".json") and Path(file).name != "run.json":
        return baselines.load(Path(file), wanted or baselines.MAIN)
    path = resolve_run(name, places.results).resolve()
    if path not in seen:  # two names of one run give one side, whose arms are then compared
        seen[path] = side_of_run(load_run(path))
    return seen[path]


def _pairs(
    first: Side, second: Side, named: tuple[str, str], arms: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    if any(named):
        if arms:
            raise UsageError("name the arms by #ARM or by --arm, not by both")
        pair = named[0] or named[1], named[1] or named[0]
        for side, arm in zip((first, second), pair, strict=True):
            if arm not in side.arms:
                known = ", ".join(sorted(side.arms))
                raise UsageError(f"{side.label} has no arm {arm!r}; known are {known}")
        return (pair,)
    if first is not second:
        return tuple((arm, arm) for arm in arms)
    if len(arms) != 2:
        raise UsageError(
            f"to compare within one run, name two of its arms: {', '.join(sorted(second.arms))}",
            "--arm BEFORE --arm AFTER, or RUN#BEFORE RUN#AFTER",
        )
    return ((arms[0], arms[1]),)
