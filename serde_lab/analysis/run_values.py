"""Prepares a run for everything that shows it: the summary, the values of every round, and derived values.

Each is computed once. An arm with a wrong answer has no timed rounds here, so that nothing can show one by
mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum
from statistics import median
from typing import Any

from serde_lab.analysis.cell_values import (
    CellValues,
    Rounds,
    by_round,
    cell_values,
    median_together,
)
from serde_lab.analysis.drift import calibration_rounds, moved_rounds
from serde_lab.analysis.ratios import Ratio, paired_logs, stated_ratio
from serde_lab.analysis.summary import Derived, summary_of
from serde_lab.measure import phases
from serde_lab.records.operation import TableOperation
from serde_lab.runs.model import ArmEntry, Run

METADATA = "update_metadata"
"""The verb that writes the file group into records."""


_DID = {
    TableOperation.READ: "read",
    TableOperation.INCREMENTAL: "read",
    TableOperation.COMPACT: "compacted",
}


@dataclass(frozen=True, slots=True)
class ArmValues:
    """One arm. `rounds` and `cold` hold the values by round number; both are empty if the arm is wrong
    or unchecked."""

    name: str
    kind: str
    summary: Mapping[str, Any]
    rounds: Mapping[int, CellValues]
    cold: Mapping[int, CellValues]
    changes: str = ""
    note: str = ""
    merging: Mapping[str, Any] = field(default_factory=dict)
    """The merge settings in which it differs from the scenario's."""
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
    def did(self) -> str:
        """What its commits did with their rows, such as "wrote"."""
        operations = [one["operation"] for one in self.summary["commits"]]
        return " and ".join(dict.fromkeys(_DID.get(one, "wrote") for one in operations)) or "wrote"

    @property
    def slots(self) -> float:
        return self.figure("slots") or 1.0

    @property
    def phases(self) -> Mapping[str, Mapping[str, float]]:
        """Wall and CPU seconds of each phase: means over rounds."""
        return self.summary["phases"] or {}

    @property
    def seconds_by_round(self) -> dict[int, float]:
        return self.by_round("seconds")

    @property
    def cold_seconds(self) -> dict[int, float]:
        return by_round(self.cold, "seconds")

    def by_round(self, metric: str) -> dict[int, float]:
        """A metric's value in each measured round that has it."""
        return by_round(self.rounds, metric)

    @property
    def ratio_to_reference(self) -> Ratio | None:
        """Its seconds over the reference's; None without a timing, or for another kind of table."""
        return stated_ratio(self.summary)

    @property
    def cpu_ratio_to_reference(self) -> Ratio | None:
        """The same ratio of the CPU time of all processes; None where it was not measured."""
        return stated_ratio(self.summary, "cpu_")

    def figure(self, metric: str) -> float | None:
        """The median of a metric over measured rounds."""
        value: float | None = self.summary.get(metric)
        return value

    def per_record(self, metric: str) -> float | None:
        """A metric's median divided by its rows; None without rows."""
        value, rows = self.figure(metric), self.rows_of(metric)
        return None if value is None or not rows else value / rows

    def rows_of(self, metric: str) -> float | None:
        """The rows that a metric is a cost of: for SerDe, those of commits that have any."""
        if metric != "serde_cpu_s":
            return self.rows
        with_serde = [one for one in self.summary["commits"] if one["serde_cpu_s"]]
        return fsum(one["rows"] or 0 for one in with_serde) or self.rows

    def verb_us(self, *verbs: str) -> float:
        """Microseconds of CPU per record for some verbs together, over all stages: a median over rounds."""
        of_verbs = median_together(
            self.rounds.values(), lambda name: phases.split(name)[1] in verbs, "cpu_s"
        )
        return self._us(of_verbs, verbs)

    def mean_verb_us(self, verb: str) -> float:
        """The same for one verb, as a mean over rounds: the means of verbs add up, and medians do not."""
        times = self.phases.items()
        return self._us(fsum(t["cpu_s"] for n, t in times if phases.split(n)[1] == verb), (verb,))

    def _us(self, cpu_s: float, verbs: tuple[str, ...]) -> float:
        rows = self.rows_of("serde_cpu_s") if phases.SERDE_VERBS.issuperset(verbs) else self.rows
        return 1e6 * max(0.0, cpu_s) / (rows or 1.0)

    def hops_us(self) -> dict[int, float]:
        """Microseconds of CPU per record for SerDe and for setting file groups, by round."""
        cost = {}
        for number, values in self.rounds.items():
            serde, rows = values.metrics.get("serde_cpu_s"), values.metrics.get("rows")
            if serde and rows:
                times = values.phases.items()
                metadata = [t.cpu_s for name, t in times if phases.split(name)[1] == METADATA]
                cost[number] = 1e6 * (serde + fsum(metadata)) / rows
        return cost

    def slot_s_saved_by(self, other: ArmValues, *, serde: bool) -> list[float]:
        """How many slot seconds less `other` takes in each common round: in all phases, or in SerDe's alone.

        Phases add up to the whole in a round; their medians need not.
        """

        def spent(values: CellValues) -> float:
            times = values.phases.items()
            return fsum(time.wall_s for name, time in times if not serde or phases.is_serde(name))

        common = self.rounds.keys() & other.rounds.keys()
        return [spent(self.rounds[n]) - spent(other.rounds[n]) for n in sorted(common)]

    def wins_against(self, other: ArmValues) -> tuple[int, int]:
        """The number of common rounds in which this arm was faster, and of all common rounds."""
        logs = paired_logs(other.seconds_by_round, self.seconds_by_round).values()
        return sum(log > 0 for log in logs), len(logs)

    @property
    def spread(self) -> float | None:
        """The highest minus the lowest measured round, over the median of the rounds; None below two."""
        values = list(self.seconds_by_round.values())
        if len(values) < 2 or not median(values):
            return None
        return (max(values) - min(values)) / median(values)

    @property
    def expected_us(self) -> float | None:
        """SerDe CPU per record in microseconds, as its author predicted before the measurement."""
        return self._predicted("serde_cpu_us_per_record")

    @property
    def expected_bytes(self) -> float | None:
        """Frame bytes per record, as predicted before the measurement."""
        return self._predicted("frame_bytes_per_record")

    def _predicted(self, name: str) -> float | None:
        value = (self.prediction or {}).get(name)
        return float(value) if isinstance(value, int | float) else None

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
class RunValues:
    """A run prepared for its page: arms in the scenario's order, and the rounds that drifted."""

    run: Run
    summary: Mapping[str, Any]
    arms: tuple[ArmValues, ...]
    reference: ArmValues | None
    drift: Mapping[int, float]
    """Round -> calibration time relative to the run's median, for the rounds beyond the limit."""
    calibration: Mapping[int, Mapping[str, float]]
    """Seconds of each part of the calibration cell, by round, warm-up rounds included."""
    exchange: str
    local: bool
    derived: Derived

    @property
    def content(self) -> Mapping[str, Any]:
        return self.run.header.scenario_content

    @property
    def timed(self) -> tuple[ArmValues, ...]:
        """The arms with a timing that can be shown."""
        return tuple(arm for arm in self.arms if arm.seconds is not None)

    @property
    def strategies(self) -> tuple[ArmValues, ...]:
        """The timed strategy arms, which the question is about."""
        return tuple(arm for arm in self.timed if arm.kind != "control")

    @property
    def strategy_arms(self) -> tuple[ArmValues, ...]:
        """The arms of a strategy, timed or not."""
        return tuple(arm for arm in self.arms if arm.kind == "strategy")

    def arms_with(self, *metrics: str) -> tuple[ArmValues, ...]:
        """The arms that have one of these metrics per record."""
        return tuple(arm for arm in self.arms if any(arm.per_record(one) for one in metrics))

    @property
    def predicted(self) -> tuple[ArmValues, ...]:
        """The arms whose author predicted time or bytes."""
        return tuple(
            arm
            for arm in self.arms
            if arm.expected_us is not None or arm.expected_bytes is not None
        )

    @property
    def column_bytes(self) -> dict[str, Mapping[str, float]]:
        """Frame bytes per record of each column, by arm; arms with a wrong answer are left out."""
        return {
            arm.name: arm.column_bytes for arm in self.arms if arm.column_bytes and not arm.wrong
        }

    @property
    def by_topology(self) -> tuple[tuple[str, ArmValues], ...]:
        """The strategy arms, each with the name of its topology."""
        whole = str((self.content.get("topology") or {}).get("name", "bucket"))
        own = {
            str(one.get("name")): str(one["topology"].get("name", whole))
            for one in self.content.get("arm", ())
            if one.get("topology")
        }
        return tuple((own.get(arm.name, whole), arm) for arm in self.strategy_arms)

    @property
    def of_one_hop(self) -> dict[str, dict[int, float]]:
        """The logarithm of an arm's cost of hops over that of its strategy with the bucket index: by arm, and
        then by round."""
        named = self.by_topology
        one_hop = {arm.strategy: arm.hops_us() for name, arm in named if name == "bucket"}
        return {
            arm.name: paired_logs(arm.hops_us(), one_hop.get(arm.strategy, {})) for _, arm in named
        }


