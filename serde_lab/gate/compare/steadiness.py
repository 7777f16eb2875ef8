"""Adds doubts to a comparison: rounds in which the machine's speed changed, and arms that raised.

Withdraws verdicts that rest on marked rounds alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from serde_lab.gate.compare.cells import ArmPair
from serde_lab.gate.compare.comparability import Obstacles
from serde_lab.gate.compare.evidence import SMALLEST_SAMPLE, Evidence, Sample, Values, gather
from serde_lab.gate.compare.rows import Row
from serde_lab.gate.compare.sides import Side
from serde_lab.gate.compare.verdict import Judgement, Verdict, changed
from serde_lab.gate.statistics.rounding import shown_ratio


def resting_on_steady_rounds(row: Row, before: Side, after: Side) -> Row:
    """Withdraw a verdict that does not hold without the rounds in which calibration moved.

    Such rounds are only reported if both figures of a ratio met the same state of the machine: in a sitting
    that measured its own noise (A/A), and for multiples of a control arm of the same round.
    """
    found = row.evidence
    if found is None or row.metric.kind != "time":
        return row
    marked_before = before.marked_rounds & set(found.before.rounds)
    marked_after = after.marked_rounds & set(found.after.rounds)
    if found.paired:
        marked_before = marked_after = marked_before | marked_after
    marked = tuple(sorted(marked_before | marked_after))
    if not marked:
        return row
    row = replace(row, marked_rounds=marked)
    if row.verdict not in (Verdict.SAME, Verdict.FASTER, Verdict.SLOWER):
        return row
    one_sitting = before.sitting != "" and before.sitting == after.sitting
    if row.scale or (one_sitting and found.paired and row.floor.source.startswith("A/A")):
        return row
    steady = gather(
        {n: v for n, v in _values_of(row.before).items() if n not in marked_before},
        {n: v for n, v in _values_of(row.after).items() if n not in marked_after},
        paired=found.paired,
        family=1,
    )
    if _stands(row, steady):
        return row
    rounds = ", ".join(map(str, marked))
    return replace(
        row,
        judgement=Judgement(
            Verdict.INCONCLUSIVE,
            f"{row.verdict} only by the rounds in which calibration moved by more than 10 % "
            f"({rounds}); without them: ratio {shown_ratio(steady.ratio)} of {steady.count} rounds",
            row.judgement.inequalities,
        ),
    )


def _stands(row: Row, steady: Evidence) -> bool:
    if steady.count < SMALLEST_SAMPLE or steady.ratio is None:
        return False
    if row.verdict is Verdict.SAME:
        return True
    same_way = (steady.ratio > 1) == ((row.ratio or 1) > 1)
    return same_way and changed(steady.ratio) > row.floor.change


def notes(
    before: Side, after: Side, pairs: list[ArmPair], rows: list[Row], stands: Obstacles
) -> Iterator[str]:
    if stands.everything:
        yield f"not comparable: {stands.everything}"
    elif stands.absolute:
        yield f"times are not compared as such: {stands.absolute}"
    yield from stands.notes
    for pair in pairs:
        both = pair.before is not None and pair.after is not None
        if before is after and both and not pair.paired:
            yield (
                f"{pair.before_arm} and {pair.after_arm} ran one after the other, not side by side:"
                " a drift of the machine would look like a difference"
            )
        for arm in (pair.before, pair.after):
            if arm is not None and arm.values:
                yield from (f"{arm.arm}: {error}" for error in arm.errors)
    for side in [before] if before is after else [before, after]:
        if side.marked_rounds:
            rounds = ", ".join(map(str, sorted(side.marked_rounds)))
            yield f"{side.label}: calibration moved by more than 10 % in round {rounds}"
        yield from side.messages
    yield from _one_sided(rows)


def _one_sided(rows: list[Row]) -> Iterator[str]:
    """Warn if every arm moved the same way: something shared changed, whatever each p is."""
    for name in ("seconds", "serde_cpu_s"):
        ratios = [
            row.ratio for row in rows if row.metric.name == name and row.evidence and row.ratio
        ]
        if len(ratios) >= 5 and (all(r > 1 for r in ratios) or all(r < 1 for r in ratios)):
            way = "up" if ratios[0] > 1 else "down"
            yield f"{name} went {way} in all {len(ratios)} arms: look for what they share"


def _values_of(side: Sample | None) -> Values:
    return {} if side is None else dict(zip(side.rounds, side.values, strict=True))
