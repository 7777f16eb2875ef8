"""Finds, reads and seals run directories, `results/<scenario>/<run-id>/`.

A run is read only as it was measured: its digests match, and no value, name or CPU time is impossible. The
digests are those of its files, `run.json` included; runs of versions before that lack its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from serde_lab.errors import RunError
from serde_lab.files import lock_file, read_versioned, write_whole
from serde_lab.runs.model import (
    FORMAT_VERSION,
    Check,
    MeasuredCell,
    Run,
    RunHeader,
    read_checks,
    read_lines,
    read_samples,
)

RUN_FILE, SAMPLES_FILE, CHECKS_FILE = "run.json", "samples.jsonl", "checks.jsonl"
SEARCH_FILE = "search.json"
"""What a search found, which follows from the other files; a run without a search has none."""
LATEST = "latest"
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names that the folders of scenarios and runs have."""

_CPU_FACTOR, _CPU_SLACK_S = 1.5, 0.5
"""CPU clocks and threads may exceed the slots a little: at most 1.08 times was ever seen."""


def load_header(path: Path) -> RunHeader:
    """`run.json` of a run directory. Raises RunError if it is missing, damaged or of another version."""
    header = _stated_header(path)
    if header.state != "running" or _is_locked(path / SAMPLES_FILE):
        return header
    # read once more, since the run may have ended between the two looks
    header = _stated_header(path)
    killed = header.state == "running"
    return header.model_copy(update={"state": "interrupted"}) if killed else header


def _stated_header(path: Path) -> RunHeader:
    file = path / RUN_FILE
    try:
        value = read_versioned(file, FORMAT_VERSION)
    except FileNotFoundError:
        raise RunError(f"{path} is no run: it has no {RUN_FILE}") from None
    try:
        header = RunHeader.model_validate(value)
    except ValidationError as exc:
        first = exc.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{file}, key {key!r}: {first['msg']}") from exc
    if header.digests and header.digests.get(RUN_FILE, found := digest_of_header(value)) != found:
        raise RunError(f"{file} was changed after the measurement: it no longer has its digest")
    return header


def load_run(path: Path) -> Run:
    """Everything that counts in a run directory; `messages` name what does not count.

    Raises RunError naming the file if its digest does not match or it holds impossible values, and naming
    file and line if a line other than the last is damaged.
    """
    header = load_header(path)
    try:
        return _with_files(path, header)
    except RunError:
        if load_header(path) == header:
            raise
    # its process has resumed, extended or ended it between reading `run.json` and the other files
    return load_run(path)


def _with_files(path: Path, header: RunHeader) -> Run:
    messages: list[str] = []
    if header.digests is not None:
        check_digests(header.digests, digested(path))
    else:
        messages.append(_without_digest(path, header))
    file = path / SAMPLES_FILE
    cells, calibrations, unfinished = read_samples(file, read_lines(file, messages))
    messages += [f"{file}: cell {cell} did not finish and does not count" for cell in unfinished]
    check_cells(file, header, cells)
    file = path / CHECKS_FILE
    checks = read_checks(file, read_lines(file, messages))
    check_rounds(file, cells, checks)
    ended = {cell.cell for cell in cells}
    return Run(
        path=path,
        header=header,
        cells=cells,
        calibrations=calibrations,
        checks=tuple(check for check in checks if check.cell is None or check.cell in ended),
        messages=tuple(messages),
    )


def seal_run(path: Path) -> bool:
    """Add the digests that a run which has ended lacks; False if it lacks none.

    Raises RunError for a run that is damaged, or has not ended.
    """
    header = load_run(path).header
    if header.digests is not None and RUN_FILE in header.digests:
        return False
    if header.state != "complete":
        raise RunError(f"{path} has not ended", "run --resume continues it")
    write_header(path, sealed_header(path, header))
    return True


def sealed_header(path: Path, header: RunHeader) -> RunHeader:
    """The header of a run that has ended, with the digests of its files and of all else in it."""
    digests = digests_of(digested(path))
    digests[RUN_FILE] = digest_of_header(header.model_dump(mode="json"))
    return header.model_copy(update={"digests": digests})


def digest_of_header(header: Mapping[str, Any]) -> str:
    """SHA-256 of what `run.json` states, its digests left out."""
    stated = {key: value for key, value in header.items() if key != "digests"}
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def digested(path: Path) -> dict[str, Path]:
    return {name: path / name for name in (SAMPLES_FILE, CHECKS_FILE)}


def _without_digest(path: Path, header: RunHeader) -> str:
    if header.state != "complete":
        return f"{path} has not ended: its values are partial and have no digest yet"
    return f"{path} has no digest, so nothing proves that its values are the measured ones"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run directory; `header` is None if it is unreadable, and `problem` says why."""

    path: Path
    header: RunHeader | None
    problem: str | None = None

    @property
    def run(self) -> str:
        """The run's id, which is the name of its folder."""
        return self.path.name

    @property
    def scenario(self) -> str:
        """The scenario's name, from the header or else the folder."""
        return self.path.parent.name if self.header is None else self.header.scenario


def list_runs(results: Path) -> list[RunEntry]:
    """All runs under `results`, oldest first, including damaged ones with their problem.

    Raises RunError if `results`, or a folder in it that may be a scenario's, cannot be read: the newest run
    may be there.
    """
    found = []
    for path in _run_folders(results):
        try:
            found.append(RunEntry(path, load_header(path)))
        except RunError as exc:
            found.append(RunEntry(path, None, exc.message))
    return sorted(found, key=lambda entry: entry.run)


