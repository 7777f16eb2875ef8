"""Checks that a run is as it was measured: digests, impossible values, and cells without checks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

from serde_lab.errors import RunError
from serde_lab.runs.model import Cell, Check, Run, RunHeader

_CPU_FACTOR, _CPU_SLACK_S = 1.5, 0.5
"""CPU clocks and threads may exceed the slots a little: at most 1.08 times was ever seen."""


def digests_of(files: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of the bytes of each file, by name; a missing file has the digest of no bytes."""
    found = {}
    for name, file in files.items():
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError as exc:
            raise RunError(f"{file} cannot be read: {exc}") from exc
        found[name] = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return found


def check_digests(stated: Mapping[str, str], files: Mapping[str, Path]) -> None:
    """Raises RunError naming the file whose digest differs from the stated one."""
    for name, found in digests_of(files).items():
        if stated.get(name) != found:
            raise RunError(
                f"{files[name]} is not what was measured: its digest is {found[:19]}…,"
                f" and run.json states {stated.get(name, 'none')[:19]}…"
            )


def check_value(what: str, value: float) -> None:
    """Raises ValueError for a value that no measurement gives: negative or not finite."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} is {value}, and a measured value is finite and not negative")


def check_cells(file: Path, header: RunHeader, cells: tuple[Cell, ...]) -> None:
    """Raises RunError naming a cell whose arm, round or CPU time is impossible."""
    arms = {entry.arm for entry in header.arms}
    for cell in cells:
        if problem := _of_name(cell, arms) or _of_cpu(cell):
            raise RunError(f"{file}: cell {cell.cell} cannot be: {problem}")


def check_rounds(file: Path, cells: tuple[Cell, ...], checks: tuple[Check, ...]) -> None:
    """Raises RunError if a check names another arm or round than its cell has."""
    by_name = {cell.cell: cell for cell in cells}
    for check in checks:
        cell = by_name.get(check.cell or "")
        if cell is not None and (check.arm, check.round) != (cell.arm, cell.round):
            raise RunError(
                f"{file}: check {check.name} of cell {cell.cell} is of arm {check.arm}, round"
                f" {check.round}; the cell is of arm {cell.arm}, round {cell.round}"
            )


def unchecked(run: Run, arm: str) -> str:
    """Why the figures of an arm cannot be trusted: rounds without a check; "" if all were checked."""
    checked = {check.cell for check in run.checks}
    rounds = [
        str(cell.round)
        for cell in run.cells
        if cell.arm == arm and cell.status == "ok" and cell.cell not in checked
    ]
    if not rounds:
        return ""
    return f"no check of contents in round{'s' if len(rounds) > 1 else ''} {', '.join(rounds)}"


def _of_name(cell: Cell, arms: set[str]) -> str:
    """How the cell's name contradicts its round and arm, in words; "" if it does not."""
    if cell.arm not in arms:
        return f"run.json has no arm {cell.arm!r}"
    if cell.round < 0 or cell.cell != f"r{cell.round:02d}-{cell.arm}":
        return f"its line says round {cell.round} of arm {cell.arm!r}"
    return ""


def _of_cpu(cell: Cell) -> str:
    """How the cell's CPU time exceeds what its slots allow, in words; "" if it does not."""
    slots = max((s.value for s in cell.samples if s.metric == "slots"), default=0.0)
    wall_s = _over(cell, "seconds")
    cpu_s = math.fsum(s.value for s in cell.samples if s.metric == "phase_cpu_s")
    most_s = _CPU_FACTOR * slots * wall_s + _CPU_SLACK_S
    if slots and wall_s and cpu_s > most_s:
        return f"{cpu_s:.3f} s of CPU in {wall_s:.3f} s on {slots:g} slots"
    return ""


def _over(cell: Cell, metric: str) -> float:
    """The value of the whole cell, else the sum over its commits."""
    samples = [sample for sample in cell.samples if sample.metric == metric]
    whole = [sample.value for sample in samples if sample.commit is None]
    return whole[-1] if whole else math.fsum(sample.value for sample in samples)
