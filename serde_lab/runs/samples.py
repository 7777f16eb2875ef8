"""Reads the lines of `samples.jsonl` and `checks.jsonl`, and keeps the values that count.

An incomplete last line, which a kill leaves, is dropped; any other damage is refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from serde_lab.errors import RunError
from serde_lab.measure.metrics import Sample
from serde_lab.runs.model import Calibration, Check, MeasuredCell

Lines = Iterable[tuple[int, dict[str, Any]]]


def read_lines(path: Path, messages: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, and objects. An incomplete last line is dropped with a message.

    Raises RunError naming file and line if any other line is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as exc:
        raise RunError(f"{path} cannot be read: {exc}") from exc
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, 1):
        value = _parse(line)
        if value is None:
            if number == len(lines):
                messages.append(f"{path}: the last line ({number}) is incomplete and was dropped")
                return
            raise RunError(
                f"{path}, line {number} is damaged: expected one JSON object,"
                f" found {line[:60].decode(errors='replace')!r}"
            )
        yield number, value


def drop_torn_tail(path: Path) -> None:
    """Remove an incomplete last line, or end a complete one, so that appending starts on a new line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    if not data:
        return
    # a last line without its line feed may be complete: no prefix of an object is valid JSON
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    if _parse(data[start:].rstrip(b"\n")) is None:
        os.truncate(path, start)
    elif not data.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def read_samples(
    file: Path, lines: Lines
) -> tuple[tuple[MeasuredCell, ...], tuple[Calibration, ...], tuple[str, ...]]:
    """Cells that ended, calibrations, and the names of cells that began but never ended.

    A cell that began again starts from nothing: measurements of an interrupted attempt do not count. Raises
    RunError naming file and line for an impossible event.
    """
    begun: dict[str, dict[str, Any]] = {}
    measured: dict[str, list[Sample]] = {}
    ended: dict[str, MeasuredCell] = {}
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
            if not isinstance(passed, bool | None):
                raise TypeError(f"passed is {passed!r}, not true, false or null")
            check = Check(
                name=str(line["name"]),
                passed=passed,
                detail=str(line.get("detail") or ""),
                arm=line.get("arm"),
                cell=line.get("cell"),
                round=line.get("round"),
                facts=_facts(line.get("facts")),
            )
        except KeyError as exc:
            raise RunError(f"{file}, line {number}: key {exc.args[0]!r} is missing") from exc
        except TypeError as exc:
            raise RunError(f"{file}, line {number}: {exc}") from exc
        checks[check.cell, check.round, check.arm, check.name] = check
    return tuple(checks.values())


def _facts(value: object) -> dict[str, int | str]:
    found = {} if value is None else value
    if not isinstance(found, dict) or not all(isinstance(one, int | str) for one in found.values()):
        raise TypeError(f"facts is {value!r}, not names with numbers and texts")
    return found


def _cell(begin: dict[str, Any], end: dict[str, Any], samples: list[Sample]) -> MeasuredCell:
    status = end["status"]
    if status not in ("ok", "failed"):
        raise ValueError(f"status is {status!r}, not ok or failed")
    return MeasuredCell(
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


def check_value(what: str, value: float) -> None:
    """Raises ValueError for a value that no measurement gives: negative or not finite."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} is {value}, and a measured value is finite and not negative")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
