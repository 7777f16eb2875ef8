"""Adaptive rounds: which arms of a sitting are measured further, and when it ends.

A sitting looks at its rounds at times fixed beforehand (`AlphaSpending`) and goes on only for arms
with a cell that is undecided and can still be decided by the last look. The verdict of a cell uses
the level of the look it stopped at, so that the error rate holds under this peeking, and judging
the finished run again gives the same verdict. Knows results of the gate; measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serde_lab.gate.compare.evidence import Evidence
from serde_lab.gate.compare.rows import Row
from serde_lab.gate.decision import Finding, GateResult
from serde_lab.gate.policy import Limits, Policy
from serde_lab.gate.statistics.spending import AlphaSpending


@dataclass(frozen=True, slots=True)
class Look:
    """What a sitting knows after some rounds: `go_on` names the arms to measure further.

    `until` is the number of rounds of the next look; `reasons` says for each open arm why.
    """

    rounds: int
    result: GateResult
    go_on: tuple[str, ...]
    until: int
    reasons: tuple[str, ...]


JudgeAt = Callable[[AlphaSpending], GateResult]
"""Judges everything measured so far; `gate_sides` with the plan bound as `spending`."""

MeasureUntil = Callable[[int, tuple[str, ...]], None]
"""Measures rounds up to this number for these arms; all of them when empty."""


def look(rounds: int, result: GateResult, plan: AlphaSpending, policy: Policy) -> Look:
    """Which arms go on after a look at `rounds` rounds."""
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
    """Measure and look until nothing is open or the maximum is reached; the last look decides."""
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


def _may_be_decided(finding: Finding, plan: AlphaSpending, policy: Policy) -> str:
    """Why a cell goes on: "" when it is decided, or no number of rounds up to the maximum helps."""
    row = finding.row
    if row is None or finding.level != "undecided" or row.evidence is None:
        return ""
    found = row.evidence
    if found.ratio is None or found.low is None or found.high is None or found.low <= 0:
        return f"only {found.count} rounds" if found.count < plan.maximum else ""
    end = _possible_end(found, plan.maximum)
    limits = policy.limits_of(row)
    if _could_fail(end, row, limits) or _could_pass(end, found, limits):
        return f"ratio {found.low:.3f} .. {found.high:.3f} after {found.count} rounds"
    return ""


@dataclass(frozen=True, slots=True)
class _PossibleEnd:
    """Log ratios that the last look may still see: the estimate's range, and its half interval."""

    lowest: float
    highest: float
    half: float


def _possible_end(found: Evidence, maximum: int) -> _PossibleEnd:
    """An interval shrinks with the root of the rounds, and what it loses is how far it may move."""
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    half = (math.log(found.high) - math.log(found.low)) / 2
    done = min(1.0, found.count / maximum)
    centre, reach = math.log(found.ratio), half * math.sqrt(1 - done)
    return _PossibleEnd(centre - reach, centre + reach, half * math.sqrt(done))


def _could_fail(end: _PossibleEnd, row: Row, limits: Limits) -> bool:
    """A regression is possible: the ratio beyond the limits, and its interval clear of 1."""
    large = math.log1p(max(limits.relative, row.floor.change))
    return end.highest > large and end.highest - end.half > 0


def _could_pass(end: _PossibleEnd, found: Evidence, limits: Limits) -> bool:
    """A pass is possible: the upper end of the interval within a limit."""
    median = found.before.median
    bound = max(limits.relative, limits.absolute / median if median else 0.0)
    return end.lowest + end.half <= math.log1p(bound)
