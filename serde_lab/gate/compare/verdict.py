"""Reaches the verdict on each cell, with the inequalities it evaluated as text and as data.

The verdicts:

    same            within the margin (noisy), equal (exact), within the tolerance (compressed)
    faster, slower  better, worse: for bytes and counts as for seconds
    noise           a difference, but no larger than the noise floor
    inconclusive    neither a difference nor sameness can be shown
    insufficient    fewer than three rounds on a side
    not comparable  another question, data, measuring code, format or (for times) machine
    wrong answer    a check of contents failed: no timing of that arm is valid
    unchecked       a side was measured without a check: no timing of it is valid either
    missing         one side does not have it
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from serde_lab.analysis.rounding import (
    rounded_change,
    rounded_ratio,
    shown_change,
    shown_p,
    shown_ratio,
    shown_value,
)
from serde_lab.gate.compare.evidence import NO_FLOOR, Evidence, SideValues, rounds_needed
from serde_lab.gate.statistics import SMALLEST_SAMPLE
from serde_lab.measure.metrics import Better


class Verdict(StrEnum):
    """The verdict on one compared cell."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "noise"
    INCONCLUSIVE = "inconclusive"
    INSUFFICIENT = "insufficient"
    NOT_COMPARABLE = "not comparable"
    WRONG_ANSWER = "wrong answer"
    UNCHECKED = "unchecked"
    MISSING = "missing"


UNDECIDED = frozenset({Verdict.INCONCLUSIVE, Verdict.INSUFFICIENT, Verdict.NOT_COMPARABLE})

MARKS = {
    Verdict.SAME: "=",
    Verdict.FASTER: "+",
    Verdict.SLOWER: "-",
    Verdict.NOISE: "~",
    Verdict.INCONCLUSIVE: "?",
    Verdict.INSUFFICIENT: "?",
    Verdict.NOT_COMPARABLE: "x",
    Verdict.WRONG_ANSWER: "!",
    Verdict.UNCHECKED: "!",
    Verdict.MISSING: "x",
}


@dataclass(frozen=True, slots=True)
class Inequality:
    """`left relation right`, a description of both, and whether it holds."""

    what: str
    left: float
    relation: str
    right: float
    holds: bool

    @property
    def text(self) -> str:
        """The inequality as text, for a reader who recomputes it."""
        holds = "" if self.holds else " does not hold"
        return f"{self.what}: {self.left:.10g} {self.relation} {self.right:.10g}{holds}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the sentence that explains it, and the inequalities it rests on."""

    verdict: Verdict
    because: str
    inequalities: tuple[Inequality, ...] = ()


@dataclass(frozen=True, slots=True)
class NoisyLimits:
    """The limits that noisy evidence is compared with.

    `floor` and `margin` are relative (0.03 is 3 %): a difference up to the floor is noise, an interval within
    the margin shows sameness.
    """

    alpha: float = 0.05
    floor: float = 0.0
    floor_source: str = NO_FLOOR
    margin: float = 0.05


def less(what: str, left: float, right: float) -> Inequality:
    """`left <= right`, evaluated on the given figures."""
    return Inequality(what, left, "<=", right, left <= right)


def more(what: str, left: float, right: float) -> Inequality:
    """`left > right`, evaluated on the given figures."""
    return Inequality(what, left, ">", right, left > right)


def changed(ratio: float) -> float:
    """The distance of a ratio from 1, equal for a factor and its inverse: 1.25 and 0.8 give 0.25."""
    return rounded_change((ratio if ratio >= 1 else 1 / ratio) - 1) if ratio > 0 else math.inf


def direction(increased: bool, better: Better) -> Verdict:
    """`faster` or `slower` for a rise or fall; any change of a quantity that must stay equal is worse."""
    if better == "equal":
        return Verdict.SLOWER
    return Verdict.FASTER if increased == (better == "higher") else Verdict.SLOWER


