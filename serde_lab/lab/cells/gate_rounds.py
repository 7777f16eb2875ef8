"""Measures the rounds on which the gate tests itself: an arm, the arm again, and the arm slowed down.

The three cells of a round run in random order. The slowdown is a busy loop that takes a share of the
cell. Contents are checked in the first round.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from serde_lab.analysis.cell_values import PHASE_CPU, cell_values
from serde_lab.errors import ScenarioError, WrongAnswer
from serde_lab.lab.cells.result import CellResult
from serde_lab.lab.cells.slowdown import slowed
from serde_lab.lab.cells.strategy import CellRunner
from serde_lab.lab.checks.cell import CellChecks
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.lab.plan import check_scenario, serde_options
from serde_lab.lab.work_folder import work_folder
from serde_lab.runs.model import Cell, Sample
from serde_lab.scenario.model import Arm, Scenario

CELLS = ("plain", "plain_again", "slowed")
METRICS = ("seconds", "serde_cpu_s")

_WARM_UP = 3
_REMEMBERED = 60


@dataclass
class GateRounds:
    """Rounds of one arm of a scenario in this process; `injected` is a share of the cell's CPU time."""

    runner: CellRunner
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
            schema = self.runner.inputs.record_schema
            options = serde_options(self.arm)
            share_s = self.injected * median(self._cpu_s)
            injection = slowed(self.arm.strategy or "", schema, options, share_s)
        with injection:
            result = self.runner.run(name, self.arm)
        if not self._checked:
            for check in self.checks.judge(self.arm, result).results:
                if not check.passed:
                    raise WrongAnswer(f"{self.arm.name}, {check.name}: {check.detail}")
        self.runner.discard(name)
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
    if scenario.measure.exchange != "inprocess":
        raise ScenarioError(
            f"{scenario.name}: measure.exchange is {scenario.measure.exchange!r}, and a slowdown can"
            " be injected only into 'inprocess'"
        )
    found = next((one for one in scenario.arms if one.name == arm), None)
    if found is None or found.strategy is None:
        known = ", ".join(one.name for one in scenario.arms if one.strategy)
        raise ScenarioError(f"{scenario.name} has no arm {arm!r} with a strategy; it has {known}")
    inputs = prepare_inputs(scenario, cache, message)
    with work_folder() as work:
        runner = CellRunner(scenario, inputs, work, None)
        runner.set_up()
        checks = CellChecks(scenario, inputs, work)
        rounds = GateRounds(runner, checks, found, injected, scenario.measure.seed)
        rounds.warm_up()
        yield rounds


def _as_cell(name: str, arm: Arm, result: CellResult) -> Cell:
    samples = tuple(
        Sample(one.metric, one.value, "", one.commit, one.phase) for one in result.samples
    )
    return Cell(name, arm.name, 1, False, 0, "", "ok", None, samples)
