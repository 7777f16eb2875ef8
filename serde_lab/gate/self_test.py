"""Measures the gate's false-alarm and detection rates on this machine.

A pool of rounds is cut into disjoint groups. The gate's own functions judge each group as an A/B measurement
on a pull request, with its looks: once with two identical sides (a regression found is a false alarm), once
with the slowed side (a regression found is a detection). Each round serves one verdict of each kind. If a
pool has several arms, all of them are judged: a regression of any is a false alarm on identical sides, and
only one of the slowed arm is a detection.

A group lies within one sitting, as an A/B measurement does. Where a pool has several, the interval of a rate
is the wider of Wilson's and the one from resampled sittings.

The rounds that one metric needs are estimated by resampling a sitting's rounds: a paired test (Student's t on
logarithms, two-sided, level 5 %) looks once, after a fixed number of rounds. What holds in every sitting
counts. The gate itself uses exact tests, several looks and limits, so its own rates differ a little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

import numpy as np
from scipy import stats

from serde_lab.analysis.rounding import rounded_change
from serde_lab.gate.compare.sides import ArmSide, Quantity, Side
from serde_lab.gate.compare.verdict import Status, Verdict
from serde_lab.gate.decision import GateResult, Level, Policy
from serde_lab.gate.gating import gate_sides, look
from serde_lab.gate.pool import SECONDS, Pool, PoolRound
from serde_lab.gate.statistics import DEFAULT_LOOKS, AlphaSpending, Rate, resampled_rate, wilson

MOST_FALSE_ALARMS = 0.05
LEAST_DETECTIONS = 0.85
GOAL_FALSE_ALARMS, GOAL_EFFECT, GOAL_DETECTIONS = 0.01, 0.05, 0.95
"""What a larger pool should show; the self-test prints what that costs."""
EFFECTS = tuple(percent / 100 for percent in range(1, 51))

_ARM = "subject"


@dataclass(frozen=True, slots=True)
class Group:
    """One verdict of the self-test: the rounds that it used, and the gate's finding."""

    first_round: int
    rounds: int
    level: Level
    text: str
    faster: bool = False
    """Whether a quantity was found to be faster, which on equal sides is an alarm too."""
    sitting: int = 1

    @property
    def is_alarm(self) -> bool:
        """Whether a regression was found."""
        return self.level == "regression"


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Rates with Wilson's 95 % intervals, and the smallest effect detected at the required rate.

    `smallest_effect` is None if no effect up to 50 % meets the bound on this pool.
    """

    pool: Pool
    plan: AlphaSpending
    policy: Policy
    false_alarms: Rate
    detections: Rate
    smallest_effect: float | None
    plain_groups: tuple[Group, ...] = field(repr=False)
    slowed_groups: tuple[Group, ...] = field(repr=False)
    alone: Mapping[str, SelfTest] = field(default_factory=dict, repr=False)
    """The same pool judged by each metric alone, wall seconds first, if it holds several: reported, not
    required."""

    @property
    def two_sided_alarms(self) -> Rate:
        """Groups of equal sides in which anything was found slower or faster."""
        return _rate(self.plain_groups, lambda one: one.is_alarm or one.faster)

    @property
    def let_through(self) -> Rate:
        """Groups with a slowed side that passed; the other ones not detected stayed undecided."""
        return _rate(self.slowed_groups, lambda one: one.level == "passed")

    @property
    def false_alarms_held(self) -> bool:
        """Whether the interval's upper bound is at most 5 %."""
        return rounded_change(self.false_alarms.high) <= MOST_FALSE_ALARMS

    @property
    def detections_held(self) -> bool:
        """Whether the interval's lower bound is at least 85 %."""
        return rounded_change(self.detections.low) >= LEAST_DETECTIONS

    @property
    def exit_status(self) -> int:
        """0 if both bounds hold; 1 if the gate cannot be trusted, or the pool is too small to decide."""
        held = self.false_alarms_held and self.detections_held
        return int(Status.PASSED if held else Status.FAILED)


