"""Measures the rounds on which the gate tests itself: an arm, the arm again, and the arm slowed down.

The three cells of a round run in random order. The slowdown is a busy loop that takes a share of the
cell. Contents are checked in the first round.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from serde_lab.analysis.cell_values import PHASE_CPU, cell_values
from serde_lab.errors import ScenarioError, WrongAnswer
from serde_lab.lab.cells.cell import CellResult
from serde_lab.lab.cells.table_cells import InProcess, TableCells
from serde_lab.lab.checks.cell_checks import CellChecks
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.lab.plan import check_scenario, serde_options
from serde_lab.lab.run_settings import work_folder
from serde_lab.records.schema import RecordSchema
from serde_lab.runs.model import MeasuredCell
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, Records, SerdeOptions
from serde_lab.serde.registry import bind

CELLS = ("plain", "plain_again", "slowed")
METRICS = ("seconds", "serde_cpu_s")

_WARM_UP = 3
_REMEMBERED = 60


@dataclass
class GateRounds:
    """Rounds of one arm of a scenario in this process; `injected` is a share of the cell's CPU time."""

    cells: TableCells
    checks: CellChecks
    arm: Arm
    injected: float
    seed: int
    _cpu_s: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _checked: bool = False

    def warm_up(self) -> None:
        """Run a few cells that are not counted, to learn how long a cell takes."""
        for _ in range(_WARM_UP):
            self._cell("plain")

    def measure(self, number: int) -> Mapping[str, Mapping[str, float]]:
        """Measure round `number`, from 1: for each of `CELLS` the value of each of `METRICS`, in seconds.

        The order depends on the seed and the number alone, so that a resumed recording continues the same.
        """
        order = list(CELLS)
        random.Random(f"{self.seed} {number}").shuffle(order)
        found = {name: self._cell(name) for name in order}
        self._checked = True
        return found

    def _cell(self, name: str) -> dict[str, float]:
        injection: AbstractContextManager[None] = nullcontext()
        if name == "slowed":
            schema = self.cells.inputs.record_schema
            options = serde_options(self.arm)
            share_s = self.injected * median(self._cpu_s)
            injection = slowed(self.arm.strategy or "", schema, options, share_s)
        with injection:
            result = self.cells.cell(name, self.arm).measure()
        if not self._checked:
            for check in self.checks.judge(self.arm, result).results:
                if check.failed:
                    raise WrongAnswer(f"{self.arm.name}, {check.name}: {check.detail}")
        self.cells.discard(name)
        if name != "slowed":
            self._cpu_s.append(sum(s.value for s in result.samples if s.metric == PHASE_CPU))
        values = cell_values(_as_cell(name, self.arm, result)).metrics
        return {metric: values[metric] for metric in METRICS}


@contextmanager
def gate_rounds(
    scenario: Scenario,
    arm: str,
    injected: float,
    cache: Path | None = None,
    message: Callable[[str], None] = lambda text: None,
) -> Iterator[GateRounds]:
    """Prepare and warm up rounds of `arm`. Raises ScenarioError unless the exchange is in-process."""
    check_scenario(scenario)
    if scenario.datasets:
        raise ScenarioError(
            f"{scenario.name}: has [[dataset]], but slowdowns are tried on one table"
        )
    if scenario.measure.exchange != "inprocess":
        raise ScenarioError(
            f"{scenario.name}: measure.exchange is {scenario.measure.exchange!r}, but slowdowns can"
            " be injected only with 'inprocess'"
        )
    found = next((one for one in scenario.arms if one.name == arm), None)
    if found is None or found.strategy is None:
        known = ", ".join(one.name for one in scenario.arms if one.strategy)
        raise ScenarioError(f"{scenario.name} has no arm {arm!r} with a strategy; it has {known}")
    inputs = prepare_inputs(scenario, cache, message)
    with work_folder() as work:
        cells = TableCells(scenario, inputs, work, InProcess())
        cells.set_up()
        checks = CellChecks(scenario, inputs, work)
        rounds = GateRounds(cells, checks, found, injected, scenario.measure.seed)
        rounds.warm_up()
        yield rounds


def _as_cell(name: str, arm: Arm, result: CellResult) -> MeasuredCell:
    return MeasuredCell(name, arm.name, 1, False, 0, "", "ok", None, result.samples)


@contextmanager
def slowed(
    strategy: str, schema: RecordSchema, options: SerdeOptions, cpu_s: float
) -> Iterator[None]:
    """Make the strategy burn `cpu_s` seconds of CPU in its next call of `encode`, once; undone on exit.

    Only this process is slowed, so the exchange must be the in-process one.
    """
    kind: Any = type(bind(strategy, schema, options))
    original = kind.encode
    left = [cpu_s]

    def encode(self: BoundSerde, records: Records, bounds: Bounds) -> Frames:
        if left:
            burn(left.pop())
        frames: Frames = original(self, records, bounds)
        return frames

    inherited = "encode" not in vars(kind)
    kind.encode = encode
    try:
        yield
    finally:
        if inherited:
            del kind.encode
        else:
            kind.encode = original


def burn(cpu_s: float) -> None:
    """Use this much CPU time in a loop; on a busy machine its wall time grows like that of other work."""
    end_ns = time.process_time_ns() + round(cpu_s * 1e9)
    while time.process_time_ns() < end_ns:
        sum(range(100))
