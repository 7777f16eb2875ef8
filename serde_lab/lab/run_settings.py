"""Defines what a run has besides its scenario: settings, folders, and a receiver of its progress.

The folder for work holds tables, logs and Spark's own files, and is removed when the run ends. If a run is
killed, the next one removes it. `--keep-tables` copies each arm's last table to `DIR/<arm>`, or its last
tables to `DIR/<arm>/<dataset>`. A non-empty folder there is replaced only if an earlier run kept a table in
it, marked by a file in its `.hoodie`, or if the caller allows it. A copy gets its final name when it is
complete.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from serde_lab.errors import StorageError, UsageError
from serde_lab.files import lock_file


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


MARK = Path(".hoodie") / "serde_lab.kept"
"""Marks a table as a run's copy. Readers of Hudi tables ignore this file."""
_UNFINISHED = ".serde_lab-keeping-"
_PREFIX, _LOCK, _NEW_LOCK = "serde_lab-", ".lock", ".new-lock"
# the last are bytes of a name that is not UTF-8
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f?\\\udc80-\udcff]")


@contextmanager
def work_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a new folder in `parent`, by default the system's folder for temporary files.

    A lock marks it as in use, and ends with this process in any case.
    """
    above = Path(tempfile.gettempdir()) if parent is None else parent
    check_work(above)
    above.mkdir(parents=True, exist_ok=True)
    remove_abandoned(above)
    with (
        tempfile.TemporaryDirectory(
            prefix=_PREFIX, dir=above, ignore_cleanup_errors=True
        ) as folder,
        (Path(folder) / _NEW_LOCK).open("w") as file,
    ):
        lock_file(file, wait=True)
        # it gets its name once it is locked: until then another run would remove the folder as abandoned
        (Path(folder) / _NEW_LOCK).rename(Path(folder) / _LOCK)
        yield Path(folder)


def check_work(parent: Path | None) -> None:
    """Raise UsageError for a folder with a name that hudi-rs or DuckDB cannot open."""
    found = _UNREADABLE.search(str(parent or ""))
    if found is not None:
        raise UsageError(
            f"--work: the path {str(parent)!r} contains {found[0]!r}; DuckDB or hudi-rs"
            " cannot open files in such a folder"
        )


def remove_abandoned(above: Path) -> None:
    """Remove the folders in `above` left behind by runs that were killed."""
    for path in above.glob(f"{_PREFIX}*/{_LOCK}"):
        # skipped: removed meanwhile, another user's, or of a run that is still alive
        with suppress(OSError), path.open("r+") as file:
            if lock_file(file):
                shutil.rmtree(path.parent, ignore_errors=True)


def kept_as(arm: str, dataset: str) -> str:
    """The place of a kept table: the arm's, or a dataset's within it."""
    return f"{arm}/{dataset}" if dataset else arm


@dataclass(frozen=True, slots=True)
class KeptTables:
    """The folder for the tables of a run. `replace` allows any folder to be replaced."""

    folder: Path
    replace: bool = False

    def check(self, arms: Sequence[str]) -> None:
        """Raise UsageError unless the tables of `arms` can be kept; changes nothing."""
        above = self.folder.absolute()
        while not os.path.lexists(above):
            above = above.parent
        if not above.is_dir():
            raise UsageError(f"--keep-tables {self.folder}: {above} is not a folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise UsageError(f"--keep-tables {self.folder}: {above} cannot be written")
        for arm in arms:
            if arms.count(arm) > 1:
                raise UsageError(f"--keep-tables: several scenarios have an arm {arm!r}")
            self._check_target(self.folder / arm)

    def _check_target(self, target: Path) -> None:
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            what = "a link" if target.is_symlink() else "a file"
            raise UsageError(f"--keep-tables: {target} is {what}, expected a folder or nothing")
        if self.replace or not target.exists() or (target / MARK).is_file():
            return
        try:
            empty = not any(target.iterdir())
        except OSError as exc:
            raise UsageError(f"--keep-tables: {target} cannot be read: {exc.strerror}") from exc
        if not empty:
            raise UsageError(
                f"--keep-tables: {target} is not empty, and no earlier run kept a table there",
                hint="name another folder, or replace it with --replace",
            )

    def keep(self, table: Path, arm: str) -> None:
        """Copy `table` to its place; `arm` may be a result of `kept_as`.

        On UsageError or StorageError the previous content stays.
        """
        target = self.folder / arm
        self._check_target(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
        except OSError as exc:
            raise StorageError(f"{target} cannot be written: {exc.strerror}") from exc
        try:
            new, old = unfinished / "new", unfinished / "old"
            shutil.copytree(table, new)
            (new / MARK).parent.mkdir(exist_ok=True)  # plain Parquet files have none
            (new / MARK).write_text("serde_lab run --keep-tables may replace this table\n")
            if target.exists():
                target.rename(old)
            new.rename(target)
        except (OSError, shutil.Error) as exc:
            with suppress(OSError):
                if old.exists() and not target.exists():
                    old.rename(target)
            raise StorageError(f"{target} cannot be written: {_reason(exc)}") from exc
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _reason(exc: OSError) -> str:
    """The first of the reasons that `shutil` collects."""
    if isinstance(exc, shutil.Error) and exc.args and exc.args[0]:
        return str(exc.args[0][0][2])
    return exc.strerror or str(exc)
