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

from serde_lab.gate.decision import Finding, GateResult
from serde_lab.gate.evidence import Evidence
from serde_lab.gate.policy import Limits, Policy
from serde_lab.gate.rows import Row
from serde_lab.gate.spending import AlphaSpending


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
    plan: AlphaSpending, policy: Policy, measure: MeasureUntil, judge: JudgeAt
) -> Sequence[Look]:
    """Measure and look until nothing is open or the maximum is reached; the last look decides."""
    looks: list[Look] = []
    arms: tuple[str, ...] = ()
    for rounds in plan.looks:
        measure(rounds, arms)
        looks.append(look(rounds, judge(plan), plan, policy))
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
    low, high = _reach_at_end(found, plan.maximum)
    limits = policy.limits_of(row)
    if _could_fail(row, limits, high) or _could_pass(limits, row, low):
        return f"ratio {found.low:.3f} .. {found.high:.3f} after {found.count} rounds"
    return ""


def _reach_at_end(found: Evidence, maximum: int) -> tuple[float, float]:
    """The log ratios that the interval's near ends may reach once it has shrunk with the rounds.

    At the end the estimate may be anywhere in today's interval, with a width smaller by the root of
    the rounds: the lowest upper end, and the highest lower end, that are still possible.
    """
    assert found.low is not None
    assert found.high is not None
    low, high = math.log(found.low), math.log(found.high)
    half = (high - low) / 2 * math.sqrt(min(1.0, found.count / maximum))
    return low + half, high - half


def _could_fail(row: Row, limits: Limits, highest_low_end: float) -> bool:
    """A regression is still possible: some end of the interval may clear 1, with a large ratio."""
    found = row.evidence
    assert found is not None
    assert found.high is not None
    large = found.high > 1 + max(limits.relative, row.floor.change)
    return large and highest_low_end > 0


def _could_pass(limits: Limits, row: Row, lowest_high_end: float) -> bool:
    """A pass is still possible: the upper end may come to lie within the relative limit."""
    found = row.evidence
    assert found is not None
    median = found.before.median
    bound = max(limits.relative, limits.absolute / median if median else 0.0)
    return lowest_high_end <= math.log1p(bound)
