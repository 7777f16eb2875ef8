"""Builds the history of a scenario: a series for each arm and quantity, its steps, and who acknowledged them.

A series breaks if the scenario, data, an instrument of its metric, format or machine changed: levels are
compared only within an unbroken stretch. Acknowledged changes are kept in
`results/acknowledged/<scenario>.json`, beside the baselines, and committed; only a user's command adds one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from serde_lab.analysis.rounding import rounded_value
from serde_lab.errors import RunError, UsageError
from serde_lab.files import alone_in, read_versioned, write_whole
from serde_lab.gate.change_points import ChangePoint, find_change_points, find_changes
from serde_lab.gate.compare.comparability import arms_differ, instruments_differ, obstacles
from serde_lab.gate.compare.rows import PRIMARY
from serde_lab.gate.compare.sides import Quantity, Side, side_of_run
from serde_lab.gate.compare.verdict import Verdict, changed, direction
from serde_lab.measure.metrics import metric
from serde_lab.runs.directory import list_runs, load_run


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The median of one run's measured rounds, and their values."""

    run: str
    started_at: str
    value: float
    values: tuple[float, ...]
    stretch: int


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A step, the run in which it first appeared, and who acknowledged it (None: nobody yet)."""

    step: ChangePoint
    run: str
    verdict: Verdict
    acknowledgement: Acknowledgement | None


@dataclass(frozen=True, slots=True)
class Series:
    """One arm and quantity over time. `breaks` holds the runs at which a new stretch began, and why."""

    arm: str
    quantity: Quantity
    unit: str
    points: tuple[HistoryPoint, ...]
    steps: tuple[HistoryStep, ...]
    breaks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ScenarioHistory:
    """All series of a scenario; `messages` name the runs left out, and why."""

    scenario: str
    series: tuple[Series, ...]
    runs: tuple[str, ...]
    messages: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """1 if there is nothing to show, else 0: history reports, the gate judges."""
        return 0 if self.series else 1


def history(
    scenario: str,
    results: Path,
    *,
    arms: Sequence[str] = (),
    metrics: Sequence[str] = (),
    machine_class: str = "",
    acknowledgements: Path | None = None,
) -> ScenarioHistory:
    """The history of a scenario under `results`, oldest run first.

    `acknowledgements` is the folder of acknowledged changes, by default `results/acknowledged`. Arms with a
    wrong or unchecked answer give no point. Raises RunError if there is no run of the scenario.
    """
    sides: list[tuple[str, Side]] = []
    messages: list[str] = []
    for entry in list_runs(results):
        if entry.scenario != scenario:
            continue
        if entry.header is None:
            messages.append(f"{entry.run} is left out: {entry.problem}")
            continue
        try:
            side = side_of_run(load_run(entry.path))
        except RunError as exc:
            messages.append(f"{entry.run} is left out: {exc.message}")
            continue
        if machine_class and side.machine_class != machine_class:
            messages.append(
                f"{entry.run} is left out, since its machine class is {side.machine_class}"
            )
            continue
        sides.append((entry.header.started_at, side))
    if not sides and not messages:
        raise RunError(f"there is no run of {scenario!r} under {results}")
    known = acknowledged(acknowledgements or results / "acknowledged", scenario)
    names = arms or sorted({name for _, side in sides for name in side.arms})
    series = [
        found
        for name in names
        for quantity in _quantities(sides, name, metrics or PRIMARY)
        if (found := _series(sides, name, quantity, known)).points
    ]
    for _, side in sides:
        wrong = [name for name, arm in side.arms.items() if arm.failures or side.failures]
        if wrong:
            messages.append(f"{side.label}: wrong answer of {', '.join(sorted(wrong))}, not shown")
        unchecked = [name for name, arm in side.arms.items() if arm.unchecked]
        if unchecked:
            messages.append(f"{side.label}: {', '.join(sorted(unchecked))} unchecked, not shown")
    return ScenarioHistory(
        scenario, tuple(series), tuple(side.label for _, side in sides), tuple(messages)
    )


def acknowledge_steps(
    found: ScenarioHistory,
    folder: Path,
    *,
    run: str,
    by: str,
    why: str,
    arms: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> tuple[Acknowledgement, ...]:
    """Acknowledge the steps first seen in `run`, of these arms and metrics (all if empty).

    Raises UsageError if there is no such step, naming the runs that have one.
    """
    steps = [
        (series.arm, series.quantity.metric, step.run)
        for series in found.series
        for step in series.steps
    ]
    wanted = [(arm, name) for arm in arms or ("",) for name in metrics or ("",)]
    for arm, name in wanted:
        if not any(at == run and arm in ("", one) and name in ("", of) for one, of, at in steps):
            what = " ".join(part for part in (arm, name) if part)
            known = ", ".join(sorted({at for _, _, at in steps})) or "none"
            raise UsageError(
                f"{found.scenario} has no step{f' of {what}' if what else ''} first seen in run"
                f" {run!r}; runs with steps: {known}"
            )
    return tuple(
        acknowledge(folder, found.scenario, run=run, by=by, why=why, arm=arm, metric=name)
        for arm, name in wanted
    )


def _quantities(
    sides: Sequence[tuple[str, Side]], arm: str, metrics: Sequence[str]
) -> list[Quantity]:
    rank = {name: i for i, name in enumerate(metrics)}
    found = {
        quantity
        for _, side in sides
        if arm in side.arms
        for quantity in side.arms[arm].values
        if quantity.metric in rank and not quantity.commit
    }
    return sorted(found, key=lambda quantity: (rank[quantity.metric], quantity.phase))


def _series(
    sides: Sequence[tuple[str, Side]],
    arm: str,
    quantity: Quantity,
    known: Sequence[Acknowledgement],
) -> Series:
    points: list[HistoryPoint] = []
    breaks: list[tuple[str, str]] = []
    last: Side | None = None
    stretch = 0
    for started_at, side in sides:
        found = side.arms.get(arm)
        values = found.values.get(quantity, {}) if found else {}
        if found is None or not values or found.failures or side.failures:
            continue
        if last is not None and (reason := _break(last, side, arm, quantity)):
            stretch += 1
            breaks.append((side.label, reason))
        last = side
        ordered = tuple(values[n] for n in sorted(values))
        median = rounded_value(float(np.median(ordered)))
        points.append(HistoryPoint(side.label, started_at, median, ordered, stretch))
    steps = [
        step
        for n in range(stretch + 1)
        for step in _steps([p for p in points if p.stretch == n], arm, quantity, known)
    ]
    return Series(
        arm, quantity, metric(quantity.metric).unit, tuple(points), tuple(steps), tuple(breaks)
    )


def _break(last: Side, side: Side, arm: str, quantity: Quantity) -> str:
    """Why two neighbouring points are in different stretches; "" if they are in the same."""
    stands = obstacles(last, side, "refuse")
    absolute = stands.absolute if metric(quantity.metric).kind in ("time", "memory") else ""
    return (
        stands.everything
        or absolute
        or instruments_differ(last, side, quantity.metric)
        or arms_differ(last.arms[arm], side.arms[arm])
    )


def _steps(
    points: Sequence[HistoryPoint],
    arm: str,
    quantity: Quantity,
    known: Sequence[Acknowledgement],
) -> list[HistoryStep]:
    kind = metric(quantity.metric)
    values = [point.value for point in points]
    if kind.kind == "exact":
        found = find_changes(values)
    elif min(values, default=0) <= 0:
        return []
    elif kind.kind == "compressed":
        found = tuple(s for s in find_changes(values) if changed(s.after / s.before) > 0.005)
    else:
        found = find_change_points(values)
    return [
        HistoryStep(
            step=step,
            run=points[step.index].run,
            verdict=direction(step.after > step.before, kind.better),
            acknowledgement=next(
                (one for one in known if one.covers(arm, quantity, points[step.index].run)), None
            ),
        )
        for step in found
    ]


FILE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One accepted change, first seen in `run`; an empty arm, metric or phase matches all."""

    run: str
    by: str
    why: str
    at: str
    arm: str = ""
    metric: str = ""
    phase: str = ""

    def covers(self, arm: str, quantity: Quantity, run: str) -> bool:
        """Whether this covers a step of that arm and quantity, first seen in that run."""
        return (
            self.run == run
            and self.arm in ("", arm)
            and self.metric in ("", quantity.metric)
            and self.phase in ("", quantity.phase)
        )