def self_test(
    pool: Pool,
    plan: AlphaSpending = DEFAULT_LOOKS,
    policy: Policy | None = None,
    *,
    effects: Sequence[float] = EFFECTS,
    slower: Callable[[float], Pool] | None = None,
) -> SelfTest:
    """Judge a pool. `effects` are tried to find the smallest detectable effect (empty: skip the search).

    `slower` gives the pool with another slowdown, by default `pool.slowed_by`.
    """
    policy = policy or Policy()
    plain = judge_groups(pool, plan, policy, slowed=False)
    slowed = judge_groups(pool, plan, policy, slowed=True)
    return SelfTest(
        pool=pool,
        plan=plan,
        policy=policy,
        false_alarms=_alarms(plain),
        detections=_alarms(slowed),
        smallest_effect=_smallest_effect(slower or pool.slowed_by, plan, policy, effects),
        plain_groups=plain,
        slowed_groups=slowed,
        alone={
            name: self_test(
                pool.only(name),
                plan,
                policy,
                effects=effects,
                # of the cell's wall time, whatever the metric
                slower=partial(_slowed_alone, pool, name),
            )
            for name in (pool.metrics if pool.others and effects else ())
        },
    )


def _slowed_alone(pool: Pool, metric: str, effect: float) -> Pool:
    return pool.slowed_by(effect).only(metric)


def judge_groups(
    pool: Pool, plan: AlphaSpending, policy: Policy, *, slowed: bool
) -> tuple[Group, ...]:
    """Disjoint groups in measuring order; a group ends when its A/B measurement would."""
    groups: list[Group] = []
    earlier = 0
    for sitting, part in enumerate(pool.by_sitting, 1):
        start = 0
        while start + plan.looks[0] <= len(part.rounds):
            group = _judge_one(part, start, plan, policy, slowed)
            if group is None:  # the sitting ended before the A/B measurement did
                break
            groups.append(replace(group, first_round=earlier + start + 1, sitting=sitting))
            start += group.rounds
        earlier += len(part.rounds)
    return tuple(groups)


def groups_needed(most: float = MOST_FALSE_ALARMS) -> int:
    """The number of groups without a false alarm that brings Wilson's upper bound down to `most`."""
    groups = 1
    while wilson(0, groups).high > most:
        groups += 1
    return groups


def _judge_one(
    pool: Pool, start: int, plan: AlphaSpending, policy: Policy, slowed: bool
) -> Group | None:
    for rounds in plan.looks:
        if start + rounds > len(pool.rounds):
            return None
        result = _judge(pool, start, rounds, plan, policy, slowed)
        if not look(rounds, result, plan, policy).go_on:
            break
    judged = [f for f in result.findings if f.row is not None and f.row.evidence is not None]
    if slowed:  # what is said of an arm beside it is no detection
        judged = [f for f in judged if f.row is not None and f.row.after_arm == _ARM]
    finding = min(judged, key=lambda f: ("regression", "undecided", "passed").index(f.level))
    faster = any(f.row is not None and f.row.verdict is Verdict.FASTER for f in judged)
    return Group(start + 1, rounds, finding.level, finding.text, faster)


def _judge(
    pool: Pool, start: int, rounds: int, plan: AlphaSpending, policy: Policy, slowed: bool
) -> GateResult:
    arms = {_ARM: pool, **pool.beside}
    places = range(start, start + rounds)

    def cells(of: _Cell) -> dict[str, _Values]:
        return {arm: _column(one, places, of) for arm, one in arms.items()}

    before = _side("before", cells(_plain))
    again = cells(_plain_again)
    after = _side("after", again)
    if slowed:
        after = _side("after", {**again, _ARM: _column(pool, places, _slowed)})
    control: Side | None = None
    if pool.rounds and all(one.control is not None for one in pool.rounds):
        control = _side("control", cells(lambda one: one.control or 0.0))
    elif slowed:
        control = _side("control", again)
    else:
        # Both plain cells are judged, so the plain cells of the preceding rounds (for the first
        # group, the last rounds of the sitting) give the noise floor.
        earlier = [(start - 1 - i) % len(pool.rounds) for i in range(rounds)]
        twins = {
            "twin 1": _column(pool, earlier, _plain),
            "twin 2": _column(pool, earlier, _plain_again),
        }
        before = _side("before", cells(_plain), twins)
    pairs = [(arm, arm) for arm in arms]
    return gate_sides(before, after, policy, arms=pairs, control=control, spending=plan)


_Values = Mapping[str, list[float]]
_Cell = Callable[[PoolRound], float]
_plain, _plain_again, _slowed = map(attrgetter, ("plain", "plain_again", "slowed"))


