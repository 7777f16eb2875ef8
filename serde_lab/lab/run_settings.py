"""Defines the settings of a run that its scenario does not contain, and the receiver of its progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from serde_lab.lab.folders import KeptTables


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Folders and choices of a run; none of them changes what the scenario asks for.

    `arms`: names of the arms to measure, () for all. `keep_tables`: a folder for each arm's final table;
    `replace` replaces whatever is there. `master`: a Spark master, "" for local mode.
    """

    results: Path = Path("results")
    cache: Path | None = None
    work: Path | None = None
    keep_tables: Path | None = None
    replace: bool = False
    arms: tuple[str, ...] = ()
    master: str = ""
    overrides: tuple[str, ...] = ()
    """The `key=value` changes made to the scenario, from which a report builds the command to repeat it."""
    conf: dict[str, str] = field(default_factory=dict)
    hudi_jar: str = ""
    require_peers: bool = False
    """Whether a peer that cannot run is an error; otherwise it is reported as missing."""
    isolate_peers: bool = False
    """Whether peers get their own process and Spark session, which shows the effect of sharing one."""
    ship_environment: bool = False
    """Whether to send this environment, packed into the cache, to workers without an installation."""
    worker_python: str = ""
    """The workers' Python, "" for the same path as here; a shipped environment links to it."""
    archive: Path | None = None
    """The archive of the shipped environment, once it is packed."""

    @property
    def kept_tables(self) -> KeptTables | None:
        """Where tables are kept; None if none are."""
        return None if self.keep_tables is None else KeptTables(self.keep_tables, self.replace)


class Progress(Protocol):
    """Receives the events of a run; every method returns at once."""

    def message(self, text: str) -> None:
        """A message that gets its own line."""

    def plan(self, cells: int, done: int) -> None:
        """The number of cells, and how many of them were measured before."""

    def cell_started(self, arm: str, round: int, warmup: bool) -> None:
        """A cell's clock is about to start."""

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        """A cell has ended; `seconds` is None if it failed, and `note` says why."""


class Silent:
    """Ignores all events."""

    def message(self, text: str) -> None: ...

    def plan(self, cells: int, done: int) -> None: ...

    def cell_started(self, arm: str, round: int, warmup: bool) -> None: ...

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None: ...