def acknowledged(folder: Path, scenario: str) -> tuple[Acknowledgement, ...]:
    """The acknowledged changes of a scenario; raises RunError if the file is damaged."""
    file = folder / f"{scenario}.json"
    try:
        document = read_versioned(file, FILE_FORMAT)
    except FileNotFoundError:
        return ()
    try:
        found = tuple(Acknowledgement(**entry) for entry in document["changes"])
    except (KeyError, TypeError):
        found = None
    if found is None or not all(isinstance(v, str) for one in found for v in asdict(one).values()):
        raise RunError(
            f"{file} is damaged: changes is no list of tables with the texts run, by, why and at"
        )
    return found


def acknowledge(
    folder: Path,
    scenario: str,
    *,
    run: str,
    by: str,
    why: str,
    arm: str = "",
    metric: str = "",
) -> Acknowledgement:
    """Add one acknowledgement; raises UsageError without a reason or a name."""
    if not why.strip() or not by.strip():
        raise UsageError("an acknowledgement needs a reason and a name")
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = Acknowledgement(run, by, why, moment, arm, metric)
    with alone_in(folder, make=True):
        changes = [*acknowledged(folder, scenario), entry]
        document = {"format_version": FILE_FORMAT, "changes": [asdict(one) for one in changes]}
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
        write_whole(folder / f"{scenario}.json", f"{text}\n".encode())
    return entry
