"""Defines the values of a run directory: header, cells with their samples, calibrations and checks.

Also reads them back from the lines of `samples.jsonl` and `checks.jsonl`. An incomplete last line, which a
kill leaves, is dropped; any other damage is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from serde_lab.errors import RunError, worst
from serde_lab.files import refuse_constant
from serde_lab.measure.metrics import Sample

FORMAT_VERSION = 1

State = Literal["running", "complete", "interrupted"]
ArmKind = Literal["strategy", "control", "peer"]
CellStatus = Literal["ok", "failed"]


class ArmEntry(BaseModel):
    """An arm as the scenario asks for it; `missing` says why it could not be measured."""

    model_config = ConfigDict(frozen=True, extra="allow")

    arm: str
    kind: ArmKind = "strategy"
    strategy: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    fairness: dict[str, Any] | None = None
    missing: str | None = None
    prediction: dict[str, float] | None = None
    """The author's predicted cost of a record with this strategy (`serde.prediction`); None for controls."""
    column_bytes: dict[str, float] | None = None
    """Frame bytes per record of each column, measured by leaving it out; None if that is impossible."""
    swept: dict[str, Any] | None = None
    """The scenario's arm and the value of its sweep; None if nothing is swept."""
    candidate: dict[str, Any] | None = None
    """What this arm tries in a search: the name of its `start`, its own `name`, `factor` and `settings`."""

    @property
    def of_scenario(self) -> str:
        """The scenario's arm that this one is a version of, or its own name."""
        tried = (self.candidate or {}).get("start")
        return str(tried or (self.swept or {}).get("arm", self.arm))


class RunHeader(BaseModel):
    """`run.json`: the run's state, and everything known before it measures.

    Unknown keys are kept unchanged.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    run: str
    scenario: str
    arms: tuple[ArmEntry, ...]
    format_version: int = FORMAT_VERSION
    scenario_content: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    machine_class: str = ""
    code_version: dict[str, Any] = Field(default_factory=dict)
    data_checksums: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    state: State = "running"
    spark_conf: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    peer_spark_conf: dict[str, Any] = Field(default_factory=dict)
    """The settings of the peers' own session; empty if all arms shared one."""
    likeness: tuple[dict[str, Any], ...] = ()
    """What is alike between our arms and peers, and what differs; empty without peers."""
    ways: tuple[dict[str, Any], ...] = ()
    """What each arm leaves behind and what that lacks; empty unless an arm upserts without a Hudi table."""
    format_likeness: tuple[dict[str, Any], ...] = ()
    """What is alike between our arms and those that write other table formats; empty without such arms."""
    started_at: str = ""
    digests: dict[str, str] | None = None
    """SHA-256 of samples and checks by file name.

    None while the run is measured, for killed runs, and for runs of versions without digests.
    """

    @field_validator("scenario_content")
    @classmethod
    def _has_arms(cls, content: dict[str, Any]) -> dict[str, Any]:
        arms = content.get("arm", ())
        if not isinstance(arms, list | tuple) or not all(isinstance(arm, dict) for arm in arms):
            raise ValueError(f"arm is {arms!r}, not a list of tables")
        return content

    @field_validator("environment")
    @classmethod
    def _has_a_load(cls, environment: dict[str, Any]) -> dict[str, Any]:
        load = environment.get("load_average") or ()
        if not isinstance(load, list | tuple) or not all(
            isinstance(one, int | float) for one in load
        ):
            raise ValueError(f"load_average is {load!r}, not a list of numbers")
        cpu = environment.get("cpu") or {}
        if not isinstance(cpu, dict) or not isinstance(cpu.get("cores") or 1, int | float):
            raise ValueError(f"cpu is {cpu!r}, which states no number of cores")
        return environment

    @property
    def exchange(self) -> str:
        """The scenario's `measure.exchange`."""
        return str((self.scenario_content.get("measure") or {}).get("exchange") or "spark")

    @property
    def arms_of_scenario(self) -> tuple[str, ...]:
        """The names of the scenario's own arms that the run has; a search adds others."""
        known = {arm.get("name") for arm in self.scenario_content.get("arm", ())}
        names = dict.fromkeys(entry.of_scenario for entry in self.arms)
        return tuple(name for name in names if name in known)

    @property
    def arms_asked_for(self) -> tuple[str, ...]:
        """The scenario's arms to which the run was limited; () for all of them, as they were then."""
        every = {arm.get("name") for arm in self.scenario_content.get("arm", ())}
        named = self.arms_of_scenario
        return () if set(named) == every else named


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One arm in one round, with everything measured in it."""

    cell: str
    arm: str
    round: int
    warmup: bool
    order: int
    started_at: str
    status: CellStatus
    error: str | None
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The seconds of one part (numpy, jvm, disk) of a round's calibration cell."""

    round: int
    part: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check of contents; `cell` and `round` are None for a check over the whole run.

    `passed` is None if the check could not be made there; `detail` is a sentence in any case. `facts` are
    figures and words that the check found, for reports; runs of older versions have none.
    """

    name: str
    passed: bool | None
    detail: str
    arm: str | None = None
    cell: str | None = None
    round: int | None = None
    facts: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it found something wrong; a check that could not be made has neither failed nor passed."""
        return self.passed is False


