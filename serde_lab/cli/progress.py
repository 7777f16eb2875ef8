"""Shows progress of runs and downloads on standard error: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from serde_lab.cli.console import say, stderr
from serde_lab.errors import Interrupted
from serde_lab.runs.plain_text import plain_line


class RunProgress:
    """Shows scenario, arm, round and remaining time; every cell also leaves one line."""

    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        self._bar: Progress | None = None
        self._total = self._done = 0
        self._began = time.monotonic()
        if stderr.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=stderr,
                transient=True,
            )
            self._task = self._bar.add_task(plain_line(scenario), total=None)

    def __enter__(self) -> RunProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            # the runner's notes on the exception name the run, if there is one already
            raise Interrupted(
                "; ".join(["interrupted", *getattr(error, "__notes__", ())])
            ) from error

    def message(self, text: str) -> None:
        """Show a step that is not a cell."""
        say(f"{self.scenario}: {text}")
        self._describe(text)

    def plan(self, cells: int, done: int) -> None:
        """How many cells there are, and how many of them were measured before."""
        self._total, self._done = cells, done
        self._measured_from = done
        if done:
            self.message(f"{done} of {cells} cells were measured before")
        if self._bar is not None:
            self._bar.update(self._task, total=cells, completed=done)

    def cell_started(self, arm: str, round: int, warmup: bool) -> None:
        """A cell's clock is about to start."""
        if self._done == self._measured_from:
            self._began = time.monotonic()
        self._describe(f"round {round}{' (warm-up)' if warmup else ''} · {arm}")

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        """A cell has ended."""
        self._done += 1
        share = 100 * self._done / max(1, self._total)
        figure = f"{seconds:7.2f} s" if seconds is not None else f"no timing: {note}"
        left = ""
        if self._bar is None and self._done > self._measured_from:
            spent = time.monotonic() - self._began
            per_cell = spent / (self._done - self._measured_from)
            left = f"  ({per_cell * (self._total - self._done):.0f} s left)"
        line = f"[{share:5.1f}%] {self.scenario} · round {round} · {arm:<24} {figure}{left}"
        say(line, style="red" if seconds is None else None)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def _describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=plain_line(f"{self.scenario} · {text}"))


class DownloadProgress:
    """Shows bytes, speed and remaining time of downloads; without a terminal, one line per tenth."""

    def __init__(self) -> None:
        self._tenths: dict[str, int] = {}
        self._bar = Progress(
            TextColumn("fetching {task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=stderr,
            disable=not stderr.is_terminal,
        )

    def __enter__(self) -> DownloadProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, task: str, done: int, total: int) -> None:
        """`done` of `total` bytes have arrived."""
        if not stderr.is_terminal:
            tenth = 10 * done // total
            if self._tenths.get(task) != tenth:
                self._tenths[task] = tenth
                say(f"fetching {task}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")
            return
        known = {one.description: one.id for one in self._bar.tasks}
        if task not in known:
            known[task] = self._bar.add_task(task, total=total)
        self._bar.update(known[task], completed=done)


def fetch_hudi_bundle(stated: str = "") -> Path:
    """Apache Hudi's bundle, downloaded with progress if it is not here. Raises SetupError."""
    from serde_lab.lab.jars.manifest import HUDI, fetch_jar

    with DownloadProgress() as progress:
        return fetch_jar(HUDI, stated, progress=progress, say=say).path
