"""Writes run directories, `results/<scenario>/<run-id>/`, while their runs are measured.

The files are `run.json`, `samples.jsonl` and `checks.jsonl`. A cell counts only with its `cell_end` line.
Nothing written ever changes, except the state in `run.json` and, once a run has ended, the digests of the
files, which are added there; a search also adds the arms that it combines. A kill loses at most the line that
is being written.

While a run is measured, its process holds a lock on `samples.jsonl`. The kernel releases the lock when the
process ends, so a run in state `running` without a lock was killed: it is read as `interrupted`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from serde_lab.errors import RunError, StorageError
from serde_lab.files import lock_file
from serde_lab.measure.metrics import metric as metric_named
from serde_lab.runs.directory import (
    CHECKS_FILE,
    FOLDER_NAME,
    SAMPLES_FILE,
    digested,
    digests_of,
    load_header,
    load_run,
    sealed_header,
    write_header,
)
from serde_lab.runs.model import ArmEntry, CellStatus, Check, Run, RunHeader, State, parse_line

_LOCK_TRIES, _LOCK_PAUSE_S = 3, 0.05
"""A reader of a run's state holds the lock for a moment, so a writer tries again."""


def new_run_id(folder: Path, now: datetime | None = None) -> str:
    """An id for a new run in `folder` (results/<scenario>): the time in UTC, unique in the folder.

    Ids sort by the start of their runs.
    """
    stamp = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    run_id, n = stamp, 1
    while os.path.lexists(folder / run_id):
        n += 1
        run_id = f"{stamp}-{n:02d}"
    return run_id


class RunWriter:
    """Writes one run. As a context manager, it marks the run `interrupted` if an exception leaves it."""

    def __init__(self, path: Path, header: RunHeader, complete: frozenset[str]) -> None:
        self.path = path
        self.header = header
        self.complete_cells = complete
        """Names of cells that need not be measured again."""
        self._samples = _LineWriter(path / SAMPLES_FILE)
        try:
            self._samples.lock()
        except BaseException:
            self._samples.close()
            raise
        self._checks = _LineWriter(path / CHECKS_FILE)

    @classmethod
    def create(cls, results: Path, header: RunHeader) -> Self:
        """Begin `results/<scenario>/<run-id>/`; a run whose id is taken gets another one."""
        for what, name in (("scenario", header.scenario), ("run id", header.run)):
            if not FOLDER_NAME.fullmatch(name):
                raise RunError(f"{what} {name!r} cannot be the name of a folder")
        header = _make_folder(results / header.scenario, header)
        path = results / header.scenario / header.run
        # lock first: nobody may see a run in state `running` without a lock
        writer = cls(path, header, frozenset())
        try:
            write_header(path, header)
        except BaseException:
            writer.close()
            shutil.rmtree(path, ignore_errors=True)
            raise
        return writer

    @classmethod
    def open_existing(cls, run: Run | Path) -> Self:
        """Resume an interrupted run; measured values stay, an incomplete last line is removed.

        Raises RunError if the run is damaged, of another version, or still being written.
        """
        path = run.path if isinstance(run, Run) else run
        header = load_header(path)
        # lock first: the half-written line of a live writer must not be removed
        writer = cls(path, header, frozenset())
        try:
            _drop_torn_tail(path / SAMPLES_FILE)
            _drop_torn_tail(path / CHECKS_FILE)
            writer.complete_cells = load_run(path).complete_cells
            writer._set_state("running")
        except BaseException:
            writer.close()
            raise
        return writer

    def cell_begin(
        self, cell: str, *, arm: str, round: int, warmup: bool, order: int, started_at: str
    ) -> None:
        """Begin a cell; earlier measurements under this name no longer count."""
        self._samples.append(
            {
                "event": "cell_begin",
                "cell": cell,
                "arm": arm,
                "round": round,
                "warmup": warmup,
                "order": order,
                "started_at": started_at,
            }
        )

    def sample(
        self,
        cell: str,
        metric: str,
        value: float,
        *,
        commit: int | None = None,
        phase: str | None = None,
    ) -> None:
        """Add one measured value, in the unit that the registry of metrics gives it.

        Raises RunError for an unknown metric or a value that is not finite.
        """
        event: dict[str, object] = {"event": "sample", "cell": cell, "metric": metric}
        if phase is not None:
            event["phase"] = phase
        event |= {"value": _plain(value), "unit": metric_named(metric).unit, "commit": commit}
        self._samples.append(event)

    def calibration(self, round: int, part: str, value_s: float) -> None:
        """Add the seconds of one part of a round's calibration cell."""
        self._samples.append(
            {
                "event": "calibration",
                "round": round,
                "part": part,
                "value": _plain(value_s),
                "unit": "s",
            }
        )

    def cell_end(self, cell: str, status: CellStatus, error: str | None = None) -> None:
        """End a cell: from here on it counts, and survives a power cut."""
        self._samples.append({"event": "cell_end", "cell": cell, "status": status, "error": error})
        self._checks.sync()
        self._samples.sync()

    def check(self, check: Check) -> None:
        self._checks.append(
            {
                "cell": check.cell,
                "arm": check.arm,
                "round": check.round,
                "name": check.name,
                "passed": None if check.passed is None else bool(check.passed),
                "detail": check.detail,
                **({"facts": dict(check.facts)} if check.facts else {}),
            }
        )

    def add_arms(self, entries: Sequence[ArmEntry]) -> None:
        """Add arms that a search has combined; those that the run has already stay as they are."""
        known = {entry.arm for entry in self.header.arms}
        new = tuple(entry for entry in entries if entry.arm not in known)
        if new:
            self.header = self.header.model_copy(update={"arms": (*self.header.arms, *new)})
            write_header(self.path, self.header)

    def finish(self, state: State) -> None:
        """Set the run's final state and close its files."""
        self._set_state(state)
        self.close()

    def close(self) -> None:
        """Close the files and leave the state as it is; may be called twice."""
        self._checks.close()
        self._samples.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is not None and self.header.state == "running":
                self._set_state("interrupted")
        finally:
            self.close()

    def _set_state(self, state: State) -> None:
        """Write the state, with the digests of the files unless more is to be measured."""
        digests = digests_of(digested(self.path)) if state == "interrupted" else None
        self.header = self.header.model_copy(update={"state": state, "digests": digests})
        if state == "complete":
            self.header = sealed_header(self.path, self.header)
        write_header(self.path, self.header)


