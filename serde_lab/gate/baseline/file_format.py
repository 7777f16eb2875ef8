"""Stores baselines as JSON: one file for a scenario on a machine class, and an entry for each baseline in it.

To keep entries small, rounds are listed once per arm, and a value that all rounds share is stored once. Equal
contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from serde_lab.errors import RunError
from serde_lab.files import read_versioned, write_whole
from serde_lab.gate.compare.sides import ArmSide, Quantity, Side
from serde_lab.measure.metrics import DETAIL_PREFIX, metric
from serde_lab.runs.model import check_value

_DIGITS = 6
# A baseline keeps only the top of the environment: what a reader asks for first.
_ENVIRONMENT_DEPTH = 1


def entry_of_side(side: Side) -> dict[str, Any]:
    """The part of a side that later comparisons need: values that may be gated, and what was asked."""
    arms = {name: _arm(arm) for name, arm in side.arms.items() if arm.values}
    rounds = sorted(side.calibration)
    entry = {
        "run": side.label,
        "results_format": side.results_format,
        "measuring_code": side.measuring_code,
        **({"instruments": dict(side.instruments)} if side.instruments else {}),
        "asked": side.asked,
        "data_checksums": side.data_checksums,
        "environment": _plain(side.environment, _ENVIRONMENT_DEPTH),
        "calibration": {
            "rounds": rounds,
            "parts": {
                part: [_short(side.calibration[n][part]) for n in rounds]
                for part in sorted(side.calibration_parts)
            },
        },
        "arms": arms,
    }
    return sealed(entry)


def sealed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with a digest of everything else in it."""
    rest = {key: value for key, value in entry.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), default=str)
    return {**rest, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}


def side_of_entry(entry: Mapping[str, Any], name: str, scenario: str, machine_class: str) -> Side:
    """An entry as a side of a comparison.

    Raises KeyError, TypeError or ValueError if damaged, RunError for an unknown metric.
    """
    stated, found = entry.get("digest"), sealed(entry)["digest"]
    if stated not in (None, found):
        raise ValueError(f"its digest is {found[:19]}…, and it states {stated[:19]}…")
    label = f"baseline {name} ({entry['run']})"
    without = f"{label} has no digest, so nothing proves that its values are the measured ones"
    calibration = entry["calibration"]
    return Side(
        label=label,
        scenario=scenario,
        asked=entry["asked"],
        data_checksums=entry["data_checksums"],
        measuring_code=entry["measuring_code"],
        instruments=entry.get("instruments", {}),
        results_format=entry["results_format"],
        machine_class=machine_class,
        arms={arm: _arm_side(arm, values) for arm, values in entry["arms"].items()},
        calibration={
            n: {part: values[i] for part, values in calibration["parts"].items()}
            for i, n in enumerate(calibration["rounds"])
        },
        environment=entry["environment"],
        messages=() if stated else (without,),
        without_digest="" if stated else without,
    )


def _arm(arm: ArmSide) -> dict[str, Any]:
    rounds = sorted({number for values in arm.values.values() for number in values})
    stored = {
        _key(quantity): _column(values, rounds)
        for quantity, values in sorted(arm.values.items())
        if _kept(quantity)
    }
    return {
        "definition": arm.definition,
        "checks_passed": arm.checks_passed,
        "rounds": rounds,
        "values": stored,
    }


def _kept(quantity: Quantity) -> bool:
    return not quantity.metric.startswith(DETAIL_PREFIX) and (
        metric(quantity.metric).gated and not (quantity.phase and quantity.commit)
    )


def _column(values: Mapping[int, float], rounds: Sequence[int]) -> Any:
    column = [_short(values[n]) if n in values else None for n in rounds]
    return column[0] if len(set(column)) == 1 else column


def _arm_side(name: str, stored: Mapping[str, Any]) -> ArmSide:
    rounds = stored["rounds"]
    values: dict[Quantity, dict[int, float]] = {}
    for key, column in stored["values"].items():
        filled = column if isinstance(column, list) else [column] * len(rounds)
        if len(filled) != len(rounds):
            raise ValueError(f"{name}: {key} has {len(filled)} values of {len(rounds)} rounds")
        pairs = zip(rounds, filled, strict=True)
        quantity = _quantity(key)
        metric(quantity.metric)  # raises for an unknown name
        values[quantity] = {n: float(value) for n, value in pairs if value is not None}
        for n, value in values[quantity].items():
            check_value(f"{quantity.label} of {name}, round {n},", value)
    if len(set(rounds)) != len(rounds):
        raise ValueError(f"{name} has a round twice: {rounds}")
    checks_passed = int(stored["checks_passed"])
    return ArmSide(
        arm=name,
        definition=stored["definition"],
        values=values,
        checks_passed=checks_passed,
        unchecked="" if checks_passed else "no check of contents",
    )