def run_values(run: Run) -> RunValues:
    summary, derived = summary_of(run)
    content = run.header.scenario_content
    scenario = {str(entry.get("name", "")): entry for entry in content.get("arm", ())}
    entries = {entry.arm: entry for entry in run.header.arms}
    arms = tuple(
        _arm(run, arm, derived.rounds[arm["arm"]], scenario, entries[arm["arm"]])
        for arm in summary["arms"]
    )
    named = content.get("reference")
    return RunValues(
        run=run,
        summary=summary,
        arms=arms,
        reference=next((arm for arm in arms if arm.name == named), None),
        drift=moved_rounds(calibration_rounds(run)),
        calibration=calibration_rounds(run, warmup=True),
        exchange=run.header.exchange,
        local=bool(run.header.settings.get("local_mode", True)),
        derived=derived,
    )


def _arm(
    run: Run,
    summary: Mapping[str, Any],
    rounds: Rounds,
    scenario: Mapping[str, Mapping[str, Any]],
    entry: ArmEntry,
) -> ArmValues:
    name = summary["arm"]
    stated = scenario.get(name, {})
    cold: dict[int, CellValues] = {}
    if not (summary["wrong"] or summary["unchecked"]):
        cold = {
            cell.round: cell_values(cell)
            for cell in run.cells
            if cell.arm == name and cell.warmup and cell.status == "ok"
        }
    return ArmValues(
        name=name,
        kind=summary["kind"],
        summary=summary,
        rounds=rounds,
        cold=dict(sorted(cold.items())),
        changes=str(stated.get("changes") or ""),
        note=str(stated.get("note") or ""),
        merging=scenario.get(entry.of_scenario, {}).get("merging") or {},
        prediction=entry.prediction,
        column_bytes=entry.column_bytes,
    )
