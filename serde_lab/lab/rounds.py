"""Runs the cells of a run in order: measures, checks and records each.

An arm that raises, or whose contents are wrong, is marked and not measured any further.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from serde_lab.errors import LabError, reason_of
from serde_lab.lab.cells.cell import CellResult, MeasurableCell
from serde_lab.lab.checks.stand_alone import STAND_ALONE
from serde_lab.lab.plan import CellPlan
from serde_lab.lab.run_settings import KeptTables, Progress, kept_as
from serde_lab.measure.metrics import Sample
from serde_lab.measure.other_work import others_share, spin_s
from serde_lab.measure.process_tree import cpu_s_between, tree_now
from serde_lab.runs.model import Check
from serde_lab.runs.writer import RunWriter
from serde_lab.scenario.hudi_options import in_scenario_keys
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.verify.contents import Fingerprint
from serde_lab.verify.table_checks import TableVerdict, arms_agree


class Cells(Protocol):
    """Makes the cells of a scenario: one class of cell for each kind of arm."""

    def set_up(self) -> None:
        """Make the table that every cell starts with."""

    def cell(self, name: str, arm: Arm) -> MeasurableCell:
        """The cell of `arm`, ready to be measured."""
        ...

    def discard(self, name: str) -> None:
        """Remove what the cell left behind."""

    def calibrate(self) -> Mapping[str, float]:
        """Run one calibration cell; returns the seconds of each part."""
        ...


class Judge(Protocol):
    """Checks the output of a cell."""

    def judge(self, arm: Arm, result: CellResult) -> TableVerdict:
        """Every check of one cell."""
        ...


_REST_S, _RESTING_SHARE, _MOST_RESTS = 0.2, 0.1, 15


def await_rest() -> None:
    """Wait until the processes that this one started do next to nothing, for at most 3 s.

    A young JVM still compiles, which the light calibration would take for other work on the machine.
    """
    before = tree_now(os.getpid())
    for _ in range(_MOST_RESTS if len(before) > 1 else 0):
        time.sleep(_REST_S)
        now = tree_now(os.getpid())
        if cpu_s_between(before, now) <= _RESTING_SHARE * _REST_S:
            return
        before = now


@dataclass
class Rounds:
    """The loop over cells, with the state of each arm."""

    arms: tuple[Arm, ...]
    checks: Judge
    writer: RunWriter
    kept_tables: KeptTables | None
    progress: Progress
    unproven: Mapping[str, str]
    given_up: dict[str, str] = field(default_factory=dict)
    kinds: Mapping[str, Hashable] = field(default_factory=dict)
    """By arm, what determines the right rows: arms with equal values must end with the same rows."""
    not_kept: list[str] = field(default_factory=list)
    """Arms whose tables could not be copied."""
    frames: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """By arm, frames of its last cell, drawn at random."""
    prints: dict[tuple[int, Hashable], dict[str, Fingerprint | None]] = field(default_factory=dict)
    spin: Callable[[], float] = spin_s
    """The light calibration that runs before each cell."""
    rest: Callable[[], None] = await_rest
    """What the light calibration waits for."""

    def run(self, plans: list[CellPlan], cells: Cells) -> None:
        """Measure the planned cells in order."""
        by_name = {arm.name: arm for arm in self.arms}
        for number in sorted({plan.round for plan in plans}):
            for part, seconds in cells.calibrate().items():
                self.writer.calibration(number, part, seconds)
            for cell in (one for one in plans if one.round == number):
                if cell.arm in self.given_up:
                    self.progress.cell_ended(cell.arm, number, None, self.given_up[cell.arm])
                    if cell.last:
                        self._leave(cell.arm, self.given_up[cell.arm])
                    continue
                self._cell(cell, by_name[cell.arm], cells)
            self._compare_arms()

    def _cell(self, cell: CellPlan, arm: Arm, cells: Cells) -> None:
        self.progress.cell_started(arm.name, cell.round, cell.warmup)
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.writer.cell_begin(
            cell.name,
            arm=arm.name,
            round=cell.round,
            warmup=cell.warmup,
            order=cell.order,
            started_at=started,
        )
        try:
            prepared = cells.cell(cell.name, arm)
            self.rest()
            spun_s = self.spin()
            with others_share() as others:
                result = prepared.measure()
            verdict = self.checks.judge(arm, result)
        except Exception as exc:  # a plug-in may raise anything: the arm fails, the run continues
            self._failed(cell, arm, cells, in_scenario_keys(reason_of(exc)))
            return
        disturbance = [Sample("spin_s", spun_s)]
        if others.value is not None:
            disturbance.append(Sample("others_share", others.value))
        for sample in (*disturbance, *result.samples):
            self.writer.sample(
                cell.name, sample.metric, sample.value, commit=sample.commit, phase=sample.phase
            )
        if result.frames:
            self.frames[arm.name] = result.frames
        found = list(verdict.results)
        if arm.name in self.unproven:  # it raised in the check of its frames, so they are unproven
            found.insert(0, Check(STAND_ALONE, False, self.unproven[arm.name]))
        for check in found:
            self.writer.check(replace(check, arm=arm.name, cell=cell.name, round=cell.round))
        if result.table is not None:
            # only arms of the same kind must agree: different merging gives different rows
            alike = self.prints.setdefault((cell.round, self.kinds.get(arm.name)), {})
            alike[arm.name] = verdict.fingerprint
        wrong = next((check for check in found if check.failed), None)
        if cell.last:
            if wrong is None:
                self._keep(result, arm)
            else:
                self._leave(arm.name, f"it is wrong ({wrong.name})")
        self.writer.cell_end(cell.name, "ok")
        cells.discard(cell.name)
        seconds = next(
            s.value for s in result.samples if s.metric == "seconds" and s.commit is None
        )
        if wrong is None:
            self.progress.cell_ended(arm.name, cell.round, seconds, "")
            return
        self.given_up[arm.name] = wrong_answer(wrong.name, wrong.detail)
        self.progress.cell_ended(arm.name, cell.round, None, f"{wrong.name}: {wrong.detail}")

    def _failed(self, cell: CellPlan, arm: Arm, cells: Cells, reason: str) -> None:
        self.writer.cell_end(cell.name, "failed", reason)
        cells.discard(cell.name)
        self.given_up[arm.name] = f"raised earlier: {reason}"
        if cell.last:
            self._leave(arm.name, reason)
        self.progress.cell_ended(arm.name, cell.round, None, reason)

    def _keep(self, result: CellResult, arm: Arm) -> None:
        if self.kept_tables is None:
            return
        tables = {name: part.table for name, part in result.parts.items()} or {"": result.table}
        try:
            for name, table in tables.items():
                if table is not None:
                    self.kept_tables.keep(table, kept_as(arm.name, name))
        except LabError as exc:  # the measurements count all the same
            self.not_kept.append(arm.name)
            self._leave(arm.name, str(exc))

    def _leave(self, arm: str, reason: str) -> None:
        """Say that a table is not kept; what an earlier run kept stays."""
        if self.kept_tables is not None:
            self.progress.message(f"the table of {arm} was not copied: {reason}")

    def _compare_arms(self) -> None:
        """Compare the tables of the round between arms."""
        for (number, _), prints in self.prints.items():
            if len(prints) < 2:
                continue
            for name, result in arms_agree(prints).items():
                self.writer.check(replace(result, arm=name, round=number))
        self.prints = {}


def rows_kind(scenario: Scenario, arm: Arm) -> Hashable:
    """What determines the right rows of an arm's table."""
    return arm.merging, scenario.key_is_global(arm)


def wrong_answer(check: str, detail: str) -> str:
    """The reason why an arm whose check failed is not measured any further."""
    return f"wrong answer, {check}: {detail}"
