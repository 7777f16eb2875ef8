"""Saves, promotes, removes and finds named baselines, kept in small files that are committed.

    results/baselines/<machine class>/<scenario>.json

A file holds the baselines of one scenario on one machine class and the log of their changes. A baseline is
created once; only a promotion with a reason replaces it, and the file keeps the reason, its author, and the
quantities that got worse. Equal contents give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from serde_lab.analysis.rounding import rounded_value
from serde_lab.errors import RunError, UsageError
from serde_lab.files import alone_in
from serde_lab.gate.baseline.file_format import (
    baseline_file,
    entry_named,
    entry_of_side,
    new_document,
    read_document,
    sealed,
    side_of_entry,
    write_document,
)
from serde_lab.gate.compare.rows import PRIMARY
from serde_lab.gate.compare.sides import Side, side_of_run
from serde_lab.measure.metrics import metric
from serde_lab.runs.model import Run

MAIN = "main"
"""The baseline that a gate uses if none is named."""

SEAL = "`serde-lab seal PATH` adds a digest to a run or a baseline of an older version"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class BaselineLine:
    """One line of `baseline list`."""

    machine_class: str
    scenario: str
    name: str
    run: str
    arms: tuple[str, ...]
    rounds: int
    promoted_at: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class BaselineChange:
    """The effect of save, promote or remove in words; `loosened` names quantities that got worse."""

    file: Path
    text: str
    loosened: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def save(
    run: Run,
    folder: Path,
    *,
    by: str,
    name: str = MAIN,
    reason: str = "",
    at: datetime | None = None,
) -> BaselineChange:
    """Save a run as a new baseline; raises UsageError if the name is taken or the run is unfit."""
    return _put("save", run, folder, name, by=by, reason=reason, at=at)


def promote(
    run: Run, folder: Path, *, by: str, reason: str, name: str = MAIN, at: datetime | None = None
) -> BaselineChange:
    """Replace a baseline with a run and keep the reason; raises UsageError without a reason."""
    if not reason.strip():
        raise UsageError("a promotion needs a reason", "--reason TEXT, which the file keeps")
    return _put("promote", run, folder, name, by=by, reason=reason, at=at)


def remove(
    folder: Path,
    machine_class: str,
    scenario: str,
    *,
    name: str,
    by: str,
    reason: str,
    at: datetime | None = None,
) -> BaselineChange:
    """Remove a baseline but keep its log; raises UsageError without a reason, RunError if not there."""
    if not reason.strip():
        raise UsageError("a removal needs a reason", "--reason TEXT, which the file keeps")
    file = baseline_file(folder, machine_class, scenario)
    with alone_in(file.parent):
        document = read_document(file)
        entry = entry_named(document, name, file)
        del document["baselines"][name]
        document["events"].append(_event("remove", name, entry["run"], by, reason, at))
        write_document(file, document)
    return BaselineChange(file, f"removed the baseline {name} of {scenario} (run {entry['run']})")


def list_baselines(folder: Path) -> list[BaselineLine]:
    """All baselines under a folder, by machine class, scenario and name."""
    entries = []
    for file in sorted(folder.glob("*/*.json")):
        document = read_document(file)
        for name, entry in sorted(document["baselines"].items()):
            events = [one for one in document["events"] if one["baseline"] == name]
            last = events[-1] if events else {}
            arms = entry["arms"]
            entries.append(
                BaselineLine(
                    machine_class=document["machine_class"],
                    scenario=document["scenario"],
                    name=name,
                    run=entry["run"],
                    arms=tuple(sorted(arms)),
                    rounds=max((len(arm["rounds"]) for arm in arms.values()), default=0),
                    promoted_at=last.get("at", ""),
                    by=last.get("by", ""),
                    reason=last.get("reason", ""),
                )
            )
    return entries


def load(file: Path, name: str = MAIN) -> Side:
    """A baseline as a side; raises RunError if the file or name does not exist, or the entry is damaged."""
    document = read_document(file)
    entry = entry_named(document, name, file)
    try:
        return side_of_entry(entry, name, document["scenario"], document["machine_class"])
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        why = exc.args[0] if isinstance(exc, ValueError) and exc.args else repr(exc)
        raise RunError(f"{file}: the baseline {name!r} is damaged: {why}") from exc
    except RunError as exc:
        raise RunError(f"{file}: the baseline {name!r} is damaged: {exc.message}") from exc


def show(file: Path, name: str = MAIN) -> dict[str, Any]:
    """The entry of a baseline and the log of its changes, as plain data."""
    load(file, name)  # raises if the entry was edited
    document = read_document(file)
    entry = entry_named(document, name, file)
    events = [event for event in document["events"] if event["baseline"] == name]
    return {"file": str(file), "baseline": name, "events": events, **entry}


def seal(file: Path) -> list[str]:
    """Add a digest to each baseline of a file that has none; returns their names."""
    with alone_in(file.parent):
        document = read_document(file)
        names = [name for name in sorted(document["baselines"]) if load(file, name).without_digest]
        for name in names:
            document["baselines"][name] = sealed(document["baselines"][name])
        if names:
            write_document(file, document)
    return names


def find(
    folder: Path,
    scenario: str,
    machine_class: str,
    name: str = MAIN,
    *,
    other_machines: bool = False,
) -> Side:
    """The baseline for a run: of its own machine class, else of another class if `other_machines` allows it;
    or the one in the file `name`.

    Of several other classes, the most recently changed baseline is taken. Raises RunError if there is none: a
    missing baseline is never a pass.
    """
    if name.endswith(".json"):
        return load(Path(name))
    own = baseline_file(folder, machine_class, scenario)
    if own.exists() and name in read_document(own)["baselines"]:
        return load(own, name)
    others = [
        (max((e["at"] for e in document["events"] if e["baseline"] == name), default=""), file)
        for file in sorted(folder.glob(f"*/{scenario}.json"))
        if name in (document := read_document(file))["baselines"]
    ]
    if others and other_machines:
        return load(max(others)[1], name)
    hint = (
        f"other machine classes have one: {', '.join(sorted(f.parent.name for _, f in others))};"
        " --host-mismatch ratios compares the run with it"
        if others
        else "baseline save RUN makes one"
    )
    raise RunError(
        f"there is no baseline {name!r} of {scenario} for machine class"
        f" {machine_class or 'unknown'} under {folder}",
        hint,
    )


def _fit_side(run: Run) -> tuple[Side, tuple[str, ...]]:
    side = side_of_run(run)
    wrong = [*side.failures, *(f"{a.arm}: {f}" for a in side.arms.values() for f in a.failures)]
    if wrong:
        raise UsageError(f"run {side.label} cannot be a baseline: a check failed: {wrong[0]}")
    if run.header.state != "complete":
        raise UsageError(f"run {side.label} cannot be a baseline: it is {run.header.state}")
    if side.without_digest:
        raise UsageError(f"{side.without_digest}, so it cannot be a baseline", SEAL)
    unchecked = [f"{a.arm}: {a.unchecked}" for a in side.arms.values() if a.unchecked]
    if unchecked:
        raise UsageError(f"run {side.label} cannot be a baseline: unchecked: {unchecked[0]}")
    if run.failed_cells:
        cells = ", ".join(sorted(run.failed_cells))
        raise UsageError(f"run {side.label} cannot be a baseline: cells raised: {cells}")
    if not any(arm.values for arm in side.arms.values()):
        raise UsageError(f"run {side.label} cannot be a baseline: it measured nothing")
    notes = [f"{a.arm} is left out: {'; '.join(a.errors)}" for a in side.arms.values() if a.errors]
    rounds = max(len(arm.order) for arm in side.arms.values())
    if rounds < 3:
        notes.append(f"{rounds} rounds are too few to compare times with")
    if side.marked_rounds:
        marked = ", ".join(map(str, sorted(side.marked_rounds)))
        notes.append(f"the machine's speed moved by more than 10 % in round {marked}")
    return side, tuple(notes)


def _put(
    event: str, run: Run, folder: Path, name: str, *, by: str, reason: str, at: datetime | None
) -> BaselineChange:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a baseline")
    side, notes = _fit_side(run)
    file = baseline_file(folder, side.machine_class, side.scenario)
    with alone_in(file.parent, make=True):
        document = (
            read_document(file)
            if file.exists()
            else new_document(side.scenario, side.machine_class)
        )
        old = document["baselines"].get(name)
        if old is not None and event == "save":
            raise UsageError(
                f"{file} already has the baseline {name!r} of run {old['run']}",
                "promote the run with a reason to replace it",
            )
        entry = entry_of_side(side)
        loosened = () if old is None else _loosened(old, entry)
        document["baselines"][name] = entry
        change = _event(event, name, side.label, by, reason, at)
        if old is not None:
            change |= {"replaced": old["run"], "loosened": list(loosened)}
        document["events"].append(change)
        write_document(file, document)
    replaced = f", replacing run {old['run']}" if old else ""
    text = f"baseline {name} of {side.scenario} is run {side.label}{replaced}"
    return BaselineChange(file, text, loosened, notes)


def _loosened(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Quantities whose median is worse in the new entry, and arms that it lacks."""
    found = [f"{arm}: gone" for arm in sorted(old["arms"].keys() - new["arms"].keys())]
    before = side_of_entry(old, "", "", "").arms
    after = side_of_entry(new, "", "", "").arms
    for arm in sorted(before.keys() & after.keys()):
        for quantity in sorted(before[arm].values.keys() & after[arm].values.keys()):
            if quantity.metric not in PRIMARY:
                continue
            first, second = (
                rounded_value(float(np.median(list(one[arm].values[quantity].values()))))
                for one in (before, after)
            )
            better = metric(quantity.metric).better
            if first == second:
                continue
            if better == "equal" or (second > first) == (better == "lower"):
                found.append(f"{arm}: {quantity.label} {first:.15g} -> {second:.15g}")
    return tuple(found)


def _event(
    event: str, name: str, run: str, by: str, reason: str, at: datetime | None
) -> dict[str, Any]:
    moment = (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"event": event, "baseline": name, "run": run, "at": moment, "by": by, "reason": reason}