def judge_noisy(found: Evidence, limits: NoisyLimits, better: Better) -> Judgement:
    """The verdict on times and memory: a difference, noise, or shown to be the same.

    A difference is significant and above the floor, and test and interval show it in the same direction.
    """
    if not any(found.before.values) and not any(found.after.values):
        return Judgement(Verdict.SAME, "zero on both sides")
    if found.count < SMALLEST_SAMPLE:
        few = Inequality("rounds", found.count, ">=", SMALLEST_SAMPLE, False)
        return Judgement(
            Verdict.INSUFFICIENT,
            f"{found.before.count} and {found.after.count} rounds; at least "
            f"{SMALLEST_SAMPLE} a side are needed",
            (few,),
        )
    interval = found.interval
    if interval is None:
        return Judgement(Verdict.INCONCLUSIVE, "a value is zero: there is no ratio")
    significant = less(_name_of_p(found), found.adjusted_p, limits.alpha)
    size = changed(interval.ratio)
    above = more(f"change against the noise floor ({limits.floor_source})", size, limits.floor)
    nearer_end = interval.low if found.way > 0 else 1 / interval.high
    leaves_out_1 = more("nearer end of the interval against 1", rounded_ratio(nearer_end), 1.0)
    if significant.holds and above.holds and leaves_out_1.holds:
        verdict = direction(found.way > 0, better)
        return Judgement(verdict, _difference(found, limits), (significant, above, leaves_out_1))
    if (significant.holds or found.separated) and not above.holds:
        return Judgement(
            Verdict.NOISE,
            f"{_size(found)}, no larger than the noise floor of "
            f"{shown_change(limits.floor)} ({limits.floor_source})",
            (significant, above),
        )
    margin = rounded_change(limits.margin)
    widest = max(changed(interval.low), changed(interval.high))
    within = less("farther end of the interval against the margin", widest, margin)
    if within.holds and not found.separated:
        return Judgement(
            Verdict.SAME,
            f"the interval {_ends(found)} lies within a change of {shown_change(margin)}",
            (significant, within),
        )
    lost = less("farther end of the interval against the noise floor", widest, limits.floor)
    if lost.holds and not found.separated:
        return Judgement(
            Verdict.NOISE,
            f"the interval {_ends(found)} lies within the noise"
            f" floor of {shown_change(limits.floor)} ({limits.floor_source})",
            (significant, within, lost),
        )
    if significant.holds:
        way = "rise" if found.way > 0 else "fall"
        text = (
            f"p {shown_p(found.adjusted_p)} shows a {way}, but the interval {_ends(found)} does not"
        )
        return Judgement(Verdict.INCONCLUSIVE, text, (significant, leaves_out_1, within))
    return Judgement(Verdict.INCONCLUSIVE, _doubt(found, limits, margin), (significant, within))


def _ends(found: Evidence) -> str:
    """The ends of the interval."""
    if found.interval is None:
        return ""
    return f"{shown_ratio(found.interval.low)} to {shown_ratio(found.interval.high)}"


def _name_of_p(found: Evidence) -> str:
    corrected = f", Holm over {found.family} cells" if found.family > 1 else ""
    if not found.reachable and found.separated:
        return f"p of Student's t on logs{corrected}"
    return f"p of {found.test}{corrected}"


def _difference(found: Evidence, limits: NoisyLimits) -> str:
    text = f"p {shown_p(found.adjusted_p)} is at most {limits.alpha:g}, and {_size(found)} "
    if limits.floor_source == NO_FLOOR:
        text += f"is found, with {NO_FLOOR}"
    else:
        text += f"is above the noise floor of {shown_change(limits.floor)}"
    if not found.reachable:
        return f"{_unreachable(found, limits)}; the samples do not overlap, so Student's t decides: {text}"
    return text


def _size(found: Evidence) -> str:
    """The change in per cent; for a fall, also the change of the inverse ratio, which is the one compared."""
    ratio = found.ratio or 1.0
    if ratio >= 1:
        return f"a rise of {shown_change(changed(ratio))}"
    fall = shown_change(1 - ratio)
    return f"a fall of {fall} (1 / {shown_ratio(ratio)} - 1 = {shown_change(changed(ratio))})"


