"""Builds what `gate --self-test`, `history` and `baseline list` print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from serde_lab.analysis.rounding import shown_change, shown_p, shown_ratio, shown_value
from serde_lab.gate.baseline.store import BaselineEntry
from serde_lab.gate.history import HistoryStep, ScenarioHistory, Series
from serde_lab.gate.output.documents import history_document, self_test_document
from serde_lab.gate.self_test import (
    LEAST_DETECTIONS,
    MOST_FALSE_ALARMS,
    Group,
    SelfTest,
    groups_needed,
)
from serde_lab.gate.statistics.intervals import Rate
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
            _rate_row(
                f"detections of {shown_change(result.pool.injected)}",
                result.detections,
                f"lower bound at least {shown_change(LEAST_DETECTIONS)}",
                result.detections_held,
            ),
        ),
        frozenset({"found", "of", "rate"}),
    )
    about = Points(tuple(("", line) for line in _about(result)))
    return page_text(
        Page("self-test", sections=_sections(table, about), data=self_test_document(result)), format
    )


def _sections(table: Table, below: Points) -> tuple[Section, ...]:
    return (Section("table", "", (table, below)),)


def _rate_row(name: str, rate: Rate, required: str, held: bool) -> tuple[str, ...]:
    return (
        name,
        str(rate.hits),
        str(rate.trials),
        shown_change(rate.rate),
        f"{shown_change(rate.low)} .. {shown_change(rate.high)}",
        required,
        "held" if held else "NOT HELD",
    )


def _about(result: SelfTest) -> list[str]:
    looks = ", ".join(map(str, result.plan.looks))
    judged = ", ".join(result.pool.metrics)
    lines = [
        f"smallest detectable effect (lower bound at least {shown_change(LEAST_DETECTIONS)}): "
        + _effect(result),
        f"{len(result.pool.rounds)} rounds of {result.pool.scenario}"
        f" on {result.pool.machine_class or 'an unnamed machine'}; judged by {judged};"
        f" looks after {looks} rounds; a verdict took {_rounds(result.plain_groups)} rounds on"
        f" equal sides and {_rounds(result.slowed_groups)} on slowed ones",
    ]
    if result.wall_alone is not None:
        alone = result.wall_alone
        lines.append(
            f"by wall seconds alone: false alarms {_rate(alone.false_alarms)}, detections "
            f"{_rate(alone.detections)}, smallest detectable effect {_effect(alone)}"
        )
    added = result.pool.injected * result.pool.plain_median
    if added <= result.policy.absolute:
        lines.append(
            f"the injected slowdown adds {shown_value(added, 's')}, no more than the absolute limit of "
            f"{shown_value(result.policy.absolute, 's')}: it cannot be a regression"
        )
    if result.false_alarms.trials < groups_needed():
        lines.append(
            f"{result.false_alarms.trials} groups cannot show the required bound: even without one "
            f"false alarm it takes {groups_needed()}"
        )
    return lines


def _effect(result: SelfTest) -> str:
    effect = result.smallest_effect
    return "not found on this pool" if effect is None else shown_change(effect)


def _rate(rate: Rate) -> str:
    interval = f"{shown_change(rate.low)} .. {shown_change(rate.high)}"
    return f"{rate.hits} of {rate.trials} ({interval})"


def _rounds(groups: Sequence[Group]) -> str:
    """The mean number of rounds used per verdict."""
    return f"{sum(g.rounds for g in groups) / len(groups):.1f}" if groups else "no"


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
    page = Page(
        "history",
        sections=_sections(table, Points(tuple(("", line) for line in below))),
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


def render_baselines(entries: Sequence[BaselineEntry], format: TextFormat = "table") -> str:
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
