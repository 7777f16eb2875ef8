"""Defines the values of a run directory: header, cells with their samples, calibrations and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serde_lab.errors import worst
from serde_lab.measure.metrics import Sample

FORMAT_VERSION = 1

State = Literal["running", "complete", "interrupted"]
ArmKind = Literal["strategy", "control", "peer"]
CellStatus = Literal["ok", "failed"]


class ArmEntry(BaseModel):
    """An arm as the scenario asks for it; `missing` says why it could not be measured."""

    model_config = ConfigDict(frozen=True, extra="allow")

    arm: str
    kind: ArmKind = "strategy"
    strategy: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    fairness: dict[str, Any] | None = None
    missing: str | None = None
    prediction: dict[str, float] | None = None
    """The author's predicted cost of a record with this strategy (`serde.prediction`); None for controls."""
    column_bytes: dict[str, float] | None = None
    """Frame bytes per record of each column, measured by leaving it out; None if that is impossible."""

    swept: dict[str, Any] | None = None
    """The scenario's arm and the value of its sweep; None if nothing is swept."""

    candidate: dict[str, Any] | None = None
    """What this arm tries in a search: the name of its `start`, its own `name`, `factor` and `settings`."""

    @property
    def of_scenario(self) -> str:
        """The scenario's arm that this one is a version of, or its own name."""
        tried = (self.candidate or {}).get("start")
        return str(tried or (self.swept or {}).get("arm", self.arm))


class RunHeader(BaseModel):
    """`run.json`: the run's state, and everything known before it measures.

    Unknown keys are kept unchanged.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    run: str
    scenario: str
    arms: tuple[ArmEntry, ...]
    format_version: int = FORMAT_VERSION
    scenario_content: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    machine_class: str = ""
    code_version: dict[str, Any] = Field(default_factory=dict)
    data_checksums: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    state: State = "running"
    spark_conf: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    peer_spark_conf: dict[str, Any] = Field(default_factory=dict)
    """The settings of the peers' own session; empty if all arms shared one."""
    likeness: tuple[dict[str, Any], ...] = ()
    """What is alike between our arms and peers, and what differs; empty without peers."""
    ways: tuple[dict[str, Any], ...] = ()
    """What each arm leaves behind and what that lacks; empty unless an arm upserts without a Hudi table."""
    format_likeness: tuple[dict[str, Any], ...] = ()
    """What is alike between our arms and those that write other table formats; empty without such arms."""
    started_at: str = ""
    digests: dict[str, str] | None = None
    """SHA-256 of samples and checks by file name.

    None while the run is measured, for killed runs, and for runs of versions without digests.
    """

    @property
    def arms_of_scenario(self) -> tuple[str, ...]:
        """The names of the scenario's own arms that the run has; a search adds others."""
        known = {arm.get("name") for arm in self.scenario_content.get("arm", ())}
        names = dict.fromkeys(entry.of_scenario for entry in self.arms)
        return tuple(name for name in names if name in known)


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One arm in one round, with everything measured in it."""

    cell: str
    arm: str
    round: int
    warmup: bool
    order: int
    started_at: str
    status: CellStatus
    error: str | None
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The seconds of one part (numpy, jvm, disk) of a round's calibration cell."""

    round: int
    part: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check of contents; `cell` and `round` are None for a check over the whole run.

    `passed` is None if the check could not be made there. `facts` are figures and words that the check found;
    runs of older versions have none.
    """

    name: str
    passed: bool | None
    detail: str
    arm: str | None = None
    cell: str | None = None
    round: int | None = None
    facts: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it found something wrong; a check that could not be made has neither failed nor passed."""
        return self.passed is False


@dataclass(frozen=True, slots=True)
class Run:
    """A run as read: only cells that ended, and messages about what was left out."""

    path: Path
    header: RunHeader
    cells: tuple[MeasuredCell, ...]
    calibrations: tuple[Calibration, ...]
    checks: tuple[Check, ...]
    messages: tuple[str, ...] = ()

    @property
    def complete_cells(self) -> frozenset[str]:
        """Names of cells that ended, with or without success; a resumed run skips them."""
        return frozenset(cell.cell for cell in self.cells)

    @property
    def failed_cells(self) -> frozenset[str]:
        """Names of cells in which the arm raised."""
        return frozenset(cell.cell for cell in self.cells if cell.status == "failed")

    @property
    def exit_status(self) -> int:
        """4 for a failed check; 1 for a failed, unchecked or missing measurement; 0 otherwise."""
        statuses = [4 for check in self.checks if check.failed]
        statuses += [1 for cell in self.cells if cell.status == "failed"]
        statuses += [1 for entry in self.header.arms if self.unchecked(entry.arm)]
        measured = any(cell.status == "ok" and not cell.warmup for cell in self.cells)
        return worst([*statuses, 0 if measured else 1])

    def unchecked(self, arm: str) -> str:
        """Why the figures of an arm cannot be trusted: rounds without a check; "" if all were checked."""
        checked = {check.cell for check in self.checks}
        rounds = [
            str(cell.round)
            for cell in self.cells
            if cell.arm == arm and cell.status == "ok" and cell.cell not in checked
        ]
        if not rounds:
            return ""
        return f"no check of contents in round{'s' if len(rounds) > 1 else ''} {', '.join(rounds)}"
