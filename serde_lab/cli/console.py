"""Prints results to standard output, and progress and messages to standard error.

Progress is live on a terminal, and plain lines elsewhere. Text is printed unchanged: no markup, no emoji
codes; control characters are made visible (`runs.plain_text`). rich itself respects NO_COLOR and
non-terminals.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
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

from serde_lab.errors import Interrupted
from serde_lab.files import discard_output, output_errors
from serde_lab.report.formats import csv_table, markdown_table, terminal_table
from serde_lab.report.page import Cell, Column, Table
from serde_lab.runs.plain_text import plain_json, plain_line

if TYPE_CHECKING:
    from serde_lab.lab.jars.manifest import Jar


class _Console(Console):
    def on_broken_pipe(self) -> None:
        discard_output(self.file)


stderr = _Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
stdout = _Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
# a pipe has no width, and what other programs read must not be cut
WIDTH = stdout.width if stdout.is_terminal else None


Format = Literal["table", "json", "csv", "md"]
"""`--format` of commands that print a table."""
GateFormat = Literal["table", "md", "csv", "json", "junit"]
"""`--format` of `gate` and `ab`."""


def say(text: str, style: str | None = None) -> None:
    """Print a one-line message on standard error."""
    stderr.print(plain_line(text), style=style)


def emit(text: str) -> None:
    """Print a result unchanged, line by line."""
    with output_errors():
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def emit_line(text: str) -> None:
    emit(plain_line(text))


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    form: Format = "table",
    title: str = "",
) -> None:
    """Print rows of cells, shape (len(rows), len(columns)); a cell that is a tuple has several lines."""
    if form == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(_table(columns, rows), form, title)


def print_table(table: Table, form: Format, title: str = "") -> None:
    """Print a table as text, CSV or Markdown; only text has a title."""
    if form == "csv":
        emit(csv_table(table))
    elif form == "md":
        emit("\n".join(markdown_table(table)))
    else:
        heading = f"{plain_line(title)}\n" if title else ""
        emit(heading + terminal_table(table, WIDTH, styled=stdout.is_terminal))


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A column is numeric if all its texts are; a cell that is a tuple has a second line."""
    texts = [[_lines(value) for value in row] for row in rows]
    numeric = [
        bool(rows) and all(_is_number(line) for row in texts for line in row[i])
        for i in range(len(columns))
    ]
    return Table(
        "",
        "",
        tuple(Column(name, name, figures) for name, figures in zip(columns, numeric, strict=True)),
        tuple(tuple(Cell(cell[0], note="\n".join(cell[1:])) for cell in row) for row in texts),
    )


def print_json(value: Any) -> None:
    emit(plain_json(value))


def _lines(cell: object) -> tuple[str, ...]:
    if isinstance(cell, tuple):
        return tuple(plain_line(str(line)) for line in cell if line) or ("",)
    return ("" if cell is None else plain_line(str(cell)),)


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[:1] in "-–×"


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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            # the runner's notes on the exception name the run, if there is one already
            raise Interrupted(
                "; ".join(["interrupted", *getattr(error, "__notes__", ())])
            ) from error

    def message(self, text: str) -> None:
        say(f"{self.scenario}: {text}")
        self._describe(text)

    def plan(self, cells: int, done: int) -> None:
        self._total, self._done = cells, done
        self._measured_from = done
        if done:
            self.message(f"{done} of {cells} cells were measured earlier")
        if self._bar is not None:
            self._bar.update(self._task, total=cells, completed=done)

    def cell_started(self, arm: str, round: int, warmup: bool) -> None:
        if self._done == self._measured_from:
            self._began = time.monotonic()
        self._describe(f"round {round}{' (warm-up)' if warmup else ''} · {arm}")

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
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


def fetch_sets_of_jars(*sets: Sequence[Jar]) -> None:
    """Download those jars that are not on this machine, with progress. Raises SetupError."""
    from serde_lab.lab.jars.manifest import fetch_jars

    with DownloadProgress() as progress:
        for jars in sets:
            fetch_jars(jars, progress=progress, say=say)
