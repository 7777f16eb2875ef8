"""Lists the runs under a results folder, and finds the run that a user names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from serde_lab.errors import RunError
from serde_lab.runs.directory import RUN_FILE, load_header
from serde_lab.runs.model import RunHeader

LATEST = "latest"


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

    @property
    def started(self) -> tuple[str, str]:
        """A sort key, oldest first: the start time, or the id, which begins with the time."""
        return ("" if self.header is None else self.header.started_at) or self.run, self.run


def list_runs(results: Path) -> list[RunEntry]:
    """All runs under `results`, oldest first, including damaged ones with their problem."""
    found = []
    for file in results.glob(f"*/*/{RUN_FILE}"):
        try:
            found.append(RunEntry(file.parent, load_header(file.parent)))
        except RunError as exc:
            found.append(RunEntry(file.parent, None, exc.message))
    return sorted(found, key=lambda entry: entry.run)


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
    readable = [entry for entry in entries if entry.header is not None]
    meant = readable if name == LATEST else [e for e in readable if e.scenario == name]
    if meant:
        return meant[-1].path
    # a damaged run may be named by its id: loading it then reports the damage
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
