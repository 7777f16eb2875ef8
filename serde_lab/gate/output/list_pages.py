"""Builds what `gate --self-test`, `history` and `baseline list` print."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from serde_lab.analysis.rounding import shown_change, shown_p, shown_ratio, shown_value
from serde_lab.gate.baseline.store import BaselineLine
from serde_lab.gate.history import HistoryStep, ScenarioHistory, Series
from serde_lab.gate.output.documents import history_document, self_test_document
from serde_lab.gate.pool import Pool
from serde_lab.gate.self_test import (
    GOAL_DETECTIONS,
    GOAL_EFFECT,
    GOAL_FALSE_ALARMS,
    LEAST_DETECTIONS,
    MOST_FALSE_ALARMS,
    MOST_ROUNDS,
    RATES,
    Group,
    SelfTest,
    carried_bounds,
    groups_needed,
    rounds_needed,
)
from serde_lab.gate.statistics import Rate
from serde_lab.report.formats import TextFormat, page_text
from serde_lab.report.page import Page, Points, Section, Table, text_table


def render_self_test(result: SelfTest, format: TextFormat = "table") -> str:
    """Rates with their bounds and the required bounds, and the smallest detectable effect."""
    table = text_table(
        "rates",
        ("", "found", "of", "rate", "95 % interval", "required", "result"),
        (
            _rate_row(
                "false alarms",
                result.false_alarms,
                f"upper bound at most {shown_change(MOST_FALSE_ALARMS)}",
                result.false_alarms_held,
            ),
            _rate_row("alarms, faster or slower", result.two_sided_alarms, "reported", None),
            _rate_row(
                f"detections of {shown_change(result.pool.injected)}",
                result.detections,
                f"lower bound at least {shown_change(LEAST_DETECTIONS)}",
                result.detections_held,
            ),
            _rate_row("slowed, and passed", result.let_through, "reported", None),
        ),
        frozenset({"found", "of", "rate"}),
    )
    about = Points(tuple(("", line) for line in _about(result)))
    sections = [Section("table", "", (table, *_alone(result), about))]
    return page_text(
        Page("self-test", sections=tuple(sections), data=self_test_document(result)), format
    )


def _alone(result: SelfTest) -> tuple[Table, ...]:
    """Detection by each metric alone, and the rounds that it needs; none for a pool of one metric."""
    if not result.alone:
        return ()
    needed = tuple(f"rounds for {rate:.0%}" for rate in RATES)
    return (
        text_table(
            "alone",
            ("by one metric", "false alarms", "detections", "passed", "smallest effect", *needed),
            [
                (
                    name,
                    _rate(one.two_sided_alarms),
                    _rate(one.detections),
                    _rate(one.let_through),
                    _effect(one),
                    *(_needed(one.pool, rate) for rate in RATES),
                )
                for name, one in result.alone.items()
            ],
        ),
    )


def _needed(pool: Pool, rate: float) -> str:
    rounds = rounds_needed(pool, rate)
    return f"more than {MOST_ROUNDS}" if rounds is None else str(rounds)


def _rate_row(name: str, rate: Rate, required: str, held: bool | None) -> tuple[str, ...]:
    return (
        name,
        str(rate.hits),
        str(rate.trials),
        shown_change(rate.rate),
        f"{shown_change(rate.low)} .. {shown_change(rate.high)}",
        required,
        "" if held is None else "held" if held else "NOT HELD",
    )


def _about(result: SelfTest) -> list[str]:
    looks = ", ".join(map(str, result.plan.looks))
    judged = ", ".join(result.pool.metrics)
    lines = [
        f"smallest detectable effect (lower bound at least {shown_change(LEAST_DETECTIONS)}): "
        + _effect(result),
        f"{len(result.pool.rounds)} rounds of {result.pool.scenario}{_arms_of(result.pool)}"
        f" on {result.pool.machine_class or 'an unnamed machine'}; judged by {judged};"
        f" looks after {looks} rounds; a verdict took {_rounds(result.plain_groups)} rounds on"
        f" equal sides and {_rounds(result.slowed_groups)} on slowed ones",
    ]
    added = result.pool.injected * result.pool.plain_median
    if added <= result.policy.absolute:
        lines.append(
            f"the injected slowdown adds {shown_value(added, 's')}, no more than the absolute limit of "
            f"{shown_value(result.policy.absolute, 's')}: it cannot be a regression"
        )
    lines += _what_the_pool_carries(result)
    return lines


def _minutes(pool: Pool, rounds: int) -> str:
    of_round, whole = pool.minutes_a_round
    minutes = rounds * of_round
    shown = f"{minutes:,.0f}" if minutes >= 10 else f"{minutes:.1f}"
    return f"{shown} minutes" if whole else f"{shown} minutes of cells"


def _arms_of(pool: Pool) -> str:
    """The arms of a pool that has several."""
    if not pool.beside:
        return ""
    return f", arm {pool.about.get('arm')} slowed, and {', '.join(pool.beside)} judged beside it,"


def _what_the_pool_carries(result: SelfTest) -> Iterator[str]:
    """The bounds that this many groups can show at best, and what the goal would cost."""
    most, _ = carried_bounds(result.false_alarms.trials)
    _, least = carried_bounds(result.detections.trials)
    if result.false_alarms.trials < groups_needed() or least < LEAST_DETECTIONS:
        yield (
            f"this pool cannot carry the required bounds: at best it shows at most {shown_change(most)} false"
            f" alarms and at least {shown_change(least)} detections; {groups_needed()} groups without a false"
            " alarm are needed"
        )
    groups = groups_needed(GOAL_FALSE_ALARMS)
    each = max(result.plan.looks[0], _mean_rounds(result.plain_groups))
    rounds = math.ceil(groups * each)
    yield (
        f"to show at most {shown_change(GOAL_FALSE_ALARMS)} false alarms it takes {groups} groups without"
        f" one: {rounds:,} rounds, {_minutes(result.pool, rounds)}"
    )
    small = result.pool.slowed_by(GOAL_EFFECT)
    for name in small.metrics:
        needed = rounds_needed(small.only(name), GOAL_DETECTIONS)
        said = f"more than {MOST_ROUNDS} rounds" if needed is None else f"{needed} rounds"
        time = "" if needed is None else f", {_minutes(result.pool, needed)}"
        yield (
            f"a slowdown of {shown_change(GOAL_EFFECT)} of the cell is found at a rate of"
            f" {shown_change(GOAL_DETECTIONS)} by {name} alone with {said}{time}"
        )
    sittings = len(result.pool.by_sitting)
    if sittings == 1:
        yield "the rounds are of one sitting: what differs between sittings is not in these rates"
    else:
        yield (
            f"the rounds are of {sittings} sittings: an interval is the wider of Wilson\u2019s and the one"
            " from resampled sittings; the rounds needed are those of the sitting that needs most"
        )


def _effect(result: SelfTest) -> str:
    effect = result.smallest_effect
    return "not found on this pool" if effect is None else shown_change(effect)


def _rate(rate: Rate) -> str:
    interval = f"{shown_change(rate.low)} .. {shown_change(rate.high)}"
    return f"{rate.hits} of {rate.trials} ({interval})"


def _rounds(groups: Sequence[Group]) -> str:
    """The mean number of rounds used per verdict."""
    return f"{_mean_rounds(groups):.1f}" if groups else "no"


def _mean_rounds(groups: Sequence[Group]) -> float:
    return sum(g.rounds for g in groups) / len(groups) if groups else 0.0


def render_history(found: ScenarioHistory, format: TextFormat = "table") -> str:
    """One line per series, then its steps and breaks; CSV holds every run's median."""
    table = text_table(
        "series",
        ("arm", "quantity", "runs", "first", "last", "steps"),
        [_series_row(series) for series in found.series],
        frozenset({"runs", "first", "last", "steps"}),
    )
    below = [
        *(_step_line(series, step) for series in found.series for step in series.steps),
        *(
            f"{series.arm} {series.quantity.label}: not comparable with earlier runs from {run} on: {why}"
            for series in found.series
            for run, why in series.breaks
        ),
        *found.messages,
    ]
    points = Points(tuple(("", line) for line in below))
    page = Page(
        "history",
        sections=(Section("table", "", (table, points)),),
        data=history_document(found),
        csv_table=_points_table(found),
    )
    return page_text(page, format)


