"""Parses the events of `samples.jsonl` and the lines of `checks.jsonl`, and keeps those that count."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from serde_lab.errors import RunError
from serde_lab.runs.model import Calibration, Cell, Check, Sample
from serde_lab.runs.soundness import check_value

Lines = Iterable[tuple[int, dict[str, Any]]]


def read_samples(
    file: Path, lines: Lines
) -> tuple[tuple[Cell, ...], tuple[Calibration, ...], tuple[str, ...]]:
    """Cells that ended, calibrations, and the names of cells that began but never ended.

    A cell that began again starts from nothing: measurements of an interrupted attempt do not count. Raises
    RunError naming file and line for an impossible event.
    """
    begun: dict[str, dict[str, Any]] = {}
    measured: dict[str, list[Sample]] = {}
    ended: dict[str, Cell] = {}
    calibrations: dict[tuple[int, str], Calibration] = {}
    for number, line in lines:
        try:
            event = line["event"]
            if event == "sample":
                measured[line["cell"]].append(_sample(line))
            elif event == "cell_begin":
                cell = line["cell"]
                begun[cell], measured[cell] = line, []
                ended.pop(cell, None)
            elif event == "cell_end":
                cell = line["cell"]
                ended[cell] = _cell(begun.pop(cell), line, measured.pop(cell))
            elif event == "calibration":
                part = Calibration(
                    int(line["round"]),
                    str(line["part"]),
                    _number(line["value"], "the calibration"),
                    line["unit"],
                )
                calibrations[part.round, part.part] = part
            else:
                raise ValueError(f"unknown event {event!r}")
        except KeyError as exc:
            key = exc.args[0]
            problem = (
                f"key {key!r} is missing"
                if key not in line.values()
                else (f"cell {key!r} has not begun")
            )
            raise RunError(f"{file}, line {number}: {problem}") from exc
        except (TypeError, ValueError) as exc:
            raise RunError(f"{file}, line {number}: {exc}") from exc
    return tuple(ended.values()), tuple(calibrations.values()), tuple(begun)


def read_checks(file: Path, lines: Lines) -> tuple[Check, ...]:
    """The checks; if one is repeated for a cell, round and arm, the last counts. Raises RunError."""
    checks: dict[tuple[Any, ...], Check] = {}
    for number, line in lines:
        try:
            passed = line["passed"]
            if not isinstance(passed, bool):
                raise TypeError(f"passed is {passed!r}, not true or false")
            check = Check(
                name=str(line["name"]),
                passed=passed,
                detail=str(line.get("detail") or ""),
                arm=line.get("arm"),
                cell=line.get("cell"),
                round=line.get("round"),
            )
        except KeyError as exc:
            raise RunError(f"{file}, line {number}: key {exc.args[0]!r} is missing") from exc
        except TypeError as exc:
            raise RunError(f"{file}, line {number}: {exc}") from exc
        checks[check.cell, check.round, check.arm, check.name] = check
    return tuple(checks.values())


def _cell(begin: dict[str, Any], end: dict[str, Any], samples: list[Sample]) -> Cell:
    status = end["status"]
    if status not in ("ok", "failed"):
        raise ValueError(f"status is {status!r}, not ok or failed")
    return Cell(
        cell=begin["cell"],
        arm=str(begin["arm"]),
        round=int(begin["round"]),
        warmup=bool(begin["warmup"]),
        order=int(begin["order"]),
        started_at=str(begin["started_at"]),
        status=status,
        error=end.get("error"),
        samples=tuple(samples),
    )


def _sample(line: dict[str, Any]) -> Sample:
    return Sample(
        metric=line["metric"],
        value=_number(line["value"], line["metric"]),
        unit=line["unit"],
        commit=_commit(line["commit"]),
        phase=line.get("phase"),
    )


def _number(value: object, what: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"value is {value!r}, not a number")
    check_value(str(what), value)
    return value


def _commit(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"commit is {value!r}, not a whole number or null")
    return value