def _key(quantity: Quantity) -> str:
    return f"{quantity.metric}|{quantity.phase}|{quantity.commit or ''}".rstrip("|")


def _quantity(key: str) -> Quantity:
    name, phase, commit = (*key.split("|"), "", "")[:3]
    return Quantity(name, phase, int(commit or 0))


def _short(value: float) -> int | float:
    """Whole numbers in full, since one byte counts as a change; others with six digits."""
    return int(value) if float(value).is_integer() else float(f"{value:.{_DIGITS}g}")


def _plain(values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    return {
        key: _plain(value, depth - 1) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if isinstance(value, str | int | float | bool) or (isinstance(value, Mapping) and depth > 0)
    }


FILE_FORMAT = 1

_NUMBERS = re.compile(r"\[\n\s+([^\[\]{}\"]*?)\n\s+\]")
_SPACE = re.compile(r",\s+")


def baseline_file(folder: Path, machine_class: str, scenario: str) -> Path:
    """Where the baselines of a scenario on a machine class are kept."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", machine_class).lstrip(".") or "unknown"
    return folder / safe / f"{scenario}.json"


def new_document(scenario: str, machine_class: str) -> dict[str, Any]:
    return {
        "format_version": FILE_FORMAT,
        "scenario": scenario,
        "machine_class": machine_class,
        "baselines": {},
        "events": [],
    }


class _ArmRecord(BaseModel):
    definition: dict[str, Any]
    checks_passed: int
    rounds: list[int]
    values: dict[str, float | list[float | None] | None]


class _Calibration(BaseModel):
    rounds: list[int]
    parts: dict[str, list[float]]


class _Record(BaseModel):
    run: str
    results_format: int
    measuring_code: str
    instruments: dict[str, str] = {}
    asked: dict[str, Any]
    data_checksums: dict[str, Any]
    environment: dict[str, Any]
    calibration: _Calibration
    arms: dict[str, _ArmRecord]
    digest: str | None = None


class _Event(BaseModel):
    event: str
    baseline: str
    run: str
    at: str
    by: str
    reason: str


class _Document(BaseModel):
    """What readers take from a baseline file without looking; they check values and digests themselves."""

    scenario: str
    machine_class: str
    baselines: dict[str, _Record]
    events: list[_Event]


def _shape_problem(document: object) -> str:
    """The key in a baseline file whose value is of another kind than `_Document` states; "" for none."""
    # pydantic refuses lone surrogates, as in a path that is not UTF-8: they are texts like others
    text = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    try:
        _Document.model_validate_json(text, strict=True)
    except ValidationError as exc:
        first = exc.errors()[0]
        return f"key {'.'.join(map(str, first['loc']))!r}: {first['msg']}"
    return ""


def entry_named(document: Mapping[str, Any], name: str, file: Path) -> dict[str, Any]:
    """One baseline of a file; raises RunError that lists the existing ones."""
    entry: dict[str, Any] | None = document["baselines"].get(name)
    if entry is None:
        known = ", ".join(sorted(document["baselines"])) or "none"
        raise RunError(f"{file} has no baseline {name!r}; it has {known}")
    return entry


def read_document(file: Path) -> dict[str, Any]:
    """Read a baseline file; raises RunError if it is missing, damaged or of another format version."""
    try:
        document = read_versioned(file, FILE_FORMAT)
    except FileNotFoundError:
        raise RunError(f"there is no baseline file {file}", "baseline save RUN makes one") from None
    if problem := _shape_problem(document):
        raise RunError(f"{file} is damaged, {problem}")
    return document


def write_document(file: Path, document: Mapping[str, Any]) -> None:
    """Replace the file atomically; raises RunError if that fails."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
    # A list of numbers stays on one line: diffs then show one line per quantity.
    text = _NUMBERS.sub(lambda found: f"[{_SPACE.sub(', ', found.group(1).strip())}]", text)
    try:
        write_whole(file, f"{text}\n".encode(errors="backslashreplace"))
    except OSError as exc:
        raise RunError(f"{file} cannot be written: {exc}") from exc
