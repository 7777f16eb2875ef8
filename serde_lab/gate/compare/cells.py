"""Finds the cells to compare: pairs of arms, the quantities of each pair, and their checks of contents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from serde_lab.errors import UsageError
from serde_lab.gate.compare.rows import CONTENTS, PRIMARY, CompareOptions, Row
from serde_lab.gate.compare.sides import ArmSide, Quantity, Side, interleaved
from serde_lab.gate.compare.verdict import Judgement, Verdict
from serde_lab.measure.metrics import metric


@dataclass(frozen=True, slots=True)
class ArmPair:
    """One pair of arms to compare; `paired` says whether their rounds were interleaved."""

    before_arm: str
    after_arm: str
    before: ArmSide | None
    after: ArmSide | None
    paired: bool


def arm_pairs(before: Side, after: Side, options: CompareOptions) -> list[ArmPair]:
    """The requested arms, else the arms of either side by name; raises UsageError for unknown ones."""
    wanted = options.arms
    if not wanted:
        if before is after:
            raise UsageError("two arms of one run must be named: --arm BEFORE --arm AFTER")
        names = [*before.arms, *(name for name in after.arms if name not in before.arms)]
        wanted = tuple((name, name) for name in names)
    for first, second in wanted:
        if first not in before.arms and second not in after.arms:
            known = ", ".join(sorted({*before.arms, *after.arms}))
            raise UsageError(f"neither side has the arm {first!r}; known are {known}")
    one_sitting = before.sitting != "" and before.sitting == after.sitting
    found = []
    for first, second in wanted:
        old, new = before.arms.get(first), after.arms.get(second)
        beside = before is after and old is not None and new is not None and interleaved(old, new)
        found.append(ArmPair(first, second, old, new, beside or one_sitting))
    return found


def quantities(old: ArmSide, new: ArmSide, options: CompareOptions) -> list[Quantity]:
    """The quantities of either arm to compare, in the requested order."""
    wanted = options.metrics or PRIMARY
    if "phase" in options.by and not options.metrics:
        wanted = (*wanted, "phase_wall_s", "phase_cpu_s")
    for name in wanted:
        metric(name)  # raises for an unknown name
    known = {quantity for side in (old, new) for quantity in side.values}
    rank = {name: i for i, name in enumerate(wanted)}
    chosen = [
        quantity
        for quantity in known
        if quantity.metric in rank
        and (not options.phases or not quantity.phase or quantity.phase in options.phases)
        and (not quantity.commit or "commit" in options.by or _moved(quantity, old, new))
    ]
    return sorted(chosen, key=lambda q: (rank[q.metric], q.phase, q.commit))


def _moved(quantity: Quantity, old: ArmSide, new: ArmSide) -> bool:
    """Whether an exact quantity changed in one commit, which the sum over commits might hide."""
    if metric(quantity.metric).kind != "exact":
        return False
    first, second = old.values.get(quantity, {}), new.values.get(quantity, {})
    return set(first.values()) != set(second.values())


def contents_of(pair: ArmPair) -> Row:
    """The checks of contents as one exact quantity."""
    names = pair.before_arm, pair.after_arm
    for side, arm in (("before", pair.before), ("after", pair.after)):
        if arm is None:
            other = "after" if side == "before" else "before"
            gone = contents_row(
                *names, Verdict.MISSING, f"the arm is there {other}, but not {side}"
            )
            return replace(gone, new=side == "before")
        if arm.failures:
            return contents_row(*names, Verdict.WRONG_ANSWER, f"{side}: {arm.failures[0]}")
        if arm.unchecked:
            return contents_row(*names, Verdict.UNCHECKED, f"{side}: {arm.unchecked}")
        if not arm.values:
            why = arm.errors[0] if arm.errors else "it measured nothing"
            gone = contents_row(*names, Verdict.MISSING, f"nothing to compare {side}: {why}")
            return replace(gone, new=side == "before")
        if not arm.checks_passed:
            return contents_row(*names, Verdict.UNCHECKED, f"{side}: no check of contents")
    assert pair.after is not None
    return contents_row(*names, Verdict.SAME, f"{pair.after.checks_passed} checks passed")


def contents_row(before_arm: str, after_arm: str, verdict: Verdict, because: str) -> Row:
    """The row of an arm's contents, which also reports an arm that is missing as a whole."""
    return Row(before_arm, after_arm, Quantity("contents"), CONTENTS, Judgement(verdict, because))
