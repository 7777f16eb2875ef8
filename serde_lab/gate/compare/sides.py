"""Turns a run into one side of a comparison: each arm's values by quantity and round, and their context.

Combines commits into totals by the registry's rule, sums the SerDe verbs, and records which rounds
interleave. A baseline has the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serde_lab.analysis.cell_values import (
    PHASE_CPU,
    PHASE_WALL,
    CellValues,
    CommitValues,
    cell_values,
)
from serde_lab.analysis.drift import calibration_rounds, calibration_s, common_parts, moved_rounds
from serde_lab.runs.model import ArmEntry, MeasuredCell, Run
from serde_lab.scenario.identity import asked_of


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A metric of one phase or all phases, of one commit or the whole cell."""

    metric: str
    phase: str = ""
    commit: int = 0

    @property
    def label(self) -> str:
        """The name to show, such as `phase_cpu_s map.encode #1`."""
        parts = [self.metric, self.phase, f"#{self.commit}" if self.commit else ""]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class ArmSide:
    """The measurements of one arm. `definition` is what the scenario asked of it."""

    arm: str
    definition: Mapping[str, Any]
    values: Mapping[Quantity, Mapping[int, float]]
    checks_passed: int = 0
    failures: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    unchecked: str = ""
    """The rounds without a check of contents, in words; such an arm has no valid values."""
    order: tuple[tuple[int, int], ...] = ()
    """(position in the run, round) of each cell, which shows which arms were interleaved."""


@dataclass(frozen=True, slots=True)
class Side:
    """A run or a baseline in the form that comparisons use."""

    label: str
    scenario: str
    asked: Mapping[str, Any]
    data_checksums: Mapping[str, Any]
    measuring_code: str
    """The hash of all measuring code, which decides where a side records no instruments."""
    results_format: int
    machine_class: str
    arms: Mapping[str, ArmSide]
    calibration: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    gate_table: Mapping[str, Any] = field(default_factory=dict)
    ab: str = ""
    failures: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    instruments: Mapping[str, str] = field(default_factory=dict)
    """The hash of each instrument by name; empty if unknown, as for older versions."""
    without_digest: str = ""
    """Why nothing proves that the values are the measured ones; "" if a digest does."""

    def calibration_s(self, parts: frozenset[str] | None = None) -> dict[int, float]:
        """The calibration cell's seconds by round, over `parts` or all parts that every round has."""
        return calibration_s(self.calibration, parts)

    @property
    def calibration_parts(self) -> frozenset[str]:
        """The parts that every round's calibration has."""
        return common_parts(self.calibration)

    @property
    def marked_rounds(self) -> frozenset[int]:
        """Rounds in which spins, or else the calibration cell, moved by more than 10 % of their median."""
        return frozenset(moved_rounds(self.calibration))

    @property
    def twins(self) -> tuple[tuple[str, str], ...]:
        """A/A pairs: arms with different names of which the scenario asks exactly the same."""
        names = sorted(self.arms)
        return tuple(
            (first, second)
            for i, first in enumerate(names)
            for second in names[i + 1 :]
            if self.arms[first].definition == self.arms[second].definition
        )


@dataclass(frozen=True, slots=True)
class ArmPair:
    """One pair of arms to compare; `paired` says whether their rounds were interleaved."""

    before_arm: str
    after_arm: str
    before: ArmSide | None
    after: ArmSide | None
    paired: bool


def side_of_run(run: Run, label: str | None = None) -> Side:
    """The measured rounds of a run as a side, without warm-up rounds, failed cells and unchecked arms."""
    header = run.header
    asked = asked_of(header.scenario_content)
    # Arms are compared one by one: an added arm must not change what the others were asked.
    definitions = {one.pop("name", ""): one for one in asked.pop("arm")}
    arms = {
        entry.arm: _arm_side(run, entry, definitions.get(entry.of_scenario, {}))
        for entry in header.arms
    }
    return Side(
        label=label or header.run,
        scenario=header.scenario,
        asked=asked,
        data_checksums=header.data_checksums,
        measuring_code=str(header.code_version.get("measuring") or ""),
        instruments=header.code_version.get("instruments") or {},
        results_format=header.format_version,
        machine_class=header.machine_class,
        arms=arms,
        calibration=calibration_rounds(run),
        environment=header.environment,
        gate_table=header.scenario_content.get("gate") or {},
        ab=str(header.settings.get("sitting") or ""),
        failures=tuple(
            f"{check.name}: {check.detail}"
            for check in run.checks
            if check.arm is None and check.failed
        ),
        messages=run.messages,
        without_digest="" if header.digests else _without_digest(run),
    )


def _without_digest(run: Run) -> str:
    if run.header.state == "running":
        return f"run {run.header.run} has not ended, and has no digest yet"
    return f"run {run.header.run} has no digest, so nothing proves that its values are the measured ones"


def interleaved(first: ArmSide, second: ArmSide) -> bool:
    """Whether the two arms' cells of each round were adjacent, as pairing by round assumes."""
    places = sorted([*first.order, *second.order])
    rounds = [number for _, number in places]
    blocks = [n for i, n in enumerate(rounds) if i == 0 or rounds[i - 1] != n]
    return bool(blocks) and len(blocks) == len(set(blocks))


def _arm_side(run: Run, entry: ArmEntry, asked: Mapping[str, Any]) -> ArmSide:
    cells = [(i, c) for i, c in enumerate(run.cells) if c.arm == entry.arm and not c.warmup]
    values: dict[Quantity, dict[int, float]] = {}
    not_checked = run.unchecked(entry.arm)
    for _, cell in cells:
        if cell.status == "ok" and not not_checked:
            for quantity, value in _quantities(cell).items():
                values.setdefault(quantity, {})[cell.round] = value
    checks = [check for check in run.checks if check.arm == entry.arm]
    errors = [
        f"round {cell.round} raised: {cell.error or 'no message'}"
        for cell in run.cells
        if cell.arm == entry.arm and cell.status == "failed"
    ]
    # A run outside a scenario (an option set of `ab`) has only its own entry as definition.
    alone = entry.model_dump(mode="json", include={"strategy", "options"})
    place = entry.model_dump(mode="json", include={"swept", "candidate"}, exclude_none=True)
    return ArmSide(
        arm=entry.arm,
        definition={"kind": entry.kind, **(asked or alone), **place},
        values=values,
        checks_passed=sum(check.passed is True for check in checks),
        failures=tuple(
            f"{check.name}{'' if check.round is None else f', round {check.round}'}: {check.detail}"
            for check in checks
            if check.failed
        ),
        errors=tuple([entry.missing] if entry.missing else errors),
        unchecked=not_checked,
        order=tuple((place, cell.round) for place, cell in cells if cell.status == "ok"),
    )


def _quantities(cell: MeasuredCell) -> dict[Quantity, float]:
    """The values of the cell as a whole and, if it has several commits, of each commit."""
    whole = cell_values(cell)
    values = _of(whole, 0)
    if len(whole.commits) > 1:
        for commit in whole.commits:
            values |= _of(commit, commit.n)
    return values


def _of(part: CellValues | CommitValues, commit: int) -> dict[Quantity, float]:
    values = {Quantity(name, "", commit): float(value) for name, value in part.metrics.items()}
    for name, time in part.phases.items():
        values[Quantity(PHASE_WALL, name, commit)] = time.wall_s
        values[Quantity(PHASE_CPU, name, commit)] = time.cpu_s
    return values
