"""Shows the CPU cost of merging per record, arm by arm: precombine, merge and payload."""

from __future__ import annotations

from math import fsum

from serde_lab.measure import phases
from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Section, Sentence, Table
from serde_lab.report.run.facts import ArmFacts, RunFacts

_PHASES = ("precombine", "merge", "payload")


def merging_section(facts: RunFacts) -> Section | None:
    """The section; None if no arm has its own way of merging."""
    arms = [arm for arm in facts.arms if arm.kind == "strategy" and arm.rows and arm.phases]
    if not any(arm.changes == "merging" for arm in arms):
        return None
    columns = (
        Column("arm", "arm", numeric=False),
        *(Column(name, name, unit="µs", about=_MEANING[name]) for name in _PHASES),
        Column("total", "together", unit="µs"),
    )
    table = Table(
        "merge-microseconds",
        "Microseconds of CPU that a record of the batch costs before it is written",
        columns,
        tuple(_row(arm) for arm in arms),
    )
    lead = "Reading what is stored is not among them: it is the same for all."
    return Section("merging", "What merging costs", (table, Sentence(lead, "muted")))


_MEANING = {phase.name: phase.meaning for phase in phases.VERBS if phase.name in _PHASES}


def _row(arm: ArmFacts) -> tuple[Cell, ...]:
    values = [arm.verb_us(name) for name in _PHASES]
    return (
        Cell(arm.name, arm.name, note=arm.note, header=True),
        *(Cell(notation.number(value), value) for value in (*values, fsum(values))),
    )
