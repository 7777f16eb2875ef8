"""Resolves the two names given to `compare` into sides: runs, baselines, or arms of them.

A name is one of:

    RUN            a path, an id or its beginning, a scenario (its latest run), "latest"
    FILE.json      a baseline file; FILE.json@NAME one of its baselines
    baseline:SCENARIO[@NAME]   the baseline of that scenario, of the other side's machine class
    any of these followed by #ARM: that arm of it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from serde_lab.errors import UsageError
from serde_lab.gate.baseline import store as baselines
from serde_lab.gate.compare.comparison import compare_sides
from serde_lab.gate.compare.rows import CompareOptions, Comparison
from serde_lab.gate.compare.sides import Side, side_of_run
from serde_lab.runs.directory import load_run, resolve_run


@dataclass(frozen=True, slots=True)
class NamedFolders:
    """The folders in which names are looked up."""

    results: Path
    baselines: Path


def compare(
    before: str,
    after: str,
    places: NamedFolders,
    options: CompareOptions | None = None,
    *,
    arms: tuple[str, ...] = (),
) -> Comparison:
    """Compare the sides that two names refer to.

    `arms` are names that both sides have or, within one run, two names. Raises UsageError for unknown arms,
    RunError for unknown runs and baselines.
    """
    options = options or CompareOptions()
    first_name, first_arm = _split(before)
    second_name, second_arm = _split(after)
    seen: dict[Path, Side] = {}
    second = _load(second_name, places, None, seen)
    first = _load(first_name, places, second, seen)
    if second is None:
        # A baseline on the right takes the machine class of the left side.
        second = _load(second_name, places, first, seen)
    if first is None or second is None:
        raise UsageError("two baselines are compared by their files: FILE.json FILE.json@NAME")
    pairs = _pairs(first, second, (first_arm, second_arm), arms)
    return compare_sides(first, second, replace(options, arms=pairs or options.arms))


def _split(name: str) -> tuple[str, str]:
    place, _, arm = name.partition("#")
    return place, arm


def _load(
    name: str, places: NamedFolders, other: Side | None, seen: dict[Path, Side]
) -> Side | None:
    """The side; None for a baseline whose machine class is not yet known from the other side."""
    if name.startswith("baseline:"):
        if other is None:
            return None
        scenario, _, wanted = name.removeprefix("baseline:").partition("@")
        if scenario != other.scenario:
            raise UsageError(f"{name} is of another scenario than {other.label} ({other.scenario})")
        return baselines.find(
            places.baselines, other, wanted or baselines.MAIN, other_machines=True
        )
    file, _, wanted = name.partition("@")
    if file.endswith(".json") and Path(file).name != "run.json":
        return baselines.load(Path(file), wanted or baselines.MAIN)
    path = resolve_run(name, places.results).resolve()
    if path not in seen:  # two names of one run give one side, whose arms are then compared
        seen[path] = side_of_run(load_run(path))
    return seen[path]


def _pairs(
    first: Side, second: Side, named: tuple[str, str], arms: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    if any(named):
        if arms:
            raise UsageError("name the arms by #ARM or by --arm, not by both")
        pair = named[0] or named[1], named[1] or named[0]
        for side, arm in zip((first, second), pair, strict=True):
            if arm not in side.arms:
                known = ", ".join(sorted(side.arms))
                raise UsageError(f"{side.label} has no arm {arm!r}; known are {known}")
        return (pair,)
    if first is not second:
        return tuple((arm, arm) for arm in arms)
    if len(arms) != 2:
        raise UsageError(
            f"to compare within one run, name two of its arms: {', '.join(sorted(second.arms))}",
            "--arm BEFORE --arm AFTER, or RUN#BEFORE RUN#AFTER",
        )
    return ((arms[0], arms[1]),)