def _make_folder(folder: Path, header: RunHeader) -> RunHeader:
    """Create the folder of a new run in `folder`; returns the header with the run's final id."""
    while True:
        path = folder / header.run
        try:
            path.mkdir(parents=True)
        except FileExistsError:  # another run began in the same second
            header = header.model_copy(update={"run": new_run_id(folder)})
        except OSError as exc:
            raise RunError(f"{path} cannot be made: {exc}") from exc
        else:
            return header


def _drop_torn_tail(path: Path) -> None:
    """Remove an incomplete last line, or end a complete one, so that appending starts on a new line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    if not data:
        return
    # a last line without its line feed may be complete: no prefix of an object is valid JSON
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    if parse_line(data[start:].rstrip(b"\n")) is None:
        os.truncate(path, start)
    elif not data.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


class _LineWriter:
    """Appends one JSON object per line, flushed to the operating system at once.

    Lines survive the death of this process; after `sync`, which costs milliseconds, a power cut too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def append(self, value: Mapping[str, object]) -> None:
        """Write one line. Raises RunError if the value is not JSON (NaN and infinity are not)."""
        try:
            line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError) as exc:
            raise RunError(f"{self.path}: cannot store {value!r}: {exc}") from exc
        # one unbuffered write, so that a kill leaves at most a prefix of one line
        data = memoryview(line.encode(errors="backslashreplace"))
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as exc:
            raise StorageError(f"{self.path} cannot be written: {exc.strerror}") from exc

    def sync(self) -> None:
        """Make the appended lines survive a power cut."""
        os.fsync(self._file.fileno())

    def lock(self) -> None:
        """Keep other processes from writing the file. Raises RunError if one is writing it."""
        for _ in range(_LOCK_TRIES - 1):
            if self._locked():
                return
            time.sleep(_LOCK_PAUSE_S)
        if not self._locked():
            raise RunError(f"{self.path.parent} is being written by another process")

    def _locked(self) -> bool:
        try:
            return lock_file(self._file)
        except OSError:
            return False

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def _plain(value: Any) -> int | float:
    """A numpy scalar as Python's own number."""
    item = getattr(value, "item", None)
    number: int | float = value if item is None else item()
    return number
