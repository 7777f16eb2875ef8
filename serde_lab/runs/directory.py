"""Writes run directories, `results/<scenario>/<run-id>/`, while their runs are measured, and reads them.

The files are `run.json`, `samples.jsonl` and `checks.jsonl`. A cell counts only with its `cell_end` line.
Nothing written ever changes, except the state in `run.json` and, once a run has ended, the digests of the
other two files, which are added there.

While a run is measured, its process holds a lock on `samples.jsonl`. The kernel releases the lock when the
process ends, so a run in state `running` without a lock was killed: it is read as `interrupted`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from serde_lab.errors import RunError
from serde_lab.measure.metrics import metric as metric_named
from serde_lab.runs.lines import LineWriter, drop_torn_tail, read_lines
from serde_lab.runs.model import (
    FORMAT_VERSION,
    CellStatus,
    Check,
    Run,
    RunHeader,
    State,
)
from serde_lab.runs.samples import read_checks, read_samples
from serde_lab.runs.soundness import check_cells, check_digests, check_rounds, digests_of

RUN_FILE, SAMPLES_FILE, CHECKS_FILE = "run.json", "samples.jsonl", "checks.jsonl"

_LOCK_TRIES, _LOCK_PAUSE_S = 3, 0.05
"""A reader of a run's state holds the lock for a moment, so a writer tries again."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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

    def __init__(self, path: Path, header: RunHeader, complete: frozenset[str], sync: bool) -> None:
        self.path = path
        self.header = header
        self.complete_cells = complete
        """Names of cells that need not be measured again."""
        self._samples = LineWriter(path / SAMPLES_FILE, sync=sync)
        try:
            _lock(self._samples.fileno())
        except OSError as exc:
            self._samples.close()
            raise RunError(f"{path} is being written by another process") from exc
        self._checks = LineWriter(path / CHECKS_FILE, sync=sync)

    @classmethod
    def create(cls, results: Path, header: RunHeader, *, sync: bool = False) -> Self:
        """Begin `results/<scenario>/<run-id>/`; a run whose id is taken gets another one."""
        for what, name in (("scenario", header.scenario), ("run id", header.run)):
            if not _NAME.fullmatch(name):
                raise RunError(f"{what} {name!r} cannot be the name of a folder")
        header = _make_folder(results / header.scenario, header)
        path = results / header.scenario / header.run
        # lock first: nobody may see a run in state `running` without a lock
        writer = cls(path, header, frozenset(), sync)
        try:
            _write_header(path, header)
        except BaseException:
            writer.close()
            shutil.rmtree(path, ignore_errors=True)
            raise
        return writer

    @classmethod
    def open_existing(cls, run: Run | Path, *, sync: bool = False) -> Self:
        """Resume an interrupted run; measured values stay, an incomplete last line is removed.

        Raises RunError if the run is damaged, of another version, or still being written.
        """
        path = run.path if isinstance(run, Run) else run
        header = load_header(path)
        # lock first: the half-written line of a live writer must not be removed
        writer = cls(path, header, frozenset(), sync)
        try:
            drop_torn_tail(path / SAMPLES_FILE)
            drop_torn_tail(path / CHECKS_FILE)
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
        """Add the result of one check of contents."""
        self._checks.append(
            {
                "cell": check.cell,
                "arm": check.arm,
                "round": check.round,
                "name": check.name,
                "passed": bool(check.passed),
                "detail": check.detail,
            }
        )

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is not None and self.header.state == "running":
                self._set_state("interrupted")
        finally:
            self.close()

    def _set_state(self, state: State) -> None:
        """Write the state, with the digests of the other files unless more is to be measured."""
        digests = None if state == "running" else digests_of(_digested(self.path))
        self.header = self.header.model_copy(update={"state": state, "digests": digests})
        _write_header(self.path, self.header)


def load_header(path: Path) -> RunHeader:
    """`run.json` of a run directory. Raises RunError if it is missing, damaged or of another version."""
    file = path / RUN_FILE
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path} is no run: it has no {RUN_FILE}") from None
    except (OSError, ValueError) as exc:
        raise RunError(f"{file} cannot be read: {exc}") from exc
    version = value.get("format_version") if isinstance(value, dict) else None
    if version != FORMAT_VERSION:
        raise RunError(
            f"{file} has format_version {version!r}, and this serde_lab reads {FORMAT_VERSION}"
        )
    try:
        header = RunHeader.model_validate(value)
    except ValidationError as exc:
        first = exc.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{file}, key {key!r}: {first['msg']}") from exc
    if header.state == "running" and not _is_locked(path / SAMPLES_FILE):
        return header.model_copy(update={"state": "interrupted"})
    return header


def load_run(path: Path) -> Run:
    """Everything that counts in a run directory; `messages` name what does not count.

    Raises RunError naming the file if its digest does not match or it holds impossible values, and naming
    file and line if a line other than the last is damaged.
    """
    header = load_header(path)
    messages: list[str] = []
    if header.digests is not None:
        check_digests(header.digests, _digested(path))
    else:
        messages.append(_without_digest(path, header))
    file = path / SAMPLES_FILE
    cells, calibrations, unfinished = read_samples(file, read_lines(file, messages))
    messages += [f"{file}: cell {cell} has no end and does not count" for cell in unfinished]
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
    """Add digests of the present files to a run that ended without them; False if it already has them.

    Raises RunError for a run that is damaged, or has not ended.
    """
    header = load_run(path).header
    if header.digests is not None:
        return False
    if header.state != "complete":
        raise RunError(f"{path} has not ended", "run --resume goes on with it")
    digests = digests_of(_digested(path))
    _write_header(path, header.model_copy(update={"digests": digests}))
    return True


def _digested(path: Path) -> dict[str, Path]:
    return {name: path / name for name in (SAMPLES_FILE, CHECKS_FILE)}


def _without_digest(path: Path, header: RunHeader) -> str:
    if header.state != "complete":
        return f"{path} has not ended: what is shown of it is partial, and has no digest yet"
    return f"{path} is without digest: nothing shows that it is what was measured"


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


def _lock(descriptor: int) -> None:
    """Take the lock of a run. Raises OSError if another process writes the run."""
    for tries_left in reversed(range(_LOCK_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not tries_left:
                raise
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


def _is_locked(samples: Path) -> bool:
    """Whether a process writes the run; assumed if the file system has no locks."""
    try:
        with samples.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _write_header(path: Path, header: RunHeader) -> None:
    """Replace `run.json` atomically, so that neither a reader nor a crash sees half of it."""
    target, new = path / RUN_FILE, path / f".{RUN_FILE}.{os.getpid()}"
    try:
        text = json.dumps(header.model_dump(mode="json"), indent=2, ensure_ascii=False)
        # a lone surrogate, as in a path that is not UTF-8, becomes a JSON escape
        with new.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    except OSError as exc:
        raise RunError(f"{target} cannot be written: {exc}") from exc
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()


def _plain(value: Any) -> int | float:
    """A numpy scalar as Python's own number."""
    item = getattr(value, "item", None)
    number: int | float = value if item is None else item()
    return number
