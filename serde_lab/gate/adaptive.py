"""Decides after each look which arms of an A/B measurement (interleaved rounds) are measured further.

An A/B measurement looks at its results at fixed numbers of rounds (`AlphaSpending`). It continues only for
arms with a cell that is undecided and can still be decided by the last look. A cell's verdict uses the level
of the look at which it stopped, so that repeated looks keep the error rate and judging the finished run again
gives the same verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serde_lab.gate.compare.evidence import Evidence
from serde_lab.gate.compare.rows import Row
from serde_lab.gate.decision import GateFinding, GateResult
from serde_lab.gate.policy import Limits, Policy
from serde_lab.gate.statistics.intervals import RatioInterval
from serde_lab.gate.statistics.spending import AlphaSpending


@dataclass(frozen=True, slots=True)
class Look:
    """The state of an A/B measurement after some rounds: `go_on` names the arms to measure further.

    `until` is the number of rounds of the next look; `reasons` says for each open arm why it continues.
    """

    rounds: int
    result: GateResult
    go_on: tuple[str, ...]
    until: int
    reasons: tuple[str, ...]


JudgeAt = Callable[[AlphaSpending], GateResult]
"""Judges everything measured so far; this is `gate_sides` with the plan bound as `spending`."""

MeasureUntil = Callable[[int, tuple[str, ...]], None]
"""Measures up to this number of rounds for these arms; for all arms if empty."""


def look(rounds: int, result: GateResult, plan: AlphaSpending, policy: Policy) -> Look:
    """Which arms continue after a look at `rounds` rounds."""
    later = [n for n in plan.looks if n > rounds]
    until = later[0] if later else rounds
    open_arms: dict[str, str] = {}
    if later:
        for finding in result.findings:
            reason = _may_be_decided(finding, plan, policy)
            if finding.row is not None and reason:
                open_arms.setdefault(finding.row.after_arm, reason)
    return Look(
        rounds=rounds,
        result=result,
        go_on=tuple(open_arms),
        until=until,
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
    """Why a cell continues; "" if it is decided, or if it cannot be decided within the maximum of rounds."""
    row = finding.row
    if row is None or finding.level != "undecided" or row.evidence is None:
        return ""
    found = row.evidence
    interval = found.interval
    if interval is None or interval.low <= 0:
        return f"only {found.count} rounds" if found.count < plan.maximum else ""
    end = _possible_end(interval, found.count / plan.maximum)
    limits = policy.limits_of(row)
    if _could_fail(end, row, limits) or _could_pass(end, found, limits):
        return f"ratio {interval.low:.3f} .. {interval.high:.3f} after {found.count} rounds"
    return ""


@dataclass(frozen=True, slots=True)
class _PossibleEnd:
    """Log ratios possible at the last look: the range of the estimate, and half its interval."""

    lowest: float
    highest: float
    half: float


def _possible_end(found: RatioInterval, share: float) -> _PossibleEnd:
    """What the interval can become, after this share of the rounds.

    It shrinks with the root of the rounds; the estimate may move by as much as it shrinks.
    """
    half = (math.log(found.high) - math.log(found.low)) / 2
    done = min(1.0, share)
    centre, reach = math.log(found.ratio), half * math.sqrt(1 - done)
    return _PossibleEnd(centre - reach, centre + reach, half * math.sqrt(done))


def _could_fail(end: _PossibleEnd, row: Row, limits: Limits) -> bool:
    """A regression is possible: the ratio may exceed the limits, with an interval that excludes 1."""
    large = math.log1p(max(limits.relative, row.floor.change))
    return end.highest > large and end.highest - end.half > 0


def _could_pass(end: _PossibleEnd, found: Evidence, limits: Limits) -> bool:
    """A pass is possible: the upper end of the interval within a limit."""
    median = found.before.median
    bound = max(limits.relative, limits.absolute / median if median else 0.0)
    return end.lowest + end.half <= math.log1p(bound)
