"""Compares the predictions of a strategy's author with the measurements."""

from __future__ import annotations

from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Section, Table, Tone
from serde_lab.report.run.byte_counts import expected_bytes
from serde_lab.report.run.facts import ArmFacts, RunFacts
from serde_lab.report.run.time_split import expected_us

_FAR = 1.25
"""A prediction that is off by more than this factor, in either direction, counts as missed."""


def prediction_section(facts: RunFacts) -> Section | None:
    """The section, or None without predictions."""
    arms = [
        arm for arm in facts.arms if expected_us(arm) is not None or expected_bytes(arm) is not None
    ]
    if not arms:
        return None
    columns = (
        Column("arm", "arm", numeric=False),
        Column("expected_us", "SerDe CPU expected", unit="µs a record"),
        Column("measured_us", "measured", unit="µs a record"),
        Column("us_ratio", "measured over expected"),
        Column("expected_bytes", "frame bytes expected", unit="B a record"),
        Column("measured_bytes", "measured", unit="B a record"),
        Column("bytes_ratio", "measured over expected"),
    )
    table = Table(
        "prediction",
        "What was expected of each arm before it was measured, and what was measured",
        columns,
        tuple(_row(arm) for arm in arms),
    )
    return Section("prediction", "Prediction and measurement", (table,))


def _row(arm: ArmFacts) -> tuple[Cell, ...]:
    cost = arm.per_record("serde_cpu_s")
    return (
        Cell(arm.name, arm.name, header=True),
        *_pair(expected_us(arm), None if cost is None else 1e6 * cost),
        *_pair(expected_bytes(arm), arm.per_record("frame_bytes")),
    )


def _pair(expected: float | None, measured: float | None) -> tuple[Cell, Cell, Cell]:
    ratio = measured / expected if measured is not None and expected else None
    tone: Tone = ""
    if ratio is not None and ratio > 0:
        tone = "warn" if max(ratio, 1 / ratio) > _FAR else "good"
    return (
        Cell(notation.number(expected), expected),
        Cell(notation.number(measured), measured),
        Cell(notation.ratio(ratio), ratio, tone=tone),
    )