def _column(pool: Pool, places: Sequence[int], cell: _Cell) -> _Values:
    """By metric, one cell of each of these rounds."""
    return {name: [cell(of[i]) for i in places] for name, of in pool.metrics.items()}


def _side(
    label: str, arms: Mapping[str, _Values], twins: Mapping[str, _Values] | None = None
) -> Side:
    found = {name: _arm(name, values, {"strategy": name}) for name, values in arms.items()}
    for name, values in (twins or {}).items():
        found[name] = _arm(name, values, {"strategy": "twin"})
    return Side(
        label=label,
        scenario="self-test",
        asked={},
        data_checksums={},
        measuring_code="self-test",
        results_format=1,
        machine_class="self-test",
        arms=found,
        ab="self-test",
    )


def _arm(name: str, values: _Values, definition: dict[str, str]) -> ArmSide:
    numbered = {Quantity(metric): dict(enumerate(of, 1)) for metric, of in values.items()}
    order = tuple((2 * n, n) for n in numbered[Quantity(SECONDS)])
    # the pool holds bare times: contents are checked in the first round of a recording
    return ArmSide(name, definition, numbered, checks_passed=1, order=order)


def _alarms(groups: Sequence[Group]) -> Rate:
    return _rate(groups, lambda one: one.is_alarm)


def _rate(groups: Sequence[Group], is_hit: Callable[[Group], bool]) -> Rate:
    """The share of hits, with the wider of Wilson's interval and the one from resampled sittings."""
    by_sitting: dict[int, list[bool]] = {}
    for one in groups:
        by_sitting.setdefault(one.sitting, []).append(is_hit(one))
    found = wilson(sum(map(sum, by_sitting.values())), len(groups))
    if len(by_sitting) < 2:
        return found
    low, high = resampled_rate([(sum(hits), len(hits)) for hits in by_sitting.values()])
    return replace(found, low=min(found.low, low), high=max(found.high, high))


def _smallest_effect(
    slower: Callable[[float], Pool], plan: AlphaSpending, policy: Policy, effects: Sequence[float]
) -> float | None:
    """The smallest detected effect by bisection; assumes that larger effects are detected no less often."""
    low, high = 0, len(effects)
    while low < high:
        middle = (low + high) // 2
        groups = judge_groups(slower(effects[middle]), plan, policy, slowed=True)
        if rounded_change(_alarms(groups).low) >= LEAST_DETECTIONS:
            high = middle
        else:
            low = middle + 1
    return effects[low] if low < len(effects) else None


RATES = (0.85, 0.95)
MOST_ROUNDS = 400
_LEVEL = 0.05
_DRAWS, _SEED = 2_000, 20_261_123
_FEWEST = 3


def detection_rate(pool: Pool, number: int) -> float:
    """The share of resamples of `number` rounds in which the slowed cell is found slower by wall seconds.

    In the sitting with the lowest share.
    """
    return min(_detected(part.rounds, number) for part in pool.by_sitting)


def _detected(rounds: Sequence[PoolRound], number: int) -> float:
    logs = np.log([one.slowed / one.plain for one in rounds])
    chosen = np.random.default_rng([_SEED, number]).integers(0, logs.size, (_DRAWS, number))
    drawn = logs[chosen]
    spread = np.maximum(drawn.std(axis=1, ddof=1), 1e-12)
    t = drawn.mean(axis=1) * math.sqrt(number) / spread
    return float(np.mean(t > stats.t.isf(_LEVEL / 2, number - 1)))


def rounds_needed(pool: Pool, rate: float) -> int | None:
    """The fewest rounds that find the slowdown at this rate in every sitting; None beyond 400."""
    few, enough = _FEWEST - 1, MOST_ROUNDS
    fewest = min(len(part.rounds) for part in pool.by_sitting)
    if fewest < _FEWEST or detection_rate(pool, MOST_ROUNDS) < rate:
        return None
    while enough - few > 1:
        middle = (few + enough) // 2
        found = detection_rate(pool, middle) >= rate
        few, enough = (few, middle) if found else (middle, enough)
    return enough


def carried_bounds(trials: int) -> tuple[float, float]:
    """The best bounds that so many groups can show: most false alarms, and least detections."""
    return (wilson(0, trials).high, wilson(trials, trials).low) if trials else (1.0, 0.0)