def _run_folders(results: Path) -> Iterator[Path]:
    for scenario in _folders_in(results):
        try:
            yield from filter(_may_be_run, _folders_in(scenario))
        except RunError:
            if FOLDER_NAME.fullmatch(scenario.name):
                raise
            # the system's own, such as lost+found


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise RunError(f"{folder} cannot be read: {exc.strerror}") from exc


def _may_be_run(path: Path) -> bool:
    try:
        return (path / RUN_FILE).exists()
    except OSError:  # it cannot be read, and its header will say so
        return True


def resolve_run(name: str, results: Path) -> Path:
    """The run directory that `name` means: a path, "latest", a scenario (its latest run), or an id.

    An id may be shortened to a unique beginning. Raises RunError that lists the existing runs.
    """
    if os.sep in name or (Path(name) / RUN_FILE).is_file():
        path = Path(name)
        if path.name == RUN_FILE:
            path = path.parent
        if not (path / RUN_FILE).is_file():
            raise RunError(f"{name} is no run: it has no {RUN_FILE}")
        return path
    entries = list_runs(results)
    # a damaged run may be meant, too: loading it then reports the damage
    meant = entries if name == LATEST else [e for e in entries if e.scenario == name]
    if meant:
        return meant[-1].path
    meant = [e for e in entries if e.run == name] or [e for e in entries if e.run.startswith(name)]
    if len(meant) == 1:
        return meant[0].path
    if meant:
        ids = ", ".join(f"{e.scenario}/{e.run}" for e in meant)
        raise RunError(f"{name!r} can mean several runs: {ids}", "name one by its path")
    if not entries:
        raise RunError(f"there is no run under {results}", "python -m serde_lab run smoke")
    known = ", ".join(sorted({entry.scenario for entry in entries}))
    raise RunError(
        f"no run, scenario or path is called {name!r}; under {results} there are runs of {known}"
    )


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
                f"{files[name]} was changed after the measurement: its digest is {found[:19]}…,"
                f" and run.json states {stated.get(name, 'none')[:19]}…"
            )


def check_cells(file: Path, header: RunHeader, cells: tuple[MeasuredCell, ...]) -> None:
    """Raises RunError naming a cell whose arm, round or CPU time is impossible."""
    arms = {entry.arm for entry in header.arms}
    for cell in cells:
        if problem := _of_name(cell, arms) or _of_cpu(cell):
            raise RunError(f"{file}: cell {cell.cell} is impossible: {problem}")


def check_rounds(file: Path, cells: tuple[MeasuredCell, ...], checks: tuple[Check, ...]) -> None:
    """Raises RunError if a check names another arm or round than its cell has."""
    by_name = {cell.cell: cell for cell in cells}
    for check in checks:
        cell = by_name.get(check.cell or "")
        if cell is not None and (check.arm, check.round) != (cell.arm, cell.round):
            raise RunError(
                f"{file}: check {check.name} of cell {cell.cell} is of arm {check.arm}, round"
                f" {check.round}; the cell is of arm {cell.arm}, round {cell.round}"
            )


def _of_name(cell: MeasuredCell, arms: set[str]) -> str:
    """How the cell's name contradicts its round and arm, in words; "" if it does not."""
    if cell.arm not in arms:
        return f"run.json has no arm {cell.arm!r}"
    if cell.round < 0 or cell.cell != f"r{cell.round:02d}-{cell.arm}":
        return f"its line says round {cell.round} of arm {cell.arm!r}"
    return ""


def _of_cpu(cell: MeasuredCell) -> str:
    """How the cell's CPU time exceeds what its slots allow, in words; "" if it does not."""
    slots = max((s.value for s in cell.samples if s.metric == "slots"), default=0.0)
    wall_s = _over(cell, "seconds")
    cpu_s = math.fsum(s.value for s in cell.samples if s.metric == "phase_cpu_s")
    most_s = _CPU_FACTOR * slots * wall_s + _CPU_SLACK_S
    if slots and wall_s and cpu_s > most_s:
        return f"{cpu_s:.3f} s of CPU time in {wall_s:.3f} s on {slots:g} slots"
    return ""


def _over(cell: MeasuredCell, metric: str) -> float:
    """The value of the whole cell, else the sum over its commits."""
    samples = [sample for sample in cell.samples if sample.metric == metric]
    whole = [sample.value for sample in samples if sample.commit is None]
    return whole[-1] if whole else math.fsum(sample.value for sample in samples)


def _is_locked(samples: Path) -> bool:
    """Whether a process writes the run; assumed if the file system has no locks."""
    try:
        with samples.open("rb") as file:
            return not lock_file(file, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def write_header(path: Path, header: RunHeader) -> None:
    """Replace `run.json`. Raises RunError."""
    target = path / RUN_FILE
    try:
        stated = header.model_dump(mode="json")
        text = json.dumps(stated, indent=2, ensure_ascii=False, allow_nan=False)
        # a lone surrogate, as in a path that is not UTF-8, becomes a JSON escape
        write_whole(target, f"{text}\n".encode(errors="backslashreplace"))
    except (OSError, ValueError) as exc:
        raise RunError(f"{target} cannot be written: {exc}") from exc
