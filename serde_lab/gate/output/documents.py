"""Converts results of the gate to plain JSON values, which scripts read and reports draw.

Users depend on the keys. Figures are rounded as they were for the decision; raw values are beside them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from serde_lab.analysis.rounding import rounded_change
from serde_lab.gate.compare.evidence import SideValues
from serde_lab.gate.compare.rows import Comparison, Row
from serde_lab.gate.compare.verdict import MARKS, Inequality
from serde_lab.gate.decision import WORST_FIRST, GateFinding, GateResult
from serde_lab.gate.history import HistoryStep, ScenarioHistory
from serde_lab.gate.self_test import RATES, SelfTest, rounds_needed
from serde_lab.gate.statistics import Rate, RatioInterval


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """A comparison: its rows, notes, geometric means and counts."""
    return {
        "before": comparison.before,
        "after": comparison.after,
        "scenario": comparison.scenario,
        "family": comparison.family,
        "rows": [_row(row) for row in comparison.rows],
        "geometric_means": comparison.geometric_means(),
        "counts": {
            "worse": comparison.worse,
            "better": comparison.better,
            "undecided": comparison.undecided,
            "compared": comparison.judged,
        },
        "notes": list(comparison.notes),
        "raised": list(comparison.raised),
    }


def gate_document(result: GateResult) -> dict[str, Any]:
    """A gate's findings with their inequalities, its exit status, and the comparison."""
    return {
        "exit_status": result.exit_status,
        "strict": result.strict,
        "measured_again": result.confirmed,
        "findings": [_finding(finding) for finding in result.findings],
        "counts": {level: len(result.of_level(level)) for level in WORST_FIRST},
        "comparison": {
            **comparison_document(result.comparison),
            "rows": [
                {**_row(row), "level": result.level_of(row)} for row in result.comparison.rows
            ],
        },
    }


def history_document(history: ScenarioHistory) -> dict[str, Any]:
    """A history: series with points, steps and breaks."""
    return {
        "scenario": history.scenario,
        "runs": list(history.runs),
        "messages": list(history.messages),
        "series": [
            {
                "arm": series.arm,
                "metric": series.quantity.metric,
                "phase": series.quantity.phase or None,
                "unit": series.unit,
                "points": [asdict(point) for point in series.points],
                "steps": [_step(step) for step in series.steps],
                "breaks": [{"run": run, "why": why} for run, why in series.breaks],
            }
            for series in history.series
        ],
    }


def self_test_document(result: SelfTest) -> dict[str, Any]:
    """The self-test: rates with Wilson's bounds, the required bounds, and every verdict."""
    return {
        "scenario": result.pool.scenario,
        "machine_class": result.pool.machine_class,
        "arms": [result.pool.about.get("arm"), *result.pool.beside],
        "rounds": len(result.pool.rounds),
        "sittings": [len(part.rounds) for part in result.pool.by_sitting],
        "injected": result.pool.injected,
        "metrics": list(result.pool.metrics),
        "alone": {name: _alone(one) for name, one in result.alone.items()},
        "looks": list(result.plan.looks),
        "false_alarms": _rate(result.false_alarms),
        "false_alarms_held": result.false_alarms_held,
        "two_sided_alarms": _rate(result.two_sided_alarms),
        "detections": _rate(result.detections),
        "detections_held": result.detections_held,
        "let_through": _rate(result.let_through),
        "smallest_effect": result.smallest_effect,
        "exit_status": result.exit_status,
        "plain_groups": [asdict(group) for group in result.plain_groups],
        "slowed_groups": [asdict(group) for group in result.slowed_groups],
    }


def _alone(result: SelfTest) -> dict[str, Any]:
    """One metric's own rates, and the rounds that it needs for each rate of detection."""
    return {
        "false_alarms": _rate(result.false_alarms),
        "two_sided_alarms": _rate(result.two_sided_alarms),
        "detections": _rate(result.detections),
        "let_through": _rate(result.let_through),
        "smallest_effect": result.smallest_effect,
        "rounds_needed": {f"{rate:g}": rounds_needed(result.pool, rate) for rate in RATES},
    }


def _row(row: Row) -> dict[str, Any]:
    found = row.evidence
    return {
        "mark": MARKS[row.verdict],
        "arm": row.arm,
        "before_arm": row.before_arm,
        "after_arm": row.after_arm,
        "metric": row.quantity.metric,
        "phase": row.quantity.phase or None,
        "commit": row.quantity.commit or None,
        "unit": row.unit,
        "scale": row.scale or None,
        "kind": row.metric.kind,
        "better": row.metric.better,
        "before": _sample(row.before),
        "after": _sample(row.after),
        "ratio": row.ratio,
        "interval": None if found is None else _interval(found.interval),
        "test": None
        if found is None
        else {
            "name": found.test,
            "paired": found.paired,
            "p": found.p,
            "adjusted_p": found.adjusted_p,
            "smallest_p": found.smallest_p,
            "family": found.family,
            "reachable": found.reachable,
            "separated": found.separated,
            "alpha": row.alpha,
        },
        "noise_floor": None
        if found is None
        else {"change": row.floor.change, "source": row.floor.source},
        "marked_rounds": list(row.marked_rounds),
        "verdict": str(row.verdict),
        "because": row.judgement.because,
        "inequalities": [_inequality(one) for one in row.judgement.inequalities],
    }


def _interval(found: RatioInterval | None) -> dict[str, Any]:
    if found is None:
        return {"low": None, "high": None, "confidence": 0.95, "method": ""}
    return {key: value for key, value in asdict(found).items() if key != "ratio"}


def _sample(sample: SideValues | None) -> dict[str, Any] | None:
    if sample is None or not sample.values:
        return None
    return {
        "n": sample.count,
        "median": sample.median,
        "values": list(sample.values),
        "rounds": list(sample.rounds),
        "outlying_rounds": list(sample.outlying_rounds),
    }


def _finding(finding: GateFinding) -> dict[str, Any]:
    row = finding.row
    return {
        "level": finding.level,
        "arm": None if row is None else row.arm,
        "quantity": None if row is None else row.quantity.label,
        "verdict": None if row is None else str(row.verdict),
        "text": finding.text,
        "inequalities": [_inequality(one) for one in finding.inequalities],
    }


def _inequality(one: Inequality) -> dict[str, Any]:
    return {**asdict(one), "text": one.text}


def _step(found: HistoryStep) -> dict[str, Any]:
    known = found.acknowledgement
    return {
        "run": found.run,
        "verdict": str(found.verdict),
        **asdict(found.step),
        "acknowledged": None if known is None else asdict(known),
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "hits": rate.hits,
        "trials": rate.trials,
        "rate": rounded_change(rate.rate),
        "low": rounded_change(rate.low),
        "high": rounded_change(rate.high),
    }