def _series_row(series: Series) -> tuple[str, ...]:
    return (
        series.arm,
        series.quantity.label,
        str(len(series.points)),
        shown_value(series.points[0].value, series.unit),
        shown_value(series.points[-1].value, series.unit),
        str(len(series.steps)),
    )


def _step_line(series: Series, found: HistoryStep) -> str:
    step = found.step
    known = found.acknowledgement
    status = f"acknowledged by {known.by}: {known.why}" if known else "not acknowledged"
    chance = f", p {shown_p(step.p)}" if step.p else ""
    return (
        f"{series.arm} {series.quantity.label}: {found.verdict} at {found.run}, "
        f"{shown_value(step.before, series.unit)} to {shown_value(step.after, series.unit)} "
        f"(ratio {shown_ratio(step.ratio)}{chance}); {status}"
    )


def _points_table(found: ScenarioHistory) -> Table:
    return text_table(
        "points",
        ("arm", "metric", "phase", "unit", "run", "started_at", "median", "n", "stretch", "step"),
        [
            (
                series.arm,
                series.quantity.metric,
                series.quantity.phase,
                series.unit,
                point.run,
                point.started_at,
                f"{point.value:.15g}",
                str(len(point.values)),
                str(point.stretch),
                next((str(s.verdict) for s in series.steps if s.run == point.run), ""),
            )
            for series in found.series
            for point in series.points
        ],
    )


def render_baselines(entries: Sequence[BaselineLine], format: TextFormat = "table") -> str:
    table = text_table(
        "baselines",
        ("scenario", "baseline", "machine class", "run", "arms", "rounds", "since", "by", "reason"),
        [
            (
                entry.scenario,
                entry.name,
                entry.machine_class,
                entry.run,
                ", ".join(entry.arms),
                str(entry.rounds),
                entry.promoted_at,
                entry.by,
                entry.reason,
            )
            for entry in entries
        ],
        frozenset({"rounds"}),
    )
    data = [asdict(entry) for entry in entries]
    return page_text(Page("baselines", sections=(Section("", "", (table,)),), data=data), format)