@dataclass(frozen=True, slots=True)
class Run:
    """A run as read: only cells that ended, and messages about what was left out."""

    path: Path
    header: RunHeader
    cells: tuple[MeasuredCell, ...]
    calibrations: tuple[Calibration, ...]
    checks: tuple[Check, ...]
    messages: tuple[str, ...] = ()

    @property
    def complete_cells(self) -> frozenset[str]:
        """Names of cells that ended, with or without success; a resumed run skips them."""
        return frozenset(cell.cell for cell in self.cells)

    @property
    def failed_cells(self) -> frozenset[str]:
        """Names of cells in which the arm raised."""
        return frozenset(cell.cell for cell in self.cells if cell.status == "failed")

    @property
    def exit_status(self) -> int:
        """4 for a failed check; 1 for a failed, unchecked or missing measurement; 0 otherwise."""
        statuses = [4 for check in self.checks if check.failed]
        statuses += [1 for cell in self.cells if cell.status == "failed"]
        statuses += [1 for entry in self.header.arms if self.unchecked(entry.arm)]
        measured = any(cell.status == "ok" and not cell.warmup for cell in self.cells)
        return worst([*statuses, 0 if measured else 1])

    def unchecked(self, arm: str) -> str:
        """Why the figures of an arm cannot be trusted: rounds without a check; "" if all were checked.

        A check that could not be made is none.
        """
        checked = {check.cell for check in self.checks if check.passed is not None}
        rounds = [
            str(cell.round)
            for cell in self.cells
            if cell.arm == arm and cell.status == "ok" and cell.cell not in checked
        ]
        if not rounds:
            return ""
        return f"no check of contents in round{'s' if len(rounds) > 1 else ''} {', '.join(rounds)}"


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
        value = parse_line(line)
        if value is None:
            if number == len(lines):
                messages.append(f"{path}: the last line ({number}) is incomplete and was dropped")
                return
            raise RunError(
                f"{path}, line {number} is damaged: expected one JSON object,"
                f" found {line[:60].decode(errors='replace')!r}"
            )
        yield number, value


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
                measured[_of_kind(line, "cell", str)].append(_sample(line))
            elif event == "cell_begin":
                cell = _of_kind(line, "cell", str)
                begun[cell], measured[cell] = line, []
                ended.pop(cell, None)
            elif event == "cell_end":
                cell = _of_kind(line, "cell", str)
                ended[cell] = _cell(begun.pop(cell), line, measured.pop(cell))
            elif event == "calibration":
                part = Calibration(
                    _of_kind(line, "round", int),
                    _of_kind(line, "part", str),
                    _number(line["value"], "the calibration"),
                    _of_kind(line, "unit", str),
                )
                calibrations[part.round, part.part] = part
            else:
                raise ValueError(f"unknown event {event!r}")
        except KeyError as exc:
            key = exc.args[0]
            is_cell = key in line.values()
            problem = f"cell {key!r} has not begun" if is_cell else f"key {key!r} is missing"
            raise RunError(f"{file}, line {number}: {problem}") from exc
        except (TypeError, ValueError, OverflowError) as exc:
            raise RunError(f"{file}, line {number}: {exc}") from exc
    return tuple(ended.values()), tuple(calibrations.values()), tuple(begun)


def read_checks(file: Path, lines: Lines) -> tuple[Check, ...]:
    """The checks; if one is repeated for a cell, round and arm, the last counts. Raises RunError."""
    checks: dict[tuple[Any, ...], Check] = {}
    for number, line in lines:
        try:
            line["passed"]  # may be null, but not missing
            check = Check(
                name=_of_kind(line, "name", str),
                passed=_of_kind(line, "passed", bool | None),
                detail=_of_kind(line, "detail", str | None) or "",
                arm=_of_kind(line, "arm", str | None),
                cell=_of_kind(line, "cell", str | None),
                round=_of_kind(line, "round", int | None),
                facts=_facts(line.get("facts")),
            )
            checks[check.cell, check.round, check.arm, check.name] = check
        except KeyError as exc:
            raise RunError(f"{file}, line {number}: key {exc.args[0]!r} is missing") from exc
        except TypeError as exc:
            raise RunError(f"{file}, line {number}: {exc}") from exc
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
        cell=_of_kind(begin, "cell", str),
        arm=_of_kind(begin, "arm", str),
        round=_of_kind(begin, "round", int),
        warmup=_of_kind(begin, "warmup", bool),
        order=_of_kind(begin, "order", int),
        started_at=_of_kind(begin, "started_at", str),
        status=status,
        error=_of_kind(end, "error", str | None),
        samples=tuple(samples),
    )


def _sample(line: dict[str, Any]) -> Sample:
    return Sample(
        metric=_of_kind(line, "metric", str),
        value=_number(line["value"], line["metric"]),
        commit=_commit(line["commit"]),
        phase=_of_kind(line, "phase", str | None),
    )


def _of_kind(line: dict[str, Any], key: str, kind: type | UnionType) -> Any:
    """The value of a key; one that may be null may be missing."""
    value = line.get(key) if isinstance(kind, UnionType) else line[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, int | None)):
        raise TypeError(f"{key} is {value!r}, which is not {_KINDS[kind]}")
    return value


_KINDS: dict[type | UnionType, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    str | None: "a text or null",
    int | None: "a whole number or null",
    bool | None: "true, false or null",
}


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
    """Raises ValueError for a value that no measurement gives: negative, not finite or beyond 64 bits."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} is {value}, and a measured value is finite and not negative")
    if value >= 1 << 64:
        raise ValueError(f"{what} is {value}, more than any measurement gives")


def parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