def _unreachable(found: Evidence, limits: NoisyLimits) -> str:
    smallest_adjusted_p = min(1.0, found.smallest_p * found.family)
    return (
        f"with {found.count} rounds and {found.family} cells no exact p below "
        f"{shown_p(smallest_adjusted_p)} can be reached (level {limits.alpha:g}); it takes"
        f" {rounds_needed(found.family, limits.alpha, paired=found.paired)} rounds"
    )


def _doubt(found: Evidence, limits: NoisyLimits, margin: float) -> str:
    if found.separated:
        return (
            f"the samples do not overlap, but {_unreachable(found, limits)}, and Student's t gives only "
            f"{shown_p(found.adjusted_p)}"
            if not found.reachable
            else f"the samples do not overlap, yet p {shown_p(found.adjusted_p)} is above the level"
        )
    text = (
        f"p {shown_p(found.adjusted_p)} shows no difference, and the interval {_ends(found)} is too "
        f"wide to show sameness within {shown_change(margin)}"
    )
    return text if found.reachable else f"{_unreachable(found, limits)}; {text}"


def judge_exact(before: SideValues, after: SideValues, better: Better, unit: str) -> Judgement:
    """The verdict on deterministic quantities: every difference counts, whatever the number of rounds."""
    first, second = sorted(set(before.values)), sorted(set(after.values))
    if not first or not second:
        return Judgement(Verdict.MISSING, "one side has no value")
    equal = Inequality("worst value", second[-1], "=", first[-1], first == second)
    steady = len(first) == len(second) == 1
    if first == second:
        if steady:
            return Judgement(Verdict.SAME, "equal, compared exactly", (equal,))
        return Judgement(
            Verdict.INCONCLUSIVE,
            f"exact by definition, but it varies between rounds, {_span(first, unit)} on both sides",
            (equal,),
        )
    if steady or better == "equal":
        change = second[-1] - first[-1]
        text = f"{_span(first, unit)} to {_span(second, unit)}: any change counts"
        return Judgement(direction(change > 0, better), text, (equal,))
    # A side with varying values is compared by its extremes: worse only if one got worse and none
    # better.
    rises = second[0] >= first[0] and second[-1] >= first[-1]
    falls = second[0] <= first[0] and second[-1] <= first[-1]
    text = f"exact by definition, but it varies: {_span(first, unit)} to {_span(second, unit)}"
    if rises != falls:
        return Judgement(direction(rises, better), text, (equal,))
    return Judgement(Verdict.INCONCLUSIVE, text, (equal,))


def _span(values: list[float], unit: str) -> str:
    ends = values[:1] if len(values) == 1 else [values[0], values[-1]]
    return " .. ".join(shown_value(end) for end in ends) + (f" {unit}" if unit != "1" else "")


def judge_compressed(
    before: SideValues, after: SideValues, tolerance: float, better: Better
) -> Judgement:
    """The verdict on bytes after a codec: the same up to `tolerance` (0.005 is 0.5 %)."""
    if not before.values or not after.values:
        return Judgement(Verdict.MISSING, "one side has no value")
    if before.median <= 0 or after.median <= 0:
        same = before.median == after.median
        size = 0.0 if same else math.inf
    else:
        size = changed(after.median / before.median)
    within = less("change against the tolerance", size, tolerance)
    if within.holds:
        return Judgement(
            Verdict.SAME,
            f"a change of {shown_change(size)}, within {shown_change(tolerance)}",
            (within,),
        )
    overlap = min(after.values) <= max(before.values) and min(before.values) <= max(after.values)
    if overlap:
        return Judgement(
            Verdict.INCONCLUSIVE,
            f"a change of {shown_change(size)}, beyond {shown_change(tolerance)}, but the rounds of "
            "both sides overlap",
            (within,),
        )
    return Judgement(
        direction(after.median > before.median, better),
        f"a change of {shown_change(size)}, beyond {shown_change(tolerance)}",
        (within,),
    )


class Status(IntEnum):
    """Exit statuses; 2 (wrong usage) is raised as an error, never decided."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    REGRESSION = 3
    WRONG_ANSWER = 4
    UNDECIDED = 5
