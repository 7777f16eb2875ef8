"""Compares two sides cell by cell and gives each cell a verdict that can be recomputed.

Pairs the arms, chooses the quantities of each pair and the rule for each kind of quantity, and counts the
cells for Holm's correction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from serde_lab.errors import UsageError
from serde_lab.gate.compare.comparability import (
    WIDE_CHANGE,
    Obstacles,
    arms_differ,
    instruments_differ,
    is_cpu_ratio,
    obstacles,
    ratios_to_yardstick,
    yardstick_of,
)
from serde_lab.gate.compare.evidence import (
    Evidence,
    NoiseFloor,
    Values,
    adjust,
    gather,
    side_values,
    unjudged,
)
from serde_lab.gate.compare.rows import CONTENTS, PRIMARY, CompareOptions, Comparison, Row
from serde_lab.gate.compare.sides import ArmPair, ArmSide, Quantity, Side, interleaved
from serde_lab.gate.compare.steadiness import noise_floor, notes, resting_on_steady_rounds
from serde_lab.gate.compare.verdict import (
    Judgement,
    NoisyLimits,
    Verdict,
    judge_compressed,
    judge_exact,
    judge_noisy,
)
from serde_lab.measure.metrics import metric


def compare_sides(
    before: Side, after: Side, options: CompareOptions | None = None, control: Side | None = None
) -> Comparison:
    """Compare two sides; the same object passed twice compares arms of one run.

    `control` is a second run of `before`'s code in the same A/B measurement, which gives its noise floor.
    Raises UsageError for arms or metrics that neither side has.
    """
    options = options or CompareOptions()
    stands = obstacles(before, after, options.host_mismatch, across_options=options.across_options)
    pairs = arm_pairs(before, after, options)
    rows: list[Row] = []
    for pair in pairs:
        rows += _rows_of_pair(pair, before, after, stands, options, control)
    rows = _with_verdicts(rows, options)
    rows = [resting_on_steady_rounds(row, before, after) for row in rows]
    if before.failures or after.failures:
        failed = "; ".join((*before.failures, *after.failures))
        rows.insert(0, contents_row("all arms", "all arms", Verdict.WRONG_ANSWER, failed))
    return Comparison(
        before=before.label,
        after=after.label,
        scenario=after.scenario,
        rows=tuple(rows),
        notes=tuple(notes(before, after, pairs, rows, stands)),
        raised=tuple(
            f"{pair.after_arm}: {error}"
            for pair in pairs
            if pair.after is not None and pair.after.values
            for error in pair.after.errors
        ),
        family=sum(row.evidence is not None and row.evidence.testable for row in rows),
    )


def _rows_of_pair(
    pair: ArmPair,
    before: Side,
    after: Side,
    stands: Obstacles,
    options: CompareOptions,
    control: Side | None,
) -> Iterator[Row]:
    contents = contents_of(pair)
    yield contents
    if contents.verdict is not Verdict.SAME:
        return
    old, new = pair.before, pair.after
    if old is None or new is None:
        return
    reason = stands.everything
    one_arm = before is not after and pair.before_arm == pair.after_arm
    if not reason and one_arm and not options.across_options:
        differs = arms_differ(old, new)
        reason = f"the arm has other settings: {differs}" if differs else ""
    yardstick = yardstick_of(before, after, options.yardstick) if stands.ratios else ""
    for quantity in quantities(old, new, options):
        kind = metric(quantity.metric)
        base = Row(pair.before_arm, pair.after_arm, quantity, kind, _PENDING)
        first, second = old.values.get(quantity, {}), new.values.get(quantity, {})
        if refused := reason or instruments_differ(before, after, quantity.metric):
            yield _refused(base, first, second, refused)
        elif not first or not second:
            side = "before" if not first else "after"
            gone = Judgement(Verdict.MISSING, f"no value {side}")
            yield replace(base, judgement=gone, new=not first)
        elif kind.kind == "exact":
            samples = side_values(first), side_values(second)
            verdict = judge_exact(*samples, kind.better, kind.unit)
            yield replace(base, before=samples[0], after=samples[1], judgement=verdict)
        elif kind.kind == "compressed":
            samples = side_values(first), side_values(second)
            verdict = judge_compressed(*samples, options.bytes_tolerance, kind.better)
            yield replace(base, before=samples[0], after=samples[1], judgement=verdict)
        elif stands.absolute:
            yield _across_machines(base, before, after, stands, yardstick)
        else:
            arms = pair.before_arm, pair.after_arm
            # Family and level are set once all cells are known.
            pending = _with_evidence(base, unjudged(first, second, paired=pair.paired))
            yield replace(pending, floor=noise_floor(quantity, before, after, arms, control))


_PENDING = Judgement(Verdict.INSUFFICIENT, "not judged yet")


def _with_evidence(base: Row, found: Evidence) -> Row:
    return replace(base, before=found.before, after=found.after, evidence=found)


def _refused(base: Row, first: Values, second: Values, reason: str) -> Row:
    return replace(
        base,
        before=side_values(first) if first else None,
        after=side_values(second) if second else None,
        judgement=Judgement(Verdict.NOT_COMPARABLE, reason),
    )


def _across_machines(
    base: Row, before: Side, after: Side, stands: Obstacles, yardstick: str
) -> Row:
    """Across machine classes only times are compared: as ratios to the yardstick, with wide limits."""
    if not yardstick:
        return _refused(base, {}, {}, stands.absolute)
    why, quantity = "", base.quantity
    first = ratios_to_yardstick(before, base.before_arm, yardstick, quantity)
    second = ratios_to_yardstick(after, base.after_arm, yardstick, quantity)
    if base.metric.kind != "time" or yardstick in (base.before_arm, base.after_arm):
        why = "this is not a time that can be divided by the yardstick's"
    elif stands.cpu_only and not all(is_cpu_ratio(s, yardstick, quantity) for s in (before, after)):
        why = "this is not a CPU time that can be divided by the yardstick's"
    elif not first or not second:
        why = f"the yardstick {yardstick} has no such time"
    if why:
        return _refused(base, {}, {}, f"{stands.absolute}, and {why}")
    return replace(
        _with_evidence(base, unjudged(first, second, paired=False)),
        floor=NoiseFloor(WIDE_CHANGE, "the wide limit across machine classes"),
        scale=f"x {yardstick}",
    )


def _with_verdicts(rows: list[Row], options: CompareOptions) -> list[Row]:
    """Add the verdicts of the noisy cells, corrected for their number."""
    noisy = {i: row.evidence for i, row in enumerate(rows) if row.evidence is not None}
    judged = [i for i, found in noisy.items() if found.testable]
    family = max(len(judged), 1)
    # An A/B measurement fixes its looks in advance, but only here is the number of cells known.
    spending = None if options.spending is None else replace(options.spending, family=family)
    for i, found in noisy.items():
        level = options.alpha if spending is None else spending.level(found.count)
        sides = found.before.by_round, found.after.by_round
        noisy[i] = gather(*sides, paired=found.paired, family=family, alpha=level)
        rows[i] = replace(rows[i], alpha=level)
    if spending is None:
        # Under repeated looks each cell keeps Bonferroni's share of the level: Holm's steps would
        # depend on cells that are still being measured.
        holm = adjust([noisy[i] for i in judged])
        noisy |= dict(zip(judged, holm, strict=True))
    for i, found in noisy.items():
        row = rows[i]
        margin = WIDE_CHANGE if row.scale else options.margin
        limits = NoisyLimits(row.alpha, row.floor.change, row.floor.source, margin)
        judgement = judge_noisy(found, limits, row.metric.better)
        rows[i] = replace(row, evidence=found, judgement=judgement)
    return rows


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
    same_ab = before.ab != "" and before.ab == after.ab
    found = []
    for first, second in wanted:
        old, new = before.arms.get(first), after.arms.get(second)
        beside = before is after and old is not None and new is not None and interleaved(old, new)
        found.append(ArmPair(first, second, old, new, beside or same_ab))
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
            gone = contents_row(*names, Verdict.MISSING, f"the arm exists {other}, but not {side}")
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
