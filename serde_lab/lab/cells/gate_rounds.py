"""Measures the rounds on which the gate tests itself: an arm, the arm again, and the arm slowed down.

The cells of a round run in random order, in this process or on Spark. The slowdown is a busy loop that takes
a share of the cell. Other arms may be measured in the same rounds; they are not slowed, and every arm then
has a further plain cell. Contents are checked in the first round.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from serde_lab.analysis.cell_values import PHASE_CPU, cell_values
from serde_lab.errors import ScenarioError, WrongAnswer
from serde_lab.lab.cells.cell import CellJob, CellResult, MeasurableCell
from serde_lab.lab.cells.slowdown import slowed
from serde_lab.lab.cells.table_cells import Engine, InProcess, InProcessCell, TableCells
from serde_lab.lab.checks.cell_checks import CellChecks
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.lab.plan import check_scenario, serde_options
from serde_lab.lab.run_settings import work_folder
from serde_lab.runs.model import MeasuredCell
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.registry import bind

PLAIN, PLAIN_AGAIN, SLOWED, CONTROL = "plain", "plain_again", "slowed", "control"
METRICS = ("seconds", "serde_cpu_s")

_WARM_UP = 3
_REMEMBERED = 60

SlowCell = Callable[[CellJob, float], MeasurableCell]
"""The cell of a job in which the strategy is slowed by so many seconds of work of all slots."""


@dataclass
class GateRounds:
    """Rounds of some arms of a scenario; the first is slowed, by `injected` as a share of a cell."""

    cells: TableCells
    checks: CellChecks
    arms: tuple[Arm, ...]
    injected: float
    slow_cell: SlowCell
    _took_s: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """What the plain cells of the first arm took so far, in seconds of work of all slots."""
    _checked: bool = False

    def warm_up(self) -> None:
        """Run a few cells that are not counted, to learn how long a cell takes."""
        for arm in self.arms:
            for _ in range(_WARM_UP):
                self._cell(arm, PLAIN)

    def measure(self, number: int) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Measure round `number`, from 1: by arm and cell the value of each of `METRICS`, in seconds.

        The order depends on the scenario's seed and the number alone, so that a resumed recording continues
        the same.
        """
        order = [(arm, cell) for arm in self.arms for cell in self._cells_of(arm)]
        random.Random(f"{self.cells.scenario.measure.seed} {number}").shuffle(order)
        found: dict[str, dict[str, Mapping[str, float]]] = defaultdict(dict)
        for arm, cell in order:
            found[arm.name][cell] = self._cell(arm, cell)
        self._checked = True
        return {arm.name: found[arm.name] for arm in self.arms}

    def _cells_of(self, arm: Arm) -> tuple[str, ...]:
        slowed = (SLOWED,) if arm is self.arms[0] else ()
        return (PLAIN, PLAIN_AGAIN, *slowed, *((CONTROL,) if len(self.arms) > 1 else ()))

    def _cell(self, arm: Arm, name: str) -> Mapping[str, float]:
        unique = f"{arm.name}-{name}"
        job = self.cells.job(unique, arm)
        if name == SLOWED:
            result = self.slow_cell(job, self.injected * median(self._took_s)).measure()
        else:
            result = self.cells.engine.cell(job).measure()
        if not self._checked:
            for check in self.checks.judge(arm, result).results:
                if check.failed:
                    raise WrongAnswer(f"{arm.name}, {check.name}: {check.detail}")
        self.cells.discard(unique)
        cell = MeasuredCell(unique, arm.name, 1, False, 0, "", "ok", None, result.samples)
        values = cell_values(cell).metrics
        if name != SLOWED and arm is self.arms[0]:
            self._took_s.append(_work_s(result, values))
        return {metric: values[metric] for metric in METRICS}


@contextmanager
def gate_rounds(
    scenario: Scenario,
    arms: Sequence[str],
    injected: float,
    cache: Path | None = None,
    message: Callable[[str], None] = lambda text: None,
) -> Iterator[GateRounds]:
    """Prepare and warm up rounds of `arms`, of which the first is slowed.

    Raises ScenarioError for an arm that is unknown or no strategy, and for a scenario that is not about one
    table, or whose source Spark reads.
    """
    check_scenario(scenario)
    if scenario.datasets or scenario.stream:
        kind = "[[dataset]]" if scenario.datasets else "[stream]"
        raise ScenarioError(f"{scenario.name}: has {kind}, but slowdowns are tried on one table")
    found = tuple(_arm(scenario, name) for name in arms)
    inputs = prepare_inputs(scenario, cache, message)
    with ExitStack() as stack:
        work = stack.enter_context(work_folder())
        engine, slow_cell = _engine(scenario, work, stack)
        cells = TableCells(scenario, inputs, work, engine)
        cells.set_up()
        checks = CellChecks(scenario, inputs, work)
        rounds = GateRounds(cells, checks, found, injected, slow_cell)
        rounds.warm_up()
        yield rounds


def _arm(scenario: Scenario, name: str) -> Arm:
    found = next((one for one in scenario.arms if one.name == name), None)
    if found is None or found.strategy is None:
        known = ", ".join(one.name for one in scenario.arms if one.strategy)
        raise ScenarioError(f"{scenario.name} has no arm {name!r} with a strategy; it has {known}")
    if found.source_reader == "spark":
        raise ScenarioError(
            f"{scenario.name}: Spark reads the source of arm {name!r}, but slowdowns are tried where tasks"
            " read it"
        )
    return found


def _engine(scenario: Scenario, work: Path, stack: ExitStack) -> tuple[Engine, SlowCell]:
    """Where cells run, and how one is slowed there."""
    if scenario.measure.exchange == "inprocess":
        return InProcess(), _SlowedHere
    from serde_lab.lab.cells.peer_arms import SessionPlan
    from serde_lab.lab.cells.spark_cells import OnSpark, SlowedCell
    from serde_lab.lab.run_settings import RunSettings
    from serde_lab.lab.session.run_session import RunSession

    plan = SessionPlan(frozenset(arm.name for arm in scenario.arms))
    bench = stack.enter_context(RunSession(scenario, RunSettings(), work, plan)).bench
    return OnSpark(bench), partial(SlowedCell, bench)


class _SlowedHere(InProcessCell):
    """A cell in this process whose strategy is slowed by `cpu_s` seconds, once."""

    def __init__(self, job: CellJob, cpu_s: float) -> None:
        super().__init__(job)
        self.cpu_s = cpu_s

    def measure(self) -> CellResult:
        arm, schema = self.job.arm, self.job.inputs.record_schema
        with slowed(bind(arm.strategy or "", schema, serde_options(arm)), self.cpu_s):
            return super().measure()


def _work_s(result: CellResult, values: Mapping[str, float]) -> float:
    """The work of a cell: CPU seconds of its phases in this process, else the time of all slots."""
    slots = max((one.value for one in result.samples if one.metric == "slots"), default=1)
    if slots == 1:
        return sum(one.value for one in result.samples if one.metric == PHASE_CPU)
    return slots * values["seconds"]
