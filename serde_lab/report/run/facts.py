"""Reads a run for its page: the run's summary, and the values of every round.

An arm with a wrong answer has no timed rounds here, so that no section can show one by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from typing import Any

from serde_lab.analysis.calibration import moved_rounds
from serde_lab.analysis.cell_values import CellValues, cell_values
from serde_lab.analysis.summary import measured_cells, summarise
from serde_lab.measure import phases
from serde_lab.runs.model import ArmEntry, Run


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """One arm. `rounds` and `cold` hold the values by round number; both are empty if the arm is wrong
    or unchecked."""

    name: str
    kind: str
    summary: Mapping[str, Any]
    rounds: Mapping[int, CellValues]
    cold: Mapping[int, CellValues]
    changes: str = ""
    note: str = ""
    prediction: Mapping[str, Any] | None = None
    column_bytes: Mapping[str, float] | None = None

    @property
    def strategy(self) -> str:
        return str(self.summary["strategy"] or "")

    @property
    def options(self) -> Mapping[str, Any]:
        """All options as one flat mapping; a strategy's own keys are beside the common ones."""
        options = dict(self.summary["options"] or {})
        own = options.pop("own", None)
        return {**options, **(own if isinstance(own, Mapping) else {})}

    @property
    def table(self) -> Mapping[str, Any]:
        """The file settings in which its table differs from the scenario's table."""
        return self.summary.get("table") or {}

    @property
    def wrong(self) -> bool:
        return bool(self.summary["wrong"])

    @property
    def unchecked(self) -> str:
        """A description of the rounds without checks; "" if all were checked."""
        return self.summary["unchecked"] or ""

    @property
    def seconds(self) -> float | None:
        """Median of the measured rounds; None if there is no trustworthy one."""
        values = self.summary["seconds"]
        return None if values is None else float(values["median"])

    @property
    def rows(self) -> float | None:
        return self.figure("rows")

    @property
    def slots(self) -> float:
        return self.figure("slots") or 1.0

    @property
    def phases(self) -> Mapping[str, Mapping[str, float]]:
        return self.summary["phases"] or {}

    @property
    def seconds_by_round(self) -> dict[int, float]:
        return _seconds(self.rounds)

    @property
    def cold_seconds(self) -> dict[int, float]:
        return _seconds(self.cold)

    def figure(self, metric: str) -> float | None:
        """The median of a metric over measured rounds."""
        value: float | None = self.summary.get(metric)
        return value

    def per_record(self, metric: str) -> float | None:
        """A metric's median divided by the rows; None without rows."""
        value, rows = self.figure(metric), self.rows
        return None if value is None or not rows else value / rows

    def verb_us(self, verb: str) -> float:
        """Microseconds of CPU per record for a verb, over all stages."""
        total = fsum(t["cpu_s"] for name, t in self.phases.items() if phases.split(name)[1] == verb)
        return 1e6 * max(0.0, total) / (self.rows or 1.0)

    @property
    def absence(self) -> str:
        """Why the arm has no timing, in two or three words; "" if it has one."""
        if self.wrong:
            return "wrong answer"
        if self.unchecked:
            return "unchecked"
        if self.seconds is not None:
            return ""
        return "failed" if self.summary["status"] == "failed" else "not measured"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run prepared for its page: arms in the scenario's order, and the rounds that drifted."""

    run: Run
    summary: Mapping[str, Any]
    arms: tuple[ArmFacts, ...]
    reference: ArmFacts | None
    drift: Mapping[int, float]
    """Round -> calibration time relative to the run's median, for the rounds beyond the limit."""
    exchange: str
    local: bool

    @property
    def content(self) -> Mapping[str, Any]:
        return self.run.header.scenario_content

    @property
    def timed(self) -> tuple[ArmFacts, ...]:
        """The arms with a timing that can be shown."""
        return tuple(arm for arm in self.arms if arm.seconds is not None)

    @property
    def strategies(self) -> tuple[ArmFacts, ...]:
        """The timed strategy arms, which the question is about."""
        return tuple(arm for arm in self.timed if arm.kind != "control")


def read_facts(run: Run) -> RunFacts:
    """The facts of a run from `load_run`."""
    summary = summarise(run)
    told = {str(entry.get("name", "")): entry for entry in scenario_arms(run)}
    entries = {entry.arm: entry for entry in run.header.arms}
    arms = tuple(
        _arm(run, arm, told.get(arm["arm"], {}), entries[arm["arm"]]) for arm in summary["arms"]
    )
    content = run.header.scenario_content
    named = content.get("reference")
    measure = content.get("measure")
    exchange = str(measure.get("exchange", "") if isinstance(measure, Mapping) else "")
    return RunFacts(
        run=run,
        summary=summary,
        arms=arms,
        reference=next((arm for arm in arms if arm.name == named), None),
        drift=_drift(run),
        exchange=exchange or "spark",
        local=_is_local(run),
    )


def scenario_arms(run: Run) -> tuple[Mapping[str, Any], ...]:
    """The scenario's own `[[arm]]` tables."""
    content = run.header.scenario_content
    arms = content.get("arm") or content.get("arms") or ()
    return tuple(arm for arm in arms if isinstance(arm, Mapping))


def _arm(
    run: Run, summary: Mapping[str, Any], told: Mapping[str, Any], entry: ArmEntry
) -> ArmFacts:
    name = summary["arm"]
    rounds: dict[int, CellValues] = {}
    cold: dict[int, CellValues] = {}
    if not (summary["wrong"] or summary["unchecked"]):
        rounds = {cell.round: cell_values(cell) for cell in measured_cells(run, name)}
        cold = {
            cell.round: cell_values(cell)
            for cell in run.cells
            if cell.arm == name and cell.warmup and cell.status == "ok"
        }
    return ArmFacts(
        name=name,
        kind=summary["kind"],
        summary=summary,
        rounds=dict(sorted(rounds.items())),
        cold=dict(sorted(cold.items())),
        changes=str(told.get("changes") or (entry.model_extra or {}).get("changes") or ""),
        note=str(told.get("note") or ""),
        prediction=entry.prediction,
        column_bytes=entry.column_bytes,
    )


def _seconds(rounds: Mapping[int, CellValues]) -> dict[int, float]:
    return {
        number: values.metrics["seconds"]
        for number, values in rounds.items()
        if "seconds" in values.metrics
    }


def calibration_by_round(run: Run) -> dict[int, dict[str, float]]:
    """The parts of the calibration cell by round, including warm-up rounds."""
    rounds: dict[int, dict[str, float]] = {}
    for one in run.calibrations:
        rounds.setdefault(one.round, {})[one.part] = one.value
    return dict(sorted(rounds.items()))


def _drift(run: Run) -> dict[int, float]:
    """The rounds with drift, as the gate marks them; warm-up rounds do not count."""
    measured = {cell.round for cell in run.cells if not cell.warmup}
    rounds = {n: parts for n, parts in calibration_by_round(run).items() if n in measured}
    return moved_rounds(rounds)


def _is_local(run: Run) -> bool:
    told = run.header.settings.get("local_mode")
    if isinstance(told, bool):
        return told
    places = (run.header.spark_conf.get("spark.master"), run.header.environment.get("master"))
    named = next((str(place) for place in places if place), "")
    return not named or named.startswith("local")
