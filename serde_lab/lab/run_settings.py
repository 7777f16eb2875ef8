"""Where a run works and keeps things: what the command line says beside the scenario.

Must not know what is done with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from serde_lab.lab.kept_tables import KeptTables


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where a run works and keeps things; nothing of it changes what is asked.

    `arms`: names of the arms to measure, () for all. `keep_tables`: a folder for each arm's final
    table; `replace`: whatever is in the way there is deleted. `master`: a Spark master, "" for local mode.
    """

    results: Path = Path("results")
    cache: Path | None = None
    work: Path | None = None
    keep_tables: Path | None = None
    replace: bool = False
    arms: tuple[str, ...] = ()
    master: str = ""
    overrides: tuple[str, ...] = ()
    """The `key=value` changes that were made to the scenario, so that a report can say how to remake it."""
    conf: dict[str, str] = field(default_factory=dict)
    hudi_jar: str = ""
    require_peers: bool = False
    """A peer that cannot run is an error, not an arm reported as missing."""
    isolate_peers: bool = False
    """Peers get a process and a Spark session of their own, beside that of the other arms: shows what
    sharing does."""
    ship_environment: bool = False
    """Nothing is installed on the workers of `master`: they get this environment, packed into the cache."""
    worker_python: str = ""
    """The workers' Python, "" for the path of the one here; what a shipped environment links to."""
    archive: Path | None = None
    """The environment that is shipped, once it is packed."""

    @property
    def kept_tables(self) -> KeptTables | None:
        """Where tables are kept; None where none is."""
        return None if self.keep_tables is None else KeptTables(self.keep_tables, self.replace)
